"""The first stage of an ingest: rows of the node tables as mapped features, classes and ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from gsparc._ids import as_id_column, refuse_nul
from gsparc._mapped import NpyWriter
from gsparc.exceptions import FeatureError, GraphError, InputError
from gsparc.storage._inputs import HoldOut, node_batches, refuse_other_columns
from gsparc.tables._id_values import as_whole_ids, text_values
from gsparc.tables._types import is_list, is_number
from gsparc.tables.columns import Columns
from gsparc.tables.joining import minus_one_words, read_labels
from gsparc.tables.preprocess import Preprocessor
from gsparc.tables.reading import is_delimited, row_numbers

__all__ = ["write_nodes"]

_HALF = 65504.0  # the largest number of half precision
Progress = Callable[[int], object]


def write_nodes(
    files: list[Path],
    folder: Path,
    columns: Columns,
    preprocess: Preprocessor,
    dtype: str,
    held: HoldOut,
    progress: Progress,
) -> dict[str, Any]:
    """Write features, ids, classes and the split; what they hold is returned in plain values."""
    names: list[str] | None = None
    text = any(map(is_delimited, files))
    with ExitStack() as stack:
        features = _Features(folder, preprocess, dtype, stack)
        ids = None if columns.id is None else _Ids(folder, columns.id, stack, text=text)
        labels = None if columns.target is None else _Classes(folder, columns.target, stack)
        split = stack.enter_context(NpyWriter(folder / "split.npy", np.uint8))
        for file in files:
            for batch in node_batches(file):
                names = names or list(batch.schema.names)
                refuse_other_columns(file, batch.schema.names, files[0], names)
                where = _Where(file, batch)
                features.add(batch, where)
                codes = None if labels is None else labels.add(batch, file)
                if ids is not None:
                    ids.add(batch, where)
                part = held.of_batch(batch, split.rows, columns.group)
                if codes is not None and columns.group is None:
                    part[(part == 1) & (codes < 0)] = 0  # a row without a class cannot validate
                split.append(part)
                progress(split.rows)
    if not split.rows:
        raise InputError("the node tables have no rows; one row for each node was expected.")
    said = {"nodes": split.rows, "missing": features.missing, "class_names": None, "ids": "positions"}
    if labels is not None:
        said["class_names"] = labels.finish(text)
        if [name for name in said["class_names"] if isinstance(name, int) and name < 0] == [-1]:
            said["note"] = minus_one_words(labels.minus_one, str(columns.target))
    if ids is not None:
        said["ids"] = ids.finish()
    (folder / "preprocess.skops").write_bytes(preprocess.to_bytes())
    return said


class _Where:
    """Where the rows of a batch stand, for messages."""

    def __init__(self, file: Path, batch: pa.RecordBatch) -> None:
        self.file, self._batch = file, batch

    def __call__(self, row: int) -> str:
        return f"{self.file}, row {int(row_numbers(self._batch)[row])}"


class _Features:
    """Dense rows in one file, sparse ones in three."""

    def __init__(self, folder: Path, preprocess: Preprocessor, dtype: str, stack: ExitStack) -> None:
        self._preprocess, self._half, self.missing = preprocess, dtype == "float16", 0
        if preprocess.dense:
            self._dense = stack.enter_context(NpyWriter(folder / "features.npy", dtype, preprocess.n_features))
            return
        self._dense = None
        kinds = {"features_indptr": np.int64, "features_indices": np.int32, "features_data": np.float32}
        files = [stack.enter_context(NpyWriter(folder / f"{name}.npy", kind)) for name, kind in kinds.items()]
        self._indptr, self._indices, self._data = files
        self._indptr.append(np.zeros(1))

    def add(self, batch: pa.RecordBatch, where: _Where) -> None:
        """Rows of a batch; what is not finite, unreadable or of another width is an error that says where it is."""
        self._check_numbers(batch, where)
        try:
            X, bad = self._preprocess.transform(batch)
        except FeatureError as error:
            raise FeatureError(f"{where.file}: {error}") from error
        if bad:
            row, reason = next(iter(bad.items()))
            raise FeatureError(f"{where(row)}: {reason}. Correct it or take it out.")
        if self._dense is None:
            X = sp.csr_array(X)
            X.sum_duplicates()
            self._indptr.append(self._data.rows + X.indptr[1:].astype(np.int64))
            self._indices.append(X.indices)
            self._data.append(X.data)
            return
        X = X.toarray() if sp.issparse(X) else np.asarray(X)
        if self._half and X.size and max(X.max(), -X.min()) > _HALF:
            row, column = (int(place) for place in np.argwhere(np.abs(X) > _HALF)[0])
            name = self._preprocess.feature_names[column]
            raise FeatureError(f"{where(row)}: {name} is {X[row, column]:g}, beyond float16. Pass --dtype float32.")
        self._dense.append(X)

    def _check_numbers(self, batch: pa.RecordBatch, where: _Where) -> None:
        """Infinite numbers are errors, in vectors NaN too; a missing number (null, NaN) is filled, as in gsparc fit."""
        for name in (*self._preprocess.columns.numeric, *self._preprocess.columns.vector):
            if name not in batch.schema.names:
                continue  # said by the preprocessing
            column = batch.column(name)
            values, width = column, 1
            if is_list(column.type):
                values = column.flatten()
                width = len(values) // max(len(column) - column.null_count, 1)
            if is_number(values.type):
                self.missing += values.null_count + (column.null_count if values is not column else 0)
            if not pa.types.is_floating(values.type):
                continue
            plain = values.fill_null(0).to_numpy(zero_copy_only=False)
            if values is column:
                nothing = np.isnan(plain)
                self.missing += int(nothing.sum())
                plain = np.where(nothing, 0, plain)
            if not np.isfinite(plain).all():
                place = int(np.argmin(np.isfinite(plain)))
                row = int(np.flatnonzero(np.asarray(column.is_valid()))[place // max(width, 1)]) if width > 1 else place
                shown = name if values is column else f"{name}[{place % max(width, 1)}]"
                raise FeatureError(
                    f"{where(row)}: {shown} is {plain[place]}. Features must be finite; leave the value out (null: it "
                    "is filled with the median) or take the row out."
                )


class _Ids:
    """Whole numbers in ``ids.npy``, strings in ``ids.arrow``.

    ``text``: a file says no types, so that strings which are all whole numbers, written as 47 or 47.0, are such.
    """

    def __init__(self, folder: Path, name: str, stack: ExitStack, *, text: bool) -> None:
        self._folder, self._name, self._stack, self.kind, self._whole = folder, name, stack, "", text
        self._numbers: NpyWriter | None = None
        self._strings: Any = None

    def add(self, batch: pa.RecordBatch, where: _Where) -> None:
        column = text_values(batch.column(self._name))
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise InputError(f"{where(row)}: column {self._name!r} holds no id. Give each row an id or drop it.")
        self._whole = self._whole and not as_whole_ids(column).null_count
        try:
            ids = as_id_column(column, f"column {self._name!r}")
            if not pa.types.is_integer(ids.type):
                refuse_nul(ids)
        except GraphError as error:
            raise InputError(f"{where.file}: {error}") from error
        kind = "integers" if pa.types.is_integer(ids.type) else "strings"
        if self.kind not in ("", kind):
            raise InputError(
                f"{where.file} has {kind} as ids in column {self._name!r}, the files before it {self.kind}. "
                "Write all of them in one type."
            )
        if not self.kind:
            self._open(kind)
        if self._numbers is not None:
            self._numbers.append(ids.to_numpy())
        else:
            self._strings.write_batch(pa.record_batch([ids], names=["id"]))

    def _open(self, kind: str) -> None:
        from pyarrow import ipc

        self.kind = kind
        if kind == "integers":
            self._numbers = self._stack.enter_context(NpyWriter(self._folder / "ids.npy", np.int64))
            return
        sink = self._stack.enter_context(pa.OSFile(str(self._folder / "ids.arrow"), "wb"))
        schema = pa.schema([("id", pa.large_string())])
        self._strings = self._stack.enter_context(ipc.new_file(sink, schema))

    def finish(self) -> str:
        """What the ids are; called when the files are closed."""
        if self.kind == "strings" and self._whole:
            self._make_numbers()
        return self.kind

    def _make_numbers(self) -> None:
        from pyarrow import ipc

        path = self._folder / "ids.arrow"
        with pa.memory_map(str(path)) as source, NpyWriter(self._folder / "ids.npy", np.int64) as numbers:
            file = ipc.open_file(source)
            for place in range(file.num_record_batches):
                numbers.append(as_whole_ids(file.get_batch(place).column(0)).to_numpy())
        path.unlink()
        self.kind = "integers"


class _Classes:
    """Class numbers in the order in which names came, renumbered in the order of the names at the end."""

    def __init__(self, folder: Path, name: str, stack: ExitStack) -> None:
        self._path, self._name = folder / "labels.npy", name
        self._writer = stack.enter_context(NpyWriter(self._path, np.int32))
        self.minus_one = 0  # rows of the class -1
        self._codes: dict[Any, int] = {}
        self._counts: Counter[Any] = Counter()

    def add(self, batch: pa.RecordBatch, file: Path) -> NDArray[np.int32]:
        if self._name not in batch.schema.names:
            raise InputError(f"{file} has no column {self._name!r}, which holds the classes.")
        found = read_labels(pa.Table.from_batches([batch]), self._name)
        names = found.names.tolist()
        self._counts.update(dict(zip(names, np.bincount(found.codes[found.codes >= 0]).tolist(), strict=True)))
        own = [self._codes.setdefault(name, len(self._codes)) for name in names]
        codes = np.array([*own, -1], np.int32)[found.codes]
        self._writer.append(codes)
        return codes

    def finish(self, text: bool) -> list[Any]:
        """Names in their order; those of a text file are numbers where all of them are whole."""
        shown: list[Any] = list(self._codes)
        whole = as_whole_ids(pa.array([str(name) for name in shown], pa.string())).to_pylist() if text else [None]
        if None not in whole:
            shown = whole
        if len({type(name) for name in shown}) > 1:
            shown = [str(name) for name in shown]
        kept = sorted(set(shown))
        place = {name: code for code, name in enumerate(kept)}  # 1 and 1.0 of a text file are one
        self.minus_one = sum(self._counts[old] for old, name in zip(self._codes, shown, strict=True) if name == -1)
        number = np.array([*(place[name] for name in shown), -1], np.int32)
        with open(self._path, "r+b") as stream:  # not mapped: a disk that fills up would end the process
            at = stream.seek(np.load(self._path, mmap_mode="r", allow_pickle=False).offset)
            while part := stream.read(1 << 24):
                stream.seek(at)
                at += stream.write(number[np.frombuffer(part, np.int32)].tobytes())
                stream.seek(at)
        return kept
