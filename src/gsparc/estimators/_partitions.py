"""One way from a graph and its features to a partition of the nodes, whatever the method."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from gsparc._runtime import resolve_device
from gsparc._validation import check_count, check_name
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError
from gsparc.graph import Graph
from gsparc.ops._knn import unit_rows
from gsparc.ops.partition import partition_metis, partition_random, partition_spectral
from gsparc.ops.propagate import diffused_signals, lazy_walk

__all__ = ["METHODS", "SMOOTHING", "node_partition", "scaled_coordinates"]

METHODS = ("diffusion", "metis", "random", "spectral")
SMOOTHING = 10  # rounds; see SpectralClusterLoader
_SIGNALS = 64  # random ones beside the map's coordinates; see node_partition


def scaled_coordinates(spectral_map: SpectralMap, X: Any) -> np.ndarray:
    """Coordinates in which distances are diffusion distances after one step, unless the map has a time of its own."""
    coordinates = spectral_map.transform(X)
    if spectral_map.diffusion_time:
        return coordinates
    return coordinates * np.clip(1.0 - spectral_map.eigenvalues_, 0.0, None).astype(np.float32)


def node_partition(
    method: str,
    num_parts: int,
    graph: Graph,
    *,
    X: Any = None,
    coordinates: Any = None,
    spectral_map: SpectralMap | None = None,
    smoothing: int = SMOOTHING,
    device: str = "auto",
    seed: int = 0,
) -> tuple[np.ndarray, SpectralMap | None]:
    """The part of every node of ``graph``, and the map that was used, if any.

    ``"spectral"`` takes ``coordinates`` as they are, or those that a fitted ``spectral_map`` gives to ``X``, or fits
    one: a copy of the unfitted ``spectral_map``, or one with the defaults. What a map says of a node by its features
    is averaged along the edges in ``smoothing`` rounds, for all nodes here have theirs, and random signals that are
    averaged alike stand beside it. ``"diffusion"`` takes the signals alone.

    Notes
    -----
    A map tells as many groups apart as it has coordinates, and a part may be much smaller than such a group: nodes of
    a group that the features cannot tell apart lie in one place, however long they are averaged. Signals set them
    apart, and averaging brings neighbours together again.
    """
    check_name("method", method, METHODS)
    check_count("smoothing", smoothing, 1 if method == "diffusion" else 0)
    n = graph.num_nodes
    check_count("num_parts", num_parts, 1)
    if num_parts > n:
        raise InputError(
            f"num_parts={num_parts} came for {n} nodes, and no part may be empty. Pass at most {n}; parts of about 155 "
            f"nodes, as 1500 of Reddit are, would be num_parts={max(1, n // 155)}."
        )
    if method != "spectral":
        if coordinates is not None or spectral_map is not None:
            raise InputError(f"method={method!r} uses no coordinates and no map. Leave them out, or pass 'spectral'.")
        if method == "random":
            return partition_random(n, num_parts, seed), None
        if method == "metis":
            return partition_metis(graph.indptr, graph.indices, num_parts, seed=seed), None
        _check_edges(graph)
        signals = diffused_signals(graph, smoothing, _SIGNALS, resolve_device(device), seed=seed)
        return partition_spectral(signals, num_parts, seed=seed), None
    if coordinates is not None:
        if len(coordinates) != n:
            raise GraphShapeError(f"{len(coordinates)} rows of coordinates came for {n} nodes. Pass one a node.")
        return partition_spectral(coordinates, num_parts, seed=seed), None
    fitted = _fitted_map(spectral_map, X, graph, device, seed)
    rows = torch.from_numpy(scaled_coordinates(fitted, X)).to(resolve_device(device))
    if smoothing:
        signals = diffused_signals(graph, smoothing, _SIGNALS, rows.device, seed=seed)
        rows = torch.cat([unit_rows(lazy_walk(rows, graph, smoothing)), unit_rows(signals)], dim=1)
    return partition_spectral(rows, num_parts, seed=seed), fitted


def _check_edges(graph: Graph) -> None:
    if not graph.num_edges:
        raise GraphError(
            f"the graph over {graph.num_nodes} nodes has no edges for parts to keep. Pass edges, or method='random'."
        )


def _fitted_map(given: SpectralMap | None, X: Any, graph: Graph, device: str, seed: int) -> SpectralMap:
    if given is not None and not isinstance(given, SpectralMap):
        raise InputError(f"spectral_map={given!r} came, expected a SpectralMap or None.")
    if X is None:
        raise FeatureError(
            "spectral parts need node features, and there are none. Pass coordinates= of your own, one row a node, or "
            "method='diffusion' or 'metis', which look at edges only."
        )
    if given is not None and hasattr(given, "module_"):
        return given
    _check_edges(graph)
    fresh: Any = SpectralMap() if given is None else clone(given)
    return fresh.set_params(device=device, random_state=seed).fit(X, graph=graph)  # one seed and one device for all
