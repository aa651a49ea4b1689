"""Feature rows of unit length, dense or sparse, that answer with cosines: half of the combined ranking."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from gsparc.exceptions import DamagedModelError, FeatureError, InputError
from gsparc.ops._knn import blocks, unit_rows

__all__ = ["DenseRows", "SparseRows", "cosines_reference", "feature_rows", "feature_rows_from_arrays", "unit_csr"]

_PAIR_ROWS = 1 << 17  # rows gathered at once for pair scores
_SCATTER, _SPREAD, _MULTIPLY = 1.5, 1.5, 0.1  # nanoseconds: of a scattered term, of a dense entry, of its use
_SEVERAL = 8  # queries from which one pass over all rows may pay
_DENSE_ENTRIES = 1 << 22  # entries made dense at once


def cosines_reference(queries: Any, rows: Any) -> NDArray[np.float64]:
    """Cosine of each query with every row by its definition, from dense arrays: what the fast ways are tested by.

    Examples
    --------
    >>> cosines_reference(np.array([[3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.0]]
    """

    def unit(values: Any) -> NDArray[np.float64]:
        values = np.asarray(values, np.float64)
        length = np.linalg.norm(values, axis=1, keepdims=True)
        return np.divide(values, length, out=np.zeros_like(values), where=length > 0)

    return unit(queries) @ unit(rows).T


class DenseRows:
    """Unit rows as one tensor on the device."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def prepare(self, features: Any) -> Any:
        """Query features in the form of the rows."""
        dense = features.toarray() if sp.issparse(features) else features
        rows = torch.as_tensor(dense).to(device=self.rows.device, dtype=torch.float32)
        return unit_rows(_checked(rows, self.shape[1]))

    def cosines(self, queries: Any) -> torch.Tensor:
        """Cosine of each query with every row: (m, n)."""
        return queries @ self.rows.T

    def pair_cosines(self, queries: Any, ids: torch.Tensor) -> torch.Tensor:
        """Cosine of query ``i`` with the rows ``ids[i]``: (m, p)."""
        out = torch.empty(ids.shape, device=self.rows.device)
        for part in blocks(len(ids), max(1, _PAIR_ROWS // max(ids.shape[1], 1))):
            near = self.rows[ids[part]]  # (m, p, d)
            out[part] = torch.bmm(near, queries[part].unsqueeze(2)).squeeze(2)
        return out

    def cosines_of(self, queries: Any, owners: NDArray[np.int64], nodes: NDArray[np.int64]) -> torch.Tensor:
        """Cosine of query ``owners[i]`` with row ``nodes[i]``: (p,)."""
        out = torch.empty(len(nodes), device=self.rows.device)
        left, right = (torch.from_numpy(ids).to(self.rows.device) for ids in (owners, nodes))
        for part in blocks(len(nodes), _PAIR_ROWS):
            out[part] = torch.linalg.vecdot(queries[left[part]], self.rows[right[part]])
        return out

    def append_prepared(self, rows: Any) -> None:
        self.rows = torch.cat([self.rows, rows])

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"features": self.rows.cpu().numpy()}


class SparseRows:
    """Unit rows as CSR; only chunks of scores are ever dense."""

    def __init__(self, rows: Any, device: torch.device) -> None:
        self.rows: Any = _narrow(rows)  # scipy CSR
        self.device = device
        self._by_column: Any = None
        self._filled: NDArray[Any] | None = None  # entries of each column

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def prepare(self, features: Any) -> Any:
        """Query features in the form of the rows."""
        return unit_csr(_checked(sp.csr_array(features, dtype=np.float32), self.shape[1]))

    def cosines(self, queries: Any) -> torch.Tensor:
        """Cosine of each query with every row: (m, n)."""
        if self.device.type == "cuda":
            if self._by_column is None:
                self._by_column = _torch_sparse(self.rows, self.device)
            dense = torch.from_numpy(queries.toarray()).to(self.device)
            return torch.sparse.mm(self._by_column, dense.T).T
        if self._dense_is_faster(queries):
            return self._dense_cosines(queries)
        if self._one_pass_is_faster(queries):
            return torch.from_numpy(np.ascontiguousarray((self.rows @ queries.toarray().T).T))
        return torch.from_numpy(self._scattered_cosines(queries))

    def _terms(self, queries: Any) -> float:
        """Entries in the queries' own columns: what a product has to add up."""
        if self._filled is None:
            self._filled = np.bincount(self.rows.indices, minlength=self.shape[1])
        return float(self._filled[queries.indices].sum())

    def _one_pass_is_faster(self, queries: Any) -> bool:
        """Several queries with many terms: each entry of the rows is read once for all of them, with no lock held."""
        terms = self._terms(queries)
        return queries.shape[0] >= _SEVERAL and self.rows.nnz * (1.0 + queries.shape[0] / 3) < _SCATTER * terms

    def _scattered_cosines(self, queries: Any) -> NDArray[np.float32]:
        """Query by query, the entries of its own columns added up where they belong: nothing is copied or sorted."""
        columns, n = self._columns(), self.shape[0]
        out = np.zeros((queries.shape[0], n), np.float32)
        own = np.diff(queries.indptr)
        width = 2 * int(own.max(initial=0))
        # One product with a vector runs through the columns between its pointers. A query's columns come last to
        # first, so the stretch from the end of one to the start of the next runs backwards: it is empty.
        chosen = sp.csc_array((n, width), dtype=np.float32)
        chosen.data, chosen.indices = columns.data, columns.indices
        for row, start, count in zip(out, queries.indptr.tolist(), own.tolist(), strict=False):
            if not count:
                continue
            terms = queries.indices[start : start + count][::-1]
            pointers = np.zeros(width + 1, columns.indptr.dtype)
            values = np.zeros(width, np.float32)
            pointers[0 : 2 * count : 2], pointers[1 : 2 * count : 2] = columns.indptr[terms], columns.indptr[terms + 1]
            values[0 : 2 * count : 2] = queries.data[start : start + count][::-1]
            chosen.indptr = pointers
            row[:] = chosen @ values
        return out

    def _columns(self) -> Any:
        """The rows transposed, once."""
        if self._by_column is None:
            self._by_column = _narrow(sp.csr_array(self.rows.T))
        return self._by_column

    def _dense_is_faster(self, queries: Any) -> bool:
        """Well-filled queries over well-filled rows are better multiplied as dense blocks."""
        n, width = self.shape
        return self._terms(queries) * _SCATTER > n * width * (_SPREAD + _MULTIPLY * queries.shape[0])

    def _dense_cosines(self, queries: Any) -> torch.Tensor:
        """The same by dense products over blocks of rows: many times faster for well-filled matrices."""
        n, width = self.shape
        left = torch.from_numpy(queries.toarray())
        out = torch.empty(queries.shape[0], n)
        for part in blocks(n, max(1, _DENSE_ENTRIES // max(width, 1))):
            out[:, part] = left @ torch.from_numpy(self.rows[part].toarray()).T
        return out

    def pair_cosines(self, queries: Any, ids: torch.Tensor) -> torch.Tensor:
        """Cosine of query ``i`` with the rows ``ids[i]``: (m, p)."""
        where = ids.cpu().numpy()
        out = np.empty(where.shape, dtype=np.float32)
        for part in blocks(len(where), max(1, _PAIR_ROWS // max(where.shape[1], 1))):
            width = where.shape[1]
            own = queries[np.repeat(np.arange(part.start, part.stop), width)]
            products = self.rows[where[part].ravel()].multiply(own)
            out[part] = np.asarray(products.sum(axis=1)).reshape(-1, width)
        return torch.from_numpy(out).to(self.device)

    def cosines_of(self, queries: Any, owners: NDArray[np.int64], nodes: NDArray[np.int64]) -> torch.Tensor:
        """Cosine of query ``owners[i]`` with row ``nodes[i]``: (p,)."""
        out = np.empty(len(nodes), np.float32)
        if queries.shape[0] * queries.shape[1] > _DENSE_ENTRIES:
            for part in blocks(len(nodes), _PAIR_ROWS):
                out[part] = self.rows[nodes[part]].multiply(queries[owners[part]]).sum(axis=1)
        else:  # looked up in dense queries: no two lists of columns are walked along
            dense, ones = queries.toarray(), np.ones(self.shape[1], np.float32)
            for part in blocks(len(nodes), _PAIR_ROWS):
                near = self.rows[nodes[part]]
                near.data *= dense[np.repeat(owners[part], np.diff(near.indptr)), near.indices]
                out[part] = near @ ones
        return torch.from_numpy(out).to(self.device)

    def append_prepared(self, rows: Any) -> None:
        self.rows = _narrow(sp.csr_array(sp.vstack([self.rows, rows], format="csr")))
        self._by_column = self._filled = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            "features_data": self.rows.data,
            "features_indices": self.rows.indices.astype(np.int32 if self.shape[1] < 2**31 else np.int64),
            "features_indptr": self.rows.indptr.astype(np.int64),
            "features_shape": np.array(self.rows.shape, dtype=np.int64),
        }


def feature_rows(features: Any, device: torch.device) -> DenseRows | SparseRows:
    """Keep sparse features sparse and dense ones dense."""
    if sp.issparse(features):
        csr = sp.csr_array(features, dtype=np.float32)
        return SparseRows(unit_csr(_checked(csr, None)), device)
    rows = torch.as_tensor(features).to(device=device, dtype=torch.float32)
    return DenseRows(unit_rows(_checked(rows, None)))


def feature_rows_from_arrays(
    arrays: dict[str, NDArray[Any]], num_rows: int, device: torch.device
) -> DenseRows | SparseRows:
    """What ``arrays()`` gave, checked."""
    try:
        if "features" in arrays:
            dense = arrays["features"]
            if dense.ndim != 2 or dense.dtype != np.float32 or len(dense) != num_rows:
                raise ValueError(f"{dense.dtype} of shape {dense.shape}, expected {num_rows} float32 rows")
            return DenseRows(torch.from_numpy(_writeable(dense)).to(device))
        rows, width = (int(size) for size in arrays["features_shape"])
        if rows != num_rows:
            raise ValueError(f"{rows} rows, expected {num_rows}")
        parts = [arrays["features_data"], arrays["features_indices"], arrays["features_indptr"]]
        if len(parts[2]) and 0 <= parts[2][-1] <= np.iinfo(parts[1].dtype).max:
            parts[2] = parts[2].astype(parts[1].dtype)  # of one type, or scipy copies the larger to make them so
        csr = sp.csr_array(tuple(_writeable(part) for part in parts), shape=(rows, width))
        csr.check_format(full_check=True)
        return SparseRows(csr.astype(np.float32, copy=False), device)
    except (KeyError, ValueError, TypeError) as error:
        raise DamagedModelError(
            f"the features of the index are missing or damaged ({error}). Save the model again."
        ) from error


def _writeable(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself, which may lie in a file, or a copy that torch takes."""
    return array if array.flags.writeable else np.array(array)


def _checked(rows: Any, width: int | None) -> Any:
    """Two dimensions, the right width, finite."""
    if rows.ndim != 2 or (width is not None and rows.shape[1] != width):
        expected = "(rows, features)" if width is None else f"(rows, {width})"
        raise InputError(
            f"features of shape {tuple(rows.shape)} came, expected {expected}. Pass as many columns as "
            "the index was built with; a single node is one row: x[None, :]."
        )
    finite = np.isfinite(rows.data).all() if sp.issparse(rows) else torch.isfinite(rows).all()
    if not bool(finite):
        raise FeatureError("features hold NaN or infinite values; fill or drop them first.")
    return rows


def unit_csr(rows: Any) -> Any:
    """Rows scaled to length one; an empty row stays empty. The caller's matrix is left as it is."""
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    squares = rows.data.astype(np.float64) ** 2
    length = np.sqrt(sp.csr_array((squares, rows.indices, rows.indptr), shape=rows.shape).sum(axis=1))
    factor = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    kind = np.result_type(rows.dtype, np.float32)
    data = (rows.data * np.repeat(factor, np.diff(rows.indptr))).astype(kind)
    return sp.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


def _narrow(rows: Any) -> Any:
    """The same with indices and pointers of one type, or every product would convert them; 32 bits where they do."""
    kind = np.int32 if max(rows.nnz, *rows.shape) < 2**31 else np.int64
    if rows.indices.dtype == rows.indptr.dtype == kind:
        return rows
    rows = rows.copy()
    rows.indices, rows.indptr = rows.indices.astype(kind), rows.indptr.astype(kind)
    return rows


def _torch_sparse(rows: Any, device: torch.device) -> torch.Tensor:
    coo = rows.tocoo()
    where = torch.from_numpy(np.vstack([coo.row, coo.col]).astype(np.int64))
    size = (int(rows.shape[0]), int(rows.shape[1]))
    with torch.sparse.check_sparse_tensor_invariants(False):  # said aloud, or torch warns
        return torch.sparse_coo_tensor(where, torch.from_numpy(coo.data), size).to(device).coalesce()
