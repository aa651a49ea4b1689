"""Nodes and edges of two tables brought together: ids, classes, and what the edges name that is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gsparc._ids import as_id_column, as_node_ids
from gsparc.exceptions import GraphError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.tables._id_values import as_text_ids, as_whole_ids, text_values
from gsparc.tables._types import TRUTH, is_text
from gsparc.tables.reading import files_of, is_delimited, place_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gsparc.tables.columns import EdgeColumns

__all__ = [
    "EdgeList",
    "Ids",
    "Labels",
    "header_words",
    "join_edges",
    "minus_one_note",
    "minus_one_words",
    "node_ids",
    "read_labels",
    "text_values",
]

Ints = NDArray[np.int64]


def node_ids(table: pa.Table, name: str | None, *, advice: str = ", or name another column with --id") -> NDArray[Any]:
    """Ids of the rows, unique and none missing; row numbers from 0 where there is no column for them.

    ``advice`` is what else may be done about a column that will not do; nothing where a model has settled which it is.
    """
    if name is None:
        return np.arange(table.num_rows, dtype=np.int64)
    column = text_values(table[name])
    if column.null_count:
        rows = np.flatnonzero(np.asarray(column.is_null()))
        raise InputError(
            f"{len(rows)} row(s) of the node table have no id in column {name!r}: {_places(table, rows)}. "
            f"Give each row an id or drop it{advice}."
        )
    repeated = _repeats(column)
    if repeated:
        shown = "; ".join(f"{value!r} in {_places(table, rows)}" for value, rows in list(repeated.items())[:3])
        raise InputError(
            f"{len(repeated):,} id(s) in column {name!r} of the node table stand in more than one row: {shown}"
            f"{'; ...' if len(repeated) > 3 else ''}. Each node needs an id of its own: drop or rename the others"
            f"{advice}."
        )
    try:
        return as_node_ids(column)
    except GraphError as error:
        raise InputError(f"column {name!r} cannot name the nodes: {error}") from error


def _repeats(column: Any) -> dict[Any, Ints]:
    """Values that stand more than once, with their rows."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        return {}
    coded = column.combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    again = np.flatnonzero(np.bincount(codes, minlength=1) > 1)
    if not len(again):
        return {}
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    starts = ends - np.bincount(codes)
    values = coded.dictionary.take(pa.array(again)).to_pylist()
    return {value: order[starts[code] : ends[code]] for value, code in zip(values, again, strict=True)}


def _places(table: pa.Table, rows: Ints) -> str:
    """Rows as a reader of the files finds them, the first few."""
    found = [place_of(table, int(row)) for row in rows[:5]]
    more = ", ..." if len(rows) > 5 else ""
    files = list(dict.fromkeys(file for file, _ in found))
    if len(files) == 1:
        where = f" of {files[0]}" if files[0] else ""
        return f"{'rows' if len(rows) > 1 else 'row'} {', '.join(f'{row:,}' for _, row in found)}{more}{where}"
    return ", ".join(f"row {row:,} of {file}" for file, row in found) + more


class Ids:
    """Where ids are among the known ones; they are brought to the kind of those, whole numbers or text.

    Examples
    --------
    >>> Ids(np.array(["7", "8"])).find(np.array([8, 9])).tolist()
    [1, -1]
    """

    def __init__(self, known: NDArray[Any]) -> None:
        self.known = as_id_column(known, "node ids")

    def find(self, values: Any) -> Ints:
        """Positions, -1 for what is missing or unknown."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        column = as_whole_ids(column) if pa.types.is_integer(self.known.type) else as_text_ids(column)
        found = pc.call_function("index_in", [column], pc.SetLookupOptions(value_set=self.known))
        out = np.asarray(found.fill_null(-1)).astype(np.int64)
        out[np.asarray(column.is_null())] = -1
        return out


@dataclass(frozen=True)
class EdgeList:
    """Edges between known nodes as positions, and what was left out."""

    source: Ints
    target: Ints
    weights: NDArray[np.float32] | None
    counts: dict[str, int]
    examples: list[str]  # a few ends that no node has
    header: tuple[str, str] | None = None  # names of the columns of a text file that are themselves ids

    def __len__(self) -> int:
        return len(self.source)

    def graph(self, ids: NDArray[Any]) -> Graph:
        """The graph over all nodes."""
        ends = np.stack([self.source, self.target])
        return Graph.from_edges(ends, num_nodes=len(ids), weights=self.weights, node_ids=ids)

    def sentences(self) -> list[str]:
        """What was left out, said plainly; nothing where nothing was."""
        counts, said = self.counts, [] if self.header is None else [header_words(*self.header)]
        for key, words in (
            ("unknown", "name a node that is not known"),
            ("missing", "have no source or no target"),
            ("bad_weight", "have a weight that is no number above zero"),
            ("self_loops", "join a node to itself"),
        ):
            if counts[key]:
                example = f", such as {', '.join(map(repr, self.examples))}" if key == "unknown" else ""
                said.append(f"{counts[key]:,} of {counts['rows']:,} edges {words}{example}: left out")
        if counts["duplicates"]:
            what = "counted once" if self.weights is None else "repeats add up, of two directions the larger counts"
            said.append(f"{counts['duplicates']:,} edges are listed more than once or both ways: {what}")
        return said


def join_edges(edges: pa.Table, columns: EdgeColumns, ids: Ids, *, need: bool = True) -> EdgeList:
    """Edges as positions of known nodes. With ``need`` it is an error when none is left."""
    ends = [text_values(edges[columns.source]), text_values(edges[columns.target])]
    source, target = (ids.find(column) for column in ends)
    absent = np.asarray(ends[0].is_null()) | np.asarray(ends[1].is_null())
    unknown = ((source < 0) | (target < 0)) & ~absent
    weights, unusable = _weights(edges, columns.weight)
    loops = (source == target) & ~absent & ~unknown
    keep = ~(absent | unknown | loops | unusable)
    counts = {
        "rows": edges.num_rows,
        "missing": int(absent.sum()),
        "unknown": int(unknown.sum()),
        "bad_weight": int((unusable & ~absent & ~unknown).sum()),
        "self_loops": int((loops & ~unusable).sum()),
    }
    source, target = source[keep], target[keep]
    counts["used"] = _distinct(source, target, len(ids.known))
    counts["duplicates"] = len(source) - counts["used"]
    examples = _strangers(ends, source_unknown=ids, rows=np.flatnonzero(unknown)[:50])
    if need and not len(source):
        raise GraphError(_nothing_left(counts, columns, examples))
    kept = None if weights is None else weights[keep]
    return EdgeList(source, target, kept, counts, examples, _nodes_in_header(edges, columns, ids))


def _nodes_in_header(edges: pa.Table, columns: EdgeColumns, ids: Ids) -> tuple[str, str] | None:
    """The names of the two columns, where a text file has them and nodes are called so."""
    names = (columns.source, columns.target)
    text = any(map(is_delimited, files_of(edges)))
    return names if text and (ids.find(list(names)) >= 0).all() else None


def header_words(source: str, target: str) -> str:
    """What to say of an edge list that seems to have no header."""
    return (
        f"the columns of the edges are called {source!r} and {target!r}, as two nodes are: if the file has no header, "
        "its first edge was taken for one and is lost. Add a line such as source,target"
    )


def _weights(edges: pa.Table, name: str | None) -> tuple[NDArray[np.float32] | None, NDArray[np.bool_]]:
    import pyarrow as pa

    if name is None:
        return None, np.zeros(edges.num_rows, bool)
    column = text_values(edges[name])
    if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
        values = np.array([_number(value) for value in column.to_pylist()], np.float64)
    else:
        values = column.cast(pa.float64(), safe=False).to_numpy()
    unusable = ~(np.isfinite(values) & (values > 1e-37) & (values < 1e30))
    return np.where(unusable, 0, values).astype(np.float32), unusable


def _number(value: str | None) -> float:
    try:
        return float(value) if value is not None else np.nan
    except ValueError:
        return np.nan


def _distinct(source: Ints, target: Ints, count: int) -> int:
    low, high = np.minimum(source, target), np.maximum(source, target)
    return len(np.unique(low * np.int64(count) + high))


def _strangers(ends: list[Any], source_unknown: Ids, rows: Ints) -> list[str]:
    """A few ids that the edges name and no node has."""
    found: list[str] = []
    for column in ends:
        part = column.take(rows)
        unknown = source_unknown.find(part) < 0
        found += [str(value) for value in part.filter(unknown).to_pylist()]
    return list(dict.fromkeys(found))[:3]


def _nothing_left(counts: dict[str, int], columns: EdgeColumns, examples: list[str]) -> str:
    if not counts["rows"]:
        return "the edge table has no rows; one row an edge was expected."
    named = f" They name {', '.join(map(repr, examples))}, which no node is called." if examples else ""
    if counts["bad_weight"] and not counts["unknown"]:
        return (
            f"none of the {counts['rows']:,} edges can be used: {counts['bad_weight']:,} have a weight in column "
            f"{columns.weight!r} that is no number above zero. Correct the weights, or name another column with "
            "--edge-weight."
        )
    return (
        f"none of the {counts['rows']:,} edges (columns {columns.source!r} and {columns.target!r}) joins two different "
        f"nodes of the node table.{named} Check which columns hold the ids: --id of the nodes, "
        "--edge-source and --edge-target of the edges."
    )


@dataclass(frozen=True)
class Labels:
    """Classes of the rows: numbers that point into ``names``, -1 where there is none."""

    codes: Ints
    names: NDArray[Any]  # strings, or int64 where the column holds whole numbers


def read_labels(table: pa.Table, name: str, *, advice: str = "Name another with --target.") -> Labels:
    """The classes in a column; whole numbers stay numbers, -1 among them is a class, and what is missing is none.

    True and false are called ``true`` and ``false``, whether a column holds truth values or their names. ``advice``
    ends the error about a column that holds no classes.

    Examples
    --------
    >>> import pyarrow as pa
    >>> found = read_labels(pa.table({"kind": ["b", None, "a", ""]}), "kind")
    >>> found.codes.tolist(), found.names.tolist()
    ([1, -1, 0, -1], ['a', 'b'])
    """
    import pyarrow as pa

    from gsparc.datasets.tables import encode_labels

    column = text_values(table[name])
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        raise LabelError(f"column {name!r} holds {column.type}; classes are strings or whole numbers. {advice}")
    codes, names = encode_labels(_with_one_truth(column), name, negative=True, advice=advice)
    numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    return Labels(codes, names.astype(np.int64) if numeric and len(names) else names)


def _with_one_truth(column: Any) -> Any:
    """A column of text in which True, TRUE and the like are in small letters, as a column of truth values is read."""
    import pyarrow.compute as pc

    if not is_text(column.type):
        return column
    truth = pc.call_function("match_substring_regex", [column], pc.MatchSubstringOptions(TRUTH))
    return pc.call_function("if_else", [truth, pc.call_function("utf8_lower", [column]), column])


def minus_one_note(labels: Labels, name: str) -> str | None:
    """That -1 is a class, where it is the only number below zero: elsewhere it often says that there is none."""
    if labels.names.dtype.kind != "i" or labels.names[labels.names < 0].tolist() != [-1]:
        return None
    return minus_one_words(int((labels.codes == np.flatnonzero(labels.names == -1)[0]).sum()), name)


def minus_one_words(count: int, name: str) -> str:
    """The sentence of :func:`minus_one_note`."""
    return (
        f"-1 is a class in column {name!r}, of {count:,} rows; where it means that there is none, leave the cell empty"
    )
