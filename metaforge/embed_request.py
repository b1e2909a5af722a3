"""What ``metaforge embed`` is asked for: its words, read and checked without torch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from metaforge import registry
from metaforge.components import Context
from metaforge.errors import PluginError, Problem, RecipeError
from metaforge.image_options import FeatureOptions
from metaforge.options import Choice, choice
from metaforge.plugins import host
from metaforge.recipe import overrides as overriding
from metaforge.recipe import presets
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.document import Document
from metaforge.recipe.find import SUFFIX, shipped_recipes
from metaforge.recipe.loader import read_source
from metaforge.recipe.machine import device_problem, unusable
from metaforge.recipe.overrides import Override
from metaforge.recipe.resolve import resolve
from metaforge.recipe.schema import Section
from metaforge.suggest import did_you_mean


class Embedding(Section):
    """The sections that the words are read into, as those of a recipe."""

    data: Choice | None = choice("dataset", optional=True, description="a data set of images")
    backbone: Choice = choice("backbone", description="images to features")
    output: Path = Field(description="the npz file")


@dataclass(frozen=True)
class Request:
    """``images`` is a folder or file of them, None where ``embedding.data`` is a data set, whose
    relative paths start at ``base_dir``."""

    embedding: Embedding
    images: Path | None
    base_dir: Path


def read(
    data: str, words: Iterable[str], backbone: str, out: Path, device: str = "auto"
) -> Request:
    """Raises ``RecipeError`` with everything wrong with the words, the files they name and the
    folder to write to; what is wrong with images themselves is told when they are read.

    ``data`` is a recipe, or else a path, or else the name of a data set.
    """
    given = [_of_backbone(word) for word in overriding.parse_all(words)]
    images, base_dir, document = _data(data, given)
    document.data |= {"backbone": {"use": backbone}, "output": str(out)}
    overriding.apply(document, given, Path.cwd())
    _show_images_alone(document)
    found = resolve(document, base_dir, Embedding)
    problems = [*found.problems]
    problems += component_problems(found.chosen, document, Context(base_dir=base_dir))
    if message := f"{out} is a folder" if out.is_dir() else unusable(out.absolute().parent):
        problems.append(Problem("--out", f"{message}; give another file", code=3))
    if message := device_problem(device):
        problems.append(Problem("--device", message))
    if problems or found.recipe is None:
        raise RecipeError(problems)
    return Request(found.recipe, images, base_dir)


def answer(request: Request, context: Context, *, batch: int | None, force: bool) -> dict[str, Any]:
    """Read the images, make the features, write the file: see ``embed_file.write_features``."""
    from metaforge import embed_inputs
    from metaforge.creation import create
    from metaforge.embed_file import write_features

    own, images = request.embedding, request.images
    backbone = create("backbone", own.backbone, context)
    if own.data is not None:
        source = create("dataset", own.data, replace(context, base_dir=request.base_dir))
        inputs = embed_inputs.of_source(source, own.data.use)
    elif images is not None and images.is_dir() and not any(images.glob("*.npy")):
        inputs = embed_inputs.of_folder(images, backbone.images, context)
    else:
        assert images is not None
        inputs = embed_inputs.of_arrays(images)
    out = own.output
    return write_features(
        inputs, backbone, own.backbone.model_dump(), out, context, batch=batch, force=force
    )


def _of_backbone(given: Override) -> Override:
    """A key that does not say of what is one of the backbone's."""
    named = given.path[0] in ("data", "backbone") and len(given.path) > 1
    return given if named else given._replace(path=("backbone", *given.path))


def _data(data: str, given: list[Override]) -> tuple[Path | None, Path, Document]:
    """The path to images, or a document with the section ``data``, and its folder."""
    path = Path(os.path.expandvars(data)).expanduser()
    is_shipped = not path.exists() and data in shipped_recipes()
    if path.suffix == SUFFIX or is_shipped:
        _, label, base_dir, document = read_source(data)
        presets.expand(document)
        if "data" not in document.data:
            raise RecipeError(f"{label}: has no section data")
        document.data = {"data": document.data["data"]}
        return None, base_dir, document
    if path.exists():
        if unread := [one for one in given if one.path[0] == "data"]:
            message = f"{path} is no recipe or data set, which alone have options data.*"
            raise RecipeError([Problem("", message, one.label) for one in unread])
        return path, Path.cwd(), Document({})
    try:
        registry.get("dataset", data)
    except PluginError as error:
        datasets = [one.name for one, _ in host().components() if one.kind == "dataset"]
        raise RecipeError(
            f"{data}: no such file or folder, and no recipe or data set of this name"
            f"{did_you_mean(data, [*datasets, *shipped_recipes()])}"
        ) from error
    return None, Path.cwd(), Document({"data": {"use": data}})


def _show_images_alone(document: Document) -> None:
    """A data set that makes features of its own is not asked for them."""
    data = document.data.get("data")
    name = data.get("use") if isinstance(data, Mapping) else None
    options = overriding.options_of("dataset", name)
    if options is not None and issubclass(options, FeatureOptions):
        kept = {key: value for key, value in dict(data or {}).items() if key != "normalize"}
        document.data["data"] = kept | {"backbone": None, "input": "images"}
