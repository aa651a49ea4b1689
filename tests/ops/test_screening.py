"""The best by rough scores first: the same as ranking all exact scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.ops import _screening
from gsparc.ops._screening import RoughRows, best_reference, screened_best


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 60), st.floats(0.0, 0.3), st.booleans())
def test_the_best_are_those_of_the_full_ranking(seed: int, m: int, n: int, slack: float, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    exact = rng.random((m, n)).astype(np.float32)
    if ties:
        exact = np.round(exact, 1)
    k = int(rng.integers(1, n + 1))
    rough = exact - slack * rng.random((m, n)).astype(np.float32)
    asked = []

    def pairs(owners: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        asked.append(len(nodes))
        return exact[owners, nodes]

    scores, ids, left = screened_best(torch.from_numpy(rough), slack + 1e-6, pairs, k)
    expected = best_reference(exact, k)
    assert not len(left)
    np.testing.assert_array_equal(ids, expected[1])
    np.testing.assert_array_equal(scores, expected[0])
    assert sum(asked) <= m * n  # none is scored twice


def test_few_are_scored_exactly() -> None:
    exact = np.linspace(1.0, 0.0, 1001, dtype=np.float32)[None, :]
    asked = []

    def pairs(owners: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        asked.extend(nodes.tolist())
        return exact[owners, nodes]

    _, ids, _ = screened_best(torch.from_numpy(exact), 0.0505, pairs, k=2)
    assert ids.tolist() == [[0, 1]]
    assert sorted(asked) == list(range(52))  # the second is 0.999, and 0.9485 is less than 0.0505 below it


def test_rows_with_too_many_or_without_numbers_are_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_screening, "_MOST", 30)
    exact = np.zeros((3, 100), np.float32)
    exact[1] = np.arange(100)
    exact[2] = np.nan
    scores, ids, left = screened_best(torch.from_numpy(exact), 0.1, lambda row, node: exact[row, node], k=3)
    assert left.tolist() == [0, 2]
    assert ids[1].tolist() == [99, 98, 97]
    assert scores[1].tolist() == [99.0, 98.0, 97.0]


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 300), st.booleans())
def test_rough_products_keep_their_error(seed: int, dim: int, half: bool) -> None:
    rng = np.random.default_rng(seed)
    rows, queries = unit(rng.standard_normal((50, dim))), unit(rng.standard_normal((5, dim)))
    rows[:5] = queries  # the largest products
    rough = RoughRows(torch.from_numpy(rows), half=half)
    found = rough.products(torch.from_numpy(queries))
    assert found.dtype == torch.float32
    difference = np.abs(found.numpy() - queries.astype(np.float64) @ rows.astype(np.float64).T)
    assert difference.max() <= rough.error


def test_a_trial_decides_on_half_precision() -> None:
    rough = RoughRows(torch.eye(8))
    assert rough.half in (True, False)
    assert rough.error == (_screening._HALF_ERROR if rough.half else _screening._ROUNDING)
