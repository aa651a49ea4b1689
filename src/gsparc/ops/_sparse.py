"""Sparse matrices as torch computes with them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["csr_tensor"]

_INT32 = 2**31 - 1


def csr_tensor(
    indptr: Tensor | NDArray[Any], indices: Tensor | NDArray[Any], values: Tensor | NDArray[Any], columns: int
) -> Tensor:
    """A sparse CSR tensor from arrays that are known to be right; 32-bit indices wherever they suffice.

    Examples
    --------
    >>> import numpy as np
    >>> csr_tensor(np.array([0, 1, 2]), np.array([1, 0]), np.array([2.0, 3.0]), columns=2).to_dense().tolist()
    [[0.0, 2.0], [3.0, 0.0]]
    """
    indptr, indices, values = (torch.as_tensor(array) for array in (indptr, indices, values))
    # the CPU kernel works on 32-bit indices and would convert longer ones in every product
    kind = torch.int32 if max(values.numel(), columns, len(indptr)) <= _INT32 else torch.int64
    with warnings.catch_warnings(), torch.sparse.check_sparse_tensor_invariants(False):
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(indptr.to(kind), indices.to(kind), values, size=(len(indptr) - 1, columns))
