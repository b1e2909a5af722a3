"""What a report shows of a run beside its figures: ``artifacts/picture.json``.

Recalled tasks of a few targets with their weights, a map of signatures, a sample of the kernel's
matrix; tasks by the names of their classes and, where samples are images, by pictures. All of it
is a sample of fixed size, so that the file stays below about a megabyte.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metaforge.errors import DamagedFile
from metaforge.gram import KernelGram, signature
from metaforge.picture_file import Picture
from metaforge.pictures import strip
from metaforge.records import read_json, write_atomic
from metaforge.scoring import TargetScores
from metaforge.seals import sealed
from metaforge.stages import Parts
from metaforge.tasks import TaskSource, unpadded

#: Bank tasks on the map, and targets; rows of the kernel's matrix.
_BANK, _TARGETS, _MATRIX = 300, 300, 100
#: Recalled tasks that are shown of a target, its weights that are kept, classes of a task.
_RECALLED, _WEIGHTS, _CLASSES = 6, 200, 6
#: Characters of a class's name.
_LONGEST = 60

Json = dict[str, Any]


def keep(path: Path, parts: Parts, records: list[Json], scores: TargetScores | None) -> None:
    """Write what is to be shown, unless it is there, whole: the same run gives the same.
    ``scores`` are those of the targets in the records' order; None where they have to be computed
    again, or the weighting ranks no tasks."""
    if path.exists():
        with suppress(DamagedFile):
            read_json(path, Picture)
            return
    gathered = sealed(_gather(parts, records, scores))
    found = json.dumps(gathered, allow_nan=False, separators=(",", ":"))
    write_atomic(path, found.encode())


def _gather(parts: Parts, records: list[Json], scores: TargetScores | None) -> Json:
    source, split = parts.source, parts.recipe.evaluate.split
    chosen = _chosen(records, source.shape.kind == "regression")
    found: Json = {
        "groups": [str(name) for name in source.group_names],
        "chosen": [
            _target(source, split, records[place]["task_id"], why) for place, why in chosen.items()
        ],
        "kernel": None,
        "map": None,
    }
    if not parts.weighting.target_specific:
        return found
    for own, (ids, weights) in zip(
        found["chosen"], _recalled(parts, records, list(chosen), scores), strict=True
    ):
        own["kept"] = len(weights)
        own["weights"] = _rounded(weights[:_WEIGHTS])
        own["recalled"] = [
            {"id": int(i), "weight": float(w), "sample": _sample(source, "train", int(i))}
            for i, w in zip(ids[:_RECALLED], weights[:_RECALLED], strict=True)
        ]
    found["kernel"] = _matrix(parts)
    found["map"] = _map(parts, records, found["chosen"])
    return found


def _target(source: TaskSource, split: str, task_id: int, why: list[str]) -> Json:
    """Without what a weighting that ranks adds."""
    shown = {"why": why, "task_id": task_id, "sample": _sample(source, split, task_id)}
    return {**shown, "kept": 0, "weights": [], "recalled": []}


def _chosen(records: list[Json], regression: bool) -> dict[int, list[str]]:
    """Positions of the targets of the largest, the median and the least gain of SP over J = 0,
    and which of them each is; the first of equals."""
    gains = [r["curves"]["conditional"][-1] - r["unconditional"] for r in records]
    order = np.argsort(np.array(gains) * (1 if regression else -1), kind="stable")
    picked = {"best": order[0], "median": order[(len(order) - 1) // 2], "worst": order[-1]}
    found: dict[int, list[str]] = {}
    for why, place in picked.items():
        found.setdefault(int(place), []).append(why)
    return found


def _recalled(
    parts: Parts, records: list[Json], places: Sequence[int], scores: TargetScores | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids and weights of the kept bank tasks of the targets at some places."""
    if scores is not None:
        return [scores.kept(place) for place in places]
    ids = [records[place]["task_id"] for place in places]
    ordered = sorted(ids)
    again = parts.score_here(parts.recipe.evaluate.split, ordered)
    return [again.kept(ordered.index(task_id)) for task_id in ids]


def _sample(source: TaskSource, split: str, task_id: int) -> Json:
    """A task by its group, its classes, and what can be looked at of it."""
    told = source.describe_task(split, task_id)
    classes = [str(name)[:_LONGEST] for name in told.get("classes", ())]
    images = source.pictures(split, task_id)
    return {
        "group": int(source.groups(split, [task_id])[0]),
        "classes": classes[:_CLASSES],
        "more": max(0, len(classes) - _CLASSES),
        "picture": None if images is None else _encoded(images[:_CLASSES]),
        "points": _points(source, split, task_id),
    }


def _encoded(images: np.ndarray) -> str:
    return base64.b64encode(strip(images)).decode()


def _points(source: TaskSource, split: str, task_id: int) -> list[list[float]] | None:
    """The support points (x, y) of a curve; None for tasks that are none."""
    shape = source.shape
    if shape.kind != "regression" or shape.input_shape != (1,) or shape.outputs != 1:
        return None
    task = unpadded(source.batch(split, [task_id]))
    pairs = torch.cat([task.support_x[0], task.support_y[0].view(-1, 1)], 1)
    return [_rounded(pair) for pair in pairs.cpu().numpy()]


def _matrix(parts: Parts) -> Json:
    """``k(D, D') / sqrt(k(D, D) k(D', D'))`` of the bank's first tasks by group, in 0..255 between
    the least and the greatest off the diagonal."""
    n = min(parts.recipe.bank.size, _MATRIX)
    groups = parts.bank_groups[:n].cpu().numpy()
    ids = np.argsort(groups, kind="stable")
    rows = torch.from_numpy(ids).to(parts.gram.signatures().device)
    length = parts.gram.kernel.diag(parts.gram.signatures()[rows]).clamp(min=1e-300).sqrt()
    values = (parts.gram.block(rows, rows) / length / length[:, None]).cpu().numpy()
    apart = values[~np.eye(n, dtype=bool)] if n > 1 else values.ravel()
    low, high = float(apart.min()), float(apart.max())
    levels = np.clip((values - low) / max(high - low, 1e-300), 0, 1) * 255
    return {
        "groups": groups[ids].tolist(),
        "low": low,
        "high": high,
        "levels": np.rint(levels).astype(int).ravel().tolist(),
    }


def _map(parts: Parts, records: list[Json], chosen: list[Json]) -> Json:
    """Signatures of bank tasks and targets on the first two principal components of the former."""
    every, gram = parts.gram.signatures(), parts.gram
    first = range(min(parts.recipe.bank.size, _BANK))
    recalled = {one["id"] for own in chosen for one in own["recalled"]}
    bank = [*first, *sorted(recalled - set(first))]
    known = [record["task_id"] for record in records[:_TARGETS]]
    targets = [*known, *(own["task_id"] for own in chosen if own["task_id"] not in set(known))]
    project, shares = _components(every[list(first)])
    split = parts.recipe.evaluate.split
    return {
        "shares": shares,
        "fitted": len(first),
        "width": every.shape[1],
        "bank": _placed(parts.source, "train", bank, project(every[bank])),
        "targets": _placed(parts.source, split, targets, project(_signed(parts, gram, targets))),
    }


def _signed(parts: Parts, gram: KernelGram, ids: Sequence[int]) -> Tensor:
    """[n, p]: signatures of targets, one by one, as they are scored."""
    split, view = parts.recipe.evaluate.split, gram.phi.view
    each = (parts.source.batch(split, [i], view) for i in ids)
    return torch.cat([signature(unpadded(task), gram.kernel, gram.phi) for task in each])


def _components(rows: Tensor) -> tuple[Any, list[float]]:
    """The projection [m, p] -> [m, 2] on the principal components of rows [n, p], and their shares
    of the variance. By the n x n matrix of products, as p may be large."""
    centre = rows.mean(0)
    centred = rows - centre
    values, vectors = torch.linalg.eigh((centred @ centred.T).cpu())
    total = float(values.clamp(min=0).sum())
    axes = centred.T @ vectors[:, -2:].flip(1).to(rows.device)
    axes = axes / axes.norm(dim=0).clamp(min=1e-300)
    largest = axes.abs().argmax(0, keepdim=True)
    axes = axes * axes.gather(0, largest).sign()  # a component's sign means nothing
    shares = [float(v) / total if total > 0 else 0.0 for v in values[-2:].flip(0).clamp(min=0)]
    return lambda others: (others - centre) @ axes, shares


def _placed(source: TaskSource, split: str, ids: Sequence[int], places: Tensor) -> Json:
    x, y = (_rounded(column) for column in _two(places).cpu().numpy().T)
    return {"ids": list(ids), "groups": source.groups(split, ids).tolist(), "x": x, "y": y}


def _two(places: Tensor) -> Tensor:
    """[n, 2] of [n, k]: a bank of one task has a single component."""
    return torch.nn.functional.pad(places, (0, 2 - places.shape[1]))


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
