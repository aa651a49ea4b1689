"""Nearest rows, exactly (torch, in blocks) or through faiss's inverted lists: what the indexes call."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._mapped import release
from gsparc._optional import import_optional
from gsparc.exceptions import InputError

__all__ = [
    "blocks",
    "calibration_sample",
    "exact_neighbors",
    "ivf_build",
    "ivf_rows",
    "ivf_search",
    "near_exactly",
    "smallest",
    "unit_rows",
]

# Scores held at once: 64 MB of float32 on a CPU, 1 GB on a GPU.
_CPU_CELLS, _CUDA_CELLS = 1 << 24, 1 << 28
_FEW_CELLS = 1 << 21  # where memory is short
_ROW_BLOCK = {"cpu": 1 << 16, "cuda": 1 << 20}
# Candidates kept beyond k before distances are computed again without cancellation.
_MARGIN = 16
# So few queries are compared with every row entry by entry: preparing the products would cost more.
_FEW = 2
# Relative error of a score from a matrix product, with room to spare.
_ROUNDING = 1e-6
_TRAIN_ROWS_PER_CELL = 50
_CALIBRATION_QUERIES = 512
_CALIBRATION_K = 10
# Half a point above the promised .98: the recall is measured on a sample.
_TARGET_RECALL = 0.985


def blocks(total: int, size: int) -> list[slice]:
    """Consecutive slices of at most ``size`` that cover ``range(total)``."""
    return [slice(start, min(start + size, total)) for start in range(0, total, max(size, 1))]


def block_cells(device: torch.device) -> int:
    """How many scores may be held at once on ``device``."""
    return _CUDA_CELLS if device.type == "cuda" else _CPU_CELLS


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    """Rows scaled to length one; a zero row stays zero."""
    # Dividing by the largest entry first keeps tiny and huge rows away from under- and overflow.
    largest = rows.abs().amax(dim=1, keepdim=True) if rows.shape[1] else rows.new_zeros(len(rows), 1)
    rows = rows / torch.where(largest > 0, largest, torch.ones_like(largest))
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows / torch.where(length > 0, length, torch.ones_like(length))


def smallest(values: torch.Tensor, k: int, ids: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``k`` smallest values of each row, ascending, equal values by the lower id.

    ``torch.topk`` picks any of several equal values; rows whose k-th value is shared are sorted in full.
    ``ids`` names the columns (their positions when left out).
    """
    m, n = values.shape
    if ids is None:
        ids = torch.arange(n, device=values.device).expand(m, n)
    best, where = torch.topk(values, k, dim=1, largest=False)
    best_ids = ids.gather(1, where)
    tied = torch.nonzero((values <= best.max(dim=1, keepdim=True).values).sum(dim=1) > k).flatten()
    for part in torch.split(tied, max(1, (1 << 22) // max(n, 1))):
        full, full_ids = _ordered(values[part], ids[part])
        best[part], best_ids[part] = full[:, :k], full_ids[:, :k]
    return _ordered(best, best_ids)


def _ordered(values: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Columns sorted by value, then by id."""
    ids, order = torch.sort(ids, dim=1)
    values, order_by_value = torch.sort(values.gather(1, order), dim=1, stable=True)
    return values, ids.gather(1, order_by_value)


def exact_neighbors(
    queries: torch.Tensor, rows: torch.Tensor, k: int, *, inner: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Exact k nearest of ``rows`` by Euclidean distance, or by ``1 - inner product`` of unit rows.

    Candidates come from matrix products over blocks of queries times blocks of rows; their distances are
    computed again entry by entry, so that equal rows have equal distances and a row is at 0 from itself.
    A query for which rounding could have cut off a candidate is compared with every row that way.
    """
    n = len(rows)
    if len(queries) <= _FEW and len(queries) * rows.numel() <= block_cells(rows.device):
        return smallest(_distances(queries, rows, inner=inner), k)
    wanted = min(n, k + _MARGIN)
    row_block = min(n, _ROW_BLOCK[rows.device.type])
    query_block = max(1, block_cells(rows.device) // max(row_block, wanted * rows.shape[1], 1))
    distances = torch.empty(len(queries), k, device=rows.device)
    ids = torch.empty(len(queries), k, dtype=torch.int64, device=rows.device)
    for part in blocks(len(queries), query_block):
        found, cut = _candidates(queries[part], rows, wanted, row_block, inner=inner)
        exact = _distances(queries[part], rows[found], inner=inner)
        distances[part], ids[part] = smallest(exact, k, found)
        if wanted < n:
            reach = distances[part, -1] - 1.0 if inner else distances[part, -1].square() / 2
            doubtful = part.start + torch.nonzero(cut <= reach).flatten()
            for few in torch.split(doubtful, max(1, block_cells(rows.device) // rows.numel())):
                every = _distances(queries[few], rows, inner=inner)
                distances[few], ids[few] = smallest(every, k)
    return distances, ids


def _candidates(
    queries: torch.Tensor, rows: torch.Tensor, wanted: int, row_block: int, *, inner: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of the ``wanted`` nearest rows of each query, and a score that all other rows surely exceed."""
    # Centring loses nothing and keeps |q|^2 - 2 q.v + |v|^2 from cancelling far from the origin.
    centre = rows.new_zeros(rows.shape[1]) if inner else rows.mean(dim=0)
    values = queries.new_empty(len(queries), 0)
    ids = torch.empty(len(queries), 0, dtype=torch.int64, device=rows.device)
    radius = rows.new_zeros(())
    for part in blocks(len(rows), row_block):
        scores, largest = _block_scores(queries - centre, rows[part], centre, inner=inner)
        radius = torch.maximum(radius, largest)
        new, new_ids = smallest(scores, min(wanted, scores.shape[1]))
        values, ids = torch.cat([values, new], dim=1), torch.cat([ids, new_ids + part.start], dim=1)
        if part.start:
            values, ids = smallest(values, min(wanted, values.shape[1]), ids)
    size = 1.0 if inner else (queries - centre).square().sum(dim=1) + radius
    return ids, values[:, -1] - _ROUNDING * size


def _block_scores(
    queries: torch.Tensor, rows: torch.Tensor, centre: torch.Tensor, *, inner: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Minus the inner product, or half the squared distance, of all pairs; and the rows' largest |v|^2."""
    if inner:
        return -(queries @ rows.T), rows.new_ones(())
    rows = rows - centre
    squares = rows.square().sum(dim=1)
    halves = (squares + queries.square().sum(dim=1, keepdim=True)) / 2
    return halves.addmm_(queries, rows.T, alpha=-1.0), squares.max()


def _distances(queries: torch.Tensor, rows: torch.Tensor, *, inner: bool) -> torch.Tensor:
    """Distances entry by entry; ``rows`` is (m, p, dim), or (p, dim) for the same rows in every query."""
    if inner:
        return 1.0 - (rows * queries.unsqueeze(1)).sum(dim=2)
    return torch.linalg.vector_norm(rows - queries.unsqueeze(1), dim=2)


def ivf_build(
    rows: NDArray[np.float32], *, inner: bool, num_cells: int | None, num_probes: int | None, seed: int
) -> tuple[Any, int, float]:
    """An inverted-list index, the number of cells to probe and the recall@10 measured with it."""
    faiss = import_optional("faiss", extra="all", purpose="An approximate neighbour index (kind='ivf')")
    n, dim = rows.shape
    # 4 sqrt(n): past that the coarse search costs more than shorter lists save.
    cells = num_cells or max(1, min(n, round(4 * np.sqrt(n))))
    if not 1 <= cells <= n:
        raise InputError(f"num_cells={cells} for {n} vectors; pass a number from 1 to {n}, or None.")
    metric = faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2
    quantizer = faiss.IndexFlatIP(dim) if inner else faiss.IndexFlatL2(dim)
    index = faiss.IndexIVFFlat(quantizer, dim, cells, metric)
    index.cp.seed, index.cp.niter, index.cp.spherical = seed % (2**31 - 1), 8, inner
    index.cp.min_points_per_centroid = 1
    rng = np.random.default_rng(seed)
    sample = min(n, cells * _TRAIN_ROWS_PER_CELL)
    index.cp.max_points_per_centroid = _TRAIN_ROWS_PER_CELL
    index.train(rows[np.sort(rng.choice(n, sample, replace=False))])
    for part in blocks(n, 1 << 18):
        index.add(rows[part])
    probes, recall = _choose_probes(index, rows, rng, inner=inner, num_probes=num_probes)
    return index, probes, recall


def calibration_sample(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows that an index is measured on."""
    return np.sort(rng.choice(n, min(n, _CALIBRATION_QUERIES), replace=False))


def near_exactly(
    queries: NDArray[np.float32], rows: NDArray[np.float32], k: int, *, inner: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """As :func:`exact_neighbors` but for ties that rounding hides, over mapped rows that are let go of on the way."""
    asked = torch.from_numpy(queries)
    values, ids = torch.empty(len(asked), 0), torch.empty(len(asked), 0, dtype=torch.int64)
    size = max(1024, _FEW_CELLS // max(len(queries), 1))
    wanted = min(len(rows), k + _MARGIN)
    for part in blocks(len(rows), size):
        block = torch.from_numpy(np.ascontiguousarray(rows[part]))
        found, _ = _candidates(asked, block, min(wanted, len(block)), size, inner=inner)
        exact = _distances(asked, block[found], inner=inner)
        values, ids = torch.cat([values, exact], dim=1), torch.cat([ids, found + part.start], dim=1)
        values, ids = smallest(values, min(wanted, values.shape[1]), ids)
        release(rows)
    return values[:, :k].numpy(), ids[:, :k].numpy()


def _choose_probes(
    index: Any, rows: NDArray[np.float32], rng: np.random.Generator, *, inner: bool, num_probes: int | None
) -> tuple[int, float]:
    """The fewest cells that reach the target recall on rows of the index themselves."""
    n = len(rows)
    k = min(_CALIBRATION_K, n - 1)
    if k < 1:
        return 1, 1.0
    chosen = calibration_sample(n, rng)
    truth_d, truth = exact_neighbors(torch.from_numpy(rows[chosen]), torch.from_numpy(rows), k + 1, inner=inner)
    truth_d, truth = truth_d.numpy(), truth.numpy()
    grid = [int(num_probes)] if num_probes else _probe_grid(index.nlist)
    recall = 0.0
    for probes in grid:
        found_d, found = ivf_search(index, rows[chosen], k + 1, probes, inner=inner)
        recall = _recall(chosen, (truth_d, truth), (found_d, found), k)
        if recall >= _TARGET_RECALL:
            return probes, recall
    return grid[-1], recall


def _probe_grid(cells: int) -> list[int]:
    """1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... up to all cells."""
    grid = sorted({factor * 2**i for factor in (1, 3, 5, 7) for i in range(30)})
    return [p for p in grid if p < cells] + [cells]


def _recall(
    chosen: NDArray[np.int64],
    truth: tuple[NDArray[np.float32], NDArray[np.int64]],
    found: tuple[NDArray[np.float32], NDArray[np.int64]],
    k: int,
) -> float:
    """Share of the found rows, the query itself apart, that are no farther than the true k-th.

    By distance rather than by id, so that equal rows count as each other.
    """
    own = truth[1] == chosen[:, None]
    reach = np.where(own.any(axis=1), truth[0][:, k], truth[0][:, k - 1])[:, None]  # the k-th other row
    near = (found[0] <= reach + 1e-5 * (1.0 + reach)) & (found[1] != chosen[:, None])
    return float(np.minimum(near.sum(axis=1), k).mean() / k)


def ivf_search(
    index: Any, queries: NDArray[np.float32], k: int, probes: int, *, inner: bool
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Approximate k nearest; a query whose cells hold fewer than ``k`` rows looks into more of them."""
    faiss = import_optional("faiss", extra="all", purpose="An approximate neighbour index (kind='ivf')")
    values, ids = index.search(queries, k, params=faiss.SearchParametersIVF(nprobe=probes))
    short = ids[:, -1] < 0
    while probes < index.nlist and short.any():
        probes = min(index.nlist, probes * 4)
        more = faiss.SearchParametersIVF(nprobe=probes)
        values[short], ids[short] = index.search(queries[short], k, params=more)
        short = ids[:, -1] < 0
    distances = 1.0 - values if inner else np.sqrt(np.maximum(values, 0.0))
    return distances, ids


def ivf_rows(index: Any) -> NDArray[np.float32]:
    """The rows of an inverted-list index, in the order of their ids."""
    faiss = import_optional("faiss", extra="all", purpose="An approximate neighbour index (kind='ivf')")
    rows = np.empty((index.ntotal, index.d), dtype=np.float32)
    lists = index.invlists
    for cell in range(index.nlist):
        size = lists.list_size(cell)
        if size:
            ids = faiss.rev_swig_ptr(lists.get_ids(cell), size)
            codes = faiss.rev_swig_ptr(lists.get_codes(cell), size * lists.code_size)
            rows[ids] = codes.view(np.float32).reshape(size, index.d)
    return rows
