"""``load``: a recipe and overrides in, a validated and complete recipe out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from metaforge.components import Context
from metaforge.errors import Problem, RecipeError
from metaforge.plugins import host
from metaforge.recipe import grid, presets, validated
from metaforge.recipe import overrides as overriding
from metaforge.recipe.changes import changes
from metaforge.recipe.checks import cross_section
from metaforge.recipe.component_checks import component_problems
from metaforge.recipe.dialect import dump
from metaforge.recipe.document import Document, plain, read
from metaforge.recipe.find import find_recipe
from metaforge.recipe.other_data import without_oracle
from metaforge.recipe.overrides import Change
from metaforge.recipe.resolve import Chosen, Resolution, resolve
from metaforge.recipe.schema import Recipe

#: No recipe is near this size; a data file given by mistake is.
MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe that is valid, and complete: every default is written out.

    ``text`` is the recipe as given, ``source`` its path or ``<mapping>``; ``base_dir`` is
    what its relative paths start from. ``notes`` tell what overrides dropped; ``changes``
    maps dotted keys to the values that differ from the defaults. ``chosen`` has the
    components, nested ones included, with their validated options. ``unchecked`` tells what
    the components' checks left to the run, ``validates`` which options said ``validate``.
    """

    recipe: Recipe
    text: str
    source: str
    base_dir: Path
    overrides: tuple[str, ...]
    notes: tuple[str, ...]
    changes: Mapping[str, Any]
    chosen: tuple[Chosen, ...] = field(repr=False)
    document: Document = field(repr=False)
    unchecked: tuple[str, ...] = ()
    validates: tuple[str, ...] = ()

    def to_yaml(self) -> str:
        """The complete recipe as text; loading it gives the same recipe."""
        return dump(self.recipe.model_dump(mode="json", by_alias=True))

    def problems(self) -> list[Problem]:
        """What only the data, several sections together or the plugins can tell is wrong."""
        return self._checked()[0]

    def _checked(self) -> tuple[list[Problem], tuple[str, ...]]:
        """The problems, and what the components' checks left to the run."""
        where, unchecked = self.document.where, list[str]()
        wrong = [*cross_section(self), *grid.problems(self)]
        found = [self.document.problem(at, message) for at, message in wrong]
        found += component_problems(self.chosen, self.document, self.context(unchecked.append))
        for problem in host().problems(self.recipe):
            place = problem.where or where(tuple(problem.path.split(".")))
            found.append(problem._replace(where=place))
        return _sorted(found), tuple(unchecked)

    def context(self, report: Callable[[str], None] = lambda line: None) -> Context:
        """What the components' checks know of the run."""
        recipe = self.recipe
        return Context(recipe.seed, self.base_dir, dtype=recipe.dtype, report=report)

    def with_values(self, values: Mapping[str, Any]) -> ResolvedRecipe:
        """The recipe with further values set by dotted keys, as overrides would.

        Raises ``RecipeError`` if they are not valid. ``problems()`` is not run.
        """
        document = self.document.copy()
        further = [
            overriding.Override(overriding.split_key(key), plain(value), f"value of {key}")
            for key, value in values.items()
        ]
        notes = overriding.apply(document, further, self.base_dir)
        return _resolved(
            document, self.text, self.source, self.base_dir, self.overrides, [*self.notes, *notes]
        )


def load(
    source: str | Path | Mapping[str, Any],
    overrides: Change | Iterable[Change] = (),
    *,
    check: bool = True,
) -> ResolvedRecipe:
    """Read, override, validate and complete a recipe.

    ``source`` is a path, the name of a shipped recipe, or a mapping. ``overrides`` are
    ``key=value`` texts or mappings of dotted keys to values. Relative paths in a file start
    from its folder, those in a mapping and in overrides from the working folder. With
    ``check``, the data, the sections together and the plugins' own checks are looked at as
    well. Raises ``RecipeError`` with every problem found.
    """
    host()  # what is wrong with a plugin that was asked for is no problem of a recipe's line
    overrides = overriding.as_texts(overrides)
    text, label, base_dir, document = read_source(source)
    notes = overriding.apply(document, overriding.parse_all(overrides), Path.cwd())
    try:
        resolved = _resolved(document, text, label, base_dir, overrides, notes)
    except _Invalid as error:
        from metaforge.pretrain_recipe import is_pretraining  # late: it builds on this module

        if is_pretraining(document.data):
            raise PretrainingRecipe(label) from None
        if not check:
            raise
        seed = document.data.get("seed")
        seed = seed if isinstance(seed, int) else 0
        context = Context(seed, base_dir)
        data = component_problems(error.chosen, document, context)
        raise RecipeError(_sorted([*error.problems, *data])) from None
    if not check:
        return resolved
    problems, unchecked = resolved._checked()
    if problems:
        raise RecipeError(problems)
    return replace(resolved, unchecked=unchecked)


class PretrainingRecipe(RecipeError):
    """The recipe is not of a run, but of a backbone's training."""

    def __init__(self, source: str):
        super().__init__(
            f"{source}: a recipe that trains a backbone, none of a run: metaforge pretrain {source}"
        )


class _Invalid(RecipeError):
    """Also has the components that were chosen well, so that their data can be checked."""

    def __init__(self, problems: list[Problem], chosen: list[Chosen]):
        super().__init__(problems)
        self.chosen = chosen


def _valid(document: Document, base_dir: Path) -> Resolution[Recipe]:
    found = resolve(document, base_dir, Recipe)
    if found.recipe is None:
        raise _Invalid(_sorted(found.problems), found.chosen)
    return found


def _resolved(
    document: Document,
    text: str,
    source: str,
    base_dir: Path,
    overrides: tuple[str, ...],
    notes: list[str],
) -> ResolvedRecipe:
    presets.expand(document)
    found = _valid(document, base_dir)
    dropped = without_oracle(document, found.chosen)
    validates = validated.expand(document, found.chosen)
    if dropped or validates:
        found = _valid(document, base_dir)
    assert found.recipe is not None
    return ResolvedRecipe(
        recipe=found.recipe,
        text=text,
        source=source,
        base_dir=base_dir,
        overrides=overrides,
        notes=(*notes, *dropped, *validates),
        changes=changes(found.recipe, found.chosen),
        chosen=tuple(found.chosen),
        document=document,
        validates=tuple(validates),
    )


def read_source(source: str | Path | Mapping[str, Any]) -> tuple[str, str, Path, Document]:
    """Text, label, folder and data of a recipe."""
    if isinstance(source, Mapping):
        data = plain(source)
        return dump(data), "<mapping>", Path.cwd(), Document(data)
    if not isinstance(source, str | os.PathLike):
        raise RecipeError(
            "a recipe is a path, the name of a shipped one or a mapping; found "
            f"{type(source).__name__}"
        )
    path = find_recipe(source)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecipeError(f"{path} has more than {MAX_BYTES} bytes: it is no recipe")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    return text, str(path), Path(os.path.abspath(path)).parent, read(text, str(path))


def _sorted(problems: Iterable[Problem]) -> list[Problem]:
    """By line; those of overrides and of no line last."""

    def line(problem: Problem) -> float:
        found = re.search(r":(\d+)$", problem.where)
        return int(found[1]) if found else float("inf")

    return sorted(problems, key=line)
