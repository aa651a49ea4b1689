"""Token lists: token ``j`` of a node is the mean feature row of its ``2^j`` nearest seen nodes.

Means over up to ``2^exact_tokens`` nodes are sums of their rows; which nodes these are is looked for in the cells
around the query's own (:mod:`gsparc.ops._near_lists`). Beyond, a mean is put together from cells of
near nodes (:mod:`gsparc.ops.cells`): which of the nodes around the query are among its ``2^j`` nearest is known
one by one, so it is known *how many* of each cell are; those beyond the ``2^exact_tokens`` nearest enter as that
many times the mean row of their cell's remaining members. What is approximate is thus which members of a cell
that lies half inside are meant, and, where the coordinates have no structure, nodes in cells that were not looked
into. A list costs ``O(2^K dim + (2^exact_tokens + 2^K / cell_size) d)``, and no table of neighbours is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsparc._runtime import resolve_device
from gsparc._typing import FloatArray, IntArray
from gsparc._validation import check_count
from gsparc.exceptions import DamagedModelError, InputError
from gsparc.ops._index_state import State
from gsparc.ops._knn import _distances, blocks
from gsparc.ops._near_lists import home_cells, near_lists, nested_sums
from gsparc.ops.cells import Candidates, Cells
from gsparc.ops.neighbors import NeighborIndex

__all__ = ["RowSource", "TokenIndex", "tokens_from_neighbors", "tokens_reference"]

RowSource: TypeAlias = "Tensor | NDArray[Any] | Callable[[Tensor], Tensor]"
"""Feature rows: a matrix (n, d), which may be mapped from a file, or a function of row numbers (m,) to rows (m, d)."""

_LEAST_CANDIDATES = 512  # however short the list: few candidates would miss near nodes
_MARGIN = 48  # ranks beyond the nearest whose distances are computed again: more equal ones come in any order
_SUM_ROWS = 1 << 14
_NEAR_BLOCK = 1024  # queries whose nearest nodes are looked for at once: their scores stay in the cache


def tokens_reference(
    queries: FloatArray,
    vectors: FloatArray,
    rows: FloatArray,
    num_tokens: int,
    exclude: IntArray | None = None,
) -> FloatArray:
    """Token lists by their definition, one query at a time: (B, num_tokens, d). What the index is tested by.

    ``exclude``: one row of ``vectors`` for each query that is left out (a seen node is no neighbour of itself).
    Where fewer than ``2^j`` nodes are left, the token is the mean of all of them, and zero where none is.

    Examples
    --------
    >>> import numpy as np
    >>> vectors, rows = np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([[1.0], [3.0], [5.0], [9.0]])
    >>> tokens_reference(np.array([[0.2]]), vectors, rows, 2).ravel().tolist()
    [2.0, 4.5]
    >>> tokens_reference(vectors[:1], vectors, rows, 2, exclude=np.array([0])).ravel().round(2).tolist()
    [4.0, 5.67]
    """
    v, x = np.asarray(vectors, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    out = np.zeros((len(queries), num_tokens, x.shape[1]))
    for i, query in enumerate(np.asarray(queries, dtype=np.float64)):
        nearest = np.argsort(np.linalg.norm(v - query, axis=1), kind="stable")
        if exclude is not None:
            nearest = nearest[nearest != exclude[i]]
        for j in range(num_tokens):
            some = x[nearest[: 2 ** (j + 1)]]
            out[i, j] = some.mean(axis=0) if len(some) else 0.0
    return out


def tokens_from_neighbors(neighbors: Tensor, rows: RowSource, num_tokens: int) -> Tensor:
    """Token lists from known neighbours: (B, num_tokens, d), exact.

    ``neighbors`` (B, m) are row numbers, nearest first, without the node itself. Token ``j`` is the mean of the first
    ``min(2^j, m)`` of them, so pass ``m >= 2^num_tokens`` unless there are no more nodes.

    Examples
    --------
    >>> import torch
    >>> rows = torch.tensor([[1.0], [3.0], [5.0], [9.0]])
    >>> tokens_from_neighbors(torch.tensor([[0, 1, 2, 3]]), rows, 2).flatten().tolist()
    [2.0, 4.5]
    """
    check_count("num_tokens", num_tokens, 1)
    batch, m = neighbors.shape
    x = _read(rows, neighbors.reshape(-1)).view(batch, m, -1)
    return torch.matmul(_prefix_means(num_tokens, m, x.device), x)


class TokenIndex:
    """Token lists over seen nodes, made batch by batch; made by :meth:`build` or :meth:`from_state`.

    Attributes
    ----------
    num_vectors, num_columns : int
        Seen nodes and width of their rows.
    exact_tokens : int
        Tokens up to this one are means of the rows of the nearest nodes that were found.
    oversample : float
        Nodes looked at for a list of ``K`` tokens, as a multiple of ``2^K``.

    Examples
    --------
    >>> import numpy as np
    >>> from gsparc.ops.neighbors import NeighborIndex
    >>> vectors, rows = np.array([[0.0], [1.0], [3.0], [7.0]]), np.array([[1.0], [3.0], [5.0], [9.0]])
    >>> index = TokenIndex.build(NeighborIndex.build(vectors), rows)
    >>> index.tokens(np.array([[0.2]]), 2).flatten().tolist()
    [2.0, 4.5]
    """

    def __init__(
        self,
        index: NeighborIndex,
        cells: Cells,
        rows: RowSource,
        sums: Tensor,
        *,
        exact_tokens: int,
        oversample: float,
    ) -> None:
        self.exact_tokens, self.oversample = exact_tokens, oversample
        self.cells = cells
        in_memory = isinstance(rows, np.ndarray) and not isinstance(rows, np.memmap) and rows.flags.writeable
        self._index, self._sums = index, sums
        self._rows = torch.from_numpy(rows) if in_memory and rows.dtype == np.float32 else rows
        self._label = cells.labels()
        self._sizes = cells.sizes.float()
        self._total = sums.sum(dim=0, dtype=torch.float64).float()

    @classmethod
    def build(
        cls,
        index: NeighborIndex,
        rows: RowSource,
        *,
        exact_tokens: int = 8,
        cell_size: int = 16,
        oversample: float = 2.0,
        seed: int = 0,
        device: str | torch.device | None = None,
    ) -> TokenIndex:
        """Cells over the vectors of ``index``, and the sums of their rows.

        Parameters
        ----------
        index : NeighborIndex
            Its vectors and its metric say what is near; it is not searched.
        rows : array, tensor or function
            One feature row for each vector of ``index``. Kept, not copied: a tensor stays on its device, an
            array may be mapped from a file, a function takes row numbers (m,) and returns rows (m, d); several
            threads may call it at once.
        exact_tokens : int
            More of them cost time and lower the error of the rest.
        cell_size : int
            Members of a cell, on average.
        oversample : float
            How many times ``2^K`` nodes are looked at.
        seed : int
        device : {"cpu", "cuda", "auto"}, optional
            Where lists are made; the index's own when left out.
        """
        check_count("exact_tokens", exact_tokens, 0)
        if not oversample >= 1:
            raise InputError(f"oversample={oversample!r} came, expected a number >= 1.")
        place = index.device if device is None else resolve_device(device)
        vectors = index.rows().to(place)
        cells = Cells.build(vectors, cell_size=cell_size, seed=seed, inner=index.metric == "cosine")
        sums = _cell_sums(cells, rows)
        return cls(index, cells, rows, sums, exact_tokens=exact_tokens, oversample=float(oversample))

    @property
    def num_vectors(self) -> int:
        return self.cells.num_vectors

    @property
    def num_columns(self) -> int:
        return self._sums.shape[1]

    def __repr__(self) -> str:
        return (
            f"TokenIndex(num_vectors={self.num_vectors}, num_columns={self.num_columns}, "
            f"num_cells={self.cells.num_cells}, exact_tokens={self.exact_tokens})"
        )

    def tokens(self, queries: FloatArray | Tensor, num_tokens: int, exclude: IntArray | Tensor | None = None) -> Tensor:
        """Token lists of ``queries`` (B, dim): (B, num_tokens, d), on the device of the cells.

        ``exclude`` (B,) are the row numbers of queries that are seen nodes: none counts as its own neighbour.
        Token ``j`` covers ``min(2^j, nodes there are)``: all of them, exactly, where ``2^j`` is no less than that.
        A node without any other has tokens of zeros. Of nodes at equal distances the lower row numbers come
        first, unless more than 48 share the last place: then any of these count.
        """
        check_count("num_tokens", num_tokens, 1)
        queries = self._index.prepare(queries, self._sums.device)
        own = self._check_exclude(exclude, len(queries))
        available = self.num_vectors - (own is not None)
        searched = min(num_tokens, max(0, (available - 1).bit_length() - 1) if available > 0 else 0)
        shape = len(queries), num_tokens, self.num_columns
        out = self._sums.new_empty(shape) if searched == num_tokens else self._sums.new_zeros(shape)
        if searched < num_tokens and available:
            rest = self._total if own is None else self._total - _read(self._rows, own, self._sums.device)
            out[:, searched:] = (rest / available).view(-1, 1, self.num_columns)
        if searched and len(queries) and searched <= self.exact_tokens:

            def means(some: Tensor, near: Tensor) -> None:
                out[some, :searched] = self._means(near, searched)

            self._each_nearest(queries, 2**searched, own, means)
        elif searched and len(queries):

            def fill(part: Tensor) -> None:
                out[part, :searched] = self._lists(queries[part], searched, None if own is None else own[part])

            _each(self._visits(queries, own, self._block(searched)), fill)
        return out

    def nearest(
        self, queries: FloatArray | Tensor, num_tokens: int, exclude: IntArray | Tensor | None = None
    ) -> Tensor | None:
        """Row numbers of the ``2^num_tokens`` nodes that a list averages, (B, ``2^num_tokens``), nearest shells first.

        None where lists are not made of them alone: more than ``exact_tokens`` tokens, or fewer nodes.
        """
        queries = self._index.prepare(queries, self._sums.device)
        own = self._check_exclude(exclude, len(queries))
        if num_tokens > self.exact_tokens or 2**num_tokens >= self.num_vectors - (own is not None):
            return None
        found = torch.empty(len(queries), 2**num_tokens, dtype=self.cells.order.dtype, device=queries.device)

        def keep(some: Tensor, near: Tensor) -> None:
            found[some] = near

        self._each_nearest(queries, 2**num_tokens, own, keep)
        return found

    def cell_of(self, nodes: Tensor) -> Tensor:
        """The cell of each of some nodes: those of one cell lie near one another."""
        return self._label[nodes]

    def _each_nearest(
        self, queries: Tensor, reach: int, own: Tensor | None, use: Callable[[Tensor, Tensor], None]
    ) -> None:
        """Hand the ``reach`` nearest of all queries to ``use(which, near)``, those around the same cells together."""
        home = torch.cat([home_cells(self.cells, queries[few]) for few in blocks(len(queries), 1024)])
        home, visits = torch.sort(home, stable=True)

        def find(part: Tensor) -> None:
            some = visits[part]
            use(some, near_lists(self.cells, queries[some], home[part], reach, None if own is None else own[some]))

        _each(list(torch.arange(len(queries), device=queries.device).split(self._near_block(reach))), find)

    def _means(self, near: Tensor, count: int) -> Tensor:
        """Means (B, count, d) over the first 2, 4, ... of ``near``."""
        if isinstance(self._rows, Tensor) and self._rows.dtype == torch.float32 and not self._rows.is_cuda:
            sizes = 2.0 ** torch.arange(1, count + 1).view(-1, 1, 1)
            return nested_sums(near, self._rows, count).div_(sizes).transpose(0, 1)
        x = _read(self._rows, near.flatten(), self._sums.device).view(-1, near.shape[1], self.num_columns)
        return torch.matmul(_prefix_means(count, near.shape[1], x.device), x)

    def _visits(self, queries: Tensor, own: Tensor | None, size: int) -> list[Tensor]:
        """Blocks of queries, near ones together: they read the same vectors and rows, which then are in the cache."""
        if len(queries) <= size:
            return [torch.arange(len(queries), device=queries.device)]
        if own is not None:
            cell = self._label[own]
        else:
            cell = torch.cat([self.cells.nearest(queries[few], 1).flatten() for few in blocks(len(queries), 4096)])
        return list(torch.sort(cell, stable=True).indices.split(size))

    def _lists(self, queries: Tensor, num_tokens: int, own: Tensor | None) -> Tensor:
        """Lists of more than ``exact_tokens`` tokens of a block of queries; ``2^num_tokens`` other nodes exist."""
        exact, reach, near_reach = self.exact_tokens, 2**num_tokens, 2**self.exact_tokens
        found = self.cells.candidates(queries, self._num_candidates(num_tokens), needed=reach + 1)
        ids = self.cells.order[found.positions]
        scores = found.scores if own is None else found.scores.masked_fill(ids == own.unsqueeze(1), torch.inf)
        slots = self._ranked(queries, found, ids, scores, near_reach)[:, :reach]
        near = ids.gather(1, slots[:, :near_reach])
        x = _read(self._rows, near.flatten(), scores.device).view(len(ids), near_reach, -1)
        weights = _prefix_means(exact, near_reach, x.device).expand(len(ids), -1, -1)
        share, in_cell, own_share = self._shares(found, slots, near_reach, own)
        counts = 2.0 ** torch.arange(exact + 1, num_tokens + 1, device=x.device).view(1, -1, 1)
        # each of the nearest counts once, less what its cell's sum brings in of it
        tokens = torch.bmm(torch.cat([weights, (1.0 - in_cell) / counts], dim=1), x)
        sums = self._sums.index_select(0, found.cells.flatten()).view(*found.cells.shape, -1)
        tokens[:, exact:].baddbmm_(share / counts, sums)
        if own is not None:
            tokens[:, exact:] -= own_share / counts * _read(self._rows, own, x.device).unsqueeze(1)
        return tokens

    def _ranked(self, queries: Tensor, found: Candidates, ids: Tensor, scores: Tensor, near_reach: int) -> Tensor:
        """Candidates by ascending distance: the nearest by distances without rounding, equal ones by their ids."""
        slots = _ascending(scores)
        some = slots[:, : near_reach + _MARGIN]
        some = some.gather(1, _ascending(ids.gather(1, some)))
        positions = found.positions.gather(1, some)
        rows = self.cells.vectors.index_select(0, positions.flatten()).view(*positions.shape, -1)
        exact = _distances(queries, rows, inner=self.cells.inner).clamp_min_(0.0)
        exact = exact.masked_fill_(torch.isinf(scores.gather(1, some)), torch.inf)
        slots[:, : some.shape[1]] = some.gather(1, _ascending(exact))
        return slots

    def _shares(
        self, found: Candidates, slots: Tensor, near_reach: int, own: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """How much of each cell's sum stands for its members of ranks beyond ``near_reach``.

        A cell of ``m`` members, ``a`` of them among the nearest (whose rows are read) and ``c`` of the ranks in
        question, stands for these ``c`` with ``c / (m - a)`` of the sum of its other ``m - a`` rows. Returns that
        share for each cell (B, far, cells), for the cell of each of the nearest (B, far, near_reach), and for the
        cell of the node itself (B, far, 1).
        """
        batch, num_cells = found.cells.shape
        local = found.local.gather(1, slots)  # which cell the node of each rank lies in: (B, reach)
        near_cell, far_cell = local[:, :near_reach], local[:, near_reach:]
        num_shells = (slots.shape[1] // near_reach).bit_length() - 1  # each twice as wide as the one before
        each = torch.arange(num_shells, device=slots.device)
        shell = each.repeat_interleave(near_reach * 2**each, output_size=far_cell.shape[1])
        ones = self._sums.new_ones(1, 1)
        counts = ones.new_zeros(batch, num_shells * num_cells)
        counts.scatter_add_(1, shell * num_cells + far_cell, ones.expand_as(far_cell))
        counts = counts.view(batch, num_shells, num_cells).cumsum_(dim=1)
        known = ones.new_zeros(batch, num_cells).scatter_add_(1, near_cell, ones.expand_as(near_cell))
        own_cell = torch.zeros_like(known)
        if own is not None:
            own_cell = (found.cells == self._label[own].unsqueeze(1)).to(known.dtype)
        others = (self._sizes[found.cells] - known - own_cell).clamp_min_(1.0)
        share = counts / others.unsqueeze(1)
        in_cell = share.gather(2, near_cell.unsqueeze(1).expand(-1, num_shells, -1))
        return share, in_cell, torch.bmm(share, own_cell.unsqueeze(2))

    def _num_candidates(self, num_tokens: int) -> int:
        return min(self.num_vectors, max(math.ceil(self.oversample * 2**num_tokens), _LEAST_CANDIDATES) + 1)

    def _near_block(self, reach: int) -> int:
        return _NEAR_BLOCK if not self._sums.is_cuda else self.cells.query_block(max(1024, 2 * reach))

    def _block(self, num_tokens: int) -> int:
        read = 2**self.exact_tokens * self.num_columns // self.cells.vectors.shape[1]
        return self.cells.query_block(max(self._num_candidates(num_tokens), read))

    def _check_exclude(self, exclude: IntArray | Tensor | None, batch: int) -> Tensor | None:
        if exclude is None:
            return None
        own = torch.as_tensor(exclude).to(self._sums.device, torch.int64)
        if own.shape != (batch,) or (batch and not 0 <= int(own.min()) <= int(own.max()) < self.num_vectors):
            raise InputError(
                f"exclude of shape {tuple(own.shape)} came for {batch} queries; expected one row number from 0 to "
                f"{self.num_vectors - 1} for each."
            )
        return own

    def state(self) -> State:
        """The cells, for :meth:`from_state`; the index and the rows are saved by whoever holds them."""
        arrays, config = self.cells.state()
        return arrays, {**config, "exact_tokens": self.exact_tokens, "oversample": self.oversample}

    @classmethod
    def from_state(
        cls,
        arrays: dict[str, NDArray[Any]],
        config: dict[str, Any],
        index: NeighborIndex,
        rows: RowSource,
        *,
        device: str | torch.device | None = None,
    ) -> TokenIndex:
        """The token index that :meth:`state` described; DamagedModelError if it does not fit ``index``."""
        exact, oversample = config.get("exact_tokens"), config.get("oversample")
        if not isinstance(exact, int) or exact < 0 or not isinstance(oversample, int | float) or not oversample >= 1:
            raise DamagedModelError(
                f"the token lists have exact_tokens={exact!r} and oversample={oversample!r}; expected numbers. "
                "Save the model again."
            )
        place = index.device if device is None else resolve_device(device)
        cells = Cells.from_state(arrays, config, index.rows().to(place))
        return cls(index, cells, rows, _cell_sums(cells, rows), exact_tokens=exact, oversample=float(oversample))


def _each(parts: list[Tensor], work: Callable[[Tensor], None]) -> None:
    """Do all parts; on a CPU with one thread for each, since threads that share every small step mostly wait."""
    threads = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()  # modes belong to a thread and must be handed on

    def alone(part: Tensor) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            work(part)

    if threads == 1 or len(parts) < 2 * threads or parts[0].device.type != "cpu":
        for part in parts:
            alone(part)
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(alone, parts))
    finally:
        torch.set_num_threads(threads)


def _prefix_means(num_tokens: int, count: int, device: torch.device) -> Tensor:
    """Weights (num_tokens, count) whose row ``j`` averages the first ``min(2^j, count)``."""
    reach = (2 ** torch.arange(1, num_tokens + 1, device=device)).clamp_max_(count).unsqueeze(1)
    return (torch.arange(count, device=device) < reach) / reach.clamp_min(1).float()


def _ascending(scores: Tensor) -> Tensor:
    """Columns of each row by ascending value; equal and infinite ones in their order. Values are not negative."""
    # the bits of a float that is not negative sort as an integer; the column rides in the lower half
    whole = scores.view(torch.int32) if scores.is_floating_point() else scores
    keys = (whole.long() << 32) | torch.arange(scores.shape[1], device=scores.device)
    if keys.device.type == "cpu":  # numpy's vectorised sort takes a third of torch's time
        keys = torch.from_numpy(np.sort(keys.numpy(), axis=1))
    else:
        keys = torch.sort(keys, dim=1).values
    return keys & 0xFFFFFFFF


def _read(rows: RowSource, ids: Tensor, device: torch.device | None = None) -> Tensor:
    """Rows ``ids`` (m,) as float32 on ``device``."""
    if isinstance(rows, Tensor):
        found = rows.index_select(0, ids.to(rows.device))
    elif isinstance(rows, np.ndarray):
        found = torch.from_numpy(np.asarray(rows[ids.cpu().numpy()]))
    else:
        found = rows(ids)
    return found.to(device=device, dtype=torch.float32)


def _cell_sums(cells: Cells, rows: RowSource) -> Tensor:
    """Sum of the rows of every cell: (num_cells, d), read in blocks."""
    n = cells.num_vectors
    if isinstance(rows, Tensor | np.ndarray) and (rows.ndim != 2 or len(rows) != n):
        raise InputError(f"rows of shape {tuple(rows.shape)} came for {n} vectors; expected one row for each.")
    device = cells.vectors.device
    sums = None
    starts = cells.pointers.cpu().numpy()
    cut = np.searchsorted(starts, np.arange(0, n, _SUM_ROWS), side="left")
    for first, last in zip(cut, [*cut[1:], cells.num_cells], strict=True):
        ids = cells.order[int(starts[first]) : int(starts[last])]
        if len(ids):
            sizes = cells.sizes[int(first) : int(last)]
            some = torch.segment_reduce(_read(rows, ids, device), "sum", lengths=sizes, axis=0, unsafe=True)
            if sums is None:
                sums = torch.empty(cells.num_cells, some.shape[1], device=device)
            sums[int(first) : int(last)] = some
    return sums if sums is not None else torch.empty(0, 0, device=device)
