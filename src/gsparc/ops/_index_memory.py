"""Which index fits into so much memory: whole rows, or short codes with the rows themselves in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gsparc._validation import check_memory, check_name
from gsparc.exceptions import InputError

__all__ = ["CODED", "IndexPlan", "num_cells_for", "plan_index", "plans", "within"]

CODED = ("ivf-pq", "ivf-sq8")
"""Kinds that keep codes in memory, and the rows in a mapped file."""
_ID = 8  # bytes of an id in an inverted list
_FEW = 64  # vectors of which no codes can be learned
_SLACK = 1.25  # lists grow as vectors do: some of what they hold is not used yet


class IndexPlan(NamedTuple):
    """An index of one kind for a number of vectors."""

    kind: str
    codes: str
    """faiss's name of what a list holds: ``"Flat"``, ``"SQ8"``, ``"PQ32x4fs"``."""
    num_bytes: int
    """What stays in memory, about."""


def num_cells_for(num_vectors: int) -> int:
    """Cells of inverted lists: past 4 sqrt(n) the coarse search costs more than shorter lists save."""
    return max(1, min(num_vectors, round(4 * np.sqrt(num_vectors))))


def plans(num_vectors: int, dim: int, *, exact_up_to: int, num_cells: int | None = None) -> list[IndexPlan]:
    """Every index that could be made, those that answer best first.

    Examples
    --------
    >>> [(plan.kind, plan.codes) for plan in plans(100_000, 64, exact_up_to=1000)]
    [('ivf', 'Flat'), ('ivf-sq8', 'SQ8'), ('ivf-pq', 'PQ64x4fs'), ('ivf-pq', 'PQ32x4fs'), ('ivf-pq', 'PQ16x4fs')]
    """
    cells = (num_cells or num_cells_for(num_vectors)) * dim * 4

    def lists(code_size: float) -> int:
        return round(_SLACK * num_vectors * (code_size + _ID)) + cells

    exact = [IndexPlan("exact", "Flat", num_vectors * dim * 4)] if num_vectors <= exact_up_to else []
    whole = [*exact, IndexPlan("ivf", "Flat", lists(4 * dim))]
    if num_vectors < _FEW:
        return whole
    parts = [size for share in (1, 2, 4) for size in [_parts(dim, dim // share)] if size]
    coded = [IndexPlan("ivf-pq", f"PQ{size}x4fs", lists((size + size % 2) / 2)) for size in dict.fromkeys(parts)]
    return [*whole, IndexPlan("ivf-sq8", "SQ8", lists(dim)), *coded]


def _parts(dim: int, most: int) -> int:
    """Into how many equal parts vectors are cut for a code of four bits each: a divisor, at most so many."""
    return next((size for size in range(most, 0, -1) if dim % size == 0), 0)


def plan_index(
    num_vectors: int,
    dim: int,
    memory: int | None,
    *,
    exact_up_to: int,
    kind: str = "auto",
    num_cells: int | None = None,
) -> IndexPlan:
    """The best index of ``kind`` (``"auto"``: of any) that stays within ``memory`` bytes.

    Examples
    --------
    >>> plan_index(10_000_000, 64, 2_000_000_000, exact_up_to=50_000).codes
    'SQ8'
    >>> plan_index(10_000_000, 64, 500_000_000, exact_up_to=50_000).codes
    'PQ32x4fs'
    """
    limit = num_vectors if kind == "exact" else exact_up_to
    every = plans(num_vectors, dim, exact_up_to=limit, num_cells=num_cells)
    possible = [plan for plan in every if kind in ("auto", plan.kind)]
    fitting = [plan for plan in possible if memory is None or plan.num_bytes <= memory]
    if not possible:
        raise InputError(f"kind={kind!r} came with {num_vectors} vectors; it needs {_FEW} at least. Pass kind='auto'.")
    if not fitting:
        least = min(possible, key=lambda plan: plan.num_bytes)
        what = "an index" if kind == "auto" else f"an index of kind {kind!r}"
        raise InputError(
            f"{what} of {num_vectors:,} vectors of {dim} components does not fit into {memory:,} bytes of memory; the "
            f"smallest ({least.codes}) takes {least.num_bytes:,} bytes. Allow at least that."
        )
    return fitting[0]


def within(
    shape: Sequence[int], memory: int | str | None, kind: str, *, exact_up_to: int, num_cells: int | None
) -> tuple[str, str]:
    """Kind and codes of the index of vectors of this shape that stays within so much memory."""
    if len(shape) != 2:
        raise InputError(
            f"vectors of shape {tuple(shape)} came, expected (rows, dim). A single vector is one row: v[None, :]."
        )
    if not shape[0]:
        raise InputError("an index needs at least one vector, got 0 rows.")
    if kind == "cells":
        raise InputError("kind='cells' keeps every row; leave memory= out, or pass kind='auto'.")
    check_name("index kind", kind, ("auto", "exact", "ivf", *CODED))
    if num_cells is not None and not 1 <= num_cells <= shape[0]:
        raise InputError(f"num_cells={num_cells} for {shape[0]} vectors; pass a number from 1 to {shape[0]}, or None.")
    limit = None if memory is None else check_memory("memory", memory)
    plan = plan_index(shape[0], shape[1], limit, exact_up_to=exact_up_to, kind=kind, num_cells=num_cells)
    return plan.kind, plan.codes
