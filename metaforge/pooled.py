"""Classification tasks over class data held once as tensors: the usual ``TaskSource``.

The drawing itself (``metaforge.sampling``) needs no torch; this module does.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from metaforge.errors import DataError
from metaforge.pools import Pool
from metaforge.sampling import Drawn, TaskSampler, id_array
from metaforge.task_sizes import TaskSizes
from metaforge.tasks import Ids, TaskBatch, TaskShape, TaskSource, View

#: Tasks of one index table, and the bytes that all tables together may take.
_BLOCK, _TABLE_BYTES = 1024, 1 << 28
#: Part of the fingerprint: raised whenever the same options would draw other tasks.
_DRAWING = 1

GroupBy = Literal["auto", "pool", "class_group", "none"]


class PooledTasks(TaskSource):
    """N-way tasks drawn from pools of classes.

    x         [n, *x]  the class data, any dtype; batches are ``dtype`` and on ``device``
    features  [n, p]   phi(x), what ``view="features"`` gathers instead; or None
    pools     for each split (``train``, ``val``, ``test``) its ``Pool``s
    sizes     ways, shots, queries, and what to do with classes that have too few rows
    scale     multiplies x after its conversion (1/255 for bytes)
    group_by  what the groups of tasks are: their ``pool``, their ``class_group`` (of tasks
              drawn within one; -1 for others), ``none``, or ``auto``: the pool if there are
              several names, else the class group if any pool draws within one, else none

    Support rows of a task are ordered class by class, ``S`` slots each, padded with zeros
    where a class drew fewer shots; queries likewise. Groups of the same name are the same
    group in every split. Raises ``DataError`` for whatever makes the tasks impossible.
    """

    def __init__(
        self,
        x: Tensor,
        pools: Mapping[str, Sequence[Pool]],
        sizes: TaskSizes,
        *,
        seed: int,
        name: str,
        features: Tensor | None = None,
        scale: float | None = None,
        group_by: GroupBy = "auto",
        licence: str = "not stated",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        if features is not None and len(features) != len(x):
            raise DataError(f"{name}: {len(x)} rows of x, but {len(features)} of features")
        self.sampler = TaskSampler(pools, sizes, seed)
        if (last := _last_row(pools)) >= len(x):
            raise DataError(f"{name}: a class has row {last}, but x has {len(x)} rows")
        self.name, self.licence = name, licence
        self.has_features = features is not None
        self._x = x.to(device)
        self._features = None if features is None else features.to(device)
        self._scale, self._dtype = scale, dtype
        self._padded = len({*sizes.shots_range}) > 1 or len({*sizes.queries_range}) > 1
        self._shots, self._queries = sizes.shots_range[1], sizes.queries_range[1]
        self.shape = TaskShape(
            "classification", tuple(x.shape[1:]), sizes.ways, self._shots, self._queries
        )
        self._group_by = _resolve(group_by, self.sampler)
        self.group_names = _group_names(self._group_by, self.sampler)
        self._tables = _IndexTables(self.sampler)
        self.fingerprint = self._digest()

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        self._require(split)
        numbers = id_array(ids)
        table = torch.from_numpy(self._tables.rows(split, numbers)).to(self._x.device)
        _, _, support, query = table.split(self._tables.widths, 1)
        support_x, support_mask = self._gather(support, view)
        query_x, query_mask = self._gather(query, view)
        return TaskBatch(
            support_x=support_x,
            support_y=self._labels(len(table), self._shots),
            query_x=query_x,
            query_y=self._labels(len(table), self._queries),
            support_mask=support_mask,
            query_mask=query_mask,
            task_ids=torch.from_numpy(numbers).to(self._x.device),
            outputs=self.shape.outputs,
        )

    def index(self, split: str, ids: Ids) -> Drawn:
        """The tasks as row numbers of the class data (arrays ``[n, ways, ...]``)."""
        self._require(split)
        table = self._tables.rows(split, id_array(ids))
        ends = np.cumsum(self._tables.widths)[:-1]
        pools, classes, support, query = np.split(table, ends, axis=1)
        shape = len(table), self.shape.outputs, -1
        return Drawn(pools[:, 0], classes, support.reshape(shape), query.reshape(shape))

    def groups(self, split: str, ids: Ids) -> Tensor:
        """[n] long, on the CPU: each task's group, -1 for none."""
        self._require(split)
        pools, class_groups = self.sampler.choose(split, id_array(ids))
        number = {name: i for i, name in enumerate(self.group_names)}
        groups = np.full(len(pools), -1)
        for position, pool in enumerate(self.sampler.pools[split]):
            mine = pools == position
            if self._group_by == "pool":
                groups[mine] = number[pool.name]
            elif self._group_by == "class_group" and pool.within:
                lookup = np.array([number[name] for name in pool.class_group_names])
                groups[mine] = lookup[class_groups[mine]]
        return torch.from_numpy(groups)

    def describe_task(self, split: str, task_id: int) -> dict[str, Any]:
        """Pool, group, class names in label order, and each class's row numbers."""
        drawn = self.index(split, [task_id])
        pool = self.sampler.pools[split][drawn.pools[0]]
        group = int(self.groups(split, [task_id])[0])
        return {
            "pool": pool.name,
            "group": self.group_names[group] if group >= 0 else None,
            "classes": [pool.class_names[c] for c in drawn.classes[0]],
            "support": [rows[rows >= 0].tolist() for rows in drawn.support[0]],
            "query": [rows[rows >= 0].tolist() for rows in drawn.query[0]],
        }

    def summary(self) -> dict[str, Any]:
        """The data's name, and how many classes of each split tasks can have."""
        facts = {"name": self.name}
        for split, pools in self.sampler.pools.items():
            counts = zip(pools, self.sampler.usable_classes(split), strict=True)
            words = [(pool.name, _of(usable, len(pool.members))) for pool, usable in counts]
            parts = [f"{name} {count}" if len(pools) > 1 else count for name, count in words]
            facts[split] = f"{', '.join(parts)} classes"
        return facts

    def mapped(self, transform: Callable[[Tensor], Tensor]) -> PooledTasks:
        """The same tasks on ``transform`` of the features (of x, if there are none), row by row:
        [n, p] to [n, w]. It is applied once, to the class data."""
        data, scale = self._x, self._scale
        if self._features is not None:
            data, scale = self._features, None
        rows = (block.flatten(1).to(self._dtype) for block in data.split(_BLOCK))
        found = torch.cat([transform(some if scale is None else some * scale) for some in rows])
        return PooledTasks(
            found,
            self.sampler.pools,
            self.sampler.sizes,
            seed=self.sampler.seed,
            name=self.name,
            group_by=self._group_by,
            licence=self.licence,
            device=found.device,
            dtype=self._dtype,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Another process draws its own tables."""
        return self.__dict__ | {"_tables": _IndexTables(self.sampler)}

    def _gather(self, rows: Tensor, view: View) -> tuple[Tensor, Tensor]:
        """Samples [B, k, *x] of rows [B, k], zeros where a row is -1, and their mask [B, k]."""
        as_features = view == "features" and self._features is not None
        data = self._features if as_features else self._x
        assert data is not None
        values = data.index_select(0, rows.clamp(min=0).flatten()).to(self._dtype)
        if self._scale is not None and not as_features:
            values = values * self._scale
        values = values.view(*rows.shape, *data.shape[1:])
        mask = rows >= 0
        if self._padded:
            values.masked_fill_(~mask.view(*rows.shape, *[1] * (data.ndim - 1)), 0.0)
        return values, mask.to(self._dtype)

    def _labels(self, n: int, each: int) -> Tensor:
        ways = torch.arange(self.shape.outputs, device=self._x.device)
        return ways[:, None].expand(-1, each).reshape(1, -1).repeat(n, 1)

    def _require(self, split: str) -> None:
        if split not in self.sampler.pools:
            raise DataError(
                f"{self.name}: no split {split!r}; it has {', '.join(self.sampler.pools)}"
            )

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for tensor in (self._x, self._features):
            _add_tensor(digest, tensor)
        sizes = self.sampler.sizes
        drawing = (sizes.ways, sizes.shots_range, sizes.queries_range, sizes.too_few)
        options = (_DRAWING, self.sampler.seed, drawing, self._scale, self._group_by)
        digest.update(repr(options).encode())
        for split, pools in self.sampler.pools.items():
            for pool in pools:
                _add_pool(digest, split, pool)
        return digest.hexdigest()


class _IndexTables:
    """Blocks of drawn tasks [tasks, 1 + ways + ways * S + ways * Q]: pool, classes, support
    and query rows; the least recently used are dropped.

    A block is tabulated at its second visit, or if much of it is asked for at once: a bank or
    a stream comes back to it, while ids scattered over a huge range do not pay for neighbours.
    """

    def __init__(self, sampler: TaskSampler):
        self._sampler = sampler
        self._tables: OrderedDict[tuple[str, int], np.ndarray | None] = OrderedDict()
        sizes = sampler.sizes
        ways, shots, queries = sizes.ways, sizes.shots_range[1], sizes.queries_range[1]
        self.widths = [1, ways, ways * shots, ways * queries]
        self._room = max(2, _TABLE_BYTES // (_BLOCK * sum(self.widths) * 4))

    def rows(self, split: str, ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), sum(self.widths)), dtype=np.int32)
        blocks = ids // _BLOCK
        direct = []
        for block in dict.fromkeys(blocks.tolist()):
            mine = np.flatnonzero(blocks == block)
            table = self._visit(split, block, len(mine))
            if table is None:
                direct.append(mine)
            else:
                rows[mine] = table[ids[mine] - block * _BLOCK]
        if direct:
            mine = np.concatenate(direct)
            rows[mine] = self._draw(split, ids[mine])
        return rows

    def _visit(self, split: str, block: int, count: int) -> np.ndarray | None:
        key = split, block
        again = key in self._tables
        table = self._tables.pop(key, None)
        if table is None and (again or count > _BLOCK // 8):
            table = self._draw(split, np.arange(block * _BLOCK, (block + 1) * _BLOCK))
        self._tables[key] = table
        while len(self._tables) > self._room:
            self._tables.popitem(last=False)
        return table

    def _draw(self, split: str, ids: np.ndarray) -> np.ndarray:
        drawn = self._sampler.draw(split, ids)
        columns = zip(drawn, self.widths, strict=True)
        return np.concatenate(
            [part.reshape(len(ids), width) for part, width in columns], axis=1, dtype=np.int32
        )


def _resolve(group_by: GroupBy, sampler: TaskSampler) -> GroupBy:
    if group_by != "auto":
        return group_by
    pools = [pool for some in sampler.pools.values() for pool in some]
    if len({pool.name for pool in pools}) > 1:
        return "pool"
    return "class_group" if any(pool.within for pool in pools) else "none"


def _group_names(group_by: GroupBy, sampler: TaskSampler) -> tuple[str, ...]:
    """Names in order of appearance, each once."""
    pools = [pool for some in sampler.pools.values() for pool in some]
    if group_by == "pool":
        names = [pool.name for pool in pools]
    elif group_by == "class_group":
        names = [name for pool in pools if pool.within for name in pool.class_group_names]
    else:
        names = []
    return tuple(dict.fromkeys(names))


def _of(part: int, whole: int) -> str:
    return str(whole) if part == whole else f"{part} of {whole}"


def _last_row(pools: Mapping[str, Sequence[Pool]]) -> int:
    members = (rows for some in pools.values() for pool in some for rows in pool.members)
    return max(int(rows.max()) for rows in members if len(rows))


def _add_tensor(digest: Any, tensor: Tensor | None) -> None:
    """Without a copy: class data can be gigabytes."""
    if tensor is None:
        digest.update(b"none")
        return
    array = tensor.detach().cpu().contiguous()
    digest.update(f"{array.dtype} {tuple(array.shape)} ".encode())
    digest.update(array.view(torch.uint8).numpy())


def _add_pool(digest: Any, split: str, pool: Pool) -> None:
    lengths = [len(rows) for rows in pool.members]
    named = (split, pool.name, pool.class_names, pool.class_group_names, pool.within, pool.weight)
    digest.update(repr((named, lengths)).encode())
    arrays = (*pool.members, pool.class_groups, pool.sample_groups)
    for array in arrays:
        digest.update(b"none" if array is None else np.asarray(array, dtype=np.int64).tobytes())
