"""maml keeps the laws of inner algorithms, and each law rejects what breaks it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import fresh_parameters, toy_tasks
from metaforge_maml.algorithm import Maml
from metaforge_maml.backend import InnerLoop
from metaforge_maml.functional import VmapBackend
from metaforge_maml.options import MamlOptions
from tests.plugins.maml_cases import CONTEXT, IMAGES, MODELS, REAL, WIDE, Tanh, maml

CASES = {
    "gram": ("mlp", WIDE, {}),
    "gram, regression": ("mlp", REAL, {}),
    "vmap": (Tanh(), WIDE, {}),
    "loop": ("conv4", IMAGES, {}),
    "loop, transductive": ("conv4 batch norm", IMAGES, {}),
    "chunked": ("mlp", WIDE, {"support_chunk": 2}),
    "learn2learn": ("mlp", WIDE, {"backend": "learn2learn"}),
}


@pytest.mark.parametrize("order", [1, 2], ids=["first order", "second order"])
@pytest.mark.parametrize("case", CASES)
def test_laws(case: str, order: int) -> None:
    model, shape, options = CASES[case]
    laws.check_inner_algorithm(
        maml(model, steps=2, order=order, **options),
        shape,
        unadapted=maml(model, steps=0, **options),
    )


# -- broken specimens ----------------------------------------------------------------


class PosesAsSecondOrder(Maml):
    """First order, but says 2."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.order = 2


class ChangesTheta(Maml):
    def losses(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Tensor:
        value = super().losses(params, tasks, **kwargs)
        for tensor in params.values():
            tensor.data.mul_(0.9)
        return value


class StepsAtZero(Maml):
    """With 0 steps it still decays the weights."""

    def adapt(self, params: Params, support: TaskBatch, **kwargs: Any) -> Params:
        return {k: 0.99 * v for k, v in super().adapt(params, support, **kwargs).items()}


class PredictsBeforeAdapting(Maml):
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        unadapted = maml(self.model, steps=0)
        unadapted.init(self.shape, torch.Generator())
        return unadapted.predict(params, support, query_x)


class PredictsOtherOutputs(Maml):
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        return 2 * super().predict(params, support, query_x)


class PoolsTasks(Maml):
    """Adapts every task to the mean of the batch's adapted parameters."""

    def losses(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Tensor:
        state = self.adapt(params, tasks)
        mean = {name: value.mean(0) for name, value in state.items()}
        unadapted = maml(self.model, steps=0)
        unadapted.init(self.shape, torch.Generator())
        return unadapted.losses(mean, tasks)


class IgnoresMasks(Maml):
    def losses(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Tensor:
        bare = TaskBatch(
            tasks.support_x, tasks.support_y, tasks.query_x, tasks.query_y, outputs=tasks.outputs
        )
        return super().losses(params, bare, **kwargs)


class CentresQueries(Maml):
    """Transductive, and does not say so."""

    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        return super().predict(params, support, query_x - query_x.mean(1, keepdim=True))


class SaysTransductive(Maml):
    def init(self, shape: TaskShape, generator: torch.Generator) -> Params:
        params = super().init(shape, generator)
        self.transductive = True
        return params


class KeepsTheGraph(Maml):
    def predict(self, params: Params, support: TaskBatch, query_x: Tensor) -> Tensor:
        with torch.enable_grad():
            return super().predict(params, support, query_x)


class SumsPadding(Maml):
    """Reads padding rows, which only zeros there hide."""

    def losses(self, params: Params, tasks: TaskBatch, **kwargs: Any) -> Any:
        counted = tasks.support_x.flatten(1).sum(1) - (
            tasks.support_x * tasks.support_mask[..., None]
        ).flatten(1).sum(1)
        return super().losses(params, tasks, **kwargs) + counted


class Hoards(Maml):
    """Keeps every adapted state."""

    def adapt(self, params: Params, support: TaskBatch, **kwargs: Any) -> Params:
        self.__dict__.setdefault("states", []).append(super().adapt(params, support, **kwargs))
        return self.states[-1]


class TakesAnyWays(Maml):
    def _ready(self, tasks: TaskBatch) -> Any:
        return self.backend


class ExportsTheta(Maml):
    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        unadapted = maml(self.model, steps=0)
        unadapted.init(self.shape, torch.Generator())
        return unadapted.export(params, support)


class ExportsAClosure(Maml):
    """What it exports predicts, but cannot be pickled."""

    def export(self, params: Params, support: TaskBatch) -> nn.Module:
        module = super().export(params, support)
        module.register_forward_hook(lambda *_: None)
        return module


class TrainsOnConstants(Maml):
    """Evaluates well, and learns nothing."""

    def losses(self, params, tasks, *, training=False, noise=None):
        found = super().losses(params, tasks, training=training, noise=noise)
        return found.detach() if training else found


class NoiseOfOne(Maml):
    def draw_noise(self, generator, n_tasks):
        return {"mask": torch.ones(1)}


class PenaltyOfEach(Maml):
    def penalty(self, params):
        return torch.stack([value.square().sum() for value in params.values()])


#: {specimen: (the check that must reject it, in which words, the specimen's options)}
BROKEN: dict[type[Maml], tuple[Any, str, dict[str, Any]]] = {
    PosesAsSecondOrder: (laws.check_meta_gradient, "meta-gradient at order 2", {"order": 1}),
    ChangesTheta: (laws.check_parameters_untouched, "theta untouched", {}),
    StepsAtZero: (laws.check_zero_steps, "zero steps are the identity", {"steps": 0}),
    PredictsBeforeAdapting: (laws.check_adapts, "adaptation", {}),
    PredictsOtherOutputs: (laws.check_losses_are_of_predictions, "of the predictions", {}),
    PoolsTasks: (laws.check_task_independence, "independence", {"order": 1}),
    IgnoresMasks: (laws.check_padding, "padding", {}),
    SumsPadding: (laws.check_padding, "padding", {}),
    CentresQueries: (laws.check_query_by_query, "queries", {}),
    SaysTransductive: (laws.check_query_by_query, "transductive", {}),
    KeepsTheGraph: (laws.check_evaluation_keeps_nothing, "no graph is kept", {}),
    Hoards: (laws.check_evaluation_keeps_nothing, "memory is flat", {}),
    TakesAnyWays: (laws.check_ways, "variable_ways", {}),
    TrainsOnConstants: (laws.check_training, "no gradient of the losses", {}),
    NoiseOfOne: (laws.check_training, "leading axis", {}),
    PenaltyOfEach: (laws.check_training, "penalty: one number", {}),
    ExportsTheta: (laws.check_export, "export", {}),
}


def broken(kind: type[Maml], **options: Any) -> tuple[Maml, Params]:
    made = kind(MamlOptions(**{"steps": 2, "lr": 0.4, **options}), CONTEXT, model=MODELS["mlp"])
    return made, fresh_parameters(made, WIDE)


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_each_law_rejects_what_breaks_it(kind: type[Maml]) -> None:
    check, law, options = BROKEN[kind]
    algorithm, params = broken(kind, **options)
    with pytest.raises(AssertionError, match=law):
        check(algorithm, params, toy_tasks(WIDE, unequal=True))


def test_an_export_must_pickle() -> None:
    algorithm, params = broken(ExportsAClosure)
    with pytest.raises(AssertionError, match="export: cannot be pickled"):
        laws.check_export(algorithm, params, toy_tasks(WIDE))


def test_first_order_must_hold_the_update_constant() -> None:
    """A second-order gradient is as wrong at order 1 as the reverse."""
    algorithm = maml("mlp", steps=2, order=2)
    params = fresh_parameters(algorithm, WIDE)
    algorithm.order = 1
    unadapted = maml("mlp", steps=0)
    unadapted.init(WIDE, torch.Generator())
    with pytest.raises(AssertionError, match="meta-gradient at order 1"):
        laws.check_meta_gradient(algorithm, params, toy_tasks(WIDE), unadapted=unadapted)


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.BatchNorm1d(4, track_running_stats=False),
        lambda: nn.LayerNorm(4),
    ],
    ids=["batch norm", "layer norm"],
)
def test_vmapped_normalisation_is_rejected_and_never_chosen(norm: Any) -> None:
    """PyTorch's vmap differentiates these wrongly to second order, silently."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(9, 4), norm(), nn.Tanh(), nn.Linear(4, 3)).double()
    algorithm = maml(module, steps=2)
    params = fresh_parameters(algorithm, WIDE)
    assert algorithm.describe()["implementation"] == "loop"
    laws.check_meta_gradient(algorithm, params, toy_tasks(WIDE))
    algorithm.backend = VmapBackend(algorithm.module, InnerLoop(2, 0.4, second_order=True))
    with pytest.raises(AssertionError, match="meta-gradient at order 2"):
        laws.check_meta_gradient(algorithm, params, toy_tasks(WIDE))
