"""SparcLinkPredictor: which seen nodes a new node will link to."""

from __future__ import annotations

import logging
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from gsparc._cuts import in_units, mean_weight
from gsparc._runtime import further_seed, resolve_device, resolve_seed
from gsparc._typing import RandomState
from gsparc._validation import (
    check_count,
    check_features,
    check_graph,
    check_memory,
    check_pair_ids,
    check_share,
)
from gsparc.estimators._base import SavedEstimator, feature_graph, part_of, prefixed
from gsparc.estimators._growing import grown_links, joined_edges
from gsparc.estimators._nodes import NodeNames
from gsparc.estimators._ranking import (
    FeatureView,
    LinkWeights,
    choose_weights,
    leading_entries,
    popularity_of,
    smoothed,
    unit,
)
from gsparc.estimators._shift import NodeShift, link_shifts
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.graph import Graph
from gsparc.ops.combined import CombinedIndex
from gsparc.ops.neighbors import resolve_kind
from gsparc.training.batches import EdgeSampler, FeatureSource
from gsparc.training.links import LinkTask, Retrieval, default_fits, held_out_share
from gsparc.training.loop import LoopSettings, run_loop
from gsparc.training.spectral import values_at

__all__ = ["SparcLinkPredictor"]

_log = logging.getLogger(__name__)
_PAIRS = 65_536  # seen nodes that a new node is paired with at once


class SparcLinkPredictor(SavedEstimator):
    """Rank the seen nodes that a new node, known by its features only, will link to.

    One or several spectral maps are fitted, each with its own held-out nodes, and refined on the edges by
    InfoNCE. A seen node is scored by the cosine with the new node in the refined space, by the
    cosine of the raw features, and by how many links it has. On the seen side both kinds of vectors may be
    averaged over a node's neighbours. All weights are chosen on the held-out nodes.

    Parameters
    ----------
    n_components : int
        Width of each map. Retrieval wants hundreds where classification is content with 64.
    n_maps : int or "auto"
        Maps that are fitted and averaged; ``"auto"``: 3 up to 10,000 nodes, 2 up to 100,000, else 1.
    refine : bool
        Refine on edges; without it the neighbours are those in the eigenspace, as in the paper.
    spectral_steps, refine_steps : int
        Steps at most of the two phases.
    hidden_channels, dropout, input_dropout, batch_size, temperature, learning_rate, weight_decay
        Network and optimiser of the maps; ``"auto"`` input dropout: 0.3 for sparse or count-like features.
    popularity : bool
        Let the number of links of a seen node count. ``False`` ranks by likeness alone.
    index_memory : int, str or None
        Bytes, or a text such as ``"2GB"``, that the index of the seen nodes may keep in memory; beyond, it holds
        codes and the rows lie in a mapped file. ``None``: as much as it needs.
    device, random_state, verbose
        As in :class:`SpectralMap`.

    Attributes
    ----------
    maps_ : list of SpectralMap
        The fitted maps.
    weights_ : LinkWeights
        Weights that were chosen.
    shift_ : NodeShift
        What makes scores of different new nodes comparable, chosen on the same nodes.
    report_ : dict
        The weights, and the mean reciprocal rank on held-out nodes with them, with the refined space alone and with
        the features alone; ``pairs_found``: the share of true pairs above nearly all false ones, without a shift and
        with it.
    index_ : CombinedIndex
        The seen nodes.

    Notes
    -----
    The paper (arXiv 2411.01532) takes the nearest nodes in the eigenspace; ``refine=False, popularity=False`` comes
    closest to it. In-batch negatives make InfoNCE (arXiv 1807.03748) estimate likeness relative to
    popularity, so ranking by probability has to put popularity back: that is the weight on log-degree.

    Scores rank the candidates of one new node. A list over many new nodes, such as the hundred likeliest links of all,
    wants scores with ``comparable=True``: they are shifted for each new node, which leaves the order of its candidates
    as it is, and the shift is chosen on held-out nodes. They take a look at all seen nodes, or at a sample of very
    many.

    Examples
    --------
    >>> from gsparc.datasets import make_circle
    >>> data = make_circle(200, n_neighbors=5, noise_features=0, n_unseen=2, random_state=0)
    >>> links = SparcLinkPredictor(16, n_maps=1, spectral_steps=20, refine_steps=20, random_state=0)
    >>> ids, scores = links.fit(data.X, graph=data.graph).predict_links(data.extra["X_unseen"], k=3)
    >>> ids.shape, scores.shape
    ((2, 3), (2, 3))
    """

    def __init__(
        self,
        n_components: int = 256,
        *,
        n_maps: int | Literal["auto"] = "auto",
        refine: bool = True,
        spectral_steps: int = 100,
        refine_steps: int = 400,
        hidden_channels: tuple[int, ...] = (512,),
        dropout: float = 0.3,
        input_dropout: float | Literal["auto"] = "auto",
        batch_size: int = 1024,
        temperature: float = 0.05,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        popularity: bool = True,
        index_memory: int | str | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_maps: int | Literal["auto"] = n_maps
        self.refine = refine
        self.spectral_steps = spectral_steps
        self.refine_steps = refine_steps
        self.hidden_channels = hidden_channels
        self.dropout = dropout
        self.input_dropout: float | Literal["auto"] = input_dropout
        self.batch_size = batch_size
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.popularity = popularity
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.index_memory = index_memory

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> Self:
        """Learn from the seen nodes and index them.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : ignored
        graph : Graph, or anything that :meth:`Graph.from_any` takes
            Links among the seen nodes. Without it a graph of feature neighbours is used.
        """
        for name, least in (
            ("n_components", 1),
            ("spectral_steps", 1),
            ("refine_steps", 1),
            ("batch_size", 2),
        ):
            check_count(name, getattr(self, name), least)
        if self.n_maps != "auto":
            check_count("n_maps", self.n_maps, 1)
        check_share("temperature", self.temperature, low=1e-3, high=100.0)
        if self.index_memory is not None:
            check_memory("index_memory", self.index_memory)
        X = check_features(self, X, reset=True)
        if X.shape[0] < 3:
            raise InputError(f"n_samples = {X.shape[0]} came, expected at least 3 nodes; 1 sample cannot be linked.")
        seed = resolve_seed(self.random_state)
        if graph is None:
            graph = feature_graph(X, 10, seed, resolve_device(self.device))
        self._fit(X, check_graph(graph, X.shape[0]), seed)
        return self

    def _fit(self, X: Any, graph: Graph, seed: int) -> None:
        device = resolve_device(self.device)
        n, self._unit = X.shape[0], mean_weight(graph)
        graph = in_units(graph, self._unit)
        count = default_fits(n) if self.n_maps == "auto" else self.n_maps
        self.maps_ = [self._fit_map(X, graph, further_seed(seed, i), f"map {i + 1} of {count}") for i in range(count)]
        self._view = FeatureView.fit(X)
        view = self._view.rows(X)
        embeddings = [self._embed_one(one, X) for one in self.maps_]
        trials = []
        for i, one in enumerate(self.maps_):
            held = one._held
            if held is not None:
                retrieval = Retrieval(held, further_seed(seed, i), device)
                trials.append((graph[held.train], held.train, retrieval, embeddings[i]))
        self.weights_, self.shift_, self.report_ = choose_weights(
            trials, view, popularity=self.popularity, exact=resolve_kind("auto", n, device) == "exact", device=device
        )
        self.report_["maps"] = count
        self._nodes, self._fitted_nodes = NodeNames.of(graph), n
        self._graph = graph if self.weights_.popularity else None  # more links are counted on top of these
        together = unit(np.concatenate(embeddings, axis=1)) if count > 1 else unit(embeddings[0])
        self.index_ = self._index(together, view, graph, self.weights_, device, seed)

    def _index(
        self, embedding: np.ndarray, view: Any, graph: Graph, weights: LinkWeights, device: torch.device, seed: int
    ) -> CombinedIndex:
        prior = None
        if weights.popularity:
            prior = (weights.popularity * popularity_of(graph)).astype(np.float32)
        return CombinedIndex.build(
            smoothed(graph, embedding, weights.smooth_map),
            leading_entries(smoothed(graph, unit(view), weights.smooth_features)),
            weights.map_share,
            prior=prior,
            device=device,
            memory=self.index_memory,
            seed=seed,
        )

    def _fit_map(self, X: Any, graph: Graph, seed: int, description: str) -> SpectralMap:
        one = SpectralMap(
            self.n_components,
            components="all",
            oversample=1,
            hidden_channels=self.hidden_channels,
            linear_path=True,
            dropout=self.dropout,
            input_dropout=self.input_dropout,
            batch_size=self.batch_size,
            max_steps=self.spectral_steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            validation_share=held_out_share(graph),
            device=self.device,
            random_state=seed,
            verbose=self.verbose,
        )
        one._check_parameters()
        one.n_features_in_ = X.shape[1]
        one._fit(X, graph)
        if self.refine:
            self._refine(one, X, graph, seed, description)
        return one

    def _refine(self, one: SpectralMap, X: Any, graph: Graph, seed: int, description: str) -> None:
        device = resolve_device(self.device)
        features = FeatureSource(X, one._scaling, device)
        held = one._held
        train = np.arange(X.shape[0]) if held is None else held.train
        cut = graph if held is None else graph[held.train]
        retrieval = None if held is None else Retrieval(held, seed, device)
        sampler = EdgeSampler(cut, device, self_loops=False)  # a node's link to itself teaches nothing
        task = LinkTask(
            one.module_,
            features,
            sampler,
            train,
            retrieval,
            batch_size=self.batch_size,
            temperature=self.temperature,
        )
        settings = LoopSettings(
            steps=self.refine_steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            eval_every=25,
            patience=6,
            seed=seed,
            bf16=device.type == "cuda" and X.shape[0] > 100_000,
            description=description,
            show_progress=bool(self.verbose),
        )
        run_loop(task, settings, device)

    def _embed_one(self, one: SpectralMap, X: Any) -> np.ndarray:
        if not self.refine:
            return unit(one._transform(X) * np.sqrt(np.clip(1 - one.eigenvalues_, 0, None)).astype(np.float32))
        device = resolve_device(self.device)
        one.module_.to(device)
        parts = []
        for start in range(0, X.shape[0], 65_536):
            features = FeatureSource(X[start : start + 65_536], one._scaling, device)
            index = torch.arange(features.num_rows, device=device)
            parts.append(values_at(one.module_, features, index, raw=True).cpu().numpy())
        return unit(np.concatenate(parts))

    def transform_queries(self, X: Any) -> np.ndarray:
        """Vectors of new nodes in the space that links are ranked in, ``[m, maps * n_components]``."""
        check_is_fitted(self)
        return self._embed(check_features(self, X, reset=False))

    def _embed(self, X: Any) -> np.ndarray:
        parts = [self._embed_one(one, X) for one in self.maps_]
        return parts[0] if len(parts) == 1 else unit(np.concatenate(parts, axis=1))

    def predict_links(self, X: Any, k: int = 20, *, comparable: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The ``k`` seen nodes that each new node most likely links to.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        k : int
        comparable : bool
            Shift the scores so that those of different new nodes can be compared.

        Returns
        -------
        ids : ndarray of shape (m, k)
            Node ids of the graph that was fitted on; positions in X where it has none.
        scores : ndarray of shape (m, k), float32
            Best first. Those of one new node can be compared with each other, and with ``comparable`` all of them.
        """
        check_is_fitted(self)
        check_count("k", k, 1)
        X = check_features(self, X, reset=False)
        own, view = self._embed(X), self._view.rows(X)
        scores, ids = self.index_.search(own, view, k)
        return self._nodes.names(ids), self._shifted(scores, own, view) if comparable else scores

    def _shifted(self, scores: np.ndarray, own: np.ndarray, view: Any) -> np.ndarray:
        return scores - link_shifts(self, own, view)[:, None]

    def grow(self, X: Any, *, edges: Any = None, node_ids: Any = None) -> Self:
        """Let new nodes join the candidates, at once and without retraining.

        They are suggested from then on, and edges count towards the popularity of both of their ends. Maps and weights
        stay as they were fitted. Where anything is wrong nothing changes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        edges : tuple of two arrays, or of three with weights, optional
            Ends as node ids, of old nodes or new ones. An edge that is known already counts once, with the larger
            weight.
        node_ids : array of shape (m,), optional
            Ids of the new nodes. Needed where the graph that was fitted on has ids; otherwise they are
            the next positions.

        Notes
        -----
        Where the vectors of seen nodes are averaged over neighbours, that of a new node is averaged over those of its
        neighbours that were there in `fit`; vectors that the index holds stay.

        Examples
        --------
        >>> from gsparc.datasets import make_circle
        >>> data = make_circle(200, n_neighbors=5, noise_features=0, n_unseen=2, random_state=0)
        >>> links = SparcLinkPredictor(16, n_maps=1, spectral_steps=20, refine_steps=20, random_state=0)
        >>> links = links.fit(data.X, graph=data.graph).grow(data.extra["X_unseen"], edges=([200], [201]))
        >>> links.score_pairs(data.X[:1], [200, 201]).shape
        (1, 2)
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        nodes = self._nodes.grown(X.shape[0], node_ids)
        vars(self).update(grown_links(self, X, nodes, joined_edges(edges, nodes)))
        return self

    def score_pairs(self, X: Any, ids: Any, *, comparable: bool = False) -> np.ndarray:
        """Score of each new node with seen nodes.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
        ids : array of shape (m, p), or (m,) for one pair each; (p,) where m is 1
            Node ids of the graph that was fitted on; positions where it has none.
        comparable : bool
            Shift the scores so that those of different new nodes can be compared.

        Returns
        -------
        scores : ndarray of float32, shaped as ``ids``; (1, p) for a flat list with one new node
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        wanted, flat = check_pair_ids(ids, X.shape[0])
        where, own, view = self._nodes.positions(wanted), self._embed(X), self._view.rows(X)
        columns = range(0, max(where.shape[1], 1), _PAIRS)  # one new node with all of a large graph: a piece at a time
        parts = [self.index_.score_pairs(own, view, where[:, i : i + _PAIRS]) for i in columns]
        scores = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        scores = self._shifted(scores, own, view) if comparable else scores
        return scores[:, 0] if flat else scores

    def score_all(self, X: Any, *, comparable: bool = False) -> np.ndarray:
        """Scores of new nodes with every seen node, ``[m, n]``, as :meth:`score_pairs`; pass chunks of rows."""
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        own, view = self._embed(X), self._view.rows(X)
        scores = self.index_.score_all(own, view)
        return scores - link_shifts(self, own, view, scores)[:, None] if comparable else scores

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        index_arrays, index = self.index_.state()
        arrays = prefixed("index", index_arrays) | prefixed("view", self._view.arrays())
        arrays |= prefixed("nodes", self._nodes.arrays())
        if self._graph is not None:
            parts = {"indptr": self._graph.indptr, "indices": self._graph.indices, "weights": self._graph.weights}
            arrays |= prefixed("graph", {name: part for name, part in parts.items() if part is not None})
        maps = []
        for i, one in enumerate(self.maps_):
            saved, own = one._as_part()
            maps.append(saved)
            arrays |= prefixed(f"map{i}", own)
        fitted = {
            "index": index,
            "maps": maps,
            "weights": self.weights_._asdict(),
            "shift": self.shift_._asdict(),
            "report": self.report_,
            "nodes": self._nodes.config(),
            "fitted_nodes": self._fitted_nodes,
            "unit": self._unit,
            "view": self._view.config(),
        }
        return fitted, arrays

    def _restore(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.maps_ = [
            SpectralMap._from_part(saved, part_of(arrays, f"map{i}"), self.n_features_in_)
            for i, saved in enumerate(fitted["maps"])
        ]
        self.weights_, self.report_ = LinkWeights(**fitted["weights"]), fitted["report"]
        self.shift_ = NodeShift(**fitted.get("shift", {})).checked()
        self._view = FeatureView.from_state(part_of(arrays, "view"), fitted["view"], self.n_features_in_)
        self.index_ = CombinedIndex.from_state(
            part_of(arrays, "index"), fitted["index"], device=resolve_device(self.device)
        )
        width = sum(one.module_.out_channels if self.refine else one.n_components_ for one in self.maps_)
        if self.index_.widths != (width, self.n_features_in_):
            raise ValueError(f"the index has columns {self.index_.widths}, the maps {width}")
        n = self.index_.num_vectors
        self._nodes = NodeNames.from_state(part_of(arrays, "nodes"), fitted["nodes"], n)
        self._fitted_nodes, self._graph = check_count("fitted_nodes", fitted["fitted_nodes"], 1), None
        self._unit = float(fitted.get("unit", 1.0))  # what was saved before there was one used weights as they came
        if not 0 < self._unit < float("inf"):
            raise ValueError(f"links in units of {self._unit}")
        if self.weights_.popularity:
            links = part_of(arrays, "graph")
            self._graph = Graph(links["indptr"], links["indices"], links.get("weights"))
        if self._fitted_nodes > n or (self._graph is not None and self._graph.num_nodes != n):
            raise ValueError(f"links that do not belong to the {n} nodes")
