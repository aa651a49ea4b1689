"""Node ids: strings or integers, looked up by hash in one pass and never in a Python loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gsparc.exceptions import GraphError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "IdLookup",
    "as_id_column",
    "as_node_ids",
    "as_positions",
    "ids_to_numpy",
    "positions_in_range",
    "refuse_nul",
]


def as_id_column(values: Any, what: str) -> pa.Array:
    """Ids as an Arrow array of int64 or strings; ``what`` names them in messages."""
    import pyarrow as pa

    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        column = values.to_arrow() if hasattr(values, "to_arrow") else _to_arrow(values)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise GraphError(f"{what} must be all strings or all integers ({error}).") from error
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise GraphError(f"{what}: {column.null_count} missing (first at row {row}). Drop those rows.")
    return _as_int_or_string(column, what)


def _to_arrow(values: Any) -> pa.Array | pa.ChunkedArray:
    import pyarrow as pa

    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values
    if isinstance(values, (set, frozenset, dict)) or np.ndim(values) > 1:
        raise TypeError("a flat sequence was expected")
    if np.ndim(values) == 0 and not hasattr(values, "__iter__"):
        raise TypeError(f"a sequence was expected, got {type(values).__name__}")
    return pa.array(values if hasattr(values, "__len__") else list(values))


def _as_int_or_string(column: pa.Array, what: str) -> pa.Array:
    import pyarrow as pa

    kind = column.type
    try:
        if len(column) == 0 and pa.types.is_null(kind):
            return column.cast(pa.int64())
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return column.cast(pa.int64())  # a fraction, NaN or overflow raises
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return column.cast(pa.large_string())
    except pa.ArrowInvalid as error:
        raise GraphError(f"{what} hold numbers that are not whole: {error}.") from error
    raise GraphError(f"{what} have type {kind}; strings or integers were expected.")


def ids_to_numpy(column: pa.Array) -> NDArray[Any]:
    """The ids as an int64 or a fixed-width string array of their own."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        return column.to_numpy(zero_copy_only=False).astype(np.int64)
    refuse_nul(column)
    return column.to_numpy(zero_copy_only=False).astype(np.str_)


def refuse_nul(column: pa.Array) -> None:
    """GraphError for strings with the character NUL: numpy would take ``a`` followed by one for ``a``."""
    import pyarrow.compute as pc

    cut = column.filter(pc.match_substring(column, "\0"))  # pyright: ignore[reportAttributeAccessIssue]
    if len(cut):
        raise GraphError(
            f"{len(cut)} node ids hold the character NUL (first: {_first_few(cut)}), where arrays of strings are "
            "cut. Pass ids without it."
        )


def as_node_ids(node_ids: Any, num_nodes: int | None = None) -> NDArray[Any]:
    """Unique ids, one a node, as an int64 or string array."""
    column = as_id_column(node_ids, "node_ids")
    if num_nodes is not None and len(column) != num_nodes:
        raise GraphError(f"there are {len(column)} node_ids for {num_nodes} nodes. Pass one id a node.")
    _refuse_repeats(column)
    return ids_to_numpy(column)


def _refuse_repeats(column: pa.Array) -> None:
    if len(column.unique()) == len(column):
        return
    counts = column.value_counts()
    more_than_once = counts.field("counts").to_numpy() > 1
    repeated = counts.field("values").filter(more_than_once)
    raise GraphError(
        f"{len(repeated)} node ids are given more than once (first: {_first_few(repeated)}). "
        "Each node needs an id of its own."
    )


def _first_few(column: pa.Array, count: int = 5) -> str:
    shown = ", ".join(repr(value) for value in column[:count].to_pylist())
    return shown + (", ..." if len(column) > count else "")


def positions_in_range(ids: Any, num_nodes: int) -> NDArray[np.int64]:
    """Ids that are positions already, checked against the number of nodes."""
    column = as_id_column(ids, "ids")
    places = ids_to_numpy(column)
    if places.dtype.kind != "i":
        raise GraphError("ids are strings, but the graph has no node ids. Pass positions, or set node_ids.")
    outside = (places < 0) | (places >= num_nodes)
    if outside.any():
        raise GraphError(
            f"{np.count_nonzero(outside)} ids are not among the graph's {num_nodes} nodes "
            f"(first: {_first_few(column.filter(outside).unique())})."
        )
    return places


def as_positions(idx: Any, num_nodes: int, *, or_none: bool = False) -> NDArray[np.int64]:
    """Distinct positions from an index array, mask, slice or list; scikit-learn asks for ``[idx, ...]``.

    An index that selects nothing is an error unless ``or_none``.
    """
    if isinstance(idx, tuple):
        if len(idx) != 2 or idx[1] is not Ellipsis:
            raise GraphError("a graph is cut by nodes: graph[idx], with one array of positions or a mask.")
        idx = idx[0]
    if isinstance(idx, slice):
        nodes = np.arange(num_nodes)[idx]
    else:
        nodes = np.asarray(idx)
        if nodes.ndim == 0:
            raise GraphError(f"graph[{idx!r}] is one node, not a graph. Use graph[[{idx!r}]] or neighbors().")
        if nodes.ndim != 1 or (nodes.size and nodes.dtype.kind not in "biu"):
            raise GraphError(
                f"a graph is cut by a 1-D array of positions or a mask, got shape {nodes.shape} of dtype "
                f"{nodes.dtype}. Node ids become positions with graph.ids_to_index(ids)."
            )
        if nodes.dtype.kind == "b":
            if nodes.size != num_nodes:
                raise GraphError(f"the mask has {nodes.size} entries, but the graph has {num_nodes} nodes.")
            nodes = np.flatnonzero(nodes)
    if nodes.size == 0:
        if or_none:
            return np.zeros(0, np.int64)
        raise GraphError("the index selects no node; a graph needs at least one.")
    if int(nodes.min()) < -num_nodes or int(nodes.max()) >= num_nodes:
        bad = nodes[(nodes < -num_nodes) | (nodes >= num_nodes)][0]
        raise GraphError(f"node {bad} is out of range for a graph of {num_nodes} nodes.")
    nodes = nodes.astype(np.int64) % num_nodes  # negative positions count from the end
    if np.bincount(nodes, minlength=1).max() > 1:
        again = int(np.argmax(np.bincount(nodes) > 1))
        raise GraphError(f"node {again} is selected more than once; select each node once.")
    return nodes


class IdLookup:
    """Positions of ids among known ones.

    Examples
    --------
    >>> IdLookup(["a", "b", "c"]).positions(["c", "a"])
    array([2, 0])
    """

    def __init__(self, known: Any) -> None:
        self.known = as_id_column(known, "node ids")

    def positions(self, ids: Any, what: str = "ids") -> NDArray[np.int64]:
        """One int64 an id; unknown ids are an error that names the first few."""
        import pyarrow.compute as pc

        column = as_id_column(ids, what)
        if len(column) == 0:
            return np.empty(0, dtype=np.int64)
        if column.type != self.known.type:
            raise GraphError(
                f"{what} are of type {column.type}, but the node ids are of type {self.known.type}. "
                "Convert one to the other."
            )
        found = pc.index_in(column, value_set=self.known)  # pyright: ignore[reportAttributeAccessIssue]
        if found.null_count:
            unknown = column.filter(found.is_null())
            raise GraphError(
                f"{what}: {len(unknown)} not among the {len(self.known)} known nodes "
                f"(first: {_first_few(unknown.unique())}). Add them to the nodes or drop them."
            )
        return found.to_numpy(zero_copy_only=False).astype(np.int64)
