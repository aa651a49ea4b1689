"""How candidates are scored, and how the weights of the score are chosen on held-out nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from gsparc.graph import Graph
from gsparc.ops._sparse import dense_pays
from gsparc.ops.laplacian import operator_degrees, walk
from gsparc.training.batches import Scaling
from gsparc.training.links import Retrieval, mean_reciprocal_rank

__all__ = ["FeatureView", "LinkWeights", "choose_weights", "leading_entries", "smoothed", "unit"]

_WIDE = 2048  # columns from which rows are cut to their leading entries
_MOST_WORDS = 128
_DENSE = 1 << 24  # entries made dense at once

SMOOTH = (0.0, 0.3, 0.6, 0.9)
SHARE = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
POPULARITY = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3)
_LEAST_SHARE = 0.45
_MAX_SMOOTHED = 200_000_000  # stored entries that averaging sparse features over neighbours may make


class LinkWeights(NamedTuple):
    """Weights of the score of a candidate."""

    map_share: float = 1.0  # of the cosine in the learned space; the rest is the features' cosine
    smooth_map: float = 0.0  # share of the neighbours' mean in a seen node's learned vector
    smooth_features: float = 0.0  # the same for its features
    popularity: float = 0.0  # times log(1 + degree)


def unit(rows: Any) -> Any:
    """Rows of length one, dense or sparse; a row of zeros stays."""
    if sp.issparse(rows):
        length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        factor = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
        return sp.csr_array(sp.diags_array(factor.astype(np.float32)) @ rows)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)


def neighbor_means(graph: Graph, rows: Any, at: np.ndarray | None = None) -> Any:
    """``P rows``: mean over each node and its neighbours, for the nodes ``at`` (all by default)."""
    if at is None and not sp.issparse(rows):
        tensor = torch.from_numpy(np.ascontiguousarray(rows))
        return walk(graph.indptr, graph.indices, graph.weights, tensor).numpy()
    at = np.arange(graph.num_nodes) if at is None else at
    degrees = operator_degrees(graph.indptr, graph.weights)[at].astype(np.float32)
    total = graph.to_scipy()[at] @ rows + rows[at]
    if sp.issparse(total):
        return sp.csr_array(sp.diags_array(1 / degrees) @ total, dtype=np.float32)
    return (total / degrees[:, None]).astype(np.float32)


def mixed(rows: Any, means: Any, share: float) -> Any:
    """``(1 - share) rows + share means``: seen nodes moved towards their neighbours."""
    if share == 0.0:
        return rows
    out = (1 - share) * rows + share * means
    return sp.csr_array(out, dtype=np.float32) if sp.issparse(out) else out.astype(np.float32)


def smoothed(graph: Graph, rows: Any, share: float) -> Any:
    """``(1 - share) rows + share P rows`` for all nodes."""
    return rows if share == 0.0 else mixed(rows, neighbor_means(graph, rows), share)


def leading_entries(rows: Any, most: int = _MOST_WORDS) -> Any:
    """Wide sparse rows with their ``most`` largest entries each; others as they are.

    The mean over the thousand neighbours of a hub holds nearly every word a little, which says nothing and is most of
    what an index would store and look through.

    Examples
    --------
    >>> rows = sp.csr_array(np.tile(np.arange(4096.0), (2, 1)))
    >>> sorted(leading_entries(rows, most=2).indices.tolist())
    [4094, 4094, 4095, 4095]
    """
    if not sp.issparse(rows) or rows.shape[1] < _WIDE:
        return rows
    rows = sp.csr_array(rows)
    keep = np.ones(rows.nnz, bool)
    long = np.flatnonzero(np.diff(rows.indptr) > most)
    for start in range(0, len(long), _DENSE // rows.shape[1] or 1):
        part = long[start : start + (_DENSE // rows.shape[1] or 1)]
        block = rows[part]
        limit = -np.partition(-np.abs(block.toarray()), most - 1, axis=1)[:, most - 1]
        owner = np.repeat(np.arange(len(part)), np.diff(block.indptr))
        entry = np.arange(block.nnz) - block.indptr[owner] + rows.indptr[part][owner]
        keep[entry] = np.abs(block.data) >= limit[owner]
    pointers = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sp.csr_array((rows.data[keep], rows.indices[keep], pointers), shape=rows.shape)


def sparse_products(left: Any, right: Any, device: torch.device) -> torch.Tensor:
    """``left @ right.T`` of sparse rows, as a dense matrix; rows averaged over neighbours are hardly sparse any more.

    Examples
    --------
    >>> rows = sp.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]], np.float32))
    >>> sparse_products(rows, rows, torch.device("cpu")).tolist()
    [[5.0, 0.0], [0.0, 9.0]]
    """
    if not dense_pays(left, right, device):
        return torch.from_numpy((left @ right.T).toarray()).to(device)
    wide, size = torch.from_numpy(left.toarray()).to(device), max(1, _DENSE // left.shape[1])
    blocks = (right[start : start + size].toarray() for start in range(0, right.shape[0], size))
    return torch.cat([wide @ torch.from_numpy(block).to(device).T for block in blocks], dim=1)


class FeatureView:
    """Features as they are compared: rare words count more, dense columns are standardised."""

    def __init__(self, by_rows: bool, shift: np.ndarray | None, factor: np.ndarray) -> None:
        self.by_rows, self._shift, self._factor = by_rows, shift, factor

    @classmethod
    def fit(cls, X: Any) -> FeatureView:
        """Inverse document frequencies or column statistics of the seen nodes."""
        scaling = Scaling.fit(X)
        if not scaling.rows:
            assert scaling.factor is not None
            # sparse rows are scaled but not shifted: they would not stay sparse
            return cls(False, None if sp.issparse(X) else scaling.shift, scaling.factor)
        used = np.asarray((X != 0).sum(axis=0)).ravel()
        factor = np.clip(np.log(X.shape[0] / (1.0 + used)), 0.0, None)
        if not factor.any():
            factor = np.ones_like(factor)
        return cls(True, None, factor.astype(np.float32))

    def rows(self, X: Any) -> Any:
        """``X`` as it is compared."""
        if sp.issparse(X) and self._shift is None:
            return sp.csr_array(sp.csr_array(X) @ sp.diags_array(self._factor), dtype=np.float32)
        X = X.toarray() if sp.issparse(X) else X
        return ((X if self._shift is None else X - self._shift) * self._factor).astype(np.float32)

    def arrays(self) -> dict[str, np.ndarray]:
        """What is saved."""
        return {"factor": self._factor} | ({} if self._shift is None else {"shift": self._shift})

    def config(self) -> dict[str, bool]:
        """What is not an array."""
        return {"by_rows": self.by_rows, "shifted": self._shift is not None}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], config: dict[str, bool], width: int) -> FeatureView:
        """What :meth:`arrays` and :meth:`config` described."""
        for name in ("factor", "shift") if config["shifted"] else ("factor",):
            if arrays[name].shape != (width,):
                raise ValueError(f"feature {name}s of shape {arrays[name].shape}, expected ({width},)")
        return cls(config["by_rows"], arrays["shift"] if config["shifted"] else None, arrays["factor"])


class _Trial:
    """Cosines of one hold-out's nodes with their candidates, for every smoothing; without a map those of features."""

    def __init__(
        self, graph: Graph, train: np.ndarray, retrieval: Retrieval, embedding: np.ndarray | None, view: Any, device
    ):
        self.truth = retrieval.truth
        at, queries = retrieval.positions, retrieval.queries
        self.degree = torch.from_numpy(np.log1p(graph.degrees()[at])).to(device, torch.float32)
        self.by_map = []
        if embedding is not None:
            own = embedding[train]
            left = torch.from_numpy(embedding[queries]).to(device)
            means = neighbor_means(graph, own, at)
            for share in SMOOTH:
                right = torch.from_numpy(unit(mixed(own[at], means, share))).to(device)
                self.by_map.append(left @ right.T)
        own, left = unit(view)[train], unit(view[queries])
        dense = not sp.issparse(own)
        spread = 0 if dense else own.nnz / max(1, own.shape[0]) * 2 * graph.num_edges
        shares = SMOOTH if spread <= _MAX_SMOOTHED else SMOOTH[:1]
        means = neighbor_means(graph, own, at) if len(shares) > 1 else None
        self.by_features = []
        for share in shares:
            right = unit(mixed(own[at], means, share))
            product = sparse_products(left, right, device) if not dense else torch.from_numpy(left @ right.T)
            self.by_features.append(product.to(device, torch.float32))

    def rank(self, choice: dict[str, int]) -> float:
        scores = self.by_features[min(choice["smooth_features"], len(self.by_features) - 1)]
        if self.by_map:
            share = SHARE[choice["map_share"]]
            scores = share * self.by_map[choice["smooth_map"]] + (1 - share) * scores
        return mean_reciprocal_rank(scores + POPULARITY[choice["popularity"]] * self.degree, self.truth)


def choose_weights(
    trials: Sequence[tuple[Graph, np.ndarray, Retrieval, np.ndarray | None]],
    view: Any,
    *,
    popularity: bool,
    exact: bool,
    device: torch.device,
) -> tuple[LinkWeights, dict[str, Any]]:
    """Weights with the best mean reciprocal rank on held-out nodes, one coordinate at a time.

    Parameters
    ----------
    trials
        For each map: graph among its training nodes, their rows, what is ranked, and the map's vectors. ``None``
        instead of vectors, in all trials: there is no map, and its share is 0.
    view
        Features of all seen nodes as they are compared.
    exact
        Whether every seen node will be scored. Where candidates come from the map alone it must count.
    """
    if not trials:  # too few nodes to hold any out
        return LinkWeights(map_share=0.5), {"held_out_nodes": 0}
    parts = [_Trial(*trial, view, device) for trial in trials]
    mapped = bool(parts[0].by_map)

    def mean(choice: dict[str, int]) -> float:
        return float(np.mean([part.rank(choice) for part in parts]))

    start = {"map_share": 0, "smooth_map": 0, "smooth_features": 0, "popularity": 0}
    report: dict[str, Any] = {
        "held_out_nodes": sum(len(part.truth) for part in parts),
        **({"mrr_map_alone": mean({**start, "map_share": len(SHARE) - 1})} if mapped else {}),
        "mrr_features_alone": mean(start),
    }
    shares = SHARE if exact else tuple(share for share in SHARE if share >= _LEAST_SHARE)
    grids = {"map_share": shares, "popularity": POPULARITY, "smooth_map": SMOOTH, "smooth_features": SMOOTH}
    full = {**grids, "map_share": SHARE}
    unused = ([] if popularity else ["popularity"]) + ([] if mapped else ["map_share", "smooth_map"])
    grids = {name: grid for name, grid in grids.items() if name not in unused}
    choice = {**start, "map_share": SHARE.index(0.6)} if mapped else start
    best = mean(choice)
    for _ in range(3):
        before = dict(choice)
        for name, grid in grids.items():
            for value in range(len(full[name]) - len(grid), len(full[name])):
                score = mean({**choice, name: value})
                if score > best:
                    best, choice = score, {**choice, name: value}
        if choice == before:
            break
    weights = LinkWeights(
        SHARE[choice["map_share"]],
        SMOOTH[choice["smooth_map"]],
        SMOOTH[choice["smooth_features"]] if len(parts[0].by_features) > 1 else 0.0,
        POPULARITY[choice["popularity"]],
    )
    return weights, {**report, "mrr_chosen": best, **weights._asdict()}
