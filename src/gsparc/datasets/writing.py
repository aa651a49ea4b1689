"""A data set as two CSV files, as a user would bring it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from gsparc._files import write_atomically
from gsparc.datasets.base import Dataset

__all__ = ["export_tables"]

_NAMES = {"debian": {"id": "package", "label": "section"}}
_MOST_REPEATS = 50  # of one word in one text


def export_tables(data: Dataset, folder: Path) -> dict[str, Any]:
    """Write ``nodes.csv`` and ``edges.csv``; counts of words become texts in which each word stands as often.

    Returns
    -------
    dict
        The two paths, and what the columns are.

    Examples
    --------
    >>> import tempfile
    >>> from gsparc.datasets import make_blocks
    >>> data = make_blocks(40, 100, 3, branching=(2, 2), random_state=0)
    >>> export_tables(data, Path(tempfile.mkdtemp()))["columns"]
    ['id', 'label', 'x0', 'x1', 'x2']
    """
    from pyarrow import csv

    folder.mkdir(parents=True, exist_ok=True)
    names = {"id": "id", "label": "label"} | _NAMES.get(data.name, {})
    ids = np.arange(data.graph.num_nodes) if data.node_ids is None else np.asarray(data.node_ids)
    columns: dict[str, Any] = {names["id"]: ids.tolist()}
    if data.y is not None:
        classes = np.arange(data.num_classes).astype(str) if data.class_names is None else np.asarray(data.class_names)
        columns[names["label"]] = [None if code < 0 else str(classes[code]) for code in data.y.tolist()]
    columns |= _words(data) if _is_counts(data.X) else _numbers(data)
    if data.groups is not None:
        columns["group"] = np.asarray(data.groups).tolist()
    upper = sp.coo_array(sp.triu(data.graph.to_scipy()))
    edges: dict[str, Any] = {"source": ids[upper.row].tolist(), "target": ids[upper.col].tolist()}
    if data.graph.weights is not None:
        edges["weight"] = upper.data
    paths = {"nodes": folder / "nodes.csv", "edges": folder / "edges.csv"}
    for path, table in zip(paths.values(), (pa.table(columns), pa.table(edges)), strict=True):
        write_atomically(path, lambda file, table=table: csv.write_csv(table, file), "a table")
    return {**{key: str(path) for key, path in paths.items()}, "columns": list(columns), "target": names["label"]}


def _is_counts(X: Any) -> bool:
    values = X.data if sp.issparse(X) else np.zeros(0)
    return bool(values.size) and bool((values > 0).all() and (values == np.round(values)).all())


def _words(data: Dataset) -> dict[str, list[str]]:
    X: Any = data.X
    names = data.feature_names
    words = [f"w{i}" for i in range(X.shape[1])] if names is None else ["_".join(str(n).split()) for n in names]
    texts = []
    for start, stop in zip(X.indptr[:-1].tolist(), X.indptr[1:].tolist(), strict=True):
        counts = np.minimum(X.data[start:stop], _MOST_REPEATS).astype(int).tolist()
        pairs = zip(X.indices[start:stop].tolist(), counts, strict=True)
        texts.append(" ".join(" ".join([words[column]] * count) for column, count in pairs))
    return {"words": texts}


def _numbers(data: Dataset) -> dict[str, Any]:
    X: Any = data.X
    X = X.toarray() if sp.issparse(X) else X
    names = [f"x{i}" for i in range(X.shape[1])] if data.feature_names is None else [str(n) for n in data.feature_names]
    return {name: X[:, i] for i, name in enumerate(names)}
