"""What is there of a data set, and what is wrong with it. Torch-free."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError
from metaforge.sampling_checks import problems
from metaforge_arrays import layout as arrays_layout
from metaforge_fewshot_images import cifar, imagenet, omniglot
from metaforge_fewshot_images.content import Content
from metaforge_fewshot_images.features import as_arrays
from metaforge_fewshot_images.known import KNOWN
from metaforge_fewshot_images.options import BenchmarkOptions
from metaforge_fewshot_images.pools import task_pools

_FINDERS: dict[str, Callable[[Any, bool], Content | None]] = {
    "omniglot": omniglot.find,
    "cifar_fs": cifar.find,
    "fc100": cifar.find,
    "mini_imagenet": imagenet.find_mini,
    "tiered_imagenet": imagenet.find_tiered,
}


#: What ``check`` found last, for ``facts``, which are asked for next: to look takes long.
_checked: deque[tuple[BenchmarkOptions, Content]] = deque(maxlen=8)


def find(options: BenchmarkOptions, unpack: bool = True) -> Content:
    """What is there. Raises ``DataError`` that says how to place the files, or what is wrong with
    them: every line of it. Without ``unpack`` the inside of an archive is left to later."""
    found = look(options, unpack)
    if faults := _faults(options, found):
        raise DataError("\n".join(faults))
    assert found is not None
    return found


def look(options: BenchmarkOptions, unpack: bool = True) -> Content | None:
    """What is there, whole or not, sound or not; None where nothing is."""
    return _FINDERS[options.NAME](options, unpack)


def _faults(options: BenchmarkOptions, found: Content | None) -> list[str]:
    """Why what was found cannot be used; how to place the files, where nothing was."""
    if found is None:
        return [f"{options.NAME}: {_how_to_place(options)}"]
    lines = list(found.problems)
    if found.lacks and options.whole:
        lines.append(
            f"{found.places[0]}: not the whole data set: {'; '.join(found.lacks)}; "
            "place all of it, or set whole: false to take what is there"
        )
    return [f"{options.NAME}: {line}" for line in lines]


def _how_to_place(options: BenchmarkOptions) -> str:
    """That nothing was found, and each layout that would be."""
    where, known = options.path, KNOWN[options.NAME]
    first = f"{where} has none of its files" if where.exists() else f"{where}: no such folder"
    forms = "".join(f"\n  {layout}" for layout in known.layouts)
    return f"{first}; place there one of:{forms}\n  ({known.source})"


def check(options: BenchmarkOptions, context: Context) -> list[str]:
    """Everything wrong with the files, as far as it shows without decoding images."""
    if options.is_features:
        try:
            made = as_arrays(options)
        except DataError as error:
            return [str(error)]
        return arrays_layout.check(made, context)
    content = look(options, unpack=False)
    if faults := _faults(options, content):
        return faults
    assert content is not None
    _checked.append((options, content))
    try:
        return problems(task_pools(options, content), options.sizes())
    except DataError as error:
        return [str(error)]


def facts(options: BenchmarkOptions, context: Context) -> DataFacts:
    """Shape and class names; the width of pixels, where there is no backbone. Raises ``DataError``
    where the files cannot be used."""
    if options.is_features:
        return arrays_layout.facts(as_arrays(options), context)
    content = _just_checked(options) or find(options, unpack=False)
    classes = {
        split: frozenset(label for pool in pools for label in pool.class_names)
        for split, pools in task_pools(options, content).items()
    }
    shape = content.form.shape
    if options.backbone is None:
        return DataFacts(width=shape[0] * shape[1] * shape[2], classes=classes, shape=shape)
    return DataFacts(classes=classes, shape=shape if options.sees_images else None)


def _just_checked(options: BenchmarkOptions) -> Content | None:
    """What the check of the same options found, once."""
    for pair in _checked:
        if pair[0] == options:
            _checked.remove(pair)
            return pair[1]
    return None


def has_groups(options: BenchmarkOptions) -> bool:
    """Whether tasks have groups: those that are drawn within one are of it."""
    return options.within > 0
