"""How near an embedding is to true eigenfunctions: spans, eigenvalues, residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gsparc.exceptions import InputError

__all__ = ["grassmann_distance", "residuals", "ritz_error"]


def _basis(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal columns of the same span; fewer where the columns depend on each other."""
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    floor = max(columns.shape) * np.finfo(np.float64).eps * values.max(initial=0.0)
    return left[:, values > floor]


def grassmann_distance(U: ArrayLike, V: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Chordal distance between two column spans over ``sqrt(k)``: 0 for the same span, 1 for orthogonal ones.

    ``sqrt(mean(sin^2))`` over the principal angles. Spans of different dimension are compared over the
    angles of the smaller one, so a span inside the other is at 0; a column that depends on the others
    counts as a right angle.

    Parameters
    ----------
    U, V : arrays of shape (n, k)
    weights : array of shape (n,), optional
        ``pi`` of the inner product ``sum_i pi_i u_i v_i``; ones when left out.

    Examples
    --------
    >>> grassmann_distance([[1.0], [0.0]], [[0.0], [2.0]])
    1.0
    """
    first, second = np.asarray(U, dtype=np.float64), np.asarray(V, dtype=np.float64)
    if first.ndim != 2 or second.ndim != 2 or len(first) != len(second) or not first.size * second.size:
        raise InputError(f"spans of shapes {first.shape} and {second.shape} came; pass two (n, k) arrays, same n.")
    if weights is not None:
        root = np.sqrt(_weights(weights, len(first)))[:, None]
        first, second = first * root, second * root
    k = min(first.shape[1], second.shape[1])
    cosines = np.linalg.svd(_basis(first).T @ _basis(second), compute_uv=False)
    kept = np.minimum(cosines[:k], 1.0)
    return float(np.sqrt(max(0.0, k - np.square(kept).sum()) / k))


def ritz_error(ritz_values: ArrayLike, eigenvalues: ArrayLike, k: int | None = None) -> float:
    """Mean absolute difference of the first ``k`` values, in the order given (all that both have by default).

    Examples
    --------
    >>> ritz_error([0.1, 0.2, 9.0], [0.0, 0.4], k=2).__round__(3)
    0.15
    """
    found, true = np.asarray(ritz_values, dtype=np.float64), np.asarray(eigenvalues, dtype=np.float64)
    count = min(len(found), len(true)) if k is None else k
    if not 1 <= count <= min(len(found), len(true)):
        raise InputError(f"k={count} values were asked for, but {len(found)} and {len(true)} came; pass a smaller k.")
    return float(np.abs(found[:count] - true[:count]).mean())


def residuals(
    operator: Any | Callable[[NDArray[np.float64]], ArrayLike],
    functions: ArrayLike,
    mu: ArrayLike,
    weights: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """``|P f - mu f| / |f|`` of each column: 0 for a true eigenpair.

    Parameters
    ----------
    operator : matrix (dense or sparse), or a function that applies it to (n, k) values
    functions : array of shape (n, k)
    mu : array of shape (k,)
        Eigenvalues of that operator (for the random walk ``P``: one minus the Laplacian's).
    weights : array of shape (n,), optional
        ``pi`` of the norm; ones when left out.

    Examples
    --------
    >>> import numpy as np
    >>> residuals(np.diag([2.0, 1.0]), np.eye(2), [2.0, 0.5]).tolist()
    [0.0, 0.5]
    """
    values, eigenvalues = np.asarray(functions, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    if values.ndim != 2 or eigenvalues.shape != (values.shape[1],):
        raise InputError(
            f"functions of shape {values.shape} and eigenvalues of shape {eigenvalues.shape} came; "
            "pass (n, k) and (k,)."
        )
    moved = np.asarray(operator(values) if callable(operator) else operator @ values)
    pi = np.ones(len(values)) if weights is None else _weights(weights, len(values))
    gap = np.sqrt(pi @ np.square(moved - values * eigenvalues))
    size = np.sqrt(pi @ np.square(values))
    return np.divide(gap, size, out=np.full_like(gap, np.nan), where=size > 0)


def _weights(weights: ArrayLike, n: int) -> NDArray[np.float64]:
    pi = np.asarray(weights, dtype=np.float64)
    if pi.shape != (n,) or not (pi >= 0).all():
        raise InputError(f"weights of shape {pi.shape} came; pass ({n},) numbers, none of them negative.")
    return pi
