"""maml's meta-gradients: closed form, agreement of the implementations, finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from metaforge.contracts import Model
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import meta_gradient, toy_tasks
from metaforge_maml.backend import Backend, InnerLoop
from metaforge_maml.functional import LoopBackend, VmapBackend
from tests.plugins.maml_cases import (
    IMAGES,
    MODELS,
    NARROW,
    REAL,
    REAL_IMAGES,
    REAL_NARROW,
    WIDE,
    Tanh,
    maml,
    started,
)
from tests.plugins.unrolled_cases import TOKENS, Attention

ORDERS = pytest.mark.parametrize("order", [1, 2], ids=["first order", "second order"])
CASES = {
    "linear, wide": ("linear", WIDE, "gram"),
    "linear, narrow": ("linear", NARROW, "closed-form"),
    "linear without bias": ("linear without bias", WIDE, "gram"),
    "linear, regression": ("linear", REAL, "gram"),
    "mlp, wide": ("mlp", WIDE, "gram"),
    "mlp, narrow": ("mlp", NARROW, "closed-form"),
    "mlp of two, regression": ("mlp of two", REAL, "gram"),
    "mlp, regression, narrow": ("mlp", REAL_NARROW, "closed-form"),
    "mlp of images": ("mlp", IMAGES, "gram"),
    "conv4": ("conv4", IMAGES, "loop"),
    "conv4, regression": ("conv4", REAL_IMAGES, "loop"),
    "conv4, batch norm": ("conv4 batch norm", IMAGES, "loop"),
    "resnet12": ("resnet12", IMAGES, "loop"),
    "other module": (Tanh(), WIDE, "vmap"),
    "other module, regression": (Tanh(), REAL, "vmap"),
}


# -- a quadratic, by hand ------------------------------------------------------------


def quadratic() -> tuple[TaskBatch, Tensor, Tensor]:
    """One task of linear least squares: theta' = theta - lr (2/n) X^T (X theta - y)."""
    shape = TaskShape("regression", (3,), 1, shots=4, queries=5)
    task = toy_tasks(shape, n_tasks=1)
    hessian = 2 / 4 * task.support_x[0].T @ task.support_x[0]
    theta = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64)
    return task, hessian, theta


@pytest.mark.parametrize("backend", ["vectorized", "learn2learn"])
@ORDERS
def test_one_step_on_a_quadratic_is_its_closed_form(order: int, backend: str) -> None:
    task, hessian, theta = quadratic()
    lr = 0.4
    algorithm = maml("linear without bias", steps=1, lr=lr, order=order, backend=backend)
    algorithm.init(TaskShape("regression", (3,), 1, 4, 5), torch.Generator())
    gradient = 2 / 4 * (theta @ task.support_x[0].T - task.support_y[0].T) @ task.support_x[0]
    adapted = theta - lr * gradient
    outer = 2 / 5 * (adapted @ task.query_x[0].T - task.query_y[0].T) @ task.query_x[0]
    factor = torch.eye(3, dtype=torch.float64) - lr * hessian if order == 2 else 1.0
    expected = outer @ factor if order == 2 else outer

    params = {"output.weight": theta.clone().requires_grad_()}
    found = torch.autograd.grad(algorithm.losses(params, task).sum(), list(params.values()))[0]
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert algorithm.describe()["order"] == order


# -- agreement -----------------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize("case", CASES)
def test_both_backends_give_the_same_losses_gradient_and_weights(case: str, order: int) -> None:
    model, shape, implementation = CASES[case]
    tasks = toy_tasks(shape, unequal=True)
    for steps in range(6) if not case.startswith(("conv4", "resnet")) else (0, 1, 3):
        ours, params = started(model, shape, steps=steps, order=order, backend="vectorized")
        assert ours.describe()["implementation"] == implementation
        peer, _ = started(model, shape, steps=steps, order=order, backend="learn2learn")
        same(ours.losses(params, tasks), peer.losses(params, tasks))
        found, expected = meta_gradient(ours, params, tasks), meta_gradient(peer, params, tasks)
        for name in params:
            same(found[name], expected[name])
        state, other = (a.adapt(params, tasks.without_query()) for a in (ours, peer))
        for name in params:
            same(state[name], other[name])


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@ORDERS
@pytest.mark.parametrize("kind", [LoopBackend, VmapBackend])
@pytest.mark.parametrize("model", ["linear", "mlp", "conv4"])
def test_the_general_backends_give_the_same_gradient(
    model: str, kind: type[Backend], order: int
) -> None:
    shape = IMAGES if model == "conv4" else WIDE
    tasks = toy_tasks(shape, unequal=True)
    algorithm, params = started(model, shape, steps=2, order=order)
    expected = meta_gradient(algorithm, params, tasks)
    algorithm.backend = kind(algorithm.module, InnerLoop(2, 0.4, second_order=order == 2))
    for name, found in meta_gradient(algorithm, params, tasks).items():
        same(found, expected[name])


# -- finite differences --------------------------------------------------------------


@ORDERS
@pytest.mark.parametrize("backend", ["vectorized", "learn2learn"])
@pytest.mark.parametrize("case", CASES)
def test_meta_gradient_matches_finite_differences(case: str, backend: str, order: int) -> None:
    model, shape, _ = CASES[case]
    tasks = toy_tasks(shape, unequal=True)
    algorithm, params = started(model, shape, steps=2, order=order, backend=backend)
    unadapted, _ = started(model, shape, steps=0)
    laws.check_meta_gradient(algorithm, params, tasks, unadapted=unadapted)


@pytest.mark.parametrize("case", ["linear, wide", "mlp, wide", "conv4"])
def test_orders_differ(case: str) -> None:
    model, shape, _ = CASES[case]
    tasks = toy_tasks(shape)
    second, params = started(model, shape, steps=2, order=2)
    first, _ = started(model, shape, steps=2, order=1)
    a, b = meta_gradient(second, params, tasks), meta_gradient(first, params, tasks)
    assert any((a[name] - b[name]).abs().max() > 1e-3 * a[name].abs().max() for name in params)


@pytest.mark.parametrize("backend", ["vectorized", "learn2learn"])
def test_attention_is_differentiated_twice(backend: str) -> None:
    algorithm, params = started(Attention(), TOKENS, steps=2, backend=backend)
    laws.check_meta_gradient(algorithm, params, toy_tasks(TOKENS, unequal=True))


# -- precision and batching ----------------------------------------------------------


@pytest.mark.parametrize("case", ["linear, wide", "mlp, narrow", "conv4", "other module"])
def test_float32_is_float64_rounded(case: str) -> None:
    model, shape, _ = CASES[case]
    tasks = toy_tasks(shape, unequal=True)
    algorithm, params = started(model, shape, steps=3)
    expected = meta_gradient(algorithm, params, tasks)
    single = {name: value.detach().float().requires_grad_() for name, value in params.items()}
    algorithm.module.float()
    found = meta_gradient(algorithm, single, tasks.to(dtype=torch.float32))
    for name in params:
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-3, atol=1e-5)


def test_a_closed_form_can_be_vmapped_over_theta() -> None:
    algorithm, params = started("mlp", WIDE, steps=2)
    tasks = toy_tasks(WIDE)
    assert algorithm.vmappable
    several = {name: torch.stack([value, 0.5 * value]) for name, value in params.items()}
    gradient = torch.func.grad(lambda theta: algorithm.losses(theta, tasks).sum())
    together = torch.func.vmap(gradient)(several)
    for i in range(2):
        alone = gradient({name: value[i] for name, value in several.items()})
        for name in params:
            same(together[name][i], alone[name])


@pytest.mark.parametrize("model", ["linear", "conv4"])
def test_gradients_reach_inputs_that_learn(model: str) -> None:
    shape = IMAGES if model == "conv4" else WIDE
    algorithm, params = started(model, shape, steps=1)
    task = toy_tasks(shape, n_tasks=1)
    task.support_x.requires_grad_()

    def loss(x: Tensor) -> Tensor:
        moved = TaskBatch(x, task.support_y, task.query_x, task.query_y, outputs=3)
        return algorithm.losses(params, moved)[0]

    (gradient,) = torch.autograd.grad(loss(task.support_x), [task.support_x])
    direction = torch.randn_like(task.support_x, dtype=torch.float64)
    with torch.no_grad():
        ends = [loss(task.support_x + step * direction) for step in (1e-6, -1e-6)]
    expected = (ends[0] - ends[1]) / 2e-6
    torch.testing.assert_close((gradient * direction).sum(), expected, rtol=1e-6, atol=1e-9)


def test_every_model_of_the_plugin_is_covered() -> None:
    covered = {model if isinstance(model, str) else "" for model, _, _ in CASES.values()}
    assert covered >= set(MODELS)
    assert isinstance(Tanh(), Model)
    assert isinstance(Tanh().build(WIDE, torch.Generator()), nn.Module)
