"""Labels as class numbers, and which labelled nodes judge."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.multiclass import check_classification_targets

from gsparc._validation import check_features, check_labels, unlabelled_mask
from gsparc.exceptions import InputError, LabelError

__all__ = [
    "Validation",
    "check_validation",
    "encode_labels",
    "has_many_classes",
    "hold_out_labelled",
    "many_classes_known",
]

_MANY = "nearly every label is another class"


class Validation(NamedTuple):
    """Labelled nodes without edges that judge, and never train, a model."""

    X: Any
    codes: np.ndarray


def encode_labels(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and the class number of each node: -1 for unlabelled."""
    unlabelled = unlabelled_mask(labels)
    if unlabelled.all():
        raise LabelError("every label is -1, which means unlabelled. Pass at least two classes.")
    if labels.dtype == object and not all(isinstance(label, str) for label in labels):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise LabelError(
            f"y holds labels of the types {kinds}, expected all strings or all numbers. To mark unlabelled nodes, "
            "number the classes and pass -1 for them, as codes, names = pandas.factorize(y) does for None and NaN."
        )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The number of unique classes is greater than")  # said below
            check_classification_targets(labels)
    except (TypeError, ValueError) as error:
        raise LabelError(str(error)) from error
    classes, numbers = np.unique(labels[~unlabelled], return_inverse=True)
    if len(classes) < 2:
        raise LabelError(
            f"the labels hold one class only ({classes.tolist()[0]!r}), a classifier needs at least two. "
            "Only 1 class was given."
        )
    if has_many_classes(len(classes), len(numbers)):
        warnings.warn(
            f"{_MANY}: {len(classes):,} of them for {len(numbers):,} labelled nodes. If y holds measurements or ids, a "
            "classifier cannot predict it.",
            UserWarning,
            stacklevel=3,
        )
    codes = np.full(len(labels), -1, np.int64)
    codes[~unlabelled] = numbers
    return classes, codes


def has_many_classes(classes: int, labelled: int) -> bool:
    """Whether there are so many classes that the labels may be measurements or ids; scikit-learn's own bounds.

    Examples
    --------
    >>> has_many_classes(30, 40), has_many_classes(20, 40), has_many_classes(9, 10)
    (True, False, False)
    """
    return labelled > 20 and classes > round(0.5 * labelled)


@contextmanager
def many_classes_known() -> Iterator[None]:
    """No warning of many classes in here: it has been given, in words that know where the labels come from."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _MANY)
        yield


def check_validation(estimator: Any, validation: Any, classes: np.ndarray) -> Validation | None:
    """``(X, y)`` of nodes without edges; rows that are unlabelled are left out, unknown classes refused."""
    if validation is None:
        return None
    if not isinstance(validation, (tuple, list)) or len(validation) != 2:
        raise InputError(
            f"validation={type(validation).__name__} came, expected a pair (X, y) of labelled nodes without edges."
        )
    X = check_features(estimator, validation[0], reset=False)
    labels = check_labels(validation[1], X.shape[0])
    known = np.isin(labels, classes)
    strange = labels[~known & ~((labels == -1) if labels.dtype.kind in "if" else np.zeros(len(labels), bool))]
    if len(strange):
        raise LabelError(
            f"validation holds the label {strange.tolist()[0]!r}, which no seen node has. "
            f"Expected some of {classes.tolist()}."
        )
    if not known.any():
        return None
    return Validation(X[np.flatnonzero(known)], np.searchsorted(classes, labels[known]).astype(np.int64))


def hold_out_labelled(codes: np.ndarray, preferred: np.ndarray, seed: int) -> np.ndarray:
    """Rows that judge: labelled ones among ``preferred``, else a tenth of the labelled; each class keeps some."""
    labelled = np.flatnonzero(codes >= 0)
    held = preferred[codes[preferred] >= 0]
    if len(held) < 5:
        rng = np.random.default_rng(seed)
        count = len(labelled) // 10
        held = rng.choice(labelled, count, replace=False) if count >= 5 else np.zeros(0, np.int64)
    counts = np.bincount(codes[labelled])
    left = counts - np.bincount(codes[held], minlength=len(counts))
    return np.sort(held[left[codes[held]] > 0])
