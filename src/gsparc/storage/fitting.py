"""Models from a store: the one of tables where it fits into memory, a :class:`StoreModel` beyond."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from gsparc._cuts import without_edges_of
from gsparc._processes import world
from gsparc._runtime import plain_torch, resolve_device, seeded, stage_times
from gsparc._store import Store
from gsparc._version import __version__
from gsparc.estimators._conformal import Calibration, label_scores
from gsparc.estimators.embedding import SpectralMap
from gsparc.graph import Graph
from gsparc.nn.mlp import FeatureMLP
from gsparc.ops._coded import mapped_rows
from gsparc.ops._index_memory import within
from gsparc.ops.neighbors import EXACT_UP_TO, NeighborIndex
from gsparc.storage.model import ABOUT, StoreModel, StringIds, coordinates_of
from gsparc.tables.columns import Columns, EdgeColumns
from gsparc.tables.fitting import FitSettings, Material, Split, check_settings, checked
from gsparc.tables.joining import EdgeList, Labels
from gsparc.tables.model import TableModel
from gsparc.tables.preprocess import Preprocessor
from gsparc.training.batches import FeatureSource
from gsparc.training.classify import ClassTask, Judge
from gsparc.training.loop import LoopSettings, run_loop

__all__ = ["SMALL", "fit_store", "model_of_store"]

SMALL = 200_000
"""Nodes up to which a store is fitted as tables are."""
_BLOCK = 65_536
_JUDGES = 5_000
_MOST_MEASURED = 25_000
_HEAD_STEPS = 1500
Progress = Callable[[str, float], object]


@plain_torch()
def model_of_store(
    store: Store,
    settings: FitSettings,
    *,
    checkpoint: Path | None = None,
    progress: Progress,
    whole: bool | None = None,
) -> TableModel | None:
    """The model of a store; ``whole``: whether to read all of it, as for tables. Default: up to 200,000 nodes.

    None in a process that helps another one to fit a large store: the first alone has the index.
    """
    whole = store.num_nodes <= SMALL if whole is None else whole
    if not whole:
        return fit_store(store, settings, checkpoint=checkpoint, progress=progress)
    columns, ends = Columns.from_json(store.meta["columns"]), EdgeColumns(**store.meta["edge_columns"])
    check_settings(settings, columns.target)
    preprocess = Preprocessor.from_bytes(store.preprocess_bytes(), columns)
    material = _material(store, columns, preprocess, settings)
    material = checked(material, columns, lambda note: progress(f"note: {note}", 0.0))
    return TableModel.fit_material(material, columns, ends, settings, checkpoint=checkpoint, progress=progress)


def _material(store: Store, columns: Columns, preprocess: Preprocessor, settings: FitSettings) -> Material:
    """A store read into memory, as the joined tables would be."""
    X, graph, none = store.X, store.graph, np.zeros(0, np.int64)
    X = sp.csr_array(X, dtype=np.float32, copy=True) if sp.issparse(X) else np.array(X, np.float32)
    weights = None if graph.weights is None else np.array(graph.weights)
    graph = Graph._from_csr(np.array(graph.indptr), np.array(graph.indices), weights)
    labels = None
    if store.y is not None and store.class_names is not None and "classes" in settings.tasks:
        labels = Labels(np.array(store.y, np.int64), store.class_names)
    counts = {"bad_weight": 0, "used": graph.num_edges, "duplicates": 0, **store.meta["edge_counts"]}
    split = Split(*(np.flatnonzero(store.split == part) for part in range(3)))
    edges = EdgeList(none, none, None, counts, [])
    return Material(np.array(store.node_ids), X, labels, edges, graph, split, preprocess)


@plain_torch()
def fit_store(
    store: Store,
    settings: FitSettings,
    *,
    checkpoint: Path | None = None,
    progress: Progress = lambda sentence, done: None,
) -> StoreModel | None:
    """Fit F_theta on the mapped edges, a network for the classes, and an index of all nodes.

    Rows that the ingest held out take part without their edges and classes: some decide when the network stops, some
    measure it and size the prediction sets. They are known nodes of the index all the same.

    Of several processes all train the two networks; the first makes the index and the model, the others get None.

    Parameters
    ----------
    store : Store
    settings : FitSettings
        ``tasks``, ``seed``, ``device``, ``max_steps``, ``index_memory`` and ``verbose`` count.
    checkpoint : path, optional
        Folder in which the spectral map keeps its state while it is trained.
    """
    columns = Columns.from_json(store.meta["columns"])
    check_settings(settings, columns.target)
    if settings.index_memory is not None:  # too little is said now, not after the training
        shape = store.num_nodes, SpectralMap().n_components
        within(shape, settings.index_memory, "auto", exact_up_to=EXACT_UP_TO, num_cells=None)
    clock = _Clock(progress)
    with stage_times() as map_seconds:
        spectral = _map(store, settings, checkpoint, clock)
    head, temperature = None, 1.0
    if "classes" in settings.tasks and store.y is not None:
        clock("classes", "fitting the network for the classes", 0.55)
        head, temperature = _head(store, spectral, settings)
    store.release()
    if not world().first:
        return None
    clock("coordinates", f"computing coordinates of {store.num_nodes:,} nodes", 0.6)
    rows = _coordinates(store, spectral)
    clock("index", f"indexing {store.num_nodes:,} nodes", 0.7)
    neighbors = NeighborIndex.build(rows, metric="cosine", memory=settings.index_memory, seed=settings.seed)
    del rows
    neighbors.release()
    model = StoreModel(
        columns,
        EdgeColumns(**store.meta["edge_columns"]),
        Preprocessor.from_bytes(store.preprocess_bytes(), columns),
        _ids(store),
        spectral=spectral,
        neighbors=neighbors,
        head=head,
        temperature=temperature,
        codes=None if head is None else store.y,
        class_names=None if head is None else store.class_names,
        calibration=Calibration(),
        report={},
    )
    clock("measure", "measuring on rows that pretended to be new", 0.95)
    model.calibration, figures = _measure(store, model, settings.seed)
    neighbors.release()  # saving reads all of the index again
    store.release()
    model.report = _report(store, settings, neighbors, figures, clock.seconds())
    model.report["map_seconds"] = {stage: round(seconds, 2) for stage, seconds in map_seconds.items()}
    return model


def _map(store: Store, settings: FitSettings, checkpoint: Path | None, clock: _Clock) -> SpectralMap:
    """F_theta, learned from the edges among rows that were not held out."""
    steps: dict[str, Any] = {} if settings.max_steps is None else {"max_steps": settings.max_steps}
    spectral = SpectralMap(
        random_state=settings.seed,
        device=settings.device,
        verbose=settings.verbose,
        batch_size=4096,
        checkpoint=None if checkpoint is None else checkpoint / "map",
        **steps,
    )
    held, graph = np.asarray(store.split) > 0, store.graph
    if held.any():
        clock("cut", f"leaving out the edges of {int(held.sum()):,} nodes that pretend to be new", 0.0)
        graph = without_edges_of(graph, held)
    clock("map", f"fitting the spectral map on {graph.num_edges:,} edges", 0.05)
    spectral.fit(store.X, graph=graph)
    spectral.checkpoint = None  # where it was kept is no part of the model
    store.release()
    return spectral


class _Clock:
    def __init__(self, progress: Progress) -> None:
        self._progress, self._times = progress, [("", time.perf_counter())]

    def __call__(self, name: str, sentence: str, share: float) -> None:
        self._progress(sentence, share)
        self._times.append((name, time.perf_counter()))

    def seconds(self) -> dict[str, float]:
        marks = [*self._times[1:], ("", time.perf_counter())]
        return {name: round(marks[i + 1][1] - start, 2) for i, (name, start) in enumerate(marks[:-1])}


def _coordinates(store: Store, spectral: SpectralMap) -> NDArray[np.float32]:
    """Coordinates of all nodes, in a temporary file."""
    X = store.X

    def parts() -> Any:
        for start in range(0, X.shape[0], _BLOCK):
            yield coordinates_of(spectral, X[start : start + _BLOCK])
            store.release()

    return mapped_rows(parts(), spectral.n_components_)


def _head(store: Store, spectral: SpectralMap, settings: FitSettings) -> tuple[FeatureMLP, float]:
    """A network of features and coordinates; coordinates are computed batch by batch."""
    assert store.y is not None
    assert store.class_names is not None
    y, split, device = np.asarray(store.y), np.asarray(store.split), resolve_device(settings.device)
    train = np.flatnonzero((split == 0) & (y >= 0))
    judged = np.flatnonzero((split == 1) & (y >= 0))[:_JUDGES]
    with seeded(settings.seed):
        head = FeatureMLP(
            store.shape[1], len(store.class_names), coordinate_channels=spectral.n_components_, dropout=0.2
        ).to(device)
    source = FeatureSource(store.X, spectral._scaling, device)
    scale = torch.from_numpy(np.clip(1 - spectral.eigenvalues_, 0, None) ** 0.5).to(device, torch.float32)

    def inputs(rows: torch.Tensor) -> tuple[Any, ...]:
        x = source.rows(rows)
        with torch.no_grad():
            own = torch.nn.functional.normalize(spectral.module_.eval()(x).float() * scale, dim=1)
        return x, own * len(scale) ** 0.5

    judge = Judge(inputs, judged, y[judged].astype(np.int64)) if len(judged) else None
    task = ClassTask(head, inputs, train, y[train].astype(np.int64), judge, device, batch_size=1024)
    loop = LoopSettings(
        steps=settings.max_steps or _HEAD_STEPS,
        learning_rate=2e-3,
        weight_decay=1e-3,
        seed=settings.seed,
        description="classes",
        show_progress=bool(settings.verbose),
    )
    run_loop(task, loop, device)
    return head.eval(), task.temperature()


def _ids(store: Store) -> Any:
    """Ids as the model keeps them: numbers, or bytes with the end of each."""
    if store.meta["ids"] != "strings":
        return store.node_ids
    column = store.id_column()
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return StringIds(data, offsets[1:] - offsets[0])


def _measure(store: Store, model: StoreModel, seed: int) -> tuple[Calibration, dict[str, Any]]:
    """What the held-out rows say: how often the class is right, how far they lie, whether their links are found."""
    cold = np.flatnonzero(np.asarray(store.split) == 2)
    if not len(cold):
        return Calibration(), {}
    cold = np.sort(np.random.default_rng(seed).permutation(cold)[:_MOST_MEASURED])
    X = store.X[cold]
    X = X if sp.issparse(X) else np.array(X, np.float32)
    store.release()
    coordinates = coordinates_of(model.spectral, X)
    distances, places = model.neighbors.search(coordinates, 11)
    model.neighbors.release()
    mine = places == cold[:, None]  # a held-out row is in the index itself
    mine[~mine.any(axis=1), -1] = True
    shape = (len(cold), places.shape[1] - 1)
    distances, places = distances[~mine].reshape(shape), places[~mine].reshape(shape)
    figures: dict[str, Any] = {"cold": len(cold), "linked_among_10": _found_links(store, cold, places)}
    scores = np.zeros(0)
    if model.head is not None and store.y is not None:
        y = np.asarray(store.y)[cold]
        known = y >= 0
        proba = model.proba(X, coordinates)[known]
        scores = label_scores(proba, y[known])
        figures["accuracy"] = round(float((proba.argmax(axis=1) == y[known]).mean()), 4)
        figures["cold_labelled"] = int(known.sum())
    return Calibration.of(scores, np.zeros(0), distances[:, :3].mean(axis=1)), figures


def _found_links(store: Store, cold: NDArray[Any], places: NDArray[Any]) -> float:
    """Share of held-out rows with edges of whose ten nearest nodes one is a true neighbour."""
    graph, hits, some = store.graph, 0, 0
    for row, near in zip(cold[:5000].tolist(), places, strict=False):
        true = graph.neighbors(row)
        some += bool(len(true))
        hits += bool(np.isin(near, true).any())
    return round(hits / max(some, 1), 4)


def _report(
    store: Store, settings: FitSettings, neighbors: NeighborIndex, figures: dict[str, Any], seconds: dict[str, float]
) -> dict[str, Any]:
    words = []
    if "accuracy" in figures:
        share = 100 * figures["accuracy"]
        words.append(
            f"The class of {figures['cold_labelled']:,} rows that pretended to be new is right for {share:.1f} %."
        )
    if figures:
        found = 100 * figures["linked_among_10"]
        words.append(f"For {found:.1f} % of such rows a true neighbour is among the ten nearest nodes.")
    return {
        "version": __version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "settings": settings.identity(),
        "data": {
            "nodes": store.num_nodes,
            "edges": store.meta["edges"],
            "features": store.shape[1],
            "labelled": 0 if store.y is None else int((np.asarray(store.y) >= 0).sum()),
            "edge_counts": store.meta["edge_counts"],
        },
        "split": {
            part: int((np.asarray(store.split) == i).sum()) for i, part in enumerate(("seen", "validation", "cold"))
        },
        "index": neighbors.summary(),
        "measured": figures,
        "notes": [f"This is {ABOUT}"],
        "summary": words,
        "seconds": seconds,
    }
