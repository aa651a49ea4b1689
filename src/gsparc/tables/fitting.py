"""From two tables to fitted estimators: hold rows out, fit, compare, calibrate, and let the held-out rows join."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._validation import check_count, check_name, check_share
from gsparc.estimators._labels import has_many_classes
from gsparc.exceptions import FeatureError, GraphError, InputError, LabelError
from gsparc.graph import Graph
from gsparc.splits import ColdStartSplit
from gsparc.tables.joining import EdgeList, Ids, Labels, join_edges, minus_one_note, node_ids, read_labels
from gsparc.tables.preprocess import Preprocessor
from gsparc.tables.reading import place_of
from gsparc.tables.stages import Progress, Stages, identity

if TYPE_CHECKING:
    import pyarrow as pa

    from gsparc.tables.columns import Columns, EdgeColumns

__all__ = ["BACKBONES", "TASKS", "FitSettings", "Material", "Split", "check_settings", "checked", "prepare"]

TASKS = ("classes", "links", "clusters")
BACKBONES = ("auto", "gcn", "mlp", "phormer", "samba")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class FitSettings:
    """What to fit, and how long."""

    tasks: tuple[str, ...] = ("classes", "links")
    n_clusters: int | None = None
    backbone: str = "auto"
    seed: int = 0
    device: str = "auto"
    max_steps: int | None = None
    holdout: float = 0.2
    coverage: float = 0.9
    verbose: int = 0
    index_memory: int | None = None  # bytes, of all indexes together

    def identity(self) -> dict[str, Any]:
        """What changes the result."""
        left_out = {"verbose", "device"} | ({"index_memory"} if self.index_memory is None else set())
        return {name: value for name, value in vars(self).items() if name not in left_out}

    @property
    def memory_of_each(self) -> int | None:
        """Bytes that the indexes of one estimator may keep in memory."""
        count = len({"classes", "links"} & set(self.tasks))
        return None if self.index_memory is None else self.index_memory // max(count, 1)


def check_settings(settings: FitSettings, target: str | None) -> None:
    """Refuse what cannot be fitted before anything is read."""
    for task in settings.tasks:
        check_name("task", task, TASKS)
    if not settings.tasks:
        raise InputError(f"no task came. Pass some of {', '.join(TASKS)}.")
    check_name("backbone", settings.backbone, BACKBONES)
    check_share("holdout", settings.holdout, high=0.8)
    if settings.n_clusters is not None:
        check_count("n_clusters", settings.n_clusters, 2)
    if "classes" in settings.tasks and target is None:
        raise LabelError("classes were asked for, but no column holds them. Name it with --target COLUMN.")


@dataclass(frozen=True)
class Split:
    """Rows of the node table by their part in the fit; each row is in one of the three."""

    seen: Ints
    val: Ints  # labelled rows without edges: they stop, weigh and calibrate
    cold: Ints  # rows that pretend to be new: they measure

    @property
    def order(self) -> Ints:
        """Rows in the order in which the model knows them."""
        return np.concatenate([self.seen, self.val, self.cold])


@dataclass
class Material:
    """The two tables as numbers."""

    ids: NDArray[Any]
    X: Any
    labels: Labels | None
    edges: EdgeList
    graph: Graph  # over all rows, without ids
    split: Split
    preprocess: Preprocessor
    notes: list[str] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)  # rows of the node table that were left out

    @property
    def y(self) -> Ints:
        """Class numbers of all rows, -1 where there is none."""
        return np.full(len(self.ids), -1) if self.labels is None else self.labels.codes

    def new_edges(self) -> tuple[Ints, Ints, NDArray[np.float32] | None]:
        """Edges of the rows that join after the fit, as positions in the order of the split."""
        place = np.empty(len(self.ids), np.int64)
        place[self.split.order] = np.arange(len(place))
        upper = sp.csr_array(sp.triu(self.graph.to_scipy()))
        row = place[np.repeat(np.arange(len(place)), np.diff(upper.indptr))]
        column = place[upper.indices]
        fresh = (row >= len(self.split.seen)) | (column >= len(self.split.seen))
        weights = None if self.graph.weights is None else upper.data[fresh].astype(np.float32)
        return row[fresh], column[fresh], weights


def prepare(
    nodes: pa.Table,
    edges: pa.Table,
    columns: Columns,
    edge_columns: EdgeColumns,
    settings: FitSettings,
    say: Callable[[str], object],
) -> Material:
    """Join the tables, hold rows out, and turn columns into features by what the seen rows hold."""
    check_settings(settings, columns.target)
    ids = node_ids(nodes, columns.id)
    labels = read_labels(nodes, columns.target) if columns.target and "classes" in settings.tasks else None
    joined = join_edges(edges, edge_columns, Ids(ids))
    notes = [*_class_notes(labels, columns), *joined.sentences()]
    for note in notes:
        say(note)
    graph = joined.graph(ids)
    graph = Graph(graph.indptr, graph.indices, graph.weights)  # estimators know nodes by position, the model by id
    groups = None if columns.group is None else np.array([str(v) for v in nodes[columns.group].to_pylist()])
    split = _split(len(ids), labels, groups, settings)
    refuse_infinite(nodes, columns)
    preprocess = Preprocessor.fit(nodes.take(split.seen), columns)
    X, bad = preprocess.transform(nodes)
    X = sp.csr_array(X) if sp.issparse(X) else np.asarray(X, np.float32)
    material = Material(ids, X, labels, joined, graph, split, preprocess, notes, dict(bad))
    if bad:
        material = _without_bad(material, say)
    return checked(material, columns, say)


def _class_notes(labels: Labels | None, columns: Columns) -> list[str]:
    note = None if labels is None else minus_one_note(labels, str(columns.target))
    return [] if note is None else [note]


def refuse_infinite(nodes: pa.Table, columns: Columns) -> None:
    """An infinite number is a mistake of the table: left as it is, it would move the scale of its column."""
    from gsparc.tables._blocks import number_columns
    from gsparc.tables._values import FINITE, vector_width, vectors

    bad: dict[int, str] = {}
    number_columns(nodes, columns.numeric, bad)
    for name in columns.vector:
        vectors(nodes[name], name, vector_width(nodes[name]), bad)
    infinite = {row: reason for row, reason in bad.items() if reason.endswith(FINITE)}
    if infinite:
        row = min(infinite)
        file, number = place_of(nodes, row)
        more = f" {len(infinite):,} rows hold such a value." if len(infinite) > 1 else ""
        raise FeatureError(
            f"{file or 'the node table'}, row {number:,}: {infinite[row]}.{more} Leave the value empty (it is then "
            "filled with the median of its column), correct it, or take the row out."
        )


def _split(n: int, labels: Labels | None, groups: Any, settings: FitSettings) -> Split:
    """Half of what is held out validates, half measures; unlabelled rows do not validate."""
    everything = np.arange(n)
    none = np.zeros(0, np.int64)
    share = settings.holdout / 2
    if not share or n < 10:
        return Split(everything, none, none)
    y = None if labels is None else labels.codes
    if y is not None and len(labels.names) < 2:  # type: ignore[union-attr]
        y = None  # said in words later
    drawn = ColdStartSplit("dense", cold=share, validation=share if labels else 0.0, random_state=settings.seed)
    fold = next(iter(drawn.folds(np.empty((n, 1)), y, groups)))
    val, seen = fold.val, fold.seen
    if y is not None and groups is None and len(val):
        useless = val[y[val] < 0]
        val, seen = val[y[val] >= 0], np.sort(np.concatenate([seen, useless]))
    return Split(seen, val, fold.cold)


def _without_bad(material: Material, say: Callable[[str], object]) -> Material:
    """The same without the rows that could not be read."""
    keep = np.ones(len(material.ids), bool)
    keep[list(material.bad)] = False
    rows = np.flatnonzero(keep)
    first = min(material.bad)
    note = (
        f"{len(material.bad):,} of {len(keep):,} rows of the node table cannot be used and are left out with their "
        f"edges, such as {str(material.ids[first])!r}: {material.bad[first]}"
    )
    if not len(rows):
        raise FeatureError(f"no row of the node table can be used. Row 1: {material.bad[first]}.")
    say(note)
    place = np.cumsum(keep) - 1
    labels = material.labels
    return Material(
        material.ids[rows],
        material.X[rows],
        None if labels is None else Labels(labels.codes[rows], labels.names),
        material.edges,
        material.graph[rows],
        Split(*(place[part[keep[part]]] for part in vars(material.split).values())),
        material.preprocess,
        [*material.notes, note],
        material.bad,
    )


def checked(material: Material, columns: Columns, say: Callable[[str], object]) -> Material:
    """Errors that a fit would raise less plainly, and classes renumbered to those that the seen rows have."""
    split = material.split
    if len(split.seen) < 3:
        raise InputError(
            f"{len(material.ids)} node(s) came, expected at least 3: a graph cannot be learned from fewer."
        )
    if material.graph[split.seen].num_edges == 0:
        raise GraphError(
            f"no edge joins two of the {len(split.seen):,} rows that the fit sees. Pass more edges, or hold fewer rows "
            "out with --holdout."
        )
    if material.labels is None:
        return material
    codes, names = material.labels.codes, material.labels.names
    if not (codes >= 0).any():
        raise LabelError(f"column {columns.target!r} holds no class at all. Name another with --target, or none.")
    known = np.unique(codes[split.seen][codes[split.seen] >= 0])
    if len(known) < 2:
        shown = repr(str(names[known[0]])) if len(known) else "none"
        raise LabelError(
            f"column {columns.target!r} has one class only in the rows that the fit sees ({shown}); at least two are "
            "needed. Name another column with --target, or leave it out to fit links."
        )
    many = _many_classes(codes[codes >= 0], str(columns.target))
    if many is not None:
        say(many)
        material.notes.append(many)
    order = np.concatenate([known, np.setdiff1d(np.arange(len(names)), known)])
    number = np.empty(len(names) + 1, np.int64)
    number[order] = np.arange(len(names))
    number[-1] = -1
    material.labels = Labels(number[codes], names[order])  # classes that only held-out rows have come last
    return material


def _many_classes(codes: Ints, name: str) -> str | None:
    """A note on classes that hardly two rows share; an error where no two do."""
    found, rows = len(np.unique(codes)), len(codes)
    if not has_many_classes(found, rows):
        return None
    if found == rows:
        raise LabelError(
            f"column {name!r} has another class in each of its {rows:,} labelled rows, so there is nothing to learn: "
            "it holds ids or measurements, and a class is shared by rows. Name another column with --target, or leave "
            "it out to fit links."
        )
    return (
        f"column {name!r} has {found:,} classes in {rows:,} labelled rows, so most of them cannot be learned; where it "
        "holds ids or measurements, name another column with --target"
    )


class Clock:
    """Seconds that each stage took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, compute: Callable[[], Any]) -> Callable[[], Any]:
        def timed() -> Any:
            start = time.perf_counter()
            result = compute()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            return result

        return timed


def open_stages(
    material: Material, columns: Columns, settings: FitSettings, folder: Path | None, progress: Progress
) -> Stages:
    """Where the results of the stages are kept."""
    if folder is None:
        return Stages(None, "", progress)
    settled = {**settings.identity(), "columns": columns.to_json()}
    graph, y = material.graph, material.y
    weights = np.zeros(0) if graph.weights is None else graph.weights
    name = identity(settled, material.X, graph.indptr, graph.indices, weights, y, *vars(material.split).values())
    return Stages(folder, name, progress)
