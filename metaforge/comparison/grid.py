"""The recipes of a grid: one recipe, some of its keys varied, under several seeds. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from metaforge.comparison.methods import IDLE, same_results
from metaforge.errors import MetaforgeError, Problem, RecipeError
from metaforge.options import nested_kinds
from metaforge.recipe import ResolvedRecipe, load
from metaforge.recipe.document import plain, read_value
from metaforge.recipe.overrides import Override, parse, parse_all, split_key
from metaforge.recipe.render import key_names
from metaforge.recipe.schema import Recipe

Source = str | Path | Mapping[str, Any]
Over = Mapping[str, Sequence[Any]]
Key = tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """The runs to make, each under what tells it from the others, and notes."""

    cells: dict[str, ResolvedRecipe]
    notes: list[str]


@dataclass
class _Combination:
    """One value of each varied key: the overrides that fit its components, and the rest."""

    chosen: list[str]
    fitting: list[str]
    #: Overrides that its components have no option for, with the component.
    foreign: dict[str, str]

    def foreign_keys(self) -> set[Key]:
        return {parse(text).path for text in self.foreign}


def parse_over(text: str) -> tuple[str, list[Any]]:
    """``key=a,b,c``: the key, and the values as a recipe's list would hold them."""
    key, equals, values = text.partition("=")
    label = f"--over {text!r}"
    if not equals or not key.strip() or not values.strip():
        raise RecipeError([Problem("", "expected key=value,value,...", label)])
    return key.strip(), read_value(f"[{values}]", label)


def expand(source: Source, overrides: Sequence[str], over: Over, seeds: Sequence[int]) -> Grid:
    """Every combination of ``over`` under every seed; those that come to the same, once.

    An override of an option that only some of the varied components have (``inner.ridge=0.5``
    beside ``inner.use`` over ``maml`` and ``ls``) goes to the methods that have it. Raises
    ``RecipeError`` with every problem of every recipe.
    """
    _refuse_idle_and_twice(over, parse_all(overrides), seeds)
    found = [_combination(source, chosen, overrides, over) for chosen in _products(over)]
    # An option that no method has is a mistake, and loading names it as one.
    nowhere = set.intersection(*(combination.foreign_keys() for combination in found))
    cells: dict[str, tuple[str, ResolvedRecipe]] = {}
    problems: dict[Problem, None] = {}
    for combination in found:
        wrong = [text for text in combination.foreign if parse(text).path in nowhere]
        own = [text for text in combination.chosen if text in combination.fitting]
        for seed in [f"seed={seed}" for seed in seeds] or [""]:
            texts = [text for text in (*combination.fitting, *wrong, seed) if text]
            try:
                resolved = load(source, texts)
            except RecipeError as error:
                problems |= dict.fromkeys(error.problems)
            else:
                label = " ".join([*own, seed]).strip() or resolved.recipe.name
                made = resolved.recipe.model_dump(mode="json", by_alias=True)
                cells.setdefault(same_results(made), (label, resolved))
    if problems:
        raise RecipeError(list(problems))
    return Grid(dict(cells.values()), _notes(found))


def _refuse_idle_and_twice(over: Over, overrides: Iterable[Override], seeds: Sequence[int]) -> None:
    """``RecipeError`` for keys that give no methods: they change nothing, or are set elsewhere."""
    varied: dict[Key, str] = {("seed",): "--seeds"} if seeds else {}
    problems = []
    for key in over:
        path = _bare(split_key(key))
        if key in IDLE:
            problems.append(
                f"{key}: this key does not change results, so its values are no methods to "
                f"compare; give one value as an override, {key}=VALUE"
            )
        elif path in varied:
            problems.append(f"{key}: given twice, in --over and as {varied[path]}")
        varied[path] = f"--over {key}"
    for override in overrides:
        at, sets_all = _bare(override.path), not isinstance(override.value, str)
        for path, where in varied.items():
            if at == path or (sets_all and at == path[: len(at)]):
                problems.append(
                    f"{'.'.join(path)}: given twice, by {where} and as {override.label}, which "
                    "would set it in every run: leave one of them out"
                )
    if problems:
        raise RecipeError([Problem("", text) for text in problems])


def _bare(path: Key) -> Key:
    """``weighting`` and ``weighting.use`` are one key."""
    return path[:-1] if path[-1] == "use" else path


def _products(over: Over) -> list[list[str]]:
    return [
        [_assignment(key, value) for key, value in zip(over, values, strict=True)]
        for values in product(*over.values())
    ]


def _assignment(key: str, value: Any) -> str:
    """An override's text, in which a plain word needs no quotes."""
    value = plain(value)
    if not isinstance(value, str):
        return f"{key}={json.dumps(value)}"
    if key in nested_kinds(Recipe):
        key = f"{key}.use"
    return f"{key}={value if read_value(value, key) == value else json.dumps(value)}"


def _combination(
    source: Source, chosen: list[str], overrides: Sequence[str], over: Over
) -> _Combination:
    sections = [tuple(key.removesuffix(".use").split(".")) for key in over]
    beside: list[str] = []
    rest: list[str] = []
    for text in (*chosen, *overrides):
        path = parse(text).path
        within = any(path[: len(at)] == at and len(path) > len(at) for at in sections)
        (beside if within else rest).append(text)
    found = _Combination(chosen, rest, {})
    for text in sorted(beside, key=_components_first):
        component = _foreign_to(source, found.fitting, parse(text).path)
        if component is None:
            found.fitting.append(text)
        else:
            found.foreign[text] = component
    return found


def _components_first(text: str) -> tuple[bool, int]:
    path = parse(text).path
    return path[-1] != "use", len(path)


def _foreign_to(source: Source, fitting: Iterable[str], path: Key) -> str | None:
    """The component beside whose ``use`` the key would stand, if it has no such option."""
    try:
        chosen = load(source, fitting, check=False).chosen
    except MetaforgeError:
        return None  # for the whole recipe's loading to report
    holders = [c for c in chosen if c.path == path[: len(c.path)] and len(c.path) < len(path)]
    if not holders:
        return None
    holder = max(holders, key=lambda c: len(c.path))
    model = holder.component.options_model
    known = {"use", *model.model_fields, *key_names(model)}
    return None if path[len(holder.path)] in known else holder.component.name


def _notes(combinations: Iterable[_Combination]) -> list[str]:
    notes = {
        f"{text} is left out for {component}, which has no such option": None
        for combination in combinations
        for text, component in combination.foreign.items()
    }
    return list(notes)
