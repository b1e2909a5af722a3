"""What ``precision: tf32`` and ``bf16`` change: products of a step, forward passes of networks.

Parameters, optimiser, solves, losses and scores keep float32 (kernels and alphas float64).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from metaforge.components import Context
from metaforge.contracts import InnerAlgorithm
from metaforge.errors import Problem, RecipeError
from metaforge.recipe.checks import ONE_PRECISION
from metaforge.recipe.schema import Recipe


@contextmanager
def steps(precision: str, device: torch.device) -> Iterator[None]:
    """In force while steps run: with tf32, float32 products on CUDA in TensorFloat-32 (11 bits of
    significand in the factors, sums in float32). What the process had is put back."""
    if precision != "tf32" or device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def forward_pass(context: Context) -> AbstractContextManager[object]:
    """Around a network's forward pass: autocast to bfloat16 where the run asks for it.

    What comes out is bfloat16 then, to be brought back by its taker.
    """
    if not context.mixed:
        return nullcontext()
    # without the cache: a cast made under no_grad would serve the pass that needs its graph
    kind = torch.device(context.device).type
    return torch.autocast(kind, torch.bfloat16, cache_enabled=False)


def refuse(recipe: Recipe, inner: InnerAlgorithm) -> None:
    """Raise ``RecipeError`` where the inner algorithm computes in one precision alone."""
    if recipe.precision == "bf16" and not inner.mixed_precision:
        raise RecipeError([Problem("precision", ONE_PRECISION.format(recipe.inner.use))])
