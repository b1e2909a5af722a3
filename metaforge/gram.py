"""The kernel matrix of a bank: signatures once, K lazily.

Symbols: N bank tasks, p the width of a signature. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import torch
from torch import Tensor

from metaforge import memory
from metaforge.contracts import GramOperator, TaskKernel
from metaforge.errors import DataError
from metaforge.phi import DataPhi
from metaforge.tasks import TaskBatch, TaskSource, iterate_bank
from metaforge.threads import every_core

#: Bank tasks that a kernel is fitted on, at most.
FIT_TASKS = 1000
#: Bank tasks whose pairs tell what a kernel finds alike.
_PAIRED = 500
#: Rows and columns of a tile of K.
_TILE = 1024
#: What to do where K does not fit in memory.
_ADVICE = (
    "take a smaller bank.size, kernel: {use: linear} (of finite rank, solved without the "
    "matrix) or weighting: {use: uniform}"
)


class KernelGram(GramOperator):
    """K of the bank from its signatures [N, p], tile by tile."""

    def __init__(self, kernel: TaskKernel, signatures: Tensor, phi: DataPhi | None = None):
        self.kernel, self.phi = kernel, phi or DataPhi()
        self.n_tasks, self.kernel_name = len(signatures), kernel.name
        self._signatures = signatures

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """K, exactly symmetric off its diagonal tiles; half of the tiles are computed.

        Raises ``DataError`` where it does not fit in memory.
        """
        n, device = self.n_tasks, self._signatures.device
        memory.require(*matrix_memory(n, device, self.kernel_name, dtype.itemsize), _ADVICE)
        matrix = torch.empty(n, n, dtype=dtype, device=device)
        tiles = _lower_tiles(n)
        with every_core(), self.kernel.context.progress("kernel matrix", len(tiles)) as advance:
            for rows, columns in tiles:
                tile = self.block(rows, columns)
                matrix[rows, columns] = tile
                matrix[columns, rows] = tile.T
                advance()
        return matrix

    def block(self, rows: slice | Tensor, columns: slice | Tensor) -> Tensor:
        return self.kernel.gram(self._signatures[rows], self._signatures[columns])

    def diag(self) -> Tensor:
        return self.kernel.diag(self._signatures)

    def similarity(self) -> dict[str, float | None]:
        """Of ``k(D, D') / sqrt(k(D, D) k(D', D'))`` over the bank's first tasks: ``similarity``,
        the median over pairs, near 1 where the kernel tells none apart; ``nearest``, the median
        over tasks of the largest, near 0 where it finds none alike. None for one task."""
        n = min(self.n_tasks, _PAIRED)
        if n == 1:
            return {"similarity": None, "nearest": None}
        some = slice(0, n)
        length = self.kernel.diag(self._signatures[some]).clamp(min=1e-300).sqrt()
        pairs = self.block(some, some) / length / length[:, None]
        rows, columns = torch.triu_indices(n, n, offset=1, device=pairs.device)
        similarity = float(pairs[rows, columns].median())
        nearest = pairs.fill_diagonal_(-torch.inf).amax(1).median()
        return {"similarity": similarity, "nearest": float(nearest)}

    def products(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Through features where there are any; else half of the tiles are computed, one at a
        time, those of ``dense``."""
        features = self.features()
        if features is not None:
            return [features @ (features.T @ vector) for vector in vectors]
        found = [torch.zeros_like(vector) for vector in vectors]
        for rows, columns in _lower_tiles(self.n_tasks):
            tile = self.block(rows, columns)
            for vector, product in zip(vectors, found, strict=True):
                product[rows] += tile @ vector[columns]
                if rows != columns:
                    product[columns] += tile.T @ vector[rows]
        return found

    def features(self) -> Tensor | None:
        return self.kernel.features(self._signatures)

    def signatures(self) -> Tensor:
        return self._signatures


def matrix_memory(
    n_tasks: int, device: torch.device, kernel_name: str, itemsize: int = 8
) -> tuple[int, torch.device, str]:
    """What ``memory.require`` is to be asked for K and its factor, which off the CPU is a second
    matrix."""
    copies = 1 if device.type == "cpu" else 2
    what = f"the matrix of task kernel {kernel_name!r} on bank.size: {n_tasks} tasks"
    return itemsize * copies * n_tasks**2, device, what


def _lower_tiles(n: int) -> list[tuple[slice, slice]]:
    """Rows and columns of the tiles on the diagonal and below it."""
    tiles = [slice(start, min(start + _TILE, n)) for start in range(0, n, _TILE)]
    return [(rows, columns) for i, rows in enumerate(tiles) for columns in tiles[: i + 1]]


def shown(tasks: TaskBatch, kernel: TaskKernel) -> TaskBatch:
    """What a kernel sees of tasks, of the bank's as of targets: never a query's label."""
    return tasks.without_query() if kernel.reads == "support" else tasks.without_query_labels()


def bank_gram(
    source: TaskSource,
    kernel: TaskKernel,
    n_tasks: int,
    generator: torch.Generator,
    phi: DataPhi | None = None,
) -> KernelGram:
    """Fit the kernel on the bank's first tasks and take every bank task's signature.

    Raises ``DataError`` for features and signatures that are not finite or, all together, do not
    fit in memory, and what the kernel raises.
    """
    phi = phi or DataPhi()
    sample = phi(source.batch("train", range(min(n_tasks, FIT_TASKS)), phi.view))
    _refuse_broken_features(sample, kernel.name)
    kernel.fit(sample, generator)
    bank = iterate_bank(source, n_tasks, phi.view)
    return KernelGram(kernel, _filled(bank, kernel, phi, n_tasks), phi)


def _filled(bank: Iterator[TaskBatch], kernel: TaskKernel, phi: DataPhi, n_tasks: int) -> Tensor:
    """[N, p]: the bank's signatures, in memory that is asked for once."""
    blocks = (signature(tasks, kernel, phi) for tasks in bank)
    first = next(blocks)
    memory.require(
        8 * n_tasks * first.shape[1],
        first.device,
        f"signatures of {first.shape[1]} numbers by task kernel {kernel.name!r} of "
        f"bank.size: {n_tasks} tasks",
        "take a smaller bank.size, or features or signatures of fewer numbers",
    )
    found, filled = first.new_empty(n_tasks, first.shape[1]), 0
    with kernel.context.progress("signatures of bank tasks", n_tasks) as advance:
        for block in chain([first], blocks):
            found[filled : filled + len(block)] = block
            filled += len(block)
            advance(len(block))
    return found


def signature(tasks: TaskBatch, kernel: TaskKernel, phi: DataPhi | None = None) -> Tensor:
    """[n, p]: signatures of tasks in phi's view; ``DataError`` where not finite."""
    seen = shown(tasks, kernel)
    found = kernel.signature(phi(seen) if phi else seen)
    refuse_broken(found, tasks, kernel.name)
    return found


def refuse_broken(
    rows: Tensor, tasks: TaskBatch, kernel_name: str, what: str = "signature"
) -> None:
    """``DataError`` that names the first task whose row of ``rows`` [B, p] is not finite."""
    broken = ~torch.isfinite(rows).all(1)
    if bool(broken.any()):
        ids = tasks.task_ids[broken].tolist()
        raise DataError(
            f"task kernel {kernel_name!r}: the {what} of task {ids[0]} is not finite "
            f"({len(ids)} of the {len(tasks)} tasks looked at); look for NaN, infinite or huge "
            "features in its samples"
        )


def _refuse_broken_features(sample: TaskBatch, kernel_name: str) -> None:
    """Before a kernel is fitted on them, after which every task's signature would be broken."""
    sides = [(sample.support_x, sample.support_mask)]
    if sample.query_x is not None:
        sides.append((sample.query_x, sample.query_mask))
    for x, mask in sides:
        sums = x.flatten(2).sum(2, dtype=torch.float64)  # not finite where a summand is not
        refuse_broken(torch.where(mask > 0, sums, 0.0), sample, kernel_name, "sum of features")
