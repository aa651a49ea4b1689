"""Does the graph help on this data? Ours beside features alone, on rows that pretend to be new."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc.experiments.comparison import paired_gain, share_of
from gsparc.experiments.sentences import summary_sentences

__all__ = ["OURS", "answer", "confidence_figures", "edges_of", "gains", "plain_sentences", "reliability"]

OURS = "gsparc"
_EDGES = (0, 1, 2, 4, 8)
Array = NDArray[Any]
Rows = list[dict[str, Any]]


def gains(values: dict[str, Array]) -> Rows:
    """Paired differences over the same rows: ours to every other method."""
    return [paired_gain(values[OURS], values[name], name) for name in values if name != OURS]


def confidence_figures(
    classifier: Any, X: Any, y: Array, truth: sp.csr_array, coverage: float, seed: int
) -> tuple[dict[str, Any] | None, Rows | None]:
    """How often prediction sets hold the true class, and what 0, 1, 2, 4 and 8 known edges of a row are worth.

    Each half of the rows is judged by a classifier that the other half calibrated. ``truth`` has the rows' edges to
    known nodes. None where there are too few rows.
    """
    if len(y) < 20 or (y < len(classifier.classes_)).sum() < 10:
        return None, None
    order = np.random.default_rng(seed).permutation(len(y))
    halves = np.sort(order[: len(y) // 2]), np.sort(order[len(y) // 2 :])
    hit, size, far = np.zeros(len(y)), np.zeros(len(y)), np.zeros(len(y))
    linked = np.diff(truth.indptr) > 0
    right = np.zeros((len(_EDGES), len(y)))
    for own, other in (halves, halves[::-1]):
        classifier.calibrate(X[other], y[other], edges=edges_of(truth, other))
        inside = np.asarray(classifier.predict_set(X[own], coverage))
        known = y[own] < inside.shape[1]
        hit[own] = inside[np.arange(len(own)), np.where(known, y[own], 0)] & known
        size[own], far[own] = inside.sum(axis=1), np.asarray(classifier.novelty(X[own]))
        part = own[linked[own]]
        for place, count in enumerate(_EDGES if len(part) else ()):
            said = classifier.predict_proba(X[part], edges=edges_of(truth, part, count, seed))
            right[place, part] = np.asarray(said).argmax(axis=1) == y[part]
    covered = {
        "promised": coverage,
        "measured": float(hit.mean()),
        "interval": share_of(hit),
        "mean_size": float(size.mean()),
        "one_class": float((size == 1).mean()),
        "rows": len(y),
        "far": float((far <= max(0.01, 2.0 / len(y))).mean()),
    }
    if linked.sum() < 20:
        return covered, None
    figures = [
        {"edges": count, "accuracy": float(line[linked].mean()), "interval": share_of(line[linked])}
        for count, line in zip(_EDGES, right, strict=True)
    ]
    return covered, figures


def edges_of(truth: sp.csr_array, rows: Array, most: int | None = None, seed: int = 0) -> tuple[Array, Array] | None:
    """Edges of some rows, the first of them called 0; of each at most ``most``, in random order.

    Examples
    --------
    >>> edges_of(sp.csr_array([[0, 1, 1], [1, 0, 0]]), np.array([0, 1]))
    (array([0, 0, 1]), array([1, 2, 0]))
    >>> edges_of(sp.csr_array([[0, 1, 1], [1, 0, 0]]), np.array([1]), most=0) is None
    True
    """
    own = sp.csr_array(truth[rows])
    row = np.repeat(np.arange(len(rows)), np.diff(own.indptr))
    node = own.indices.astype(np.int64)
    if most is not None:
        order = np.lexsort((np.random.default_rng(seed).random(len(row)), row))
        kept = order[np.arange(len(row)) - own.indptr[row] < most]
        row, node = row[kept], node[kept]
    return (row, node) if len(row) else None


def reliability(proba: dict[str, Array], y: Array, steps: int = 10) -> Rows:
    """How often methods are right by how sure they are, in steps of equally many rows.

    Examples
    --------
    >>> reliability({"gsparc": np.array([[0.9, 0.1], [0.6, 0.4]])}, np.array([0, 1]), steps=1)[0]["bins"]
    [{'confidence': 0.75, 'accuracy': 0.5, 'rows': 2}]
    """
    curves = []
    for method, given in proba.items():
        sure, right = given.max(axis=1), given.argmax(axis=1) == y
        parts = np.array_split(np.argsort(sure, kind="stable"), min(steps, max(1, len(y) // 10) if steps > 1 else 1))
        bins = [
            {"confidence": float(sure[p].mean()), "accuracy": float(right[p].mean()), "rows": len(p)}
            for p in parts
            if len(p)
        ]
        curves.append({"method": method, "ours": method == OURS, "bins": bins})
    return curves


def plain_sentences(record: dict[str, Any]) -> list[str]:
    """The comparison in words, the answer first."""
    said = [answer(record)]
    if record["classification"] or record["links"]:
        said += summary_sentences(record)
    covered = record.get("coverage")
    if covered:
        low, high = (100 * edge for edge in covered["interval"])
        said.append(
            f"Prediction sets that promise {100 * covered['promised']:.0f} % hold the true class for "
            f"{100 * covered['measured']:.1f} % of {covered['rows']:,} rows (95 % interval {low:.1f} to {high:.1f}), "
            f"with {covered['mean_size']:.1f} classes on average."
        )
    return said


def answer(record: dict[str, Any]) -> str:
    """One sentence: does the graph help here?

    Examples
    --------
    >>> row = {"over": "MLP on features", "mean": 0.05, "low": 0.02, "high": 0.08}
    >>> answer({"classification": [1], "links": None, "gains": {"accuracy": [row], "mrr": []}})
    'Does the graph help on this data? Yes for classes (+5.0 points of accuracy over an MLP on the features).'
    """
    parts = []
    if record["classification"]:
        unit = "points of accuracy over an MLP on the features"
        parts.append(_verdict(record["gains"]["accuracy"], "MLP on features", "classes", 100, 1, unit))
    if record["links"]:
        unit = "MRR over the likeness of features"
        parts.append(_verdict(record["gains"]["mrr"], "feature cosine", "links", 1, 3, unit))
    if not parts:
        return f"Whether the graph helps was not measured: {_why_not(record)}."
    text = "; ".join(parts)
    return f"Does the graph help on this data? {text[0].upper()}{text[1:]}."


def _why_not(record: dict[str, Any]) -> str:
    tasks, held = record.get("settings", {}).get("tasks", ()), record.get("split", {}).get("cold", 0)
    if tasks and not {"classes", "links"} & set(tasks):
        return "it is measured by classes and links, and the model was fitted for clusters alone"
    if held:
        return f"none of the {held:,} rows that were held out has a class or a link"
    return "no row was held out as a new one"


def _verdict(gains: Rows, plain: str, what: str, scale: float, digits: int, unit: str) -> str:
    """Against features alone, and the smallest gain over any baseline where that is another one."""
    gain = next(row for row in gains if row["over"] == plain)
    if gain["mean"] is None or gain["low"] is None:
        return f"too few rows to say for {what}"
    low, high, mean = (round(scale * gain[key], digits) + 0.0 for key in ("low", "high", "mean"))
    word = "yes" if low > 0 else "no" if high < 0 else "no clear difference"
    least = min((row for row in gains if row["mean"] is not None), key=lambda row: row["mean"])
    best = "" if least is gain else f", {scale * least['mean']:+.{digits}f} over the best baseline, {least['over']}"
    return f"{word} for {what} ({mean:+.{digits}f} {unit}{best})"
