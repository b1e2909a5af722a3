"""The three files together: where they are, what they lack, the pools of their classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from metaforge.components import Context
from metaforge.data_facts import DataFacts
from metaforge.errors import DataError
from metaforge.placement import Placement, State
from metaforge.pools import Pool
from metaforge.sampling_checks import problems
from metaforge_leo_embeddings.options import LeoEmbeddingsOptions
from metaforge_leo_embeddings.tables import Table, read_table

SPLITS = ("train", "val", "test")
LICENCE = "none stated with the embeddings; of ImageNet images, for research that is not commercial"
ARCHIVE = "http://storage.googleapis.com/leo-embeddings/embeddings.zip"


def check(options: LeoEmbeddingsOptions, context: Context) -> list[str]:
    """Everything wrong with the files, their keys and the classes' sizes. Of the features the
    shape alone is read, so that the check is quick; their numbers are checked when loaded."""
    tables, found = read_tables(options)
    return found + problems(pools(tables), options.sizes())


def facts(options: LeoEmbeddingsOptions, context: Context) -> DataFacts:
    """Width and class names. Raises ``DataError`` where the files cannot be read."""
    tables, found = read_tables(options)
    if found:
        raise DataError("\n".join(found))
    width = tables["train"].values.shape[1]
    classes = {split: frozenset(table.class_names) for split, table in tables.items()}
    return DataFacts(width, classes, shape=(width,))


def read_tables(options: LeoEmbeddingsOptions) -> tuple[dict[str, Table], list[str]]:
    """The files that can be read, by split, and a line for each thing that is wrong."""
    folder = _folder(options)
    paths = {split: folder / f"{split}_embeddings.pkl" for split in SPLITS}
    absent = [path.name for path in paths.values() if not path.is_file()]
    found = [_how_to_place(options, folder, absent)] if absent else []
    tables = {}
    for split, path in paths.items():
        if path.name in absent:
            continue
        try:
            tables[split] = read_table(path)
        except DataError as error:
            found.append(str(error))
    return tables, found + list(_disagreements(tables))


def placement(options: LeoEmbeddingsOptions, context: Context) -> Placement:
    """What ``metaforge data`` tells: of the features the shape alone is looked at."""
    folder = _folder(options)
    tables, found = read_tables(options)
    state: State = "whole"
    if found:
        state = "damaged" if any(folder.glob("*_embeddings.pkl")) else "absent"
    else:
        found = [
            f"{table.path}: {len(table.class_names)} classes, {len(table.values):,} images of "
            f"{table.values.shape[1]} features"
            for table in tables.values()
        ]
    return Placement(
        folder=folder,
        state=state,
        found=tuple(found) if state != "absent" else (),
        layouts=(
            f"{options.subfolder.as_posix()}/train_embeddings.pkl, val_embeddings.pkl, "
            "test_embeddings.pkl, in the folder dir or themselves there",
        ),
        source=ARCHIVE,
        licence=LICENCE,
    )


def _folder(options: LeoEmbeddingsOptions) -> Path:
    """``dir`` as the archive, or as one folder of it."""
    inside = options.dir / options.subfolder
    if not inside.is_dir() and any(options.dir.glob("*_embeddings.pkl")):
        return options.dir
    return inside


def _how_to_place(options: LeoEmbeddingsOptions, folder: Path, absent: list[str]) -> str:
    return (
        f"leo_embeddings: {folder} lacks {', '.join(absent)}; get {ARCHIVE}, unzip it, and set "
        f"dir to the folder that then has {options.subfolder.as_posix()} (it is {options.dir})"
    )


def _disagreements(tables: Mapping[str, Table]) -> Iterator[str]:
    """What no file shows alone: widths that differ, classes in two splits."""
    widths = {split: table.values.shape[1] for split, table in tables.items()}
    if len(set(widths.values())) > 1:
        told = ", ".join(f"{split} {width}" for split, width in widths.items())
        yield (
            f"leo_embeddings: the rows differ in width ({told}); the three files must be of one "
            "release: unzip the archive again"
        )
    for (a, one), (b, other) in combinations(tables.items(), 2):
        if common := sorted(set(one.class_names) & set(other.class_names)):
            named = ", ".join(ascii(name) for name in common[:5])
            yield (
                f"leo_embeddings: {one.path} and {other.path} share {len(common)} classes, first "
                f"{named}; a class belongs to {a} or {b} alone: unzip the archive again"
            )


def pools(tables: Mapping[str, Table]) -> dict[str, list[Pool]]:
    """One pool a split; rows are numbered through the files, in the order of ``tables``."""
    made, start = {}, 0
    for split, table in tables.items():
        members = tuple(start + rows for rows in table.members())
        made[split] = [Pool("classes", members, table.class_names)]
        start += len(table.values)
    return made
