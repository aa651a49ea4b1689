"""What the columns of a table are: id, label, words, numbers, categories, vectors; said or guessed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as _compute

from gsparc.exceptions import DamagedModelError, InputError
from gsparc.tables._guess import (
    could_be_id,
    describe_values,
    guess_role,
    is_running,
    is_unique,
    looks_like_classes,
    matched,
    mostly_numbers,
)
from gsparc.tables._id_values import whole_numbers
from gsparc.tables._types import as_strings, is_number, is_text, plain_table

__all__ = [
    "Columns",
    "EdgeColumns",
    "describe_columns",
    "edge_columns_like",
    "guess_columns",
    "guess_edge_columns",
    "id_notes",
    "role_lines",
    "sample_ends",
]

pc: Any = _compute

_TARGETS = ("label", "class", "target", "y")
_SURE_IDS = re.compile(r"^(id|node|node_?id|uuid)$", re.IGNORECASE)
_IDS = re.compile(r"^(id|node|node_?id|key|uuid|.*[_-]id|[a-z]+Id)$", re.IGNORECASE)
_SOURCES = ("source", "src", "from", "u", "head", "start")
_ENDS = ("target", "dst", "to", "v", "tail", "end")
_WEIGHTS = ("weight", "w")


@dataclass(frozen=True)
class Columns:
    """The role of each column of a node table.

    Parameters
    ----------
    id
        Names of the nodes; None: their row numbers are their names.
    target
        Classes; None: there are none.
    text, numeric, categorical, vector
        Features: words, numbers, names of few kinds, lists of numbers of one length (embeddings).
    ignored
        Columns that are not used, and why.
    group
        Rows that belong together, and are held out together where accuracy is measured.
    """

    id: str | None = None
    target: str | None = None
    text: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    vector: tuple[str, ...] = ()
    ignored: dict[str, str] = field(default_factory=dict)
    group: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Every column that a new row needs."""
        return (*self.text, *self.categorical, *self.numeric, *self.vector)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file.

        Examples
        --------
        >>> Columns.from_json(Columns(id="name", text=("words",)).to_json()).text
        ('words',)
        """
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Any) -> Columns:
        """What :meth:`to_json` made; DamagedModelError for anything else."""
        single, several = ("id", "target", "group"), ("text", "numeric", "categorical", "vector")
        ok = isinstance(values, dict) and set(values) == {*single, *several, "ignored"}
        ok = ok and all(values[name] is None or isinstance(values[name], str) for name in single)
        ok = ok and all(_is_strings(values[name], list) for name in several)
        ok = ok and isinstance(values["ignored"], dict) and _is_strings([*values["ignored"].values()], list)
        if not ok:
            raise DamagedModelError("the model is damaged: its column roles cannot be read. Fit and save it again.")
        columns = {name: tuple(values[name]) for name in several}
        return cls(**columns, **{name: values[name] for name in (*single, "ignored")})


def _is_strings(values: Any, kind: type) -> bool:
    return isinstance(values, kind) and all(isinstance(value, str) for value in values)


def guess_columns(
    table: pa.Table,
    *,
    id: str | None = None,
    target: str | None = None,
    text: Iterable[str] = (),
    numeric: Iterable[str] = (),
    categorical: Iterable[str] = (),
    ignore: Iterable[str] = (),
    group: str | None = None,
    ends: Any = None,
) -> Columns:
    """Roles of all columns: those that are given, and a guess for each of the others.

    ``ends`` are names that edges have for nodes (:func:`sample_ends`): the column that holds them is the id, even where
    some of its values repeat, so that the error is about those.

    Examples
    --------
    >>> table = pa.table({"name": ["a", "b", "c"], "size": [1.0, 2.5, 4.0], "label": ["x", "y", "x"]})
    >>> columns = guess_columns(table)
    >>> columns.id, columns.target, columns.numeric
    ('name', 'label', ('size',))
    """
    table = plain_table(table)
    single = {"id": id, "target": target, "group": group}
    several = {"text": tuple(text), "numeric": tuple(numeric), "categorical": tuple(categorical)}
    said = _said(table, single, several, tuple(ignore))
    free = [name for name in table.column_names if name not in said]
    roles: dict[str, list[str]] = {"text": [], "numeric": [], "categorical": [], "vector": []}
    for role, names in several.items():
        roles[role] += names
    if target is None:
        called = sorted((n for n in free if n.lower() in _TARGETS), key=lambda n: _TARGETS.index(n.lower()))
        target = next((name for name in called if looks_like_classes(table[name])), None)
        free = [name for name in free if name != target]
    if id is None:
        id = _guess_id(table, free, ends)
        free = [name for name in free if name != id]
    if group is None:
        group = next((n for n in free if n.lower() in ("group", "group_id") and _many(table[n])), None)
        free = [name for name in free if name != group]
    ignored = dict.fromkeys(ignore, "as asked")
    for name in free:
        role, why = guess_role(table[name])
        if role == "ignored":
            ignored[name] = why
        else:
            roles[role].append(name)
    order = {name: place for place, name in enumerate(table.column_names)}
    kept = {role: tuple(sorted(names, key=order.__getitem__)) for role, names in roles.items()}
    if not any(kept.values()):
        reasons = "; ".join(f"{name}: {why}" for name, why in ignored.items())
        raise InputError(
            "no column of the node table can serve as a feature. "
            f"{f'Left out: {reasons}. ' if reasons else ''}Name one with --text, --numeric or --categorical."
        )
    return Columns(id=id, target=target, group=group, ignored=ignored, **kept)


def _said(
    table: pa.Table, single: dict[str, str | None], several: dict[str, tuple[str, ...]], ignore: tuple[str, ...]
) -> set[str]:
    """Columns whose role was given, after a check that they exist and have one role each."""
    given = [(role, name) for role, name in single.items() if name is not None]
    given += [(role, name) for role, names in {**several, "ignore": ignore}.items() for name in names]
    seen: dict[str, str] = {}
    for role, name in given:
        if name not in table.column_names:
            raise InputError(
                f"the node table has no column {name!r} for {role}. Its columns: {', '.join(table.column_names)}."
            )
        if seen.get(name, role) != role:
            raise InputError(f"column {name!r} is named for {seen[name]} and for {role}; give it one role.")
        seen[name] = role
    return set(seen)


def _guess_id(table: pa.Table, free: list[str], ends: Any) -> str | None:
    """The column that edges name; or one that is called like an id, stands first, or holds names that never repeat."""
    named = None if ends is None else _named_by(table, free, ends)
    if named is not None:
        return named
    called = sorted((name for name in free if _IDS.match(name)), key=lambda name: name.lower() != "id")
    for name in called:
        if is_unique(table[name]):
            return name
    if table.column_names[0] in free and is_running(table[table.column_names[0]]):
        return table.column_names[0]
    names = (name for name in free if is_text(table[name].type))
    found = next((name for name in names if guess_role(table[name])[0] == "ignored" and is_unique(table[name])), None)
    if found is None:  # repeats or gaps in such a column are mistakes, and said to be
        sure = (name for name in called if _SURE_IDS.match(name) and could_be_id(table[name]))
        found = next((name for name in sure if len(table[name].unique()) >= 0.5 * table.num_rows), None)
    return found


def _named_by(table: pa.Table, free: list[str], ends: Any) -> str | None:
    """The column that holds at least half of the names that edges use; one without repeats before others.

    Numbers may match by chance, as sizes and years do. Where the edges' names could also be row numbers, a column that
    is not called like an id has to hold all of them, and none twice.
    """
    rows, positions = table.num_rows, _are_positions(ends, table.num_rows)
    shares: dict[str, tuple[bool, bool, float]] = {}
    for name in free:
        column = table[name]
        if not could_be_id(column):
            continue
        doubtful = is_number(column.type) and not _IDS.match(name)
        if doubtful and (is_running(column, starts=(0,)) if positions else len(column.unique()) < 0.9 * rows):
            continue  # numbers that are the row numbers change nothing
        unique, share = is_unique(column), matched(column, ends)
        if share == 1 and unique if doubtful and positions else share >= 0.5:
            shares[name] = (unique, not (doubtful and positions), share)
    return max(shares, key=lambda name: shares[name]) if shares else None


def _are_positions(ends: Any, rows: int) -> bool:
    """Whether all names could be row numbers."""
    return pa.types.is_integer(ends.type) and bool(((ends.to_numpy() >= 0) & (ends.to_numpy() < rows)).all())


def _many(column: pa.ChunkedArray) -> bool:
    """More different values than a category would have."""
    return len(column.unique()) > max(20, math.isqrt(len(column)))


def describe_columns(columns: Columns, table: pa.Table) -> list[tuple[str, str, str]]:
    """Column, role, and what is in it or why it is left out, in the order of the table.

    Examples
    --------
    >>> table = pa.table({"name": ["a", "b"], "size": [1.0, 2.5]})
    >>> describe_columns(guess_columns(table), table)
    [('name', 'id', "2 different, such as 'a'"), ('size', 'numeric', '1 to 2.5')]
    """
    roles = {name: role for role in ("text", "numeric", "categorical", "vector") for name in getattr(columns, role)}
    roles |= dict.fromkeys(columns.ignored, "ignored")
    for role in ("id", "target", "group"):
        if getattr(columns, role) is not None:
            roles[getattr(columns, role)] = role
    table, lines = plain_table(table), []
    for name in table.column_names:
        role = roles.get(name, "ignored")
        why = columns.ignored.get(name, "not among the columns") if role == "ignored" else ""
        lines.append((name, role, why or describe_values(table[name], role)))
    return lines


def role_lines(columns: Columns, table: pa.Table, ends: EdgeColumns, names: Any = None) -> list[str]:
    """What was understood of both tables, a line a column, for people; ``names`` as of :func:`sample_ends`."""
    lines = describe_columns(columns, table)
    width = max(len(name) for name, _, _ in lines)
    weight = f", weight {ends.weight}" if ends.weight else ", no weights"
    edges = f"edges: from {ends.source} to {ends.target}{weight}"
    if columns.id is None:
        edges += "; no column of the nodes is an id, so edges name rows by their number, from 0"
    notes = [f"note: {note}" for note in id_notes(columns, table, names)]
    return ["nodes:", *(f"  {name:<{width}}  {role:<11}  {why}" for name, role, why in lines), edges, *notes]


def id_notes(columns: Columns, table: pa.Table, names: Any) -> list[str]:
    """What is in doubt about how edges name nodes, and which option says it; ``names`` as of :func:`sample_ends`.

    Examples
    --------
    >>> table = pa.table({"size": [2.5, 1.5, 2.0]})
    >>> id_notes(Columns(numeric=("size",)), table, pa.array([1, 3]))[0][:45]
    'edges name rows from 1 to 3, but rows are num'
    """
    if names is None or not pa.types.is_integer(names.type):
        return []
    rows, low, high = table.num_rows, min(names.to_pylist()), max(names.to_pylist())
    if columns.id is None and low == 1 and high == rows:
        return [
            f"edges name rows from 1 to {rows:,}, but rows are numbered from 0 and the last of them is {rows - 1:,}: "
            "every edge may be off by one. Add a column of ids to the nodes, or count from 0"
        ]
    table = plain_table(table)
    if columns.id is None or not _are_positions(names, rows):
        return []
    if _IDS.match(columns.id) or not is_number(table[columns.id].type) or is_running(table[columns.id], starts=(0,)):
        return []
    whole = [name for name in columns.numeric if could_be_id(table[name]) and is_unique(table[name])]
    others = [name for name in whole if matched(table[name], names) == 1]
    more = f", and so could {', '.join(map(repr, others))}" if others else ""
    return [
        f"every name in the edges is in column {columns.id!r}, so that was taken for the id; they could also be row "
        f"numbers{more}. --id COLUMN names another id; --numeric {columns.id} makes it a number, and edges name "
        "rows by their number, from 0"
    ]


@dataclass(frozen=True)
class EdgeColumns:
    """The columns of an edge table: the two ends, and a weight where there is one."""

    source: str
    target: str
    weight: str | None = None


def guess_edge_columns(
    table: pa.Table, *, source: str | None = None, target: str | None = None, weight: str | None = None
) -> EdgeColumns:
    """The ends of the edges: as given, by their usual names, or the first two columns.

    Examples
    --------
    >>> guess_edge_columns(pa.table({"src": [1], "dst": [2], "weight": [0.5]}))
    EdgeColumns(source='src', target='dst', weight='weight')
    """
    names = table.column_names
    for role, name in (("source", source), ("target", target), ("weight", weight)):
        if name is not None and name not in names:
            raise InputError(f"the edge table has no column {name!r} for {role}. Its columns: {', '.join(names)}.")
    if weight is None:
        called = [n for n in names if n.lower() in _WEIGHTS and n not in (source, target)]
        weight = next((n for n in called if mostly_numbers(table[n])), None)
    elif not mostly_numbers(table[weight]):
        raise InputError(f"column {weight!r} of the edge table holds {table[weight].type}; weights are numbers.")
    free = [n for n in names if n not in (source, target, weight)]
    if source is None:
        source = _usual(free, _SOURCES) or next((n for n in free if target or n.lower() not in _ENDS), None)
        free = [n for n in free if n != source]
    if target is None:
        target = _usual(free, _ENDS) or next(iter(free), None)
    if source is None or target is None:
        raise InputError(
            f"the edge table has the columns {', '.join(names)}; two were expected, one for each end of an edge. "
            "Name them with --edge-source and --edge-target."
        )
    if source == target:
        raise InputError(f"column {source!r} is named for both ends of an edge; name two columns.")
    return EdgeColumns(source, target, weight)


def sample_ends(table: pa.Table, columns: EdgeColumns, most: int = 1000) -> Any:
    """Some of the names that edges have for nodes, from all over the table; None where they have none.

    Examples
    --------
    >>> sample_ends(pa.table({"a": ["x"], "b": ["y"]}), EdgeColumns("a", "b")).to_pylist()
    ['x', 'y']
    """
    step = max(1, table.num_rows // most)
    rows = pa.array(range(0, table.num_rows, step))
    parts = []
    for name in (columns.source, columns.target):
        column = _with_extremes(table[name], rows)
        column = plain_table(pa.table([column], names=[name]))[0].drop_null()
        whole = whole_numbers(column)
        column = column if whole is None else whole.drop_null().cast(pa.int64())
        if whole is None and not is_text(column.type):
            return None
        parts.append(column)
    if parts[0].type != parts[1].type:
        parts = [as_strings(part).cast(pa.large_string()) for part in parts]
    found = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type).combine_chunks()
    return found if len(found) else None


def _with_extremes(column: pa.ChunkedArray, rows: pa.Array) -> pa.ChunkedArray:
    """Some values, and of numbers the smallest and the largest: they say whether all could be row numbers."""
    some = column.take(rows)
    if not is_number(column.type):
        return some
    ends = pc.min_max(column).as_py()
    return pa.chunked_array([*some.chunks, pa.array([ends["min"], ends["max"]], column.type)])


def _usual(names: list[str], usual: tuple[str, ...]) -> str | None:
    by_name = {name.lower(): name for name in reversed(names)}
    return next((by_name[name] for name in usual if name in by_name), None)


def edge_columns_like(
    known: EdgeColumns, table: pa.Table, source: str | None = None, target: str | None = None
) -> EdgeColumns:
    """Columns of a further edge table: as given, as in the fit (``known``), or guessed; no weights where it had none.

    Examples
    --------
    >>> edge_columns_like(EdgeColumns("a", "b"), pa.table({"src": [1], "a": [1], "b": [2]}))
    EdgeColumns(source='a', target='b', weight=None)
    """
    names = table.column_names
    if source is None and target is None and known.source in names and known.target in names:
        source, target = known.source, known.target
    weight = known.weight if known.weight in names else None
    found = guess_edge_columns(table, source=source, target=target, weight=weight)
    return replace(found, weight=None) if known.weight is None else found
