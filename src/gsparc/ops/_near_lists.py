"""The nearest members of cells, a few hundred a query and thousands of queries at once.

All queries whose nearest cell is the same look at the same members, those of the cells around that one; a query far
from its cell's centre looks around itself. So a query's list does not depend on what it came with, and queries that
come together share one matrix product. Their scores
become integers with the column in the lower bits; short runs of these are sorted, and of two sorted runs the
smaller half is the smaller of each pair of one run and the other reversed: no step branches.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc.ops._gathered import gathered_dots
from gsparc.ops._knn import _distances, blocks, smallest
from gsparc.ops.cells import Cells, _half_squares, _slots

__all__ = ["home_cells", "near_lists", "nested_sums"]

_SHORTEST = 128  # a run that one vectorised sort takes
_LOOKED = 8  # members looked at, as a multiple of the list's length
_STRAY = 0.6  # of the distance to the last cell around its own: a query farther than that from its cell looks by itself
_MARGIN = 48  # ranks beyond the last whose distances are computed again: more equal ones come in any order
_ROUNDING = 1e-6  # relative error of a score from a matrix product, with room to spare


class _Around(NamedTuple):
    """Members of cells around ``G`` centres: places in :attr:`Cells.order` (G, looked), how many, and how far out."""

    places: Tensor
    total: Tensor
    radius: Tensor


def home_cells(cells: Cells, queries: Tensor) -> Tensor:
    """The nearest cell of each query: (B,)."""
    if cells.groups is not None or queries.is_cuda:
        return cells.nearest(queries, 1).flatten()
    scores = torch.addmm(cells._middle_halves, queries - cells.centre, cells._middles.T, alpha=-1.0)
    return torch.from_numpy(scores.numpy().argmin(axis=1))  # torch's own is not vectorised along rows


def near_lists(cells: Cells, queries: Tensor, home: Tensor, reach: int, own: Tensor | None) -> Tensor:
    """Ids of the ``reach`` nearest members of each of a block of queries: (B, reach), equal ones by their ids.

    Which nodes are the first 2, 4, 8, ... is exact among those looked at; inside such a shell the order may differ
    by rounding. ``home`` (B,) is the nearest cell of each query, equal ones side by side; ``own`` (B,) is left out.
    """
    kinds, group = torch.unique_consecutive(home.long(), return_inverse=True)
    around = _around(cells, cells.centroids[kinds], reach)
    apart = torch.linalg.vector_norm(queries - cells.centroids[home.long()], dim=1)
    stray = apart > _STRAY * around.radius[group]
    if not bool(stray.any()):
        return _lists(cells, queries, around, group, reach, own)
    ids = torch.empty(len(queries), reach, dtype=cells.order.dtype, device=queries.device)
    usual, stray = torch.nonzero(~stray).flatten(), torch.nonzero(stray).flatten()
    ids[usual] = _lists(cells, queries[usual], around, group[usual], reach, None if own is None else own[usual])
    around, group = _around(cells, queries[stray], reach), torch.arange(len(stray), device=home.device)
    ids[stray] = _lists(cells, queries[stray], around, group, reach, None if own is None else own[stray])
    return ids


def _lists(cells: Cells, queries: Tensor, around: _Around, group: Tensor, reach: int, own: Tensor | None) -> Tensor:
    """The lists of queries of which number ``i`` looks at the members ``group[i]``; ``group`` ascends."""
    places, total, _ = around
    scores, bound = _scores(cells, queries, places, group)
    if bool((total < places.shape[1]).any()):
        past = torch.arange(places.shape[1], device=group.device) >= total[group].unsqueeze(1)
        scores.masked_fill_(past, torch.inf)
    if own is not None:
        scores.masked_fill_(cells.order[places][group] == own.unsqueeze(1), torch.inf)
    if scores.device.type != "cpu":
        return _in_order(cells, queries, places[group], scores, reach)
    slots, doubtful = _smallest_shells(scores.numpy(), reach, max(_SHORTEST, reach), bound.numpy())
    ids = cells.order[places[group.unsqueeze(1), torch.from_numpy(slots)]]
    if len(doubtful):
        some = torch.from_numpy(doubtful)
        ids[some] = _in_order(cells, queries[some], places[group[some]], scores[some], reach)
    return ids


def nested_sums(neighbors: Tensor, table: Tensor, num_tokens: int) -> Tensor:
    """Sums over the first 2, 4, ... ``2^num_tokens`` neighbours, one token after the other: (num_tokens, B, d).

    ``neighbors`` (B, m) are row numbers of ``table`` (n, d), ``m >= 2^num_tokens``. No copy of the rows is made.

    Examples
    --------
    >>> import torch
    >>> nested_sums(torch.tensor([[0, 1, 2, 3]]), torch.tensor([[1.0], [3.0], [5.0], [9.0]]), 2).flatten().tolist()
    [4.0, 18.0]
    """
    out = table.new_empty(num_tokens, len(neighbors), table.shape[1])
    for j in range(num_tokens):
        shell = neighbors[:, 2**j if j else 0 : 2 ** (j + 1)].contiguous()
        out[j] = torch.nn.functional.embedding_bag(shell, table, mode="sum")
        if j:
            out[j] += out[j - 1]
    return out


def _around(cells: Cells, centres: Tensor, reach: int) -> _Around:
    """Members of the cells around each centre."""
    looked = min(_LOOKED * max(_SHORTEST, reach), cells.num_vectors)
    count = min(cells.num_cells, math.ceil(1.25 * looked * cells.num_cells / cells.num_vectors) + 4)
    if looked == cells.num_vectors:
        count = cells.num_cells
    while True:
        near = cells.nearest(centres, count)
        sizes = cells.sizes[near]
        total = sizes.sum(dim=1)
        if count == cells.num_cells or bool((total > reach).all()):
            break
        count = min(cells.num_cells, 4 * count)  # many tiny cells: look into more of them
    radius = torch.linalg.vector_norm(cells.centroids[near[:, -1]] - centres, dim=1)
    if looked == cells.num_vectors:
        radius = torch.full_like(radius, torch.inf)
    return _Around(_slots(cells.pointers[near], sizes, looked)[0], total, radius)


def _scores(cells: Cells, queries: Tensor, around: Tensor, group: Tensor) -> tuple[Tensor, Tensor]:
    """Half squared distances (or 1 - inner products) (B, looked), never negative, and how far off they may be (B,)."""
    shifted = queries - cells.centre
    halves = cells._halves[around]
    own = shifted.new_full((len(queries),), 0.5) if cells.inner else _half_squares(shifted)
    scores = shifted.new_empty(len(queries), around.shape[1])
    if scores.device.type == "cpu":
        stop = 0
        for number, count in enumerate(torch.bincount(group, minlength=len(around)).tolist()):
            start, stop = stop, stop + count
            if count:
                rows = cells._shifted.index_select(0, around[number])
                torch.addmm(halves[number], shifted[start:stop], rows.T, alpha=-1.0, out=scores[start:stop])
    else:
        for part in blocks(len(queries), cells.query_block(around.shape[1])):
            dots = gathered_dots(shifted[part], cells._shifted, around[group[part]])
            scores[part] = halves[group[part]] - dots
    bound = 2 * _ROUNDING * (own + (halves.max() if halves.numel() else 0.0))
    return scores.add_(own.unsqueeze(1)).clamp_min_(0.0), bound


def _smallest_shells(
    scores: NDArray[np.float32], reach: int, length: int, bound: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Columns of the ``reach`` smallest of each row, ascending, and rows whose shells rounding might have mixed up.

    Examples
    --------
    >>> scores = np.array([[4.0, 1.0, 3.0, 2.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
    >>> slots, doubtful = _smallest_shells(scores, 2, 2, np.full(2, 1e-6, np.float32))
    >>> slots[0].tolist(), doubtful.tolist()
    ([1, 3], [1])
    """
    batch, looked = scores.shape
    runs = 1 << max(0, math.ceil(looked / length) - 1).bit_length()
    bits = max(1, (runs * length - 1).bit_length())
    levels = min(1 << 23, (1 << (32 - bits)) - 2)  # whole numbers that a float32 holds
    largest = scores.max(initial=1e-30)
    if np.isinf(largest):
        largest = scores.max(initial=1e-30, where=np.isfinite(scores))
    scale = np.float32(levels / largest)
    keys = np.minimum(scores * scale, np.float32(levels + 1)).astype(np.int32).view(np.uint32)
    np.left_shift(keys, bits, out=keys)
    np.bitwise_or(keys, np.arange(looked, dtype=np.uint32), out=keys)
    if looked < runs * length:
        keys = np.pad(keys, ((0, 0), (0, runs * length - looked)), constant_values=0xFFFFFFFF)
    lists = keys.reshape(batch, runs, length)
    lists.sort(axis=2)
    rest = np.full(batch, 0xFFFFFFFF, np.uint32)
    while lists.shape[1] > 1:
        one, other = lists[:, ::2], lists[:, 1::2, ::-1]
        rest = np.minimum(rest, np.maximum(one, other).min(axis=(1, 2)))
        lists = np.minimum(one, other)
        lists.sort(axis=2)
    ends = 2 ** np.arange(1, reach.bit_length())
    last = (lists[:, 0, ends - 1] >> bits).astype(np.int64)
    after = np.append(lists[:, 0], rest[:, None], axis=1)[:, ends] >> bits
    gap = after.astype(np.int64) - last
    doubtful = (gap <= scale * bound[:, None] + 1).any(axis=1)
    return (lists[:, 0, :reach] & ((1 << bits) - 1)).astype(np.int64), np.flatnonzero(doubtful)


def _in_order(cells: Cells, queries: Tensor, places: Tensor, scores: Tensor, reach: int) -> Tensor:
    """The same by distances without rounding, for some queries."""
    rough, best = torch.topk(scores, min(scores.shape[1], reach + _MARGIN), dim=1, largest=False)
    places = places.gather(1, best)
    exact = _distances(queries, cells.vectors[places], inner=cells.inner).clamp_min_(0.0)
    return smallest(exact.masked_fill_(torch.isinf(rough), torch.inf), reach, cells.order[places])[1]
