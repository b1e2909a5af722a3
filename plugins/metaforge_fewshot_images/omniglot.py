"""Omniglot: which of its layouts is there, and which split its classes are in. Torch-free.

Whatever the layout, classes are in the order of their names, ``ALPHABET/characterNN``, and images
of a class in the order of the drawers, so that task i is the same in all of them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from metaforge.class_splits import divide
from metaforge.errors import DataError
from metaforge.split_names import SPLITS
from metaforge_fewshot_images.content import Content, few, nothing
from metaforge_fewshot_images.omniglot_bits import PACKED, from_packed
from metaforge_fewshot_images.omniglot_files import SETS, Found, from_archives, from_folders
from metaforge_fewshot_images.options import OmniglotOptions

#: Characters of each set, and drawings of each character, as published.
_CHARACTERS, _DRAWINGS = (964, 659), 20


def find(options: OmniglotOptions, unpack: bool = True) -> Content | None:
    """What is there, or None where nothing is. Everything is listed, nothing is decoded."""
    found = _layout(options)
    if found is None or found.content.problems:
        return None if found is None else found.content
    try:
        split = _split(options, found)
    except DataError as error:
        content = found.content
        return nothing(content.layout, content.places, str(error).splitlines())
    return replace(found.content, split=split, lacks=tuple(_lacks(found)))


def _layout(options: OmniglotOptions) -> Found | None:
    path = options.path
    if path.is_file():
        return from_packed(path, options.size, options.invert)
    for folder in (path / "omniglot-py", path):
        if any((folder / name).is_dir() for name in SETS):
            return from_folders(folder, options.size, options.invert)
        if any((folder / f"{name}.zip").is_file() for name in SETS):
            return from_archives(folder, options.size, options.invert)
    if (path / PACKED).is_file():
        return from_packed(path / PACKED, options.size, options.invert)
    return None


def _lacks(found: Found) -> list[str]:
    """Where characters or drawings are other than published."""
    lines = []
    for part, (name, want) in enumerate(zip(SETS, _CHARACTERS, strict=True)):
        if (have := int((found.lake == part).sum())) != want:
            lines.append(f"{name} has {have:,} characters, Omniglot has {want:,}")
    rows = [len(own) for own in found.content.classes.members()]
    odd = [
        f"{label} {count}"
        for label, count in zip(found.content.class_names, rows, strict=True)
        if count != _DRAWINGS
    ]
    if odd:
        lines.append(f"characters with other than {_DRAWINGS} drawings: {few(odd)}")
    return lines


def _split(options: OmniglotOptions, found: Found) -> np.ndarray:
    """[C]. Raises ``DataError`` where the files do not tell the split asked for."""
    groups = found.content.groups
    assert groups is not None
    if options.split == "lake":
        split = np.where(found.lake == 1, SPLITS.index("test"), SPLITS.index("train"))
        background = np.flatnonzero(found.lake == 0)
        shares = (1 - options.val_share, options.val_share, 0.0)
        split[background] = divide(groups[background], shares, options.split_seed)
        return split
    if options.split == "alphabets":
        return divide(groups, options.shares, options.split_seed)
    if options.lists is not None:
        return _listed(options.lists, found.content.class_names)
    if found.vinyals is None:
        raise DataError(
            f"split: vinyals is told by {PACKED} alone; the {found.content.layout} need lists: a "
            "folder of train.txt, val.txt and test.txt, whose lines are ALPHABET/CHARACTER; or "
            "set split: lake or alphabets"
        )
    return found.vinyals


def _listed(folder: Path, labels: tuple[str, ...]) -> np.ndarray:
    """[C] by text files of class names. What follows a class's name after ``/`` is not read, so
    that lists of turned classes (``.../rot090``) serve too."""
    position = {label: number for number, label in enumerate(labels)}
    split = np.full(len(labels), -1)
    problems, unknown = [], []
    for number, name in enumerate(SPLITS):
        lines, problem = _lines(folder / f"{name}.txt")
        problems += problem
        for label in lines:
            if label not in position:
                unknown.append(label)
            elif split[position[label]] not in (-1, number):
                problems.append(f"{folder}: {label} is in two splits")
            else:
                split[position[label]] = number
    if unknown:
        problems.append(f"{folder} names characters that are not there: {few(map(ascii, unknown))}")
    if problems:
        raise DataError("\n".join(problems))
    return split


def _lines(path: Path) -> tuple[list[str], list[str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        return [], [f"{path} cannot be read ({why})"]
    labels = ["/".join(line.strip().split("/")[:2]) for line in text.splitlines() if line.strip()]
    return list(dict.fromkeys(labels)), []
