"""Partitions of a graph's nodes into many small parts: at random, by METIS, by nearness in the eigenspace."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gsparc._optional import import_optional
from gsparc._runtime import torch_generator
from gsparc._validation import check_count, check_share
from gsparc.exceptions import InputError
from gsparc.ops._bounded import bounded_kmeans
from gsparc.ops._knn import block_cells, blocks, unit_rows
from gsparc.ops.cells import _sort_parts

__all__ = ["check_partition", "inner_share", "partition_metis", "partition_random", "partition_spectral"]

_INT32 = 2**31 - 1


def partition_random(n: int, parts: int, seed: int = 0) -> NDArray[np.int64]:
    """Each of ``n`` nodes into one of ``parts`` parts at random; sizes differ by at most one.

    Examples
    --------
    >>> np.bincount(partition_random(10, 3, seed=0)).tolist()
    [3, 3, 4]
    """
    _check_parts(n, parts)
    label = np.empty(n, np.int64)
    label[np.random.default_rng(seed).permutation(n)] = _even_labels(n, parts)
    return label


def partition_metis(indptr: ArrayLike, indices: ArrayLike, parts: int, *, seed: int = 0) -> NDArray[np.int64]:
    """The parts that METIS finds: about equally large, few edges between them.

    Karypis and Kumar, *A fast and high quality multilevel scheme for partitioning irregular graphs*, 1998, through
    the package ``pymetis``.

    Parameters
    ----------
    indptr, indices
        Symmetric adjacency in compressed sparse rows, without self-loops: ``graph.indptr, graph.indices``.
    parts
        At most the number of nodes. METIS leaves parts of small graphs empty; the others are then renumbered, so
        that the labels are ``0, 1, ...`` without a gap.
    seed
        Of METIS's own generator.

    Examples
    --------
    >>> two_triangles = np.array([0, 2, 4, 7, 10, 12, 14]), np.array([1, 2, 0, 2, 0, 1, 3, 2, 4, 5, 3, 5, 3, 4])
    >>> label = partition_metis(*two_triangles, 2)
    >>> len(set(label[:3])), len(set(label[3:])), len(set(label))
    (1, 1, 2)
    """
    starts, ends = np.asarray(indptr), np.asarray(indices)
    n = len(starts) - 1
    _check_parts(n, parts)
    metis: Any = import_optional("pymetis", extra="metis", purpose="the partition by METIS")
    if max(len(ends), n) > _INT32:
        raise InputError(f"{len(ends)} entries came, and METIS counts to {_INT32}. Use the spectral partition.")
    if parts == 1 or not len(ends):  # without an edge there is nothing to cut, and METIS would say so on stdout
        return _even_labels(n, parts)
    options = metis.Options()
    options.seed = seed % _INT32
    adjacency = metis.CSRAdjacency(starts.astype(np.int32), ends.astype(np.int32))
    found = np.asarray(metis.part_graph(parts, adjacency, options=options).vertex_part, np.int64)
    return np.unique(found, return_inverse=True)[1].reshape(-1).astype(np.int64)


def partition_spectral(
    coordinates: Any, parts: int, *, slack: float = 0.25, rounds: int = 5, unit: bool = True, seed: int = 0
) -> NDArray[np.int64]:
    """Parts of near rows in the eigenspace, none of them much larger than the others.

    The rows are cut in two along the direction in which they vary most, and each piece again along its own
    direction, until there are ``parts`` equal pieces. Rounds of k-means follow in which a row looks at the parts
    around its own, and a part that is full turns away the farthest. ``O(n d log(parts))``; what is quadratic in the
    number of parts is one comparison of their centroids a round.

    Parameters
    ----------
    coordinates : array or tensor of shape (n, d)
        Spectral coordinates, as of :meth:`gsparc.SpectralMap.transform`. A tensor on a GPU is worked on there.
    parts
        At most ``n``. Every part has at least one row.
    slack
        A part holds at most ``(1 + slack) n / parts`` rows, rounded up. At 0 sizes differ by at most one, and no
        rounds follow.
    rounds
        Of k-means.
    unit
        Compare directions of rows rather than rows. A node's distance from the origin says how well it fits its
        community; its direction says which one that is.
    seed
        Of the power iterations that find the directions.

    Notes
    -----
    Share of the edges inside parts, Pubmed in 127 parts, 64 coordinates scaled by their eigenvalues: .28 cut in
    halves only, .40 with five rounds and a slack of a quarter, .44 by k-means without a bound (parts of 27 to 415
    nodes); METIS .68, at random .01.

    Examples
    --------
    >>> line = np.array([[0.0], [9.0], [1.0], [8.0], [4.0], [5.0]])
    >>> label = partition_spectral(line, 3, unit=False)
    >>> sorted(np.flatnonzero(label == part).tolist() for part in range(3))
    [[0, 2], [1, 3], [4, 5]]
    """
    given = coordinates if isinstance(coordinates, Tensor) else np.asarray(coordinates)
    rows = torch.as_tensor(given).detach()
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError(f"coordinates of shape {tuple(rows.shape)} came, expected a row a node and a column at least.")
    _check_parts(len(rows), parts)
    check_share("slack", slack, high=1e6)
    check_count("rounds", rounds, 0)
    rows = rows.float()
    if not bool(torch.isfinite(rows).all()):
        raise InputError("the coordinates hold NaN or infinity. Pass finite ones.")
    rows = unit_rows(rows) if unit else rows
    label = _halved(rows, parts, seed)
    if slack and rounds and parts > 1:
        bound = math.ceil((1 + slack) * len(rows) / parts)
        label = bounded_kmeans(rows, label, parts, bound, rounds)
    return label.cpu().numpy()


def _halved(rows: Tensor, parts: int, seed: int) -> Tensor:
    """Equal parts of near rows by repeated cuts along principal directions: (n,)."""
    n, device = len(rows), rows.device
    pointers = torch.arange(parts + 1, device=device) * n // parts
    order = torch.arange(n, device=device)
    generator = torch_generator(seed)
    cuts = [0, parts]  # a piece is a run of parts between two cuts
    while len(cuts) <= parts:
        start = torch.randn(rows.shape[1], generator=generator).to(device)
        bounds = pointers[torch.tensor(cuts, device=device)]
        widest = int((bounds[1:] - bounds[:-1]).max())
        for few in blocks(len(cuts) - 1, block_cells(device) // max(1, widest * rows.shape[1])):
            _sort_parts(rows, order, bounds[few.start : few.stop + 1], widest, start)
        # a piece of one part has no middle of its own: the set drops it
        cuts = sorted({*cuts, *((a + b) // 2 for a, b in pairwise(cuts))})
    label = torch.empty_like(order)
    label[order] = torch.from_numpy(_even_labels(n, parts)).to(device)
    return label


def check_partition(partition: Any, n: int) -> NDArray[np.int64]:
    """Part numbers ``[n]`` as int64, renumbered to ``0, 1, ...`` where some number is not used.

    Examples
    --------
    >>> check_partition([7, 7, 2], 3).tolist()
    [1, 1, 0]
    """
    label = partition.detach().cpu().numpy() if isinstance(partition, Tensor) else np.asarray(partition)
    if label.shape != (n,) or label.dtype.kind not in "iu":
        raise InputError(
            f"a partition of shape {label.shape} and type {label.dtype} came, expected one whole number for each "
            f"of the {n} nodes."
        )
    if label.size and label.min() < 0:
        raise InputError(f"a partition with the part number {label.min()} came, expected numbers >= 0.")
    return np.unique(label, return_inverse=True)[1].reshape(-1).astype(np.int64)


def inner_share(indptr: ArrayLike, indices: ArrayLike, label: ArrayLike) -> float:
    """Share of the entries of an adjacency that join two nodes of one part; 1 where there are none.

    Examples
    --------
    >>> path = np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2])
    >>> round(inner_share(*path, [0, 0, 1, 1]), 3)
    0.667
    """
    label, ends = np.asarray(label), np.asarray(indices)
    own = np.repeat(label, np.diff(np.asarray(indptr)))
    return float((own == label[ends]).mean()) if len(ends) else 1.0


def _even_labels(n: int, parts: int) -> NDArray[np.int64]:
    """``0 0 ... 1 1 ...``: the part of every place of an order that is cut into equal pieces."""
    pointers = np.arange(parts + 1, dtype=np.int64) * n // parts
    return np.repeat(np.arange(parts, dtype=np.int64), np.diff(pointers))


def _check_parts(n: int, parts: int) -> None:
    check_count("parts", parts, 1)
    if parts > n:
        raise InputError(f"parts={parts} came for {n} nodes, and no part may be empty. Pass at most {n}.")
