"""Products of queries with rows of a table that are named one by one, without a copy of those rows."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["gathered_dots", "gathered_dots_reference"]

_log = logging.getLogger(__name__)
_ROWS = 64  # that one program of the kernel multiplies
_WIDEST = 512  # columns up to which the kernel is used: it holds a block of whole rows


def gathered_dots_reference(queries: Tensor, table: Tensor, places: Tensor) -> Tensor:
    """``out[b, t] = queries[b] . table[places[b, t]]`` by copying the rows: (B, T).

    Examples
    --------
    >>> gathered_dots_reference(torch.tensor([[1.0, 2.0]]), torch.eye(2), torch.tensor([[1, 0, 1]])).tolist()
    [[2.0, 1.0, 2.0]]
    """
    rows = table.index_select(0, places.flatten()).view(*places.shape, table.shape[1])  # (B, T, dim)
    return torch.bmm(queries.unsqueeze(1), rows.transpose(1, 2)).squeeze(1)  # as rows times columns: 9 x faster


def gathered_dots(queries: Tensor, table: Tensor, places: Tensor) -> Tensor:
    """:func:`gathered_dots_reference`; on a GPU each row is read once, where a copy would be written and read too."""
    if not queries.is_cuda or table.shape[1] > _WIDEST or not places.numel() or _broken:
        return gathered_dots_reference(queries, table, places)
    try:
        return _run(queries.contiguous(), table.contiguous(), places.contiguous())
    except Exception as error:  # no triton, no compiler, no kernel for this card: the copy serves everywhere
        _log.info("rows are copied before they are multiplied: %s", " ".join(str(error).split())[:200])
        _broken.append(True)
        return gathered_dots_reference(queries, table, places)


_broken: list[bool] = []  # whether the kernel could not be made here


def _run(queries: Tensor, table: Tensor, places: Tensor) -> Tensor:
    (batch, count), dim = places.shape, table.shape[1]
    out = torch.empty(batch, count, device=queries.device, dtype=torch.float32)
    grid = (batch, -(-count // _ROWS))
    width = 1 << max(4, (dim - 1).bit_length())
    with torch.cuda.device(queries.device):
        _kernel()[grid](queries, table, places, out, count, dim, WIDTH=width, ROWS=_ROWS)
    return out


@functools.cache
def _kernel() -> Any:
    """The kernel; made when it is first needed, since importing triton takes a second."""
    global tl  # noqa: PLW0603 - the kernel's source is compiled with the names of this module
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]

    jit: Callable[[Any], Any] = triton.jit

    @jit
    def dots(queries, table, places, out, count, dim, WIDTH: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
        query = tl.program_id(0).to(tl.int64)
        slot = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, WIDTH)
        inside, real = slot < count, column < dim
        place = tl.load(places + query * count + slot, mask=inside, other=0).to(tl.int64)
        left = tl.load(queries + query * dim + column, mask=real, other=0.0)
        rows = tl.load(table + place[:, None] * dim + column[None, :], mask=inside[:, None] & real[None, :], other=0.0)
        tl.store(out + query * count + slot, tl.sum(rows * left[None, :], axis=1), mask=inside)

    return dots
