"""Options of the data set ``table``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from metaforge.class_options import SHARES, ClassOptions, Share


class TableOptions(ClassOptions):
    """Tasks on the rows of a table."""

    path: Path = Field(
        description="csv, tsv or parquet file with names of columns, relative to the recipe (in "
        "key=value: to the current folder)"
    )
    label: str | None = Field(
        None,
        description="column of class labels; by default the one called label, y or class",
    )
    columns: tuple[str, ...] | None = Field(
        None,
        description="columns of features, by name or pattern, e.g. ['f*']; by default all that "
        "have no other use, which must hold numbers",
    )
    normalize: Literal["none", "l2", "standardize"] = Field(
        "none",
        description="of features: rows to unit length, or columns to mean 0 and sd 1 over the "
        "training classes",
    )
    group: str | None = Field(
        None, description="column with the group (superclass, alphabet, ...) of each row's class"
    )
    sample_group: str | None = Field(
        None,
        description="column with a group for each row (patient, film, ...) that is never in both "
        "the support and the queries of a task",
    )
    names: str | None = Field(
        None,
        description="column that names the rows, for targets.jsonl; by default the one called "
        "file, files, name or id, unless columns asks for it, else their numbers",
    )
    split: str | tuple[Share, Share, Share] = Field(
        SHARES,
        description="column with train, val or test for each row, those of one class alike; or "
        "three shares of the classes that sum to 1",
    )

    @property
    def has_groups(self) -> bool:
        return self.group is not None
