"""The laws of inner algorithms, as checks a plugin's own tests can call.

Each ``check_*`` takes an initialised algorithm in float64, its parameters and a batch of
tasks; it raises ``AssertionError`` naming the law that is broken.
``check_inner_algorithm`` initialises one and runs them all.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from metaforge import seeding
from metaforge.contracts import InnerAlgorithm, Params, Tree
from metaforge.errors import MetaforgeError
from metaforge.tasks import TaskBatch, TaskShape
from metaforge.testing.gradients import HeldLosses, check_meta_gradient, meta_gradient
from metaforge.testing.law import Law, check_all
from metaforge.testing.stacking import check_stacking

#: Of equalities in float64, relative to the largest entry.
TOLERANCE = 1e-10
#: (outputs [B, Q, o], y, mask [B, Q]) -> [B]
TaskLosses = Callable[[Tensor, Tensor, Tensor], Tensor]


def toy_tasks(
    shape: TaskShape, n_tasks: int = 3, *, unequal: bool = False, seed: int = 0
) -> TaskBatch:
    """Random float64 tasks of a shape. With ``unequal`` the last rows of some tasks are padding."""
    random = seeding.generator(seed, "toy tasks")
    per_class = shape.outputs if shape.kind == "classification" else 1

    def rows(each: int) -> tuple[Tensor, Tensor, Tensor]:
        n = each * per_class
        x = torch.randn(n_tasks, n, *shape.input_shape, generator=random, dtype=torch.float64)
        if shape.kind == "classification":
            y = (torch.arange(n) % per_class).expand(n_tasks, n).clone()
        else:
            y = torch.randn(n_tasks, n, shape.outputs, generator=random, dtype=torch.float64)
        mask = torch.ones(n_tasks, n, dtype=torch.float64)
        if unequal:
            for task in range(1, n_tasks):
                padding = slice(n - task % n, n)
                x[task, padding], y[task, padding], mask[task, padding] = 0, 0, 0
        return x, y, mask

    (support_x, support_y, support_mask), (query_x, query_y, query_mask) = (
        rows(shape.shots),
        rows(shape.queries),
    )
    return TaskBatch(
        support_x,
        support_y,
        query_x,
        query_y,
        support_mask=support_mask,
        query_mask=query_mask,
        outputs=shape.outputs,
    )


def check_inner_algorithm(algorithm: InnerAlgorithm, shape: TaskShape, **more: Any) -> None:
    """Every law, on toy tasks; ``more`` is what ``inner_algorithm_laws`` takes."""
    check_all(inner_algorithm_laws(lambda: algorithm, shape, **more))


def inner_algorithm_laws(
    make: Callable[[], InnerAlgorithm],
    shape: TaskShape,
    *,
    unadapted: InnerAlgorithm | Callable[[], InnerAlgorithm] | None = None,
    task_losses: TaskLosses | None = None,
    held_losses: HeldLosses | None = None,
) -> list[Law]:
    """Every law, on toy tasks; the algorithm is made when the first is checked. ``unadapted``
    is the same algorithm with 0 inner steps, which one with an inner loop has to have.
    ``task_losses`` is its outer loss on its own predictions, ``query_losses`` unless given;
    ``held_losses`` is for ``check_meta_gradient``."""

    @cache
    def started() -> tuple[InnerAlgorithm, Params, TaskBatch]:
        algorithm = make()
        return algorithm, fresh_parameters(algorithm, shape), toy_tasks(shape, unequal=True)

    @cache
    def without_steps() -> InnerAlgorithm | None:
        found = unadapted() if callable(unadapted) else unadapted
        if found is not None:
            fresh_parameters(found, shape)
        return found

    def law(name: str, check: Callable[..., None], *more: Any, **options: Any) -> Law:
        return Law(name, lambda: check(*started(), *more, **options))

    def zero_steps() -> None:
        algorithm, params, tasks = started()
        if algorithm.has_inner_loop:
            other = without_steps()
            assert other is not None, "has_inner_loop: give the algorithm with 0 steps, unadapted"
            check_zero_steps(other, params, tasks)

    def meta_gradient() -> None:
        other = without_steps()
        check_meta_gradient(*started(), unadapted=other, held_losses=held_losses)

    def stacking() -> None:
        if started()[0].vmappable:
            check_stacking(*started())

    return [
        law("parameters untouched", check_parameters_untouched),
        Law("zero steps", zero_steps),
        Law("meta-gradient", meta_gradient),
        law("training", check_training),
        law("adaptation", check_adapts),
        law("losses are of predictions", check_losses_are_of_predictions, task_losses),
        law("independence of tasks", check_task_independence),
        law("padding", check_padding),
        law("query by query", check_query_by_query),
        law("evaluation keeps nothing", check_evaluation_keeps_nothing),
        law("ways", check_ways),
        law("export", check_export),
        law("features", check_features),
        Law("stacking", stacking),
    ]


def fresh_parameters(algorithm: InnerAlgorithm, shape: TaskShape) -> Params:
    """theta in float64, ready for gradients."""
    params = algorithm.init(shape, seeding.generator(0, "init"))
    assert all(value.dtype == torch.float64 for value in params.values()), (
        "init: in the context's precision; give these checks a context of dtype float64"
    )
    return {name: value.requires_grad_() for name, value in params.items()}


def check_parameters_untouched(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """No method changes theta in place."""
    before = {name: value.detach().clone() for name, value in params.items()}
    meta_gradient(algorithm, params, tasks)
    algorithm.adapt(params, tasks.without_query())
    algorithm.predict(params, tasks.without_query(), _query(tasks)[0])
    algorithm.export(params, tasks[:1].without_query())
    assert set(params) == set(before), "theta untouched: no key is added or removed"
    for name, value in params.items():
        assert torch.equal(value.detach(), before[name]), f"theta untouched: {name} changed"


def check_zero_steps(unadapted: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """With 0 inner steps every task's adapted state is theta."""
    state = unadapted.adapt(params, tasks.without_query())
    for name, value in params.items():
        law = f"zero steps are the identity: {name}"
        _close(state[name], value.expand(len(tasks), *value.shape), 0.0, law)


def check_training(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """In training, too, losses are [B] and their gradient reaches theta; noise has the tasks as its
    leading axis; a penalty is a number with a gradient; and what a run asks beside is answered."""
    noise = algorithm.draw_noise(seeding.generator(0, "noise"), len(tasks))
    for leaf in _leaves(noise) if noise is not None else []:
        assert len(leaf) == len(tasks), (
            f"training: noise has the tasks as its leading axis, {len(tasks)}; found "
            f"{list(leaf.shape)}"
        )
    short = replace(tasks, support_x=tasks.support_x / 10, query_x=_query(tasks)[0] / 10)
    values = algorithm.losses(params, short, training=True, noise=noise)
    assert values.shape == (len(tasks),), f"training: losses are [B], not {list(values.shape)}"
    assert values.requires_grad, "training: no gradient of the losses reaches theta"
    found = torch.autograd.grad(values.sum(), list(params.values()), allow_unused=True)
    assert any(g is not None and g.any() for g in found), (
        "training: the gradient of the losses in theta is zero"
    )
    penalty = algorithm.penalty(params)
    if penalty is not None:
        assert penalty.shape == (), f"penalty: one number, not {list(penalty.shape)}"
        assert penalty.requires_grad, "penalty: no gradient of it reaches theta"
    assert isinstance(algorithm.describe(), dict), "describe: a mapping of facts"
    where = algorithm.diagnose(params, tasks, noise=noise)
    assert where is None or isinstance(where, str), "diagnose: words, or None"


def check_adapts(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Predictions come after adaptation: other support labels, other predictions."""
    y = tasks.support_y
    other = y + 1 if tasks.is_regression else (y + 1) % tasks.outputs
    relabelled = replace(tasks.without_query(), support_y=other)
    x, _ = _query(tasks)
    with torch.no_grad():
        before = algorithm.predict(params, tasks.without_query(), x)
        after = algorithm.predict(params, relabelled, x)
    for b in range(len(tasks)):
        assert not torch.allclose(before[b], after[b]), (
            "adaptation: predictions do not depend on the support labels"
        )


def check_losses_are_of_predictions(
    algorithm: InnerAlgorithm,
    params: Params,
    tasks: TaskBatch,
    task_losses: TaskLosses | None = None,
) -> None:
    """The outputs that ``predict`` gives are those that ``losses`` scores, by ``query_losses``
    or by the ``task_losses`` given."""
    score = task_losses or partial(algorithm.query_losses, params)
    for b in range(len(tasks)):
        task = _without_padding(tasks, b)
        x, y = _query(task)
        with torch.no_grad():
            outputs = algorithm.predict(params, task.without_query(), x)
            found = algorithm.losses(params, task)
        assert outputs.shape == (*x.shape[:2], task.outputs), "predict: [B, Q, outputs]"
        with torch.no_grad():
            expected = score(outputs, y, task.query_mask)
        _close(found, expected, TOLERANCE, "losses are those of the predictions")


def check_task_independence(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Row b of the losses, and its gradient, is what task b alone gives."""
    together = algorithm.losses(params, tasks)
    assert together.shape == (len(tasks),), "losses: [B]"
    names, leaves = list(params), list(params.values())
    for b in range(len(tasks)):
        alone = algorithm.losses(params, tasks[b : b + 1])
        _close(together[b : b + 1], alone, TOLERANCE, "independence: a task's loss is its own")
        row = torch.autograd.grad(together[b], leaves, retain_graph=True)
        own = torch.autograd.grad(alone[0], leaves)
        for name, found, expected in zip(names, row, own, strict=True):
            law = f"independence: a task's gradient in {name} is its own"
            _close(found, expected, TOLERANCE, law)


def check_padding(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """A task with padding gives what it gives without its padding rows, whatever finite numbers
    they hold."""
    law = "padding: unequal shots give what the rows without padding give"
    with torch.no_grad():
        for padded in (tasks, _with_padding(tasks, 7)):
            found = algorithm.losses(params, padded)
            for b in range(len(tasks)):
                trimmed = algorithm.losses(params, _without_padding(tasks, b))
                _close(found[b : b + 1], trimmed, TOLERANCE, law)


def check_query_by_query(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Unless ``transductive``, a query's prediction does not depend on the other queries; if it
    says ``transductive``, one does."""
    support, (x, _) = tasks.without_query(), _query(tasks)
    width = 2 if algorithm.transductive else 1  # batch statistics need two
    with torch.no_grad():
        together = algorithm.predict(params, support, x)
        alone = [algorithm.predict(params, support, part) for part in x.split(width, 1)]
    found = torch.cat(alone, 1)
    if algorithm.transductive:
        assert not torch.allclose(found, together), (
            "transductive: declared, but queries do not see each other"
        )
    else:
        _close(found, together, TOLERANCE, "queries: one by one gives what together gives")


def check_evaluation_keeps_nothing(
    algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch, repeats: int = 10
) -> None:
    """Under ``no_grad`` results carry no graph, and no tensor outlives a call."""
    support, (x, _) = tasks.without_query(), _query(tasks)

    @torch.no_grad()
    def evaluate() -> None:
        results = [
            algorithm.predict(params, support, x),
            algorithm.losses(params, tasks),
            *_leaves(algorithm.adapt(params, support)),
        ]
        assert not any(value.requires_grad for value in results), "evaluation: no graph is kept"

    evaluate()
    before = _live_tensors()
    for _ in range(repeats):
        evaluate()
    grown = _live_tensors() - before
    assert grown < repeats, f"evaluation: memory is flat; {grown} tensors outlived {repeats} calls"


def check_ways(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Tasks with one more output are served, or refused by name: as ``variable_ways`` says."""
    support = replace(tasks.without_query(), outputs=tasks.outputs + 1)
    try:
        algorithm.predict(params, support, _query(tasks)[0])
    except MetaforgeError:
        assert not algorithm.variable_ways, "variable_ways: declared, but refused"
    except Exception as error:
        raise AssertionError("variable_ways: other ways fail, but not by a named error") from error
    else:
        assert algorithm.variable_ways, "variable_ways: not declared, but other ways not refused"


def check_export(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """The exported predictor is a plain module: it predicts as ``predict`` does, and a deep
    copy, a pickled copy and one that loaded its saved state do the same."""
    task, x = tasks[:1], _query(tasks)[0][:1]
    module = algorithm.export(params, task.without_query())
    with torch.no_grad():
        expected = algorithm.predict(params, task.without_query(), x)[0]
        saved = io.BytesIO()
        torch.save(module.state_dict(), saved)
        saved.seek(0)
        loaded = algorithm.export(params, tasks[1:2].without_query())
        loaded.load_state_dict(torch.load(saved, weights_only=True))
        copies = {
            "export": module,
            "deepcopy": copy.deepcopy(module),
            "pickle": _pickled(module),
            "state_dict": loaded,
        }
        for name, made in copies.items():
            _close(made(x[0]), expected, TOLERANCE, f"export: {name} predicts the same")


def _pickled(module: nn.Module) -> nn.Module:
    try:
        return pickle.loads(pickle.dumps(module))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise AssertionError(f"export: cannot be pickled: {error}") from error


def check_features(algorithm: InnerAlgorithm, params: Params, tasks: TaskBatch) -> None:
    """Where there are features, they are [n, w], a sample's own whatever others are asked with
    it, without a graph, and the inputs are left alone."""
    x = tasks.support_x.flatten(0, 1)
    before = x.clone()
    found = algorithm.features(params, x)
    if found is None:
        return
    assert found.ndim == 2, f"features: [n, w]; found {list(found.shape)}"
    assert len(found) == len(x), f"features: a row a sample; found {len(found)} for {len(x)}"
    assert not found.requires_grad, "features: no graph is kept"
    assert torch.equal(x, before), "features: inputs are left as they are"
    for i in range(len(x)):
        alone = algorithm.features(params, x[i : i + 1])
        assert alone is not None
        _close(alone, found[i : i + 1], TOLERANCE, "features: a sample's are its own")


def _with_padding(tasks: TaskBatch, value: float) -> TaskBatch:
    """The tasks with ``value`` in every padding row, and labels of the last class there."""
    filled = {}
    for side in ("support", "query"):
        padding = getattr(tasks, f"{side}_mask") == 0
        for name, fill in ((f"{side}_x", value), (f"{side}_y", tasks.outputs - 1)):
            filled[name] = getattr(tasks, name).clone()
            filled[name][padding] = fill
    return replace(tasks, **filled)


def _without_padding(tasks: TaskBatch, b: int) -> TaskBatch:
    """Task b alone, its padding rows cut away."""
    query_x, query_y = _query(tasks)
    support, query = tasks.support_mask[b] > 0, tasks.query_mask[b] > 0
    return TaskBatch(
        tasks.support_x[b : b + 1, support],
        tasks.support_y[b : b + 1, support],
        query_x[b : b + 1, query],
        query_y[b : b + 1, query],
        outputs=tasks.outputs,
    )


def _query(tasks: TaskBatch) -> tuple[Tensor, Tensor]:
    assert tasks.query_x is not None
    assert tasks.query_y is not None
    return tasks.query_x, tasks.query_y


def _leaves(tree: Tree) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree
    return [leaf for item in items for leaf in _leaves(item)]


def _live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def _close(found: Tensor, expected: Tensor, tolerance: float, law: str) -> None:
    assert found.shape == expected.shape, f"{law}; shape {found.shape}, not {expected.shape}"
    scale = float(expected.detach().abs().max()) or 1.0
    worst = float((found - expected).detach().abs().max()) / scale
    assert worst <= tolerance, f"{law}; off by {worst:.2g} of the largest"
