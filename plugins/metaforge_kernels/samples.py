"""The samples of tasks as signatures read them: masked, flat, in float64, standardised.

Symbols: B tasks, n samples of a task, q the width of phi(x), C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.options import SignatureOptions

#: Samples shorter than this stay what they are but for a factor, 0 where they are 0.
_SHORTEST = 1e-12
#: Numbers of samples that are read at a time, as many as a core's cache holds.
_BLOCK = 1 << 18


@dataclass(frozen=True)
class Standardization:
    """``(rows - shift) * scale``, column by column: over the standard deviation, and over
    the root of the number of columns of its part, so that parts count alike in a distance."""

    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, *parts: Tensor) -> Self:
        """Of parts [m, w]. A column that is constant in them tells nothing: it becomes 0."""
        shifts, scales = [], []
        for rows in parts:
            shift = rows.mean(0)
            spread = (rows - shift).square().mean(0).sqrt()
            varies = spread > 1e-8 * rows.square().mean(0).sqrt()
            shifts.append(shift)
            scales.append(torch.where(varies, 1 / spread, 0.0) / math.sqrt(rows.shape[1]))
        return cls(torch.cat(shifts), torch.cat(scales))

    def __call__(self, rows: Tensor) -> Tensor:
        return rows.sub(self.shift).mul_(self.scale)


def read_inputs(
    tasks: TaskBatch, options: SignatureOptions, kernel_name: str
) -> tuple[Tensor, Tensor]:
    """phi(x) [B, n, q], zero where the mask [B, n] keeps nothing, and the mask.

    The support's samples and, under ``signature: all``, the queries after them.
    Raises ``PluginError`` if tasks have none then.
    """
    x, mask = tasks.support_x, tasks.support_mask
    if options.signature == "all":
        if tasks.query_x is None:
            raise PluginError(
                f"task kernel {kernel_name!r}: signature: all reads query inputs, but "
                "the tasks have none; take signature: support"
            )
        x, mask = torch.cat([x, tasks.query_x], 1), torch.cat([mask, tasks.query_mask], 1)
    keep = mask > 0
    x = kept(x.reshape(*x.shape[:2], -1).to(torch.float64), keep)
    if options.normalize and not tasks.is_regression:
        lengths = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(_SHORTEST)
        # in place where the change to float64 made a copy: else x is the task's own
        x = x / lengths if x.dtype == tasks.support_x.dtype else x.div_(lengths)
    return x, keep


def read_labelled(
    tasks: TaskBatch, options: SignatureOptions, kernel_name: str
) -> tuple[Tensor, Tensor, Tensor]:
    """phi(x) [B, n, q] and what belongs to it, and the mask [B, n].

    In regression that is y [B, n, d]; in classification, [B, n, C] with 1 where a sample is of
    a class. Zero where the mask keeps nothing. Raises ``PluginError`` under ``signature: all``.
    """
    if options.signature == "all":
        raise PluginError(
            f"task kernel {kernel_name!r}: signature: all with a joint embedding of "
            "(x, y) needs labels, which a target's queries do not show; take "
            "signature: support, or embedding: fourier"
        )
    x, keep = read_inputs(tasks, options, kernel_name)
    if tasks.is_regression:
        return x, kept(tasks.support_y.to(torch.float64), keep), keep
    return x, F.one_hot(tasks.support_y, tasks.outputs).to(x.dtype) * keep[..., None], keep


def read_pairs(
    tasks: TaskBatch, options: SignatureOptions, kernel_name: str
) -> tuple[list[Tensor], Tensor]:
    """(x, y) of each sample as two parts [B, n, columns], and the mask [B, n].

    In classification a class id is a name, so what it names stands in its place: the mean
    feature of the class within the task. Renumbering classes therefore changes nothing.
    """
    x, y, keep = read_labelled(tasks, options, kernel_name)
    return [x, y if tasks.is_regression else y @ class_means(x, y)], keep


def read_samples(
    tasks: TaskBatch, options: SignatureOptions, kernel_name: str
) -> tuple[list[Tensor], Tensor]:
    """What a sample is: ``read_pairs`` in regression, phi(x) as the one part in classification."""
    if tasks.is_regression:
        return read_pairs(tasks, options, kernel_name)
    x, keep = read_inputs(tasks, options, kernel_name)
    return [x], keep


def class_means(x: Tensor, member: Tensor) -> Tensor:
    """[B, C, q]: means of x [B, n, q] by class, of which member [B, n, C] tells; zero for a
    class without samples."""
    return member.mT @ x / member.sum(1).clamp(min=1)[..., None]


def masked_mean(values: Tensor, keep: Tensor) -> Tensor:
    """[B, w]: means of [B, n, w] over the samples that the mask [B, n] keeps."""
    return kept(values, keep).sum(1) / keep.sum(1, keepdim=True)


def kept(values: Tensor, keep: Tensor) -> Tensor:
    """values [B, n, w], zero where the mask [B, n] keeps nothing, NaN or not."""
    return values if bool(keep.all()) else torch.where(keep[..., None], values, 0.0)


def queries_as_support(tasks: TaskBatch, kernel_name: str, embedding: str) -> TaskBatch:
    """The same tasks by other samples, for embeddings that are learned from both.

    Raises ``PluginError`` for tasks without queries.
    """
    if tasks.query_x is None or tasks.query_y is None:
        raise PluginError(
            f"task kernel {kernel_name!r}: embedding: {embedding} is fitted on the support "
            "and the queries of bank tasks, and these have no queries"
        )
    return replace(
        tasks, support_x=tasks.query_x, support_y=tasks.query_y, support_mask=tasks.query_mask
    )


def in_blocks(embed: Callable[[TaskBatch], Tensor], tasks: TaskBatch) -> Tensor:
    """``embed`` of the tasks, some at a time: what is made of their samples stays small."""
    block = max(1, _BLOCK // max(1, tasks.support_x[0].numel()))
    return torch.cat([embed(tasks[i : i + block]) for i in range(0, len(tasks), block)])
