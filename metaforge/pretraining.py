"""Supervised training of a backbone on the meta-train classes: what ``pretrain`` runs.

The task source offers labelled images, the backbone its network; the images may have
several labels (a letter, a typeface), and each label that the recipe names is learned by an
affine head on the features. The heads are thrown away.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from metaforge.components import Context
from metaforge.errors import DataError, PluginError
from metaforge.labelled_images import LabelledImages, LabelledSource
from metaforge.network_backbone import Trainable
from metaforge.pretrain_loop import Training, features_of_rows, head_accuracy, moving
from metaforge.pretrain_recipe import Pretraining
from metaforge.records import write_json
from metaforge.registry import create_choice
from metaforge.seeding import generator


def pretrain(recipe: Pretraining, context: Context) -> dict[str, Any]:
    """Train, write the weights to ``recipe.output`` and a card beside them; the card.

    The card's accuracies: each head on held-out training images; on the validation split's
    classes, which the backbone has never seen, ``few_shot``, after each epoch in its ``curve``,
    and the nearest class mean (cosine), means from one half of a class's images and the other
    half classified among all classes. Training that was stopped goes on after its last epoch.

    Raises ``PluginError`` for data or a backbone that cannot be trained, ``DataError`` for an
    unknown label or images that cannot be varied, ``NumericError`` if the loss stops being finite.
    """
    start = time.perf_counter()
    source, backbone = _parts(recipe, context)
    images = source.labelled_images("train").to(context.device)
    labels = {name: _numbered(_label(images, name)) for name in recipe.heads}
    images = replace(images, labels=labels)
    if message := moving(recipe).unfit_images(images.shape):
        raise DataError(message)
    val = source.labelled_images("val")
    order = torch.randperm(len(images), generator=generator(recipe.seed, "held out"))
    n_held = max(1, round(recipe.held_out * len(order)))
    held, rows = order[:n_held].to(context.device), order[n_held:]
    first = _label(val, next(iter(recipe.heads)))
    training = Training(recipe, backbone, images, rows, held, val, first, context)
    training.run(f"{source.fingerprint} {backbone.fingerprint}")
    card = {
        "name": recipe.name,
        "weights": backbone.fingerprint,
        "data": source.fingerprint,
        "held_out": head_accuracy(backbone, training.heads, images, held),
        "nearest_class_mean": nearest_class_mean(backbone, val, recipe),
        "few_shot": training.found[training.kept]["few_shot"] | training.episodes.told,
        "epoch": training.kept + 1,
        "curve": training.found,
        "settings": recipe.model_dump(mode="json"),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - start, 1),
    }
    backbone.save(recipe.output, {"name": recipe.name, "data": source.fingerprint})
    write_json(recipe.output.with_suffix(".json"), card)
    training.checkpoint.unlink(missing_ok=True)
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


@torch.no_grad()
def nearest_class_mean(
    backbone: Trainable, images: LabelledImages, recipe: Pretraining
) -> dict[str, float]:
    """For each of the recipe's labels with at least two classes among the images: accuracy of
    the nearest class mean of L2-normalised features, halves drawn by the recipe's seed."""
    device = next(backbone.network.parameters()).device
    images = images.to(str(device))
    features = F.normalize(features_of_rows(backbone, images, torch.arange(len(images))), dim=-1)
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
