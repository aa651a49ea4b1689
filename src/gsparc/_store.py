"""A store: the features, classes and edges of a graph in a folder, mapped and never read as a whole.

``store.json`` says what is there and is written last. ``features.npy`` holds one row a node (or
``features_indptr.npy``, ``features_indices.npy`` and ``features_data.npy`` where rows are sparse), ``indptr.npy`` and
``indices.npy`` the adjacency, ``weights.npy`` its weights, ``labels.npy`` class numbers, ``split.npy`` which rows are
held out, and ``ids.npy`` or ``ids.arrow`` what the nodes are called. All arrays are plain ``.npy`` files.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._mapped import map_array, release
from gsparc.exceptions import DataNotFoundError, StoreError
from gsparc.graph import Graph

__all__ = ["FORMAT_VERSION", "STORE", "WORK", "Store", "file_checksum", "is_store", "open_store"]

FORMAT_VERSION = 1
STORE, WORK = "store.json", "ingest"
_MOST_JSON = 1 << 26
_FEATURES = ("features_indptr", "features_indices", "features_data")
_NEEDED = {"format_version", "nodes", "edges", "features", "columns", "edge_columns", "files", "class_names", "dtype"}


def is_store(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store, or was to become one."""
    path = Path(folder)
    return (path / STORE).is_file() or (path / WORK).is_dir()


class Store:
    """An opened store; make one with :func:`open_store`.

    Attributes
    ----------
    X : mapped float32 or float16 array of shape (n, d), or CSR matrix over mapped arrays
    graph : Graph
        Over mapped arrays, without node ids.
    y : mapped int32 array of shape (n,) or None
        Class numbers, -1 where there is none.
    split : mapped uint8 array of shape (n,)
        0 for rows that a fit sees; 1 and 2 for rows that validate and that measure.
    class_names : ndarray or None
    meta : dict
        What ``store.json`` says.
    """

    def __init__(self, path: Path, meta: dict[str, Any]) -> None:
        self.path, self.meta = path, meta
        self._kept: dict[str, Any] = {}

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._kept:
            try:
                self._kept[name] = map_array(self.path / f"{name}.npy")
            except (OSError, ValueError) as error:
                raise _damaged(self.path, f"{name}.npy cannot be read ({error})") from error
        return self._kept[name]

    def _has(self, file: str) -> bool:
        return file in self.meta["files"]

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return int(self.meta["nodes"])

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and features."""
        return self.num_nodes, int(self.meta["features"])

    def __len__(self) -> int:
        return self.num_nodes

    @property
    def X(self) -> Any:
        """Features of all nodes."""
        if self._has("features.npy"):
            return self._array("features")
        indptr, indices, data = (self._array(name) for name in _FEATURES)
        matrix = sp.csr_array((data, indices, indptr), shape=self.shape, copy=False)
        matrix.has_canonical_format = matrix.has_sorted_indices = True  # written so; a look would read all of it
        return matrix

    @property
    def graph(self) -> Graph:
        """The edges."""
        if "graph" not in self._kept:
            weights = self._array("weights") if self._has("weights.npy") else None
            self._kept["graph"] = Graph._from_mapped(self._array("indptr"), self._array("indices"), weights)
        return self._kept["graph"]

    @property
    def y(self) -> NDArray[np.int32] | None:
        """Class numbers."""
        return self._array("labels") if self._has("labels.npy") else None

    @property
    def split(self) -> NDArray[np.uint8]:
        """Which rows are held out."""
        return self._array("split")

    @property
    def class_names(self) -> NDArray[Any] | None:
        """Names of the classes, strings or whole numbers."""
        names = self.meta["class_names"]
        return None if names is None else np.array(names, np.int64 if _whole(names) else np.str_)

    @property
    def node_ids(self) -> NDArray[Any]:
        """Ids of all nodes: whole numbers are mapped, strings are made into an array when they are asked for."""
        if self._has("ids.npy"):
            return self._array("ids")
        if not self._has("ids.arrow"):
            return np.arange(self.num_nodes)
        return np.asarray(self.id_column().to_numpy(zero_copy_only=False)).astype(np.str_)

    def id_column(self) -> Any:
        """Ids as an Arrow column over the mapped file."""
        import pyarrow as pa
        from pyarrow import ipc

        if not self._has("ids.arrow"):
            return pa.array(self.node_ids)
        if "ids" not in self._kept:
            self._kept["ids"] = ipc.open_file(pa.memory_map(str(self.path / "ids.arrow"))).read_all().column(0)
        return self._kept["ids"].combine_chunks()

    def preprocess_bytes(self) -> bytes:
        """How columns became features; see :class:`gsparc.tables.preprocess.Preprocessor`."""
        return (self.path / "preprocess.skops").read_bytes()

    def release(self) -> None:
        """Let go of all pages that were read; they count as memory of this process."""
        release(*self._kept.values())

    def verify(self) -> None:
        """Read every file and compare its checksum; a StoreError names the first that has changed."""
        for name, said in self.meta["files"].items():
            if file_checksum(self.path / name) != said["sha256"]:
                raise _damaged(self.path, f"the contents of {name} are not those that were written")

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, nodes={self.num_nodes}, edges={self.meta['edges']})"


def open_store(folder: str | os.PathLike[str]) -> Store:
    """Open a store that ``gsparc ingest`` wrote; nothing is read but its description.

    Raises
    ------
    StoreError
        Where it is half written, of another version, or a file is missing or of another size.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> from gsparc.storage import ingest
    >>> folder = Path(tempfile.mkdtemp())
    >>> pq.write_table(pa.table({"id": [3, 5, 8], "size": [1.0, 2.0, 4.5]}), folder / "nodes.parquet")
    >>> pq.write_table(pa.table({"source": [3, 5], "target": [5, 8]}), folder / "edges.parquet")
    >>> _ = ingest(folder / "nodes.parquet", folder / "edges.parquet", folder / "store")
    >>> store = open_store(folder / "store")
    >>> store.graph, store.X.shape, store.node_ids.tolist()
    (Graph(num_nodes=3, num_edges=2), (3, 1), [3, 5, 8])
    """
    path = Path(folder)
    if not path.is_dir():
        raise DataNotFoundError(
            f"there is no store {path}. Make one with: gsparc ingest --nodes ... --edges ... -o DIR"
        )
    if not (path / STORE).is_file():
        if (path / WORK).is_dir():
            raise StoreError(
                f"the store {path} is half written: it has no {STORE}, which comes last. Repeat the gsparc ingest "
                "command that was interrupted; it goes on where it was."
            )
        raise StoreError(f"{path} is not a store: it has no {STORE}. Make one with: gsparc ingest -o DIR")
    meta = _read(path)
    for name, said in meta["files"].items():
        file = path / name
        if Path(name).name != name or not file.is_file():
            raise _damaged(path, f"{name} is missing")
        if file.stat().st_size != said["bytes"]:
            raise _damaged(path, f"{name} has {file.stat().st_size:,} bytes instead of {said['bytes']:,}")
    return Store(path, meta)


def _read(path: Path) -> dict[str, Any]:
    try:
        if (path / STORE).stat().st_size > _MOST_JSON:
            raise ValueError("it is larger than any description")
        meta = json.loads((path / STORE).read_text(encoding="utf-8"))
        version = meta["format_version"]
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValueError("it names no format version")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, f"{STORE} cannot be read ({error})") from error
    if version != FORMAT_VERSION:
        newer = "Upgrade with: pip install --upgrade gsparc" if version > FORMAT_VERSION else "Ingest the tables again."
        raise StoreError(
            f"the store {path} has format {version}, written by gsparc {meta.get('gsparc_version', '?')}; this "
            f"version reads format {FORMAT_VERSION}. {newer}"
        )
    absent = sorted(_NEEDED - set(meta))
    if absent or not isinstance(meta["files"], dict):
        raise _damaged(path, f"{STORE} does not say {', '.join(absent) or 'which files there are'}")
    return meta


def _whole(names: list[Any]) -> bool:
    return all(isinstance(name, int) for name in names)


def _damaged(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the store {path} is damaged: {reason}. Restore it from a copy, or repeat gsparc ingest with --fresh."
    )


def file_checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
