"""Signatures of 30,000 bank tasks and their kernel with 100 targets, beside the matrix products
that they need.

A floor is those products alone, float64 and in blocks as here: sums over samples as products
with their weights, the embedding's own, and the one of the bank's signatures with the targets'.
What no product does (reading, normalising, cosines, exponentials) stands on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.harness import Row, compare
from metaforge.tasks import TaskBatch
from metaforge_kernels.gaussian import Gaussian
from metaforge_kernels.options import GaussianOptions

CPU_ONLY = True
TASKS, TARGETS, FITTED = 30_000, 100, 1000
#: Bank tasks of ``set``, whose work grows with the pairs of samples: a tenth, at a tenth the time.
SETS = 3000
WAYS, QUERIES, WIDTH = 5, 15, 64
#: Of fourier and joint, and of learned, by default.
FREQUENCIES, HIDDEN = 256, 64
#: Tasks of a block of the floor.
BLOCK = 1000
#: Those whose products take most of their time, and the least share of it.
PROMISED = {"learned": 1 / 1.5}
EMBEDDINGS = ("mean", "moments", "classes", "fourier", "joint", "set", "contrast", "learned")


class Product(NamedTuple):
    """``[count, rows, inner] x [count, inner, columns]``."""

    count: int
    rows: int
    inner: int
    columns: int


def rows() -> Iterator[Row]:
    return (row(shots, embedding) for shots in (1, 5) for embedding in EMBEDDINGS)


def row(shots: int, embedding: str) -> Row:
    n_tasks = SETS if embedding == "set" else TASKS
    bank, targets = _tasks(n_tasks, shots, 0).without_query(), _tasks(TARGETS, shots, 1)
    kernel = Gaussian(GaussianOptions(embedding=embedding, gamma=1.0))  # type: ignore[arg-type]
    kernel.fit(_tasks(FITTED, shots, 2, QUERIES), torch.Generator().manual_seed(0))
    cross = kernel.signature(targets)

    def ours() -> Tensor:
        return kernel.gram(kernel.signature(bank), cross)

    floor = _floor(embedding, n_tasks, WAYS * shots, cross.shape[1])
    name = "floor: matrix products"
    return compare(
        f"signature {embedding}, {WAYS}-way {shots}-shot",
        {name: floor, f"metaforge {embedding}": ours},
        peer=name,
        target={f"metaforge {embedding}": PROMISED[embedding]} if embedding in PROMISED else {},
        note=f"{n_tasks} tasks x {TARGETS} targets, {WIDTH} numbers a sample",
        rounds=5,
    )


def _tasks(n_tasks: int, shots: int, seed: int, queries: int = 0) -> TaskBatch:
    """Samples about class centres about one of 20 task centres."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(20, 1, 1, WIDTH, generator=torch.Generator().manual_seed(9))
    kinds = torch.randint(20, (n_tasks,), generator=random)
    classes = centres[kinds] + torch.randn(n_tasks, 1, WAYS, WIDTH, generator=random)

    def draw(each: int) -> tuple[Tensor, Tensor]:
        noise = torch.randn(n_tasks, each, WAYS, WIDTH, generator=random)
        y = torch.arange(WAYS).repeat(each).expand(n_tasks, -1).contiguous()
        return (classes + noise).flatten(1, 2), y

    others = draw(queries) if queries else (None, None)
    return TaskBatch(*draw(shots), *others, outputs=WAYS)


def _floor(embedding: str, n_tasks: int, samples: int, width: int) -> Callable[[], None]:
    """The products of a block, as often as there are blocks, and that with the targets."""
    mean = Product(BLOCK, 1, samples, WIDTH)
    classes = [
        Product(BLOCK, WAYS, samples, WIDTH),
        Product(BLOCK, samples, WAYS, WIDTH),
        Product(BLOCK, WAYS, WIDTH, WAYS),
    ]
    of_block = {
        "mean": [mean],
        "moments": [mean] * 3,
        "classes": classes,
        "fourier": [
            Product(1, BLOCK * samples, WIDTH, FREQUENCIES),
            *[Product(BLOCK, 1, samples, FREQUENCIES)] * 2,
        ],
        "joint": [
            *classes[:2],
            Product(1, BLOCK * samples, 2 * WIDTH, FREQUENCIES),
            *[Product(BLOCK, 1, samples, FREQUENCIES)] * 2,
        ],
        "set": [Product(1, BLOCK * samples, WIDTH + 2, TARGETS * samples)],
        "contrast": [*[mean] * 3, *classes, Product(1, BLOCK, 7 * WIDTH + 14, width)],
        "learned": [
            *[Product(1, BLOCK * samples, WIDTH, HIDDEN)] * 2,
            Product(BLOCK, 1, samples, HIDDEN),
            Product(1, BLOCK, HIDDEN, width),
        ],
    }[embedding]
    block = [_operands(product) for product in of_block]
    crossing = [] if embedding == "set" else [_operands(Product(1, n_tasks, width, TARGETS))]

    def products() -> None:
        for _ in range(n_tasks // BLOCK):
            for a, b in block:
                a @ b
        for a, b in crossing:
            a @ b

    return products


def _operands(product: Product) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    a = torch.randn(product.count, product.rows, product.inner, generator=random)
    b = torch.randn(product.count, product.inner, product.columns, generator=random)
    return a.double().squeeze(0), b.double().squeeze(0)
