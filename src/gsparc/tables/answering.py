"""What a table model says about new rows: each thing looked for once, and only where it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._validation import check_count, check_share
from gsparc.tables._id_values import ids_like, text_values
from gsparc.tables._types import python_column
from gsparc.tables.predictions import Predictions

if TYPE_CHECKING:
    from gsparc.tables.model import TableModel

__all__ = ["OwnNodes", "answer_rows", "far_below", "names_of", "space"]

_REASONS = ("", "no class can be ruled out", "far from every known node", "nothing of it is known")
BULK_ROWS = 2048  # rows from which it pays to ask only whether they are far, not how far
_FAR_BELOW = 0.01  # p-value of the distance to known nodes below which a row is called far


def answer_rows(
    model: TableModel,
    table: Any,
    *,
    coverage: float | None,
    links: int,
    near: int,
    edges: Any,
    ids: Any,
    position: bool,
    abstain: bool,
) -> Predictions:
    """See :meth:`~gsparc.tables.model.TableModel.predict`."""
    X, known, out = asked_rows(model, table, coverage=coverage, links=links, near=near, ids=ids)
    near, links = min(near, len(model.node_ids)), min(links, len(model.node_ids))
    if X.shape[0] == 0:
        return out
    own = OwnNodes(model, table, out.ids, given=ids is not None)
    if model.classifier is not None:
        _classify(model, out, X, coverage, near, edges, abstain, own)
    elif near:
        out.near = _near(model, X, near, own)
    alone = abstain and model.classifier is None
    if model.links is not None and (links or alone):
        _link(model, out, X, links, alone, own)
    if abstain:
        _abstain(model, out, table, X, known)
    if model.clusterer is not None:
        memberships = np.asarray(model.clusterer.predict_proba(X))
        out.memberships, out.clusters = memberships, memberships.argmax(axis=1)
    if position:
        out.position = model.drawing.place(space(model.parts, X))
    return out


class OwnNodes:
    """Leaves the node that a row itself is out of what is found for it, where the model has a node of the row's id.

    Ids are compared with those of the nodes that were found, a few a row; only rows that have found themselves are
    looked for again, with one node more. So new rows cost nothing.
    """

    def __init__(self, model: Any, table: Any, ids: NDArray[Any], *, given: bool) -> None:
        self._nodes = model.node_ids
        name = model.columns.id
        named = name is not None and (given or (hasattr(table, "schema") and name in table.schema.names))
        self._ids = _of_kind(ids, self._nodes) if named else None  # row numbers are no ids

    def leave_out(self, X: Any, places: NDArray[Any], *beside: NDArray[Any], search: Any) -> tuple[NDArray[Any], ...]:
        """``places`` [m, k] and what belongs to them; ``search(X, k)`` finds both anew for some rows."""
        found, k = (places, *beside), places.shape[1]
        if self._ids is None or k >= len(self._nodes):
            return found
        rows = np.flatnonzero((self._nodes[places] == self._ids[:, None]).any(axis=1))
        if not len(rows):
            return found
        again = search(X[rows], k + 1)
        others = np.argsort(self._nodes[again[0]] == self._ids[rows, None], axis=1, kind="stable")[:, :k]
        for whole, part in zip(found, again, strict=True):
            whole[rows] = np.take_along_axis(part, others, axis=1)
        return found


def _of_kind(ids: NDArray[Any], known: Any) -> NDArray[Any]:
    """Ids that can be compared with known ones; what cannot be one is equal to none."""
    column = ids_like(known, python_column(ids.tolist()))
    if known.dtype.kind == "U":
        return np.array(column.fill_null("").to_pylist(), np.str_)
    return np.array(column.to_pylist(), object) if column.null_count else column.to_numpy()


def asked_rows(
    model: TableModel, table: Any, *, coverage: float | None, links: int, near: int, ids: Any
) -> tuple[Any, Any, Predictions]:
    """Check what was asked for and read the rows: their features, what of them was known, and answers to fill in."""
    check_count("links", links, 0)
    check_count("near", near, 0)
    if coverage is not None:
        check_share("coverage", coverage)
    X, bad, known = model.read_rows(table)
    found = _row_ids(table, model.columns.id, X.shape[0]) if ids is None else np.asarray(ids)
    out = Predictions(found, dict(bad))
    out.class_names = model.class_names
    return X, known, out


def space(parts: dict[str, Any], X: Any) -> NDArray[np.float32]:
    """Coordinates that nodes are compared and drawn by: the classifier's, else the clusterer's, else the links'."""
    if parts["classifier"] is not None:
        return parts["classifier"]._coordinates(X)
    if parts["clusterer"] is not None:
        return parts["clusterer"].embed(X)
    return parts["links"].transform_queries(X)


def names_of(class_names: NDArray[Any], codes: Any) -> NDArray[Any]:
    """Names of class numbers, None for -1."""
    return np.array([*class_names.tolist(), None], dtype=object)[codes]


def _classify(
    model: TableModel,
    out: Predictions,
    X: Any,
    coverage: float | None,
    near: int,
    edges: Any,
    abstain: bool,
    own: OwnNodes,
) -> None:
    """Classes, sets and nearest nodes; neighbours are looked for where something needs them."""
    assert model.class_names is not None
    classifier = model.classifier
    if not near and (X.shape[0] >= BULK_ROWS or not abstain):
        proba, members, out.far = classifier.screen(X, coverage, far_below(model) if abstain else None, edges=edges)
    else:
        found = classifier.assess(X, 0.9 if coverage is None else coverage, max(near, 1), edges=edges)
        proba, members, out.novelty = found.proba, found.sets, found.novelty
        if near:

            def search(some: Any, k: int) -> tuple[Any, Any, Any]:
                more = classifier.assess(some, 0.9, k)
                return more.near_ids, more.near_distances, more.near_labels

            kept = (np.array(part) for part in (found.near_ids, found.near_distances, found.near_labels))
            places, distances, codes = own.leave_out(X, *kept, search=search)
            out.near = model.node_ids[places], distances, names_of(model.class_names, codes)
    best = proba.argmax(axis=1)
    out.proba, out.members = proba, None if coverage is None else members
    out.classes, out.confidence = model.class_names[best], proba[np.arange(len(best)), best]


def _link(model: TableModel, out: Predictions, X: Any, k: int, judge: bool, own: OwnNodes) -> None:
    """Suggested links; with ``judge`` the score of the best one says how strange a row is."""

    def search(some: Any, count: int) -> tuple[Any, Any]:
        return model.links.predict_links(some, k=count)

    places, scores = own.leave_out(X, *map(np.array, search(X, max(k, 1))), search=search)
    if k:
        out.links = model.node_ids[places], scores
    if judge and model.top_scores is not None and len(model.top_scores):
        below = np.searchsorted(model.top_scores, scores[:, 0], side="right")
        out.novelty = (1 + below) / (1 + len(model.top_scores))


def _near(model: TableModel, X: Any, k: int, own: OwnNodes) -> tuple[Any, Any, None]:
    """Nearest known nodes of a model without classes."""

    def search(some: Any, count: int) -> tuple[Any, Any]:
        if model.links is not None:
            distances, places = model.links.index_.neighbors.search(model.links.transform_queries(some), count)
        else:
            distances, places = model.index().search(model.clusterer.embed(some), count)
        return places, distances

    places, distances = own.leave_out(X, *map(np.array, search(X, k)), search=search)
    return model.node_ids[places], distances, None


def far_below(model: TableModel) -> float:
    """The p-value of a distance up to which a row is called far: one in a hundred, or farther than any before."""
    if model.classifier is not None:
        least = model.classifier.least_novelty_
    else:
        least = 1.0 / (1 + (0 if model.top_scores is None else len(model.top_scores)))
    return min(1.0, max(_FAR_BELOW, least + 1e-9))


def _abstain(model: TableModel, out: Predictions, table: Any, X: Any, known: NDArray[Any] | None) -> None:
    """Whether a row is too strange to say anything about, and why."""
    reason = np.zeros(X.shape[0], np.int64)
    if out.members is not None and out.members.shape[1] > 1:
        reason[out.members.all(axis=1)] = 1
    if out.novelty is not None:
        reason[out.novelty <= far_below(model)] = 2
    elif out.far is not None:
        reason[out.far] = 2
    if not (model.columns.numeric or model.columns.vector):  # words and categories, none of which was ever seen
        empty = np.diff(X.indptr) == 0 if sp.issparse(X) else ~np.any(X, axis=1)
        reason[empty if known is None else empty | (known == 0)] = 3
    if known is not None:
        reason[_without_values(table, model.columns.features)] = 3
    out.why, out.abstained = [_REASONS[code] for code in reason.tolist()], reason > 0


def _without_values(table: Any, names: Sequence[str]) -> NDArray[np.bool_]:
    """Rows in which every column that the model reads is missing or empty."""
    empty = np.ones(table.num_rows, bool)
    for name in names:
        empty &= np.asarray(text_values(table.column(name)).is_null())
        if not empty.any():
            break
    return empty


def _row_ids(table: Any, name: str | None, count: int) -> NDArray[Any]:
    """Ids of rows as they are written, None where missing; row numbers from 0 where there is no such column."""
    if name is None or not hasattr(table, "schema") or name not in table.schema.names:
        return np.arange(count)
    values = np.empty(count, dtype=object)
    values[:] = table.column(name).to_pylist()
    return values
