"""Files in and out: features of new nodes, and tables that appear only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer

from gsparc.exceptions import DataNotFoundError, FeatureError, OutputError

__all__ = ["NodeTable", "align_columns", "check_output", "load_nodes", "write_atomically", "write_table"]

_SUFFIXES = (".parquet", ".csv", ".npz")


class NodeTable(NamedTuple):
    """Features of nodes, what the nodes are called, and what the columns are called where that is known."""

    X: Any
    ids: np.ndarray
    feature_names: np.ndarray | None
    name: str


def load_nodes(source: str) -> NodeTable:
    """Features from a data set, an ``.npz`` file, a folder of tables or a table; edges may be missing."""
    from gsparc.datasets import load_dataset
    from gsparc.datasets.npz import _features, _read_arrays

    path = Path(source).expanduser()
    if path.suffix == ".npz":
        arrays = _read_arrays(path)
        X = _features(path, arrays)
        return _table(X, arrays.get("node_ids"), arrays.get("feature_names"), path.stem)
    table = path / "nodes.parquet" if path.is_dir() else path
    if table.suffix == ".parquet":
        return _load_parquet(table)
    data = load_dataset(source, allow_pickle_sources=False)
    return _table(data.X, data.node_ids, data.feature_names, data.name)


def _load_parquet(path: Path) -> NodeTable:
    import pyarrow as pa

    from gsparc.datasets.tables import _as_arrow, load_tables

    if not path.is_file():
        raise DataNotFoundError(
            f"there is no file {path}. Pass a Parquet table with one row a node, a folder with "
            "nodes.parquet, an .npz file or the name of a data set."
        )
    nodes = _as_arrow(path, "nodes")
    kind = nodes.schema.field("id").type if "id" in nodes.column_names else pa.int64()
    none = pa.table({"source": pa.array([], kind), "target": pa.array([], kind)})
    data = load_tables(nodes, none, name=path.stem)
    return _table(data.X, data.node_ids, data.feature_names, path.stem)


def _table(X: Any, ids: Any, feature_names: Any, name: str) -> NodeTable:
    return NodeTable(X, np.arange(X.shape[0]) if ids is None else np.asarray(ids), feature_names, name)


def align_columns(new: NodeTable, names: Any, where: str) -> Any:
    """Features of ``new`` in the order of ``names``; by position where either side has no names."""
    if names is None or new.feature_names is None:
        return new.X
    wanted, have = [str(n) for n in names], [str(n) for n in new.feature_names]
    if wanted == have:
        return new.X
    place = {name: i for i, name in enumerate(have)}
    missing = [name for name in wanted if name not in place]
    if missing:
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise FeatureError(
            f"{new.name} has {len(have)} features, {where} was fitted on {len(wanted)}; missing: {shown}. "
            "Pass the same feature columns, in any order."
        )
    return new.X[:, [place[name] for name in wanted]]


def check_output(path: Path, *, table: bool = True) -> None:
    """Refuse, before any work is done, an output that cannot be written."""
    if table and path.suffix.lower() not in _SUFFIXES:
        raise typer.BadParameter(
            f"{str(path)!r} ends in {path.suffix or 'no suffix'!r}; expected one of {', '.join(_SUFFIXES)}.",
            param_hint="-o",
        )
    if table and path.is_dir():
        raise OutputError(f"{path} is a folder. Pass the name of a file.")
    folder = path.parent if table else path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write {path} ({error.strerror or error}). Choose a folder that exists and can be written."
    )


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a file beside ``path``, then rename it: a reader never sees half of it."""
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


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
