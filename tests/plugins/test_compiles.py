"""Shapes of a step are static: torch.compile takes it whole, without a break in its graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch
from metaforge.testing.inner_algorithms import fresh_parameters, toy_tasks
from metaforge_ls.ls import Ls
from tests.plugins.ls_cases import ls, r2d2
from tests.plugins.maml_cases import WIDE, maml

pytestmark = pytest.mark.slow
CASES: dict[str, Any] = {
    "ls": ls,
    "r2d2": r2d2,
    "maml linear": lambda: maml("linear", steps=3),
    "maml mlp": lambda: maml("mlp", steps=3),
}


def step(algorithm: Any, compiled: bool) -> tuple[Tensor, ...]:
    """Losses of a batch, and the gradient of their mean."""
    params = fresh_parameters(algorithm, WIDE)
    tasks = toy_tasks(WIDE, unequal=True)

    def losses(params: Params, tasks: TaskBatch) -> Tensor:
        return algorithm.losses(params, tasks, training=True)

    run = torch.compile(losses, fullgraph=True, backend="aot_eager") if compiled else losses
    found = run(params, tasks)
    return found, *torch.autograd.grad(found.mean(), list(params.values()))


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_a_step_compiles_whole_and_computes_the_same(make: Any) -> None:
    torch.compiler.reset()
    for found, expected in zip(step(make(), True), step(make(), False), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class Branches(Ls):
    """Goes one way or the other by a number of the batch."""

    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        found = super().losses(params, tasks, **kind)
        return found if float(found.detach().sum()) < 1e9 else 2 * found


def test_a_step_that_branches_on_its_numbers_is_refused() -> None:
    torch.compiler.reset()
    with pytest.raises(torch._dynamo.exc.UserError, match="data-dependent"):
        step(ls(Branches), True)
