"""Recipes of ``metaforge pretrain``: how a backbone is trained on labelled images. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from metaforge.components import Context
from metaforge.errors import Problem, RecipeError
from metaforge.options import Choice, choice
from metaforge.recipe import overrides as overriding
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.document import Document
from metaforge.recipe.loader import read_source
from metaforge.recipe.machine import device_problem, unusable
from metaforge.recipe.render import key_names
from metaforge.recipe.resolve import resolve
from metaforge.recipe.schema import Device, Recipe, Section


class Moving(Section):
    """How training images are varied: each time that one is seen, anew."""

    crop: NonNegativeInt = Field(
        0, description="a random crop of the image padded by so many zeros"
    )
    flip: bool = Field(False, description="left and right exchanged, at random")


class Validation(Section):
    """After each epoch, on classes that are not trained on: how well the nearest class mean of a
    few images tells the others. What there are fewer of than asked for is taken whole."""

    ways: int = Field(5, ge=2, description="classes of an episode")
    shots: PositiveInt = Field(1, description="images of a class that its mean is of")
    queries: PositiveInt = Field(15, description="images of a class that are classified")
    episodes: PositiveInt = Field(200, description="episodes, drawn once")


class Pretraining(Section):
    """A backbone's supervised training on the meta-train classes."""

    name: str = Field("pretrain", description="names the weights in their card")
    seed: NonNegativeInt = Field(0, description="the root seed of every stream")
    device: Device = Field("auto", description="auto, cpu, cuda or cuda:1")
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
    augment: Moving = Field(default_factory=Moving, description="how training images are varied")
    validation: Validation = Field(
        default_factory=Validation, description="what is measured on the validation classes"
    )
    keep: Literal["best", "last"] = Field(
        "best",
        description="which epoch's weights: the best on the validation classes, by the first head, "
        "or the last; of several that are best the last",
    )
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
    source: str


def is_pretraining(data: Mapping[str, Any]) -> bool:
    """Whether more of a recipe's keys are a pretraining's alone than are a run's alone."""
    own, other = set(key_names(Pretraining)), set(key_names(Recipe))
    return len(data.keys() & (own - other)) > len(data.keys() & (other - own))


def load(source: str | Path, overrides: Iterable[str] = ()) -> LoadedPretraining:
    """Read, override and validate; raises ``RecipeError`` with every problem found.

    Relative paths in the components start from the recipe's folder, those of overrides, and
    ``output``, from the working folder.
    """
    _, label, base_dir, document = read_source(source)
    overriding.apply(document, overriding.parse_all(overrides), Path.cwd())
    found = resolve(document, base_dir, Pretraining)
    if found.problems and not is_pretraining(document.data):
        raise RecipeError(
            f"{label}: a recipe of a run, none that trains a backbone: metaforge run {label}"
        )
    problems, recipe = found.problems, found.recipe
    seed = document.data.get("seed", 0)
    context = Context(seed if isinstance(seed, int) else 0, base_dir)
    problems += component_problems(found.chosen, document, context)
    if recipe is not None:
        problems += _output_problems(document, recipe.output)
        if message := device_problem(recipe.device):
            problems.append(document.problem(("device",), message))
    if problems or recipe is None:
        raise RecipeError(problems)
    return LoadedPretraining(recipe, base_dir, label)


def _output_problems(document: Document, output: Path) -> list[Problem]:
    """A folder that cannot be written is found before the work, not after it."""
    found = f"{output} is a folder, a file is needed" if output.is_dir() else None
    found = found or unusable(output.absolute().parent)
    if not found:
        return []
    return [document.problem(("output",), f"{found}; set another output")]
