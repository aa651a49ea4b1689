"""New rows join a fitted table model: ids, classes and edges checked, estimators grown, drift measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gsparc.exceptions import InputError
from gsparc.tables._id_values import ids_like, text_values
from gsparc.tables.columns import edge_columns_like
from gsparc.tables.joining import Ids, join_edges, node_ids

if TYPE_CHECKING:
    import pyarrow as pa

    from gsparc.tables.columns import EdgeColumns
    from gsparc.tables.model import TableModel

__all__ = ["grow_model"]


def grow_model(
    model: TableModel, nodes: pa.Table, edges: pa.Table | None, edge_columns: EdgeColumns | None = None
) -> dict[str, Any]:
    """See :meth:`~gsparc.tables.model.TableModel.grow`."""
    ids = _fresh_ids(model, nodes)
    known = model.find(ids) >= 0
    X, bad = model.features(nodes)
    usable = ~known
    usable[list(bad)] = False
    rows = np.flatnonzero(usable)
    labels = model.read_labels(nodes)
    strangers = _strangers(model, nodes, rows[labels[rows] == -2])
    drift = _drift(model, X[rows], labels[rows], strangers) if len(rows) else None
    everyone = np.concatenate([model.node_ids, ids[rows]]) if len(rows) else None
    joined = None
    if edges is not None:
        columns = edge_columns or edge_columns_like(model.edge_columns, edges)
        joined = join_edges(edges, columns, Ids(model.node_ids if everyone is None else everyone), need=False)
    ends: Any = None
    if joined is not None and len(joined):
        weights = () if joined.weights is None else (joined.weights,)
        ends = (joined.source, joined.target, *weights)
    if len(rows):
        if model.classifier is not None:
            model.classifier.grow(X[rows], np.maximum(labels[rows], -1), edges=ends)
        for part in (model.links, model.clusterer):
            if part is not None:
                part.grow(X[rows], edges=ends)
        assert everyone is not None
        model.take_over(everyone[len(model.node_ids) :], X[rows], ends)
    document = {
        "rows": nodes.num_rows,
        "added": len(rows),
        "already_known": int(known.sum()),
        "bad": {int(row): reason for row, reason in bad.items() if not known[row]},
        "bad_ids": {int(row): str(ids[row]) for row in bad if not known[row]},
        "unknown_classes": int((labels[rows] == -2).sum()),
        "labelled": int((labels[rows] >= 0).sum()),
        "edges": None if joined is None else joined.counts,
        "edge_notes": [] if joined is None else joined.sentences(),
        "nodes": len(model.node_ids),
        "drift": drift,
    }
    grown = model.report.setdefault("grown", [])
    grown.append({key: document[key] for key in ("added", "nodes", "drift")})
    return document


def _fresh_ids(model: TableModel, nodes: pa.Table) -> NDArray[Any]:
    """Ids of the new rows, of the kind that the model has."""
    name = model.columns.id
    if name is None:
        return np.arange(len(model.node_ids), len(model.node_ids) + nodes.num_rows)
    if name not in nodes.column_names:
        raise InputError(
            f"the new nodes have no column {name!r}, which holds the ids. Their columns: "
            f"{', '.join(nodes.column_names)}."
        )
    given = text_values(nodes[name])
    brought = ids_like(model.node_ids, given)
    if brought.null_count > given.null_count:
        strange = given.filter(brought.is_null()).drop_null()[0].as_py()
        raise InputError(
            f"the id {str(strange)!r} came in column {name!r}, but the ids of this model are whole numbers. Write it "
            "as one, or drop the row."
        )
    return node_ids(nodes.set_column(nodes.column_names.index(name), name, brought), name, advice="")


def _strangers(model: TableModel, nodes: pa.Table, rows: NDArray[np.int64]) -> dict[str, int]:
    """Classes of these rows, none of which the model knows, and how many rows are of each."""
    if not len(rows):
        return {}
    counts = text_values(nodes[model.columns.target]).take(rows).value_counts().to_pylist()
    return {str(entry["values"]): entry["counts"] for entry in counts}


def _drift(model: TableModel, X: Any, labels: NDArray[np.int64], strangers: dict[str, int]) -> dict[str, Any] | None:
    """Distance to what was seen, and how the classes have shifted; None without classes."""
    if model.classifier is None:
        return None
    from gsparc.tables.drift import drift

    count = len(model.classifier.classes_)
    seen = model.classifier._codes
    given = labels[labels >= 0]
    enough = len(given) >= max(1, len(labels) // 2)  # otherwise predictions, which every row has, say more
    now = given if enough else np.asarray(model.classifier.predict_proba(X)).argmax(axis=1)
    return drift(
        np.asarray(model.classifier.novelty(X)),
        np.bincount(now, minlength=count),
        np.bincount(seen[seen >= 0], minlength=count),
        given=enough,
        classes=model.class_names,
        strangers=strangers,
        labelled=int((labels != -1).sum()),
    )
