"""What is wrong with a mixture before its sources are loaded. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

from metaforge import registry
from metaforge.components import Context, load_attribute
from metaforge.data_facts import DataFacts
from metaforge.errors import MetaforgeError
from metaforge.recipe.resolve import checked_options
from metaforge_mixture.options import MixtureOptions

#: Class names listed in a problem.
_NAMED = 5


def check(options: MixtureOptions, context: Context) -> list[str]:
    """Sources that do not go together; what is wrong within one, its own check says."""
    try:
        found = _facts_of_sources(options, context)
    except MetaforgeError:
        return []
    kinds = _kinds(options, found)
    return [*_other_kinds(options, kinds), *_widths(options, found, kinds), *_shared_classes(found)]


def facts(options: MixtureOptions, context: Context) -> DataFacts:
    """The mixture's own, for a mixture of mixtures: a class has its name on every level."""
    found = _facts_of_sources(options, context)
    classes: dict[str, frozenset[str]] = {}
    for own in found.values():
        for split, names in own.classes.items():
            classes[split] = classes.get(split, frozenset()) | names
    width: int | None = options.width
    shape: tuple[int, ...] | None = (options.width,)
    if options.projection == "none":
        first = next(iter(found.values()))
        width, shape = first.width, first.shape
    kinds = set(_kinds(options, found).values())
    return DataFacts(width, classes, kinds.pop() if len(kinds) == 1 else None, shape)


def _facts_of_sources(options: MixtureOptions, context: Context) -> dict[str, DataFacts]:
    found = {}
    for name, choice in options.sources.items():
        component = registry.get("dataset", choice.use)
        own = checked_options(component, choice.options, lambda key: context.base_dir)
        told = load_attribute(component.facts)(own, context) if component.facts else DataFacts()
        found[name] = told
    return found


def _kinds(options: MixtureOptions, found: Mapping[str, DataFacts]) -> dict[str, str]:
    """Of the tasks of each source that says so: by its options, or always the same."""
    told = {}
    for name, choice in options.sources.items():
        always = registry.get("dataset", choice.use).tasks or ()
        kind = found[name].tasks or (always[0] if len(always) == 1 else None)
        if kind is not None:
            told[name] = kind
    return told


def _other_kinds(options: MixtureOptions, kinds: Mapping[str, str]) -> Iterator[str]:
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
        yield f"sources have tasks of unlike kinds ({listed}), which cannot be in one bank"
    elif options.projection != "none" and (
        inputs := [name for name, kind in kinds.items() if kind == "regression"]
    ):
        yield (
            f"the inputs of regression tasks ({', '.join(inputs)}) mean something as they are: "
            "set projection: none, which reads no width, centre or normalize"
        )


def _widths(
    options: MixtureOptions, found: Mapping[str, DataFacts], kinds: Mapping[str, str]
) -> Iterator[str]:
    known = {name: own.width for name, own in found.items() if own.width is not None}
    if options.projection == "none":
        if len(set(known.values())) > 1:
            listed = ", ".join(f"{name}: {width}" for name, width in known.items())
            yield (
                f"sources have samples of unlike widths ({listed}): set projection: pca, which "
                "brings each to data.width"
            )
        return
    for name, width in known.items():
        if width < options.width and kinds.get(name) != "regression":
            yield (
                f"source {name!r} has samples of {width} numbers, fewer than width "
                f"{options.width}; set width to {width} or less"
            )


def _shared_classes(found: Mapping[str, DataFacts]) -> Iterator[str]:
    """Classes that one source trains on and another holds out."""
    for (one, trains), (other, holds) in permutations(found.items(), 2):
        for split in ("val", "test"):
            trained = trains.classes.get("train", frozenset())
            common = sorted(trained & holds.classes.get(split, frozenset()))
            if common:
                listed = ", ".join(common[:_NAMED]) + (", ..." if len(common) > _NAMED else "")
                yield (
                    f"{len(common)} classes that source {other!r} holds out for {split} have the "
                    f"names of training classes of source {one!r} ({listed}): split both alike, "
                    "or rename what is not the same"
                )
