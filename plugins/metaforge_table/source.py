"""The task source ``table``: that of ``arrays``, over the rows of a table."""

from __future__ import annotations

from dataclasses import replace

from metaforge.components import Context
from metaforge.errors import said_by
from metaforge.pooled import PooledTasks
from metaforge_arrays.source import load as load_arrays
from metaforge_table.layout import NAME, as_arrays, roles_of
from metaforge_table.options import TableOptions


def load(options: TableOptions, context: Context) -> PooledTasks:
    """N-way tasks over the rows. Raises ``DataError`` for whatever is wrong with the table; says
    which columns are what, where the options do not."""

    def report(line: str) -> None:
        context.report(f"{NAME}: {line.removeprefix('arrays: ')}")

    with said_by(NAME):
        roles = roles_of(options)
        if options.label is None:
            report(f"labels are those of column {roles.label}, features {len(roles.features)} more")
        if options.names is None and "names" in roles.others:
            report(f"rows are named by column {roles.others['names']}, which is no feature")
        given = as_arrays(options)
    with said_by(f"{NAME}: {options.path}", instead_of="arrays"):
        one_each = given.x.shape[1:] == (len(roles.features),)  # no column holds lists
        columns = roles.features if one_each else None
        made = load_arrays(given, replace(context, report=report), columns=columns)
    made.name = options.path.name
    return made
