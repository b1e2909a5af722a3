"""Phase 1 as a stage: resumed from its checkpoint, or taken from the cache whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from metaforge.cache import held
from metaforge.console import Console
from metaforge.errors import DamagedFile, NumericError
from metaforge.metatrain import MetaTrainer, Progress, WarmStart
from metaforge.records import keep, load_tensors, save_tensors, tensor_bytes
from metaforge.run_files import Cached, MetaTrained, TrainingState
from metaforge.rundir import RunDir
from metaforge.stages import Parts

Observe = Callable[..., None]


def warm_start(parts: Parts, folder: RunDir, console: Console, observe: Observe) -> WarmStart:
    """theta_hat, with what the optimiser held beside it.

    Looked for in the run's own artifacts, then in the cache under the key of everything
    that goes in; else trained, from the run's checkpoint if there is one.
    """
    own = folder.artifacts / "theta_hat.safetensors"
    cached = parts.context.cache_dir / "metatrain" / f"{parts.metatrain_key()}.safetensors"
    tensors = parts.ranks.from_first(lambda: _earlier(own, cached, folder, console))
    if tensors is None:
        progress = _train(parts, folder, console, observe)
        tensors = progress.best
        if parts.ranks.first:
            _keep(progress, own, cached, console)
    here = {name: value.to(parts.context.device) for name, value in tensors.items()}
    return WarmStart.of(here, parts.theta)


def _earlier(own: Path, cached: Path, folder: RunDir, console: Console) -> dict[str, Tensor] | None:
    """What was trained before, by this run or another, whose curve becomes this run's too."""
    if own.exists():
        tensors, meta = load_tensors(own, MetaTrained)
        _put_right(folder, meta["steps"])
        return tensors
    with held(cached) as there:
        if not there:
            return None
        try:
            tensors, meta = load_tensors(cached, Cached)
        except DamagedFile:
            console.line(f"note: {cached} is damaged, making it anew")
            return None
    folder.lines("metrics.jsonl").replace(_curve(meta.pop("curve")))
    save_tensors(own, tensors, meta)
    console.line(
        f"meta-train: from the cache ({meta['steps']} steps, best validation "
        f"{meta['best_score']:.4f} at step {meta['best_step']})"
    )
    return tensors


def _put_right(folder: RunDir, steps: int) -> None:
    """Write the curve of phase 1 again, if it is not that of the checkpoint of its last step."""
    with suppress(DamagedFile):
        saved = _saved(folder.artifacts / "checkpoint.safetensors")
        if saved is None or saved[1]["step"] != steps:
            return
        metrics, curve = folder.lines("metrics.jsonl"), _curve(saved[1]["curve"])
        if metrics.records != curve:
            metrics.replace(curve)


def _curve(points: list[dict[str, float]]) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``."""
    return [{**point, "step": int(point["step"])} for point in points]


def _keep(progress: Progress, own: Path, cached: Path, console: Console) -> None:
    """In the run's folder, and in the cache where it is what a whole run would give."""
    meta = {
        "steps": progress.step,
        "best_step": progress.best_step,
        "best_score": progress.best_score,
        "skipped": progress.skipped,
    }
    save_tensors(own, progress.best, meta)
    if progress.ranks:
        curve = {**meta, "curve": progress.curve}
        keep(cached, tensor_bytes(progress.best, curve), console.line)


def _train(parts: Parts, folder: RunDir, console: Console, observe: Observe) -> Progress:
    trainer = MetaTrainer(
        parts.recipe, parts.source, parts.inner, parts.theta, parts.learned, parts.ranks
    )
    checkpoint = folder.artifacts / "checkpoint.safetensors"
    if saved := parts.ranks.from_first(lambda: _saved(checkpoint)):
        _restore(trainer, *saved)
    metrics = folder.lines("metrics.jsonl")
    metrics.replace(_curve(trainer.progress.curve))
    total = parts.recipe.meta_train.steps
    with console.stage("meta-train", total, trainer.progress.step) as advance:
        shown = trainer.progress.step

        def report(step: int, found: dict[str, float]) -> None:
            nonlocal shown
            metrics.append({"step": step, **found})
            observe("meta_step", step=step, metrics=found)
            advance(step - shown, f"validation {found['validation']:.4f}")
            shown = step

        trainer.run(lambda: _save(trainer, checkpoint) if parts.ranks.first else None, report)
    progress = trainer.progress
    if progress.skipped == total > 0:
        raise NumericError(
            f"meta-training: none of the {total} steps had a finite loss and gradient, so nothing "
            "was learned; lower inner.lr or meta_train.optimizer.lr"
        )
    console.line(
        f"meta-train: best validation {progress.best_score:.4f} at step {progress.best_step}"
    )
    if stuck := softmax_hint(parts, progress):
        console.line(stuck)
    return progress


def softmax_hint(parts: Parts, progress: Progress) -> str | None:
    """A loss that stays at ln(ways) is what a model that ends in a softmax looks like."""
    losses = [point["loss"] for point in progress.curve if "loss" in point]
    if parts.source.shape.kind != "classification" or len(losses) < 2:
        return None
    chance = math.log(parts.source.shape.outputs)
    if any(abs(loss - chance) > 0.02 * chance for loss in losses):
        return None
    return (
        f"hint: the loss stayed at ln(ways) = {chance:.3f}, chance level. Does the model end in "
        "a softmax? It should return logits. Otherwise raise inner.lr or meta_train.optimizer.lr"
    )


def _save(trainer: MetaTrainer, path: Path) -> None:
    progress = asdict(trainer.progress)
    best = progress.pop("best")
    now = trainer.optimizer.state()
    save_tensors(
        path,
        {
            f"{prefix}/{name}": value
            for prefix, tensors in (("now", now), ("best", best))
            for name, value in tensors.items()
        },
        progress,
    )


def _saved(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    return load_tensors(path, TrainingState) if path.exists() else None


def _restore(trainer: MetaTrainer, tensors: dict[str, Tensor], progress: dict[str, Any]) -> None:
    trainer.restore(Progress(**progress, best=_under(tensors, "best/")), _under(tensors, "now/"))


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
