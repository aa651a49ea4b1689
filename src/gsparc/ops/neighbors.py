"""One index of nearest neighbours behind one interface: exact or approximate, CPU or CUDA.

Distances are Euclidean, diffusion (Euclidean after scaling component ``l`` by ``mu_l ** t``) or cosine.
"""

from __future__ import annotations

import copy
import importlib.util
import logging
import os
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsparc._mapped import release
from gsparc._runtime import resolve_device
from gsparc._typing import FloatArray
from gsparc._validation import check_name
from gsparc.exceptions import InputError
from gsparc.ops._coded import CodedLists, checked_ivf, is_view, moved_to_file, own_copy, saved_bytes
from gsparc.ops._grown_cells import grown_cells
from gsparc.ops._index_memory import CODED, within
from gsparc.ops._index_state import (
    KINDS,
    METRICS,
    State,
    checked_array,
    checked_config,
    checked_probes,
    read_state,
    write_state,
)
from gsparc.ops._knn import exact_neighbors, ivf_build, ivf_rows, ivf_search
from gsparc.ops._vectors import check_scale, prepare, prepared_file
from gsparc.ops.cells import Cells, choose_probes

__all__ = ["EXACT_UP_TO", "NeighborIndex", "neighbors_reference", "resolve_kind"]

logger = logging.getLogger(__name__)

EXACT_UP_TO = 50_000
"""``kind="auto"`` is exact up to this many vectors."""
_CELL_SIZE = 32


def neighbors_reference(
    queries: FloatArray,
    vectors: FloatArray,
    k: int,
    metric: str = "euclidean",
    scale: FloatArray | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Nearest vectors by their definition, one query at a time: slow, short, and what the index is tested by.

    Examples
    --------
    >>> import numpy as np
    >>> d, ids = neighbors_reference(np.array([[0.0]]), np.array([[3.0], [1.0], [-1.0]]), k=2)
    >>> d.tolist(), ids.tolist()
    ([[1.0, 1.0]], [[1, 2]])
    """
    q, v = np.asarray(queries, dtype=np.float64), np.asarray(vectors, dtype=np.float64)
    if scale is not None:
        q, v = q * scale, v * scale
    all_distances = []
    for row in q:
        if metric == "cosine":
            lengths = np.linalg.norm(v, axis=1) * np.linalg.norm(row)
            all_distances.append(1.0 - np.divide(v @ row, lengths, out=np.zeros(len(v)), where=lengths > 0))
        else:
            all_distances.append(np.linalg.norm(v - row, axis=1))
    distances = np.array(all_distances).reshape(len(q), len(v))
    ids = np.argsort(distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(distances, ids, axis=1).astype(np.float32), ids.astype(np.int64)


def resolve_kind(kind: str, num_vectors: int, device: torch.device) -> str:
    """Turn ``"auto"`` into ``"exact"``, ``"ivf"`` or ``"cells"``.

    Exact up to :data:`EXACT_UP_TO` vectors. Beyond, faiss's inverted lists on the CPU, and our own cells on a
    GPU or where faiss is not installed.
    """
    if check_name("index kind", kind, ("auto", *KINDS)) != "auto":
        return kind
    if num_vectors <= EXACT_UP_TO:
        return "exact"
    if device.type == "cuda":
        return "cells"
    if importlib.util.find_spec("faiss") is None:
        logger.info("faiss is not installed: %d vectors are searched through cells, more slowly", num_vectors)
        return "cells"
    return "ivf"


class NeighborIndex:
    """Nearest neighbours among a set of vectors; made by :meth:`build` or :meth:`load`.

    Attributes
    ----------
    metric : {"euclidean", "cosine", "diffusion"}
    kind : {"exact", "ivf", "cells", "ivf-sq8", "ivf-pq"}
    num_vectors, dim : int
    num_probes_ : int or None
        Cells looked into for each query; None when exact.
    recall_ : float
        Recall@10 of the vectors themselves at build time; 1.0 when exact. What is measured later on new
        queries, or after many ``add``, may be lower.

    Examples
    --------
    >>> import numpy as np
    >>> index = NeighborIndex.build(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 3.0]]))
    >>> distances, ids = index.search(np.array([[0.0, 1.0]]), k=2)
    >>> ids.tolist(), distances.astype(float).round(3).tolist()
    ([[0, 1]], [[1.0, 1.414]])
    >>> index.add(np.array([[0.0, 1.5]])).tolist()
    [3]
    >>> index.search(np.array([[0.0, 1.0]]), k=1)[1].tolist()
    [[3]]
    """

    def __init__(
        self,
        *,
        metric: str,
        kind: str,
        device: torch.device,
        scale: NDArray[np.float32] | None,
        rows: torch.Tensor | None = None,
        ivf: Any = None,
        cells: Cells | None = None,
        coded: CodedLists | None = None,
        num_probes: int | None = None,
        recall: float = 1.0,
    ) -> None:
        self.metric, self.kind, self.device = metric, kind, device
        self.num_probes_, self.recall_ = num_probes, recall
        # rows: of the exact kind only; the others keep them in their lists or cells
        self._scale, self._rows, self._ivf, self._cells, self._coded = scale, rows, ivf, cells, coded

    @classmethod
    def build(
        cls,
        vectors: FloatArray | torch.Tensor,
        *,
        metric: str = "euclidean",
        scale: FloatArray | None = None,
        kind: str = "auto",
        device: str | torch.device = "cpu",
        num_cells: int | None = None,
        num_probes: int | None = None,
        memory: int | str | None = None,
        seed: int = 0,
    ) -> NeighborIndex:
        """Index the rows of ``vectors``; the row number is the id.

        Parameters
        ----------
        vectors : array or tensor of shape (n, dim)
        metric : {"euclidean", "cosine", "diffusion"}
            ``"cosine"`` is ``1 - cos``; a zero vector has cosine 0 with everything.
        scale : array of shape (dim,), only for ``metric="diffusion"``
            ``mu_l ** t`` of each component.
        kind : {"auto", "exact", "ivf", "cells", "ivf-sq8", "ivf-pq"}
            ``"auto"``: exact up to 50,000 vectors; beyond, inverted lists (faiss) on the CPU, and cells
            (:mod:`gsparc.ops.cells`) on a GPU or where faiss is not installed. The last two keep codes of a byte or
            less a component in memory, and the vectors in a mapped file (in TMPDIR) that puts candidates in order.
        device : {"cpu", "cuda", "auto"}
            Where an exact search, or one through cells, runs.
        num_cells, num_probes : int, optional
            Of the approximate kinds; chosen for recall@10 >= .98 on the vectors themselves when left out.
            ``kind="cells"`` makes about ``num_cells``.
        memory : int or str, optional
            Bytes, or a text such as ``"2GB"``, that the index may keep in memory. ``kind="auto"`` then takes the
            first of exact, ``"ivf"``, ``"ivf-sq8"`` and ``"ivf-pq"`` that fits; ``recall_`` says what it costs.
            Vectors that are mapped themselves are then read a block at a time.
        seed : int
            Two builds with the same seed give the same index.
        """
        check_name("metric", metric, METRICS)
        place = resolve_device(device)
        factor = check_scale(metric, scale)
        if num_probes is not None and num_probes < 1:
            raise InputError(f"num_probes={num_probes}; pass a number of cells >= 1, or None.")
        parts: dict[str, Any] = {"metric": metric, "device": place, "scale": factor}
        inner = metric == "cosine"
        if memory is not None or kind in CODED:
            kind, codes = within(vectors.shape, memory, kind, exact_up_to=EXACT_UP_TO, num_cells=num_cells)
            if kind in CODED:
                prepared = prepared_file(vectors, metric, factor)
                coded, recall = CodedLists.build(
                    prepared, codes, inner=inner, num_cells=num_cells, num_probes=num_probes, seed=seed
                )
                made = cls(**parts, kind=kind, coded=coded, num_probes=coded.num_probes, recall=recall)
                logger.info("%s", made.summary())
                return made
        rows = prepare(vectors, metric, factor, place, dim=None)
        if not len(rows):
            raise InputError("an index needs at least one vector, got 0 rows.")
        kind = resolve_kind(kind, len(rows), place)
        if kind == "exact":
            return cls(**parts, kind=kind, rows=rows)
        most = len(rows)
        if num_cells is not None and not 1 <= num_cells <= most:
            raise InputError(f"num_cells={num_cells} for {most} vectors; pass a number from 1 to {most}, or None.")
        parts["kind"] = kind
        if kind == "cells":
            size = _CELL_SIZE if num_cells is None else max(1, round(len(rows) / num_cells))
            cells = Cells.build(rows, cell_size=size, seed=seed, inner=inner)
            probes, recall = choose_probes(cells, rows, seed, num_probes)
            logger.info("%d vectors in %d cells, %d probed: recall@10 %.3f", len(rows), cells.num_cells, probes, recall)
            return cls(**parts, cells=cells, num_probes=probes, recall=recall)
        ivf, probes, recall = ivf_build(
            rows.cpu().numpy(), inner=inner, num_cells=num_cells, num_probes=num_probes, seed=seed
        )
        if memory is not None:
            ivf = moved_to_file(ivf)  # lists grow by doubling: half of what they hold may be unused
        logger.info("%d vectors in %d cells, %d probed: recall@10 %.3f", len(rows), ivf.nlist, probes, recall)
        return cls(**parts, ivf=ivf, num_probes=probes, recall=recall)

    @property
    def num_vectors(self) -> int:
        if self._ivf is not None:
            return int(self._ivf.ntotal)
        if self._coded is not None:
            return len(self._coded.rows)
        return len(self._stored) if self._cells is None else self._cells.num_vectors

    @property
    def dim(self) -> int:
        if self._coded is not None:
            return int(self._coded.rows.shape[1])
        return int(self._ivf.d) if self._ivf is not None else int(self._stored.shape[1])

    @property
    def num_bytes(self) -> int:
        """Memory that the index needs to answer, about; rows in a mapped file are not among it."""
        if self._coded is not None:
            return self._coded.num_bytes
        cells = 0 if self._ivf is None else self._ivf.nlist * self.dim * 4 + self.num_vectors * 8
        return self.num_vectors * self.dim * 4 + cells

    def summary(self) -> str:
        """The index in a sentence.

        Examples
        --------
        >>> NeighborIndex.build(np.eye(3)).summary()
        '3 vectors of 3 components, exact: 0.0 MB in memory, recall@10 1.000'
        """
        probed = "" if self.num_probes_ is None else f" ({self.num_probes_} cells probed)"
        return (
            f"{self.num_vectors:,} vectors of {self.dim} components, {self.kind}{probed}: "
            f"{self.num_bytes / 1e6:,.1f} MB in memory, recall@10 {self.recall_:.3f}"
        )

    @property
    def _stored(self) -> torch.Tensor:
        """Rows of an exact index, in their order; those of cells, cell after cell."""
        stored = self._rows if self._cells is None else self._cells.vectors
        assert stored is not None
        return stored

    def __repr__(self) -> str:
        shape = f"num_vectors={self.num_vectors}, dim={self.dim}"
        return f"NeighborIndex({shape}, metric={self.metric!r}, kind={self.kind!r})"

    def search(self, queries: FloatArray | torch.Tensor, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The ``k`` nearest vectors of each query, nearest first.

        Returns ``(distances, ids)``, both of shape (m, k); ``k`` beyond the number of vectors is cut to it.
        The exact index gives equal distances in the order of their ids.
        """
        if k < 1:
            raise InputError(f"k={k} neighbours were asked for; pass k >= 1.")
        k = min(int(k), self.num_vectors)
        inner = self.metric == "cosine"
        if self._ivf is not None:
            return ivf_search(self._ivf, self.prepare(queries, "cpu").numpy(), k, self.num_probes_ or 1, inner=inner)
        if self._coded is not None:
            return self._coded.search(self.prepare(queries, "cpu").numpy(), k)
        prepared = prepare(queries, self.metric, self._scale, self.device, dim=self.dim)
        if self._cells is None:
            distances, ids = exact_neighbors(prepared, self._stored, k, inner=inner)
        else:
            distances, ids = self._cells.search(prepared, k, self._cells.candidates_of(self.num_probes_ or 1))
        return distances.cpu().numpy(), ids.cpu().numpy()

    def prepare(self, vectors: FloatArray | torch.Tensor, device: str | torch.device | None = None) -> torch.Tensor:
        """Vectors as they are compared with :meth:`rows`: float32, checked, scaled or of unit length."""
        place = self.device if device is None else torch.device(device)
        return prepare(vectors, self.metric, self._scale, place, dim=self.dim)

    def release(self) -> None:
        """Let go of the pages of what lies in files, which count as memory of this process; they are read again."""
        if self._coded is not None:
            release(self._coded.rows, saved_bytes(self._coded.index))
        elif self._ivf is not None and is_view(self._ivf):
            release(saved_bytes(self._ivf))

    def add(self, vectors: FloatArray | torch.Tensor) -> NDArray[np.int64]:
        """Append rows and return their ids. The kind, the cells and the probes stay as they were built.

        In an approximate index each row joins the nearest cell. The cells were made for the rows of ``build``: where as
        many have been added, or they lie elsewhere, build it anew.
        """
        before = self.num_vectors
        place = self.device if self._ivf is None and self._coded is None else torch.device("cpu")
        rows = prepare(vectors, self.metric, self._scale, place, dim=self.dim)
        if self._ivf is not None:
            if is_view(self._ivf):
                self._ivf = own_copy(self._ivf)
            self._ivf.add(rows.numpy())
        elif self._coded is not None:
            self._coded = self._coded.added(rows.numpy())
        elif self._cells is not None:
            self._cells = grown_cells(self._cells, rows)
        else:
            self._rows = torch.cat([self._stored, rows])
        return np.arange(before, before + len(rows), dtype=np.int64)

    def copy(self) -> NeighborIndex:
        """An index that can be added to while this one stays as it is; only inverted lists are copied for it.

        Examples
        --------
        >>> index = NeighborIndex.build(np.eye(2))
        >>> more = index.copy()
        >>> more.add(np.ones((1, 2))).tolist(), index.num_vectors
        ([2], 2)
        """
        fresh = copy.copy(self)
        if self._ivf is not None:
            fresh._ivf = own_copy(self._ivf)
        return fresh

    def rows(self) -> torch.Tensor:
        """The rows as they are compared: scaled (diffusion) or of unit length (cosine)."""
        if self._ivf is not None:
            return torch.from_numpy(ivf_rows(self._ivf))
        if self._coded is not None:
            return torch.from_numpy(self._coded.rows)
        return self._stored if self._cells is None else self._cells.rows()

    def state(self) -> State:
        """Plain arrays and a JSON-able dictionary that :meth:`from_state` makes the index from."""
        arrays: dict[str, NDArray[Any]] = {}
        if self._scale is not None:
            arrays["scale"] = self._scale
        if self._ivf is not None:
            arrays["ivf"] = saved_bytes(self._ivf)
        elif self._coded is not None:
            arrays |= self._coded.arrays()
        else:
            arrays["rows"] = self.rows().cpu().numpy()
        if self._cells is not None:
            arrays.update({f"cells_{name}": array for name, array in self._cells.state()[0].items()})
        config = {
            "metric": self.metric,
            "kind": self.kind,
            "num_vectors": self.num_vectors,
            "dim": self.dim,
            "num_probes": self.num_probes_,
            "recall": self.recall_,
        }
        if self._coded is not None:
            config["num_candidates"] = self._coded.num_candidates
        return arrays, config

    @classmethod
    def from_state(
        cls, arrays: dict[str, NDArray[Any]], config: dict[str, Any], *, device: str | torch.device = "cpu"
    ) -> NeighborIndex:
        """The index that :meth:`state` described; DamagedModelError if the two do not fit together."""
        place = resolve_device(device)
        metric, kind, shape = checked_config(config)
        parts: dict[str, Any] = {"metric": metric, "kind": kind, "device": place}
        parts["scale"] = checked_array(arrays, "scale", (shape[1],)) if metric == "diffusion" else None
        if kind == "ivf":
            parts["ivf"] = checked_ivf(arrays, shape, inner=metric == "cosine")
        elif kind in CODED:
            checked_probes(config)
            parts["coded"] = CodedLists.from_state(arrays, config, shape, inner=metric == "cosine")
        else:
            rows = torch.from_numpy(checked_array(arrays, "rows", shape)).to(place)
            if kind == "exact":
                return cls(**parts, rows=rows)
            own = {name.removeprefix("cells_"): array for name, array in arrays.items() if name.startswith("cells_")}
            count = len(own.get("order", ()))
            cells = Cells.from_state(own, {"inner": metric == "cosine"}, rows[:count])
            parts["cells"] = grown_cells(cells, rows[count:])  # an earlier version kept added rows beside the cells
        probes, recall = checked_probes(config)
        return cls(**parts, num_probes=probes, recall=recall)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``index.safetensors`` and ``index.json`` into ``folder``."""
        write_state(folder, *self.state())

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, device: str | torch.device = "cpu") -> NeighborIndex:
        """Read what :meth:`save` wrote."""
        return cls.from_state(*read_state(folder), device=device)
