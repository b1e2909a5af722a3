"""A bank's tasks as tensors and JSON, and made of them again: what a bundle has of the data.

Of pooled class data: the rows of the training classes, each once, and the pools, so that tasks
are drawn as before, at other ways too. Of a mixture: each of its sources. Of any other source:
the bank's tasks themselves, at the ways that they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.components import Context
from metaforge.errors import DataError
from metaforge.image_options import Augment
from metaforge.mixed import MixtureTasks
from metaforge.pooled import PooledTasks
from metaforge.pools import Pool
from metaforge.preprocess import Preprocess
from metaforge.sampling import id_array
from metaforge.storage import DiskRows
from metaforge.task_sizes import TaskSizes
from metaforge.tasks import Ids, TaskBatch, TaskShape, TaskSource, View

#: Facts as JSON, and tensors.
Stored = tuple[dict[str, Any], dict[str, Tensor]]
_VIEWS: tuple[View, ...] = ("input", "features")


def stored(source: TaskSource, ids: Sequence[int]) -> Stored:
    """What the training tasks ``ids`` of a source can be made of again."""
    if isinstance(source, MixtureTasks):
        return _mixture(source, ids)
    if isinstance(source, PooledTasks):
        return _pooled(source)
    return _listed(source, ids)


def restored(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor], context: Context
) -> TaskSource:
    """The training tasks of what ``stored`` gave, on the context's device, in its precision."""
    made = {"mixture": _mixture_of, "pooled": _pooled_of, "listed": ListedTasks}[facts["kind"]]
    found: TaskSource = made(facts, tensors, context)
    return found


def size(source: TaskSource, ids: Sequence[int]) -> int:
    """Bytes of ``stored``, about, without making it."""
    if isinstance(source, MixtureTasks):
        return sum(size(one, ids) for one in source.sources.values())
    if isinstance(source, PooledTasks):
        given = source.arguments()
        rows = len(_rows(given["pools"]["train"], len(given["x"])))
        each = (_bytes_of_row(part) for part in (given["x"], given["features"]) if part is not None)
        return rows * sum(each)
    views = _VIEWS if source.has_features else _VIEWS[:1]
    one = [source.batch("train", list(ids[:1]), view) for view in views]
    return len(ids) * sum(t.nbytes for batch in one for t in vars(batch).values() if _is(t))


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def _bytes_of_row(data: Tensor | DiskRows) -> int:
    row = data.take(np.zeros(1, dtype=np.int64)) if isinstance(data, DiskRows) else data[:1]
    return int(row.nbytes)


def _rows(pools: Sequence[Pool], count: int) -> np.ndarray:
    """The rows of class data that pools draw from; turned images are rows of their own number."""
    return np.unique(np.concatenate([rows for pool in pools for rows in pool.members]) % count)


# -- pooled --------------------------------------------------------------------------


def _pooled(source: PooledTasks) -> Stored:
    given = source.arguments()
    x, pools, count = given["x"], given["pools"]["train"], len(given["x"])
    rows = _rows(pools, count)
    place = np.full(count, -1)
    place[rows] = np.arange(len(rows))
    tensors = {"x": _exact(_taken(x, rows))}
    if given["features"] is not None:
        tensors["features"] = _exact(_taken(given["features"], rows))
    listed = []
    for number, pool in enumerate(pools):
        moved = [place[one % count] + len(rows) * (one // count) for one in pool.members]
        tensors |= _of_pool(f"pool{number}", pool, moved, rows, count)
        listed.append(
            {
                "name": pool.name,
                "class_names": list(pool.class_names),
                "class_group_names": list(pool.class_group_names),
                "within": pool.within,
                "weight": pool.weight,
            }
        )
    facts = {
        "kind": "pooled",
        "pools": listed,
        "sizes": asdict(given["sizes"]),
        "augment": given["augment"] and given["augment"].model_dump(mode="json"),
        **{name: given[name] for name in ("seed", "name", "scale", "group_by", "licence")},
        **_steps(given["preprocess"], tensors),
    }
    return facts, tensors


def _of_pool(
    prefix: str, pool: Pool, members: Sequence[np.ndarray], rows: np.ndarray, count: int
) -> dict[str, Tensor]:
    parts = {
        "members": np.concatenate(members),
        "lengths": np.array([len(one) for one in members]),
        "class_groups": pool.class_groups,
        "sample_groups": pool.sample_groups,
    }
    if pool.sample_groups is not None:  # of turned images, a part for each turn
        turns = np.asarray(pool.sample_groups).reshape(-1, count)
        parts["sample_groups"] = turns[:, rows].reshape(-1)
    return {
        f"{prefix}/{name}": torch.from_numpy(np.ascontiguousarray(value).astype(np.int32))
        for name, value in parts.items()
        if value is not None
    }


def _taken(data: Tensor | DiskRows, rows: np.ndarray) -> Tensor:
    if isinstance(data, DiskRows):
        return torch.from_numpy(data.take(rows))
    return data[torch.from_numpy(rows).to(data.device)].cpu()


def _exact(values: Tensor) -> Tensor:
    """In half the bytes where that loses nothing."""
    if values.dtype == torch.float32 and bool((values.half().float() == values).all()):
        return values.half()
    return values


def _pooled_of(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor], context: Context
) -> PooledTasks:
    dtype = getattr(torch, context.dtype)
    pools = []
    for number, told in enumerate(facts["pools"]):
        arrays: dict[str, Any] = {
            name: tensors[f"pool{number}/{name}"].numpy().astype(np.int64)
            for name in ("members", "lengths", "class_groups", "sample_groups")
            if f"pool{number}/{name}" in tensors
        }
        ends = np.cumsum(arrays.pop("lengths"))[:-1]
        members = tuple(np.split(arrays.pop("members"), ends))
        names = {name: tuple(told[name]) for name in ("class_names", "class_group_names")}
        pools.append(Pool(**{**told, **names}, members=members, **arrays))
    sizes = {name: _range(value) for name, value in facts["sizes"].items()}
    return PooledTasks(
        _whole(tensors["x"], dtype),
        {"train": pools},
        TaskSizes(**sizes),
        features=_whole(tensors["features"], dtype) if "features" in tensors else None,
        device=context.device,
        dtype=dtype,
        augment=Augment.model_validate(facts["augment"]) if facts["augment"] else None,
        preprocess=_steps_of(facts, tensors),
        **{name: facts[name] for name in ("seed", "name", "scale", "group_by", "licence")},
    )


def _whole(values: Tensor, dtype: torch.dtype) -> Tensor:
    return values.to(dtype) if values.dtype == torch.float16 else values


def _range(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# -- what was done to raw samples ----------------------------------------------------


def _steps(steps: Mapping[View, Preprocess | None], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Facts; the arrays go to ``tensors``."""
    told: dict[str, Any] = {}
    for view, one in steps.items():
        told[view] = one and one.facts()
        if one is not None:
            arrays = one.arrays().items()
            tensors |= {f"preprocess/{view}/{n}": torch.from_numpy(a) for n, a in arrays}
    return {"preprocess": told}


def _steps_of(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[View, Preprocess | None]:
    found: dict[View, Preprocess | None] = {}
    for view in _VIEWS:
        if (own := facts["preprocess"].get(view)) is not None:
            arrays = {n: t.numpy() for n, t in _under(tensors, f"preprocess/{view}").items()}
            found[view] = Preprocess.of(own, arrays)
    return found


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose name starts with ``prefix/``, by the rest of it."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


# -- mixtures ------------------------------------------------------------------------


def _mixture(source: MixtureTasks, ids: Sequence[int]) -> Stored:
    facts: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    chosen = source.groups("train", ids).numpy()
    for number, (name, one) in enumerate(source.sources.items()):
        own, parts = stored(one, np.asarray(ids)[chosen == number].tolist())
        facts[name] = own
        tensors |= {f"source{number}/{key}": value for key, value in parts.items()}
    told = {"kind": "mixture", "sources": facts, "shares": source.shares, "seed": source.seed}
    return told, tensors


def _mixture_of(
    facts: Mapping[str, Any], tensors: Mapping[str, Tensor], context: Context
) -> MixtureTasks:
    sources = {
        name: restored(own, _under(tensors, f"source{number}"), context)
        for number, (name, own) in enumerate(facts["sources"].items())
    }
    return MixtureTasks(sources, facts["shares"], seed=facts["seed"])


# -- any other source ----------------------------------------------------------------


def _listed(source: TaskSource, ids: Sequence[int]) -> Stored:
    tensors: dict[str, Tensor] = {"ids": torch.tensor(list(ids), dtype=torch.int64)}
    views = _VIEWS if source.has_features else _VIEWS[:1]
    for view in views if len(ids) else ():
        tasks = source.batch("train", list(ids), view)
        names = [f.name for f in fields(tasks) if _is(getattr(tasks, f.name))]
        wanted = names if view == "input" else ["support_x", "query_x"]
        tensors |= {f"{view}/{name}": getattr(tasks, name).cpu() for name in wanted}
    tensors["groups"] = source.groups("train", list(ids)).cpu()
    steps = {view: source.preprocess(view) for view in views}
    facts = {
        "kind": "listed",
        "shape": asdict(source.shape),
        "fingerprint": source.fingerprint,
        "licence": source.licence,
        "group_names": list(source.group_names),
        **_steps(steps, tensors),
    }
    return facts, tensors


class ListedTasks(TaskSource):
    """Training tasks that are listed one by one, under the ids that they had."""

    def __init__(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], context: Context):
        shape = facts["shape"]
        self.shape = TaskShape(**{**shape, "input_shape": tuple(shape["input_shape"])})
        self.fingerprint, self.licence = facts["fingerprint"], facts["licence"]
        self.group_names = tuple(facts["group_names"])
        self._groups = tensors["groups"]
        self._row = {int(one): row for row, one in enumerate(tensors["ids"])}
        self._preprocess = _steps_of(facts, tensors)
        features: dict[str, Any] = _under(tensors, "features")
        self.has_features = bool(features)
        tasks = TaskBatch(**_under(tensors, "input"), outputs=self.shape.outputs)
        dtype = getattr(torch, context.dtype)
        self._tasks: dict[View, TaskBatch] = {"input": tasks.to(context.device, dtype)}
        if features:
            self._tasks["features"] = replace(tasks, **features).to(context.device, dtype)

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        rows = self._rows(split, ids)
        return self._tasks[view if self.has_features else "input"][rows]

    def groups(self, split: str, ids: Ids) -> Tensor:
        return self._groups[self._rows(split, ids)]

    def preprocess(self, view: View = "input") -> Preprocess | None:
        return self._preprocess.get(view if self.has_features else "input")

    def _rows(self, split: str, ids: Ids) -> Tensor:
        numbers = id_array(ids).tolist()
        if split != "train" or not all(one in self._row for one in numbers):
            raise DataError(f"these are {len(self._row)} listed tasks of a bank, and no others")
        return torch.tensor([self._row[one] for one in numbers], dtype=torch.int64)
