"""maml on all tasks at once, of networks with normalisers: equal to task by task, and right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metaforge.contracts import Model
from metaforge.errors import PluginError
from metaforge.tasks import TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import meta_gradient, toy_tasks
from metaforge_maml.algorithm import Maml
from metaforge_maml.backend import InnerLoop
from metaforge_maml.explicit import written_out
from metaforge_maml.functional import VmapBackend
from metaforge_maml.options import MamlOptions
from metaforge_models.conv import Conv4
from metaforge_models.options import Conv4Options
from tests.plugins.maml_cases import IMAGES, MODELS, REAL_IMAGES, WIDE, maml, started

ORDERS = pytest.mark.parametrize("order", [1, 2], ids=["first order", "second order"])


class Normalised(Model):
    """Layer norm of features, with and without scale and shift, which no closed form serves."""

    def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
        module = nn.Sequential(
            nn.Linear(shape.input_shape[0], 5),
            nn.LayerNorm(5, elementwise_affine=False),
            nn.Tanh(),
            nn.Sequential(nn.LayerNorm(5), nn.Linear(5, shape.outputs)),
        )
        for value in module.parameters():
            nn.init.uniform_(value, -0.5, 0.5, generator=generator)
        return module


CASES: dict[str, tuple[str | Model, TaskShape]] = {
    "conv4": ("conv4", IMAGES),
    "conv4, regression": ("conv4", REAL_IMAGES),
    "resnet12": ("resnet12", IMAGES),
    "layer norm": (Normalised(), WIDE),
}
CASE = pytest.mark.parametrize("case", CASES)


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@ORDERS
@CASE
def test_it_equals_task_by_task(case: str, order: int) -> None:
    model, shape = CASES[case]
    tasks = toy_tasks(shape, unequal=True)
    for steps in (0, 1, 3):
        batched, params = started(model, shape, steps=steps, order=order, backend="vmap")
        single, _ = started(model, shape, steps=steps, order=order, backend="loop")
        told = [one.describe()["implementation"] for one in (batched, single)]
        assert told == ["vmap", "loop"]
        same(batched.losses(params, tasks), single.losses(params, tasks))
        found, expected = (meta_gradient(one, params, tasks) for one in (batched, single))
        state, other = (one.adapt(params, tasks.without_query()) for one in (batched, single))
        for name in params:
            same(found[name], expected[name])
            same(state[name], other[name])
        assert tasks.query_x is not None
        outputs = [one.predict(params, tasks, tasks.query_x) for one in (batched, single)]
        same(*outputs)


@ORDERS
@CASE
def test_its_meta_gradient_matches_finite_differences(case: str, order: int) -> None:
    model, shape = CASES[case]
    algorithm, params = started(model, shape, steps=2, order=order, backend="vmap")
    unadapted, _ = started(model, shape, steps=0)
    tasks = toy_tasks(shape, unequal=True)
    laws.check_meta_gradient(algorithm, params, tasks, unadapted=unadapted)


@pytest.mark.parametrize("model", ["conv4", "resnet12"])
def test_laws(model: str) -> None:
    laws.check_inner_algorithm(
        maml(model, steps=2, backend="vmap"), IMAGES, unadapted=maml(model, steps=0)
    )


def test_pytorch_s_own_layer_norm_is_rejected() -> None:
    """A batch of tasks through the module as it is: wrong to second order, without a word."""
    algorithm, params = started(Normalised(), WIDE, steps=2, backend="vmap")
    algorithm.backend = VmapBackend(algorithm.module, InnerLoop(2, 0.4, second_order=True))
    with pytest.raises(AssertionError, match="meta-gradient at order 2"):
        laws.check_meta_gradient(algorithm, params, toy_tasks(WIDE, unequal=True))


NORMALISERS = {
    "one group": (nn.GroupNorm(1, 6), (4, 6, 5, 3)),
    "groups": (nn.GroupNorm(3, 6, eps=0.1), (4, 6, 5, 3)),
    "groups without scale": (nn.GroupNorm(2, 6, affine=False), (4, 6)),
    "last axis": (nn.LayerNorm(3), (4, 5, 3)),
    "last axes": (nn.LayerNorm((5, 3), bias=False), (4, 5, 3)),
}


@pytest.mark.parametrize("case", NORMALISERS)
def test_a_normaliser_written_out_computes_the_same(case: str) -> None:
    layer, size = NORMALISERS[case]
    random = torch.Generator().manual_seed(0)
    module = nn.Sequential(layer).double()
    for value in module.parameters():
        nn.init.normal_(value, generator=random)
    x = torch.randn(*size, generator=random, dtype=torch.float64, requires_grad=True)
    made = written_out(module)
    assert type(made[0]) is not type(layer)
    assert list(dict(made.named_parameters())) == list(dict(module.named_parameters()))
    torch.testing.assert_close(made(x), module(x), rtol=1e-12, atol=1e-12)
    by = torch.randn(*size, generator=random, dtype=torch.float64)
    gradients = [torch.autograd.grad((one(x) * by).sum(), x)[0] for one in (made, module)]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


def test_a_module_is_copied_with_its_ties_and_its_hooks() -> None:
    class Hooked(nn.GroupNorm):
        """Something else than a group norm."""

    module = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.GroupNorm(2, 4), Hooked(2, 4))
    module[2].weight = module[1].weight
    module.append(nn.GroupNorm(2, 4))
    module[4].register_forward_hook(lambda *_: None)
    made = written_out(module)
    assert made[1].weight is made[2].weight is not module[1].weight
    assert type(made[3]) is Hooked
    assert type(made[4]) is nn.GroupNorm
    assert type(module[1]) is nn.GroupNorm


def test_statistics_of_the_batch_are_refused() -> None:
    with pytest.raises(PluginError, match=r"backend: vmap cannot serve Sequential.*backend: loop"):
        started("conv4 batch norm", IMAGES, backend="vmap")


def test_what_cannot_be_vmapped_is_refused() -> None:
    class Instance(Model):
        """Instance norm, which is not written out."""

        def build(self, shape: TaskShape, generator: torch.Generator) -> nn.Module:
            module = Conv4(Conv4Options(filters=3)).build(shape, generator)
            module.norm1 = nn.InstanceNorm2d(3, affine=True)
            return module

    with pytest.raises(PluginError, match="cannot run Sequential, or differentiates it wrongly"):
        started(Instance(), IMAGES, backend="vmap")
    found, _ = started(Instance(), IMAGES, backend="auto")
    assert found.describe()["implementation"] == "loop"


def test_auto_is_task_by_task_on_a_cpu_and_batched_elsewhere(monkeypatch: Any) -> None:
    """The rule; which device a module is on is all that it asks of one."""
    assert started("conv4", IMAGES)[0].describe()["implementation"] == "loop"
    monkeypatch.setattr("metaforge_maml.algorithm._on_cpu", lambda module: False)
    algorithm, params = started("conv4", IMAGES, steps=2)
    assert algorithm.describe()["implementation"] == "vmap"
    single, _ = started("conv4", IMAGES, steps=2, backend="loop")
    tasks = toy_tasks(IMAGES)
    same(algorithm.losses(params, tasks), single.losses(params, tasks))
    assert started("conv4 batch norm", IMAGES)[0].describe()["implementation"] == "loop"


def test_every_model_runs_task_by_task_if_asked() -> None:
    for name, model in MODELS.items():
        shape = WIDE if name.startswith(("linear", "mlp")) else IMAGES
        assert started(model, shape, backend="loop")[0].describe() == {
            "backend": "loop",
            "implementation": "loop",
            "order": 2,
            "steps": 5,
            "lr": 0.4,
        }


def test_chunks_and_batches_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="support_chunk: vmap has none"):
        MamlOptions(backend="vmap", support_chunk=5)


def test_the_export_is_the_module_as_it_was() -> None:
    algorithm, params = started("conv4", IMAGES, steps=1, backend="vmap")
    exported = algorithm.export(params, toy_tasks(IMAGES)[:1])
    assert isinstance(exported.norm0, nn.GroupNorm)
    assert isinstance(algorithm, Maml)
