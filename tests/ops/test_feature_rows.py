"""Cosines of rows: several ways of computing them, one answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.ops import _feature_rows
from gsparc.ops._feature_rows import SparseRows, cosines_reference, feature_rows


@pytest.mark.parametrize("way", ["scattered", "one pass", "dense"])
@pytest.mark.parametrize("count", [1, 9, 40])
def test_all_ways_agree(way: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows = sp.random_array((120, 50), density=0.1, rng=rng, dtype=np.float32, format="csr")
    filled = sp.random_array((count - 1, 50), density=0.2, rng=rng, dtype=np.float32, format="csr")
    queries = sp.csr_array(sp.vstack([sp.csr_array((1, 50), dtype=np.float32), filled]))  # nothing is like an empty row
    index = feature_rows(rows, torch.device("cpu"))
    assert isinstance(index, SparseRows)
    monkeypatch.setattr(SparseRows, "_dense_is_faster", lambda self, queries: way == "dense")
    monkeypatch.setattr(SparseRows, "_one_pass_is_faster", lambda self, queries: way == "one pass")
    found = index.cosines(index.prepare(queries)).numpy()
    np.testing.assert_allclose(found, cosines_reference(queries.toarray(), rows.toarray()), atol=1e-6)
    assert not found[0].any()


def test_one_pass_is_for_several_queries_with_many_terms() -> None:
    index = SparseRows(sp.csr_array(np.eye(1000, dtype=np.float32)), torch.device("cpu"))
    few = sp.csr_array((np.ones(10, np.float32), np.arange(10), np.arange(11)), shape=(10, 1000))
    many = sp.csr_array(np.ones((10, 1000), np.float32))
    assert not index._one_pass_is_faster(few)
    assert index._one_pass_is_faster(many)
    assert not index._one_pass_is_faster(many[: _feature_rows._SEVERAL - 1])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 40), st.integers(1, 30), st.floats(0.0, 1.0))
def test_scattered_terms_are_the_definition(seed: int, n: int, width: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    rows = sp.random_array((n, width), density=density, rng=rng, dtype=np.float32, format="csr")
    queries = sp.random_array((6, width), density=density, rng=rng, dtype=np.float32, format="csr")
    index = feature_rows(rows, torch.device("cpu"))
    assert isinstance(index, SparseRows)
    expected = cosines_reference(queries.toarray(), rows.toarray())
    np.testing.assert_allclose(index._scattered_cosines(index.prepare(queries)), expected, atol=1e-6)


def test_scattered_terms_by_hand() -> None:
    index = feature_rows(sp.csr_array(np.array([[3.0, 4.0, 0], [0, 0, 2.0], [0, 0, 0]])), torch.device("cpu"))
    assert isinstance(index, SparseRows)
    queries = index.prepare(sp.csr_array(np.array([[1.0, 0, 0], [0, 0, 0], [0, 1.0, 1.0]])))
    expected = [[0.6, 0, 0], [0, 0, 0], [0.8 / 2**0.5, 1 / 2**0.5, 0]]
    np.testing.assert_allclose(index._scattered_cosines(queries), expected, atol=1e-7)


@pytest.mark.parametrize("kind", ["sparse", "sparse, wide", "dense"])
def test_cosines_of_single_pairs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = rng.random((60, 20)) * (rng.random((60, 20)) < 0.3)
    rows[5] = 0.0
    queries = rng.random((7, 20)) * (rng.random((7, 20)) < 0.5)
    monkeypatch.setattr(_feature_rows, "_PAIR_ROWS", 11)  # several blocks
    if kind == "sparse, wide":
        monkeypatch.setattr(_feature_rows, "_DENSE_ENTRIES", 1)
    form = np.asarray if kind == "dense" else sp.csr_array
    index = feature_rows(form(rows), torch.device("cpu"))
    owners, nodes = rng.integers(0, 7, 50), rng.integers(0, 60, 50)
    owners[0], nodes[0] = 2, 5
    found = index.cosines_of(index.prepare(form(queries)), owners, nodes)
    np.testing.assert_allclose(found, cosines_reference(queries, rows)[owners, nodes], atol=1e-6)
    assert index.cosines_of(index.prepare(form(queries)), owners[:0], nodes[:0]).shape == (0,)


def test_indices_are_kept_in_32_bits() -> None:
    rows = sp.csr_array(np.eye(3, dtype=np.float32))
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    index = SparseRows(rows, torch.device("cpu"))
    assert index.rows.indices.dtype == index.rows.indptr.dtype == np.int32
    assert rows.indices.dtype == np.int64  # the caller's stay as they are
    index.append_prepared(rows)
    assert index.rows.indices.dtype == np.int32
    assert index.shape == (6, 3)
