"""k-means: scikit-learn's on a few rows, faiss's on many, and one in torch for GPUs and where faiss is missing."""

from __future__ import annotations

import importlib.util
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsparc._runtime import torch_generator
from gsparc.exceptions import InputError

__all__ = ["KMeansResult", "kmeans", "nearest_centers", "squared_distances"]

_SKLEARN_UP_TO = 50_000  # rows
_POINTS_A_CENTER = 256  # rows that the centres of many rows are fitted on, as faiss's own default
_BLOCK = 1 << 24  # distances at once


class KMeansResult(NamedTuple):
    """Centres, the nearest one of every row, and the sum of squared distances to it."""

    centers: np.ndarray  # [k, d] float32
    labels: np.ndarray  # [n] int32
    inertia: float


def kmeans(
    rows: np.ndarray,
    n_clusters: int,
    *,
    n_init: int = 10,
    max_iter: int = 300,
    seed: int = 0,
    device: torch.device | str = "cpu",
    backend: str = "auto",
) -> KMeansResult:
    """The best of ``n_init`` runs of Lloyd's algorithm; the same seed gives the same bytes on a CPU.

    Parameters
    ----------
    rows : float32 array of shape (n, d)
    backend : {"auto", "sklearn", "faiss", "torch"}
        ``"auto"``: scikit-learn up to 50,000 rows; beyond, torch on a GPU or where faiss is missing, else faiss. The
        last two fit the centres on at most 256 rows a centre, chosen at random.

    Examples
    --------
    >>> found = kmeans(np.array([[0.0], [0.1], [5.0], [5.2]], np.float32), 2, backend="torch")
    >>> sorted(round(float(value), 2) for value in found.centers.ravel()), round(found.inertia, 3)
    ([0.05, 5.1], 0.025)
    """
    rows = np.ascontiguousarray(rows, dtype=np.float32)
    _check_distinct(rows, n_clusters)
    kind = _backend(len(rows), torch.device(device)) if backend == "auto" else backend
    if kind == "sklearn":
        centers = _with_sklearn(rows, n_clusters, n_init, max_iter, seed)
    elif kind == "faiss":
        centers = _with_faiss(rows, n_clusters, n_init, max_iter, seed)
    else:
        centers = _with_torch(rows, n_clusters, n_init, max_iter, seed, torch.device(device))
    labels, near = nearest_centers(rows, centers, device)
    return KMeansResult(centers, labels, float(near.sum(dtype=np.float64)))


def _backend(n: int, device: torch.device) -> str:
    if n <= _SKLEARN_UP_TO:
        return "sklearn"
    return "torch" if device.type == "cuda" or importlib.util.find_spec("faiss") is None else "faiss"


def _check_distinct(rows: np.ndarray, n_clusters: int) -> None:
    if len(rows) > 100 * n_clusters and len(np.unique(rows[: 100 * n_clusters], axis=0)) >= n_clusters:
        return  # spares sorting millions of rows
    distinct = len(np.unique(rows, axis=0))
    if distinct < n_clusters:
        raise InputError(
            f"n_clusters={n_clusters} came, but the {len(rows)} nodes (n_samples = {len(rows)}) have {distinct} "
            f"different positions. Pass n_clusters <= {distinct}."
        )


def _with_sklearn(rows: np.ndarray, k: int, n_init: int, max_iter: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    # threads add up their parts in the order they finish in: the last bits would change from run to run
    with threadpool_limits(limits=1):
        model = KMeans(k, n_init=n_init, max_iter=max_iter, random_state=seed).fit(rows)  # pyright: ignore[reportArgumentType]
    return np.asarray(model.cluster_centers_, dtype=np.float32)


def _with_faiss(rows: np.ndarray, k: int, n_init: int, max_iter: int, seed: int) -> np.ndarray:
    import faiss

    model: Any = faiss.Kmeans(
        rows.shape[1],
        k,
        niter=min(max_iter, 50),
        nredo=n_init,
        seed=seed % (2**31),
        max_points_per_centroid=_POINTS_A_CENTER,
        min_points_per_centroid=1,
    )
    model.train(rows)
    return np.asarray(model.centroids, dtype=np.float32).reshape(k, -1)


def _with_torch(rows: np.ndarray, k: int, n_init: int, max_iter: int, seed: int, device: torch.device) -> np.ndarray:
    generator = torch_generator(seed)
    sample = torch.from_numpy(rows)
    if len(rows) > _POINTS_A_CENTER * k:
        chosen = torch.randperm(len(rows), generator=generator)[: max(_POINTS_A_CENTER * k, 10_000)]
        sample = sample[chosen.sort().values]
    shift = sample.mean(dim=0)  # far from zero squared norms would swallow the differences
    sample = (sample - shift).to(device)
    best, lowest = None, float("inf")
    for _ in range(n_init):
        centers, inertia = _lloyd(sample, _plus_plus(sample, k, generator), max_iter)
        if inertia < lowest or best is None:
            best, lowest = centers, inertia
    assert best is not None
    return (best.cpu() + shift).numpy()


def _plus_plus(rows: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Starting centres, each drawn with probability proportional to the squared distance to those before it."""
    first = int(torch.randint(len(rows), (1,), generator=generator))
    centers = [rows[first]]
    near = (rows - rows[first]).square().sum(dim=1).double()
    for _ in range(k - 1):
        target = torch.rand(1, generator=generator, dtype=torch.float64).to(rows.device) * near.sum()
        chosen = int(torch.searchsorted(near.cumsum(0), target).clamp_max(len(rows) - 1))
        centers.append(rows[chosen])
        near = torch.minimum(near, (rows - rows[chosen]).square().sum(dim=1).double())
    return torch.stack(centers)


def _lloyd(rows: Tensor, centers: Tensor, max_iter: int) -> tuple[Tensor, float]:
    label = torch.full((len(rows),), -1, device=rows.device)
    inertia = float("inf")
    for _ in range(max_iter):
        fresh, near = _assign(rows, centers)
        inertia = float(near.double().sum())
        if bool((fresh == label).all()):
            break
        label = fresh
        # sorted by cluster and summed in runs: adding in any order would not repeat to the bit on a GPU
        order = torch.sort(label, stable=True).indices
        sizes = torch.bincount(label, minlength=len(centers))
        means = torch.segment_reduce(rows[order], "mean", lengths=sizes, axis=0, unsafe=True)
        centers = torch.where(sizes[:, None] > 0, means, centers)
        empty = (sizes == 0).nonzero().ravel()
        if len(empty):  # an empty cluster starts again at a row that is far from its centre
            centers[empty] = rows[near.topk(len(empty)).indices]
    return centers, inertia


def _assign(rows: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    label = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    near = torch.empty(len(rows), device=rows.device)
    step = max(1, _BLOCK // len(centers))
    for start in range(0, len(rows), step):
        part = squared_distances(rows[start : start + step], centers)
        near[start : start + step], label[start : start + step] = part.min(dim=1)
    return label, near


def squared_distances(rows: Tensor, centers: Tensor) -> Tensor:
    """``[m, k]`` squared distances; exact zeros where a row is a centre up to rounding."""
    products = torch.addmm(centers.square().sum(dim=1)[None, :], rows, centers.T, alpha=-2.0)
    return (products + rows.square().sum(dim=1, keepdim=True)).clamp_min_(0.0)


def nearest_centers(
    rows: np.ndarray, centers: np.ndarray, device: torch.device | str = "cpu"
) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centre of every row (int32) and the squared distance to it."""
    shift = np.asarray(centers).mean(axis=0)
    middle = torch.from_numpy(np.ascontiguousarray(centers - shift)).to(device)
    labels = np.empty(len(rows), np.int32)
    near = np.empty(len(rows), np.float32)
    step = max(1, _BLOCK // max(len(centers), rows.shape[1]))
    for start in range(0, len(rows), step):
        part = torch.from_numpy(np.ascontiguousarray(rows[start : start + step] - shift)).to(device)
        found, distance = _assign(part, middle)
        labels[start : start + step] = found.cpu().numpy()
        near[start : start + step] = distance.cpu().numpy()
    return labels, near
