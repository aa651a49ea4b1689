"""Arrays that lie in files: written a block at a time, read through the page cache, and let go of again."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NpyWriter", "is_mapped", "map_array", "map_tensors", "release", "row_blocks", "write_tensors"]

_HEADER = 128  # bytes: fixed, so that the shape can be written when it is known
_BLOCK = 1 << 24  # bytes of a block of rows


class NpyWriter:
    """A plain ``.npy`` file whose number of rows is not known before it is written.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "rows.npy"
    >>> with NpyWriter(file, np.float32, 2) as writer:
    ...     writer.append(np.ones((3, 2)))
    >>> np.load(file).shape
    (3, 2)
    """

    def __init__(self, path: Path, dtype: Any, width: int | None = None) -> None:
        self.path, self.dtype, self.width, self.rows = path, np.dtype(dtype), width, 0
        self._stream = open(path, "wb")  # noqa: SIM115 - closed by __exit__
        self._stream.write(self._header())

    def _header(self) -> bytes:
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        text = repr({"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape})
        start = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
        return start + text.encode().ljust(_HEADER - 11) + b"\n"

    def append(self, rows: Any) -> None:
        """Add rows, or numbers where the array is flat."""
        part = np.ascontiguousarray(rows, self.dtype)
        if part.shape[1:] != (() if self.width is None else (self.width,)):
            raise ValueError(f"rows of shape {part.shape} for an array of width {self.width}")
        if part.size:
            self._stream.write(part.data.cast("B"))
        self.rows += len(part)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._stream.seek(0)
                self._stream.write(self._header())
                self._stream.flush()
                os.fsync(self._stream.fileno())
        finally:
            self._stream.close()


def map_array(path: Path) -> NDArray[Any]:
    """The array of a ``.npy`` file, read where it is looked at and never as a whole."""
    return np.load(path, mmap_mode="r", allow_pickle=False)


_TENSOR_TYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
_TENSOR_TYPES |= {f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (2, 4, 8)}


def map_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a safetensors file, over the file itself; what is written to one stays in this process.

    Examples
    --------
    >>> import tempfile
    >>> from safetensors.numpy import save_file
    >>> file = Path(tempfile.mkdtemp()) / "a.safetensors"
    >>> save_file({"rows": np.eye(2, dtype=np.float32)}, file)
    >>> map_tensors(file)["rows"].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    from safetensors import safe_open

    with safe_open(path, framework="np"):  # holds the header against the size of the file
        data = np.memmap(path, dtype=np.uint8, mode="c")
    start = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:start].tobytes())
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _TENSOR_TYPES:
            raise ValueError(f"array {name!r} is of type {entry['dtype']}")
        first, end = entry["data_offsets"]
        arrays[name] = data[start + first : start + end].view(_TENSOR_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def write_tensors(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write arrays to a safetensors file a block at a time, and let go of the pages of those that lie in files.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.safetensors"
    >>> write_tensors(file, {"rows": np.eye(2, dtype=np.float32), "few": np.zeros(0, np.int8)})
    >>> from safetensors.numpy import load_file
    >>> {name: array.tolist() for name, array in sorted(load_file(file).items())}
    {'few': [], 'rows': [[1.0, 0.0], [0.0, 1.0]]}
    """
    kinds = {np.dtype(kind): name for name, kind in _TENSOR_TYPES.items()}
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))  # wide ones first: all are aligned
    header, end = {}, 0
    for name in order:
        array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": kinds[array.dtype], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            array = np.atleast_1d(arrays[name])
            for part in row_blocks(array):
                stream.write(np.ascontiguousarray(array[part]).reshape(-1).view(np.uint8).data)
                release(array)


def is_mapped(array: Any) -> bool:
    """Whether the array lies in a file."""
    return _map_of(array) is not None


def _map_of(array: Any) -> mmap.mmap | None:
    """The mapping behind an array or a view of it."""
    while isinstance(array, np.ndarray):
        found = getattr(array, "_mmap", None)
        if found is not None:
            return found
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def release(*arrays: Any) -> None:
    """Let go of the pages of mapped arrays, which count as memory of this process; they are read again when needed."""
    for array in arrays:
        pages = _map_of(array)
        if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
            pages.madvise(mmap.MADV_DONTNEED)


def row_blocks(array: Any, size: int = _BLOCK) -> Iterator[slice]:
    """Slices over the rows of an array, about ``size`` bytes each.

    Examples
    --------
    >>> [(part.start, part.stop) for part in row_blocks(np.zeros((5, 4), np.float32), size=32)]
    [(0, 2), (2, 4), (4, 5)]
    """
    width = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    step = max(1, size // max(width, 1))
    for start in range(0, array.shape[0], step):
        yield slice(start, min(start + step, array.shape[0]))
