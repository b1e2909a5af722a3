"""A task as one vector: the mean of an embedding of its samples.

Symbols: B tasks, n samples of a task, q the width of phi(x), p that of a signature,
R random frequencies.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch
from metaforge_kernels.options import SignatureOptions

Kind = Literal["auto", "mean", "moments", "fourier", "joint", "contrast"]

#: Tasks embedded at a time, to bound the float64 copy of their samples.
_BLOCK = 256


class Embedding:
    """Maps tasks to signatures ``[B, p]`` in float64 (paper, section 4.2).

    =======  ===  ========================================================================
    mean     q    mean of phi(x), not re-normalised: the paper's choice
    moments  3q   mean, mean absolute value and mean square of phi(x), standardised
    fourier  2R   mean of psi(z), z = standardised phi(x)
    joint    2R   mean of psi(z), z = standardised (phi(x), y)
    =======  ===  ========================================================================

    with ``psi(z) = [cos(W z), sin(W z)] / sqrt(R)``, ``W ~ N(0, 1 / width^2)``: random
    Fourier features (Rahimi and Recht 2007) of ``exp(-|z - z'|^2 / (2 width^2))``, a
    characteristic kernel, so that the distance of two signatures estimates the maximum
    mean discrepancy of the tasks' samples (Gretton et al. 2012). Each part of z is
    divided by the root of its number of columns, so that phi(x) and y count alike.

    In classification a class id is a name, so ``joint`` puts in its place what it
    names: the mean feature of the class within the task. Renumbering classes therefore
    changes nothing.

    All but ``mean`` are fitted on a sample of bank tasks: ``moments`` takes the mean and
    standard deviation of its own columns, the others those of z, and W from the generator.
    ``contrast`` is a class of its own, on top of ``moments`` or ``joint``.

    Raises ``PluginError`` for ``joint`` with ``signature: all`` (a target's queries show
    no labels), for ``all`` on tasks without queries, and for use before ``fit``.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str, kind: Kind | None = None):
        self.options, self.kernel_name = options, kernel_name
        self._chosen = kind or options.embedding
        self._fitted: tuple[Tensor, ...] | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Standardise by the sample, draw the frequencies."""
        kind = self._kind(sample)
        if kind == "mean":
            return
        if kind == "moments":
            self._fitted = _standardization(_moments(*self._inputs(sample)))
            return
        if kind == "joint" and self.options.signature == "all":
            raise PluginError(
                f"task kernel {self.kernel_name!r}: signature: all with a joint embedding of "
                "(x, y) needs labels, which a target's queries do not show; take "
                "signature: support, or embedding: fourier"
            )
        parts, keep = self._parts(sample, kind)
        shift, scale = zip(*(_standardization(part[keep]) for part in parts), strict=True)
        columns = sum(part.shape[-1] for part in parts)
        frequencies = torch.randn(
            columns, self.options.frequencies, generator=generator, dtype=torch.float64
        )
        device = sample.support_x.device
        self._fitted = (
            torch.cat(shift),
            torch.cat(scale),
            frequencies.to(device) / self.options.width,
        )

    def __call__(self, tasks: TaskBatch) -> Tensor:
        blocks = range(0, len(tasks), _BLOCK)
        return torch.cat([self._embed(tasks[start : start + _BLOCK]) for start in blocks])

    def _embed(self, tasks: TaskBatch) -> Tensor:
        kind = self._kind(tasks)
        parts, keep = self._parts(tasks, kind)
        if kind == "mean":
            return _masked_mean(parts[0], keep)
        if self._fitted is None:
            raise unfitted(self.kernel_name, kind)
        if kind == "moments":
            shift, scale = self._fitted
            return (_moments(parts[0], keep) - shift) / scale
        shift, scale, frequencies = self._fitted
        angles = (torch.cat(parts, -1) - shift) / scale @ frequencies
        waves = torch.cat([_masked_mean(angles.cos(), keep), _masked_mean(angles.sin(), keep)], -1)
        return waves / math.sqrt(frequencies.shape[1])

    def _kind(self, tasks: TaskBatch) -> Kind:
        if self._chosen == "auto":
            return "joint" if tasks.is_regression else "mean"
        return self._chosen

    def _parts(self, tasks: TaskBatch, kind: str) -> tuple[list[Tensor], Tensor]:
        """What a sample is embedded by, each part [B, n, columns], and its mask [B, n]."""
        x, keep = self._inputs(tasks)
        if kind != "joint":
            return [x], keep
        if tasks.is_regression:
            y = torch.where(keep[..., None], tasks.support_y.to(torch.float64), 0.0)
            return [x, y], keep
        return [x, _class_means(x, tasks.support_y, keep, tasks.outputs)], keep

    def _inputs(self, tasks: TaskBatch) -> tuple[Tensor, Tensor]:
        x, mask = tasks.support_x, tasks.support_mask
        if self.options.signature == "all":
            if tasks.query_x is None:
                raise PluginError(
                    f"task kernel {self.kernel_name!r}: signature: all reads query inputs, but "
                    "the tasks have none; take signature: support"
                )
            x, mask = torch.cat([x, tasks.query_x], 1), torch.cat([mask, tasks.query_mask], 1)
        keep = mask > 0
        x = x.reshape(*x.shape[:2], -1).to(torch.float64)
        x = torch.where(keep[..., None], x, 0.0)
        if self.options.normalize and not tasks.is_regression:
            x = F.normalize(x, dim=-1)
        return x, keep


def unfitted(kernel_name: str, kind: str) -> PluginError:
    return PluginError(
        f"task kernel {kernel_name!r}: embedding: {kind} has to be fitted on bank tasks before "
        "it gives signatures; call fit(sample, generator) first"
    )


def _moments(x: Tensor, keep: Tensor) -> Tensor:
    """[B, 3q]: mean, mean absolute value and mean square of samples x [B, n, q]."""
    return torch.cat([_masked_mean(some, keep) for some in (x, x.abs(), x.square())], -1)


def _masked_mean(values: Tensor, keep: Tensor) -> Tensor:
    """[B, w]: means of [B, n, w] over the samples that the mask [B, n] keeps."""
    return torch.where(keep[..., None], values, 0.0).sum(1) / keep.sum(1, keepdim=True)


def _class_means(x: Tensor, labels: Tensor, keep: Tensor, n_classes: int) -> Tensor:
    """[B, n, q]: for each sample, the mean of its class's samples in its task."""
    member = F.one_hot(labels, n_classes).to(x.dtype) * keep[..., None]
    means = member.mT @ x / member.sum(1).clamp(min=1)[..., None]
    return member @ means


def _standardization(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Shift and divisor of each column of [m, w]; a constant column is only shifted."""
    spread = rows.std(0, correction=0)
    varies = spread > 1e-8 * rows.square().mean(0).sqrt()
    return rows.mean(0), torch.where(varies, spread, 1.0) * math.sqrt(rows.shape[1])
