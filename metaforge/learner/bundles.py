"""Bundles: what conditioning needs of a run, without its data, in one folder.

::

    bundle.json              run, options, versions, how the bank's tasks are drawn, checksums
    theta_hat.safetensors    phase 1's result
    bank.safetensors         rows of the training classes and index tables (metaforge.learner.banks)
    signatures.safetensors   of some bank tasks, to find out whether what is fitted anew is the same

The factor of the kernel matrix is left out and computed anew when it is first needed. No file is
ever executed: tensors and JSON.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from metaforge import __version__, environment, stages
from metaforge.components import Context
from metaforge.errors import DamagedFile, MetaforgeError, PluginError
from metaforge.learner import banks
from metaforge.learner.learner import Bank, Learner
from metaforge.metatrain import WarmStart
from metaforge.recipe.schema import Recipe
from metaforge.records import (
    digest,
    load_tensors,
    read_json,
    refuse_other_files,
    restoring,
    save_tensors,
    whole_folder,
    write_json,
)
from metaforge.run_files import Identity, Shape
from metaforge.seals import sealed
from metaforge.stages import Parts

#: Raised whenever a bundle of before cannot be read any more.
FORMAT = 1
FILES = ("theta_hat.safetensors", "bank.safetensors", "signatures.safetensors")
#: What a bundle's folder holds.
OWN_FILES = ("bundle.json", *FILES)
#: What conditioning reads of a recipe.
_SECTIONS = (
    *("name", "seed", "precision", "threads", "on_nan", "allow_unused"),
    *("inner", "bank", "meta_train", "kernel", "weighting", "condition"),
)
#: Bank tasks whose signatures are kept, and how far those fitted anew may be from them.
_CHECKED, _RTOL = 256, 1e-3


class BundleFile(Shape):
    """``bundle.json``."""

    format: int
    metaforge: str
    torch: str
    origin: dict[str, Any]
    components: dict[str, Identity]
    recipe: dict[str, Any]
    bank: dict[str, Any]
    files: dict[str, str] = Field(min_length=1)
    bytes: int


def estimate(learner: Learner) -> int:
    """Bytes that a bundle takes, about; those of signatures are few beside them."""
    theta = sum(value.nbytes for value in _state(learner).values())
    return theta + banks.size(learner.parts.source, range(learner.recipe.bank.size))


def write(learner: Learner, path: Path, *, force: bool = False) -> dict[str, Any]:
    """Write a bundle of the learner; what its ``bundle.json`` holds.

    Raises ``DataError`` where there is something at ``path`` already, or the disk fails.
    """
    recipe, parts = learner.recipe, learner.parts
    whole = whole_folder(path, force=force, replaces=OWN_FILES)
    with whole as folder, learner.at_work():
        save_tensors(folder / FILES[0], _state(learner))
        facts, tensors = banks.stored(parts.source, range(recipe.bank.size))
        save_tensors(folder / FILES[1], tensors)
        save_tensors(folder / FILES[2], _signatures(learner.bank(learner.shape.outputs)))
        told = recipe.model_dump(mode="json", by_alias=True, include=set(_SECTIONS))
        bundle = {
            "format": FORMAT,
            "metaforge": __version__,
            "torch": torch.__version__,
            "origin": learner.origin,
            "components": environment.components(recipe),
            "recipe": {**told, "data": {"use": recipe.data.use}},
            "bank": facts,
            "files": {name: digest(folder / name) for name in FILES},
            "bytes": sum((folder / name).stat().st_size for name in FILES),
        }
        write_json(folder / "bundle.json", sealed(bundle))
    return bundle


def from_bundle(path: Path, context: Context, device: str | None = None) -> Learner:
    """The learner of a bundle.

    Raises ``DamagedFile`` for a bundle that is not whole or of another format, ``PluginError``
    where a component is not here; what was written by other versions is told in ``notes``.
    """
    told = read_json(path / "bundle.json", BundleFile)
    if told["format"] != FORMAT:
        raise DamagedFile(
            f"{path}: a bundle of format {told['format']}, made by metaforge {told['metaforge']}; "
            f"this is {__version__}, which reads format {FORMAT}: make it anew (metaforge bundle)"
        )
    refuse_other_files(path, told["files"])
    with restoring(path, "make the bundle anew (metaforge bundle)"):
        recipe = Recipe.model_validate({**told["recipe"], "device": device or "auto"})
        context = stages.context_for(recipe, context)
        tensors, _ = load_tensors(path / FILES[1])
        parts = _parts(path, told, recipe, context, tensors)
        state, _ = load_tensors(path / FILES[0])
        start = WarmStart.of({n: v.to(context.device) for n, v in state.items()}, parts.theta)
        now = {"metaforge": __version__, "torch": torch.__version__}
        notes = [f"{name}: {told[name]} -> {now[name]}" for name in now if told[name] != now[name]]
        here = environment.here(told["components"])
        changed = environment.differences(told["components"], here)
        expected, _ = load_tensors(path / FILES[2])
        # Code of the same version that only looks otherwise: the numbers tell whether it matters.
        told_now = notes + [line for line in changed if ", source: " not in line]
        learner = Learner(parts, start, told["origin"], told_now)
        if expected:
            learner.checks.append(_Check(path, expected, notes + changed))
    return learner


def _parts(
    path: Path, told: dict[str, Any], recipe: Recipe, context: Context, tensors: Any
) -> Parts:
    try:
        return Parts.build(recipe, context, source=banks.restored(told["bank"], tensors, context))
    except MetaforgeError as error:
        if missing := environment.absent(told["components"], "metaforge"):
            raise PluginError("\n".join([str(error), *missing])) from error
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFile(
            f"{path}: its bank is not what this version of metaforge writes ({error!r}); make the "
            "bundle anew (metaforge bundle)"
        ) from error


def _state(learner: Learner) -> dict[str, torch.Tensor]:
    """theta_hat, with what its optimiser held where conditioning carries on from it."""
    start, carried = learner.start, learner.recipe.condition.optimizer_state == "meta-train"
    state = {f"params/{name}": value for name, value in start.theta.items()}
    state |= {f"extra/{name}": value for name, value in start.extra.items()}
    return state | (start.rule if carried else {})


def _signatures(bank: Bank) -> dict[str, torch.Tensor]:
    """Of some bank tasks, in float32; nothing for a weighting that needs none."""
    if not bank.parts.weighting.needs_gram:
        return {}
    found = bank.parts.gram.signatures()
    rows = torch.linspace(0, len(found) - 1, min(_CHECKED, len(found))).long()
    return {"rows": rows, "signatures": found[rows.to(found.device)].float()}


class _Check:
    """Holds what is fitted anew against a bundle's own signatures, once."""

    def __init__(self, path: Path, expected: dict[str, torch.Tensor], notes: list[str]):
        self.path, self.expected, self.notes = path, expected, notes

    def __call__(self, bank: Bank) -> None:
        """Raises ``DamagedFile`` where they are not alike."""
        found = bank.parts.gram.signatures().cpu()[self.expected["rows"]].float()
        wanted = self.expected["signatures"]
        if found.shape == wanted.shape and bool(torch.isfinite(found).all()):
            error = float((found - wanted).norm() / wanted.norm().clamp(min=1e-30))
            if error <= _RTOL:
                return
            told = f"differ by {100 * error:.3g} %"
        else:
            told = f"have shape {list(found.shape)}, written were {list(wanted.shape)}"
        why = "; what made it and what is here:\n  " + "\n  ".join(self.notes) if self.notes else ""
        raise DamagedFile(
            f"{self.path}: the signatures of its bank's tasks, made anew, {told}: it would recall "
            f"other tasks than its run{why}; make the bundle anew (metaforge bundle)"
        )
