"""Recipes of ``metaforge pretrain``: how a backbone is trained on labelled images. Torch-free."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
)

from metaforge import registry
from metaforge.components import Context
from metaforge.errors import PluginError, Problem, RecipeError
from metaforge.options import Choice, choice, nested_kinds
from metaforge.recipe import overrides as overriding
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.document import Document, read
from metaforge.recipe.find import find_recipe
from metaforge.recipe.render import findings
from metaforge.recipe.resolve import Chosen, checked_options
from metaforge.recipe.schema import Section


class Pretraining(Section):
    """A backbone's supervised training on the meta-train classes."""

    name: str = Field("pretrain", description="names the weights in their card")
    seed: NonNegativeInt = Field(0, description="the root seed of every stream")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:1")
    threads: PositiveInt | None = Field(None, description="CPU threads; default: torch's own")
    data: Choice = choice("dataset", description="a task source that offers labelled images")
    backbone: Choice = choice("backbone", description="a backbone that offers its network")
    heads: Annotated[dict[str, PositiveFloat], Field(min_length=1)] = Field(
        description="which labels are learned, each by an affine head, and their losses' weights"
    )
    epochs: PositiveInt = Field(8, description="passes over the images")
    batch: PositiveInt = Field(256, description="images a step")
    lr: PositiveFloat = Field(3e-3, description="peak learning rate of the one-cycle schedule")
    weight_decay: NonNegativeFloat = Field(1e-4, description="AdamW's")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="of every head's loss")
    held_out: float = Field(
        0.05, gt=0, lt=1, description="share of the training images that accuracy is measured on"
    )
    output: Path = Field(
        description="safetensors file for the weights, relative to the working folder; "
        "a card goes beside it"
    )


@dataclass(frozen=True)
class LoadedPretraining:
    """A valid recipe, and the folder that the paths in its components start from."""

    recipe: Pretraining
    base_dir: Path


def load(source: str | Path, overrides: Iterable[str] = ()) -> LoadedPretraining:
    """Read, override and validate; raises ``RecipeError`` with every problem found."""
    path = find_recipe(source)
    document = read(path.read_text(encoding="utf-8"), str(path))
    overriding.apply(document, overriding.parse_all(overrides))
    base_dir = Path(os.path.abspath(path)).parent
    problems: list[Problem] = []
    recipe = None
    try:
        recipe = Pretraining.model_validate_json(json.dumps(document.data), strict=True)
    except ValidationError as error:
        found = findings(error, Pretraining, document.data)
        problems = [document.problem(key, message) for key, message in found]
    problems += _component_problems(document, base_dir)
    if recipe is not None:
        problems += _output_problems(document, recipe.output)
    if problems or recipe is None:
        raise RecipeError(problems)
    return LoadedPretraining(recipe, base_dir)


def _component_problems(document: Document, base_dir: Path) -> list[Problem]:
    """What is wrong with the options of the data and the backbone, and with the data."""
    problems: list[Problem] = []
    chosen: list[Chosen] = []
    for section, kind in nested_kinds(Pretraining).items():
        given = document.data.get(section)
        if not isinstance(given, dict) or not isinstance(given.get("use"), str):
            continue  # the schema's own finding
        try:
            component = registry.get(kind, given["use"])
            options = {key: value for key, value in given.items() if key != "use"}
            chosen.append(
                Chosen((section,), component, checked_options(component, options, base_dir))
            )
        except PluginError as error:
            problems.append(document.problem((section, "use"), str(error), error.exit_code))
        except RecipeError as error:
            problems += [
                Problem(f"{section}.{p.path}", p.message, _where(document, section, p), p.code)
                for p in error.problems
            ]
    seed = document.data.get("seed", 0)
    context = Context(seed if isinstance(seed, int) else 0, base_dir)
    return problems + component_problems(chosen, document, context)


def _where(document: Document, section: str, problem: Problem) -> str:
    return document.where((section, *problem.path.split(".")))


def _output_problems(document: Document, output: Path) -> list[Problem]:
    """A folder that cannot be written is found before the work, not after it."""
    folder = output.absolute().parent
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if output.is_dir():
        message = f"{output} is a folder, a file is needed"
    elif existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return []
    else:
        message = f"{existing} is not a folder that can be written; set another output"
    return [document.problem(("output",), message)]
