"""Cells that take in more vectors: the centroids stay, each new vector joins the nearest one."""

from __future__ import annotations

import torch
from torch import Tensor

from gsparc.ops._knn import block_cells, blocks
from gsparc.ops.cells import LEAST_LOOKED, Cells, _int

__all__ = ["grown_cells"]


def grown_cells(cells: Cells, rows: Tensor) -> Cells:
    """Cells over the old vectors and ``rows`` (m, dim), whose row numbers go on from the old ones.

    Centroids stay as they were built, so the cell of a vector does not depend on what came with it or before it, and
    a query that equals a vector looks into that vector's cell first. Only a cell that has grown beyond what a
    query always looks into (four times the average) is cut into several. The old cells are left as they are; their
    vectors are copied once.

    Examples
    --------
    >>> cells = Cells.build(torch.tensor([[0.0], [9.0], [1.0], [8.0]]), cell_size=2)
    >>> more = grown_cells(cells, torch.tensor([[8.2], [0.4]]))
    >>> sorted(sorted(more.order[a:b].tolist()) for a, b in zip(more.pointers[:-1], more.pointers[1:]))
    [[0, 2, 5], [1, 3, 4]]
    """
    if not len(rows):
        return cells
    before, total = cells.num_vectors, cells.num_vectors + len(rows)
    size = max(1, block_cells(rows.device) // max(1, min(cells.num_cells, 8192)))
    label = torch.cat([cells.nearest(rows[part], 1).flatten() for part in blocks(len(rows), size)]).long()
    by_cell = torch.sort(label, stable=True).indices
    added = torch.bincount(label, minlength=cells.num_cells)
    pointers = torch.zeros_like(cells.pointers)
    torch.cumsum(cells.sizes + added, 0, out=pointers[1:])
    # every cell keeps its members in place and takes the new ones behind them
    each = torch.arange(cells.num_cells, device=rows.device)
    owner = torch.repeat_interleave(each, cells.sizes, output_size=before)
    old_places = torch.arange(before, device=rows.device) + (pointers[:-1] - cells.pointers[:-1])[owner]
    first = torch.cumsum(added, 0) - added
    rank = torch.arange(len(rows), device=rows.device) - first[label[by_cell]]
    new_places = (pointers[:-1] + cells.sizes)[label[by_cell]] + rank
    vectors = cells.vectors.new_empty(total, cells.vectors.shape[1])
    vectors[old_places], vectors[new_places] = cells.vectors, rows[by_cell]
    order = torch.empty(total, dtype=_int(total), device=rows.device)
    order[old_places] = cells.order.to(order.dtype)
    order[new_places] = (by_cell + before).to(order.dtype)
    average = before / cells.num_cells
    crowded = torch.nonzero((added > 0) & (cells.sizes + added > LEAST_LOOKED * average)).flatten()
    centroids = cells.centroids
    if len(crowded):
        pointers, centroids = _cut(vectors, order, pointers, centroids, crowded.tolist(), average)
    return Cells(vectors, order, pointers, centroids, inner=cells.inner)


def _cut(
    vectors: Tensor, order: Tensor, pointers: Tensor, centroids: Tensor, crowded: list[int], average: float
) -> tuple[Tensor, Tensor]:
    """Cut crowded cells into parts of about ``average`` members, reordered in place: new pointers and centroids."""
    bounds, middles, last = [], [], 0
    for cell in crowded:
        start, stop = int(pointers[cell]), int(pointers[cell + 1])
        few = Cells.build(vectors[start:stop], cell_size=max(1, round(average)))
        vectors[start:stop], order[start:stop] = few.vectors, order[start:stop][few.order.long()]
        bounds += [pointers[last : cell + 1], start + few.pointers[1:-1]]
        middles += [centroids[last:cell], few.centroids]
        last = cell + 1
    return torch.cat([*bounds, pointers[last:]]), torch.cat([*middles, centroids[last:]])
