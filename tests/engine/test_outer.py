"""The rules of a step: NaN policy, replay, cut graphs, unused parameters."""

import pytest
import torch

from metaforge.diagnosis import TaskLosses
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
        noise = inner.draw_noise(torch.Generator().manual_seed(step), len(tasks))
        losses = inner.losses(params, tasks, training=True, noise=noise)
        return StepLoss(losses.mean(), (TaskLosses(losses, tasks, noise),))

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


def steep(theta):
    """0, but its gradient is not finite: sqrt has an infinite slope there."""
    return (theta * 0).abs().sum().sqrt()


class Root(Quadratic):
    """Task 7's gradient is not finite, though its loss is."""

    def losses(self, params, tasks, *, training=False, noise=None):
        found = super().losses(params, tasks)
        return torch.stack(
            [
                value + steep(params["theta"]) if task_id == 7 else value
                for value, task_id in zip(found, tasks.task_ids, strict=True)
            ]
        )


@pytest.mark.parametrize("check_every", [1, 4])
def test_a_gradient_that_is_not_finite_names_the_task_it_comes_from(check_every):
    run = loop(Root(), ids_with_seven_at_ten, check_every=check_every)
    with pytest.raises(
        NumericError,
        match=r"step 10: the loss is finite but its gradient .* in theta; it comes from task 7; "
        r"1 of 3 tasks",
    ):
        run.advance(40)


def test_a_gradient_of_the_penalty_is_blamed_on_no_task():
    class Penalised(Quadratic):
        def penalty(self, params):
            return steep(params["theta"])

    with pytest.raises(NumericError, match=r"in theta; it comes from .* penalty on theta"):
        loop(Penalised(), lambda step: [step]).advance(3)


def two_parts(inner, scale):
    """A loop over tasks 1 and 2, and task 7 in a call of its own, as a transductive target is."""
    source = Points()
    optimizer = OuterOptimizer(inner.init(source.shape, torch.Generator()), Optimizer(lr=0.1))

    def objective(step, params, extra):
        batches = [source.batch("train", ids) for ids in ([1, 2], [7])]
        parts = tuple(TaskLosses(inner.losses(params, tasks), tasks) for tasks in batches)
        return StepLoss(scale * sum(part.values.sum() for part in parts), parts)

    return OuterLoop(optimizer, inner, objective, where="here")


def test_every_part_of_the_objective_is_a_suspect():
    with pytest.raises(NumericError, match=r"it comes from task 7; 1 of 3 tasks"):
        two_parts(Root(), 1.0).advance(1)
    with pytest.raises(NumericError, match=r"the loss of task 7 is not finite .*; 1 of 3 tasks"):
        two_parts(NanAt(), 1.0).advance(1)


def test_a_gradient_that_a_task_weight_makes_too_large_is_blamed_on_no_task():
    with pytest.raises(NumericError, match=r"in theta; each task's own gradient is finite: .*weig"):
        two_parts(Quadratic(), 1e200).advance(1)


class Noisy(Quadratic):
    """A task's loss is not finite where its noise is above 1; noise is a nest of tensors."""

    def draw_noise(self, generator, n_tasks):
        shape = (n_tasks, 2)
        return {"a": (torch.randn(shape, generator=generator),)}

    def losses(self, params, tasks, *, training=False, noise=None):
        worst = noise["a"][0].max(1).values
        return super().losses(params, tasks) * torch.where(worst > 1, float("nan"), 1.0)

    def diagnose(self, params, tasks, *, noise=None):
        assert len(tasks) == len(noise["a"][0]) == 1
        return f"noise {float(noise['a'][0].max()):.6f}"


@pytest.mark.parametrize("check_every", [1, 4])
def test_the_diagnosis_gets_the_failing_tasks_noise(check_every):
    ids = [3, 4, 5]
    for step in range(40):
        (noise,) = Noisy().draw_noise(torch.Generator().manual_seed(step), 3)["a"]
        worst = noise.max(1).values
        if bool((worst > 1).any()):
            break
    first = int((worst > 1).nonzero()[0])
    run = loop(Noisy(), lambda step: ids, check_every=check_every)
    with pytest.raises(
        NumericError,
        match=rf"step {step}: the loss of task {ids[first]} is not finite "
        rf"\(noise {worst[first]:.6f}\)",
    ):
        run.advance(40)


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
