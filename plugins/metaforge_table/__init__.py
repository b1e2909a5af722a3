"""Own features in one line: ``table``, a csv, tsv or Parquet file with a column of labels."""

from __future__ import annotations

from collections.abc import Sequence

from metaforge.components import Component
from metaforge.hookspecs import hookimpl


@hookimpl
def metaforge_datasets() -> Sequence[Component]:
    return [
        Component(
            kind="dataset",
            name="table",
            target="metaforge_table.source:load",
            options="metaforge_table.options:TableOptions",
            summary="own features from a csv, tsv or Parquet file, with a column of class labels",
            check="metaforge_table.layout:check",
            groups="metaforge_table.layout:has_groups",
            tasks=("classification",),
            facts="metaforge_table.layout:facts",
        )
    ]
