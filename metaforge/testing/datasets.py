"""The laws of task sources, as checks that the tests of any data set can call.

``check_task_source`` runs them all. Each ``check_*`` takes ``Drawn`` tasks and raises
``AssertionError`` with the law that is broken and the task that broke it. Laws about
samples read ``describe_task``, whose ``classes`` holds the names of the classes in label
order, and ``support`` and ``query`` a list of sample ids for each of them.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, combinations
from pathlib import Path
from pickle import PicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.tasks import SPLITS, TaskBatch, TaskSource, View
from metaforge.testing.law import Law, check_all
from metaforge.testing.shown import check_pictures

Make = Callable[[int], TaskSource]
_ARRAYS = ("support_x", "support_y", "query_x", "query_y", "support_mask", "query_mask", "task_ids")
_SIDES = ("support", "query")
#: Seconds within which another process is to have drawn some tasks.
_PATIENCE = 120


@dataclass(frozen=True, eq=False)
class Drawn:
    """Some tasks of a split, drawn and described once for all checks."""

    source: TaskSource
    split: str
    ids: Sequence[int]

    @cached_property
    def batch(self) -> TaskBatch:
        return self.source.batch(self.split, self.ids)

    @cached_property
    def described(self) -> list[dict[str, Any]]:
        return [self.source.describe_task(self.split, task) for task in self.ids]

    def samples(self, side: str) -> list[list[int]]:
        """The sample ids of each task's support or query, in label order."""
        return [list(chain.from_iterable(told[side])) for told in self.described]


def check_task_source(make: Make, **more: Any) -> None:
    """Every law but that of processes; ``more`` is what ``task_source_laws`` takes."""
    check_all(task_source_laws(make, **more))


def task_source_laws(
    make: Make,
    *,
    tasks: int = 1000,
    splits: Sequence[str] = SPLITS,
    sample_groups: Mapping[int, int] | np.ndarray | None = None,
    processes: bool = False,
) -> list[Law]:
    """Every law, on ``tasks`` tasks of each split, which are drawn when the first is checked;
    that of ``processes``, which starts one, if asked for.

    ``make`` builds the source from a seed; ``sample_groups`` gives the group of each sample
    id, where the source keeps groups on one side.
    """

    @cache
    def drawn() -> list[Drawn]:
        source = make(0)
        return [Drawn(source, split, range(tasks)) for split in splits]

    def of_each(name: str, check: Callable[..., None], *more: Any, kinds: str = "any") -> Law:
        def law() -> None:
            for some in drawn():
                if kinds in ("any", some.source.shape.kind):
                    check(some, *more)

        return Law(name, law)

    of_classes = partial(of_each, kinds="classification")
    laws = [
        of_each("shapes", check_shapes),
        of_each("purity", check_purity),
        of_each("groups", check_groups),
        of_classes("labels", check_labels),
        of_classes("distinct classes", check_distinct_classes),
        of_classes("disjoint samples", check_samples),
        of_classes("identity of samples", check_identity),
        of_classes("pictures", check_pictures),
        Law("splits", lambda: check_splits(drawn())),
        Law("seeds", lambda: check_seeds(make, splits, range(min(tasks, 100)))),
    ]
    if sample_groups is not None:
        laws.append(of_classes("sample groups", check_sample_groups, sample_groups))
    if processes:
        laws.append(Law("processes", lambda: check_processes(drawn()[0])))
    return laws


def check_shapes(drawn: Drawn) -> None:
    """Batches have the shapes that ``source.shape`` promises and are finite; padding is 0."""
    shape, batch, n = drawn.source.shape, drawn.batch, len(drawn.ids)
    classes = shape.outputs if shape.kind == "classification" else 1
    y_shape = () if shape.kind == "classification" else (shape.outputs,)
    for side, each in zip(_SIDES, (shape.shots, shape.queries), strict=True):
        rows = each * classes
        expected = {"x": (n, rows, *shape.input_shape), "y": (n, rows, *y_shape), "mask": (n, rows)}
        for name, sizes in expected.items():
            found = tuple(getattr(batch, f"{side}_{name}").shape)
            assert found == sizes, f"law of shapes: {side}_{name} is {found}, expected {sizes}"
        x, mask = getattr(batch, f"{side}_x"), getattr(batch, f"{side}_mask")
        assert torch.isfinite(x).all(), f"law of shapes: {side}_x is not finite"
        assert ((mask == 0) | (mask == 1)).all(), f"law of shapes: {side}_mask is not 0 or 1"
        assert not x[mask == 0].any(), f"law of padding: padded rows of {side}_x are not 0"
        if shape.kind == "classification":
            y = getattr(batch, f"{side}_y")
            assert y.dtype == torch.int64, f"law of shapes: {side}_y is {y.dtype}, expected int64"
    assert batch.outputs == shape.outputs, "law of shapes: outputs are not the shape's"
    assert batch.task_ids.tolist() == list(drawn.ids), "law of shapes: task_ids are not the ids"


def check_labels(drawn: Drawn) -> None:
    """Labels are 0..ways-1, and each has at least one and at most ``shots`` support rows and
    ``queries`` query rows."""
    shape = drawn.source.shape
    for side, most in zip(_SIDES, (shape.shots, shape.queries), strict=True):
        y, mask = getattr(drawn.batch, f"{side}_y"), getattr(drawn.batch, f"{side}_mask")
        inside = (y >= 0) & (y < shape.outputs)
        assert inside.all(), f"law of labels: {side} labels outside 0..{shape.outputs - 1}"
        counts = mask.new_zeros(len(y), shape.outputs).scatter_add(1, y, mask)
        for task, found in zip(drawn.ids, counts.tolist(), strict=True):
            assert 1 <= min(found) <= max(found) <= most, (
                f"law of labels: task {task} has {found} {side} rows of each class, "
                f"expected 1 to {most}"
            )


def check_distinct_classes(drawn: Drawn) -> None:
    """A task has as many different classes as ways."""
    ways = drawn.source.shape.outputs
    for task, told in zip(drawn.ids, drawn.described, strict=True):
        assert len(set(told["classes"])) == ways, (
            f"law of distinct classes: task {task} has {told['classes']}, expected {ways} of them"
        )


def check_samples(drawn: Drawn) -> None:
    """No sample is in both support and query, nor twice in the support."""
    sides = zip(drawn.ids, drawn.samples("support"), drawn.samples("query"), strict=True)
    for task, support, query in sides:
        assert len(set(support)) == len(support), (
            f"law of disjoint samples: task {task} has a support sample twice"
        )
        common = sorted(set(support) & set(query))
        assert not common, f"law of disjoint samples: task {task} has {common} on both sides"


def check_sample_groups(drawn: Drawn, of_sample: Mapping[int, int] | np.ndarray) -> None:
    """No sample group is in both the support and the queries of a task."""
    sides = zip(drawn.ids, drawn.samples("support"), drawn.samples("query"), strict=True)
    for task, support, query in sides:
        common = {int(of_sample[i]) for i in support} & {int(of_sample[i]) for i in query}
        assert not common, f"law of sample groups: task {task} has {common} on both sides"


def check_splits(drawn: Sequence[Drawn]) -> None:
    """Splits share no sample; those of regression tasks share no task."""
    for one, other in combinations(drawn, 2):
        if one.source.shape.kind == "regression":
            common = int(_same_tasks(one.batch, other.batch).sum())
        else:
            common = len(_all_samples(one) & _all_samples(other))
        assert not common, f"law of splits: {one.split} and {other.split} share {common}"


def _all_samples(drawn: Drawn) -> set[int]:
    return {sample for side in _SIDES for task in drawn.samples(side) for sample in task}


def check_purity(drawn: Drawn) -> None:
    """A task is a function of its id: alone, in another order and in other batches it is the
    same, whatever was asked for before."""
    source, split, ids, whole = drawn.source, drawn.split, drawn.ids, drawn.batch
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(0))
    shuffled = source.batch(split, torch.tensor([ids[int(i)] for i in order]))
    assert_same(shuffled, whole[order], "law of purity: another order")
    for position in (0, len(ids) // 2, len(ids) - 1):
        alone = source.batch(split, [ids[position]])
        assert_same(alone, whole[[position]], f"law of purity: task {ids[position]} alone")
    for size in (7, len(ids) // 2 + 1):
        for start in range(0, min(len(ids), 10 * size), size):
            part = source.batch(split, ids[start : start + size])
            assert_same(part, whole[start : start + size], f"law of purity: batches of {size}")


def check_identity(drawn: Drawn) -> None:
    """``describe_task`` tells the truth: in every view a sample id stands for one sample,
    wherever it occurs, and belongs to one class."""
    class_of: dict[tuple[Any, int], str] = {}
    for task, told in zip(drawn.ids, drawn.described, strict=True):
        for position, name in enumerate(told["classes"]):
            for sample in (*told["support"][position], *told["query"][position]):
                first = class_of.setdefault((told.get("pool"), sample), name)
                assert first == name, (
                    f"law of identity: sample {sample} of task {task} is {name!r}, was {first!r}"
                )
    _check_label_order(drawn)
    views: tuple[View, ...] = ("input", "features") if drawn.source.has_features else ("input",)
    for view in views:
        _check_view(drawn, view)


def _check_label_order(drawn: Drawn) -> None:
    """A sample's label is the place of its class in ``classes``, on both sides alike."""
    for side in _SIDES:
        y, mask = getattr(drawn.batch, f"{side}_y"), getattr(drawn.batch, f"{side}_mask")
        for row, (task, told) in enumerate(zip(drawn.ids, drawn.described, strict=True)):
            expected = [c for c, samples in enumerate(told[side]) for _ in samples]
            found = y[row][mask[row] == 1].tolist()
            assert found == expected, (
                f"law of identity: task {task} has {side} labels {found}, and by its description "
                f"{expected}"
            )


def _check_view(drawn: Drawn, view: View) -> None:
    batch = drawn.source.batch(drawn.split, drawn.ids, view)
    values, samples = [], []
    for side in _SIDES:
        x, mask = getattr(batch, f"{side}_x"), getattr(batch, f"{side}_mask")
        told = drawn.samples(side)
        counts = zip(drawn.ids, told, mask.sum(1).tolist(), strict=True)
        for task, some, count in counts:
            assert len(some) == count, (
                f"law of identity: task {task} describes {len(some)} {side} samples, its batch "
                f"has {count:.0f}"
            )
        values.append(x[mask == 1].flatten(1))
        samples.append(np.concatenate(told))
    x, ids = torch.cat(values), np.concatenate(samples)
    _, first, again = np.unique(ids, return_index=True, return_inverse=True)
    bad = (x != x[torch.from_numpy(first[again])]).any(1).nonzero()
    assert not len(bad), (
        f"law of identity: sample {ids[int(bad[0])]} is not the same everywhere (view {view})"
    )


def check_groups(drawn: Drawn) -> None:
    """Groups are positions in ``group_names`` or -1, pure, and what ``describe_task`` says."""
    source, names = drawn.source, drawn.source.group_names
    groups = source.groups(drawn.split, drawn.ids)
    assert groups.dtype == torch.int64, f"law of groups: dtype {groups.dtype}, expected int64"
    assert len(groups) == len(drawn.ids), "law of groups: expected one for each task"
    inside = (groups >= -1) & (groups < len(names))
    assert inside.all(), f"law of groups: outside -1..{len(names) - 1}"
    assert len(set(names)) == len(names), "law of groups: a name is there twice"
    for task, group, told in zip(drawn.ids, groups.tolist(), drawn.described, strict=True):
        expected = names[group] if group >= 0 else None
        assert told.get("group") == expected, (
            f"law of groups: task {task} is of {expected}, described as {told.get('group')}"
        )
    again = source.groups(drawn.split, list(drawn.ids)[::-1]).flip(0)
    assert torch.equal(again, groups), "law of groups: they depend on the order of the ids"


def check_seeds(make: Make, splits: Sequence[str], ids: Sequence[int]) -> None:
    """The same seed gives the same tasks and fingerprint; another seed gives others."""
    one, again, other = make(0), make(0), make(1)
    for split in splits:
        batch = one.batch(split, ids)
        assert_same(batch, again.batch(split, ids), "law of seeds: one seed, twice")
        same = _same_tasks(batch, other.batch(split, ids))
        assert same.float().mean() < 0.05, "law of seeds: two seeds give the same tasks"
    assert one.fingerprint == again.fingerprint, "law of fingerprints: one seed has two"
    assert one.fingerprint != other.fingerprint, "law of fingerprints: two seeds have one"


def check_processes(drawn: Drawn) -> None:
    """A freshly started process draws the same tasks from a pickled copy of the source."""
    context = multiprocessing.get_context("spawn")
    with _importable(drawn.source), ProcessPoolExecutor(1, context) as pool:
        asked = pool.submit(_draw, drawn.source, drawn.split, list(drawn.ids))
        try:
            arrays, fingerprint = asked.result(_PATIENCE)
        except (BrokenProcessPool, TimeoutError, PicklingError, AttributeError) as error:
            raise AssertionError(
                f"law of processes: none could draw from a pickled copy: {error or 'no answer'}"
            ) from error
    for name, array in arrays.items():
        here = getattr(drawn.batch, name).numpy()
        assert np.array_equal(array, here), f"law of processes: {name} differs elsewhere"
    assert fingerprint == drawn.source.fingerprint, "law of processes: another fingerprint"


@contextmanager
def _importable(source: TaskSource) -> Iterator[None]:
    """A plugin of one file is importable by its name here alone: its folder goes along."""
    file = getattr(sys.modules.get(type(source).__module__), "__file__", None)
    before = list(sys.path)
    if file is not None and "." not in type(source).__module__:
        sys.path.append(str(Path(file).parent))
    try:
        yield
    finally:
        sys.path[:] = before


def _draw(source: TaskSource, split: str, ids: list[int]) -> tuple[dict[str, np.ndarray], str]:
    batch = source.batch(split, ids)
    return {name: getattr(batch, name).numpy() for name in _ARRAYS}, source.fingerprint


def assert_same(a: TaskBatch, b: TaskBatch, law: str) -> None:
    """Every array is bitwise equal. Raises ``AssertionError``: the law, the first that is not."""
    for name in _ARRAYS:
        assert torch.equal(getattr(a, name), getattr(b, name)), f"{law}: {name} differs"


def _same_tasks(a: TaskBatch, b: TaskBatch) -> Tensor:
    """[B] bool: the tasks whose inputs are the same in both."""
    assert a.query_x is not None
    assert b.query_x is not None
    support = (a.support_x == b.support_x).flatten(1).all(1)
    return support & (a.query_x == b.query_x).flatten(1).all(1)
