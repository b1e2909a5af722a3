"""Classification tasks over class data, in memory or on disk: the usual ``TaskSource``.

The drawing itself (``metaforge.sampling``) needs no torch; this module does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from metaforge import augmentation, pictures
from metaforge.errors import DataError
from metaforge.image_options import Augment
from metaforge.index_tables import IndexTables
from metaforge.labelled_images import LabelledImages, of_pools
from metaforge.pools import Pool
from metaforge.preprocess import Preprocess
from metaforge.sampling import Drawn, TaskSampler, id_array
from metaforge.sampling_checks import problems
from metaforge.storage import DiskRows
from metaforge.task_sizes import TaskSizes
from metaforge.tasks import Ids, TaskBatch, TaskShape, TaskSource, View
from metaforge.turned import TURNS, told

#: Rows that ``mapped`` transforms at a time.
_BLOCK = 1024
#: Part of the fingerprint: raised whenever the same options would draw other tasks.
_DRAWING = 1

GroupBy = Literal["auto", "pool", "class_group", "none"]


class PooledTasks(TaskSource):
    """N-way tasks drawn from pools of classes.

    x         [n, *x]  the class data, any dtype; batches are ``dtype`` and on ``device``;
              a tensor, or ``DiskRows`` that stay on disk
    features  [n, p]   phi(x), what ``view="features"`` gathers instead; or None
    pools     for each split (``train``, ``val``, ``test``) its ``Pool``s
    sizes     ways, shots, queries, and what to do with classes that have too few rows
    scale     multiplies x after its conversion (1/255 for bytes)
    group_by  what the groups of tasks are: their ``pool``, their ``class_group`` (of tasks
              drawn within one; -1 for others), ``none``, or ``auto``: the pool if there are
              several names, else the class group if any pool draws within one, else none
    images    [n, c, h, w]  uint8, where x are features of images: the images, for what reads those
    sample_names  of each row, what ``describe_task`` calls it; by default its number
    preprocess    what was done to raw samples to give ``input``, x, and ``features``
    augment   how images are varied; pools that ``turned_pools`` made may have rows up to 4 n.
              ``describe_task`` names samples as they are before they are cropped and mirrored

    Support rows of a task are ordered class by class, ``S`` slots each, padded with zeros
    where a class drew fewer shots; queries likewise. Groups of the same name are the same
    group in every split. Raises ``DataError`` for whatever makes the tasks impossible.
    """

    def __init__(
        self,
        x: Tensor | DiskRows,
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
        augment: Augment | None = None,
        images: Tensor | DiskRows | None = None,
        sample_names: Sequence[str] | None = None,
        preprocess: Mapping[View, Preprocess | None] | None = None,
    ):
        if features is not None and len(features) != len(x):
            raise DataError(f"{name}: {len(x)} rows of x, but {len(features)} of features")
        self.sampler = TaskSampler(pools, sizes, seed)
        self._sample_names = sample_names
        self._augment = augment if augment is not None and augment.any else None
        if message := augment.unfit_images(tuple(x.shape[1:])) if augment is not None else "":
            raise DataError(f"{name}: {message}")
        turned = self._augment is not None and self._augment.rotations != "none"
        self._turns = len(TURNS) if turned else 1
        if (last := _last_row(pools)) >= self._turns * len(x):
            raise DataError(f"{name}: a class has row {last}, but x has {len(x)} rows")
        self.name, self.licence = name, licence
        self.has_features = features is not None
        self.on_disk = isinstance(x, DiskRows)
        self._device = torch.device(device)
        self._x = x if isinstance(x, DiskRows) else x.to(device)
        self._features = None if features is None else features.to(device)
        self._scale, self._dtype = scale, dtype
        self._pictures = images
        self._preprocess = dict(preprocess or {})
        self._padded = len({*sizes.shots_range}) > 1 or len({*sizes.queries_range}) > 1
        self._shots, self._queries = sizes.shots_range[1], sizes.queries_range[1]
        self.shape = TaskShape(
            "classification", tuple(x.shape[1:]), sizes.ways, self._shots, self._queries
        )
        self._group_by = _resolve(group_by, self.sampler)
        self.group_names = _group_names(self._group_by, self.sampler)
        self._tables = IndexTables(self.sampler)
        self.fingerprint = self._digest()

    def batch(self, split: str, ids: Ids, view: View = "input") -> TaskBatch:
        self._require(split)
        numbers = id_array(ids)
        table = torch.from_numpy(self._tables.rows(split, numbers))
        _, _, support, query = table.split(self._tables.widths, 1)
        moves = self._moves(split, numbers)
        support_x, support_mask = self._gather(support, view, moves.get("support"))
        query_x, query_mask = self._gather(query, view, moves.get("query"))
        return TaskBatch(
            support_x=support_x,
            support_y=self._labels(len(table), self._shots),
            query_x=query_x,
            query_y=self._labels(len(table), self._queries),
            support_mask=support_mask,
            query_mask=query_mask,
            task_ids=torch.from_numpy(numbers).to(self._device),
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
        """Pool, group, class names in label order, and each class's row numbers or sample names
        (in words where they are of an image that is turned)."""
        drawn = self.index(split, [task_id])
        pool = self.sampler.pools[split][drawn.pools[0]]
        group = int(self.groups(split, [task_id])[0])
        return {
            "pool": pool.name,
            "group": self.group_names[group] if group >= 0 else None,
            "classes": [pool.class_names[c] for c in drawn.classes[0]],
            "support": [self._told(rows) for rows in drawn.support[0]],
            "query": [self._told(rows) for rows in drawn.query[0]],
        }

    def labelled_images(self, split: str) -> LabelledImages:
        """A split's images with their ``class`` and, where classes have groups, their ``group``.

        Raises ``DataError`` where the samples are no images.
        """
        self._require(split)
        pools = self.sampler.pools[split]
        if self._pictures is not None:
            return of_pools(self._pictures, pools, 1 / 255, self._sample_names)
        if len(self._x.shape) != 4:
            raise DataError(
                f"{self.name}: its samples have shape {list(self._x.shape[1:])}: images [channels, "
                "height, width] are needed"
            )
        return of_pools(self._x, pools, self._scale, self._sample_names)

    def _told(self, rows: np.ndarray) -> list[int | str]:
        return told(rows[rows >= 0].tolist(), len(self._x), self._sample_names)

    def pictures(self, split: str, task_id: int) -> np.ndarray | None:
        """The first support sample of each class: x, or where x are features, ``images``."""
        if self._pictures is None or pictures.is_image(self._x.shape[1:]):
            return super().pictures(split, task_id)
        rows = self.index(split, [task_id]).support[0, :, 0]
        if isinstance(self._pictures, DiskRows):
            return pictures.as_bytes(self._pictures.take(rows))
        return pictures.as_bytes(self._pictures[torch.from_numpy(rows)].cpu().numpy())

    def preprocess(self, view: View = "input") -> Preprocess | None:
        return self._preprocess.get(view if self.has_features else "input")

    def summary(self) -> dict[str, Any]:
        """The data's name, and how many classes of each split tasks can have."""
        facts = {"name": self.name}
        for split, pools in self.sampler.pools.items():
            counts = zip(pools, self.sampler.usable_classes(split), strict=True)
            words = [(pool.name, _of(usable, len(pool.members))) for pool, usable in counts]
            parts = [f"{name} {count}" if len(pools) > 1 else count for name, count in words]
            facts[split] = f"{', '.join(parts)} classes"
        return facts

    @property
    def is_fixed(self) -> bool:
        """Whether a sample is a row in memory, the same in every task, as ``mapped`` needs."""
        return self._augment is None and isinstance(self._x, Tensor)

    def mapped(
        self, transform: Callable[[Tensor], Tensor], preprocess: Preprocess | None = None
    ) -> PooledTasks:
        """The same tasks on ``transform`` of the features (of x, if there are none), row by row:
        [n, p] to [n, w]. It is applied once, to the class data. For a source that ``is_fixed``.
        ``preprocess`` is what it makes of raw samples."""
        data, scale, images = self._x, self._scale, self._pictures
        assert isinstance(data, Tensor)
        if data.dtype == torch.uint8 and pictures.is_image(data.shape[1:]):
            images = data
        if self._features is not None:
            data, scale = self._features, None
        rows = (block.flatten(1).to(self._dtype) for block in data.split(_BLOCK))
        found = torch.cat([transform(some if scale is None else some * scale) for some in rows])
        changed = {
            "x": found,
            "features": None,
            "scale": None,
            "images": images,
            "preprocess": {"input": preprocess},
        }
        return PooledTasks(**self.arguments() | changed)

    def resized(self, ways: int) -> PooledTasks:
        """The training tasks of those pools that have the classes for it."""
        sizes, train = replace(self.sampler.sizes, ways=ways), self.sampler.pools["train"]
        found = [problems({"train": [pool]}, sizes) for pool in train]
        kept = [pool for pool, wrong in zip(train, found, strict=True) if not wrong]
        if not kept:
            raise DataError("\n".join(line for wrong in found for line in wrong))
        return PooledTasks(**self.arguments() | {"pools": {"train": kept}, "sizes": sizes})

    def arguments(self) -> dict[str, Any]:
        """What the constructor takes to make these tasks."""
        return {
            "x": self._x,
            "pools": self.sampler.pools,
            "sizes": self.sampler.sizes,
            "seed": self.sampler.seed,
            "name": self.name,
            "features": self._features,
            "scale": self._scale,
            "group_by": self._group_by,
            "licence": self.licence,
            "device": self._device,
            "dtype": self._dtype,
            "augment": self._augment,
            "preprocess": self._preprocess,
            "images": self._pictures,
            "sample_names": self._sample_names,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Another process draws its own tables."""
        return self.__dict__ | {"_tables": IndexTables(self.sampler)}

    def _moves(self, split: str, ids: np.ndarray) -> dict[str, augmentation.Moves]:
        """How the samples of each side are cropped and mirrored; nothing where they are not."""
        if split != "train" or self._augment is None or not self._augment.moves:
            return {}
        ways, seed = self.shape.outputs, self.sampler.seed
        places = {"support": ways * self._shots, "query": ways * self._queries}
        return {
            side: augmentation.draw(self._augment, seed, side, ids, count)
            for side, count in places.items()
        }

    def _gather(
        self, rows: Tensor, view: View, moves: augmentation.Moves | None
    ) -> tuple[Tensor, Tensor]:
        """Samples [B, k, *x] of rows [B, k], zeros where a row is -1, and their mask [B, k]."""
        mask = (rows >= 0).to(self._device)
        flat = rows.clamp(min=0).flatten()
        if view == "features" and self._features is not None:
            values = self._features.index_select(0, flat.to(self._device)).to(self._dtype)
        else:
            values = self._images(flat, moves).to(self._dtype)
            if self._scale is not None:
                values.mul_(self._scale)  # a copy already
        values = values.view(*rows.shape, *values.shape[1:])
        if self._padded:
            values.masked_fill_(~mask.view(*rows.shape, *[1] * (values.ndim - 2)), 0.0)
        return values, mask.to(self._dtype)

    def _images(self, rows: Tensor, moves: augmentation.Moves | None) -> Tensor:
        """x [k, *x] of rows [k] on the CPU, as it is or augmented; of x's own dtype."""
        turns = None
        if self._turns > 1:
            turns, rows = rows // len(self._x), rows % len(self._x)
        if isinstance(self._x, DiskRows):
            found = torch.from_numpy(self._x.take(rows.numpy()))
            if self._device.type == "cuda":
                found = found.pin_memory()  # so that the copy waits for nobody
            found = found.to(self._device, non_blocking=True)
        else:
            found = self._x.index_select(0, rows.to(self._device))
        if self._augment is None or (turns is None and moves is None):
            return found
        if turns is not None:
            turns = turns.to(self._device)
        if moves is not None:
            moves = augmentation.Moves(*(part.to(self._device) for part in moves))
        return augmentation.moved(found, turns, moves, self._augment.crop)

    def _labels(self, n: int, each: int) -> Tensor:
        ways = torch.arange(self.shape.outputs, device=self._device)
        return ways[:, None].expand(-1, each).reshape(1, -1).repeat(n, 1)

    def _require(self, split: str) -> None:
        if split not in self.sampler.pools:
            raise DataError(
                f"{self.name}: no split {split!r}; it has {', '.join(self.sampler.pools)}"
            )

    def _digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for data in (self._x, self._features):
            _add_data(digest, data)
        sizes = self.sampler.sizes
        drawing = (sizes.ways, sizes.shots_range, sizes.queries_range, sizes.too_few)
        options = (_DRAWING, self.sampler.seed, drawing, self._scale, self._group_by)
        digest.update(repr(options).encode())
        if self._augment is not None:
            digest.update(self._augment.model_dump_json().encode())
        for split, pools in self.sampler.pools.items():
            for pool in pools:
                _add_pool(digest, split, pool)
        return digest.hexdigest()


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


def _add_data(digest: Any, data: Tensor | DiskRows | None) -> None:
    """Without a copy: class data can be gigabytes."""
    if data is None:
        digest.update(b"none")
        return
    if isinstance(data, DiskRows):
        digest.update(f"{data.dtype} {data.shape} {data.digest} ".encode())
        return
    array = data.detach().cpu().contiguous()
    digest.update(f"{array.dtype} {tuple(array.shape)} ".encode())
    digest.update(array.view(torch.uint8).numpy())


def _add_pool(digest: Any, split: str, pool: Pool) -> None:
    lengths = [len(rows) for rows in pool.members]
    named = (split, pool.name, pool.class_names, pool.class_group_names, pool.within, pool.weight)
    digest.update(repr((named, lengths)).encode())
    arrays = (*pool.members, pool.class_groups, pool.sample_groups)
    for array in arrays:
        digest.update(b"none" if array is None else np.asarray(array, dtype=np.int64).tobytes())
