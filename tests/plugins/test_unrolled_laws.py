"""unrolled keeps the laws with every optimiser, and equals each one's own formula."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from metaforge.contracts import Params
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing import inner_algorithms as laws
from metaforge.testing.inner_algorithms import fresh_parameters, meta_gradient, toy_tasks
from metaforge_unrolled.algorithm import RULES as TORCH_RULES
from metaforge_unrolled.algorithm import Unrolled
from metaforge_unrolled.options import UnrolledOptions
from tests.plugins.maml_cases import CONTEXT, IMAGES, MODELS, REAL, WIDE, Tanh, maml
from tests.plugins.unrolled_cases import NEEDS_HIGHER, RULES, TOKENS, Attention, made, started

pytestmark = NEEDS_HIGHER
ORDERS = pytest.mark.parametrize("order", [1, 2], ids=["first order", "second order"])
PLAIN = [name for name in RULES if "," not in name]
CENTRED = {"optimizer": "rmsprop", "centered": True, "order": 1}


def same(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


# -- laws ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "order"),
    [(WIDE, 1), (WIDE, 2), (REAL, 2)],
    ids=["first order", "second order", "regression"],
)
@pytest.mark.parametrize("rule", PLAIN)
def test_laws(rule: str, shape: TaskShape, order: int) -> None:
    algorithm = made(steps=2, order=order, **RULES[rule])
    laws.check_inner_algorithm(algorithm, shape, unadapted=made(steps=0))


@ORDERS
@pytest.mark.parametrize("rule", [name for name in RULES if "," in name])
def test_meta_gradients_with_settings(rule: str, order: int) -> None:
    algorithm, params = started("mlp", WIDE, steps=3, order=order, **RULES[rule])
    unadapted, _ = started("mlp", WIDE, steps=0)
    tasks = toy_tasks(WIDE, unequal=True)
    laws.check_meta_gradient(algorithm, params, tasks, unadapted=unadapted)


def test_centred_rmsprop_has_first_order_alone() -> None:
    """Why: higher's second derivative is NaN where a gradient is zero, as of a dead relu."""
    algorithm, params = started("mlp", WIDE, steps=2, **CENTRED)
    unadapted, _ = started("mlp", WIDE, steps=0)
    tasks = toy_tasks(WIDE, unequal=True)
    laws.check_meta_gradient(algorithm, params, tasks, unadapted=unadapted)
    algorithm.order = 2
    found = meta_gradient(algorithm, params, tasks)
    assert any(value.isnan().any() for value in found.values())


@pytest.mark.parametrize("rule", ["sgd, momentum", "adam"])
@pytest.mark.parametrize("model", ["conv4", "conv4 batch norm"])
def test_laws_on_images(model: str, rule: str) -> None:
    algorithm = made(model, steps=2, **{**RULES[rule], "lr": 0.02})
    laws.check_inner_algorithm(algorithm, IMAGES, unadapted=made(model, steps=0))


@ORDERS
@pytest.mark.parametrize("rule", ["sgd, momentum", "adam, betas"])
def test_laws_with_attention(rule: str, order: int) -> None:
    algorithm = made(Attention(), steps=2, order=order, **RULES[rule])
    laws.check_inner_algorithm(algorithm, TOKENS, unadapted=made(Attention(), steps=0))


def test_attention_needs_its_plain_formula() -> None:
    """Why: the kernel that PyTorch would choose has no second derivative."""
    algorithm, params = started(Attention(), TOKENS, steps=1)
    tasks = toy_tasks(TOKENS)
    assert algorithm.losses(params, tasks).requires_grad
    with pytest.raises(RuntimeError, match=r"scaled_dot_product.*not implemented"):
        Unrolled.losses.__wrapped__(algorithm, params, tasks)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rule", RULES)
def test_gradients_that_are_zero_do_no_harm(rule: str) -> None:
    """A unit that is dead for every row: sqrt(0) is steep without bound."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(9, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        module[0].bias[1] = -100.0
    algorithm, params = started(module, WIDE, steps=3, **RULES[rule])
    tasks = toy_tasks(WIDE)
    assert all(value.isfinite().all() for value in meta_gradient(algorithm, params, tasks).values())
    laws.check_meta_gradient(algorithm, params, tasks)


# -- the rules, by torch.optim and by hand -------------------------------------------


def by_torch(module: nn.Module, tasks: TaskBatch, steps: int, options: UnrolledOptions) -> Params:
    """The first task's adapted parameters, by torch.optim."""
    module = copy.deepcopy(module)
    rule = TORCH_RULES[options.optimizer](
        module.parameters(),
        lr=options.lr,
        **options.settings,  # type: ignore[call-arg]
    )
    for _ in range(steps):
        rule.zero_grad()
        F.cross_entropy(module(tasks.support_x[0]), tasks.support_y[0]).backward()
        rule.step()
    return {name: value.detach() for name, value in module.named_parameters()}


@pytest.mark.parametrize(
    "rule", [*(name for name in RULES if name.split(",")[0] != "adam"), "centred"]
)
def test_the_rules_are_torchs(rule: str) -> None:
    tasks = toy_tasks(WIDE, n_tasks=1)
    algorithm, params = started("mlp", WIDE, steps=4, **{"centred": CENTRED, **RULES}[rule])
    expected = by_torch(algorithm.module, tasks, 4, algorithm.options)
    # torch rounds ASGD's step size to float32
    tolerance = 1e-7 if rule.startswith("asgd") else 1e-12
    for name, found in algorithm.adapt(params, tasks).items():
        same(found[0].detach(), expected[name], tolerance)
        assert not torch.allclose(found[0], params[name])


def gradient_of(module: nn.Module, theta: Params, tasks: TaskBatch, b: int) -> Params:
    outputs = functional_call(module, theta, (tasks.support_x[b],))
    loss = F.cross_entropy(outputs, tasks.support_y[b])
    found = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    return dict(zip(theta, found, strict=True))


def rule_by_hand(rule: str, t: int, g: Tensor, state: dict[str, Tensor], lr: float) -> Tensor:
    """The update at step t (from 1), differentiable."""
    if rule == "sgd":
        return lr * g
    if rule == "sgd, momentum":
        state["m"] = 0.9 * state["m"] + g if t > 1 else g
        return lr * state["m"]
    assert rule == "adam"
    state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * g
    state["v"] = 0.999 * state.get("v", 0.0) + 0.001 * g * g
    scale = math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
    return lr * scale * state["m"] / (state["v"].sqrt() + 1e-8)


@pytest.mark.parametrize("rule", ["sgd", "sgd, momentum", "adam"])
def test_losses_and_meta_gradients_are_those_of_the_rule_written_out(rule: str) -> None:
    tasks = toy_tasks(WIDE)
    algorithm, params = started(Tanh(), WIDE, steps=3, **RULES[rule])
    each = []
    for b in range(len(tasks)):
        theta, states = dict(params), {name: {} for name in params}
        for t in range(1, 4):
            g = gradient_of(algorithm.module, theta, tasks, b)
            theta = {k: theta[k] - rule_by_hand(rule, t, g[k], states[k], 0.05) for k in theta}
        outputs = functional_call(algorithm.module, theta, (tasks.query_x[b],))
        each.append(F.cross_entropy(outputs, tasks.query_y[b]))
    expected = torch.stack(each)
    same(algorithm.losses(params, tasks), expected)
    weights = torch.linspace(0.5, 1.5, 3, dtype=torch.float64)
    gradient = torch.autograd.grad(expected @ weights, list(params.values()))
    found = meta_gradient(algorithm, params, tasks)
    for a, b in zip(found.values(), gradient, strict=True):
        same(a, b, 1e-9)


@ORDERS
@pytest.mark.parametrize("model", ["linear", "mlp", "conv4"])
def test_sgd_is_the_component_maml(model: str, order: int) -> None:
    shape = IMAGES if model == "conv4" else WIDE
    tasks = toy_tasks(shape, unequal=True)
    ours, params = started(model, shape, lr=0.4, steps=3, order=order)
    other = maml(model, lr=0.4, steps=3, order=order)
    fresh_parameters(other, shape)
    same(ours.losses(params, tasks), other.losses(params, tasks), 1e-10)
    found, expected = meta_gradient(ours, params, tasks), meta_gradient(other, params, tasks)
    for name in params:
        same(found[name], expected[name], 1e-10)


def test_rprop_has_one_order() -> None:
    tasks = toy_tasks(WIDE)
    second, params = started("mlp", WIDE, steps=3, optimizer="rprop")
    first, _ = started("mlp", WIDE, steps=3, optimizer="rprop", order=1)
    expected = meta_gradient(first, params, tasks)
    for name, value in meta_gradient(second, params, tasks).items():
        same(value, expected[name])


# -- Adam's convention ---------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-8, 1e-3])
def test_adam_is_torchs_with_eps_over_the_bias_correction(eps: float) -> None:
    tasks = toy_tasks(WIDE, n_tasks=1)
    algorithm, params = started("mlp", WIDE, steps=3, optimizer="adam", eps=eps)
    module = copy.deepcopy(algorithm.module)
    rule = torch.optim.Adam(module.parameters(), lr=0.05)
    for t in range(1, 4):
        rule.param_groups[0]["eps"] = eps / math.sqrt(1 - 0.999**t)
        rule.zero_grad()
        F.cross_entropy(module(tasks.support_x[0]), tasks.support_y[0]).backward()
        rule.step()
    expected = dict(module.named_parameters())
    for name, found in algorithm.adapt(params, tasks).items():
        same(found[0], expected[name])
    assert algorithm.describe()["eps_convention"] == "tf1"


def test_adam_differs_from_torchs_by_what_the_convention_says() -> None:
    """One step: lr g / (|g| + eps / sqrt(1 - b2)) here, lr g / (|g| + eps) there."""
    tasks = toy_tasks(WIDE, n_tasks=1)
    eps = 1e-3
    algorithm, params = started("mlp", WIDE, steps=1, optimizer="adam", eps=eps)
    theirs = by_torch(algorithm.module, tasks, 1, algorithm.options)
    g = gradient_of(algorithm.module, params, tasks, 0)
    largest = 0.0
    for name, found in algorithm.adapt(params, tasks).items():
        size = g[name].abs()
        expected = 0.05 * g[name] * (1 / (size + eps) - 1 / (size + eps / math.sqrt(1e-3)))
        same(found[0] - theirs[name], expected)
        largest = max(largest, expected.abs().max().item())
    assert largest > 0.01


def test_adams_difference_at_its_default_eps() -> None:
    tasks = toy_tasks(WIDE, n_tasks=1)
    algorithm, params = started("mlp", WIDE, steps=3, optimizer="adam")
    theirs = by_torch(algorithm.module, tasks, 3, algorithm.options)
    found = {k: v[0].detach() for k, v in algorithm.adapt(params, tasks).items()}
    worst = max((found[k] - theirs[k]).abs().max().item() for k in found)
    assert worst == pytest.approx(6.58e-5, rel=1e-2)


# -- broken specimens ----------------------------------------------------------------


class KeepsItsState(Unrolled):
    """A task meets the momentum of the one before."""

    def _fresh_rule(self, values: list[Tensor], through: bool) -> Any:
        if "rule" not in self.__dict__:
            self.rule = super()._fresh_rule(values, through)
        return self.rule


class PosesAsSecondOrder(Unrolled):
    """First order, but says 2."""

    def run(self, *args: Any) -> tuple[Params, Tensor]:
        self.order = 1
        try:
            return super().run(*args)
        finally:
            self.order = 2


class CutsTheGraph(Unrolled):
    """higher's way without its graph: what it adapts does not lead back to theta."""

    def run(self, params: Params, *args: Any) -> tuple[Params, Tensor]:
        state, outputs = super().run({k: v.detach() for k, v in params.items()}, *args)
        return state, outputs + sum((0 * v).sum() for v in params.values())


@pytest.mark.parametrize(
    ("kind", "check", "law"),
    [
        (KeepsItsState, laws.check_task_independence, "independence"),
        (PosesAsSecondOrder, laws.check_meta_gradient, "meta-gradient at order 2"),
        (CutsTheGraph, laws.check_meta_gradient, "meta-gradient at order 2"),
    ],
    ids=["keeps its state", "first order", "cut graph"],
)
def test_each_law_rejects_what_breaks_it(kind: type[Unrolled], check: Any, law: str) -> None:
    options = UnrolledOptions(steps=2, lr=0.4, momentum=0.9)
    algorithm = kind(options, CONTEXT, model=MODELS["mlp"])
    params = fresh_parameters(algorithm, WIDE)
    with pytest.raises(AssertionError, match=law):
        check(algorithm, params, toy_tasks(WIDE, unequal=True))
