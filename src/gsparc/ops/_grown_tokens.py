"""Token lists that take in more nodes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gsparc.ops._grown_cells import grown_cells
from gsparc.ops.cells import Cells
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.tokens import _SUM_ROWS, RowSource, TokenIndex, _cell_sums, _read

__all__ = ["grown_tokens"]


def grown_tokens(tokens: TokenIndex, index: NeighborIndex, rows: RowSource, vectors: Tensor) -> TokenIndex:
    """The token index of the old nodes and of ``vectors`` (m, dim), prepared as ``index`` compares them.

    ``index`` and ``rows`` hold all nodes, old ones first. Sums are made anew for the cells that a new node joined and
    for no other; they are what an index that was saved and loaded has, to the bit. ``tokens`` stays as it is.
    """
    cells = grown_cells(tokens.cells, vectors.to(tokens.cells.vectors.device))
    if cells.num_cells != tokens.cells.num_cells:  # some were cut, and the others have moved
        return _with(tokens, index, cells, rows, _cell_sums(cells, rows))
    sums = tokens._sums.clone()
    changed = torch.nonzero(cells.sizes != tokens.cells.sizes).flatten()
    for part in _few_members(cells, changed):
        sizes = cells.sizes[part]
        start = torch.repeat_interleave(cells.pointers[part] - (sizes.cumsum(0) - sizes), sizes)
        ids = cells.order[start + torch.arange(len(start), device=start.device)]
        sums[part] = torch.segment_reduce(_read(rows, ids, sums.device), "sum", lengths=sizes, axis=0, unsafe=True)
    return _with(tokens, index, cells, rows, sums)


def _with(tokens: TokenIndex, index: NeighborIndex, cells: Cells, rows: RowSource, sums: Tensor) -> TokenIndex:
    return TokenIndex(index, cells, rows, sums, exact_tokens=tokens.exact_tokens, oversample=tokens.oversample)


def _few_members(cells: Cells, chosen: Tensor) -> list[Tensor]:
    """The chosen cells in runs that hold about ``_SUM_ROWS`` members, so that few rows are read at once."""
    if not len(chosen):
        return []
    run = (cells.sizes[chosen].cumsum(0) // _SUM_ROWS).cpu().numpy()
    cuts = np.flatnonzero(np.diff(run)) + 1
    return list(torch.tensor_split(chosen, torch.from_numpy(cuts)))
