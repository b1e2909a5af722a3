"""T copies of theta by one optimiser: the rule, clipping, skips and counts of each are its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metaforge import stacked
from metaforge.optimizers import OuterOptimizer
from metaforge.recipe.schema import Optimizer
from metaforge.stacked import StackedOptimizer

COPIES, STEPS = 3, 8
#: Steps whose gradient is not finite, of each copy.
BAD = ((), (0, 3), (5,))
THETA = {"a": torch.ones(4, 3, dtype=torch.float64), "b": torch.zeros(5, dtype=torch.float64)}
EXTRA = {"s": torch.zeros(2, dtype=torch.float64)}
RULES: dict[str, dict[str, Any]] = {
    "adam": {"use": "adam"},
    "adam, tf1": {"use": "adam", "eps_convention": "tf1"},
    "adam, clipped": {"use": "adam", "clip_value": 1.0, "clip_norm": 1.5},
    "sgd": {"use": "sgd"},
    "sgd, momentum": {"use": "sgd", "momentum": 0.9, "clip_norm": 0.5},
}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def gradients(step: int, copy: int, scale: float = 1.0) -> list[torch.Tensor]:
    stream = torch.Generator().manual_seed(100 * step + copy)
    every = [*THETA.values(), *EXTRA.values()]
    # copies unlike in size, so that one's norm is no other's; small ones show where eps stands
    size = scale * 10.0 ** (-4 * copy)
    return [size * torch.randn(v.shape, generator=stream, dtype=v.dtype) for v in every]


def check(rule: dict[str, Any], kind: type[StackedOptimizer], *, carried: int = 0) -> None:
    """The copies of a stacked optimiser end where an optimiser each ends."""
    settings = Optimizer(lr=0.1, **rule)
    before = OuterOptimizer(THETA, settings, EXTRA, 0.2)
    for step in range(carried):
        before.step(gradients(50 + step, 0))
    start = {name: value.detach() for name, value in before.params.items()}
    together = kind(COPIES, start, settings, EXTRA, 0.2)
    alone = [OuterOptimizer(start, settings, EXTRA, 0.2) for _ in range(COPIES)]
    if carried:
        for optimizer in (together, *alone):
            optimizer.carry_on(before.state())
    for step in range(STEPS):
        each = [gradients(step, copy) for copy in range(COPIES)]
        kept = torch.tensor([step not in bad for bad in BAD])
        for copy, optimizer in enumerate(alone):
            if kept[copy]:
                optimizer.step(each[copy])
            else:
                each[copy][0][1] = torch.nan
                each[copy][1][0] = torch.inf
        together.step([torch.stack(list(rows)) for rows in zip(*each, strict=True)], kept)
    assert together.steps.tolist() == [STEPS - len(bad) for bad in BAD]
    for copy, optimizer in enumerate(alone):
        for own, every in ((optimizer.params, together.params), (optimizer.extra, together.extra)):
            for name, value in own.items():
                torch.testing.assert_close(every[name][copy], value, rtol=1e-10, atol=1e-13)


@rules
def test_each_copy_is_optimised_as_alone(rule):
    check(rule, StackedOptimizer)


@rules
def test_moments_of_meta_training_go_on_in_every_copy(rule):
    check(rule, StackedOptimizer, carried=3)


class CountsSkippedSteps(StackedOptimizer):
    def step(self, gradients, kept):
        safe = [torch.nan_to_num(g, 0.0, 0.0, 0.0) for g in gradients]
        super().step(safe, torch.ones_like(kept))


class ForgetsMoments(StackedOptimizer):
    def carry_on(self, flat):
        pass


def test_a_skipped_step_that_counts_is_seen():
    with pytest.raises(AssertionError):
        check(RULES["adam"], CountsSkippedSteps)


def test_moments_that_are_not_carried_on_are_seen():
    with pytest.raises(AssertionError):
        check(RULES["adam"], ForgetsMoments, carried=3)


def test_clipping_all_copies_as_one_is_seen(monkeypatch):
    monkeypatch.setattr(stacked, "vmap", lambda function: function)
    with pytest.raises(AssertionError):
        check(RULES["sgd, momentum"], StackedOptimizer)


def test_what_is_given_is_left_alone():
    before = {name: value.clone() for name, value in THETA.items()}
    optimizer = StackedOptimizer(2, THETA, Optimizer(lr=0.1))
    ones = [torch.ones(2, *value.shape, dtype=value.dtype) for value in THETA.values()]
    optimizer.step(ones, torch.tensor([True, True]))
    assert all(torch.equal(THETA[name], before[name]) for name in THETA)
