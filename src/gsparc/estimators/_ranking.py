"""How candidates are scored, and how the weights of the score are chosen on held-out nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gsparc._cuts import in_units
from gsparc.estimators._shift import Judged, NodeShift, choose_shift
from gsparc.graph import Graph
from gsparc.ops._feature_rows import unit_csr
from gsparc.ops._sparse import csr_tensor, dense_pays
from gsparc.ops.laplacian import operator_degrees, walk
from gsparc.training.batches import Scaling
from gsparc.training.links import Retrieval, mean_reciprocal_rank

__all__ = [
    "FeatureView",
    "LinkWeights",
    "averaging",
    "choose_weights",
    "leading_entries",
    "popularity_of",
    "shared_cosines",
    "smoothed",
    "unit",
]

_WIDE = 2048  # columns from which rows are cut to their leading entries
_MOST_WORDS = 128
_DENSE = 1 << 24  # entries made dense at once

SMOOTH = (0.0, 0.3, 0.6, 0.9)
SHARE = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)
POPULARITY = (0.0, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2, 2.5)
_LEAST_SHARE = 0.45
_MAX_SMOOTHED = 200_000_000  # stored entries that averaging sparse features over neighbours may make
_CANCELLED = 1e-6  # of the squared lengths of two vectors: what is left of them points nowhere


class LinkWeights(NamedTuple):
    """Weights of the score of a candidate."""

    map_share: float = 1.0  # of the cosine in the learned space; the rest is the features' cosine
    smooth_map: float = 0.0  # share of the neighbours' mean in a seen node's learned vector
    smooth_features: float = 0.0  # the same for its features
    popularity: float = 0.0  # times log(1 + degree)


def unit(rows: Any) -> Any:
    """Rows of length one, dense or sparse; a row of zeros stays.

    Examples
    --------
    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30]], np.float32)).round(3)
    array([[0.6, 0.8],
           [0. , 0. ],
           [0.6, 0.8],
           [0.6, 0.8]], dtype=float32)
    """
    if sp.issparse(rows):
        return unit_csr(sp.csr_array(rows))
    kind = np.finfo(rows.dtype)
    with np.errstate(over="ignore"):
        length = np.linalg.norm(rows, axis=1, keepdims=True)
    # squares beyond what the type of the rows holds, or so small that it holds them no longer exactly
    extreme = (np.isinf(length) | (length < (kind.smallest_normal / kind.eps) ** 0.5)).ravel()
    if extreme.any() and rows.shape[1]:
        largest = np.abs(rows[extreme]).max(axis=1, keepdims=True)
        rows = rows.copy()
        rows[extreme] /= np.where(largest > 0, largest, 1)
        length[extreme] = np.linalg.norm(rows[extreme], axis=1, keepdims=True)
    return np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)


def averaging(graph: Graph, share: float = 1.0, at: np.ndarray | None = None) -> sp.csr_array:
    """``(1 - share) I + share P``: each node moved towards the mean of itself and its neighbours; rows ``at`` of it.

    Examples
    --------
    >>> averaging(Graph.from_edges([[0], [1]], num_nodes=3), share=0.5).toarray().tolist()
    [[0.75, 0.25, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    graph = in_units(graph)
    at = np.arange(graph.num_nodes) if at is None else at
    pull = share / operator_degrees(graph.indptr, graph.weights)[at]
    others = sp.diags_array(pull) @ graph.to_scipy()[at]
    own = sp.csr_array((1 - share + pull, (np.arange(len(at)), at)), shape=others.shape)
    return sp.csr_array(others + own, dtype=np.float32)


def popularity_of(graph: Graph) -> np.ndarray:
    """How popular each node is: ``log(1 + degree)``, the degree in mean edges."""
    return np.log1p(in_units(graph).degrees())


def mixed(rows: Any, means: Any, share: float) -> Any:
    """``(1 - share) rows + share means``: seen nodes moved towards their neighbours."""
    if share == 0.0:
        return rows
    out = (1 - share) * rows + share * means
    return sp.csr_array(out, dtype=np.float32) if sp.issparse(out) else out.astype(np.float32)


def smoothed(graph: Graph, rows: Any, share: float) -> Any:
    """``(1 - share) rows + share P rows`` for all nodes."""
    if share == 0.0:
        return rows
    if sp.issparse(rows):
        return sp.csr_array(averaging(graph, share) @ rows, dtype=np.float32)
    graph = in_units(graph)
    means = walk(graph.indptr, graph.indices, graph.weights, torch.from_numpy(np.ascontiguousarray(rows)))
    return mixed(rows, means.numpy(), share)


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


def sparse_products(left: Any, right: Any, device: torch.device) -> Tensor:
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


def shared_cosines(left: Any, own: Any, means: Any, shares: Sequence[float], device: torch.device) -> list[Tensor]:
    """Cosines of unit rows ``left`` with the rows ``(1 - share) own + share means``, a matrix for every share.

    A product is linear in the share and the square of a length quadratic: two products serve all shares. A row that
    its mean cancels to a thousandth has no direction, and no likeness to any other.

    Parameters
    ----------
    left, own, means
        All scipy's CSR, or all dense tensors on ``device``.
    """
    to_own, to_means = _products(left, own, device), _products(left, means, device)
    squares = [_row_products(*pair, device) for pair in ((own, own), (own, means), (means, means))]
    found = []
    for share in shares:
        stay = 1 - share
        square = stay**2 * squares[0] + 2 * share * stay * squares[1] + share**2 * squares[2]
        straight = square > _CANCELLED * (squares[0] + squares[2])
        factor = torch.where(straight, square, torch.inf).rsqrt().to(to_own)
        found.append((stay * to_own + share * to_means) * factor)
    return found


def _products(left: Any, right: Any, device: torch.device) -> Tensor:
    return left @ right.T if isinstance(left, Tensor) else sparse_products(left, right, device).float()


def _row_products(left: Any, right: Any, device: torch.device) -> Tensor:
    """Product of each row with its counterpart, in double precision."""
    if isinstance(left, Tensor):
        return (left * right).sum(dim=1, dtype=torch.float64)
    return torch.from_numpy(np.asarray(left.multiply(right).sum(axis=1, dtype=np.float64)).ravel()).to(device)


def _times(operator: sp.csr_array, rows: Any) -> Any:
    """``operator @ rows``, wherever the rows are."""
    if not isinstance(rows, Tensor):
        return operator @ rows
    if rows.device.type == "cpu":
        return torch.from_numpy(operator @ rows.numpy())
    parts = (torch.from_numpy(part).to(rows.device) for part in (operator.indptr, operator.indices, operator.data))
    return csr_tensor(*parts, columns=len(rows)) @ rows


def _placed(rows: Any, device: torch.device) -> Any:
    """Rows where they are multiplied fastest: as a dense tensor on a GPU with room for it, sparse ones else in scipy.

    Where several processes share the GPU each should leave room for the others.
    """
    if device.type == "cuda" and 4 * rows.shape[0] * rows.shape[1] <= torch.cuda.mem_get_info(device)[0] // 16:
        if not sp.issparse(rows):
            return torch.from_numpy(rows).to(device)
        parts = (torch.from_numpy(part).to(device) for part in (rows.indptr, rows.indices, rows.data))
        return csr_tensor(*parts, columns=rows.shape[1]).to_dense()
    return rows if sp.issparse(rows) else torch.from_numpy(rows)


class _Trial:
    """Cosines of one hold-out's nodes with their candidates, for every smoothing; without a map those of features."""

    def __init__(
        self,
        graph: Graph,
        train: np.ndarray,
        retrieval: Retrieval,
        embedding: np.ndarray | None,
        view: Any,
        shares: Sequence[float],
        device: torch.device,
    ) -> None:
        self.truth, self.num_nodes = retrieval.truth, graph.num_nodes
        at = retrieval.positions
        self.degree = torch.from_numpy(popularity_of(graph)[at]).to(device, torch.float32)
        means = averaging(graph, at=at)

        def cosines(rows: Any, shares: Sequence[float]) -> list[Tensor]:
            left, own = rows[retrieval.queries], rows[train]
            if len(shares) == 1:
                return [_products(left, own[at], device).to(device)]
            return [found.to(device) for found in shared_cosines(left, own[at], _times(means, own), shares, device)]

        self.by_map = [] if embedding is None else cosines(_placed(embedding, device), SMOOTH)
        self.by_features = cosines(view, shares)

    def scores(self, choice: dict[str, int]) -> Tensor:
        scores = self.by_features[min(choice["smooth_features"], len(self.by_features) - 1)]
        if self.by_map:
            share = SHARE[choice["map_share"]]
            scores = share * self.by_map[choice["smooth_map"]] + (1 - share) * scores
        return scores + POPULARITY[choice["popularity"]] * self.degree

    def rank(self, choice: dict[str, int]) -> float:
        return mean_reciprocal_rank(self.scores(choice), self.truth)


def choose_weights(
    trials: Sequence[tuple[Graph, np.ndarray, Retrieval, np.ndarray | None]],
    view: Any,
    *,
    popularity: bool,
    exact: bool,
    device: torch.device,
) -> tuple[LinkWeights, NodeShift, dict[str, Any]]:
    """Weights with the best mean reciprocal rank on held-out nodes, one coordinate at a time, from two starts.

    And the shift with them.

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
        return LinkWeights(map_share=0.5), NodeShift(), {"held_out_nodes": 0}
    spread = view.nnz / view.shape[0] * 2 * max(trial[0].num_edges for trial in trials) if sp.issparse(view) else 0
    shares = SMOOTH if spread <= _MAX_SMOOTHED else SMOOTH[:1]
    rows = _placed(unit(view), device)
    parts = [_Trial(*trial, rows, shares, device) for trial in trials]
    del rows
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

    def ascend(choice: dict[str, int], names: Iterable[str]) -> tuple[float, dict[str, int]]:
        best = mean(choice)
        for _ in range(3):
            before = dict(choice)
            for name in names:
                for value in range(len(full[name]) - len(grids[name]), len(full[name])):
                    score = mean({**choice, name: value})
                    if score > best:
                        best, choice = score, {**choice, name: value}
            if choice == before:
                break
        return best, choice

    if mapped:
        best, choice = ascend({**start, "map_share": SHARE.index(0.6)}, grids)
        # Linked nodes that are not alike, such as buyers and goods: features count only once they are averaged over
        # neighbours, so the way from plain ones leads to the map alone. A second way starts from the best of features.
        _, alone = ascend(start, [name for name in grids if name not in ("map_share", "smooth_map")])
        other = ascend({**alone, "map_share": len(SHARE) - len(shares)}, grids)
        best, choice = other if other[0] > best else (best, choice)
    else:
        best, choice = ascend(start, grids)
    weights = LinkWeights(
        SHARE[choice["map_share"]],
        SMOOTH[choice["smooth_map"]],
        SMOOTH[choice["smooth_features"]] if len(parts[0].by_features) > 1 else 0.0,
        POPULARITY[choice["popularity"]],
    )
    judged = [Judged(part.scores(choice), part.truth, part.degree, part.num_nodes) for part in parts]
    shift, found = choose_shift(judged, degrees=weights.popularity > 0)
    return weights, shift, {**report, "mrr_chosen": best, **weights._asdict(), **found}
