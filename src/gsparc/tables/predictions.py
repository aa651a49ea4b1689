"""What a model says about new rows, as arrays, as a table and as plain JSON values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Predictions"]

_TOP = 10  # classes that a record names
Array = NDArray[Any]


@dataclass
class Predictions:
    """Answers for m rows; what the model cannot say, or was not asked for, is ``None``.

    Attributes
    ----------
    ids : array of shape (m,)
        The rows' own ids, or their numbers.
    bad : dict of int to str
        Rows that could not be read, and why. Their other answers mean nothing.
    classes, confidence, proba : arrays of shape (m,), (m,), (m, C)
        The most probable class, its probability, and all probabilities in the order of `class_names`.
    sets : list of list
        Classes among which the true one is with the coverage that was asked for, the most probable first.
    abstained : bool array of shape (m,)
        Whether the model would rather not say, and `why`: a sentence, empty where it does say.
    clusters, memberships : arrays of shape (m,) and (m, K)
    links : pair of arrays (m, k)
        Ids of the known nodes that the row will most likely link to, and scores.
    near : triple of arrays (m, k)
        Ids of the known nodes most like the row, their distances, and their classes.
    position : float32 array of shape (m, 2)
        Place on the picture of the known nodes.
    """

    ids: Array
    bad: dict[int, str] = field(default_factory=dict)
    classes: Array | None = None
    confidence: Array | None = None
    proba: Array | None = None
    members: Array | None = None  # bool [m, C]: which classes are in the set
    abstained: Array | None = None
    why: list[str] | None = None
    clusters: Array | None = None
    memberships: Array | None = None
    links: tuple[Array, Array] | None = None
    near: tuple[Array, Array, Array | None] | None = None
    position: Array | None = None
    class_names: Array | None = None
    novelty: Array | None = None  # p-value of the distance to known nodes
    far: Array | None = None  # bool: whether it is too large, where only that was asked

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def good(self) -> NDArray[np.int64]:
        """Rows that could be read."""
        keep = np.ones(len(self), bool)
        keep[list(self.bad)] = False
        return np.flatnonzero(keep)

    @property
    def sets(self) -> list[list[Any]] | None:
        """The prediction sets by name, the most probable class first."""
        if self.members is None:
            return None
        assert self.class_names is not None
        columns, ends = self._ordered_members(np.arange(len(self)))
        names = self.class_names[columns].tolist()
        return [names[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]

    def _ordered_members(self, rows: Array) -> tuple[Array, list[int]]:
        """Columns of the sets' classes one row after the other, and where each row ends."""
        assert self.members is not None
        assert self.proba is not None
        inside = self.members[rows]
        row, column = np.nonzero(inside)
        order = np.lexsort((-self.proba[rows][row, column], row))
        return column[order], np.cumsum(inside.sum(axis=1)).tolist()

    def to_arrow(self) -> pa.Table:
        """The rows that could be read, one column an answer."""
        import pyarrow as pa

        rows = self.good
        columns: dict[str, Any] = {"id": _names(self.ids[rows])}
        if self.classes is not None:
            columns["class"] = _names(self.classes[rows])
        if self.confidence is not None:
            columns["confidence"] = pa.array(self.confidence[rows].astype(np.float32))
        if self.members is not None:
            assert self.class_names is not None
            inside, ends = self._ordered_members(rows)
            columns["set"] = _lists(np.array([0, *ends]), _names(self.class_names[inside]))
        if self.abstained is not None:
            columns["abstained"] = pa.array(self.abstained[rows])
        if self.why is not None:
            columns["why"] = pa.array([self.why[i] for i in rows.tolist()], pa.string())
        if self.clusters is not None:
            columns["cluster"] = pa.array(self.clusters[rows].astype(np.int32))
        if self.memberships is not None:
            columns["membership"] = pa.array(self.memberships[rows].max(axis=1).astype(np.float32))
        if self.links is not None:
            columns["links"] = _square(_names(self.links[0][rows].ravel()), self.links[0].shape[1])
            columns["link_scores"] = _square(pa.array(_floats(self.links[1][rows])), self.links[1].shape[1])
        if self.near is not None:
            columns["near"] = _square(_names(self.near[0][rows].ravel()), self.near[0].shape[1])
            columns["near_distances"] = _square(pa.array(_floats(self.near[1][rows])), self.near[1].shape[1])
        return pa.table(columns)

    def records(self) -> list[dict[str, Any]]:
        """One dict a row, of values that JSON knows; a row that could not be read has an ``error`` instead."""
        return [self._record(i) for i in range(len(self))]

    def _record(self, i: int) -> dict[str, Any]:
        name = _plain(self.ids[i])
        if i in self.bad:
            return {"id": name, "error": self.bad[i]}
        return {
            "id": name,
            "class": None if self.classes is None else _plain(self.classes[i]),
            "confidence": None if self.confidence is None else round(float(self.confidence[i]), 6),
            "probabilities": self._likeliest(i),
            "set": self._set(i),
            "abstained": bool(self.abstained[i]) if self.abstained is not None else False,
            "why": "" if self.why is None else self.why[i],
            "cluster": None if self.clusters is None else int(self.clusters[i]),
            "memberships": None if self.memberships is None else [round(float(v), 5) for v in self.memberships[i]],
            "links": self._links(i),
            "near": self._near(i),
            "position": None if self.position is None else [round(float(v), 4) for v in self.position[i]],
        }

    def _likeliest(self, i: int) -> dict[str, float]:
        if self.proba is None or self.class_names is None:
            return {}
        order = np.argsort(-self.proba[i], kind="stable")[:_TOP]
        return {str(self.class_names[c]): round(float(self.proba[i, c]), 6) for c in order}

    def _set(self, i: int) -> list[Any]:
        if self.members is None or self.class_names is None or self.proba is None:
            return []
        inside = np.flatnonzero(self.members[i])
        return self.class_names[inside[np.argsort(-self.proba[i, inside], kind="stable")]].tolist()

    def _links(self, i: int) -> list[dict[str, Any]]:
        if self.links is None:
            return []
        pairs = zip(self.links[0][i], self.links[1][i], strict=True)
        return [{"id": _plain(node), "score": round(float(score), 5)} for node, score in pairs]

    def _near(self, i: int) -> list[dict[str, Any]]:
        if self.near is None:
            return []
        ids, distances, labels = self.near
        found = zip(ids[i], distances[i], [None] * ids.shape[1] if labels is None else labels[i], strict=True)
        return [{"id": _plain(n), "distance": round(float(d), 5), "class": _plain(c)} for n, d, c in found]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _floats(values: Array) -> Array:
    return np.ascontiguousarray(values, np.float32).ravel()


def _names(values: Array) -> pa.Array:
    """Ids or classes as an Arrow column: numbers stay numbers, all else is text."""
    import pyarrow as pa

    values = np.asarray(values)
    if values.dtype.kind in "iu":
        return pa.array(values.astype(np.int64))
    listed = values.tolist()
    if values.dtype.kind == "O" and all(isinstance(value, int) for value in listed) and listed:
        return pa.array(listed, pa.int64())
    if not all(isinstance(value, str) for value in listed):
        listed = [None if value is None else str(value) for value in listed]
    return pa.array(listed, pa.string())


def _lists(offsets: Array, values: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def _square(values: pa.Array, width: int) -> pa.Array:
    return _lists(np.arange(0, len(values) + 1, max(width, 1)), values)
