"""A task as one vector: the mean of an embedding of its samples.

Symbols: B tasks, n samples of a task, q the width of phi(x), p that of a signature,
R random frequencies.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from metaforge.tasks import TaskBatch
from metaforge_kernels.maps import SignatureMap
from metaforge_kernels.options import SignatureOptions
from metaforge_kernels.samples import (
    Standardization,
    in_blocks,
    masked_mean,
    read_inputs,
    read_pairs,
)

Kind = Literal["mean", "moments", "fourier", "joint"]


class Embedding(SignatureMap):
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
    divided by the root of its number of columns, so that phi(x) and y count alike; in
    classification y is the mean feature of the sample's class within the task.

    All but ``mean`` are fitted on a sample of bank tasks: ``moments`` takes the mean and
    standard deviation of its own columns, the others those of z, and W from the generator.

    Raises ``PluginError`` for ``joint`` with ``signature: all`` (a target's queries show
    no labels), for ``all`` on tasks without queries, and for use before ``fit``.
    """

    def __init__(self, options: SignatureOptions, kernel_name: str, kind: Kind):
        super().__init__(options, kernel_name)
        self._kind = kind
        self._standardize: Standardization | None = None
        self._frequencies: Tensor | None = None

    def fit(self, sample: TaskBatch, generator: torch.Generator) -> None:
        """Standardise by the sample, draw the frequencies."""
        if self._kind == "mean":
            return
        if self._kind == "moments":
            self._standardize = Standardization.of(in_blocks(self._moments, sample))
            return
        parts, keep = self._parts(sample)
        self._standardize = Standardization.of(*(part[keep] for part in parts))
        shape = sum(part.shape[-1] for part in parts), self.options.frequencies
        frequencies = torch.randn(*shape, generator=generator, dtype=torch.float64)
        self._frequencies = frequencies.to(sample.support_x.device) / self.options.width

    def __call__(self, tasks: TaskBatch) -> Tensor:
        if self._kind == "mean":
            return in_blocks(lambda some: masked_mean(*self._inputs(some)), tasks)
        standardize = self._standardize
        if standardize is None:
            raise self.unfitted(self._kind)
        if self._kind == "moments":
            return in_blocks(lambda some: standardize(self._moments(some)), tasks)
        return in_blocks(lambda some: self._waves(*self._parts(some)), tasks)

    def _inputs(self, tasks: TaskBatch) -> tuple[Tensor, Tensor]:
        return read_inputs(tasks, self.options, self.kernel_name)

    def _parts(self, tasks: TaskBatch) -> tuple[list[Tensor], Tensor]:
        if self._kind == "joint":
            return read_pairs(tasks, self.options, self.kernel_name)
        x, keep = self._inputs(tasks)
        return [x], keep

    def _moments(self, tasks: TaskBatch) -> Tensor:
        """[B, 3q], as they are."""
        x, keep = self._inputs(tasks)
        return torch.cat([masked_mean(some, keep) for some in (x, x.abs(), x.square())], -1)

    def _waves(self, parts: list[Tensor], keep: Tensor) -> Tensor:
        assert self._standardize is not None
        assert self._frequencies is not None
        angles = self._standardize(torch.cat(parts, -1)) @ self._frequencies
        waves = torch.cat([masked_mean(angles.cos(), keep), masked_mean(angles.sin(), keep)], -1)
        return waves / math.sqrt(self._frequencies.shape[1])
