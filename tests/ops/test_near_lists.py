"""Lists of nearest members against all distances: the same shells, whatever the queries came with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.ops._near_lists import _smallest_shells, home_cells, near_lists, nested_sums
from gsparc.ops.cells import Cells


def lists(cells: Cells, queries: torch.Tensor, reach: int, own: torch.Tensor | None = None) -> torch.Tensor:
    home, order = torch.sort(home_cells(cells, queries), stable=True)
    out = torch.empty(len(queries), reach, dtype=cells.order.dtype)
    out[order] = near_lists(cells, queries[order], home, reach, None if own is None else own[order])
    return out


@settings(deadline=None, max_examples=60)
@given(
    values=st.lists(st.integers(0, 40), min_size=1, max_size=300),
    reach=st.sampled_from([1, 2, 4, 16]),
    length=st.sampled_from([16, 32]),
)
def test_smallest_shells(values: list[int], reach: int, length: int) -> None:
    scores = np.array([values, values[::-1]], np.float32)
    if len(values) < reach:
        return
    slots, doubtful = _smallest_shells(scores, reach, length, np.full(2, 1e-6, np.float32))
    for row in range(2):
        ordered = np.sort(scores[row])
        np.testing.assert_array_equal(np.sort(scores[row, slots[row]]), ordered[:reach])
        ends = [2**j for j in range(1, reach.bit_length()) if 2**j < len(values)]
        assert (row in doubtful) or all(ordered[end] > ordered[end - 1] for end in ends)


@pytest.mark.parametrize("inner", [False, True])
def test_shells_are_those_of_all_distances(inner: bool) -> None:
    """A thousand nodes are looked at in full."""
    rng = np.random.default_rng(0)
    vectors = torch.from_numpy(rng.standard_normal((1000, 6)).astype(np.float32))
    vectors = torch.nn.functional.normalize(vectors, dim=1) if inner else vectors
    queries, own = vectors[::50].clone(), torch.arange(0, 1000, 50)
    got = lists(Cells.build(vectors, cell_size=16, inner=inner), queries, 64, own)
    distances = torch.cdist(queries.double(), vectors.double())
    distances[torch.arange(20), own] = torch.inf
    expected = distances.argsort(dim=1)
    for end in (2, 4, 8, 16, 32, 64):
        assert [set(row) for row in got[:, :end].tolist()] == [set(row) for row in expected[:, :end].tolist()]


def test_a_list_does_not_depend_on_what_came_with_it() -> None:
    rng = np.random.default_rng(1)
    centres = 3 * rng.standard_normal((40, 8))
    vectors = torch.from_numpy(
        (centres[rng.integers(40, size=5000)] + rng.standard_normal((5000, 8))).astype(np.float32)
    )
    cells = Cells.build(vectors, cell_size=16)
    queries = torch.from_numpy(np.float32(centres[rng.integers(40, size=300)] + 2 * rng.standard_normal((300, 8))))
    together = lists(cells, queries, 128)
    alone = torch.cat([lists(cells, query[None], 128) for query in queries])
    for end in (2, 4, 8, 16, 32, 64, 128):
        np.testing.assert_array_equal(together[:, :end].sort(dim=1).values, alone[:, :end].sort(dim=1).values)
    near = torch.cdist(queries, vectors).topk(128, largest=False).indices
    found = [len(set(a) & set(b)) for a, b in zip(together.tolist(), near.tolist(), strict=True)]
    assert np.mean(found) >= 0.98 * 128
    assert min(found) >= 0.5 * 128  # strays, far from every cell, look around themselves


def test_nested_sums() -> None:
    table = torch.arange(16.0).view(8, 2)
    near = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]])
    sums = nested_sums(near, table, 3)
    assert sums[:, 0].tolist() == [[2.0, 4.0], [12.0, 16.0], [56.0, 64.0]]
    assert sums[:, 1].tolist() == [[26.0, 28.0], [44.0, 48.0], [56.0, 64.0]]
