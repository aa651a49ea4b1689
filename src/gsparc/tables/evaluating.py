"""How well a table model does on rows whose class, or whose links, are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc.exceptions import InputError, LabelError
from gsparc.experiments.comparison import compare_classifiers, compare_links, share_of
from gsparc.tables.measuring import OURS

if TYPE_CHECKING:
    import pyarrow as pa

    from gsparc.tables.model import TableModel

__all__ = ["evaluate_model"]

_MOST_RANKED = 10_000


def evaluate_model(model: TableModel, table: pa.Table, *, coverage: float, links: Any) -> dict[str, Any]:
    """See :meth:`~gsparc.tables.model.TableModel.evaluate`."""
    X, bad = model.features(table)
    document: dict[str, Any] = {
        "rows": table.num_rows,
        "bad": {int(row): reason for row, reason in bad.items()},
        "classes": None,
        "links": None,
    }
    keep = np.ones(table.num_rows, bool)
    keep[list(bad)] = False
    if model.classifier is not None:
        document["classes"] = _classes(model, table, X, keep, coverage)
    if model.links is not None and links is not None:
        document["links"] = _links(model, X, keep, links)
    if document["classes"] is None and document["links"] is None:
        raise InputError(
            "there is nothing to measure: the model has no classes, and no links of the rows came. Pass their links "
            "with --edges."
        )
    return document


def _classes(model: TableModel, table: pa.Table, X: Any, keep: NDArray[np.bool_], coverage: float) -> dict[str, Any]:
    target = model.columns.target
    if target not in table.column_names:
        raise LabelError(f"the table has no column {target!r}, which holds the classes.")
    codes = model.read_labels(table)
    rows = np.flatnonzero(keep & (codes != -1))
    if not len(rows):
        raise LabelError(f"no row of the table has a class in column {target!r}, so there is nothing to measure.")
    codes = codes[rows]
    said = model.predict(table.take(rows), coverage=coverage, links=0, near=0, position=False)
    assert said.proba is not None
    assert said.members is not None
    assert said.abstained is not None
    count = said.proba.shape[1]
    truth = np.where(codes == -2, count, codes)  # a class that the model does not know counts as missed
    figures, right = compare_classifiers(truth, {OURS: said.proba}, np.arange(count), ours=[OURS])
    known = codes >= 0
    hit = said.members[np.arange(len(rows)), np.where(known, codes, 0)] & known
    sure = ~said.abstained
    return {
        **{key: value for key, value in figures[0].items() if key not in ("method", "ours")},
        "rows": len(rows),
        "unknown_classes": int((~known).sum()),
        "known_classes": {
            "rows": int(known.sum()),
            "accuracy": float(right[OURS][known].mean()) if known.any() else None,
            "interval": share_of(right[OURS][known]) if known.any() else None,
        },
        "coverage": {
            "promised": coverage,
            "measured": float(hit.mean()),
            "interval": share_of(hit),
            "mean_size": float(said.members.sum(axis=1).mean()),
        },
        "abstained": float(said.abstained.mean()),
        "accuracy_where_it_says": float(right[OURS][sure].mean()) if sure.any() else None,
        "by_class": _by_class(model, codes, said.proba.argmax(axis=1)),
    }


def _by_class(model: TableModel, codes: NDArray[np.int64], said: NDArray[np.int64]) -> list[dict[str, Any]]:
    assert model.class_names is not None
    lines = []
    for code, name in enumerate(model.class_names.tolist()):
        true, predicted = codes == code, said == code
        if true.any():
            both = int((true & predicted).sum())
            precision = both / int(predicted.sum()) if predicted.any() else None
            lines.append(
                {"class": name, "rows": int(true.sum()), "recall": both / int(true.sum()), "precision": precision}
            )
    return sorted(lines, key=lambda line: -line["rows"])


def _links(model: TableModel, X: Any, keep: NDArray[np.bool_], links: Any) -> dict[str, Any] | None:
    rows, places = (np.asarray(part, np.int64) for part in links[:2])
    usable = keep[rows] & (places >= 0)
    shape = (X.shape[0], len(model.node_ids))
    truth = sp.csr_array((np.ones(int(usable.sum()), np.int8), (rows[usable], places[usable])), shape=shape)
    linked = np.flatnonzero(np.diff(truth.indptr))[:_MOST_RANKED]
    if not len(linked):
        raise InputError("none of the edges joins a row of the table to a known node, so no links can be ranked.")
    figures, _ = compare_links(X[linked], sp.csr_array(truth[linked]), {OURS: model.links.score_all}, ours=[OURS])
    return {**{k: v for k, v in figures[0].items() if k not in ("method", "ours")}, "rows": len(linked)}
