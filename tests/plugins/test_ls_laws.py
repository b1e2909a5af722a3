"""ls and r2d2 keep the laws of inner algorithms, and each law rejects what breaks it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaforge import losses
from metaforge.contracts import Params, Tree
from metaforge.tasks import TaskBatch
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import toy_tasks
from metaforge_ls.ls import Ls, squared_errors
from tests.plugins.ls_cases import IMAGES, MAKERS, NARROW, REAL, WIDE, ls, started

OUTER = {"ls": squared_errors, "r2d2": losses.task_losses}
SHAPES = {"wide": WIDE, "narrow": NARROW, "images": IMAGES, "regression": REAL}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MAKERS)
def test_laws(name: str, shape: str) -> None:
    laws.check_inner_algorithm(MAKERS[name](), SHAPES[shape], task_losses=OUTER[name])


def test_the_outer_loss_of_ls_is_no_cross_entropy() -> None:
    algorithm, params = started(ls(), WIDE)
    with pytest.raises(AssertionError, match="of the predictions"):
        laws.check_losses_are_of_predictions(algorithm, params, toy_tasks(WIDE), losses.task_losses)


# -- broken specimens ----------------------------------------------------------------------


class HoldsTheHeadConstant(Ls):
    """The gradient misses the way through W(D)."""

    def _heads(self, params: Params, support: TaskBatch) -> Tensor:
        return super()._heads(params, support).detach()


class PoolsTasks(Ls):
    """One head for all tasks: their mean."""

    def _heads(self, params: Params, support: TaskBatch) -> Tensor:
        own = super()._heads(params, support)
        return own.mean(0, keepdim=True).expand_as(own)


class IgnoresQueryMasks(Ls):
    """Averages over padding too."""

    def query_losses(self, params: Params, outputs: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        return squared_errors(outputs, y, torch.ones_like(mask))


class IgnoresSupportMasks(Ls):
    """Takes padding for samples of class 0 that are not zero."""

    def _heads(self, params: Params, support: TaskBatch) -> Tensor:
        ones = torch.ones_like(support.support_mask)
        shifted = support.support_x + 0.1
        return super()._heads(params, replace(support, support_x=shifted, support_mask=ones))


class CentresQueries(Ls):
    """Transductive, and does not say so."""

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        return super().predict(params, support, query_x - query_x.mean(1, keepdim=True))


class ForgetsTheLabels(Ls):
    def _heads(self, params: Params, support: TaskBatch) -> Tensor:
        return super()._heads(params, replace(support, support_y=0 * support.support_y))


class ServesOneNumberOfWays(Ls):
    variable_ways = False


class ExportsAnotherHead(Ls):
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        module = super().export(params, support)
        module.weight.data *= 1.01
        return module


class ChangesTheta(Ls):
    def adapt(self, params: Params, support: TaskBatch, *, noise: Tree = None) -> Tree:
        found = super().adapt(params, support)
        params["w0"].data *= 0.9
        return found


class KeepsTheGraph(Ls):
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        with torch.enable_grad():
            return super().predict(params, support, query_x)


class CentresFeatures(Ls):
    """A sample's features depend on its company."""

    def features(self, params: Params, x: Tensor) -> Tensor:
        found = super().features(params, x)
        return found - found.mean(0)


class NormalizesInPlace(Ls):
    def features(self, params: Params, x: Tensor) -> Tensor:
        return super().features(params, x.div_(x.norm(dim=-1, keepdim=True)))


class FeaturesWithGraph(Ls):
    def features(self, params: Params, x: Tensor) -> Tensor:
        return super().features(params, x) * params["w0"].sum()


BROKEN: dict[type[Ls], tuple[Any, str]] = {
    HoldsTheHeadConstant: (laws.check_meta_gradient, "meta-gradient at order 2"),
    PoolsTasks: (laws.check_task_independence, "independence"),
    IgnoresQueryMasks: (laws.check_padding, "padding"),
    IgnoresSupportMasks: (laws.check_padding, "padding"),
    CentresQueries: (laws.check_query_by_query, "queries"),
    ForgetsTheLabels: (laws.check_adapts, "adaptation"),
    ServesOneNumberOfWays: (laws.check_ways, "variable_ways"),
    ExportsAnotherHead: (laws.check_export, "export"),
    ChangesTheta: (laws.check_parameters_untouched, "theta untouched"),
    KeepsTheGraph: (laws.check_evaluation_keeps_nothing, "no graph is kept"),
    CentresFeatures: (laws.check_features, "features: a sample's are its own"),
    NormalizesInPlace: (laws.check_features, "features: inputs are left"),
    FeaturesWithGraph: (laws.check_features, "features: no graph"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_law_rejects_what_breaks_it(kind: type[Ls]) -> None:
    check, law = BROKEN[kind]
    algorithm, params = started(ls(kind), WIDE)
    with pytest.raises(AssertionError, match=law):
        check(algorithm, params, toy_tasks(WIDE, unequal=True))
