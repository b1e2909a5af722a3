"""A user's ``nn.Module`` made ready for an inner algorithm: built, probed, found fit.

What a module does is found by running it once, which is more to be trusted than the types
of its layers. ``who`` in each function is the algorithm that errors name.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from metaforge.components import Context
from metaforge.contracts import Model, Params
from metaforge.errors import PluginError
from metaforge.tasks import TaskBatch, TaskShape


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


def prepare(
    model: Model | nn.Module,
    shape: TaskShape,
    generator: torch.Generator,
    context: Context,
    *,
    who: str,
    allow_unused: bool = False,
) -> tuple[nn.Module, Probe]:
    """``build``, ``probe`` and ``hold_constant``: a module whose parameters that require
    gradients are what theta holds.

    Raises ``PluginError`` as those do, and for a ``Model`` that hides that it is transductive.
    """
    module = build(model, shape, generator, context, who=who)
    found = probe(module, shape, who=who)
    if isinstance(model, Model) and found.transductive and not model.transductive:
        raise PluginError(
            f"{who}: {type(model).__name__} says transductive = False, but a row's output "
            "depends on the other rows of its batch"
        )
    hold_constant(module, found.unreached, allowed=allow_unused, who=who)
    return module, found


def refuse_other_models(model: Any, who: str) -> None:
    """Raise ``PluginError`` unless it is a ``Model`` or an ``nn.Module``."""
    if not isinstance(model, Model | nn.Module):
        raise PluginError(f"{who}: model is a Model or an nn.Module, not {type(model).__name__}")


def build(
    model: Model | nn.Module,
    shape: TaskShape,
    generator: torch.Generator,
    context: Context,
    *,
    who: str,
) -> nn.Module:
    """A fresh module of a ``Model``, or a copy of the one given, on the context's device and
    in its precision, as after ``eval()``.

    Raises ``PluginError`` for a module without parameters, or with running statistics that
    have seen no data.
    """
    module = model.build(shape, generator) if isinstance(model, Model) else copy.deepcopy(model)
    if next(module.parameters(), None) is None:
        raise PluginError(f"{who}: {type(module).__name__} has no parameters")
    module = module.to(context.device, getattr(torch, context.dtype)).eval()
    _refuse_unseen_statistics(module, who)
    return module


@torch.enable_grad()
def probe(module: nn.Module, shape: TaskShape, *, who: str) -> Probe:
    """Run a copy of the module (as it stands, buffers and mode) on four random rows.

    Raises ``PluginError`` if it does not map ``[n, *x]`` to ``[n, outputs]``.
    """
    module = copy.deepcopy(module)
    x = random_inputs(module, shape, 4)
    recorder = _Recorder()
    try:
        with recorder:
            outputs = module(x)
        part = module(x[:2])
    except Exception as error:
        raise PluginError(
            f"{who}: {type(module).__name__} failed on inputs of shape {list(x.shape)}: {error}"
        ) from error
    if not isinstance(outputs, Tensor) or outputs.shape != (4, shape.outputs):
        found = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise PluginError(
            f"{who}: {type(module).__name__} gives {found} for inputs of shape {list(x.shape)}; "
            f"expected [4, {shape.outputs}], one row of {shape.outputs} outputs a sample"
        )
    scale = outputs.abs().max()
    return Probe(
        bool(((outputs[:2] - part).abs().max() > 1e-3 * scale).item()),
        unreached(module, outputs),
        frozenset(recorder.names),
    )


def random_inputs(module: nn.Module, shape: TaskShape, n: int) -> Tensor:
    """[n, *x], the same for every call, on the module's device and in its precision."""
    like = next(module.parameters())
    x = torch.randn(n, *shape.input_shape, generator=torch.Generator().manual_seed(0))
    return x.to(like.device, like.dtype)


@torch.no_grad()
def without_head(module: nn.Module, x: Tensor) -> nn.Module | None:
    """A copy whose last layer, the affine one that gives the outputs for inputs x, passes on what
    it sees; None where a module does not end in one."""
    layers = [(n, one) for n, one in module.named_modules() if isinstance(one, nn.Linear)]
    name, last = layers[-1] if layers else ("", None)
    if last is None or not name:
        return None
    seen: list[Tensor] = []
    hook = last.register_forward_hook(lambda _, __, output: seen.append(output))
    outputs = module(x)
    hook.remove()
    if not seen or not torch.equal(seen[-1], outputs):
        return None
    body = copy.deepcopy(module)
    parent, _, own = name.rpartition(".")
    setattr(body.get_submodule(parent), own, nn.Identity())
    return body


def unreached(module: nn.Module, outputs: Tensor) -> frozenset[str]:
    """The module's parameters that require gradients and that ``outputs`` does not depend on."""
    learned = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not outputs.requires_grad:
        return frozenset(learned)
    found = torch.autograd.grad(outputs.sum(), list(learned.values()), allow_unused=True)
    return frozenset(name for name, g in zip(learned, found, strict=True) if g is None)


def hold_constant(
    module: nn.Module, unreached: Collection[str], *, allowed: bool, who: str
) -> None:
    """Freeze what theta cannot hold, if that is allowed.

    Raises ``PluginError`` that names the parameters and the option that allows them.
    """
    frozen = [name for name, value in module.named_parameters() if not value.requires_grad]
    unused = sorted(unreached)
    if (frozen or unused) and not allowed:
        what = [f"frozen: {', '.join(frozen)}"] * bool(frozen)
        what += [f"without influence on the output: {', '.join(unused)}"] * bool(unused)
        raise PluginError(
            f"{who}: {type(module).__name__} has parameters that cannot adapt ({'; '.join(what)}); "
            "allow_unused: true holds them constant"
        )
    for name in unused:
        module.get_parameter(name).requires_grad_(False)
    if not any(value.requires_grad for value in module.parameters()):
        raise PluginError(f"{who}: {type(module).__name__} has no parameter left to adapt")


def parameters(module: nn.Module) -> Params:
    """Copies of the values that theta starts from."""
    return {
        name: value.detach().clone()
        for name, value in module.named_parameters()
        if value.requires_grad
    }


@torch.no_grad()
def with_values(module: nn.Module, state: Params) -> nn.Module:
    """A copy of the module that holds one task's adapted values, leading axis 1."""
    module = copy.deepcopy(module)
    for name, value in module.named_parameters():
        if name in state:
            value.copy_(state[name][0])
    return module


@torch.no_grad()
def features(module: nn.Module, params: Params, x: Tensor) -> Tensor | None:
    """[n, w]: what the module's last affine layer sees of inputs x [n, *x], with the values that
    ``params`` holds in the place of its own; None for a module without such a layer."""
    seen: list[Tensor] = []
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        for layer in layers
    ]
    try:
        own = {name: params[name] for name, _ in module.named_parameters() if name in params}
        functional_call(module, own, (x.to(next(iter(params.values())).dtype),))
    finally:
        for hook in hooks:
            hook.remove()
    return seen[-1].flatten(1) if seen else None


def refuse_other_tasks(shape: TaskShape | None, tasks: TaskBatch, who: str) -> None:
    """Raise ``PluginError`` unless the tasks fit the shape that ``init`` was told."""
    if shape is None:
        raise PluginError(f"{who}: call init(shape, generator) first; it fixes the tasks' shape")
    if tasks.outputs != shape.outputs:
        raise PluginError(
            f"{who}: initialised for {shape.outputs} outputs (ways), but the tasks have "
            f"{tasks.outputs}; its last layer serves one number only"
        )


def _refuse_unseen_statistics(module: nn.Module, who: str) -> None:
    """Running statistics that have seen no data are 0 and 1: no normalisation at all."""
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats:
            seen = layer.num_batches_tracked
            if seen is not None and not seen.item():
                raise PluginError(
                    f"{who}: batch normalisation {name!r} has running statistics that have seen "
                    "no data. Make it with track_running_stats=False to use each batch's own "
                    "(transductive), or train the module first"
                )


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
