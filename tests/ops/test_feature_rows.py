"""Cosines of sparse rows: three ways of computing them, one answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc.ops import _feature_rows
from gsparc.ops._feature_rows import SparseRows, feature_rows


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

    def unit(matrix):
        dense = matrix.toarray().astype(np.float64)
        length = np.linalg.norm(dense, axis=1, keepdims=True)
        return np.divide(dense, length, out=np.zeros_like(dense), where=length > 0)

    np.testing.assert_allclose(found, unit(queries) @ unit(rows).T, atol=1e-6)
    assert not found[0].any()


def test_one_pass_is_for_several_queries_with_many_terms() -> None:
    index = SparseRows(sp.csr_array(np.eye(1000, dtype=np.float32)), torch.device("cpu"))
    few = sp.csr_array((np.ones(10, np.float32), np.arange(10), np.arange(11)), shape=(10, 1000))
    many = sp.csr_array(np.ones((10, 1000), np.float32))
    assert not index._one_pass_is_faster(few)
    assert index._one_pass_is_faster(many)
    assert not index._one_pass_is_faster(many[: _feature_rows._SEVERAL - 1])
