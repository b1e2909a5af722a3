"""What ``metaforge data`` tells of the data sets. Torch-free."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from metaforge.components import Context, load_attribute
from metaforge.placement import Placement, State
from metaforge_fewshot_images.find import check, look
from metaforge_fewshot_images.known import KNOWN
from metaforge_fewshot_images.options import BenchmarkOptions


def placement(options: BenchmarkOptions, context: Context) -> Placement:
    """All is looked at but the images themselves."""
    known = KNOWN[options.NAME]
    state, found = _state(options, context)
    return Placement(
        folder=options.path,
        state=state,
        found=found,
        layouts=known.layouts,
        source=known.source,
        licence=known.licence,
        download=partial(_fetch, known.download),
        whole_in=lambda folder: placement(options.model_copy(update={"path": folder}), context),
    )


def _fetch(target: str, folder: Path) -> None:
    load_attribute(target)(folder)


def _state(options: BenchmarkOptions, context: Context) -> tuple[State, tuple[str, ...]]:
    if options.is_features:
        problems = check(options, context)
        return ("damaged", tuple(problems)) if problems else ("whole", ("features of its images",))
    content = look(options)
    if content is None:
        return "absent", ()
    where = ", ".join(map(str, content.places))
    if content.problems:
        return "damaged", content.problems
    told = f"{content.layout} ({where}): {content.counted()}"
    if content.lacks:
        return "in part", (told, *content.lacks)
    return "whole", (told,)
