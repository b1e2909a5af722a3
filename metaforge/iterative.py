"""Solves of ``A x = v`` that ask for products with A alone: refinement, conjugate gradients.

Each method is a generator over one block of right-hand sides, v [N, T]: it yields what it wants
multiplied by A and is sent the product, so that many blocks go on together and share the passes
over a matrix that is never held (``together``). A column stops by its own residual and is left
as it is from then on, so its bits are the same whatever the other columns are. Everything here is
float64. Symbols: N rows, T columns of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

#: Residuals that are asked for, ``|v - A x| / |v|``, and that a descent aims at.
TOLERANCE, _AIM = 1e-8, 0.5e-8
#: Iterations of a column, at most.
CAP = 1000
#: A residual that falls by less than this factor between two exact ones is not going to fall.
_STALLED = 0.5


@dataclass(frozen=True, eq=False)
class Solution:
    """x [N, T], and for each column the relative residual [T] and the iterations [T] it took."""

    x: Tensor
    residual: Tensor
    iterations: Tensor

    @property
    def converged(self) -> Tensor:
        """[T]: a residual that is not a number is none that was reached."""
        return self.residual <= TOLERANCE


Steps = Generator[Tensor, Any, Solution]


def together(
    methods: Sequence[Steps], products: Callable[[Sequence[Tensor]], list[Tensor]]
) -> list[Solution]:
    """Run every method to its end; ``products`` multiplies what all that go on ask for."""
    asked: dict[int, Tensor] = {}
    found: dict[int, Solution] = {}

    def go_on(number: int, answer: Tensor | None) -> None:
        try:
            asked[number] = methods[number].send(answer)
        except StopIteration as end:
            asked.pop(number, None)
            found[number] = end.value

    for number in range(len(methods)):
        go_on(number, None)
    while asked:
        answers = products(list(asked.values()))
        for number, answer in zip(list(asked), answers, strict=True):
            go_on(number, answer)
    return [found[number] for number in range(len(methods))]


class _Columns:
    """Where each column of a block stands: x, the exact residual, and whether it goes on."""

    def __init__(self, right: Tensor):
        self.right, self.x, self.residual = right, torch.zeros_like(right), right
        self.scale = self.size = _norms(right)
        self.open = self.scale > 0
        self.iterations = torch.zeros_like(self.scale)

    def settle(self, product: Tensor) -> None:
        """Take ``A x``; columns that are good enough, that stall or had their share stop."""
        residual = self.right - product
        size = _norms(residual)
        falls = (size > TOLERANCE * self.scale) & (size <= _STALLED * self.size)
        self.residual = torch.where(self.open, residual, self.residual)
        self.size = torch.where(self.open, size, self.size)
        self.open = self.open & falls & (self.iterations < CAP)

    def solution(self) -> Solution:
        relative = torch.where(self.scale == 0, 0.0, self.size / self.scale)
        return Solution(self.x, relative, self.iterations)


def refinement(right: Tensor, correct: Callable[[Tensor], Tensor]) -> Steps:
    """``x += correct(v - A x)``, where ``correct`` is a rough ``A^-1`` that treats each column of
    [N, T] by itself (Wilkinson 1963). Converges where ``|I - A correct|`` is below 1."""
    columns = _Columns(right)
    while bool(columns.open.any()):
        columns.x = torch.where(columns.open, columns.x + correct(columns.residual), columns.x)
        columns.iterations += columns.open
        columns.settle((yield columns.x))
    return columns.solution()


def conjugate_gradients(right: Tensor, precondition: Callable[[Tensor], Tensor]) -> Steps:
    """Conjugate gradients for a symmetric positive definite A (Hestenes and Stiefel 1952), with
    a preconditioner that is so too and treats each column by itself.

    The residual that the recursion carries drifts from the exact one; a column that thinks it is
    done is held to the exact one, and starts anew from there where that is too large.
    """
    columns = _Columns(right)
    while bool(columns.open.any()):
        yield from _descend(columns, precondition)
        columns.settle((yield columns.x))
    return columns.solution()


def _descend(
    columns: _Columns, precondition: Callable[[Tensor], Tensor]
) -> Generator[Tensor, Any, None]:
    active, x, residual = columns.open, columns.x, columns.residual
    direction = precondition(residual)
    slope = _dots(residual, direction)
    while bool(active.any()):
        product = yield direction
        step = torch.where(active, slope / _dots(direction, product), 0.0)
        x, residual = x + step * direction, residual - step * product
        columns.iterations += active
        unfinished = _norms(residual) > _AIM * columns.scale
        active = active & unfinished & (columns.iterations < CAP)
        next_way = precondition(residual)
        fresh = _dots(residual, next_way)
        direction = torch.where(active, next_way + fresh / slope * direction, direction)
        slope = torch.where(active, fresh, slope)
    columns.x = x


def _dots(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(0)


def _norms(a: Tensor) -> Tensor:
    return a.square().sum(0).sqrt()
