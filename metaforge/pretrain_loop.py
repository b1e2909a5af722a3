"""The training of a backbone: epochs, what is measured after each, and going on after a stop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metaforge import augmentation, few_shot
from metaforge.augmentation import Moves
from metaforge.components import Advance, Context
from metaforge.embedding import block_size, in_form
from metaforge.errors import NumericError
from metaforge.image_options import Augment
from metaforge.labelled_images import LabelledImages
from metaforge.network_backbone import Trainable
from metaforge.pretrain_checkpoint import read, save
from metaforge.pretrain_recipe import Pretraining
from metaforge.records import write_atomic
from metaforge.seeding import generator
from metaforge.statistics import summary

#: An affine layer for each label, by the label's name.
Heads = dict[str, nn.Linear]

_BLOCK = 2048  # vectors a forward pass, where no gradient is needed
_WARM_UP = 0.15  # share of the steps before the peak learning rate


class Training:
    """AdamW on a one-cycle schedule, an epoch at a time; the network is trained in place.

    ``judged`` are the labels of the validation images that episodes are drawn of. ``found`` holds
    what each epoch came to, ``kept`` the number of the one whose weights are.
    Step j is a function of the seed and j, so that an epoch can be gone on from.
    """

    def __init__(
        self,
        recipe: Pretraining,
        backbone: Trainable,
        images: LabelledImages,
        rows: Tensor,
        held: Tensor,
        val: LabelledImages,
        judged: Tensor,
        context: Context,
    ):
        self.recipe, self.backbone, self.images = recipe, backbone, images
        self.rows, self.held, self.context = rows, held, context
        self.heads = fresh_heads(backbone.width, images)
        self.module = nn.ModuleList([backbone.network, *self.heads.values()])
        parameters = list(self.module.parameters())
        self.optimizer = torch.optim.AdamW(
            parameters, lr=recipe.lr, weight_decay=recipe.weight_decay
        )
        self.steps = max(1, len(rows) // recipe.batch)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            recipe.lr,
            total_steps=recipe.epochs * self.steps,
            pct_start=_WARM_UP,
        )
        self.val = val.to(context.device)
        asked = recipe.validation
        self.episodes = few_shot.draw(
            judged.cpu(), asked.episodes, asked.ways, asked.shots, asked.queries, recipe.seed
        )
        self.found: list[dict[str, Any]] = []
        self.kept = -1
        self.best: dict[str, Tensor] = {}

    @property
    def checkpoint(self) -> Path:
        return self.recipe.output.with_name(f".{self.recipe.output.name}.checkpoint")

    def run(self, digest: str) -> None:
        """Every epoch that is not done; then the weights are those to keep."""
        self.recipe.output.parent.mkdir(parents=True, exist_ok=True)
        settings = self.recipe.model_dump_json(exclude={"output", "name"})
        key = f"{settings} {digest} {torch.__version__} {self.context.device}"
        self._restore(key)
        shuffle = generator(self.recipe.seed, "order")
        total, done = self.recipe.epochs * self.steps, len(self.found) * self.steps
        with self.context.progress("training", total, done) as advance:
            for epoch in range(self.recipe.epochs):
                order = self.rows[torch.randperm(len(self.rows), generator=shuffle)]
                if epoch >= len(self.found):
                    self._epoch(epoch, order.to(self.context.device), advance)
                    save(self.checkpoint, key, self._state())
        if self.recipe.keep == "best":
            self.module.load_state_dict(self.best)

    def _epoch(self, epoch: int, order: Tensor, advance: Advance) -> None:
        self.backbone.network.train()
        total = torch.zeros((), device=self.context.device)
        for step, batch in enumerate(order.split(self.recipe.batch)[: self.steps]):
            self.optimizer.zero_grad()
            moves = self._moves(epoch * self.steps + step, len(batch))
            loss = loss_of(self.recipe, self.backbone, self.heads, self.images, batch, moves)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
            advance(1)
        self._judge(epoch, total / self.steps)

    def _moves(self, step: int, count: int) -> Moves | None:
        how = moving(self.recipe)
        if not how.moves:
            return None
        drawn = augmentation.draw(how, self.recipe.seed, "pretrain", np.array([step]), count)
        return Moves(*(part.to(self.context.device) for part in drawn))

    def _judge(self, epoch: int, loss: Tensor) -> None:
        recipe = self.recipe
        if not torch.isfinite(loss):
            raise NumericError(
                f"pre-training: the loss is {loss.item()} in epoch {epoch + 1}; lower lr "
                f"({recipe.lr})"
            )
        held_out = head_accuracy(self.backbone, self.heads, self.images, self.held)
        right = few_shot.accuracy(
            lambda rows: features_of_rows(self.backbone, self.val, rows), self.episodes
        )
        judged = summary(right.numpy())
        self.found.append(
            {
                "epoch": epoch + 1,
                "loss": loss.item(),
                "held_out": held_out,
                "few_shot": judged,
            }
        )
        lines = "".join(json.dumps(one) + "\n" for one in self.found)
        write_atomic(recipe.output.with_suffix(".metrics.jsonl"), lines.encode())
        told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in held_out.items())
        self.context.report(
            f"epoch {epoch + 1}/{recipe.epochs}: loss {loss.item():.3f}; held out: {told}; "
            f"few-shot on validation classes {100 * judged['mean']:.1f} %"
        )
        last = recipe.keep == "last"
        if last or self.kept < 0 or judged["mean"] >= self.found[self.kept]["few_shot"]["mean"]:
            self.kept = epoch
            state = {} if last else self.module.state_dict()
            self.best = {name: value.clone() for name, value in state.items()}

    def _state(self) -> dict[str, Any]:
        return {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "found": self.found,
            "kept": self.kept,
            "best": self.best,
        }

    def _restore(self, key: str) -> None:
        state = read(self.checkpoint, key, self.context)
        if state is None:
            return
        for name in ("module", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.found, self.kept, self.best = state["found"], state["kept"], state["best"]
        self.context.report(f"going on after epoch {len(self.found)}")


def moving(recipe: Pretraining) -> Augment:
    return Augment(crop=recipe.augment.crop, flip=recipe.augment.flip)


def fresh_heads(width: int, images: LabelledImages) -> Heads:
    """An affine layer for each label, all zeros, so that no random number is needed."""
    heads = {}
    for name, labels in images.labels.items():
        with torch.device("meta"):
            head = nn.Linear(width, int(labels.max()) + 1)
        heads[name] = head.to_empty(device=images.device)
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return heads


def loss_of(
    recipe: Pretraining,
    backbone: Trainable,
    heads: Heads,
    images: LabelledImages,
    rows: Tensor,
    moves: Moves | None = None,
) -> Tensor:
    """The weighted sum of the heads' mean cross-entropies over the images that have the label."""
    inputs = images.inputs(rows)
    if moves is not None:
        inputs = augmentation.moved(inputs, None, moves, recipe.augment.crop)
    features = backbone.network(backbone.prepare(in_form(inputs, backbone.images)))
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


def features_of_rows(backbone: Trainable, images: LabelledImages, rows: Tensor) -> Tensor:
    """[len(rows), width], a block at a time."""
    each = _BLOCK
    if len(images.shape) == 3:
        each = block_size(images.shape, backbone.images, images.device.type)
    blocks = (in_form(images.inputs(some), backbone.images) for some in rows.split(each))
    return torch.cat([backbone.features(block) for block in blocks])


@torch.no_grad()
def head_accuracy(
    backbone: Trainable, heads: Heads, images: LabelledImages, rows: Tensor
) -> dict[str, float]:
    """Share of the rows with a label that its head gets right."""
    features = features_of_rows(backbone, images, rows)
    found = {}
    for name, head in heads.items():
        y = images.labels[name][rows]
        known = y >= 0
        right = (head(features[known]).argmax(-1) == y[known]).double()
        found[name] = right.mean().item()
    return found
