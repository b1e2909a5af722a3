"""The law of ``vmappable``: what keeps it is run through it with its other laws; what breaks it
is rejected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from metaforge.contracts import InnerAlgorithm, Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import fresh_parameters, toy_tasks
from metaforge.testing.stacking import check_stacking
from metaforge_ls.ls import Ls, squared_errors
from metaforge_maml.algorithm import Maml
from metaforge_maml.functional import VmapBackend
from metaforge_maml.options import MamlOptions
from tests.plugins import learn2learn_cases, unrolled_cases
from tests.plugins.leo_cases import SHAPE, leo, unit_tasks
from tests.plugins.ls_cases import ls
from tests.plugins.maml_cases import CONTEXT, IMAGES, MODELS, REAL, WIDE, Tanh, maml


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("model", "shape"),
    [("linear", WIDE), ("mlp of two", WIDE), ("mlp", REAL), (Tanh(), WIDE)],
    ids=["linear", "mlp", "regression", "vmap"],
)
def test_maml_keeps_it(model: Any, shape: TaskShape, order: int) -> None:
    algorithm = maml(model, steps=2, order=order)
    params = fresh_parameters(algorithm, shape)
    assert algorithm.vmappable
    check_stacking(algorithm, params, toy_tasks(shape, unequal=True))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_leo_keeps_it_in_training(dropout: float) -> None:
    algorithm = leo(dropout_rate=dropout)
    params = fresh_parameters(algorithm, SHAPE)
    check_stacking(algorithm, params, unit_tasks(SHAPE, unequal=True))


def test_task_by_task_algorithms_do_not_claim_it() -> None:
    every: list[tuple[InnerAlgorithm, TaskShape]] = [
        (maml("conv4", steps=1), IMAGES),
        (maml("conv4 batch norm", steps=1), IMAGES),
        (maml("mlp", support_chunk=2), WIDE),
    ]
    if not learn2learn_cases.LEARN2LEARN.missing:
        every += [(maml("mlp", backend="learn2learn"), WIDE), (learn2learn_cases.made(), WIDE)]
    if not unrolled_cases.HIGHER.missing:
        every.append((unrolled_cases.made(), WIDE))
    for algorithm, shape in every:
        fresh_parameters(algorithm, shape)
        assert not algorithm.vmappable, algorithm.describe()


# -- broken specimens ----------------------------------------------------------------------


class OneByOne(VmapBackend):
    """Right on a single theta: no vmap there."""

    def outputs(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        each = zip(support.support_x, support.support_y, support.support_mask, query_x, strict=True)
        return torch.stack(
            [
                functional_call(self.module, self._adapt_one(params, *rows), (query,))
                for *rows, query in each
            ]
        )


class VmapsBatchNorm(Maml):
    """PyTorch's vmap gives wrong second derivatives of batch normalisation, silently."""

    def _choose(self, found: Any, shape: TaskShape) -> Any:
        return OneByOne(self.module, super()._choose(found, shape).loop)


def test_batch_normalisation_under_vmap_is_seen() -> None:
    model = MODELS["conv4 batch norm"]
    algorithm = VmapsBatchNorm(MamlOptions(steps=1, lr=0.4), CONTEXT, model=model)
    tasks = toy_tasks(IMAGES, seed=1)  # away from kinks
    params = fresh_parameters(algorithm, IMAGES)
    laws.check_meta_gradient(algorithm, params, tasks)
    with pytest.raises(AssertionError, match="stacking: a copy's gradient"):
        check_stacking(algorithm, params, tasks)


class Reads(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        scale = 1.0 if float(params["w0"].detach().sum()) < 1e9 else 2.0
        return scale * super().losses(params, tasks, **kind)


class Remembers(Ls):
    """The first theta it meets serves all that follow."""

    first: Tensor | None = None

    def _outputs(self, params: Params, *rest: Any) -> Tensor:
        if self.first is None and not torch._C._functorch.is_batchedtensor(params["w0"]):
            self.first = params["w0"].detach()
        held = params if self.first is None else {**params, "w0": params["w0"] * 0 + self.first}
        return super()._outputs(held, *rest)


class Predicts(Ls):
    """Its predictions depend on how many axes the queries have underneath."""

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        stacked = torch._C._functorch.is_batchedtensor(query_x)
        return super().predict(params, support, query_x) * (2 if stacked else 1)


@pytest.mark.parametrize("broken", [Reads, Remembers, Predicts])
def test_what_breaks_it_is_seen(broken: type[Ls]) -> None:
    algorithm = ls(broken)
    params = fresh_parameters(algorithm, WIDE)
    with pytest.raises(AssertionError, match="stacking"):
        check_stacking(algorithm, params, toy_tasks(WIDE))


def test_it_is_one_of_the_laws() -> None:
    with pytest.raises(AssertionError, match="stacking"):
        laws.check_inner_algorithm(ls(Predicts), WIDE, task_losses=squared_errors)
