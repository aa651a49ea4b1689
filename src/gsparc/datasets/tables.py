"""Data sets as two tables: one row a node, one row an edge."""

from __future__ import annotations

import logging
import math
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

__all__ = ["as_arrow", "encode_labels", "feature_matrix", "label_column", "load_tables"]

logger = logging.getLogger(__name__)

_FEW = 20  # distinct whole numbers that a column "y" may always hold and still be taken for classes
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def load_tables(
    nodes: Any,
    edges: Any,
    *,
    id: str = "id",
    label: str | None = None,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
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
        Column of classes, strings or whole numbers; missing values and -1 are unlabelled. Default: a
        column ``label``; or else a column ``y``, if it looks like classes: strings, true/false, or whole
        numbers of which few differ (20, or the square root of the rows where that is more). Any other
        ``y``, a coordinate for instance, is a feature.
    source, target : str, optional
        Columns of ``edges``; see :meth:`gsparc.Graph.from_table` for the default.
    weight : str, optional
        Column of ``edges`` with one number an edge. Default: a column called ``weight``, in capitals or
        not, if it is numeric; without one the graph is unweighted.
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
    node_table, edge_table = as_arrow(nodes, "nodes"), as_arrow(edges, "edges")
    if node_table.num_rows == 0:
        raise InputError("the node table has no rows; one row a node was expected.")
    label = label_column(node_table, label)
    y, class_names = (None, None) if label is None else encode_labels(node_table[label], label)
    X, feature_names = feature_matrix(node_table, skip={id, label})
    columns = {"source": source, "target": target, "weight": _weight_column(edge_table, weight, {source, target})}
    if id in node_table.column_names:
        graph = Graph.from_table(edge_table, **columns, nodes=node_table, id=id)
    else:
        graph = Graph.from_table(edge_table, **columns, nodes=np.arange(node_table.num_rows))
        graph = Graph(graph.indptr, graph.indices, graph.weights)  # a position is no id
    return Dataset(X, y, graph, graph.node_ids, class_names, feature_names, name=name, source="tables of the user")


def as_arrow(table: Any, what: str) -> pa.Table:
    """A pyarrow table from a Parquet file or any table; ``what`` (nodes, edges) names it in messages."""
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


def _weight_column(table: pa.Table, weight: str | None, ends: set[str | None]) -> str | None:
    """The column of weights: the one named, or a numeric one called weight."""
    if weight is None:
        found = (name for name in table.column_names if name.lower() == "weight" and name not in ends)
        weight = next(found, None)
        if weight is not None and not _is_scalar(table[weight].type):
            logger.info(
                "column %r (%s) of the edges is not numeric: the graph is unweighted", weight, table[weight].type
            )
            return None
    elif weight not in table.column_names:
        raise InputError(
            f"the edge table has no column {weight!r} for weight=. Its columns: {', '.join(table.column_names)}."
        )
    elif not _is_scalar(table[weight].type):
        raise InputError(
            f"column {weight!r} of the edge table holds {table[weight].type}; weights are numbers. "
            "Pass weight= to name another column."
        )
    return weight


def label_column(table: pa.Table, label: str | None) -> str | None:
    """The column of classes: the one named, or ``label``, or a ``y`` that looks like classes."""
    if label is None and "label" in table.column_names:
        return "label"
    if label is None:
        if "y" not in table.column_names:
            return None
        if _looks_like_classes(table["y"]):
            return "y"
        logger.info("column 'y' (%s) does not look like classes and is not taken for labels", table["y"].type)
        return None
    if label not in table.column_names:
        raise LabelError(
            f"the node table has no column {label!r} for label=. Its columns: {', '.join(table.column_names)}."
        )
    return label


def _looks_like_classes(column: pa.ChunkedArray) -> bool:
    """Whether an unnamed guess is safe: strings, true/false, or few distinct whole numbers from -1 on."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_boolean(kind) or any(is_text(kind) for is_text in _TEXT):
        return True
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return False
    values = column.cast(pa.float64(), safe=False).to_numpy()
    values = np.unique(values[~np.isnan(values)])
    whole = bool(((values == np.trunc(values)) & (values >= -1) & (values < 2**53)).all())
    return whole and len(values) <= max(_FEW, math.isqrt(len(column)))


def encode_labels(
    column: pa.ChunkedArray, name: str, *, negative: bool = False, advice: str = "Pass label= to name another column."
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Classes as 0, 1, ... in sorted order of their values, -1 where missing; and their names.

    Among whole numbers -1 is no class and less than that an error, unless ``negative`` ones are classes too. True and
    false are called ``true`` and ``false``. ``advice`` ends the error about a column that holds no classes.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    present = np.array(column.is_valid())
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.string())  # false and true
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_numpy()  # NaN where missing
        present &= np.isfinite(values) & (negative | (values != -1))
        if not negative and (values[present] < 0).any():
            raise LabelError(
                f"column {name!r} holds the class {values[present].min():g}; classes are strings, or numbers of 0 or "
                f"more, and -1 is unlabelled. {advice}"
            )
        if not np.array_equal(values[present], np.trunc(values[present])):
            raise LabelError(
                f"column {name!r} holds numbers that are not whole; classes are strings or whole numbers. {advice}"
            )
        values = np.where(present, values, 0).astype(np.int64)
    else:
        values = np.array([str(value) for value in column.to_pylist()], dtype=np.str_)
    names, codes = np.unique(values[present], return_inverse=True)
    y = np.full(len(present), -1, dtype=np.int64)
    y[present] = codes
    return y, names.astype(np.str_)


def feature_matrix(table: pa.Table, skip: set[str | None]) -> tuple[NDArray[np.float32], NDArray[Any]]:
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
