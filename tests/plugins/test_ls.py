"""ls and r2d2: the plain formulas, the batched solver, what is refused, what is exported."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from metaforge import registry
from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.inner_algorithms import toy_tasks
from metaforge_ls.options import LsOptions, R2d2Options
from metaforge_ls.residual_map import psi, psi_products
from metaforge_ls.ridge import ridge_weights
from tests.plugins.ls_cases import (
    IMAGES,
    MAKERS,
    NARROW,
    REAL,
    WIDE,
    gradients,
    ls,
    plain_losses,
    r2d2,
    started,
)

NAMES = pytest.mark.parametrize("name", MAKERS)
SHAPES = {"wide": WIDE, "narrow": NARROW, "images": IMAGES, "regression": REAL}


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def fill_padding(tasks: TaskBatch, value: float) -> TaskBatch:
    """The same tasks with another number in the inputs' padding rows."""
    support_x, query_x = tasks.support_x.clone(), tasks.query_x.clone()
    support_x[tasks.support_mask == 0] = value
    query_x[tasks.query_mask == 0] = value
    return replace(tasks, support_x=support_x, query_x=query_x)


# -- the plain formulas --------------------------------------------------------------------


@NAMES
@pytest.mark.parametrize("shape", SHAPES)
def test_losses_and_gradients_are_those_of_a_plain_loop(name: str, shape: str) -> None:
    algorithm, params = started(MAKERS[name](), SHAPES[shape])
    tasks = toy_tasks(SHAPES[shape], n_tasks=4, unequal=True)
    found, expected = algorithm.losses(params, tasks), plain_losses(algorithm, params, tasks)
    same(found, expected)
    weights = torch.tensor([0.5, 1.0, 2.0, -1.0], dtype=torch.float64)
    found_gradients = gradients(weights @ found, params)
    for key, gradient in gradients(weights @ expected, params).items():
        same(found_gradients[key], gradient)


@NAMES
@pytest.mark.parametrize("garbage", [7.0, math.inf, math.nan])
def test_what_padding_rows_hold_does_not_matter(name: str, garbage: float) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE, unequal=True)
    expected = algorithm.losses(params, tasks)
    found = algorithm.losses(params, fill_padding(tasks, garbage))
    same(found, expected)
    found_gradients = gradients(found.sum(), params)
    for key, gradient in gradients(expected.sum(), params).items():
        same(found_gradients[key], gradient)


@NAMES
def test_classes_with_other_numbers_of_shots(name: str) -> None:
    """3, 1 and 2 samples of the classes, in no order; a class without queries."""
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE)
    y = torch.tensor([0, 2, 0, 1, 0, 2]).expand(3, -1)
    query_y = torch.tensor([0, 2, 2, 2, 0, 0, 2, 0, 0]).expand(3, -1)
    tasks = replace(tasks, support_y=y, query_y=query_y)
    same(algorithm.losses(params, tasks), plain_losses(algorithm, params, tasks))


@NAMES
@pytest.mark.parametrize("shots", [1, 5])
def test_float32_at_full_width_is_float64_rounded(name: str, shots: int) -> None:
    shape = TaskShape("classification", (640,), 5, shots, 15)
    algorithm, params = started(MAKERS[name](hidden=None), shape)
    tasks = toy_tasks(shape)
    expected = algorithm.losses(params, tasks)
    single = {key: value.detach().float().requires_grad_() for key, value in params.items()}
    found = algorithm.losses(single, tasks.to(dtype=torch.float32))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
    found_gradients = gradients(found.mean(), single)
    for key, gradient in gradients(expected.mean(), params).items():
        off = (found_gradients[key].double() - gradient).norm()
        assert off <= 1e-5 * gradient.norm() + 1e-7


@NAMES
def test_tasks_are_taken_in_thetas_precision(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE).to(dtype=torch.float32)
    found = algorithm.losses(params, tasks)
    assert found.dtype == torch.float64
    same(found, algorithm.losses(params, tasks.to(dtype=torch.float64)))
    assert algorithm.predict(params, tasks, tasks.query_x).dtype == torch.float64


@NAMES
def test_gradients_reach_inputs_that_learn(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE, unequal=True)
    constant = {key: value.detach() for key, value in params.items()}

    def loss(support_x: Tensor, query_x: Tensor) -> Tensor:
        return algorithm.losses(constant, replace(tasks, support_x=support_x, query_x=query_x))

    inputs = (tasks.support_x.requires_grad_(), tasks.query_x.requires_grad_())
    assert torch.autograd.gradcheck(loss, inputs)


@NAMES
def test_inputs_stay_as_they_are(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE, n_tasks=1)
    x, query_x = tasks.support_x.clone(), tasks.query_x.clone()
    algorithm.losses(params, tasks)
    algorithm.adapt(params, tasks)
    algorithm.predict(params, tasks, tasks.query_x)
    algorithm.export(params, tasks)(tasks.query_x[0])
    assert torch.equal(tasks.support_x, x)
    assert torch.equal(tasks.query_x, query_x)


@NAMES
def test_theta_serves_other_ways_and_shots_without_init(name: str) -> None:
    _, params = started(MAKERS[name](), WIDE)
    fresh = MAKERS[name]()
    tasks = toy_tasks(TaskShape("classification", (9,), 5, shots=1, queries=4))
    same(fresh.losses(params, tasks), plain_losses(fresh, params, tasks))


@NAMES
def test_it_can_be_vmapped_over_theta(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE, unequal=True)
    assert algorithm.vmappable
    several = {key: torch.stack([value, 0.5 * value]) for key, value in params.items()}
    gradient = torch.func.grad(lambda theta: algorithm.losses(theta, tasks).sum())
    together = torch.func.vmap(gradient)(several)
    for i in range(2):
        theta = {key: value[i].detach().requires_grad_() for key, value in several.items()}
        for key, alone in gradients(algorithm.losses(theta, tasks).sum(), theta).items():
            same(together[key][i], alone)


# -- r2d2's own parameters -----------------------------------------------------------------


def test_r2d2_starts_from_its_options() -> None:
    params = r2d2(ridge=0.5, scale=3.0).init(WIDE, torch.Generator())
    assert set(params) == {"w0", "w1", "log_scale", "bias", "log_ridge"}
    for key, expected in (("log_ridge", 0.5), ("log_scale", 3.0)):
        assert params[key].exp().item() == pytest.approx(expected, rel=1e-12)
    assert params["bias"].item() == 0.0
    assert r2d2().init(WIDE, torch.Generator())["log_scale"].exp().item() == pytest.approx(10)
    assert r2d2().init(REAL, torch.Generator())["log_scale"].item() == 0.0


def test_r2d2s_ridge_is_the_one_it_learned() -> None:
    learned, params = started(r2d2(scale=1.0), REAL)
    tasks = toy_tasks(REAL)
    for ridge in (1e-3, 2.0):
        params["log_ridge"] = torch.tensor(math.log(ridge), dtype=torch.float64)
        expected = ls(ridge=ridge).predict(params, tasks, tasks.query_x)
        same(learned.predict(params, tasks, tasks.query_x), expected + params["bias"])


def test_the_softmax_does_not_see_r2d2s_bias() -> None:
    algorithm, params = started(r2d2(), WIDE)
    loss = algorithm.losses(params, toy_tasks(WIDE)).sum()
    found = gradients(loss, params)
    assert found["bias"] == 0, "not even rounding noise, which Adam would follow"
    assert min(found[key].abs().max() for key in ("w0", "w1", "log_scale", "log_ridge")) > 1e-4
    algorithm, params = started(r2d2(), REAL)
    assert gradients(algorithm.losses(params, toy_tasks(REAL)).sum(), params)["bias"].abs() > 1e-4


# -- the batched solver --------------------------------------------------------------------


def rows(*shape: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=random, dtype=torch.float64)


def test_ridge_weights_are_the_minimum_and_their_derivatives() -> None:
    x, y = rows(3, 4, 6), rows(3, 4, 2)
    ridge = torch.tensor(0.3, dtype=torch.float64)
    primal = x.mT @ x + ridge * torch.eye(6, dtype=torch.float64)
    same(ridge_weights(x, y, ridge).mT, torch.linalg.solve(primal, x.mT @ y))
    inputs = tuple(value.requires_grad_() for value in (x, y, ridge))
    assert torch.autograd.gradcheck(ridge_weights, inputs)
    assert torch.autograd.gradgradcheck(ridge_weights, inputs)


def test_a_system_that_is_not_positive_definite_becomes_nan_alone() -> None:
    x = rows(2, 3, 4)
    x[1, 2] = x[1, 0]
    found = ridge_weights(x, rows(2, 3, 2), -1e-3)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


def test_psi_products_are_products_with_psi() -> None:
    x, w0, w1, heads = rows(2, 5, 4), rows(4, 7), rows(7, 4), rows(2, 3, 4)
    expected = psi(x.flatten(0, 1), w0, w1).unflatten(0, (2, 5)) @ heads.mT
    same(psi_products(x, w0, w1, heads), expected)
    inputs = tuple(value.requires_grad_() for value in (x, w0, w1, heads))
    assert torch.autograd.gradcheck(psi_products, inputs)
    assert torch.autograd.gradgradcheck(psi_products, inputs)


def operators(algorithm: Any, params: Any, tasks: TaskBatch) -> list[str]:
    """The names of the ATen operators of a step: losses and their gradient."""
    names: list[str] = []

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(str(func).split(".")[1])
            return func(*args, **(kwargs or {}))

    with Recorder():
        gradients(algorithm.losses(params, tasks).mean(), params)
    return names


@NAMES
def test_a_step_has_no_loop_over_tasks(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    few, many = (operators(algorithm, params, toy_tasks(WIDE, n_tasks=n)) for n in (2, 8))
    assert few == many
    assert many.count("linalg_cholesky_ex") == 1


@NAMES
def test_a_step_is_less_work_than_five_products_of_all_rows(name: str) -> None:
    """Two forward and three backward are what a step costs that forms psi of every row."""
    shape = TaskShape("classification", (320,), 5, shots=5, queries=15)
    algorithm, params = started(MAKERS[name](hidden=None), shape)
    tasks = toy_tasks(shape, n_tasks=4)
    with FlopCounterMode(display=False) as counter:
        gradients(algorithm.losses(params, tasks).mean(), params)
    assert counter.get_total_flops() < 0.7 * 5 * 2 * (4 * 100) * 320 * 320


@NAMES
def test_a_step_reads_nothing_back_from_the_device(name: str) -> None:
    """Fake tensors have no values: whatever reads one fails."""
    with FakeTensorMode():
        algorithm, params = started(MAKERS[name](), WIDE)
        tasks = TaskBatch(
            torch.randn(2, 6, 9, dtype=torch.float64),
            torch.zeros(2, 6, dtype=torch.long),
            torch.randn(2, 9, 9, dtype=torch.float64),
            torch.zeros(2, 9, dtype=torch.long),
            outputs=3,
        )
        loss = algorithm.losses(params, tasks).mean()
        assert gradients(loss, params)["w0"].shape == (9, 7)
        with pytest.raises(Exception, match="_local_scalar_dense"):
            loss.item()


# -- options and parameters ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (LsOptions, {"ridge": 0.0}),
        (LsOptions, {"hidden": 0}),
        (LsOptions, {"scale": 2.0}),
        (R2d2Options, {"ridge": -1.0}),
        (R2d2Options, {"scale": 0.0}),
    ],
    ids=str,
)
def test_bad_options_are_refused(model: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(options)


@NAMES
def test_fresh_weights_are_glorot_uniform_and_the_seeds_alone(name: str) -> None:
    shape = TaskShape("classification", (300,), 5, 1, 1)
    state = torch.get_rng_state()
    first, second = (
        MAKERS[name](hidden=None).init(shape, torch.Generator().manual_seed(3)) for _ in range(2)
    )
    assert torch.equal(state, torch.get_rng_state())
    for key, value in first.items():
        assert torch.equal(value, second[key])
        assert value.dtype == torch.float64
    assert first["w0"].shape == first["w1"].shape == (300, 300)
    for key in ("w0", "w1"):
        assert first[key].abs().max() <= math.sqrt(6 / 600)
        assert first[key].std().item() == pytest.approx(math.sqrt(2 / 600), rel=0.02)
    narrow = MAKERS[name](hidden=20).init(shape, torch.Generator())
    assert narrow["w0"].shape == (300, 20)
    assert narrow["w1"].shape == (20, 300)
    assert narrow["w0"].abs().max() > math.sqrt(6 / 320) * 0.99
    images = MAKERS[name](hidden=None).init(IMAGES, torch.Generator())
    assert images["w0"].shape == (12, 12)


def test_theta_is_in_the_contexts_precision() -> None:
    for algorithm in (ls(context=Context()), r2d2(context=Context())):
        params = algorithm.init(WIDE, torch.Generator())
        assert {value.dtype for value in params.values()} == {torch.float32}


@NAMES
def test_parameters_that_do_not_fit_are_refused_by_name(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    with pytest.raises(PluginError, match=rf"{name}: w0 \[9, 7\].*inputs of 4 numbers"):
        algorithm.losses(params, toy_tasks(NARROW))
    without = {key: value for key, value in params.items() if key != "w1"}
    with pytest.raises(PluginError, match=rf"{name}: theta has no w1 \(it has w0"):
        algorithm.predict(without, toy_tasks(WIDE), toy_tasks(WIDE).query_x)
    turned = params | {"w1": params["w1"].mT}
    with pytest.raises(PluginError, match=r"expected \[9, h\] and \[h, 9\]"):
        algorithm.adapt(turned, toy_tasks(WIDE))


def test_ls_parameters_are_no_r2d2s() -> None:
    _, params = started(ls(), WIDE)
    with pytest.raises(PluginError, match="no log_scale nor bias nor log_ridge"):
        r2d2().losses(params, toy_tasks(WIDE))


@NAMES
def test_describe_says_what_runs(name: str) -> None:
    assert MAKERS[name](ridge=0.2).describe() == {
        "order": 2,
        "hidden": 7,
        "normalize": True,
        "ridge": 0.2,
    }


@NAMES
def test_it_is_registered(name: str) -> None:
    created = registry.create("inner_algorithm", name, hidden=7, context=Context(dtype="float64"))
    assert type(created) is type(MAKERS[name]())
    assert created.tasks == {"classification", "regression"}
    (citation,) = registry.get("inner_algorithm", name).cites
    assert {"ls": "Wang", "r2d2": "Bertinetto"}[name] in citation


# -- export and diagnosis ------------------------------------------------------------------


@NAMES
@pytest.mark.parametrize("shape", ["images", "regression"])
def test_an_export_stands_alone(name: str, shape: str) -> None:
    algorithm, params = started(MAKERS[name](), SHAPES[shape])
    tasks = toy_tasks(SHAPES[shape], unequal=True)[2:3]
    module = algorithm.export(params, tasks)
    expected = algorithm.predict(params, tasks, tasks.query_x)[0].detach()
    with torch.no_grad():
        for value in params.values():
            value.zero_()
        same(module(tasks.query_x[0]), expected)
    with pytest.raises(PluginError, match=f"{name}: export takes one task; found a batch of 3"):
        algorithm.export(params, toy_tasks(SHAPES[shape]))


@NAMES
def test_diagnose_names_the_tensor(name: str) -> None:
    algorithm, params = started(MAKERS[name](), WIDE)
    tasks = toy_tasks(WIDE, unequal=True)
    assert algorithm.diagnose(params, fill_padding(tasks, math.nan)) is None
    nan = torch.full((9, 7), math.nan, dtype=torch.float64)
    assert algorithm.diagnose(params | {"w0": nan}, tasks) == "tensor 'w0'"
    for part in ("support", "query"):
        bad = toy_tasks(WIDE)
        getattr(bad, f"{part}_x")[1, 2, 3] = math.inf
        assert not algorithm.losses(params, bad).isfinite().all()
        assert algorithm.diagnose(params, bad) == f"tensor '{part} inputs'"
    huge = {**params, "w1": params["w1"] * 1e300}
    assert algorithm.diagnose(huge, tasks) == "tensor 'support Gram matrix'"


def test_diagnose_names_a_system_that_cannot_be_solved() -> None:
    """In float32 a ridge of 1e-12 is lost beside entries near 1."""
    algorithm = ls(context=Context(), ridge=1e-12)
    params = algorithm.init(NARROW, torch.Generator().manual_seed(0))
    tasks = toy_tasks(NARROW).to(dtype=torch.float32)
    tasks.support_x[1, 1:] = tasks.support_x[1, :1]
    found = algorithm.losses(params, tasks)
    assert found[1].isnan()
    assert algorithm.diagnose(params, tasks[1:2]) == "tensor 'head'"
