"""Episodes around learn2learn's learners: ones made for a model, and ones given ready-made."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from metaforge import modules
from metaforge.errors import PluginError
from metaforge.tasks import TaskShape
from metaforge.taskwise import Rows
from metaforge_learn2learn import head, peer
from metaforge_learn2learn.episode import Episode
from metaforge_learn2learn.options import Learn2learnOptions


def make(module: nn.Module, shape: TaskShape, options: Learn2learnOptions) -> Episode:
    """The options' algorithm around copies of a module, or of its head.

    theta has the module's own names; ``lr.NAME`` [like NAME] is MetaSGD's rates of the
    parameter NAME, ``transform.NAME.PART`` a matrix of GBML's transform of its gradient.

    Raises ``PluginError`` for a module or parameters that the algorithm cannot serve.
    """
    if options.adapt == "head":
        features, part, place = head.split(module, shape)
    else:
        features, part, place = nn.Identity(), copy.deepcopy(module), ""
    _constants_to_buffers(part)
    own = [name for name, _ in part.named_parameters()]
    if not own:
        raise PluginError(
            f"learn2learn: adapt: {options.adapt}: {type(part).__name__} {place!r} has no "
            "parameter left to adapt"
        )
    full = [f"{place}.{name}" if place else name for name in own]
    learner, learned = _wrap(part, full, options)
    names = {f"features.{name}": name for name, _ in features.named_parameters()}
    names |= {f"learner.module.{a}": b for a, b in zip(own, full, strict=True)}
    names |= {f"learner.{name}": title for name, title in learned.items()}
    return Episode(features, learner, names)


def _wrap(
    module: nn.Module, titles: list[str], options: Learn2learnOptions
) -> tuple[nn.Module, dict[str, str]]:
    """The learner, and theta's names for what it learns besides the module's parameters, whose
    names in theta are ``titles``."""
    algorithms = peer.load().algorithms
    if options.algorithm == "MAML":
        return algorithms.MAML(module, lr=options.lr), {}
    if options.algorithm == "MetaSGD":
        _refuse_tied(module)
        rates = {f"lrs.{i}": f"lr.{title}" for i, title in enumerate(titles)}
        return algorithms.MetaSGD(module, lr=options.lr), rates
    like = next(module.parameters())
    learner = algorithms.GBML(module, _transform(options.transform), lr=options.lr)
    matrices = {}
    for i, title in enumerate(titles):
        own = f"compute_update.transforms_modules.{i}"
        for part, _ in learner.get_submodule(own).named_parameters():
            matrices[f"{own}.{part}"] = f"transform.{title}.{part.removeprefix('transform.')}"
    return learner.to(like.device, like.dtype), matrices


def _transform(name: str | None) -> Any:
    """What makes GBML's transform of one parameter's gradient."""
    package = peer.load()
    make = package.optim.MetaCurvatureTransform
    if name == "kronecker":
        make = package.optim.KroneckerTransform(package.nn.KroneckerLinear)

    def transform(parameter: Tensor) -> nn.Module:
        try:
            return make(parameter)
        except NotImplementedError as error:
            raise PluginError(
                f"learn2learn: GBML's {name or 'meta_curvature'} serves parameters of 1, 2 or 4 "
                f"axes; found one of shape {list(parameter.shape)}"
            ) from error

    return transform


def _constants_to_buffers(module: nn.Module) -> None:
    """learn2learn's learners try to adapt every parameter, but no buffer."""
    for layer in module.modules():
        for name, value in list(layer.named_parameters(recurse=False)):
            if not value.requires_grad:
                delattr(layer, name)
                layer.register_buffer(name, value.detach())


def _refuse_tied(module: nn.Module) -> None:
    every = dict(module.named_parameters(remove_duplicate=False))
    tied = sorted(every.keys() - dict(module.named_parameters()).keys())
    if tied:
        raise PluginError(
            f"learn2learn: MetaSGD would adapt only one of two tied parameters "
            f"({', '.join(tied)}, which another name holds too); use algorithm: MAML or GBML, "
            "which keep them tied"
        )


def is_learner(model: object) -> bool:
    """Whether it has learn2learn's interface: ``clone()`` and ``adapt(loss)``."""
    return callable(getattr(model, "clone", None)) and callable(getattr(model, "adapt", None))


def adopt(learner: nn.Module, shape: TaskShape, allow_unused: bool) -> Episode:
    """A learner given ready-made; theta has its parameters' names.

    Raises ``PluginError`` if it cannot be cloned, adapted and called, or if parameters have no
    influence on what it predicts then (unless ``allow_unused``, which freezes them).
    """
    names = {f"learner.{name}": name for name, _ in learner.named_parameters()}
    unreached = _unreached(Episode(nn.Identity(), learner, names), shape)
    modules.hold_constant(learner, unreached, allowed=allow_unused, who="learn2learn")
    return Episode(nn.Identity(), learner, names)


@torch.enable_grad()
def _unreached(episode: Episode, shape: TaskShape) -> frozenset[str]:
    """The learner's parameters without influence on what it predicts after two steps (the
    second meets what the first changed)."""
    learner = episode.learner
    x = modules.random_inputs(learner, shape, 4)
    y = torch.zeros(1, 4, dtype=torch.long, device=x.device)
    if shape.kind == "regression":
        y = x.new_zeros(1, 4, shape.outputs)
    try:
        _, outputs = episode(Rows(x, y, x.new_full((1, 4), 0.25)), x, 2, None)
    except Exception as error:
        raise PluginError(
            f"learn2learn: {type(learner).__name__} failed to clone(), adapt(loss) or predict: "
            f"{error}"
        ) from error
    return modules.unreached(learner, outputs)
