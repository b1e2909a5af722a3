"""From a folder of images, and the tables beside it, to pools of classes. numpy alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from metaforge.class_labels import Classes, read_classes
from metaforge.class_options import SHARES
from metaforge.class_pools import Division, numbered
from metaforge.class_splits import split_of_class
from metaforge.errors import DataError
from metaforge.image_listing import Listing, list_images
from metaforge.suggest import did_you_mean, shown, told
from metaforge.table_files import read_table
from metaforge_image_folder.options import ImageFolderOptions, with_split


def has_groups(options: ImageFolderOptions) -> bool:
    """Whether tasks have groups: those that are drawn within a class group are of it."""
    return options.within > 0


def listed(options: ImageFolderOptions) -> Listing:
    """The images of the folder."""
    return list_images(options.path, groups=options.group == "folders")


def divided(options: ImageFolderOptions, listing: Listing) -> Division:
    """The classes of a listing whose images all have one.

    Raises ``DataError`` where tables, patterns and splits do not fit them.
    """
    classes = read_classes(np.array(listing.classes), "class")
    groups = _groups(options, listing, classes)
    names: tuple[str, ...] = ()
    if groups is not None:
        names, groups = tuple(np.unique(groups).tolist()), numbered(groups)
    split = _split(options, listing, classes, groups)
    return Division(
        classes,
        classes.labels.tolist(),
        split,
        groups,
        names,
        _sample_groups(options.sample_group, listing.files),
    )


def _split(
    options: ImageFolderOptions, listing: Listing, classes: Classes, groups: np.ndarray | None
) -> np.ndarray:
    """[C] as ``split_of_class``."""
    by_folders = listing.splits is not None
    options = with_split(options, "folders" if by_folders else SHARES)
    given = None
    if options.split == "folders":
        if listing.splits is None:
            raise DataError(
                f"split: folders, but {listing.root} has no folders train, val and test; give "
                "shares, or a table of classes"
            )
        given = np.array(listing.splits)
    elif isinstance(options.split, Path):
        given = _from_table(options.split, "split", listing, classes)
    return split_of_class(options, classes, groups, given)


def _groups(options: ImageFolderOptions, listing: Listing, classes: Classes) -> np.ndarray | None:
    """[C]: the name of each class's group."""
    if options.group is None:
        return None
    if isinstance(options.group, Path):
        return _from_table(options.group, "group", listing, classes)
    return np.array([name.partition("/")[0] for name in classes.labels.tolist()])


def _from_table(path: Path, column: str, listing: Listing, classes: Classes) -> np.ndarray:
    """[C], or [n] where the table is of files: the text in a column of each class or file.

    Raises ``DataError`` for classes and files that the folder does not have, that the table names
    with two values, or not at all.
    """
    columns = read_table(path, text=["class", "file", column]).columns
    key = next((name for name in ("class", "file") if name in columns), None)
    if column not in columns or key is None or (key == "file" and column == "group"):
        what = "class and group" if column == "group" else "class (or file) and split"
        raise DataError(f"{path}: has columns {', '.join(columns)}; expected {what}")
    names = classes.labels.tolist() if key == "class" else list(listing.files)
    known = set(names)
    given: dict[str, str] = {}
    faults: list[str] = []
    for name, value in zip(columns[key].astype(str), columns[column].astype(str), strict=True):
        if name not in known:
            near = did_you_mean(name, names) if len(faults) < _SUGGESTED else ""
            faults.append(f"{path}: no {key} {told(name)} in {listing.root}{near}")
        elif given.setdefault(name, value) != value:
            faults.append(f"{path}: {key} {told(name)} has two values, {given[name]} and {value}")
    if missing := [name for name in names if name not in given]:
        faults.append(f"{path}: has no {column} for {shown(missing)}; give each {key} a line")
    if faults:
        raise DataError("\n".join(faults))
    return np.array([given[name] for name in names])


#: Unknown names that get a suggestion: each is held against all that are known.
_SUGGESTED = 10


def _sample_groups(pattern: str | None, files: Sequence[str]) -> np.ndarray | None:
    """[n]: numbers of what the pattern finds in the paths, its groups if it has some."""
    if pattern is None:
        return None
    found = [re.search(pattern, file) for file in files]
    if lost := [file for file, match in zip(files, found, strict=True) if match is None]:
        raise DataError(
            f"sample_group: {pattern!r} is not found in the paths of {shown(lost)}; write a "
            "pattern that all paths have"
        )
    return numbered(np.array([repr(m.groups() or m.group()) for m in found if m is not None]))
