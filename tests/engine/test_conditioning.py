"""The laws of phase 3, on an algorithm whose optimum is known in closed form."""

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch

from metaforge import memory, seeding
from metaforge.conditioning import Arm, Conditioner, Recall, draw
from metaforge.metatrain import WarmStart
from metaforge.optimizers import OuterOptimizer
from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.recipe.schema import Condition
from metaforge.task_sizes import TaskSizes
from metaforge.tasks import SPLITS
from metaforge_ls.ls import Ls
from metaforge_ls.options import LsOptions
from tests.engine.toys import Points, Quadratic, recipe

SOURCE = Points()
SGD = {"use": "sgd", "lr": 0.3}


def condition(recall, *, beta1=1.0, beta2=0.0, inner=None, steps=40, target=0, **options):
    """theta after conditioning, and the number of skipped steps."""
    settings = {"steps": steps, "batch": 4, "optimizer": SGD, **options}
    inner = inner or Quadratic()
    theta = inner.init(SOURCE.shape, torch.Generator())
    conditioner = Conditioner(recipe(condition=settings), SOURCE, inner, WarmStart(theta))
    ends = []
    conditioner.run(
        SOURCE.batch("test", [target]),
        Arm("conditional", recall, beta1, beta2),
        [steps],
        ends.append,
    )
    return ends[0]["theta"].clone()


def test_zero_steps_is_theta_hat():
    end = condition(Recall.uniform(np.arange(20)), steps=0)
    assert torch.equal(end, torch.zeros(3, dtype=torch.float64))


def test_the_optimum_is_the_weighted_mean_of_the_recalled_tasks():
    ids, weights = np.array([3, 8, 11]), np.array([0.5, 0.3, 0.2])
    expected = (torch.from_numpy(weights)[:, None] * SOURCE.centres("train", ids)).sum(0)
    ends = torch.stack(
        [
            condition(
                Recall(ids, weights), steps=steps, batch=512, optimizer={"use": "sgd", "lr": 1.0}
            )
            for steps in range(20, 40)
        ]
    )
    torch.testing.assert_close(ends.mean(0), expected, atol=0.25, rtol=0)


def test_weights_reach_the_loss():
    ids = np.arange(6)
    one_hot = condition(Recall(ids, np.eye(6)[2]))
    uniform = condition(Recall.uniform(ids))
    assert (one_hot - uniform).abs().max() > 0.1
    ignored = condition(Recall(ids, np.eye(6)[2]), weights_in_loss="topm-uniform")
    assert torch.equal(ignored, uniform)


def test_uniform_over_the_whole_bank_is_further_meta_training():
    """Remark 1: same ids, same optimiser state, beta2 = 0."""
    settings = Condition(steps=15, batch=4, optimizer=SGD)
    recall = Recall.uniform(np.arange(20))
    ids = draw(recall, settings, seeding.derive(0, "condition/draws", 0)).ids
    inner = Quadratic()
    plain = OuterOptimizer(inner.init(SOURCE.shape, torch.Generator()), settings.optimizer)
    for step in range(15):
        loss = inner.losses(plain.params, SOURCE.batch("train", ids[step])).mean()
        plain.step(list(torch.autograd.grad(loss, list(plain.params.values()))))
    torch.testing.assert_close(
        condition(recall, steps=15), plain.params["theta"].detach(), rtol=1e-14, atol=1e-14
    )


@pytest.mark.parametrize("rule", [{"use": "adam", "lr": 0.1}, {"use": "sgd", "momentum": 0.9}])
def test_with_the_moments_of_meta_training_it_is_one_optimisation(rule):
    """Remark 1 to the optimiser's state: carried over it is the same run, afresh it is not."""
    settings = Condition(steps=5, batch=4, optimizer=rule, optimizer_state="meta-train")
    recall = Recall.uniform(np.arange(20))
    inner = Quadratic()
    plain = OuterOptimizer(inner.init(SOURCE.shape, torch.Generator()), settings.optimizer)

    def step(ids):
        loss = inner.losses(plain.params, SOURCE.batch("train", ids)).mean()
        plain.step(list(torch.autograd.grad(loss, list(plain.params.values()))))

    for first in range(6):
        step([first, first + 7])
    start = WarmStart.of(plain.state(), plain.params)
    for ids in draw(recall, settings, seeding.derive(0, "condition/draws", 0)).ids:
        step(ids)
    ends = {}
    for state in ("meta-train", "fresh"):
        phase = settings.model_copy(update={"optimizer_state": state})
        conditioner = Conditioner(recipe(condition=phase.model_dump()), SOURCE, inner, start)
        arm = Arm("conditional", recall, 1.0, 0.0)
        conditioner.run(
            SOURCE.batch("test", [0]),
            arm,
            [5],
            lambda p, at=state: ends.update({at: p["theta"].clone()}),
        )
    expected = plain.params["theta"].detach()
    torch.testing.assert_close(ends["meta-train"], expected, rtol=1e-14, atol=1e-14)
    assert (ends["fresh"] - expected).abs().max() > 1e-3


def test_target_only_moves_to_the_target():
    end = condition(Recall.uniform(np.arange(4)), beta1=0.0, beta2=1.0, steps=100, target=5)
    torch.testing.assert_close(end, SOURCE.centres("test", [5])[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("beta2", [0.5, 2.0])
def test_the_joined_target_term_equals_the_separate_one(beta2):
    class Transductive(Quadratic):
        transductive = True  # keeps the engine from joining the target to the bank batch

    recall = Recall(np.arange(5), np.array([0.4, 0.3, 0.2, 0.1, 0.0]))
    joined = condition(recall, beta2=beta2)
    separate = condition(recall, beta2=beta2, inner=Transductive())
    torch.testing.assert_close(joined, separate, rtol=1e-12, atol=1e-12)


def test_more_steps_do_not_change_the_earlier_draws():
    recall = Recall.uniform(np.arange(50))
    short = draw(recall, Condition(steps=10, batch=3), 9)
    long = draw(recall, Condition(steps=200, batch=3), 9)
    assert np.array_equal(short.ids, long.ids[:10])


@pytest.mark.parametrize("sampling", ["uniform", "proportional"])
def test_the_estimator_is_unbiased(sampling):
    """E[(1/B) sum_b w_b L_b] = sum_i alpha_i L_i, whichever way tasks are drawn."""
    rng = np.random.default_rng(0)
    alpha = rng.random(7)
    recall = Recall(np.arange(7), alpha / alpha.sum())
    losses = rng.random(7)
    draws = draw(recall, Condition(steps=40_000, batch=4, sampling=sampling), 3)
    estimate = (draws.weights * losses[draws.ids]).mean()
    assert estimate == pytest.approx(float(recall.weights @ losses), rel=5e-3)


def test_gathering_in_pieces_changes_nothing(monkeypatch):
    recall = Recall.uniform(np.arange(20))
    whole = condition(recall, beta2=1.0)
    monkeypatch.setattr("metaforge.conditioning.HELD_TASKS", 9)
    torch.testing.assert_close(condition(recall, beta2=1.0), whole, rtol=1e-13, atol=1e-13)


def test_query_labels_of_the_target_are_never_seen():
    class Peeks(Quadratic):
        def losses(self, params, tasks, *, training=False, noise=None):
            own = tasks.task_ids == 1000
            if bool(own.any()):
                assert tasks.query_y.shape[1] == 4 or tasks.query_y.shape[1] == 2
                assert torch.equal(tasks.query_y[own][:, :2], tasks.support_y[own])
            return super().losses(params, tasks)

    condition(Recall.uniform(np.arange(4)), beta2=1.0, inner=Peeks(), target=1000, steps=2)


def _resident() -> int:
    """Bytes of this process in memory."""
    text = Path("/proc/self/status").read_text()
    line = next(x for x in text.splitlines() if x.startswith("VmRSS"))
    return 1024 * int(line.split()[1])


@pytest.mark.parametrize("keep", [False, True], ids=["as it is", "a theta kept for every target"])
def test_memory_is_flat_over_500_targets(keep):
    # In a process of its own: what other tests have freed would be filled first.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        grown, since_the_tenth, one_theta = pool.apply(_grown_over_targets, (keep,))
    flat = grown < 250 * one_theta / 2 and since_the_tenth < 20e6
    assert flat is not keep


def test_unused_memory_is_given_back_every_twenty_runs_at_once_or_not(monkeypatch):
    given = []
    monkeypatch.setattr(memory, "give_back", lambda: given.append(True))
    conditioner = Conditioner(recipe(), None, None, None)
    for n_runs, expected in ((1, 0), (18, 0), (1, 1), (64, 2), (15, 2), (1, 3)):
        conditioner.finished(n_runs)
        assert len(given) == expected


def test_giving_back_is_left_out_where_the_allocator_has_no_such_call(monkeypatch):
    memory.give_back()
    monkeypatch.setattr(memory, "_trim", None)
    memory.give_back()


def _grown_over_targets(keep: bool) -> tuple[int, int, int]:
    """Bytes that the last 250 of 500 targets left in memory (over the first the allocator
    settles), those that all but the first ten left, and those of one theta."""
    torch.set_num_threads(1)
    inner = Ls(LsOptions(hidden=128))
    source = PooledTasks(
        torch.rand(400, 64, generator=torch.Generator().manual_seed(0)),
        {split: [Pool(split, _classes(first), _NAMES)] for first, split in enumerate(SPLITS)},
        TaskSizes(5, 5, 5),
        seed=0,
        name="random",
    )
    theta = inner.init(source.shape, torch.Generator().manual_seed(0))
    settings = recipe(condition={"steps": 2, "batch": 2}, precision="float32")
    conditioner = Conditioner(settings, source, inner, WarmStart(theta))
    arm = Arm("conditional", Recall.uniform(np.arange(20)), 1.0, 1.0)
    kept, resident = [], []

    def evaluate(params):
        if keep:
            kept.append({name: value.clone() for name, value in params.items()})

    for target in range(500):
        conditioner.run(source.batch("test", [target]), arm, [2], evaluate)
        resident.append(_resident())
    one_theta = sum(value.nbytes for value in theta.values())
    return resident[-1] - resident[249], resident[-1] - resident[9], one_theta


def _classes(first: int) -> tuple[np.ndarray, ...]:
    return tuple(np.arange(10) + 10 * (10 * first + c) for c in range(10))


_NAMES = tuple(map(str, range(10)))
