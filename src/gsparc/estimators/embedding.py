"""SpectralMap: features to Laplacian eigenfunctions, for seen nodes and for new ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from gsparc._mapped import is_mapped, release
from gsparc._processes import world
from gsparc._runtime import resolve_device, resolve_seed, seeded, timed
from gsparc._store import Store
from gsparc._typing import RandomState
from gsparc._validation import (
    check_count,
    check_features,
    check_graph,
    check_name,
    check_rows_vary,
    check_scaled,
    check_share,
)
from gsparc.estimators._base import (
    LAPLACIANS,
    Operator,
    SavedEstimator,
    build_operator,
    fingerprint,
    jsonable,
    part_of,
    prefixed,
)
from gsparc.exceptions import InputError
from gsparc.nn.spectral_map import SpectralNet
from gsparc.ops._coded import mapped_rows
from gsparc.ops.laplacian import operator_degrees
from gsparc.ops.ritz import RitzPairs, rayleigh_ritz, rayleigh_ritz_streamed
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling, rows_on
from gsparc.training.distributed import average, computed_together, from_first, share_module
from gsparc.training.loop import LoopSettings, run_loop
from gsparc.training.spectral import HeldOut, SpectralTask, hold_out, values_at

__all__ = ["SpectralMap"]

OBJECTIVES = ("contrastive", "rayleigh")
_BLOCK = 262_144  # rows on the device at once; bounds memory for any number of rows
_CUT_UP_TO = 200_000  # nodes; held-out nodes are cut out of graphs up to this size


class SpectralMap(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SavedEstimator):
    """Map node features to the leading eigenfunctions of the graph's Laplacian.

    The map F_theta is a neural network of the features alone, so it gives spectral coordinates to nodes
    that have no edges. It is trained on the edges among the seen nodes, judged on seen nodes that are
    held out together with their edges, and finished by a Rayleigh-Ritz pass that makes the
    components ordered and orthonormal and gives their eigenvalues.

    Parameters
    ----------
    n_components : int
        Number of eigenfunctions. The constant one is known and is not counted.
    objective : {"contrastive", "rayleigh"}
        ``"contrastive"`` factorises the operator from sampled edges; ``"rayleigh"`` is the paper's coordinate
        descent between an orthogonalisation step and a gradient step.
    laplacian : {"sym", "k-power", "feature-edge"}
        ``"sym"``: the graph with self-loops. ``"k-power"``: walks of 1 to `k_power` steps.
        ``"feature-edge"``: ``alpha W + (1 - alpha) A`` with ``W`` a Gaussian affinity of feature neighbours.
    k_power, alpha, n_neighbors
        Settings of the last two; `n_neighbors` also serves when `graph` is None.
    tau : float
        Adds ``tau / n`` mean edges to every entry of the adjacency: damps small dangling parts of the graph.
    components : {"large", "all"}
        Which connected components are learned from. An isolated component puts its own indicator at the
        top of the spectrum, and no function of the features should learn thousands of them: ``"large"`` keeps
        components with at least 1 % of the nodes (and 10), and always the largest; all components where those
        hold less than a fifth of the nodes that have edges. All nodes get coordinates
        either way. `operator_` says what was done.
    oversample : int
        Functions that are trained at least. A span with room to spare holds the leading eigenfunctions more
        exactly; the best `n_components` of it are kept. At most one for 20 nodes: choosing among more fits noise.
    hidden_channels : sequence of int
        Widths of the hidden layers; ``()`` for a linear map.
    linear_path : bool
        Add a linear map beside the network.
    dropout : float
        Share of hidden entries dropped in training.
    input_dropout : float or "auto"
        Share of feature entries dropped; ``"auto"``: 0.3 for sparse or count-like features, 0 for dense ones.
    batch_size, max_steps, learning_rate, weight_decay, patience
        Edges a step, steps at most, peak rate, decay, and evaluations without gain before stopping.
    validation_share : float
        Share of the seen nodes that play cold nodes for early stopping; 0 trains for `max_steps` on all.
    nested : bool
        Weigh the prefixes of the components in the contrastive loss, so that they are learned in order.
    diffusion_time : float
        `transform` scales component l by ``mu_l ** diffusion_time``: distances become diffusion distances.
    checkpoint : path or None
        Folder for training state; a fit that was killed goes on from there and ends with the same weights.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"``.
    random_state : int, RandomState, Generator or None
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    eigenvalues_ : ndarray of shape (k,)
        Ritz values of the Laplacian, smallest first: 0 is as smooth as can be, 1 is unrelated to the edges.
    module_ : SpectralNet
        The fitted network, its output layer included.
    history_ : list of dict
        Step, mean loss and held-out score of each evaluation.
    operator_ : dict
        What was learned from: nodes, edges, components found and kept.
    n_components_ : int
        Number of components; fewer than asked for when the seen nodes span fewer functions.

    Notes
    -----
    After Shaham et al., *SpectralNet*, arXiv 1801.01587, as used by SPARC, arXiv 2411.01532; the contrastive
    loss is HaoChen et al.'s, arXiv 2106.04156. Unlike the paper's, the gradient step of ``"rayleigh"``
    carries the multiplier of the orthonormality constraint, edges are sampled by weight instead
    of cutting dense blocks, and stopping looks at held-out seen nodes only.

    Examples
    --------
    >>> from gsparc.datasets import make_circle
    >>> data = make_circle(300, n_neighbors=10, noise_features=0, n_unseen=5, random_state=0)
    >>> spectral = SpectralMap(4, max_steps=50, random_state=0).fit(data.X, graph=data.graph)
    >>> spectral.transform(data.extra["X_unseen"]).shape
    (5, 4)
    """

    def __init__(
        self,
        n_components: int = 64,
        *,
        objective: Literal["contrastive", "rayleigh"] = "contrastive",
        laplacian: Literal["sym", "k-power", "feature-edge"] = "sym",
        k_power: int = 2,
        alpha: float = 0.5,
        n_neighbors: int = 10,
        tau: float = 0.0,
        components: Literal["large", "all"] = "large",
        oversample: int = 64,
        hidden_channels: Sequence[int] = (256, 256, 256),
        linear_path: bool = False,
        dropout: float = 0.0,
        input_dropout: float | Literal["auto"] = "auto",
        batch_size: int = 2048,
        max_steps: int = 1000,
        learning_rate: float | Literal["auto"] = "auto",
        weight_decay: float = 1e-4,
        patience: int = 6,
        validation_share: float = 0.1,
        nested: bool = False,
        diffusion_time: float = 0.0,
        checkpoint: str | os.PathLike[str] | None = None,
        device: str = "auto",
        random_state: RandomState = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.laplacian = laplacian
        self.k_power = k_power
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.tau = tau
        self.components = components
        self.oversample = oversample
        self.hidden_channels = hidden_channels
        self.linear_path = linear_path
        self.dropout = dropout
        self.input_dropout: float | Literal["auto"] = input_dropout
        self.batch_size = batch_size
        self.max_steps = max_steps
        self.learning_rate: float | Literal["auto"] = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_share = validation_share
        self.nested = nested
        self.diffusion_time = diffusion_time
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]  # the network computes in float32
        return tags

    def fit(self, X: Any, y: Any = None, *, graph: Any = None) -> Self:
        """Learn the map from the seen nodes.

        Parameters
        ----------
        X : array, sparse matrix, table or Store of shape (n, d)
            Features of the seen nodes. Sparse features stay sparse; those of a store stay on disk, and its graph is
            taken where none is given.
        y : ignored
        graph : Graph, or anything that :meth:`Graph.from_any` takes
            Edges among the seen nodes. Without it a graph of feature neighbours is used.
        """
        self._check_parameters()
        if isinstance(X, Store) and graph is None:
            graph = X.graph
        with timed("checks"):
            X = check_features(self, X, reset=True)
        self._fit(X, None if graph is None else check_graph(graph, X.shape[0], optional=True))
        return self

    def _check_parameters(self) -> None:
        check_count("n_components", self.n_components, 1)
        check_name("objective", self.objective, OBJECTIVES)
        check_name("laplacian", self.laplacian, LAPLACIANS)
        check_name("components", self.components, ("all", "large"))
        if self.checkpoint is not None and self.random_state is None:
            raise InputError(
                "checkpoint was given with random_state=None: a fit with a fresh seed can never be resumed. "
                "Pass an integer random_state."
            )
        for name, least in (
            ("k_power", 1),
            ("oversample", 1),
            ("n_neighbors", 1),
            ("batch_size", 2),
            ("max_steps", 1),
            ("patience", 1),
        ):
            check_count(name, getattr(self, name), least)
        check_share("alpha", self.alpha)
        check_share("tau", self.tau, high=1e6)
        check_share("validation_share", self.validation_share, high=0.5)
        check_share("diffusion_time", self.diffusion_time, high=1e6)
        check_share("dropout", self.dropout, high=0.95)
        if self.input_dropout != "auto":
            check_share("input_dropout", self.input_dropout, high=0.95)
        if self.learning_rate != "auto":
            check_share("learning_rate", self.learning_rate, low=1e-12, high=1e3)
        check_share("weight_decay", self.weight_decay, high=1e3)
        if not isinstance(self.hidden_channels, (list, tuple)):
            raise InputError(
                f"hidden_channels={self.hidden_channels!r} came, expected widths such as (256, 256) or ()."
            )
        for width in self.hidden_channels:
            check_count("hidden_channels", width, 1)

    def _fit(self, X: Any, graph: Any) -> None:
        if X.shape[0] < 3:
            raise InputError(
                f"{X.shape[0]} node(s) came (n_samples = {X.shape[0]}), expected at least 3: "
                "a map cannot be learned from fewer. 1 sample is never enough."
            )
        with timed("checks"):
            check_rows_vary(X)
        seed = resolve_seed(self.random_state)
        device = resolve_device(self.device)
        with timed("components"):
            operator = build_operator(
                X,
                graph,
                laplacian=self.laplacian,
                components=self.components,
                k_power=self.k_power,
                alpha=self.alpha,
                n_neighbors=self.n_neighbors,
                seed=seed,
                device=str(device),
            )
        self.operator_ = operator.description
        with timed("features to the device"):
            rows = rows_on(X, device)
        with timed("scaling"):
            self._scaling = Scaling.fit(rows)
        check_scaled(self._scaling.factor, X.shape[0])
        features = FeatureSource(rows, self._scaling, device)
        self._train(X, features, operator, seed, device)
        self._finish(features, operator)

    def _train(self, X: Any, features: FeatureSource, operator: Operator, seed: int, device: Any) -> None:
        held = hold_out(operator.graph, self.validation_share, seed) if self.validation_share else None
        graph, train, judged, exclude = operator.graph, operator.nodes, None, None
        if held is not None and graph.num_nodes > _CUT_UP_TO and operator.walk_length == 1:
            exclude = held.nodes  # a few nodes of a large graph: not drawn, instead of cut out
            judged = HeldOut(train, train[held.nodes], held.pointers, held.train[held.neighbours])
        elif held is not None:
            graph, train = graph[held.train], train[held.train]
            judged = HeldOut(train, operator.nodes[held.nodes], held.pointers, held.neighbours)
        self._held = None
        if held is not None:
            nodes = operator.nodes
            self._held = HeldOut(nodes[held.train], nodes[held.nodes], held.pointers, held.neighbours)
        text = self._scaling.rows
        with seeded(seed):
            self.module_ = SpectralNet(
                features.num_columns,
                min(max(self.n_components, min(self.oversample, len(train) // 20)), len(train)),
                hidden_channels=self.hidden_channels,
                dropout=self.dropout,
                input_dropout=(0.3 if text else 0.0) if self.input_dropout == "auto" else self.input_dropout,
                linear_path=self.linear_path,
            ).to(device)
        with timed("edges to the device"):
            sampler = EdgeSampler(graph, device, tau=self.tau, walk_length=operator.walk_length, exclude=exclude)
        task = SpectralTask(
            self.module_,
            features,
            sampler,
            train,
            judged,
            objective=self.objective,
            batch_size=self.batch_size,
            nested=self.nested,
            keep=self.n_components,
            seed=seed,
        )
        settings = LoopSettings(
            steps=self.max_steps,
            learning_rate=(3e-3 if text else 1e-2) if self.learning_rate == "auto" else self.learning_rate,
            weight_decay=self.weight_decay,
            patience=self.patience,
            seed=seed,
            bf16=device.type == "cuda" and len(train) > 100_000,
            description="spectral map",
            show_progress=bool(self.verbose),
            checkpoint=self.checkpoint,
            fingerprint=""
            if self.checkpoint is None
            else fingerprint(self.get_params(deep=False), X, operator.graph, f"{seed} {device.type}"),
        )
        with timed("training"):
            result = run_loop(task, settings, device)
        self.history_, self.n_steps_ = result.history, result.steps

    def _finish(self, features: FeatureSource, operator: Operator) -> None:
        """Rayleigh-Ritz over all seen nodes that take part, folded into the output layer."""
        device, graph = features.device, operator.graph
        if operator.walk_length == 1 and is_mapped(graph.indices) and device.type == "cpu":
            self._set_layer(self._streamed_ritz(features, operator))
            return
        index = torch.from_numpy(operator.nodes).to(device)
        with timed("values at all nodes"):
            values = computed_together(lambda rows: values_at(self.module_, features, rows, raw=True), index)
        degrees = operator_degrees(graph.indptr, graph.weights, tau=self.tau)
        pi = torch.from_numpy(degrees / degrees.sum()).to(device)
        with timed("Rayleigh-Ritz"):
            ritz = rayleigh_ritz(
                graph.indptr,
                graph.indices,
                graph.weights,
                pi,
                values,
                tau=self.tau,
                walk_length=operator.walk_length,
            )
        self._set_layer(ritz)

    def _streamed_ritz(self, features: FeatureSource, operator: Operator) -> RitzPairs:
        """Ritz pairs of a graph that lies in a file; the values at all nodes are put into another.

        Of several processes each computes a share of the values, which all of them get, and of the sums over edges.
        """
        parts = (
            computed_together(
                lambda rows: values_at(self.module_, features, rows, raw=True),
                torch.from_numpy(operator.nodes[i : i + _BLOCK]),
            ).numpy()
            for i in range(0, len(operator.nodes), _BLOCK)
        )
        graph = operator.graph
        release(graph.indices, graph.weights)  # what training has looked at
        values = mapped_rows(self._letting_go(parts, features), self.module_.out_channels)
        together = {"share": (world().rank, world().size), "total": lambda sums: average(sums) * world().size}
        return rayleigh_ritz_streamed(graph.indptr, graph.indices, graph.weights, values, tau=self.tau, **together)

    @staticmethod
    def _letting_go(parts: Iterator[np.ndarray], features: FeatureSource) -> Iterator[np.ndarray]:
        """The parts, with the pages of mapped features let go of after each."""
        for part in parts:
            yield part
            features.release()

    def _set_layer(self, ritz: RitzPairs) -> None:
        self.n_components_ = self._n_features_out = min(self.n_components, len(ritz.mu))
        self.module_.set_output_layer(ritz.offset, ritz.rotation[:, : self.n_components_])
        share_module(self.module_)  # GPUs add in any order: no two of them find the same last digits
        self.eigenvalues_ = 1.0 - np.array(from_first(*ritz.mu[: self.n_components_].tolist()))

    def transform(self, X: Any) -> np.ndarray:
        """Spectral coordinates of nodes, from their features alone.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (m, d)
            One row or millions; worked through in chunks.

        Returns
        -------
        ndarray of shape (m, k), float32
        """
        check_is_fitted(self)
        X = check_features(self, X, reset=False)
        return self._transform(X)

    def transform_blocks(self, X: Any) -> Iterator[np.ndarray]:
        """:meth:`transform` a block of rows at a time, for features in a store: memory never holds all of them.

        Examples
        --------
        >>> from gsparc.datasets import make_circle
        >>> data = make_circle(100, n_neighbors=10, noise_features=0, random_state=0)
        >>> spectral = SpectralMap(2, max_steps=5, random_state=0).fit(data.X, graph=data.graph)
        >>> [part.shape for part in spectral.transform_blocks(data.X)]
        [(100, 2)]
        """
        check_is_fitted(self)
        return self._blocks(check_features(self, X, reset=False))

    def _transform(self, X: Any, finish: Callable[[torch.Tensor], torch.Tensor] | None = None) -> np.ndarray:
        """``finish`` changes each block before it leaves the device."""
        out, start = np.empty((X.shape[0], self.n_components_), np.float32), 0
        for part in self._blocks(X, finish):
            out[start : start + len(part)] = part
            start += len(part)
        return out

    def _blocks(self, X: Any, finish: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Iterator[np.ndarray]:
        device = resolve_device(self.device)
        self.module_.to(device)
        for start in range(0, X.shape[0], _BLOCK):
            part = X[start : start + _BLOCK]
            features = FeatureSource(part, self._scaling, device)
            index = torch.arange(part.shape[0], device=device)
            found = values_at(self.module_, features, index)
            if self.diffusion_time:
                found = found * torch.from_numpy(self.diffusion_scale()).to(found)
            yield (found if finish is None else finish(found)).cpu().numpy()
            release(X.data if sp.issparse(X) else X)

    def diffusion_scale(self) -> np.ndarray:
        """``mu_l ** diffusion_time`` for each component, ``mu = 1 - eigenvalues_`` and not below zero."""
        mu = np.clip(1.0 - self.eigenvalues_, 0.0, None)
        return (mu**self.diffusion_time).astype(np.float32)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        arrays = prefixed("module", {name: value.cpu().numpy() for name, value in self.module_.state_dict().items()})
        arrays["eigenvalues"] = np.asarray(self.eigenvalues_, np.float64)
        for name in ("shift", "factor"):
            value = getattr(self._scaling, name)
            if value is not None:
                arrays[f"scaling.{name}"] = value
        fitted = {
            "module": self.module_.config(),
            "scaling_rows": self._scaling.rows,
            "operator": self.operator_,
            "history": self.history_,
            "n_steps": self.n_steps_,
        }
        return fitted, arrays

    def _restore(self, fitted: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        state = {name: torch.from_numpy(array) for name, array in part_of(arrays, "module").items()}
        self.module_ = SpectralNet(**fitted["module"])
        self.module_.set_output_layer(state["offset"], state["rotation"])
        self.module_.load_state_dict(state, assign=True)  # no copy: mapped weights stay in their file
        self.module_.eval()
        self.eigenvalues_ = arrays["eigenvalues"]
        self.n_components_ = self._n_features_out = len(self.eigenvalues_)
        module, outputs = self.module_, self.module_.out_channels
        layer = tuple(module.offset.shape), tuple(module.rotation.shape)
        if layer != ((outputs,), (outputs, self.n_components_)) or module.in_channels != self.n_features_in_:
            raise ValueError("the output layer does not have one column for each eigenvalue")
        shift, factor = arrays.get("scaling.shift"), arrays.get("scaling.factor")
        self._scaling = Scaling(bool(fitted["scaling_rows"]), shift, factor)
        width = (self.n_features_in_,)
        if not self._scaling.rows and (shift is None or factor is None or not shift.shape == factor.shape == width):
            raise ValueError("the scaling does not have one value for each feature")
        self.operator_, self.history_ = fitted["operator"], fitted["history"]
        self.n_steps_ = int(fitted["n_steps"])

    def _as_part(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What another estimator saves of a map that it holds."""
        fitted, arrays = self._state()
        return {"parameters": jsonable(self.get_params(deep=False)), "fitted": fitted}, arrays

    @classmethod
    def _from_part(cls, saved: dict[str, Any], arrays: dict[str, np.ndarray], n_features: int) -> Self:
        """What :meth:`_as_part` described."""
        spectral = cls(**saved["parameters"])
        spectral.n_features_in_ = n_features
        spectral._restore(saved["fitted"], arrays)
        return spectral
