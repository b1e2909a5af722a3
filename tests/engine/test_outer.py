"""The rules of a step: NaN policy, replay, cut graphs, unused parameters."""

import pytest
import torch

from metaforge.errors import NumericError, PluginError
from metaforge.optimizers import OuterOptimizer
from metaforge.outer import OuterLoop, StepLoss
from metaforge.recipe.schema import Optimizer
from tests.engine.toys import Points, Quadratic


class NanAt(Quadratic):
    """Task 7's loss is not finite."""

    def losses(self, params, tasks, *, training=False, noise=None):
        factor = torch.where(tasks.task_ids == 7, float("nan"), 1.0)
        return super().losses(params, tasks) * factor


def loop(inner, ids_of_step, **options):
    source = Points()
    optimizer = OuterOptimizer(inner.init(source.shape, torch.Generator()), Optimizer(lr=0.1))

    def objective(step, params, extra):
        tasks = source.batch("train", ids_of_step(step))
        losses = inner.losses(params, tasks)
        return StepLoss(losses.mean(), losses, tasks)

    return OuterLoop(optimizer, inner, objective, where="here", **options)


def ids_with_seven_at_ten(step):
    return [1, 7, 3] if step == 10 else [step % 5, 5 + step % 2]


@pytest.mark.parametrize("check_every", [1, 4, 25])
def test_stop_names_step_task_and_tensor(check_every):
    run = loop(NanAt(), ids_with_seven_at_ten, check_every=check_every)
    with pytest.raises(NumericError, match=r"here, step 10: the loss of task 7 .*inner step 0"):
        run.advance(40)


def test_skip_leaves_out_the_bad_step_and_counts_it():
    ends = []
    for check_every in (1, 4):
        run = loop(NanAt(), ids_with_seven_at_ten, on_nan="skip", check_every=check_every)
        run.advance(30)
        assert run.skipped == 1
        ends.append(run.optimizer.params["theta"].detach())
    assert torch.isfinite(ends[0]).all()
    assert torch.equal(ends[0], ends[1])
    without = loop(Quadratic(), lambda step: ids_with_seven_at_ten(step + (step >= 10)))
    without.advance(29)
    assert torch.equal(without.optimizer.params["theta"].detach(), ends[0])


def test_a_gradient_that_is_not_finite_is_found_where_it_arose():
    class Root(Quadratic):  # sqrt has an infinite slope at 0
        def losses(self, params, tasks, *, training=False, noise=None):
            return super().losses(params, tasks) + (params["theta"] * 0).abs().sum().sqrt()

    run = loop(Root(), lambda step: [step])
    with pytest.raises(NumericError, match=r"step 0: the loss is finite but its gradient .*theta"):
        run.advance(3)


def test_rare_reads_give_the_same_bits_as_reading_every_step():
    ends = []
    for check_every in (1, 7):
        run = loop(Quadratic(), lambda step: [step % 9], check_every=check_every)
        run.advance(23)
        ends.append(run.optimizer.params["theta"].detach())
    assert torch.equal(*ends)


def test_a_cut_graph_stops_after_the_first_step_and_names_the_plugin():
    class Cut(Quadratic):
        def losses(self, params, tasks, *, training=False, noise=None):
            return super().losses({k: v.detach() for k, v in params.items()}, tasks)

    class Zero(Quadratic):
        def losses(self, params, tasks, *, training=False, noise=None):
            return super().losses(params, tasks) * 0

    for broken in (Cut(), Zero()):
        run = loop(broken, lambda step: [step])
        with pytest.raises(PluginError, match=r"every outer gradient is none or zero.*test_outer"):
            run.advance(3)


def test_an_unused_parameter_is_named_once_with_the_option_that_allows_it():
    class Spare(Quadratic):
        def init(self, shape, generator):
            return {**super().init(shape, generator), "spare": torch.zeros(2)}

    with pytest.raises(PluginError, match=r"parameter spare .*allow_unused"):
        loop(Spare(), lambda step: [step]).advance(1)
    run = loop(Spare(), lambda step: [step], allow_unused=True)
    run.advance(3)
    assert torch.equal(run.optimizer.params["spare"].detach(), torch.zeros(2))
