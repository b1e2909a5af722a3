"""No step of a built-in inner algorithm reads from the device; and the law sees one that does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from metaforge.contracts import InnerAlgorithm, Params
from metaforge.optimizers import OuterOptimizer
from metaforge.recipe.schema import Optimizer
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.device import check_device
from metaforge.testing.inner_algorithms import fresh_parameters, toy_tasks
from metaforge_ls.ls import Ls
from tests.plugins import learn2learn_cases, unrolled_cases
from tests.plugins.leo_cases import leo
from tests.plugins.ls_cases import ls, r2d2
from tests.plugins.maml_cases import IMAGES, REAL, WIDE, Tanh, maml

CASES: dict[str, Any] = {
    "ls": (ls, WIDE),
    "ls, regression": (ls, REAL),
    "r2d2": (r2d2, WIDE),
    "leo": (leo, WIDE),
    "maml linear": (lambda: maml("linear"), WIDE),
    "maml mlp": (lambda: maml("mlp"), WIDE),
    "maml mlp, first order": (lambda: maml("mlp", order=1), WIDE),
    "maml mlp, regression": (lambda: maml("mlp"), REAL),
    "maml vmap": (lambda: maml(Tanh()), WIDE),
    "maml loop": (lambda: maml("conv4", steps=1), IMAGES),
    "maml chunked": (lambda: maml("mlp", support_chunk=2), WIDE),
    "maml learn2learn": pytest.param(
        lambda: maml("mlp", backend="learn2learn"),
        WIDE,
        marks=learn2learn_cases.NEEDS_LEARN2LEARN,
    ),
    **{
        f"learn2learn {name}": pytest.param(
            lambda options=options: learn2learn_cases.made("mlp", **options),
            WIDE,
            marks=learn2learn_cases.NEEDS_LEARN2LEARN,
        )
        for name, options in learn2learn_cases.ALGORITHMS.items()
    },
    **{
        f"unrolled {name}": pytest.param(
            lambda options=options: unrolled_cases.made("mlp", **options),
            WIDE,
            marks=unrolled_cases.NEEDS_HIGHER,
        )
        for name, options in unrolled_cases.RULES.items()
    },
}


@pytest.mark.parametrize(("make", "shape"), CASES.values(), ids=CASES)
def test_a_step_reads_nothing(make: Any, shape: TaskShape) -> None:
    algorithm = make()
    params = fresh_parameters(algorithm, shape)
    check_device(algorithm, params, toy_tasks(shape, unequal=True))


RULES: dict[str, dict[str, Any]] = {
    "adam": {},
    "adam, tf1": {"eps_convention": "tf1"},
    "sgd": {"use": "sgd", "momentum": 0.9},
    "clipped": {"clip_value": 0.1, "clip_norm": 0.1},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_nor_does_the_optimiser(rule: dict[str, Any]) -> None:
    """On tensors of the CPU without numbers: torch's fused Adam does not know the device meta."""
    with FakeTensorMode():
        theta = {"a": torch.ones(3, 4), "b": torch.zeros(5)}
        optimizer = OuterOptimizer(theta, Optimizer(**rule))
        for _ in range(2):
            optimizer.step([torch.ones(3, 4), torch.ones(5)])


def test_an_optimiser_that_reads_is_seen() -> None:
    class Reads(OuterOptimizer):
        def clip(self, gradients: list[Tensor]) -> list[Tensor]:
            return gradients if all(bool(g.isfinite().all()) for g in gradients) else []

    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        Reads({"a": torch.ones(3)}, Optimizer()).step([torch.ones(3)])


# -- broken specimens ----------------------------------------------------------------------


class AsksWhetherThereIsPadding(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        if bool((tasks.support_mask > 0).all()):
            return super().losses(params, tasks, **kind)
        return super().losses(params, tasks, **kind)


class CutsPaddingAway(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        kept = tasks.support_x[tasks.support_mask > 0]
        return super().losses(params, tasks, **kind) + 0 * kept.sum()


class LooksAtTheLoss(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        found = super().losses(params, tasks, **kind)
        return found / max(1.0, found.detach().max().item())


class CountsTheClasses(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        return super().losses(params, tasks, **kind) * len(torch.unique(tasks.support_y))


@pytest.mark.parametrize(
    "broken", [AsksWhetherThereIsPadding, CutsPaddingAway, LooksAtTheLoss, CountsTheClasses]
)
def test_a_step_that_reads_is_seen(broken: type[Ls]) -> None:
    algorithm: InnerAlgorithm = ls(broken)
    params = fresh_parameters(algorithm, WIDE)
    with pytest.raises(AssertionError, match="reads from the device"):
        check_device(algorithm, params, toy_tasks(WIDE))


class AddsATensorOfTheCpu(Ls):
    def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
        return super().losses(params, tasks, **kind) * torch.ones(len(tasks))


def test_a_step_that_mixes_devices_is_seen() -> None:
    algorithm: InnerAlgorithm = ls(AddsATensorOfTheCpu)
    with pytest.raises(AssertionError, match="mixes devices"):
        check_device(algorithm, fresh_parameters(algorithm, WIDE), toy_tasks(WIDE))


def test_what_is_wrong_otherwise_is_told_as_it_is() -> None:
    class Fails(Ls):
        def losses(self, params: Params, tasks: TaskBatch, **kind: Any) -> Tensor:
            raise RuntimeError("a fault of its own")

    algorithm: InnerAlgorithm = ls(Fails)
    with pytest.raises(RuntimeError, match="a fault of its own"):
        check_device(algorithm, fresh_parameters(algorithm, WIDE), toy_tasks(WIDE))
