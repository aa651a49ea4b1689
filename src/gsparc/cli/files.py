"""Files in and out: features of new nodes, and tables that appear only when they are complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from gsparc._files import cannot_write, refuse_overwriting, write_atomically
from gsparc.exceptions import DataNotFoundError, FeatureError, InputError, OutputError

__all__ = ["NodeTable", "align_columns", "check_output", "load_nodes", "write_table"]

_NODE_FORMATS = (
    "Nodes are read from an .npz file, a Parquet table with one row a node, or a folder with nodes.parquet; "
    "or pass the name of a data set."
)
_BLOCK = 1 << 22  # numbers looked at together
_SUFFIXES = (".parquet", ".csv", ".npz")


class NodeTable(NamedTuple):
    """Features of nodes, what the nodes are called, and what the columns are called where that is known."""

    X: Any
    ids: np.ndarray
    feature_names: np.ndarray | None
    name: str


def load_nodes(source: str, names: Any = None) -> NodeTable:
    """Features from a data set, an ``.npz`` file, a folder of tables or a table; edges may be missing.

    ``names`` are the features that a fit knows: of a table other columns are not even looked at, so its
    labels may be missing or of any kind.
    """
    from gsparc.datasets import load_dataset
    from gsparc.datasets.npz import read_arrays, read_features
    from gsparc.datasets.registry import as_path

    path = as_path(source)
    if path is None:
        data = load_dataset(source, allow_pickle_sources=False)
        return _table(data.X, data.node_ids, data.feature_names, data.name)
    if not path.exists():
        raise DataNotFoundError(f"there is no file {path}. {_NODE_FORMATS}")
    if path.suffix == ".npz":
        arrays = read_arrays(path)
        return _table(read_features(path, arrays), arrays.get("node_ids"), arrays.get("feature_names"), str(path))
    table = path / "nodes.parquet" if path.is_dir() else path
    if table.suffix != ".parquet":
        raise InputError(f"{path} is of a kind that is not read. {_NODE_FORMATS}")
    if not table.is_file():
        raise DataNotFoundError(f"the folder {path} has no nodes.parquet. {_NODE_FORMATS}")
    return _load_parquet(table, names)


def _load_parquet(path: Path, names: Any) -> NodeTable:
    from gsparc._ids import as_node_ids
    from gsparc.datasets.tables import as_arrow, feature_matrix, label_column

    nodes = as_arrow(path, "nodes")
    if names is None:
        label = label_column(nodes, None)
        unused = set() if label is None else {label}
    else:
        known = {str(name) for name in names}
        known |= {name.rpartition("[")[0] for name in known}  # a column of lists: v[0], v[1], ...
        unused = set(nodes.column_names) - known
        if len(unused) == nodes.num_columns:
            unused = set()  # nothing fits; align_columns says what is missing
    X, feature_names = feature_matrix(nodes, skip={"id", *unused})
    ids = as_node_ids(nodes["id"]) if "id" in nodes.column_names else None
    return _table(X, ids, feature_names, str(path))


def _table(X: Any, ids: Any, feature_names: Any, name: str) -> NodeTable:
    rows, width = X.shape
    if rows == 0:
        raise InputError(f"{name} has no rows; one row a node was expected.")
    if ids is not None and np.shape(ids) != (rows,):
        raise InputError(f"{name}: node_ids have shape {np.shape(ids)}, but there are {rows} rows. Give one id a row.")
    if feature_names is not None and np.shape(feature_names) != (width,):
        raise InputError(
            f"{name}: feature_names have shape {np.shape(feature_names)}, but there are {width} features. "
            "Give one name a column."
        )
    return NodeTable(X, np.arange(rows) if ids is None else np.asarray(ids), feature_names, name)


def align_columns(new: NodeTable, names: Any, where: str) -> Any:
    """Features of ``new`` in the order of ``names``, all finite; by position where either side has no names."""
    if names is None or new.feature_names is None:
        return _finite(new.X, new, new.feature_names)
    wanted, have = [str(n) for n in names], [str(n) for n in new.feature_names]
    place = {name: i for i, name in enumerate(have)}
    missing = [name for name in wanted if name not in place]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise FeatureError(
            f"{new.name} has {len(have)} features, {where} was fitted on {len(wanted)}; missing: {shown}. "
            "Pass the same feature columns, in any order."
        )
    X = new.X if wanted == have else new.X[:, [place[name] for name in wanted]]
    return _finite(X, new, wanted)


def _finite(X: Any, new: NodeTable, names: Any) -> Any:
    """``X`` if every number in it is finite; otherwise an error that says where the first is that is not."""
    found = _first_not_finite(X)
    if found is None:
        return X
    row, column, value = found
    called = f"column {column + 1}" if names is None else f"column {str(names[column])!r}"
    raise FeatureError(
        f"{new.name}: the feature in row {row + 1} (id {new.ids[row]}), {called} is {value}. "
        "Features must be finite; fill or drop such values (rows and columns are counted from 1)."
    )


def _first_not_finite(X: Any) -> tuple[int, int, float] | None:
    """Row, column and value, a block of rows at a time: no mask as large as X."""
    import scipy.sparse as sp

    if sp.issparse(X):
        bad = np.flatnonzero(~np.isfinite(X.data))
        if not bad.size:
            return None
        row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
        return row, int(X.indices[bad[0]]), float(X.data[bad[0]])
    step = max(1, _BLOCK // max(1, X.shape[1]))
    for start in range(0, X.shape[0], step):
        block = X[start : start + step]
        if not np.isfinite(block).all():
            row, column = (int(place) for place in np.argwhere(~np.isfinite(block))[0])
            return start + row, column, float(block[row, column])
    return None


def check_output(path: Path, *, table: bool = True, inputs: Iterable[str | None] = ()) -> None:
    """Refuse, before any work is done, an output that cannot be written, or would be written over an input."""
    if table and path.suffix.lower() not in _SUFFIXES:
        what = f"ends in {path.suffix}, which is not written" if path.suffix else "has no ending that says the format"
        raise typer.BadParameter(
            f"{str(path)!r} {what}. Pass a name that ends in one of {', '.join(_SUFFIXES)}.", param_hint="-o"
        )
    if table and path.is_dir():
        raise OutputError(f"{path} is a folder. Pass the name of a file.")
    for source in filter(None, inputs):
        refuse_overwriting(path, [source, *(Path(source) / f"{name}.parquet" for name in ("nodes", "edges"))])
    folder = path.parent if table else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise cannot_write(path, error) from error


def write_table(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Columns as Parquet, CSV or npz, by the suffix; a two-dimensional one is written as numbered columns.

    Column ``c`` of shape (n, 3) becomes ``c1, c2, c3``; in npz it stays one array.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        arrays: dict[str, Any] = columns
        write_atomically(path, lambda file: np.savez_compressed(file, **arrays))
        return
    import pyarrow as pa

    flat: dict[str, Any] = {}
    for name, values in columns.items():
        if values.ndim == 2:
            flat |= {f"{name}{i + 1}": pa.array(values[:, i]) for i in range(values.shape[1])}
        else:
            flat[name] = pa.array(values.tolist() if values.dtype.kind in "UO" else values)
    table = pa.table(flat)
    if suffix == ".parquet":
        import pyarrow.parquet as pq

        write_atomically(path, lambda file: pq.write_table(table, file))
    else:
        from pyarrow import csv

        write_atomically(path, lambda file: csv.write_csv(table, file))
