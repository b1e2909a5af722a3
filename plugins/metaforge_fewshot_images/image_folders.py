"""Folders of images: ``SPLIT/CLASS/*``, ``CLASS/*``, or ``images/*`` and a table a split."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from metaforge.image_files import image_blocks
from metaforge.image_form import ImageForm
from metaforge.image_listing import Listing, list_images
from metaforge.split_names import SPLITS
from metaforge_fewshot_images.content import Content, few, nothing, numbered

_COLUMNS = ("filename", "label")


def from_folder(root: Path, form: ImageForm, known: Mapping[str, str] | None = None) -> Content:
    """The images below ``root``. ``known`` says which split each class is of: then folders of
    splits must agree, and need not be there."""
    listing = list_images(root)
    layout = "folders of images"
    problems = list(listing.problems)
    if not problems and listing.splits is None and known is None:
        problems.append(f"{root}: expected folders train, val and test, each with CLASS/IMAGE")
    if known is not None:
        problems += _strangers(listing, known)
    problems += _in_two_splits(listing)
    if problems:
        return nothing(layout, (root,), problems)
    names, of_row = numbered([str(name) for name in listing.classes])
    if known is not None:
        split = [SPLITS.index(known[name]) for name in names]
    else:
        assert listing.splits is not None
        own = dict(zip(map(str, listing.classes), listing.splits, strict=True))
        split = [SPLITS.index(own[name]) for name in names]
    return Content(
        layout=layout,
        places=(root,),
        form=form,
        class_names=names,
        of_row=of_row,
        split=np.array(split),
        blocks=lambda context: image_blocks(root, listing.files, form, context),
        identity=(str(root.resolve()), listing.files, listing.stats, form),
        names=listing.files,
        slow=True,
    )


def _strangers(listing: Listing, known: Mapping[str, str]) -> Iterator[str]:
    """Classes that the data set does not have, and those in another split than it has them in."""
    classes = dict.fromkeys(str(name) for name in listing.classes)
    if strange := [name for name in classes if name not in known]:
        yield f"{listing.root}: classes that are none of the data set's: {few(map(ascii, strange))}"
    pairs = dict.fromkeys(zip(map(str, listing.classes), listing.splits or (), strict=False))
    moved = [f"{name} in {split}" for name, split in pairs if known.get(name, split) != split]
    if moved:
        yield (
            f"{listing.root}: classes that are of another split in the published data set: "
            f"{few(moved)}"
        )


def _in_two_splits(listing: Listing) -> Iterator[str]:
    pairs = set(zip(listing.classes, listing.splits or (), strict=False))
    names = [name for name, _ in pairs]
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        yield f"{listing.root}: classes that are in two splits: {few(map(ascii, twice))}"


def from_tables(root: Path, form: ImageForm) -> Content:
    """``images/*`` and train.csv, val.csv, test.csv with the columns ``filename`` and ``label``."""
    images, layout = root / "images", "images and a table for each split"
    files: list[str] = []
    labels: list[str] = []
    splits: dict[str, str] = {}
    problems = [] if images.is_dir() else [f"{root} has tables of splits, but no folder images"]
    for split in SPLITS:
        table = root / f"{split}.csv"
        rows, faults = _rows(table)
        problems += faults
        both = sorted({label for _, label in rows} & set(splits))
        if both:
            problems.append(f"{table}: classes of another split: {few(map(ascii, both))}")
        files += [name for name, _ in rows]
        labels += [label for _, label in rows]
        splits |= {label: split for _, label in rows}
    stats: list[tuple[int, int]] = []
    if not problems:
        stats, problems = _stats(images, files)
    if problems:
        return nothing(layout, (root,), problems)
    names, of_row = numbered(labels)
    return Content(
        layout=layout,
        places=(images, *(root / f"{split}.csv" for split in SPLITS)),
        form=form,
        class_names=names,
        of_row=of_row,
        split=np.array([SPLITS.index(splits[name]) for name in names]),
        blocks=lambda context: image_blocks(images, files, form, context),
        identity=(str(images.resolve()), tuple(files), tuple(stats), form),
        names=files,
        slow=True,
    )


def _rows(table: Path) -> tuple[list[tuple[str, str]], list[str]]:
    """File name and label of each line, and what is wrong with the table."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.reader(file))
    except FileNotFoundError:
        return [], [f"{table}: no such file; expected the columns {', '.join(_COLUMNS)}"]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        return [], [f"{table} cannot be read ({error})"]
    if not lines or not set(_COLUMNS) <= set(lines[0]):
        found = ", ".join(map(ascii, lines[0])) if lines else "nothing"
        return [], [f"{table}: its first line has {found}; expected {', '.join(_COLUMNS)}"]
    places = [lines[0].index(column) for column in _COLUMNS]
    short = [number for number, line in enumerate(lines, 1) if line and len(line) <= max(places)]
    if short:
        return [], [f"{table}: lines without a file name or a label: {few(short)}"]
    return [(line[places[0]], line[places[1]]) for line in lines[1:] if line], []


def _stats(images: Path, files: list[str]) -> tuple[list[tuple[int, int]], list[str]]:
    """Size and time of change of each file, and what the tables say that cannot be."""
    stats: list[tuple[int, int]] = []
    absent = []
    for name in files:
        try:
            stat = (images / name).stat()
        except OSError:
            absent.append(name)
            continue
        stats.append((stat.st_size, stat.st_mtime_ns))
    problems = []
    if absent:
        problems.append(f"{images} lacks {len(absent):,} files of the tables: {few(absent)}")
    if repeated := len(files) - len(set(files)):
        problems.append(f"{images}: {repeated:,} files are listed twice")
    if outside := [name for name in files if Path(name).is_absolute() or ".." in Path(name).parts]:
        problems.append(f"{images}: names that lead out of the folder: {few(map(ascii, outside))}")
    return stats, problems
