"""Products of sparse rows with a weight matrix: values and gradients, against dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsparc.ops import _sparse
from gsparc.ops._sparse import rows_product


def csr(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pointers, columns and values of the non-zeros."""
    found = sp.csr_array(matrix.numpy())
    return (
        torch.from_numpy(found.indptr.astype(np.int64)),
        torch.from_numpy(found.indices.astype(np.int64)),
        torch.from_numpy(found.data),
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 6), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**20), st.booleans())
def test_it_is_the_dense_product_and_so_is_its_gradient(
    rows: int, columns: int, width: int, seed: int, double: bool
) -> None:
    random = torch.Generator().manual_seed(seed)
    kind = torch.float64 if double else torch.float32
    matrix = torch.randn(rows, columns, generator=random, dtype=kind)
    matrix *= torch.rand(rows, columns, generator=random) < 0.5
    weight = torch.randn(columns, width, generator=random, dtype=kind, requires_grad=True)
    out = rows_product(*csr(matrix), weight)
    torch.testing.assert_close(out, matrix @ weight)
    push = torch.randn(width, rows, generator=random, dtype=kind).T  # not contiguous
    (gradient,) = torch.autograd.grad(out, weight, push)
    assert gradient.dtype == kind
    torch.testing.assert_close(gradient, matrix.T @ push)


def test_an_entry_that_is_stored_twice_counts_twice() -> None:
    weight = torch.tensor([[1.0], [2.0]], requires_grad=True)
    out = rows_product(torch.tensor([0, 3]), torch.tensor([1, 0, 1]), torch.tensor([5.0, 1.0, 7.0]), weight)
    assert out.tolist() == [[25.0]]
    out.backward(torch.tensor([[2.0]]))
    assert weight.grad is not None
    assert weight.grad.tolist() == [[2.0], [24.0]]


def test_values_get_a_gradient_where_they_ask_for_one() -> None:
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    values = torch.tensor([1.0, 1.0], requires_grad=True)
    rows_product(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), values, weight).sum().backward()
    assert values.grad is not None
    assert weight.grad is not None
    assert values.grad.tolist() == [7.0, 3.0]
    assert weight.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_half_precision_goes_torchs_way(kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(_sparse, "_RowsProduct")
    weight = torch.tensor([[1.0], [2.0]], dtype=kind, requires_grad=True)
    out = rows_product(torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([3.0, 1.0]), weight)
    assert out.dtype == kind
    assert out.tolist() == [[5.0]]
