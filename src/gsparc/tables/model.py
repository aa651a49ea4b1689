"""TableModel: from a node table and an edge table to predictions for new rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._validation import check_memory
from gsparc.estimators._labels import many_classes_known
from gsparc.exceptions import DamagedModelError, FeatureError, ModelFolderError
from gsparc.graph import Graph
from gsparc.model_store import bounded_tensors, read_document, read_model, write_folder
from gsparc.tables.answering import answer_rows, names_of, space
from gsparc.tables.columns import Columns, EdgeColumns
from gsparc.tables.edges import bare, kept_edges, with_edges
from gsparc.tables.estimating import estimate
from gsparc.tables.evaluating import evaluate_model
from gsparc.tables.fitting import FitSettings, Material, open_stages, prepare
from gsparc.tables.growing import grow_model
from gsparc.tables.joining import Ids, read_labels
from gsparc.tables.picture import Picture
from gsparc.tables.predictions import Predictions
from gsparc.tables.preprocess import Preprocessor
from gsparc.tables.stages import Progress
from gsparc.tables.store import PREPROCESS, damaged, model_from, model_to

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TableModel"]

REPORT = "report.html"


class TableModel:
    """A fitted model that takes rows of a table, with the columns that it was fitted on.

    Made by :meth:`fit` or :meth:`load`.

    Attributes
    ----------
    columns, edge_columns : Columns, EdgeColumns
        What the columns of the two tables are.
    preprocess : Preprocessor
        From columns to features.
    classifier, links, clusterer : estimators or None
        Those of the tasks that were asked for. They know nodes by their position in `node_ids`.
    node_ids : ndarray
        Ids of the known nodes.
    class_names : ndarray
        Classes, in the order of the classifier's columns.
    picture : float32 array of shape (n, 2)
        Places of the known nodes in the plane.
    report : dict
        What the fit measured, in plain values.
    graph : Graph or None
        Edges between the known nodes; None for a folder that was written before they were kept.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from gsparc.tables.columns import guess_columns, guess_edge_columns
    >>> size = [float(i // 30) + 0.01 * (i % 30) for i in range(60)]
    >>> nodes = pa.table({"id": list(range(60)), "size": size, "label": ["a"] * 30 + ["b"] * 30})
    >>> pairs = [(i, i + 1) for i in range(59) if i != 29]
    >>> edges = pa.table({"source": [i for i, _ in pairs], "target": [j for _, j in pairs]})
    >>> model = TableModel.fit(
    ...     nodes,
    ...     edges,
    ...     guess_columns(nodes),
    ...     guess_edge_columns(edges),
    ...     tasks=("classes",),
    ...     backbone="mlp",
    ...     max_steps=30,
    ... )
    >>> model.predict(pa.table({"id": [60], "size": [0.1]})).classes.tolist()
    ['a']
    """

    def __init__(
        self,
        columns: Columns,
        edge_columns: EdgeColumns,
        preprocess: Preprocessor,
        node_ids: NDArray[Any],
        *,
        classifier: Any = None,
        links: Any = None,
        clusterer: Any = None,
        class_names: NDArray[Any] | None = None,
        drawing: Picture,
        picture: NDArray[np.float32],
        report: dict[str, Any],
        top_scores: NDArray[Any] | None = None,
        space_rows: NDArray[np.float32] | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.columns, self.edge_columns, self.preprocess, self.node_ids = columns, edge_columns, preprocess, node_ids
        self.classifier, self.links, self.clusterer, self.class_names = classifier, links, clusterer, class_names
        self.drawing, self.picture, self.report, self.top_scores = drawing, picture, report, top_scores
        self.space_rows = space_rows  # of all nodes, where no estimator keeps them
        self.own_graph = graph  # likewise
        self._lookup: Ids | None = None
        self._index: Any = None

    @classmethod
    def fit(
        cls,
        nodes: pa.Table,
        edges: pa.Table,
        columns: Columns,
        edge_columns: EdgeColumns,
        *,
        tasks: Sequence[str] = ("classes", "links"),
        n_clusters: int | None = None,
        backbone: str = "auto",
        seed: int = 0,
        device: str = "auto",
        max_steps: int | None = None,
        holdout: float = 0.2,
        index_memory: int | str | None = None,
        checkpoint: Path | None = None,
        progress: Progress = lambda sentence, done: None,
        verbose: int = 0,
    ) -> Self:
        """Learn from all rows and edges, and measure on some of them that pretend to be new.

        Parameters
        ----------
        nodes, edges : pyarrow.Table
        columns, edge_columns
            See :func:`~gsparc.tables.columns.guess_columns`.
        tasks : some of "classes", "links", "clusters"
        n_clusters : int, optional
            Default: as many as classes; 8 without any.
        holdout : float
            Share of the rows that is held out, groups as a whole: half of it decides when to stop and how the networks
            are weighed, half is measured on and sizes the prediction sets. Both join the model afterwards.
        index_memory : int or str, optional
            Bytes, or a text such as ``"2GB"``, that the indexes of the known nodes may keep in memory, all together;
            beyond, they keep codes there and the rows in a mapped file.
        checkpoint : path, optional
            Folder in which the results of finished stages are kept, and of an unfinished one the networks that are
            ready. A later call with the same data and settings goes on from there.
        progress : callable
            Gets a sentence before each stage, and the share of the work that is done by then.
        """
        settings = FitSettings(tuple(tasks), n_clusters, backbone, seed, device, max_steps, holdout, verbose=verbose)
        if index_memory is not None:
            settings = replace(settings, index_memory=check_memory("index_memory", index_memory))
        progress("reading the columns and joining the edges", 0.0)
        material = prepare(nodes, edges, columns, edge_columns, settings, lambda note: progress(f"note: {note}", 0.0))
        return cls.fit_material(material, columns, edge_columns, settings, checkpoint=checkpoint, progress=progress)

    @classmethod
    def fit_material(
        cls,
        material: Material,
        columns: Columns,
        edge_columns: EdgeColumns,
        settings: FitSettings,
        *,
        checkpoint: Path | None = None,
        progress: Progress = lambda sentence, done: None,
    ) -> Self:
        """:meth:`fit` for tables that are numbers already."""
        seed = settings.seed
        stages = open_stages(material, columns, settings, checkpoint, progress)
        with many_classes_known():  # by the checks of the material
            found = estimate(material, settings, stages)
        order = material.split.order
        known = 0 if found.classifier is None else len(found.classifier.classes_)
        names = None if material.labels is None else material.labels.names[:known]
        stages.announce("picture", f"drawing {len(order):,} nodes")
        X = material.X[order]
        parts = {"classifier": found.classifier, "links": found.links, "clusterer": found.clusterer}
        places = space(parts, X)
        drawing = Picture.draw(places, seed)
        return cls(
            columns,
            edge_columns,
            material.preprocess,
            material.ids[order],
            **parts,
            class_names=names,
            drawing=drawing,
            picture=drawing.place(places),
            report=found.report,
            top_scores=found.top_scores,
            space_rows=places if found.classifier is None and found.links is None else None,
            graph=None if kept_edges(found.links) is not None else bare(material.graph[order]),
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """What the model was fitted for."""
        parts = {"classes": self.classifier, "links": self.links, "clusters": self.clusterer}
        return tuple(task for task, part in parts.items() if part is not None)

    @property
    def parts(self) -> dict[str, Any]:
        """The estimators by name, None for those that were not asked for."""
        return {"classifier": self.classifier, "links": self.links, "clusterer": self.clusterer}

    @property
    def graph(self) -> Graph | None:
        """Edges between the known nodes, None where the model was saved without them."""
        kept = kept_edges(self.links)
        return self.own_graph if kept is None else kept

    @property
    def num_edges(self) -> int:
        """How many edges the model knows."""
        graph = self.graph
        return int(self.report.get("data", {}).get("edges", 0)) if graph is None else graph.num_edges

    def neighbours(self, index: int) -> NDArray[np.int64] | None:
        """Positions of the known nodes that one is linked to; None where the model was saved without edges."""
        graph = self.graph
        return None if graph is None else graph.neighbors(index).astype(np.int64)

    def indexes(self) -> dict[str, str]:
        """The indexes of the known nodes in a sentence each, with their memory and measured recall, by estimator."""
        found = {name: getattr(part, "index_", None) for name, part in self.parts.items()}
        plain = {name: getattr(index, "neighbors", index) for name, index in found.items() if index is not None}
        return {name: index.summary() for name, index in plain.items()}

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Positions of ids among the known nodes, -1 for unknown ones."""
        if self._lookup is None:
            self._lookup = Ids(self.node_ids)
        return self._lookup.find(ids)

    def labels(self) -> NDArray[Any] | None:
        """Class of each known node, None where it has none; None for a model without classes."""
        if self.classifier is None or self.class_names is None:
            return None
        return names_of(self.class_names, self.classifier._codes)

    def nodes(self) -> dict[str, Any]:
        """The known nodes: ``id``, ``class``, ``cluster`` and ``position``, one entry a node."""
        clusters = None if self.clusterer is None else self.clusterer.labels_
        return {"id": self.node_ids, "class": self.labels(), "cluster": clusters, "position": self.picture}

    def features(self, table: Any) -> tuple[Any, dict[int, str]]:
        """Features of rows, and what is wrong with those that cannot be read; a feature matrix passes as it is."""
        X, bad, _ = self.read_rows(table)
        return X, bad

    def read_rows(self, table: Any) -> tuple[Any, dict[int, str], NDArray[Any] | None]:
        """:meth:`features`, and the share of each row's words that is known; None where vectors came."""
        if hasattr(table, "schema"):
            return self.preprocess.transform_known(table)
        X = table.tocsr().astype(np.float32) if sp.issparse(table) else np.asarray(table, np.float32)
        if X.ndim != 2 or X.shape[1] != self.preprocess.n_features:
            raise FeatureError(
                f"rows of shape {X.shape} came, expected {self.preprocess.n_features} features a row. Pass vectors of "
                "that length, or records with the columns that the model was fitted on."
            )
        return X, {}, None

    def embed(self, table: Any) -> NDArray[np.float32]:
        """Coordinates of rows in the space of the picture, ``[m, k]``."""
        return space(self.parts, self.features(table)[0])

    def predict(
        self,
        table: Any,
        *,
        coverage: float | None = 0.9,
        links: int = 5,
        near: int = 5,
        edges: Any = None,
        ids: Any = None,
        position: bool = True,
        abstain: bool = True,
    ) -> Predictions:
        """What the model says about rows.

        Parameters
        ----------
        table : pyarrow.Table, RecordBatch, or features of shape (m, d)
        coverage : float or None
            How often the prediction sets shall hold the true class; None for no sets.
        links, near : int
            How many suggested links and nearest known nodes; 0 for none.
        edges : pair (rows, positions), or triple with weights, optional
            Known nodes that rows are linked to already: numbers of rows, and positions in `node_ids`
            (:meth:`find`). They count together with what is inferred; a row without any gets its cold prediction.
        ids : array, optional
            Ids of the rows. Default: the id column, or row numbers.
        position, abstain : bool
            Whether to look for the place on the picture, and to judge whether the row is too far from what is known.
        """
        return answer_rows(
            self,
            table,
            coverage=coverage,
            links=links,
            near=near,
            edges=edges,
            ids=ids,
            position=position,
            abstain=abstain,
        )

    def index(self) -> Any:
        """Index of the nodes' coordinates; of a model of clusters alone, other models have their own."""
        if self._index is None:
            from gsparc.ops.neighbors import NeighborIndex

            assert self.space_rows is not None
            self._index = NeighborIndex.build(self.space_rows, metric="cosine")
        return self._index

    def evaluate(self, table: pa.Table, *, coverage: float = 0.9, links: Any = None) -> dict[str, Any]:
        """How well the model does on labelled rows; ``links``: their true links (rows, positions), to be ranked."""
        return evaluate_model(self, table, coverage=coverage, links=links)

    def grow(
        self, nodes: pa.Table, edges: pa.Table | None = None, edge_columns: EdgeColumns | None = None
    ) -> dict[str, Any]:
        """Let new rows join with their classes and edges, without retraining.

        ``edge_columns`` are the columns of ``edges``; default: those of the fit, or guessed. Returns counts, and how
        much the new rows differ from those of the fit.
        """
        return grow_model(self, nodes, edges, edge_columns)

    def take_over(self, ids: NDArray[Any], X: Any, edges: Any = None) -> None:
        """Add rows that have joined the estimators to ids, picture and edges."""
        self.node_ids = np.concatenate([self.node_ids, ids])
        fresh = space(self.parts, X)
        self.picture = np.concatenate([self.picture, self.drawing.place(fresh)])
        if self.space_rows is not None:
            self.space_rows = np.concatenate([self.space_rows, fresh])
        if self.own_graph is not None:
            self.own_graph = with_edges(self.own_graph, edges, len(self.node_ids))
        self._lookup = self._index = None

    def read_labels(self, table: pa.Table) -> NDArray[np.int64]:
        """Class numbers of labelled rows: -1 for none, -2 for a class that the model does not know."""
        if self.columns.target is None or self.class_names is None or self.columns.target not in table.column_names:
            return np.full(table.num_rows, -1)
        known = f"The classes of this model are such as {str(self.class_names[0])!r}."
        found = read_labels(table, self.columns.target, advice=known)
        place = {str(name): code for code, name in enumerate(self.class_names.tolist())}
        codes = np.array([place.get(str(name), -2) for name in found.names.tolist()] + [-1], np.int64)
        return codes[found.codes]

    def save(self, folder: str | os.PathLike[str], *, documents: Mapping[str, bytes] | None = None) -> None:
        """Write the model; an existing one is replaced as a whole, but for its report where none is given."""
        config, arrays = model_to(self)
        if documents is None:
            kept = read_document(folder, REPORT)
            documents = {} if kept is None else {REPORT: kept}
        write_folder(folder, config, arrays, files={PREPROCESS: self.preprocess.to_bytes()}, documents=documents)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, mapped: bool | None = None) -> Self:
        """Read a model that was written by :meth:`save`; nothing in the folder is executed.

        With ``mapped`` its arrays stay in their file, and processes that do so share the memory. Default: where an
        index that does not have to fit into memory was saved.
        """
        found = read_model(folder, mapped=mapped)
        if found.config.get("class") == "StoreModel":
            from gsparc.storage.model import StoreModel

            return StoreModel.from_files(found, folder)  # type: ignore[return-value]
        if found.config.get("class") != "TableModel":
            raise ModelFolderError(
                f"{str(folder)!r} holds a {found.config.get('class')}, expected a model of 'gsparc fit --nodes "
                "--edges'. load_model() reads what an estimator has saved."
            )
        try:
            with bounded_tensors(sum(array.size for array in found.arrays.values()) + 1_000_000):
                return cls(**model_from(found))
        except (DamagedModelError, MemoryError):
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError) as error:
            raise damaged(folder, error) from error
