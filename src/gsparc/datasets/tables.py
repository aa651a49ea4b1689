"""Data sets as two tables: one row a node, one row an edge."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gsparc.datasets.base import Dataset
from gsparc.exceptions import DataNotFoundError, FeatureError, InputError, LabelError
from gsparc.graph import Graph

__all__ = ["load_tables"]

logger = logging.getLogger(__name__)

_LABELS = ("label", "y")


def load_tables(
    nodes: Any,
    edges: Any,
    *,
    id: str = "id",
    label: str | None = None,
    source: str | None = None,
    target: str | None = None,
    name: str = "tables",
) -> Dataset:
    """A data set from a node table and an edge table.

    Parameters
    ----------
    nodes, edges : path of a Parquet file, or a pandas, polars or pyarrow table
        Numeric and true/false columns of ``nodes`` are features, and so are columns of lists of numbers
        that are all of one length (embeddings); other columns are left out, which the log says.
    id : str
        Column of ``nodes`` with unique strings or integers. Without it the edges hold row positions.
    label : str, optional
        Column of classes, strings or integers; missing values and -1 are unlabelled. Default: ``label``
        or ``y`` where there is one.
    source, target : str, optional
        Columns of ``edges``; see :meth:`gsparc.Graph.from_table` for the default.
    name : str
        What the data set is called.

    Examples
    --------
    >>> import pyarrow as pa
    >>> nodes = pa.table({"id": ["a", "b", "c"], "size": [1.0, 2.0, 3.0], "label": ["x", "x", None]})
    >>> edges = pa.table({"source": ["a", "b"], "target": ["b", "c"]})
    >>> data = load_tables(nodes, edges)
    >>> data, data.y
    (Dataset('tables': 3 nodes, 2 edges, 1 features, 1 classes), array([ 0,  0, -1]))
    """
    node_table, edge_table = _as_arrow(nodes, "nodes"), _as_arrow(edges, "edges")
    if node_table.num_rows == 0:
        raise InputError("the node table has no rows; one row a node was expected.")
    label = _label_column(node_table, label)
    y, class_names = (None, None) if label is None else encode_labels(node_table[label], label)
    X, feature_names = _feature_matrix(node_table, skip={id, label})
    if id in node_table.column_names:
        graph = Graph.from_table(edge_table, source=source, target=target, nodes=node_table, id=id)
    else:
        positions = np.arange(node_table.num_rows)
        graph = Graph.from_table(edge_table, source=source, target=target, nodes=positions)
        graph = Graph(graph.indptr, graph.indices)  # a position is no id
    return Dataset(X, y, graph, graph.node_ids, class_names, feature_names, name=name, source="tables of the user")


def _as_arrow(table: Any, what: str) -> pa.Table:
    if isinstance(table, (str, os.PathLike)):
        path = Path(table)
        if not path.is_file():
            raise DataNotFoundError(f"there is no {what} table {path}. Pass the path of a Parquet file.")
        try:
            return pq.read_table(path)
        except pa.ArrowException as error:
            raise InputError(f"{path} cannot be read as Parquet: {error}") from error
    if isinstance(table, pa.Table):
        return table
    import narwhals as nw

    try:
        return nw.from_native(table, eager_only=True).to_arrow()
    except TypeError as error:
        raise InputError(
            f"{what} is a {type(table).__name__}; a Parquet path or a pandas, polars or pyarrow table was expected."
        ) from error


def _label_column(table: pa.Table, label: str | None) -> str | None:
    if label is None:
        return next((name for name in _LABELS if name in table.column_names), None)
    if label not in table.column_names:
        raise LabelError(
            f"the node table has no column {label!r} for label=. Its columns: {', '.join(table.column_names)}."
        )
    return label


def encode_labels(column: pa.ChunkedArray, name: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Classes as 0, 1, ... in sorted order of their values, -1 where missing; and their names."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    present = np.array(column.is_valid())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_numpy()  # NaN where missing
        present &= np.isfinite(values) & (values != -1)
        if (values[present] < 0).any():
            raise LabelError(
                f"column {name!r} holds the class {values[present].min():g}; classes are 0 or more, -1 is "
                "unlabelled. Pass strings, or label= to name another column."
            )
        if not np.array_equal(values[present], np.trunc(values[present])):
            raise LabelError(
                f"column {name!r} holds numbers that are not whole; classes are strings or whole numbers. "
                "Pass label= to name another column."
            )
        values = np.where(present, values, 0).astype(np.int64)
    else:
        values = np.array([str(value) for value in column.to_pylist()], dtype=np.str_)
    names, codes = np.unique(values[present], return_inverse=True)
    y = np.full(len(present), -1, dtype=np.int64)
    y[present] = codes
    return y, names.astype(np.str_)


def _feature_matrix(table: pa.Table, skip: set[str | None]) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Numeric columns in their order, filled one at a time into one array; and their names."""
    chosen: list[tuple[str, int]] = []
    for name in map(str, table.column_names):
        width = 0 if name in skip else _width(table[name])
        if width:
            chosen.append((name, width))
        elif name not in skip:
            logger.info("column %r (%s) is not numeric and is left out", name, table[name].type)
    if not chosen:
        raise FeatureError(
            f"the node table has no numeric column to use as a feature. Its columns: "
            f"{', '.join(f'{f.name} ({f.type})' for f in table.schema)}."
        )
    X = np.empty((table.num_rows, sum(width for _, width in chosen)), dtype=np.float32)
    names: list[str] = []
    for name, width in chosen:
        X[:, len(names) : len(names) + width] = _numbers(table[name], name, width)
        names += [name] if _is_scalar(table[name].type) else [f"{name}[{i}]" for i in range(width)]
    return X, np.array(names)


def _is_scalar(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _width(column: pa.ChunkedArray) -> int:
    """How many feature columns this column makes; 0 if none."""
    kind = column.type
    if _is_scalar(kind):
        return 1
    if pa.types.is_fixed_size_list(kind) and _is_scalar(kind.value_type):
        return int(kind.list_size)
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_scalar(kind.value_type):
        lengths = pc.call_function("min_max", [pc.call_function("list_value_length", [column])]).as_py()
        return int(lengths["min"]) if lengths["min"] is not None and lengths["min"] == lengths["max"] else 0
    return 0


def _numbers(column: pa.ChunkedArray, name: str, width: int) -> NDArray[np.float32]:
    flat = column if _is_scalar(column.type) else pc.call_function("list_flatten", [column])
    missing = column.null_count + (flat.null_count if flat is not column else 0)
    if missing:
        raise FeatureError(
            f"column {name!r} of the node table has {missing} missing values. Fill them, or drop the column."
        )
    values = np.asarray(flat.cast(pa.float32(), safe=False))
    return values.reshape(len(column), width)
