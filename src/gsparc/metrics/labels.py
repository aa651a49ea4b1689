"""Classes and clusters: accuracy, calibration, agreement, and the difference of two methods over seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import beta
from scipy.stats import t as student
from sklearn.metrics import adjusted_rand_score, f1_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix

from gsparc.exceptions import InputError

__all__ = [
    "PairedDifference",
    "accuracy",
    "ari",
    "expected_calibration_error",
    "hungarian_accuracy",
    "macro_f1",
    "nmi",
    "paired_difference",
    "share_interval",
]


def _pair(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray, NDArray]:
    truth, predicted = np.asarray(y_true), np.asarray(y_pred)
    if truth.ndim != 1 or truth.shape != predicted.shape or not len(truth):
        raise InputError(
            f"labels of shape {truth.shape} and predictions of shape {predicted.shape} came; "
            "pass two non-empty vectors of equal length."
        )
    return truth, predicted


def _pair_of_classes(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray, NDArray]:
    """Two vectors that name the same classes."""
    truth, predicted = _pair(y_true, y_pred)
    _refuse_mixture("labels", truth, "predictions", predicted)
    return truth, predicted


def _refuse_mixture(name: str, labels: NDArray, other_name: str, others: NDArray) -> None:
    """Refuse numbers to be compared with strings: numpy finds them unequal without a word."""
    kinds = _kind(labels), _kind(others)
    if set(kinds) == {"strings", "numbers"}:
        raise InputError(
            f"{name} that are {kinds[0]} and {other_name} that are {kinds[1]} came; pass the same names in both. "
            "model.classes_[numbers] turns class numbers into classes."
        )


def _kind(labels: NDArray) -> str:
    if labels.dtype.kind in "UT" or (labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels)):
        return "strings"
    return "numbers" if labels.dtype.kind in "biuf" else "objects"


def _as_columns(y: NDArray, n_classes: int) -> NDArray[np.int64]:
    """True classes as column numbers, -1 for a class that has no column."""
    came = f"type {y.dtype}"
    if y.dtype.kind in "biuf" or (y.dtype.kind == "O" and all(isinstance(label, (int, np.integer)) for label in y)):
        columns = y.astype(np.int64) if y.dtype.kind != "f" or np.isfinite(y).all() else np.zeros(len(y), np.int64)
        if np.array_equal(columns, y) and -1 <= columns.min() <= columns.max() < n_classes:
            return columns
        came = f"numbers from {y.min()} to {y.max()}"
    raise InputError(
        f"labels of {came} came, expected column numbers of the probabilities, whole numbers from 0 to "
        f"{n_classes - 1} (-1 for a class without a column). For sorted classes, as in model.classes_: "
        "np.searchsorted(model.classes_, y)."
    )


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of predictions that are right.

    Examples
    --------
    >>> accuracy([0, 1, 1, 2], [0, 1, 2, 2])
    0.75
    """
    truth, predicted = _pair_of_classes(y_true, y_pred)
    return float(np.mean(truth == predicted))


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """F1 averaged over the classes that occur, each counting the same; 0 for a class never predicted right.

    Examples
    --------
    >>> round(macro_f1([0, 0, 1], [0, 1, 1]), 4)
    0.6667
    """
    truth, predicted = _pair_of_classes(y_true, y_pred)
    return float(f1_score(truth, predicted, average="macro", zero_division=0.0))  # pyright: ignore[reportArgumentType]


def expected_calibration_error(proba: ArrayLike, y: ArrayLike, n_bins: int = 15) -> float:
    """Mean gap between confidence and accuracy over bins of equal width, weighted by their size.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
    y : array of shape (n,)
        The true class as a column number of ``proba``; -1 for one that has no column, which counts as wrong. With
        classes of a model: ``np.searchsorted(model.classes_, y)``.
    n_bins : int

    Examples
    --------
    >>> expected_calibration_error([[1.0, 0.0], [1.0, 0.0]], [0, 1])
    0.5
    """
    probabilities, truth = np.asarray(proba, dtype=np.float64), np.asarray(y)
    if probabilities.ndim != 2 or truth.shape != (len(probabilities),) or not len(truth):
        raise InputError(
            f"probabilities of shape {probabilities.shape} and labels of shape {truth.shape} came; "
            "pass (n, n_classes) and (n,) with n > 0."
        )
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == _as_columns(truth, probabilities.shape[1])
    # bins are (low, high]: a confidence of exactly 1 falls into the last one
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(truth))


def hungarian_accuracy(
    y_true: ArrayLike, clusters: ArrayLike, *, matched_on: tuple[ArrayLike, ArrayLike] | None = None
) -> float:
    """Accuracy under the best one-to-one matching of clusters to classes.

    ``matched_on`` are classes and clusters of other nodes, which make the matching instead. A few nodes that are free
    to choose it find a better one by chance alone; what stands for no class there is wrong here.

    Examples
    --------
    >>> hungarian_accuracy([0, 0, 1, 1], [5, 5, 3, 5])
    0.75
    >>> hungarian_accuracy([0, 1], [3, 5]), hungarian_accuracy([0, 1], [3, 5], matched_on=([0, 0, 1], [5, 5, 3]))
    (1.0, 0.0)
    """
    truth, found = _pair(y_true, clusters)
    known, where = (truth, found) if matched_on is None else _pair(*matched_on)
    _refuse_mixture("classes", truth, "classes to match on", known)
    _refuse_mixture("clusters", found, "clusters to match on", where)
    classes, names = np.unique(known), np.unique(where)
    pairs = zip(*linear_sum_assignment(-np.asarray(contingency_matrix(known, where))), strict=True)
    right = sum(np.count_nonzero((truth == classes[row]) & (found == names[column])) for row, column in pairs)
    return float(right / len(truth))


def nmi(y_true: ArrayLike, clusters: ArrayLike) -> float:
    """Mutual information over the arithmetic mean of the two entropies.

    Examples
    --------
    >>> nmi([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    truth, found = _pair(y_true, clusters)
    return float(normalized_mutual_info_score(truth, found))


def ari(y_true: ArrayLike, clusters: ArrayLike) -> float:
    """Rand index adjusted for chance.

    Examples
    --------
    >>> ari([0, 0, 1, 1], [1, 1, 0, 0])
    1.0
    """
    truth, found = _pair(y_true, clusters)
    return float(adjusted_rand_score(truth, found))


class PairedDifference(NamedTuple):
    """Mean of ``a - b`` and its confidence interval."""

    mean: float
    low: float
    high: float


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedDifference:
    """How much better ``a`` is than ``b``, seed by seed, with Student's t interval.

    One seed alone says nothing about its spread: the bounds are NaN then.

    Examples
    --------
    >>> mean, low, high = paired_difference([3.0, 4.0, 5.0], [2.0, 2.0, 2.0])
    >>> round(mean, 3), round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not len(first):
        raise InputError(
            f"results of shapes {first.shape} and {second.shape} cannot be paired; "
            "pass one number a seed for each method, the same seeds in the same order."
        )
    if not 0 < confidence < 1:
        raise InputError(f"confidence={confidence}; pass a number between 0 and 1, such as 0.95.")
    difference = first - second
    mean, n = float(difference.mean()), len(difference)
    if n == 1:
        return PairedDifference(mean, float("nan"), float("nan"))
    half = float(student.ppf((1 + confidence) / 2, n - 1) * difference.std(ddof=1) / np.sqrt(n))
    return PairedDifference(mean, mean - half, mean + half)


def share_interval(hits: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share: it holds the true one at least that often, however few the rows.

    Examples
    --------
    >>> [round(end, 3) for end in share_interval(0, 10)]
    [0.0, 0.308]
    """
    tail = (1.0 - confidence) / 2
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1.0 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return low, high
