"""The words of user errors: what came, what was expected, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from gsparc.exceptions import (
    FeatureError,
    GraphError,
    GraphShapeError,
    InputError,
    LabelError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from gsparc.graph import Graph

__all__ = [
    "check_count",
    "check_features",
    "check_first_edges",
    "check_graph",
    "check_labels",
    "check_memory",
    "check_name",
    "check_pair_ids",
    "check_positions",
    "check_rows_vary",
    "check_scaled",
    "check_seen_ids",
    "check_share",
    "unlabelled_mask",
]


def check_name(kind: str, got: object, known: Iterable[str]) -> str:
    """Return ``got`` if it is one of ``known``; otherwise offer the nearest match.

    Examples
    --------
    >>> check_name("objective", "rayleigh", ["contrastive", "rayleigh"])
    'rayleigh'
    """
    names = sorted(known)
    if isinstance(got, str) and got in names:
        return got
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(got).lower(), lower, n=1, cutoff=0.5)
    hint = f" Did you mean {lower[close[0]]!r}?" if close else ""
    between = "; " if any("," in name for name in names) else ", "  # else one name would look like two
    raise UnknownNameError(f"unknown {kind} {got!r}.{hint} Known: {between.join(names)}.")


def check_count(name: str, got: Any, minimum: int) -> int:
    """A whole number of at least ``minimum``."""
    if isinstance(got, bool) or not isinstance(got, (int, np.integer)) or got < minimum:
        raise InputError(f"{name}={got!r} came, expected a whole number >= {minimum}.")
    return int(got)


_MEMORY = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MEMORY |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def check_memory(name: str, got: Any) -> int:
    """A number of bytes, or a text such as ``"2GB"`` or ``"512 MiB"``.

    Examples
    --------
    >>> check_memory("memory", "1.5GB"), check_memory("memory", 4096)
    (1500000000, 4096)
    """
    words = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([A-Za-z]*)\s*", got) if isinstance(got, str) else None
    unit = _MEMORY.get(words[2].upper()) if words is not None else None
    if words is not None and unit is not None:
        size = int(float(words[1]) * unit)
    elif isinstance(got, (int, np.integer)) and not isinstance(got, bool):
        size = int(got)
    else:
        size = 0
    if size < 1:
        raise InputError(f"{name}={got!r}; pass a size such as '2GB' or '512MB', or a number of bytes >= 1.")
    return size


def check_share(name: str, got: Any, *, low: float = 0.0, high: float = 1.0) -> float:
    """A number in ``[low, high]``."""
    number = isinstance(got, (int, float, np.integer, np.floating)) and not isinstance(got, bool)
    if not number or not low <= got <= high:
        raise InputError(f"{name}={got!r} came, expected a number from {low:g} to {high:g}.")
    return float(got)


_ADVICE = (
    ("nan", "Fill or drop missing values first, for example with sklearn.impute.SimpleImputer."),
    ("infinity", "Replace infinite values, or scale the column, before fitting."),
    ("convert string", "Turn text and categories into numbers first (TfidfVectorizer, OneHotEncoder)."),
    ("array element with a sequence", "Spread lists over columns, one number a cell, and collect a lazy table first."),
    ("promoted", "Turn dates and durations into numbers first, such as days since the first one."),
    ("features, but", "Pass the same columns, in the same order, as in fit."),
)


def check_features(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Dense float32 array or CSR matrix from whatever the user passed; finite, and as wide as in fit.

    Features that lie in a file stay there, in single or half precision; of a :class:`~gsparc._store.Store` they are
    taken.
    """
    from sklearn.utils.validation import validate_data

    from gsparc._mapped import is_mapped
    from gsparc._store import Store

    if isinstance(X, Store):
        X = X.X
    if (
        is_mapped(getattr(X, "data", None) if sp.issparse(X) else X)
        and X.ndim == 2
        and X.dtype in (np.float32, np.float16)
    ):
        return _check_mapped(estimator, X, reset=reset)
    try:
        # sorted CSR with 32-bit indices where possible; tables and lists through scikit-learn
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused as infinite, not warned of
            X = validate_data(estimator, X, accept_sparse="csr", dtype=np.float32, reset=reset)
    except FeatureError:
        raise
    except (ValueError, np.exceptions.DTypePromotionError) as error:
        text = str(error)
        advice = next((words for key, words in _ADVICE if key in text.lower()), "")
        raise FeatureError(f"{text.rstrip()} {advice}".rstrip()) from error
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_mapped(estimator: Any, X: Any, *, reset: bool) -> Any:
    """The checks of :func:`check_features` a block of rows at a time; nothing is copied."""
    from sklearn.utils.validation import _check_n_features

    from gsparc._mapped import release, row_blocks

    try:
        _check_n_features(estimator, X, reset=reset)
    except ValueError as error:
        raise FeatureError(f"{error} Pass the same columns, in the same order, as in fit.") from error
    values = X.data if sp.issparse(X) else X
    for part in row_blocks(values):
        if not np.isfinite(values[part]).all():
            raise FeatureError(
                f"the mapped features hold NaN or infinity (in rows {part.start} to {part.stop - 1}). "
                "Fill or drop missing values first."
            )
    release(values)
    return X


_PRECISION = (
    "Features are computed with in single precision, about seven digits: where values such as timestamps differ in "
    "later digits only, subtract an offset from them first."
)


def check_rows_vary(X: Any) -> None:
    """Refuse features that are the same for every node: no map of them can tell nodes apart."""
    from gsparc._mapped import row_blocks

    if sp.issparse(X):
        varies = X.nnz > 0 and (X[1:] != X[:-1]).nnz > 0
    else:
        varies = any(bool((X[:1] != X[part]).any()) for part in row_blocks(X))
    if not varies:
        raise FeatureError(
            f"all {X.shape[0]} rows of X are the same, so nothing in the features tells one node from another. "
            f"Pass features that differ between nodes. {_PRECISION}"
        )


def check_scaled(factor: np.ndarray | None, num_nodes: int) -> None:
    """Refuse features of which standardising leaves nothing: ``factor`` of each column is zero."""
    if factor is not None and not factor.any():
        raise FeatureError(
            f"no column of X varies over its {num_nodes} rows by more than a millionth of its mean, or by more than "
            f"1e-36, so next to nothing in the features tells one node from another. {_PRECISION} Multiply values that "
            "are all tiny."
        )


def check_graph(graph: Any, num_nodes: int, *, optional: bool = False) -> Graph:
    """A graph over exactly ``num_nodes`` nodes with at least one edge; ``optional``: None would do as well."""
    from gsparc.graph import Graph

    if not isinstance(graph, Graph):
        graph = Graph.from_any(graph, num_nodes=num_nodes)
    if graph.num_nodes != num_nodes:
        raise GraphShapeError(
            f"graph has {graph.num_nodes} nodes but X has {num_nodes} rows. Pass one row of X for each node; "
            "in cross-validation pass a gsparc.Graph, which is cut together with X (a plain matrix is cut by "
            "rows only)."
        )
    if graph.num_edges == 0:
        instead = ", or graph=None to use nearest neighbours in the features as the graph" if optional else ""
        raise GraphError(
            f"the graph over {num_nodes} nodes has no edges, so there is no structure to learn. Pass edges{instead}."
        )
    return graph


def check_pair_ids(ids: Any, num_new: int) -> tuple[np.ndarray, bool]:
    """Node ids to be paired with ``num_new`` new nodes as ``[num_new, p]``, and whether one each came in a flat list.

    A flat list belongs to the one new node where there is only one, and gives one id to each otherwise.

    Examples
    --------
    >>> [found.tolist() for found in (check_pair_ids([4, 5], 1)[0], check_pair_ids([4, 5], 2)[0])]
    [[[4, 5]], [[4], [5]]]
    """
    wanted = np.asarray(ids)
    if wanted.ndim == 1 and num_new == 1:
        return wanted[None, :], False
    if wanted.ndim == 1 and len(wanted) == num_new:
        return wanted[:, None], True
    if wanted.ndim != 2 or len(wanted) != num_new:
        raise InputError(
            f"ids of shape {wanted.shape} came with {num_new} new nodes, expected one row of node ids "
            "for each new node."
        )
    return wanted, False


def check_first_edges(edges: Any, num_new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    """``(rows, node ids, weights)`` of edges from new nodes to known ones; None where there are none.

    Examples
    --------
    >>> check_first_edges(([0, 0, 1], ["a", "b", "a"]), 2)[0].tolist(), check_first_edges(([], []), 2)
    ([0, 0, 1], None)
    """
    if edges is None:
        return None
    pair = "a pair (rows, node ids), or a triple with weights: which row of X is linked to which known node"
    if isinstance(edges, (str, dict, set)) or not hasattr(edges, "__len__") or len(edges) not in (2, 3):
        size = f" of length {len(edges)}" if hasattr(edges, "__len__") else ""
        raise InputError(f"edges={type(edges).__name__}{size} came, expected {pair}.")
    parts = [np.asarray(part) for part in edges]
    if any(part.ndim != 1 for part in parts) or len({len(part) for part in parts}) > 1:
        raise InputError(f"edges of shapes {[part.shape for part in parts]} came, expected {pair}, all equally long.")
    if not len(parts[0]):
        return None
    rows = parts[0]
    if rows.dtype.kind not in "iu" or not 0 <= rows.min() <= rows.max() < num_new:
        came = f"{rows.min()} to {rows.max()}" if rows.dtype.kind in "iuf" else f"type {rows.dtype}"
        raise InputError(
            f"edges hold rows of X from {came}, expected whole numbers from 0 to {num_new - 1}. The rows come first, "
            "the ids of known nodes second."
        )
    weights = parts[2] if len(parts) == 3 else None
    if weights is not None and (weights.dtype.kind not in "biuf" or not (np.isfinite(weights) & (weights >= 0)).all()):
        raise InputError("edges hold weights that are negative, infinite or no numbers. Pass finite weights >= 0.")
    return rows.astype(np.int64), parts[1], None if weights is None else weights.astype(np.float64)


def check_seen_ids(ids: Any, num_rows: int, num_seen: int) -> np.ndarray:
    """Node ids of seen nodes, one for each row of X; without any the rows are all seen nodes in their order."""
    if ids is None:
        if num_rows != num_seen:
            raise InputError(
                f"X has {num_rows} rows and no ids came, expected the {num_seen} seen nodes in their order. Pass the "
                "ids of the nodes that the rows belong to."
            )
        return np.arange(num_seen)
    array = np.asarray(ids)
    if array.shape != (num_rows,):
        raise InputError(f"ids of shape {array.shape} came for {num_rows} rows of X, expected one id for each row.")
    return array


def check_positions(positions: np.ndarray, count: int) -> np.ndarray:
    """Positions of seen nodes, all below ``count``."""
    if positions.size and not 0 <= positions.min() <= positions.max() < count:
        raise InputError(
            f"ids go from {positions.min()} to {positions.max()}, expected 0 to {count - 1}: the seen nodes."
        )
    return positions


def check_labels(y: Any, num_nodes: int) -> np.ndarray:
    """One-dimensional labels, one a node; what they mean is left to the caller."""
    from sklearn.utils import column_or_1d

    if isinstance(y, (list, tuple)) and str in (kinds := set(map(type, y))) and len(kinds) > 1:
        y = np.array(y, dtype=object)  # numpy would make one type of all: -1 among strings would be the class "-1"
    try:
        labels = column_or_1d(y, warn=True)
    except ValueError as error:
        raise LabelError(
            f"{error} Pass one class for each node; of a table with a column a class, take the column that holds 1: "
            "Y.argmax(axis=1)."
        ) from error
    if labels.dtype.kind == "T":  # numpy's own strings of any length, which scikit-learn does not know
        labels = labels.astype(object)
    if labels.dtype == object and all(isinstance(label, (int, float, np.number, np.bool_)) for label in labels):
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise LabelError("Input y contains NaN or infinity. Mark unlabelled nodes by the integer -1.")
    if len(labels) != num_nodes:
        raise LabelError(f"y has {len(labels)} labels but X has {num_nodes} rows. Pass one label for each node.")
    return labels


def unlabelled_mask(labels: np.ndarray) -> np.ndarray:
    """Nodes whose label is hidden: -1 among whole numbers, none of them below -1.

    -1 and 1 alone are two classes, as in scikit-learn.

    Examples
    --------
    >>> unlabelled_mask(np.array([-1, 0, 2])).tolist(), unlabelled_mask(np.array([-1, 1])).tolist()
    ([True, False, False], [False, False])
    """
    whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and np.array_equal(labels, np.round(labels)))
    if not whole or not labels.size or labels.min() != -1 or set(np.unique(labels)) == {-1, 1}:
        return np.zeros(len(labels), bool)
    return labels == -1
