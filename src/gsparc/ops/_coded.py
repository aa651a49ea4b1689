"""Inverted lists of short codes, and the rows themselves in a mapped file that puts the candidates in order.

The codes stay in memory and find many candidates; of these alone the rows are read, through the page cache. So the
memory needed is a quarter (SQ8) to a thirtieth (PQ) of the rows', and answers are ordered by true distances.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._mapped import release, row_blocks
from gsparc._optional import import_optional
from gsparc.exceptions import DamagedModelError, OutputError
from gsparc.ops._index_memory import num_cells_for
from gsparc.ops._knn import (
    _TARGET_RECALL,
    _probe_grid,
    _recall,
    blocks,
    calibration_sample,
    near_exactly,
    smallest,
)

__all__ = [
    "CodedLists",
    "checked_ivf",
    "is_view",
    "mapped_rows",
    "mapped_view",
    "moved_to_file",
    "own_copy",
    "saved_bytes",
]

_PURPOSE = "An index that keeps codes in memory (kind='ivf-sq8' or 'ivf-pq')"
_TRAIN_ROWS_PER_CELL = 50
_MOST_TRAIN_ROWS = 1 << 19
_ADD_ROWS = 1 << 16
_GATHERED = 1 << 22  # numbers of rows that are compared at once
_CALIBRATED_K = 10
_CANDIDATES = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


def mapped_rows(parts: Iterable[NDArray[Any]], dim: int) -> NDArray[np.float32]:
    """Rows that come a block at a time as one array in a file, which goes when the array does.

    TMPDIR says on which disk. The file is written before it is mapped: a disk that is full is an error, not a crash.
    """
    count = 0
    try:
        with tempfile.TemporaryFile(prefix="gsparc-") as file:
            for part in parts:
                block = np.ascontiguousarray(part, np.float32)
                file.write(block.data.cast("B"))
                count += len(block)
            file.flush()
            return np.memmap(file, dtype=np.float32, mode="c", shape=(count, dim))
    except OSError as error:
        raise _no_room("the rows of an index", error) from error


def _no_room(what: str, error: Exception) -> OutputError:
    reason = getattr(error, "strerror", None) or str(error).strip().splitlines()[-1]
    return OutputError(
        f"{what} cannot be written to {tempfile.gettempdir()!r} ({reason}). "
        "Set TMPDIR to a folder on a disk with room for it."
    )


def mapped_view(data: NDArray[np.uint8]) -> Any:
    """A faiss index over bytes that stay where they are; it must not be added to, see :func:`own_copy`."""
    faiss = import_optional("faiss", extra="all", purpose="Loading an approximate neighbour index")
    reader = faiss.ZeroCopyIOReader(faiss.swig_ptr(data), data.size)
    index = faiss.read_index(reader, faiss.IO_FLAG_MMAP_IFC)
    index.referenced_objects = [data, reader]  # the lists point into the bytes
    return index


def own_copy(index: Any) -> Any:
    """A copy with lists of its own, so that it may be added to.

    faiss ends the process where rows are added to an index over the bytes of others, and a clone of such a one is
    over the same bytes.
    """
    faiss = import_optional("faiss", extra="all", purpose="Adding to an approximate neighbour index")
    return faiss.deserialize_index(faiss.serialize_index(index))


def saved_bytes(index: Any) -> NDArray[np.uint8]:
    """The index as faiss writes it; of one that lies in a file, the file itself and no copy.

    Examples
    --------
    >>> import faiss
    >>> plain = faiss.index_factory(4, "Flat")
    >>> bool((saved_bytes(mapped_view(saved_bytes(plain))) == saved_bytes(plain)).all())
    True
    """
    faiss = import_optional("faiss", extra="all", purpose="Saving an approximate neighbour index")
    return index.referenced_objects[0] if is_view(index) else faiss.serialize_index(index)


def is_view(index: Any) -> bool:
    """Whether :func:`mapped_view` made it; faiss itself notes there what an index is made of."""
    return isinstance(next(iter(getattr(index, "referenced_objects", None) or ()), None), np.ndarray)


def checked_ivf(
    arrays: dict[str, NDArray[Any]], shape: tuple[int, int], *, inner: bool, kind: str = "IndexIVFFlat"
) -> Any:
    """The saved inverted lists as an index of faiss of that ``kind``, over the same memory."""
    faiss = import_optional("faiss", extra="all", purpose="Loading an approximate neighbour index")
    data = arrays.get("ivf")
    if data is None or data.dtype != np.uint8 or data.ndim != 1:
        raise DamagedModelError("the inverted lists of the index are missing. Save the model again.")
    try:
        index = mapped_view(np.ascontiguousarray(data))
    except (RuntimeError, MemoryError) as error:
        reason = str(error).strip().splitlines()[-1:]
        raise DamagedModelError(f"the inverted lists cannot be read {reason}. Save the model again.") from error
    expected = (*shape, faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2)
    if not isinstance(index, getattr(faiss, kind)) or (index.ntotal, index.d, index.metric_type) != expected:
        raise DamagedModelError(
            f"the inverted lists do not hold {shape[0]} vectors of {shape[1]} components as described. "
            "Save the model again."
        )
    return index


class CodedLists:
    """Inverted lists of codes over mapped rows; made by :meth:`build` or :meth:`from_state`.

    Parameters
    ----------
    index : faiss.IndexIVF
    rows : float32 array of shape (n, dim), mapped
    num_probes : int
        Cells looked into for each query.
    num_candidates : int
        Rows that are compared with a query that asks for ten.
    """

    def __init__(
        self, index: Any, rows: NDArray[np.float32], *, inner: bool, num_probes: int, num_candidates: int
    ) -> None:
        self.index, self.rows, self.inner = index, rows, inner
        self.num_probes, self.num_candidates = num_probes, num_candidates

    @classmethod
    def build(
        cls,
        rows: NDArray[np.float32],
        codes: str,
        *,
        inner: bool,
        num_cells: int | None = None,
        num_probes: int | None = None,
        seed: int = 0,
    ) -> tuple[CodedLists, float]:
        """Lists over prepared rows, a block at a time, and their recall@10 measured against an exact search."""
        n = len(rows)
        rng = np.random.default_rng(seed)
        index = _trained(rows, codes, num_cells or num_cells_for(n), inner, rng, seed)
        for part in blocks(n, _ADD_ROWS):
            index.add(np.ascontiguousarray(rows[part]))
            release(rows)
        lists = cls(moved_to_file(index), rows, inner=inner, num_probes=1, num_candidates=_CANDIDATES[0])
        recall = lists._calibrate(rng, num_probes)
        release(rows)
        return lists, recall

    def _calibrate(self, rng: np.random.Generator, num_probes: int | None) -> float:
        """The fewest cells, then the fewest candidates, that reach the target on rows of the index themselves."""
        sample = calibration_sample(len(self.rows), rng)
        k = min(_CALIBRATED_K, len(self.rows) - 1)
        if k < 1:
            return 1.0
        queries = np.ascontiguousarray(self.rows[sample])
        truth_d, truth = near_exactly(queries, self.rows, k + 1, inner=self.inner)
        grid = _probe_grid(self.index.nlist) if num_probes is None else [int(num_probes)]
        self.num_probes = self._probes_for(queries, truth, grid)
        recall = 0.0
        for candidates in _CANDIDATES:
            self.num_candidates = candidates
            recall = _recall(sample, (truth_d, truth), self.search(queries, k + 1), k)
            if recall >= _TARGET_RECALL:
                break
        return recall

    def _probes_for(self, queries: NDArray[np.float32], truth: NDArray[np.int64], grid: list[int]) -> int:
        """The fewest cells among which the true neighbours' own are: no order of candidates could do with fewer."""
        found = np.ascontiguousarray(self.rows[truth.ravel()])
        cells = self.index.quantizer.search(found, 1)[1].reshape(truth.shape)
        _, order = self.index.quantizer.search(queries, grid[-1])
        rank = np.full(truth.shape, grid[-1])
        for start in range(0, grid[-1], 64):  # a block of cells at a time: (queries, neighbours, cells)
            hit = order[:, None, start : start + 64] == cells[:, :, None]
            rank = np.minimum(rank, np.where(hit.any(axis=2), start + hit.argmax(axis=2), grid[-1]))
        enough = _TARGET_RECALL + (1 - _TARGET_RECALL) / 3  # some are lost to the codes
        return next((probes for probes in grid if (rank < probes).mean() >= enough), grid[-1])

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Nearest rows by their true distances, among the candidates that the codes find."""
        k = min(k, len(self.rows))
        # More neighbours need more candidates, but fewer for each: farther ones are told apart by less.
        wanted = round(self.num_candidates * max(1.0, k / (_CALIBRATED_K + 1)) ** 0.5)
        wanted = min(len(self.rows), max(wanted, 2 * k))
        distances = np.empty((len(queries), k), np.float32)
        ids = np.empty((len(queries), k), np.int64)
        for part in blocks(len(queries), max(1, _GATHERED // (wanted * max(self.rows.shape[1], 1)))):
            distances[part], ids[part] = self._nearest(np.ascontiguousarray(queries[part]), k, wanted)
        return distances, ids

    def _nearest(
        self, queries: NDArray[np.float32], k: int, wanted: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        found = self._candidates(queries, k, wanted)
        near = self.rows[found]  # (m, wanted, dim); -1, nothing found, reads the last row and is put last
        if self.inner:
            distances = 1.0 - np.einsum("mpd,md->mp", near, queries)
        else:
            distances = np.linalg.norm(near - queries[:, None, :], axis=2)
        distances[found < 0] = np.inf
        best, ids = smallest(torch.from_numpy(distances), k, torch.from_numpy(found))
        return best.numpy(), ids.numpy()

    def _candidates(self, queries: NDArray[np.float32], k: int, wanted: int) -> NDArray[np.int64]:
        """Ids of (m, wanted) candidates; a query whose cells hold fewer than ``k`` looks into more of them."""
        faiss = import_optional("faiss", extra="all", purpose=_PURPOSE)
        probes = self.num_probes
        ids = self.index.search(queries, wanted, params=faiss.SearchParametersIVF(nprobe=probes))[1]
        short = (ids >= 0).sum(axis=1) < k
        while short.any() and probes < self.index.nlist:
            probes = min(self.index.nlist, probes * 4)
            more = faiss.SearchParametersIVF(nprobe=probes)
            ids[short] = self.index.search(queries[short], wanted, params=more)[1]
            short = (ids >= 0).sum(axis=1) < k
        return ids

    def added(self, rows: NDArray[np.float32]) -> CodedLists:
        """These lists and more rows; what is here stays as it is."""
        index = own_copy(self.index)
        index.add(np.ascontiguousarray(rows))
        known = (self.rows[part] for part in row_blocks(self.rows))
        every = mapped_rows(chain(known, [rows]), self.rows.shape[1])
        parts = {"num_probes": self.num_probes, "num_candidates": self.num_candidates}
        return CodedLists(moved_to_file(index), every, inner=self.inner, **parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of the codes, the ids and the cells: what stays in memory."""
        own = self.index.ntotal * (self.index.code_size + 8)
        return int(own + self.index.nlist * self.index.d * 4)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is saved; the rows stay in their file until they are written."""
        return {"ivf": saved_bytes(self.index), "rows": self.rows}

    @classmethod
    def from_state(
        cls, arrays: dict[str, NDArray[Any]], config: dict[str, Any], shape: tuple[int, int], *, inner: bool
    ) -> CodedLists:
        """What :meth:`arrays` gave, over the same memory; DamagedModelError where it does not fit together."""
        rows = arrays.get("rows")
        if rows is None or rows.dtype != np.float32 or rows.shape != shape:
            raise DamagedModelError("the rows of the index are missing or of another shape. Save the model again.")
        index = checked_ivf(arrays, shape, inner=inner, kind="IndexIVF")
        candidates = config.get("num_candidates")
        if not isinstance(candidates, int) or isinstance(candidates, bool) or candidates < 1:
            raise DamagedModelError(f"the index has num_candidates={candidates!r}, not a number. Save the model again.")
        return cls(index, rows, inner=inner, num_probes=int(config["num_probes"]), num_candidates=candidates)


def _trained(
    rows: NDArray[np.float32], codes: str, cells: int, inner: bool, rng: np.random.Generator, seed: int
) -> Any:
    """An empty index with its cells and codes fitted on a sample of the rows."""
    faiss = import_optional("faiss", extra="all", purpose=_PURPOSE)
    n, dim = rows.shape
    metric = faiss.METRIC_INNER_PRODUCT if inner else faiss.METRIC_L2
    index = faiss.index_factory(dim, f"IVF{cells},{codes}", metric)
    index.cp.seed, index.cp.niter, index.cp.spherical = seed % (2**31 - 1), 8, inner
    index.cp.min_points_per_centroid, index.cp.max_points_per_centroid = 1, _TRAIN_ROWS_PER_CELL
    if hasattr(index, "pq"):
        index.pq.cp.seed, index.pq.cp.min_points_per_centroid = seed % (2**31 - 1), 1
    size = min(n, max(_MOST_TRAIN_ROWS, cells), cells * _TRAIN_ROWS_PER_CELL)
    sample = np.ascontiguousarray(rows[np.sort(rng.choice(n, size, replace=False))])
    release(rows)
    index.train(sample)
    return index


def moved_to_file(index: Any) -> Any:
    """The same index over a mapped file; the memory of its lists is given back."""
    faiss = import_optional("faiss", extra="all", purpose=_PURPOSE)
    path = None
    try:
        handle, path = tempfile.mkstemp(prefix="gsparc-", suffix=".faiss")
        os.close(handle)
        faiss.write_index(index, path)
        return mapped_view(np.memmap(path, dtype=np.uint8, mode="c"))
    except (RuntimeError, OSError) as error:
        raise _no_room("the lists of an index", error) from error
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
