"""Ranking by the spectral coordinates and the raw features together: better than either alone."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from gsparc._runtime import resolve_device
from gsparc._typing import FloatArray, IntArray
from gsparc.exceptions import DamagedModelError, InputError
from gsparc.ops._feature_rows import DenseRows, SparseRows, feature_rows, feature_rows_from_arrays
from gsparc.ops._index_memory import CODED
from gsparc.ops._index_state import State, read_state, write_state
from gsparc.ops._knn import block_cells, blocks, smallest, unit_rows
from gsparc.ops._screening import RoughRows, screened_best
from gsparc.ops._vectors import prepared_file
from gsparc.ops.neighbors import NeighborIndex, resolve_kind

__all__ = ["CombinedIndex", "combined_scores_reference"]

_SCREENED_ROWS = 4096  # nodes from which it pays to score roughly first
_ROUNDING = 1e-5  # of sums in float32, with room
_REUSED_CELLS = 1 << 21  # scores whose 8 MB the allocator keeps for the next block
_LEADING = 0.75  # weight from which the spectral cosine alone says well enough who may be best


def combined_scores_reference(
    spectral_q: FloatArray,
    features_q: FloatArray,
    spectral: FloatArray,
    features: FloatArray,
    *,
    weight: float,
) -> FloatArray:
    """All scores by their definition, from dense arrays: what the index is tested by.

    Examples
    --------
    >>> import numpy as np
    >>> s, x = np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[1.0], [-3.0]])
    >>> combined_scores_reference(s[:1], x[:1], s, x, weight=0.75).tolist()
    [[1.0, -0.25]]
    """

    def unit(rows: FloatArray) -> FloatArray:
        rows = np.asarray(rows, dtype=np.float64)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)

    return weight * unit(spectral_q) @ unit(spectral).T + (1 - weight) * unit(features_q) @ unit(features).T


class CombinedIndex:
    """Seen nodes ranked by ``weight * cos(spectral) + (1 - weight) * cos(features)``, plus a prior if there is one.

    Exact up to 50,000 nodes: every seen node is scored, in chunks. Beyond (``kind="ivf"``), the
    ``max(20 k, 512)`` nodes with the nearest spectral coordinates are scored and ranked. That misses a node
    which lies far in the spectral coordinates and near in the features: a small loss at the usual weights,
    a large one as the weight goes to 0 (use ``kind="exact"`` there).

    Made by :meth:`build`, :meth:`from_state` or :meth:`load`.

    Examples
    --------
    >>> import numpy as np
    >>> spectral = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> features = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    >>> index = CombinedIndex.build(spectral, features, weight=0.5)
    >>> scores, ids = index.search(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), k=2)
    >>> ids.tolist(), scores.astype(float).round(2).tolist()
    ([[1, 0]], [[0.9, 0.5]])
    >>> index.weight = 1.0
    >>> index.search(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), k=2)[1].tolist()
    [[0, 1]]
    """

    def __init__(
        self,
        neighbors: NeighborIndex,
        features: DenseRows | SparseRows,
        weight: float,
        prior: NDArray[np.float32] | None = None,
    ) -> None:
        self._neighbors, self._features = neighbors, features
        self._rows: torch.Tensor | None = None
        self._rough: RoughRows | None = None
        self._prior = None if prior is None else torch.from_numpy(_check_prior(prior, neighbors.num_vectors))
        self.weight = weight

    @classmethod
    def build(
        cls,
        spectral: FloatArray | torch.Tensor,
        features: Any,
        weight: float,
        *,
        prior: FloatArray | None = None,
        kind: str = "auto",
        device: str | torch.device = "cpu",
        memory: int | str | None = None,
        seed: int = 0,
    ) -> CombinedIndex:
        """Index seen nodes.

        Parameters
        ----------
        spectral : array of shape (n, k)
        features : array or scipy sparse matrix of shape (n, d)
            Sparse features stay sparse.
        weight : float in [0, 1]
            Of the spectral cosine; can be set later without a rebuild.
        prior : array of shape (n,), optional
            Added to each node's score whatever the query, such as a share of its log-degree.
        kind : {"auto", "exact", "ivf", "ivf-sq8", "ivf-pq"}
        device : {"cpu", "cuda", "auto"}
        memory : int or str, optional
            Bytes, or a text such as ``"2GB"``, that the index of the spectral coordinates may keep in memory
            (:meth:`NeighborIndex.build`). Dense features then lie in a mapped file too.
        seed : int
        """
        place = resolve_device(device)
        weight = _check_weight(weight)
        _check_rows(spectral, features.shape[0])
        if memory is None and kind not in CODED:
            kind = resolve_kind(kind, features.shape[0], place)
        neighbors = NeighborIndex.build(spectral, metric="cosine", kind=kind, device=place, memory=memory, seed=seed)
        if neighbors.kind in CODED and not sp.issparse(features):
            return cls(neighbors, DenseRows(torch.from_numpy(prepared_file(features, "cosine", None))), weight, prior)
        return cls(neighbors, feature_rows(features, place), weight, prior)

    @property
    def weight(self) -> float:
        """Share of the spectral cosine in the score."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = _check_weight(weight)

    @property
    def num_vectors(self) -> int:
        return self._neighbors.num_vectors

    @property
    def widths(self) -> tuple[int, int]:
        """Columns of the spectral coordinates and of the features."""
        return self._neighbors.dim, self._features.shape[1]

    @property
    def kind(self) -> str:
        return self._neighbors.kind

    @property
    def prior(self) -> NDArray[np.float32] | None:
        """What is added to each node's score; can be set later, one number for each node."""
        return None if self._prior is None else self._prior.numpy()

    @prior.setter
    def prior(self, prior: FloatArray | None) -> None:
        self._prior = None if prior is None else torch.from_numpy(_check_prior(prior, self.num_vectors))

    @property
    def neighbors(self) -> NeighborIndex:
        """The cosine index of the spectral coordinates alone."""
        return self._neighbors

    def __repr__(self) -> str:
        return f"CombinedIndex(num_vectors={self.num_vectors}, weight={self.weight:g}, kind={self.kind!r})"

    def search(
        self, spectral_q: FloatArray | torch.Tensor, features_q: Any, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The ``k`` best nodes of each query: ``(scores, ids)``, best first.

        ``k`` beyond the number of nodes is cut to it.
        """
        _check_rows(spectral_q, features_q.shape[0])
        if k < 1:
            raise InputError(f"k={k} neighbours were asked for; pass k >= 1.")
        k = min(int(k), self.num_vectors)
        if self.weight == 1.0 and self._prior is None:
            distances, ids = self._neighbors.search(spectral_q, k)
            return 1.0 - distances, ids
        scores = np.empty((features_q.shape[0], k), dtype=np.float32)
        ids = np.empty(scores.shape, dtype=np.int64)
        if self.kind != "exact":
            for part in blocks(len(scores), 4096):
                scores[part], ids[part] = self._search_candidates(spectral_q[part], features_q[part], k)
            return scores, ids
        for part in blocks(len(scores), self._query_block()):
            scores[part], ids[part] = self._search_all(spectral_q[part], features_q[part], k)
        return scores, ids

    def _search_all(
        self, spectral_q: FloatArray | torch.Tensor, features_q: Any, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The best of all nodes for one chunk of queries."""
        many = self.num_vectors >= max(_SCREENED_ROWS, 32 * k)
        if not many or self.weight == 0.0 or self._neighbors.device.type != "cpu":
            best, where = smallest(-self._scores(spectral_q, features_q), k)
            return -best.cpu().numpy(), where.cpu().numpy()
        scores, ids, left = self._screened(spectral_q, features_q, k)
        if len(left):
            best, where = smallest(-self._scores(spectral_q[left], features_q[left]), k)
            scores[left], ids[left] = -best.numpy(), where.numpy()
        return scores, ids

    def _screened(
        self, spectral_q: FloatArray | torch.Tensor, features_q: Any, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
        """The same from rough scores of all nodes and exact ones of those that may be best, and queries left over."""
        if self._rough is None:
            self._rough = RoughRows(self._spectral_rows())
        rough, w = self._rough, self.weight
        spectral, features = self._unit_queries(spectral_q), self._features.prepare(features_q)
        scores, slack, cosines = rough.products(spectral).mul_(w), w * rough.error + _ROUNDING, None
        if w < _LEADING:
            cosines = self._features.cosines(features)
            scores.add_(cosines, alpha=1.0 - w)
        else:  # a cosine is one at most
            slack += 1.0 - w
        if self._prior is not None:
            scores.add_(self._prior)
            slack += _ROUNDING * float(self._prior.abs().max())

        def exact(owners: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.float32]:
            near = DenseRows(self._spectral_rows()).cosines_of(spectral, owners, nodes)
            if cosines is None:
                alike = self._features.cosines_of(features, owners, nodes)
            else:
                alike = cosines[torch.from_numpy(owners), torch.from_numpy(nodes)]
            out = w * near + (1.0 - w) * alike
            return (out if self._prior is None else out + self._prior[torch.from_numpy(nodes)]).numpy()

        return screened_best(scores, slack, exact, k)

    def _search_candidates(
        self, spectral_q: FloatArray | torch.Tensor, features_q: Any, k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        ids = self._neighbors.search(spectral_q, max(20 * k, 512))[1]
        if self._prior is not None:  # nodes that the prior favours most are candidates of every query
            top = torch.topk(self._prior, min(256, self.num_vectors)).indices.numpy()
            ids = np.concatenate([ids, np.broadcast_to(top, (len(ids), len(top)))], axis=1)
        scores = self.score_pairs(spectral_q, features_q, ids)
        if self._prior is not None:  # a node that came both ways counts once
            order = np.argsort(ids, axis=1, kind="stable")
            sorted_ids = np.take_along_axis(ids, order, axis=1)
            again = np.zeros_like(ids, dtype=bool)
            np.put_along_axis(again, order[:, 1:], sorted_ids[:, 1:] == sorted_ids[:, :-1], axis=1)
            scores[again] = -np.inf
        best, best_ids = smallest(-torch.from_numpy(scores), k, torch.from_numpy(ids))
        return -best.numpy(), best_ids.numpy()

    def score_pairs(self, spectral_q: FloatArray | torch.Tensor, features_q: Any, ids: IntArray) -> NDArray[np.float32]:
        """Score of query ``i`` with each of the nodes ``ids[i]``: (m, p), as ``ids``."""
        _check_rows(spectral_q, features_q.shape[0])
        ids = np.asarray(ids)
        if ids.ndim != 2 or len(ids) != features_q.shape[0] or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(
                f"ids of shape {ids.shape} and type {ids.dtype} came, expected integers, one row for each "
                f"of the {features_q.shape[0]} queries."
            )
        if ids.size and not 0 <= ids.min() <= ids.max() < self.num_vectors:
            raise InputError(
                f"ids go from {ids.min()} to {ids.max()}, expected 0 to {self.num_vectors - 1}: "
                "the seen nodes and those added later."
            )
        where = torch.from_numpy(ids.astype(np.int64))
        rows = self._spectral_rows()
        spectral = DenseRows(rows)
        cosines = spectral.pair_cosines(spectral.prepare(spectral_q), where.to(rows.device)).cpu()
        by_feature = self._features.pair_cosines(self._features.prepare(features_q), where).cpu()
        scores = self.weight * cosines + (1.0 - self.weight) * by_feature
        return (scores if self._prior is None else scores + self._prior[where]).numpy()

    def score_all(self, spectral_q: FloatArray | torch.Tensor, features_q: Any) -> NDArray[np.float32]:
        """Scores of one chunk of queries with every node, exactly: (m, n). The caller keeps m small."""
        _check_rows(spectral_q, features_q.shape[0])
        return self._scores(spectral_q, features_q).cpu().numpy()

    def _scores(self, spectral_q: FloatArray | torch.Tensor, features_q: Any) -> torch.Tensor:
        """(m, n) combined scores on the device of the index."""
        if self.weight == 0.0:
            return self._with_prior(self._features.cosines(self._features.prepare(features_q)))
        scores = (self._unit_queries(spectral_q) @ self._spectral_rows().T).mul_(self.weight)
        if self.weight < 1.0:
            cosines = self._features.cosines(self._features.prepare(features_q))
            scores = scores.to(cosines.device).add_(cosines, alpha=1.0 - self.weight)
        return self._with_prior(scores)

    def _unit_queries(self, spectral_q: FloatArray | torch.Tensor) -> torch.Tensor:
        return unit_rows(torch.as_tensor(spectral_q).to(device=self._spectral_rows().device, dtype=torch.float32))

    def _with_prior(self, scores: torch.Tensor) -> torch.Tensor:
        return scores if self._prior is None else scores + self._prior.to(scores.device)

    def _spectral_rows(self) -> torch.Tensor:
        if self._neighbors.kind in ("exact", *CODED):  # as they lie, in memory or in a file
            return self._neighbors.rows()
        if self._rows is None:  # a copy out of the inverted lists, made only where all scores are asked for
            self._rows = self._neighbors.rows()
        return self._rows

    def _query_block(self) -> int:
        cells = block_cells(self._neighbors.device)
        if (
            self._neighbors.device.type == "cpu"
        ):  # blocks of a few MB are used again; larger ones are mapped anew each time
            cells = min(cells, _REUSED_CELLS)
        return max(1, cells // max(self.num_vectors, 1))

    def add(
        self, spectral: FloatArray | torch.Tensor, features: Any, prior: FloatArray | None = None
    ) -> NDArray[np.int64]:
        """Append nodes and return their ids; without `prior` theirs is zero."""
        _check_rows(spectral, features.shape[0])
        prepared = self._features.prepare(features)  # refuses bad features before anything has changed
        if prior is None:
            prior = np.zeros(features.shape[0], np.float32)
        more = torch.from_numpy(_check_prior(prior, features.shape[0]))
        ids = self._neighbors.add(spectral)
        if self._prior is not None or bool(more.any()):
            before = torch.zeros(int(ids[0])) if self._prior is None else self._prior
            self._prior = torch.cat([before, more])
        self._features.append_prepared(prepared)
        self._rows = self._rough = None
        return ids

    def copy(self) -> CombinedIndex:
        """An index that can be added to while this one stays as it is; only inverted lists are copied for it."""
        fresh = copy.copy(self)
        fresh._neighbors, fresh._features = self._neighbors.copy(), copy.copy(self._features)
        return fresh

    def rows_at(self, ids: IntArray) -> tuple[torch.Tensor, Any]:
        """Rows of nodes as they are compared, each of length one: spectral ones, and features, dense or sparse."""
        return self._spectral_rows()[torch.from_numpy(np.asarray(ids, np.int64))], self._features.rows[ids]

    def state(self) -> State:
        """Plain arrays and a JSON-able dictionary that :meth:`from_state` makes the index from."""
        arrays, config = self._neighbors.state()
        named = {f"neighbors_{name}": array for name, array in arrays.items()}
        arrays = {**named, **self._features.arrays()}
        if self._prior is not None:
            arrays["prior"] = self._prior.numpy()
        return arrays, {"weight": self.weight, "neighbors": config}

    @classmethod
    def from_state(
        cls, arrays: dict[str, NDArray[Any]], config: dict[str, Any], *, device: str | torch.device = "cpu"
    ) -> CombinedIndex:
        """The index that :meth:`state` described; DamagedModelError if the two do not fit together."""
        prefix = "neighbors_"
        own = {name.removeprefix(prefix): a for name, a in arrays.items() if name.startswith(prefix)}
        try:
            weight, description = _check_weight(config["weight"]), config["neighbors"]
        except (KeyError, TypeError, InputError) as error:
            raise DamagedModelError(
                f"the description of the combined index is damaged ({error}). Save the model again."
            ) from error
        neighbors = NeighborIndex.from_state(own, description, device=device)
        features = feature_rows_from_arrays(arrays, neighbors.num_vectors, neighbors.device)
        try:
            return cls(neighbors, features, weight, arrays.get("prior"))
        except InputError as error:
            raise DamagedModelError(f"the prior of the index is damaged ({error}). Save the model again.") from error

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``index.safetensors`` and ``index.json`` into ``folder``."""
        write_state(folder, *self.state())

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> CombinedIndex:
        """Read what :meth:`save` wrote."""
        return cls.from_state(*read_state(folder), device=device)


def _check_prior(prior: Any, num_rows: int) -> NDArray[np.float32]:
    array = np.array(prior, dtype=np.float32)
    if array.shape != (num_rows,) or not np.isfinite(array).all():
        raise InputError(f"prior of shape {array.shape} came, expected {num_rows} finite numbers, one for each node.")
    return array


def _check_weight(weight: float) -> float:
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number) or not 0 <= weight <= 1:
        raise InputError(f"weight={weight!r}; pass a number from 0 (features alone) to 1 (spectral coordinates alone).")
    return float(weight)


def _check_rows(spectral: FloatArray | torch.Tensor, num_rows: int) -> None:
    if spectral.shape[0] != num_rows:
        raise InputError(
            f"spectral coordinates of {spectral.shape[0]} nodes came with features of {num_rows}; "
            "pass one row of each for every node."
        )
