"""Tables of files once it is known what their columns are: numbers where numbers are meant, else what is written.

A look at all values of a CSV says which columns hold numbers. But ``1.10`` may be a version and ``90E3`` a name, and
new rows are read a block at a time, without such a look. So words, categories and ids keep their text.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa

from gsparc.tables._id_values import typed_ids
from gsparc.tables._types import is_number, is_text
from gsparc.tables.columns import Columns, EdgeColumns, edge_columns_like
from gsparc.tables.reading import read_table, typed

__all__ = ["read_more_edges", "read_more_rows", "typed_edges", "typed_nodes"]


def typed_nodes(table: pa.Table, written: pa.Table, columns: Columns) -> pa.Table:
    """``table``, which is :func:`~gsparc.tables.reading.typed` of ``written``, with text where the roles want it.

    Ids are whole numbers where all are written as such, else as they are written.
    """
    for name in (*columns.text, *columns.categorical):
        table = _with_column(table, name, written[name])
    return table if columns.id is None else _with_column(table, columns.id, _ids_of(table, written, columns.id))


def typed_edges(table: pa.Table, written: pa.Table, columns: EdgeColumns) -> pa.Table:
    """An edge table whose ends are ids as :func:`typed_nodes` has them."""
    for name in (columns.source, columns.target):
        table = _with_column(table, name, _ids_of(table, written, name))
    return table


def _ids_of(table: pa.Table, written: pa.Table, name: str) -> pa.ChunkedArray:
    kind = table[name].type  # whole numbers and text are what they should be; of others the text is looked at again
    return table[name] if pa.types.is_integer(kind) or is_text(kind) else typed_ids(written[name])


def _with_column(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def read_more_rows(path: str | os.PathLike[str], model: Any, *, what: str = "rows") -> pa.Table:
    """Further rows for a fitted model: its ids, words and categories as they are written, and classes that are text."""
    written = read_table(path, what=what, written=None)
    columns: Columns = model.columns
    kept = {columns.id, columns.group, *columns.text, *columns.categorical}
    table = typed(written, [name for name in written.column_names if name in kept])
    names, target = model.class_names, columns.target
    if target is None or target not in table.column_names:
        return table
    if names is not None and np.asarray(names).dtype.kind == "U" and is_number(table[target].type):
        table = _with_column(table, target, written[target])  # the classes a and 1.10: these rows have the second only
    return table


def read_more_edges(
    path: str | os.PathLike[str], known: EdgeColumns, source: str | None = None, target: str | None = None
) -> tuple[pa.Table, EdgeColumns]:
    """Further edges for a fitted model, their ends as they are written, and which columns hold these."""
    written = read_table(path, what="edges", written=None)
    columns = edge_columns_like(known, typed(written), source, target)
    return typed(written, (columns.source, columns.target)), columns
