"""Names for the shapes that travel between modules."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

__all__ = ["Features", "FloatArray", "IntArray", "RandomState", "SupportsArray"]

IntArray: TypeAlias = NDArray[np.integer[Any]]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
Features: TypeAlias = FloatArray | sp.csr_matrix | sp.csr_array
"""A validated feature matrix: dense float or CSR, one row a node."""
RandomState: TypeAlias = int | np.random.RandomState | np.random.Generator | None


@runtime_checkable
class SupportsArray(Protocol):
    """Anything that numpy can turn into an array."""

    def __array__(self, dtype: Any = None) -> NDArray[Any]: ...
