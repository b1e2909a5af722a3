"""Supervised training of a backbone on the meta-train classes: what ``pretrain`` runs.

The task source offers labelled images, the backbone its network; the images may have
several labels (a letter, a typeface), and each label that the recipe names is learned by an
affine head on the features. The heads are thrown away.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaforge.components import Context
from metaforge.errors import DataError, NumericError, PluginError
from metaforge.labelled_images import LabelledImages, LabelledSource
from metaforge.pretrain_recipe import Pretraining
from metaforge.records import write_json
from metaforge.registry import create_choice
from metaforge.seeding import generator

#: An affine layer for each label, by the label's name.
Heads = dict[str, nn.Linear]

_BLOCK = 2048  # images a forward pass, where no gradient is needed
_WARM_UP = 0.15  # share of the steps before the peak learning rate


@runtime_checkable
class Trainable(Protocol):
    """A backbone that offers its module, and can write its weights.

    ``network`` maps ``[n, *x]`` to ``[n, width]``; ``features`` uses it in evaluation mode.
    """

    width: int
    fingerprint: str
    network: nn.Module

    def features(self, images: Tensor) -> Tensor: ...

    def save(self, path: Path, metadata: Any = None) -> None: ...


def pretrain(recipe: Pretraining, context: Context) -> dict[str, Any]:
    """Train, write the weights to ``recipe.output`` and a card beside them; the card.

    The card's accuracies: each head on held-out training images, and on the validation
    split's classes, which the backbone has never seen, the nearest class mean (cosine), means
    from one half of a class's images and the other half classified among all classes.

    Raises ``PluginError`` for data or a backbone that cannot be trained, ``DataError`` for an
    unknown label, ``NumericError`` if the loss stops being finite.
    """
    start = time.perf_counter()
    source, backbone = _parts(recipe, context)
    images = source.labelled_images("train").to(context.device)
    labels = {name: _numbered(_label(images, name)) for name in recipe.heads}
    images = replace(images, labels=labels)
    order = torch.randperm(len(images), generator=generator(recipe.seed, "held out"))
    n_held = max(1, round(recipe.held_out * len(order)))
    held, rows = order[:n_held].to(context.device), order[n_held:]
    heads = _train(recipe, backbone, images, rows, held, context)
    card = {
        "name": recipe.name,
        "weights": backbone.fingerprint,
        "data": source.fingerprint,
        "held_out": _head_accuracy(backbone, heads, images, held),
        "nearest_class_mean": nearest_class_mean(backbone, source.labelled_images("val"), recipe),
        "settings": recipe.model_dump(mode="json"),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - start, 1),
    }
    recipe.output.parent.mkdir(parents=True, exist_ok=True)
    backbone.save(recipe.output, {"name": recipe.name, "data": source.fingerprint})
    write_json(recipe.output.with_suffix(".json"), card)
    return card


def _parts(recipe: Pretraining, context: Context) -> tuple[LabelledSource, Trainable]:
    source = create_choice("dataset", recipe.data, context)
    if not isinstance(source, LabelledSource):
        raise PluginError(f"data: {recipe.data.use} offers no labelled_images to train on")
    backbone = create_choice("backbone", recipe.backbone, context)
    if not isinstance(backbone, Trainable):
        raise PluginError(f"backbone: {recipe.backbone.use} offers no network to train")
    return source, backbone


def _label(images: LabelledImages, name: str) -> Tensor:
    if name not in images.labels:
        known = ", ".join(images.labels)
        raise DataError(f"heads: the images have no label {name!r}; they have {known}")
    return images.labels[name]


def _numbered(labels: Tensor) -> Tensor:
    """The same classes as 0..C-1; -1 stays."""
    known = labels >= 0
    numbered = torch.full_like(labels, -1)
    numbered[known] = torch.unique(labels[known], return_inverse=True)[1]
    return numbered


def _train(
    recipe: Pretraining,
    backbone: Trainable,
    images: LabelledImages,
    rows: Tensor,
    held: Tensor,
    context: Context,
) -> Heads:
    """The trained heads; the network is trained in place. AdamW on a one-cycle schedule."""
    heads = _heads(backbone.width, images)
    modules = (backbone.network, *heads.values())
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)
    steps = max(1, len(rows) // recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.lr, total_steps=recipe.epochs * steps, pct_start=_WARM_UP
    )
    shuffle = generator(recipe.seed, "order")
    for epoch in range(recipe.epochs):
        backbone.network.train()
        order = rows[torch.randperm(len(rows), generator=shuffle)].to(context.device)
        total = torch.zeros((), device=context.device)
        for batch in order.split(recipe.batch)[:steps]:
            optimizer.zero_grad()
            loss = _loss(recipe, backbone, heads, images, batch)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        _report_epoch(epoch, recipe, total / steps, backbone, heads, images, held, context)
    return heads


def _heads(width: int, images: LabelledImages) -> Heads:
    """An affine layer for each label, all zeros, so that no random number is needed."""
    heads = {}
    for name, labels in images.labels.items():
        with torch.device("meta"):
            head = nn.Linear(width, int(labels.max()) + 1)
        heads[name] = head.to_empty(device=images.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return heads


def _loss(
    recipe: Pretraining,
    backbone: Trainable,
    heads: Heads,
    images: LabelledImages,
    rows: Tensor,
) -> Tensor:
    """The weighted sum of the heads' mean cross-entropies over the images that have the label."""
    features = backbone.network(images.inputs(rows))
    loss = features.new_zeros(())
    for name, weight in recipe.heads.items():
        y = images.labels[name][rows]
        summed = F.cross_entropy(
            heads[name](features),
            y,
            ignore_index=-1,
            reduction="sum",
            label_smoothing=recipe.label_smoothing,
        )
        loss = loss + weight * summed / (y >= 0).sum().clamp(min=1)
    return loss


def _report_epoch(
    epoch: int,
    recipe: Pretraining,
    loss: Tensor,
    backbone: Trainable,
    heads: Heads,
    images: LabelledImages,
    held: Tensor,
    context: Context,
) -> None:
    if not torch.isfinite(loss):
        raise NumericError(
            f"pre-training: the loss is {loss.item()} in epoch {epoch + 1}; lower lr ({recipe.lr})"
        )
    accuracy = _head_accuracy(backbone, heads, images, held)
    told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in accuracy.items())
    context.report(f"epoch {epoch + 1}/{recipe.epochs}: loss {loss.item():.3f}; held out: {told}")


def _features(backbone: Trainable, images: LabelledImages, rows: Tensor) -> Tensor:
    return torch.cat([backbone.features(images.inputs(some)) for some in rows.split(_BLOCK)])


@torch.no_grad()
def _head_accuracy(
    backbone: Trainable, heads: Heads, images: LabelledImages, rows: Tensor
) -> dict[str, float]:
    """Share of the rows with a label that its head gets right."""
    features = _features(backbone, images, rows)
    found = {}
    for name, head in heads.items():
        y = images.labels[name][rows]
        known = y >= 0
        right = (head(features[known]).argmax(-1) == y[known]).double()
        found[name] = right.mean().item()
    return found


@torch.no_grad()
def nearest_class_mean(
    backbone: Trainable, images: LabelledImages, recipe: Pretraining
) -> dict[str, float]:
    """For each of the recipe's labels with at least two classes among the images: accuracy of
    the nearest class mean of L2-normalised features, halves drawn by the recipe's seed."""
    device = next(backbone.network.parameters()).device
    images = images.to(str(device))
    features = F.normalize(_features(backbone, images, torch.arange(len(images))), dim=-1)
    order = torch.randperm(len(features), generator=generator(recipe.seed, "halves")).to(device)
    first, second = order.chunk(2)
    found = {}
    for name in recipe.heads:
        y = _numbered(_label(images, name))
        classes = int(y.max()) + 1
        if classes < 2:
            continue
        known = first[y[first] >= 0]
        sums = features.new_zeros(classes, features.shape[1]).index_add(
            0, y[known], features[known]
        )
        asked = second[y[second] >= 0]
        scores = features[asked] @ F.normalize(sums, dim=-1).T
        found[name] = (scores.argmax(-1) == y[asked]).double().mean().item()
    return found
