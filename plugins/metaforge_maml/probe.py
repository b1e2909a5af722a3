"""What a module does, found by running it once: more to be trusted than its layers' types."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from metaforge.errors import PluginError
from metaforge.tasks import TaskShape


@dataclass(frozen=True)
class Probe:
    """``transductive``: a row's output depends on the other rows. ``unreached``: parameters
    without influence on the output. ``operators``: names of the ATen operators it runs."""

    transductive: bool
    unreached: frozenset[str]
    operators: frozenset[str]

    def runs(self, fragment: str) -> bool:
        """Whether an operator's name holds a fragment (``batch_norm``, ``convolution``)."""
        return any(fragment in name for name in self.operators)


@torch.enable_grad()
def probe(module: nn.Module, shape: TaskShape) -> Probe:
    """Run a copy of the module (as it stands, buffers and mode) on four random rows.

    Raises ``PluginError`` if it does not map ``[n, *x]`` to ``[n, outputs]``.
    """
    module = copy.deepcopy(module)
    like = next(module.parameters())
    x = torch.randn(4, *shape.input_shape, generator=torch.Generator().manual_seed(0))
    x = x.to(like.device, like.dtype)
    recorder = _Recorder()
    try:
        with recorder:
            outputs = module(x)
        part = module(x[:2])
    except Exception as error:
        raise PluginError(
            f"maml: {type(module).__name__} failed on inputs of shape {list(x.shape)}: {error}"
        ) from error
    if not isinstance(outputs, torch.Tensor) or outputs.shape != (4, shape.outputs):
        found = list(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise PluginError(
            f"maml: {type(module).__name__} gives {found} for inputs of shape {list(x.shape)}; "
            f"expected [4, {shape.outputs}], one row of {shape.outputs} outputs a sample"
        )
    scale = outputs.abs().max()
    return Probe(
        bool(((outputs[:2] - part).abs().max() > 1e-3 * scale).item()),
        _unreached(module, outputs),
        frozenset(recorder.names),
    )


def _unreached(module: nn.Module, outputs: torch.Tensor) -> frozenset[str]:
    learned = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not outputs.requires_grad:
        return frozenset(learned)
    found = torch.autograd.grad(outputs.sum(), list(learned.values()), allow_unused=True)
    return frozenset(name for name, g in zip(learned, found, strict=True) if g is None)


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
