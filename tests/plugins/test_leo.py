"""leo: agreement with the plain loop, noise and dropout, penalties, what it refuses, diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

import metaforge
from benchmarks import leo as loop
from metaforge import seeding
from metaforge.components import Context
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge_leo import networks
from metaforge_leo.algorithm import Leo
from metaforge_leo.options import LeoOptions
from tests.plugins.leo_cases import (
    CONTEXT,
    SHAPE,
    by_the_loop,
    gradient,
    leo,
    noise_for,
    normal,
    same,
    started,
    unit_tasks,
)

ONE_SHOT = TaskShape("classification", (9,), 4, shots=1, queries=3)


# -- agreement with one task at a time -----------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.3], ids="dropout {}".format)
@pytest.mark.parametrize("training", [False, True], ids=["means", "training"])
@pytest.mark.parametrize("steps", [(0, 0), (2, 0), (0, 2), (3, 2)], ids=str)
def test_a_batch_gives_what_the_loop_gives(
    steps: tuple[int, int], training: bool, dropout: float
) -> None:
    for shape, unequal in ((SHAPE, True), (SHAPE, False), (ONE_SHOT, False)):
        algorithm, params = started(
            shape=shape,
            inner_unroll_length=steps[0],
            finetuning_unroll_length=steps[1],
            dropout_rate=dropout,
        )
        tasks = unit_tasks(shape, unequal=unequal)
        noise = noise_for(algorithm, tasks) if training else None
        outcome = algorithm.outcome(params, tasks, training=training, noise=noise)
        parts = by_the_loop(algorithm, params, tasks, noise)
        for found, name in (
            (outcome.loss, "loss"),
            (outcome.query_loss, "query_loss"),
            (outcome.kl, "kl"),
            (outcome.encoder_penalty, "encoder_penalty"),
        ):
            same(found, torch.stack([getattr(part, name) for part in parts]))
        expected = torch.stack([part.loss for part in parts])
        weigh = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
        one, other = gradient(weigh @ outcome.loss, params), gradient(weigh @ expected, params)
        for name in params:
            same(one[name], other[name])


def test_every_inner_step_is_the_loops() -> None:
    algorithm, params = started(inner_unroll_length=3)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    done = algorithm.outcome(params, tasks, training=True, noise=noise).adaptation
    parts = by_the_loop(algorithm, params, tasks, noise)
    for b, part in enumerate(parts):
        y = tasks.support_y[b]
        same(done.latents[0][b], part.codes)
        same(done.weights[0][b], torch.stack([part.weights[y == c].mean(0) for c in range(3)]))
        support_loss = torch.nn.functional.cross_entropy(done.logits[3][b], y)
        same(support_loss, part.support_loss)
    assert [len(done.latents), len(done.weights), len(done.logits)] == [4, 3, 5]


def test_one_step_on_a_code_by_hand() -> None:
    """Two classes of one row each, codes of width 1, evaluation: everything is a number."""
    algorithm = leo(num_latents=1, inner_unroll_length=1, finetuning_unroll_length=0)
    shape = TaskShape("classification", (2,), 2, shots=1, queries=1)
    params = algorithm.init(shape, torch.Generator().manual_seed(0))
    x = torch.tensor([[[1.0, 0.0], [0.6, 0.8]]], dtype=torch.float64)
    tasks = TaskBatch(x, torch.tensor([[0, 1]]), x, torch.tensor([[0, 1]]))
    c = (x[0] @ params[networks.ENCODER]).flatten()
    w = [params[name] for name in networks.RELATION]
    pairs = torch.stack([torch.stack([a, b]) for a in c for b in c])
    codes = (torch.relu(torch.relu(pairs @ w[0]) @ w[1]) @ w[2]).view(2, 2, 2).mean(1)[:, :1]
    decoder = params[networks.DECODER][:, :2]
    residual = (x[0] @ (codes @ decoder).T).softmax(-1) - torch.eye(2, dtype=torch.float64)
    codes = codes - 0.2 * residual.T @ x[0] @ decoder.T
    same(algorithm.adapt(params, tasks.without_query())[0], codes @ decoder)


def test_noise_pays_no_heed_to_padding() -> None:
    algorithm, params = started(dropout_rate=0.3)
    task = unit_tasks(SHAPE, n_tasks=1)
    noise = noise_for(algorithm, task)
    expected = algorithm.losses(params, task, training=True, noise=noise)

    def pad(value: Tensor) -> Tensor:
        return torch.cat([value, value.new_zeros(1, 2, *value.shape[2:])], 1)

    arrays = {
        name: pad(getattr(task, name))
        for name in ("support_x", "support_y", "query_x", "query_y", "support_mask", "query_mask")
    }
    wider = leo(dropout_rate=0.3)
    wider.init(replace(SHAPE, shots=3, queries=3), torch.Generator())
    more = noise_for(wider, task)
    for name, value in noise.items():
        more[name][..., : value.shape[-2], :] = value
    padded = replace(task, **arrays)
    same(wider.losses(params, padded, training=True, noise=more), expected)


def test_unequal_shots_keep_to_real_rows() -> None:
    """Class 0 has three rows and class 2 one: what fills their padding has no influence."""
    algorithm, params = started()
    tasks = unit_tasks(replace(SHAPE, shots=3), n_tasks=1)
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 1, 0, 0]], dtype=torch.float64)
    found = []
    for filling in (0.0, 7.0):
        x = torch.where(mask[..., None] > 0, tasks.support_x, filling)
        found.append(algorithm.losses(params, replace(tasks, support_x=x, support_mask=mask)))
    same(found[0], found[1])


def test_a_class_without_support_keeps_weights_of_zero() -> None:
    algorithm, params = started()
    tasks = replace(unit_tasks(SHAPE).without_query(), outputs=4)
    weights = algorithm.adapt(params, tasks)
    assert not weights[:, 3].any()
    assert weights[:, :3].any(-1).all()


def test_ways_change_the_spread_of_the_decoder() -> None:
    """sqrt(2 / (N + E)) is of the tasks at hand, not of those that init was told of."""
    algorithm, params = started(shape=replace(SHAPE, outputs=5))
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    expected = [part.loss for part in by_the_loop(algorithm, params, tasks, noise)]
    found = algorithm.losses(params, tasks, training=True, noise=noise)
    same(found, torch.stack(expected))


# -- what the loss is made of --------------------------------------------------------


def test_the_loss_is_the_weighted_sum_of_its_parts() -> None:
    algorithm, params = started()
    tasks = unit_tasks(SHAPE)
    outcome = algorithm.outcome(params, tasks, training=True, noise=noise_for(algorithm, tasks))
    same(outcome.loss, outcome.query_loss + 0.1 * outcome.kl + 0.2 * outcome.encoder_penalty)
    assert outcome.kl.abs().min() > 0
    assert outcome.encoder_penalty.min() > 0


def test_evaluation_has_no_noise_and_no_terms_of_training() -> None:
    algorithm, params = started(dropout_rate=0.3)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    outcome = algorithm.outcome(params, tasks, noise=noise)
    assert torch.equal(outcome.loss, outcome.query_loss)
    assert torch.equal(outcome.loss, algorithm.losses(params, tasks))
    assert not outcome.kl.any()
    assert not outcome.encoder_penalty.any()
    assert not torch.allclose(
        outcome.loss, algorithm.losses(params, tasks, training=True, noise=noise)
    )


def test_the_penalty_is_of_theta_alone() -> None:
    algorithm, params = started()
    same(algorithm.penalty(params), loop.penalty(params, algorithm.options))
    rates = gradient_of_penalty(algorithm, params)
    assert rates[networks.INNER_LR] is None
    assert rates[networks.FINETUNING_LR] is None
    assert all(rates[name] is not None for name in networks.WEIGHT_MATRICES)


def gradient_of_penalty(algorithm: Leo, params: dict[str, Tensor]) -> dict[str, Tensor | None]:
    value = algorithm.penalty(params)
    assert value is not None
    found = torch.autograd.grad(value, list(params.values()), allow_unused=True)
    return dict(zip(params, found, strict=True))


def test_an_orthogonal_decoder_has_no_orthogonality_penalty() -> None:
    algorithm, params = started(l2_penalty_weight=0.0)
    rows = 3.0 * torch.linalg.qr(normal(torch.empty(18, 4, dtype=torch.float64)))[0].T
    same(
        algorithm.penalty({**params, networks.DECODER: rows}), torch.zeros((), dtype=torch.float64)
    )


@pytest.mark.parametrize("name", ["kl_weight", "encoder_penalty_weight"])
def test_weights_reach_the_loss(name: str) -> None:
    off, params = started(**{name: 0.0})
    on = leo(**{name: 1.0})
    on.init(SHAPE, torch.Generator())
    tasks = unit_tasks(SHAPE)
    noise = noise_for(on, tasks)
    found = on.outcome(params, tasks, training=True, noise=noise)
    part = found.kl if name == "kl_weight" else found.encoder_penalty
    same(found.loss - off.losses(params, tasks, training=True, noise=noise), part)


def test_the_divergence_is_that_of_the_densities() -> None:
    codes = 0.5 * normal(torch.empty(2, 3, 8, dtype=torch.float64)) + 0.5
    codes[..., 4:] = codes[..., 4:].abs()  # u > 0: stds well above their bound
    noise = normal(torch.empty(2, 6, 4, dtype=torch.float64))
    classes = networks.Classes.of(unit_tasks(SHAPE, n_tasks=2))
    z, found = networks.sample_codes(codes, classes, noise)
    mean, u = (classes.one_hot @ codes).chunk(2, -1)
    own = torch.distributions.Normal(mean, u.exp() - 1)
    prior = torch.distributions.Normal(torch.zeros_like(z), torch.ones_like(z))
    same(z, mean + (u.exp() - 1) * noise)
    same(found, (own.log_prob(z) - prior.log_prob(z)).mean((1, 2)))


@pytest.mark.parametrize("u", [-1.0, -1e-6, 0.0, 1e-6, 1e-3], ids="u {:g}".format)
def test_the_divergence_holds_in_float32(u: float) -> None:
    """Where (z - mean) / std is noise: z - mean rounds to 0, or to more than the std."""
    classes = networks.Classes.of(unit_tasks(SHAPE, n_tasks=1))
    noise = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = {}
    for dtype in (torch.float32, torch.float64):
        codes = torch.cat([torch.full((1, 3, 4), 2.0), torch.full((1, 3, 4), u)], -1)
        codes = codes.to(dtype).requires_grad_()
        one_hot = replace(classes, one_hot=classes.one_hot.to(dtype), row=classes.row.to(dtype))
        _, kl = networks.sample_codes(codes, one_hot, noise.to(dtype))
        found[dtype] = kl, torch.autograd.grad(kl.sum(), codes)[0]
    for single, double in zip(found[torch.float32], found[torch.float64], strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)


# -- noise ---------------------------------------------------------------------------


def test_noise_is_a_function_of_the_generator_alone() -> None:
    algorithm, params = started(dropout_rate=0.3)
    tasks = unit_tasks(SHAPE)
    state = torch.get_rng_state()

    def step(stream: int) -> Tensor:
        noise = algorithm.draw_noise(seeding.generator(stream, "noise"), len(tasks))
        return algorithm.losses(params, tasks, training=True, noise=noise)

    assert torch.equal(step(0), step(0))
    assert not torch.equal(step(0), step(1))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tasks_noise_depends_on_its_place_alone(dtype: str) -> None:
    algorithm = leo(context=Context(dtype=dtype), dropout_rate=0.3)
    algorithm.init(SHAPE, torch.Generator())
    few, many = (algorithm.draw_noise(seeding.generator(0, "noise"), n) for n in (2, 5))
    for name in few:
        assert torch.equal(few[name], many[name][:2]), name
        assert few[name].dtype == getattr(torch, dtype)


def test_noise_has_the_distribution_it_says() -> None:
    algorithm = leo(dropout_rate=0.3)
    algorithm.init(TaskShape("classification", (200,), 5, shots=5, queries=15), torch.Generator())
    noise = algorithm.draw_noise(seeding.generator(0, "noise"), 4)
    normal = noise["decoder"].flatten()
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    for name in ("dropout_encoder", "dropout_support", "dropout_query"):
        kept = noise[name] > 0
        assert abs(kept.double().mean() - 0.7) < 0.01, name
        same(noise[name], kept.double() / 0.7)
    shapes = {name: list(value.shape) for name, value in noise.items()}
    assert shapes == {
        "latents": [4, 25, 4],
        "decoder": [4, 3, 25, 200],
        "dropout_encoder": [4, 25, 200],
        "dropout_support": [4, 4, 25, 200],
        "dropout_query": [4, 75, 200],
    }


def test_without_dropout_none_is_drawn_or_needed() -> None:
    algorithm, _ = started(dropout_rate=0.0)
    assert set(noise_for(algorithm, unit_tasks(SHAPE))) == {"latents", "decoder"}


def test_noise_of_support_rows_may_be_laid_out_by_class() -> None:
    algorithm, params = started(dropout_rate=0.0)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    by_class = {
        "latents": noise["latents"].unflatten(1, (3, 2)),
        "decoder": noise["decoder"].unflatten(2, (3, 2)),
    }
    found, expected = (
        algorithm.losses(params, tasks, training=True, noise=each) for each in (by_class, noise)
    )
    assert torch.equal(found, expected)


def test_the_support_as_its_own_query_is_served() -> None:
    """More support than query rows: the target term needs as many dropout rows."""
    algorithm, params = started(shape=replace(SHAPE, shots=3, queries=1), dropout_rate=0.3)
    tasks = unit_tasks(replace(SHAPE, shots=3, queries=1)).support_as_query()
    assert algorithm.losses(params, tasks, training=True, noise=noise_for(algorithm, tasks)).all()


def test_adapting_with_noise_is_adapting_as_in_training() -> None:
    algorithm, params = started(dropout_rate=0.3)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    done = algorithm.outcome(params, tasks, training=True, noise=noise).adaptation
    same(algorithm.adapt(params, tasks.without_query(), noise=noise), done.weights[-1])
    assert not torch.allclose(algorithm.adapt(params, tasks.without_query()), done.weights[-1])


# -- options and refusals ------------------------------------------------------------


def test_defaults_are_the_authors() -> None:
    assert LeoOptions().model_dump() == {
        "num_latents": 64,
        "inner_unroll_length": 5,
        "finetuning_unroll_length": 5,
        "inner_lr_init": 1.0,
        "finetuning_lr_init": 0.001,
        "dropout_rate": 0.5,
        "kl_weight": 1e-3,
        "encoder_penalty_weight": 1e-9,
        "l2_penalty_weight": 1e-8,
        "orthogonality_penalty_weight": 1e-3,
    }


@pytest.mark.parametrize(
    "options",
    [{"steps": 5}, {"dropout_rate": 1.0}, {"num_latents": 0}, {"inner_lr_init": 0.0}],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LeoOptions.model_validate(options)


def test_theta_is_glorot_uniform_and_from_the_generator_alone() -> None:
    def theta() -> dict[str, Tensor]:
        shape = TaskShape("classification", (640,), 5, 5, 15)
        return Leo(LeoOptions()).init(shape, torch.Generator().manual_seed(3))

    state = torch.get_rng_state()
    first, second = theta(), theta()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
    for name in networks.WEIGHT_MATRICES:
        bound = (6 / sum(first[name].shape)) ** 0.5
        assert 0.99 * bound < first[name].abs().max() <= bound, name
        assert abs(first[name].std() / bound - 3**-0.5) < 0.02
    assert {value.dtype for value in first.values()} == {torch.float32}
    assert torch.equal(first[networks.INNER_LR], torch.ones(1, 1, 64))
    assert torch.equal(first[networks.FINETUNING_LR], torch.full((1, 1, 640), 1e-3))


def test_a_loop_without_steps_has_no_rate() -> None:
    _, params = started(inner_unroll_length=0)
    assert networks.INNER_LR not in params
    _, params = started(finetuning_unroll_length=0)
    assert networks.FINETUNING_LR not in params


def test_without_steps_the_weights_are_the_decoded_codes() -> None:
    algorithm, params = started(inner_unroll_length=0, finetuning_unroll_length=0)
    tasks = unit_tasks(SHAPE)
    codes = networks.class_codes(params, tasks.support_x, networks.Classes.of(tasks))
    expected = codes[..., :4] @ params[networks.DECODER][:, :9]
    same(algorithm.adapt(params, tasks), expected)


def test_describe_says_what_runs() -> None:
    algorithm, _ = started(inner_unroll_length=3, dropout_rate=0.5)
    assert algorithm.describe() == {
        "order": 2,
        "inner_unroll_length": 3,
        "finetuning_unroll_length": 2,
        "dropout_rate": 0.5,
    }


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (TaskShape("regression", (9,), 1, 5, 5), "serves classification"),
        (TaskShape("classification", (1, 8, 8), 3, 2, 2), r"takes features .*\[1, 8, 8\]"),
    ],
    ids=["regression", "images"],
)
def test_other_tasks_are_refused_at_init(shape: TaskShape, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        leo().init(shape, torch.Generator())


def test_init_comes_first() -> None:
    with pytest.raises(PluginError, match="call init"):
        leo().losses({}, unit_tasks(SHAPE))


def test_inputs_of_another_width_are_refused() -> None:
    algorithm, params = started()
    with pytest.raises(PluginError, match=r"shape \[9\].*shape \[5\]"):
        algorithm.losses(params, unit_tasks(replace(SHAPE, input_shape=(5,))))


def test_export_takes_one_task() -> None:
    algorithm, params = started()
    with pytest.raises(PluginError, match="one task; found a batch of 3"):
        algorithm.export(params, unit_tasks(SHAPE))


@pytest.mark.parametrize("missing", [None, "latents", "dropout_support"])
def test_training_needs_noise(missing: str | None) -> None:
    algorithm, params = started(dropout_rate=0.3)
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    given = {k: v for k, v in noise.items() if k != missing} if missing else None
    with pytest.raises(PluginError, match=f"{missing or 'latents, decoder'}.* missing"):
        algorithm.losses(params, tasks, training=True, noise=given)


@pytest.mark.parametrize("case", ["more ways", "fewer tasks", "fewer calls", "no tasks"])
def test_noise_of_another_shape_is_refused(case: str) -> None:
    algorithm, params = started(dropout_rate=0.0)
    tasks = unit_tasks(replace(SHAPE, outputs=4) if case == "more ways" else SHAPE)
    noise = noise_for(algorithm, tasks)
    if case == "fewer tasks":
        noise = {name: value[:2] for name, value in noise.items()}
    if case == "fewer calls":
        noise["decoder"] = noise["decoder"][:, :2]
    if case == "no tasks":
        noise = {name: value[0] for name, value in noise.items()}
    with pytest.raises(PluginError, match=r"noise .* has shape .* the batch needs"):
        algorithm.losses(params, tasks, training=True, noise=noise)


# -- diagnosis -----------------------------------------------------------------------


def test_diagnosis_names_step_and_tensor() -> None:
    algorithm, params = started()
    tasks = unit_tasks(SHAPE)
    assert algorithm.diagnose(params, tasks) is None
    broken = {
        networks.ENCODER: f"inner step 0, tensor '{networks.ENCODER}'",
        networks.INNER_LR: f"inner step 0, tensor '{networks.INNER_LR}'",
    }
    for name, expected in broken.items():
        bad = {**params, name: torch.full_like(params[name], torch.nan)}
        assert algorithm.diagnose(bad, tasks) == expected
    huge = {
        networks.INNER_LR: "inner step 1, tensor 'latents'",
        networks.FINETUNING_LR: "inner step 3, tensor 'class weights'",
    }
    for name, expected in huge.items():
        bad = {**params, name: torch.full_like(params[name], 1e308)}
        far = replace(tasks, support_x=1e3 * tasks.support_x)
        assert algorithm.diagnose(bad, far) == expected


def test_diagnosis_repeats_the_training_step() -> None:
    """exp(u) overflows; means do not read u."""
    algorithm, params = started()
    decoder = params[networks.DECODER].detach().clone()
    decoder[:, 9:] *= 1e6
    bad = {**params, networks.DECODER: decoder}
    tasks = unit_tasks(SHAPE)
    assert algorithm.losses(bad, tasks).isfinite().all()
    assert algorithm.diagnose(bad, tasks) is None
    noise = noise_for(algorithm, tasks)
    assert algorithm.diagnose(bad, tasks, noise=noise) == "inner step 0, tensor 'support logits'"


def test_diagnosis_is_of_the_draw_that_failed() -> None:
    """One code is sampled so far out that its class weights overflow; other draws are fine."""
    algorithm, params = started()
    tasks = unit_tasks(SHAPE)
    fine = noise_for(algorithm, tasks)
    assert algorithm.diagnose(params, tasks, noise=fine) is None
    far = {**fine, "latents": fine["latents"].clone()}
    far["latents"][0, 0] = 1e300
    assert not algorithm.losses(params, tasks, training=True, noise=far).isfinite().all()
    assert algorithm.diagnose(params, tasks, noise=far) is not None


# -- as a component ------------------------------------------------------------------


def test_created_by_name() -> None:
    made = metaforge.create("inner_algorithm", "leo", context=CONTEXT, num_latents=3)
    assert isinstance(made, Leo)
    assert made.options.num_latents == 3
    assert made.variable_ways


def test_it_can_be_vmapped_over_theta() -> None:
    algorithm, params = started()
    tasks = unit_tasks(SHAPE)
    noise = noise_for(algorithm, tasks)
    several = {name: torch.stack([value, 0.5 * value]).detach() for name, value in params.items()}

    def total(theta: dict[str, Tensor]) -> Tensor:
        return algorithm.losses(theta, tasks, training=True, noise=noise).sum()

    together = torch.func.vmap(torch.func.grad(total))(several)
    for i in range(2):
        alone = torch.func.grad(total)({name: value[i] for name, value in several.items()})
        for name in params:
            same(together[name][i], alone[name])
