"""Several methods on the same cold nodes: figures, intervals over nodes, and paired gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc.exceptions import LabelError
from gsparc.metrics import (
    accuracy,
    expected_calibration_error,
    link_metrics,
    macro_f1,
    rank_links,
    share_interval,
)

__all__ = ["compare_classifiers", "compare_links", "interval", "paired_gain", "share_of"]

Floats = NDArray[np.float64]
Row = dict[str, Any]
_NORMAL = 1.96  # two-sided 95 %


def interval(values: Any) -> list[float | None]:
    """95 % interval of a mean over nodes by the normal approximation; without bounds below two nodes.

    Examples
    --------
    >>> [round(edge, 3) for edge in interval([0.0, 1.0, 0.0, 1.0])]
    [-0.066, 1.066]
    """
    numbers = np.asarray(values, np.float64)
    if len(numbers) < 2:
        return [None, None]
    half = _NORMAL * float(numbers.std(ddof=1)) / np.sqrt(len(numbers))
    return [float(numbers.mean() - half), float(numbers.mean() + half)]


def share_of(hits: Any) -> list[float | None]:
    """95 % interval of the share of nodes that were hit, within 0 and 1 however few they are; none below two nodes.

    Examples
    --------
    >>> [round(edge, 3) for edge in share_of([True] * 10)]
    [0.692, 1.0]
    """
    found = np.asarray(hits, bool)
    return [None, None] if len(found) < 2 else list(share_interval(int(found.sum()), len(found)))


def paired_gain(ours: Any, theirs: Any, name: str) -> Row:
    """Mean difference over the same nodes, with its interval.

    Examples
    --------
    >>> paired_gain([1.0, 1.0], [0.0, 1.0], "mlp")["mean"]
    0.5
    """
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    low, high = interval(difference)
    return {
        "over": name,
        "mean": float(difference.mean()) if len(difference) else None,
        "low": low,
        "high": high,
    }


def compare_classifiers(
    y_true: Any, probabilities: Mapping[str, Any], classes: Any, *, ours: Sequence[str] = ()
) -> tuple[list[Row], dict[str, Floats]]:
    """Accuracy, macro-F1 and calibration error of each method on the same nodes.

    Parameters
    ----------
    y_true : int array of shape (m,)
        True classes; no -1.
    probabilities : mapping of method name to array of shape (m, n_classes)
    classes : int array of shape (n_classes,)
        What the columns stand for, ascending. A true class that no column stands for counts as missed.
    ours : names of our own methods

    Returns
    -------
    rows : one dict a method
    right : for each method whether each node was classified right, as 0.0 and 1.0

    Examples
    --------
    >>> rows, right = compare_classifiers([0, 1], {"mlp": [[0.9, 0.1], [0.6, 0.4]]}, [0, 1])
    >>> rows[0]["accuracy"], right["mlp"].tolist()
    (0.5, [1.0, 0.0])
    """
    truth, columns = np.asarray(y_true), np.asarray(classes)
    if not len(truth):
        raise LabelError("no cold node has a known class, so there is nothing to compare predictions with.")
    place = np.searchsorted(columns, truth)
    known = (place < len(columns)) & (columns[np.minimum(place, len(columns) - 1)] == truth)
    place = np.where(known, place, -1)
    rows, right = [], {}
    for method, given in probabilities.items():
        proba = np.asarray(given, np.float64)
        predicted = columns[proba.argmax(axis=1)]
        right[method] = (predicted == truth).astype(np.float64)
        row = {
            "method": method,
            "ours": method in ours,
            "accuracy": accuracy(truth, predicted),
            "accuracy_interval": share_of(right[method]),
            "macro_f1": macro_f1(truth, predicted),
            "ece": expected_calibration_error(proba, place),
        }
        rows.append(row)
    return rows, right


def compare_links(
    X_cold: Any,
    truth: sp.csr_array,
    scorers: Mapping[str, Callable[[Any], Any]],
    *,
    ours: Sequence[str] = (),
    progress: Callable[[str], None] = lambda name: None,
) -> tuple[list[Row], dict[str, Floats]]:
    """Filtered ranking of true links against all seen nodes, for several ways of scoring them.

    Parameters
    ----------
    X_cold : features of shape (n_cold, d)
    truth : sparse matrix of shape (n_cold, n_seen)
    scorers : mapping of method name to a function from features (m, d) to scores (m, n_seen)
    ours : names of our own methods
    progress : called with each method's name before it is ranked

    Returns
    -------
    rows : one dict a method
    best_rank : for each method the rank of each evaluated node's best true link

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> X = np.array([[0.2, 0.9, 0.1]])
    >>> rows, rank = compare_links(X, sp.csr_array([[1, 0, 0]]), {"itself": lambda part: part})
    >>> rows[0]["mrr"], rank["itself"].tolist()
    (0.5, [2.0])
    """
    rows, ranks = [], {}
    for method, score in scorers.items():
        progress(method)
        ranked = rank_links(lambda part, score=score: score(X_cold[part]), truth)
        figures = link_metrics(ranked)
        rows.append(
            {
                "method": method,
                "ours": method in ours,
                **{key: _finite(value) for key, value in figures.items()},
                "mrr_interval": interval(1.0 / ranked.best_rank),
            }
        )
        ranks[method] = ranked.best_rank
    return rows, ranks


def _finite(value: float) -> float | None:
    return None if np.isnan(value) else value
