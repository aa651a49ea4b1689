"""Sparse matrices as torch computes with them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["csr_tensor", "dense_pays"]

_INT32 = 2**31 - 1
_DENSE_GAIN = {"cpu": 100, "cuda": 10_000}  # how much more a dense product does in a second than scipy's sparse one


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


def dense_pays(left: Any, right: Any, device: torch.device) -> bool:
    """Whether ``left @ right.T`` of scipy's CSR rows is faster as a dense product on ``device``.

    Rows with many entries are hardly sparse: dense products do a hundred times as much in a second as sparse ones, on
    a GPU thousands of times, so they win where they have less than that many times as much to do.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> full, empty = sp.csr_array(np.ones((50, 40))), sp.csr_array((50, 40))
    >>> dense_pays(full, full, torch.device("cpu")), dense_pays(empty, full, torch.device("cpu"))
    (True, False)
    """
    used = (np.bincount(rows.indices, minlength=left.shape[1]).astype(np.float64) for rows in (left, right))
    terms = np.prod(list(used), axis=0).sum()
    return bool(terms * _DENSE_GAIN[device.type] >= left.shape[0] * right.shape[0] * left.shape[1] and terms > 0)
