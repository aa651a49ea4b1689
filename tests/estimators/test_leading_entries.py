"""Wide rows cut to their leading entries."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from gsparc.estimators._ranking import leading_entries


def test_each_row_keeps_its_largest_entries() -> None:
    rng = np.random.default_rng(0)
    rows = sp.random_array((40, 3000), density=0.1, rng=rng, dtype=np.float32, format="csr")
    rows.data *= rng.choice([-1, 1], rows.nnz)
    found = leading_entries(rows, most=100)
    for row, cut in zip(rows.toarray(), found.toarray(), strict=True):
        best = np.argsort(-np.abs(row))[:100]
        expected = np.zeros_like(row)
        expected[best] = row[best]
        np.testing.assert_array_equal(cut, expected)


def test_short_rows_narrow_rows_and_dense_rows_stay() -> None:
    wide = sp.csr_array((np.ones(3, np.float32), [0, 5, 9], [0, 3, 3]), shape=(2, 3000))
    assert (leading_entries(wide, most=3) != wide).nnz == 0
    narrow = sp.csr_array(np.ones((2, 100), np.float32))
    assert leading_entries(narrow, most=3) is narrow
    dense = np.ones((2, 3000), np.float32)
    assert leading_entries(dense, most=3) is dense
