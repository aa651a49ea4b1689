"""Rayleigh-Ritz: the best eigenfunctions inside the span of given functions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsparc._mapped import release
from gsparc.ops.laplacian import _rows_times, operator_degrees, row_steps, walk

__all__ = ["RitzPairs", "rayleigh_ritz", "rayleigh_ritz_streamed", "solve_ritz"]

# of the squared size of the leading function. Networks give their outputs in single precision, to about 1e-7 of that
# size: a direction a thousandth as large is known to four digits, and smaller ones would be rounding made large.
_RANK_TOLERANCE = 1e-6
_BLOCK_ENTRIES = 4_000_000
_MOVED_ENTRIES = 1 << 26  # function values in double precision that are moved along the edges at once
_BLOCK_ROWS = 1 << 16  # in double precision, several times over: a graph of few edges has many rows to a block


class RitzPairs(NamedTuple):
    """Ritz values ``mu [r]`` (largest first) and the layer that makes the eigenfunctions.

    ``(values - offset [m]) @ rotation [m, r]`` is centred and orthonormal under ``pi``.
    """

    mu: Tensor
    rotation: Tensor
    offset: Tensor


def solve_ritz(gram: Tensor, energy: Tensor, offset: Tensor, *, rank_tolerance: float = 1e-9) -> RitzPairs:
    """Solve ``energy v = mu gram v`` on the numerical range of ``gram``.

    Directions in which the functions do not vary (constant features, more components than
    nodes) are dropped, so fewer pairs than columns may come back.
    """
    scale, basis = torch.linalg.eigh(gram)
    keep = scale > rank_tolerance * scale.max().clamp_min(torch.finfo(scale.dtype).tiny)
    whitener = basis[:, keep] / scale[keep].sqrt()
    mu, vectors = torch.linalg.eigh(whitener.T @ energy @ whitener)
    order = torch.argsort(mu, descending=True)
    rotation = whitener @ vectors[:, order]
    # a sign that does not depend on the solver: the largest entry of each column is positive
    if rotation.numel():
        top = rotation.abs().argmax(dim=0)
        signs = torch.sign(rotation.gather(0, top[None, :]))
        rotation = rotation * torch.where(signs == 0, torch.ones_like(signs), signs)
    return RitzPairs(mu[order], rotation, offset)


def rayleigh_ritz(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    pi: Tensor,
    values: Tensor,
    *,
    tau: float = 0.0,
    walk_length: int = 1,
) -> RitzPairs:
    """Rayleigh-Ritz for ``values [n, m]``, streamed over the edges and summed in double precision.

    ``gram = sum_i pi_i f_i f_i^T`` and ``energy = sum_ij pi_i P_ij f_i f_j^T`` for centred
    ``f``; with ``walk_length > 1`` the operator is the average of ``P, P^2, ..., P^walk_length``.
    Some functions at a time are moved along the edges: of a large graph there is no second copy of all values.
    """
    pi, (count, width) = pi.double(), values.shape
    rows = [slice(start, start + _BLOCK_ROWS) for start in range(0, count, _BLOCK_ROWS)]
    offset = torch.stack([pi[part] @ values[part].double() for part in rows]).sum(dim=0)
    gram, energy = (torch.zeros(width, width, dtype=torch.float64, device=values.device) for _ in range(2))
    step = max(1, _MOVED_ENTRIES // count)
    for some in (slice(start, start + step) for start in range(0, width, step)):
        moved = values[:, some].double() - offset[some]
        average = torch.zeros_like(moved)
        for _ in range(walk_length):
            moved = walk(indptr, indices, weights, moved, tau=tau)
            average += moved / walk_length
        for part in rows:
            own = values[part].double() - offset
            weighted = (pi[part, None] * own).T
            gram[:, some] += weighted @ own[:, some]
            energy[:, some] += weighted @ average[part]
    gram, energy = (gram + gram.T) / 2, (energy + energy.T) / 2
    return solve_ritz(gram, energy, offset, rank_tolerance=_RANK_TOLERANCE)


def rayleigh_ritz_streamed(
    indptr: np.ndarray,
    indices: np.ndarray,
    weights: np.ndarray | None,
    values: np.ndarray,
    *,
    tau: float = 0.0,
    share: tuple[int, int] = (0, 1),
    total: Callable[[Tensor], Tensor] = lambda sums: sums,
) -> RitzPairs:
    """:func:`rayleigh_ritz` for ``values [n, m]`` that lie in a file: a block of rows at a time, in double precision.

    ``P 1 = 1``, so centring can wait until all is summed: with ``o = sum_i pi_i f_i`` both matrices lose ``o o^T``.
    All that is kept are sums over rows. So several processes can take the blocks in turns: ``share`` is the number of
    this one and how many there are, ``total`` adds up a tensor over all of them.
    """
    degrees = torch.from_numpy(operator_degrees(indptr, weights, tau=tau))
    volume, functions = float(degrees.sum()), torch.from_numpy(values)
    width = values.shape[1]
    mean = torch.zeros(width, dtype=torch.float64)
    sums = torch.zeros(2 * width + 1, width, dtype=torch.float64)
    offset, gram, energy = sums[0], sums[1 : width + 1], sums[width + 1 :]
    if tau:
        mean = torch.stack([part.double().sum(dim=0) for part in functions.split(1 << 18)]).sum(dim=0) / len(values)
    for start, stop in islice(row_steps(indptr, _BLOCK_ENTRIES, _BLOCK_ROWS), share[0], None, share[1]):
        own = functions[start:stop].double()
        pi = (degrees[start:stop] / volume)[:, None]
        moved = own + tau * mean
        if indptr[stop] > indptr[start]:
            moved = moved + _rows_times(indptr, indices, weights, functions, start, stop)
        weighted = (pi * own).T
        offset += weighted.sum(dim=1)
        gram += weighted @ own
        energy += weighted @ (moved / degrees[start:stop, None])
        release(indices, weights)
    sums = total(sums)
    offset, gram, energy = sums[0], sums[1 : width + 1], sums[width + 1 :]
    outer = torch.outer(offset, offset)
    gram, energy = gram - outer, energy - outer
    return solve_ritz((gram + gram.T) / 2, (energy + energy.T) / 2, offset, rank_tolerance=_RANK_TOLERANCE)
