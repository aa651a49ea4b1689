"""A graph that holds both what is linked and what is alike: the features-edges view that clusters are found in."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from gsparc.estimators._base import CPU, feature_graph
from gsparc.estimators._ranking import FeatureView, unit
from gsparc.graph import Graph

__all__ = ["likeness_graph", "mixed_graph"]


def likeness_graph(X: Any, n_neighbors: int, seed: int, device: torch.device = CPU) -> Graph:
    """Gaussian affinity of feature neighbours; by cosine for counts, where rare words count more."""
    view = FeatureView.fit(X)
    if not view.by_rows:
        return feature_graph(view.rows(X), n_neighbors, seed, device)
    values = X.data if sp.issparse(X) else X
    whole = bool(np.array_equal(values, np.round(values)))  # others were weighed by whoever made them
    return feature_graph(unit(view.rows(X) if whole else X), n_neighbors, seed, device)


def mixed_graph(likeness: Graph, edges: Graph, alpha: float) -> Graph:
    """``alpha W + (1 - alpha) A``, ``W`` scaled to the total weight of ``A``, so that `alpha` is a share of the weight.

    Examples
    --------
    >>> likeness = Graph.from_edges([[0], [1]], num_nodes=3, weights=[0.2])
    >>> edges = Graph.from_edges([[1], [2]], num_nodes=3)
    >>> mixed_graph(likeness, edges, 0.25).to_scipy().toarray().round(2).tolist()
    [[0.0, 0.25, 0.0], [0.25, 0.0, 0.75], [0.0, 0.75, 0.0]]
    """
    if alpha == 0:
        return edges
    W, A = likeness.to_scipy().astype(np.float64), edges.to_scipy().astype(np.float64)
    factor = alpha * A.sum() / max(W.sum(), 1e-30)
    return Graph.from_scipy(sp.csr_array(factor * W + (1 - alpha) * A))
