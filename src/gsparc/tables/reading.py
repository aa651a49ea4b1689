"""Tables from files: CSV, JSON lines, Parquet, Feather and Arrow, whole or as a stream."""

from __future__ import annotations

import contextlib
import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa

from gsparc.exceptions import DataNotFoundError, GsparcError, InputError
from gsparc.tables._types import infer_types, plain_column, python_column, unify

__all__ = [
    "FORMATS",
    "Reject",
    "file_format",
    "files_of",
    "is_delimited",
    "place_of",
    "read_table",
    "row_numbers",
    "stream_table",
    "table_files",
    "typed",
]

FORMATS = (".csv", ".tsv", ".parquet", ".feather", ".arrow", ".jsonl", ".ndjson")
_TEXT_FORMATS = (".csv", ".tsv", ".jsonl", ".ndjson")
_BATCH_BYTES = 1 << 27  # a batch of long texts ends here, however few its rows
_ROWS = b"gsparc.rows"  # where a batch keeps the row numbers of its file
_FILES = b"gsparc.files"  # where a table keeps the files that it was read from, and how many rows each has
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError)


class Reject(NamedTuple):
    """A row that could not be used: where it stands and why.

    ``row`` counts the rows of the file from 1, whatever its format. The header of a CSV is none, nor are empty lines;
    a row that cannot be read is one.
    """

    file: str
    row: int
    id: str | None
    reason: str


def read_table(
    path: str | os.PathLike[str],
    *,
    what: str = "nodes",
    columns: Sequence[str] | None = None,
    written: Iterable[str] | None = (),
) -> pa.Table:
    """A whole table; every row must be readable.

    Parameters
    ----------
    path
        A file, a folder of files, or a pattern such as ``parts/*.csv``; formats by suffix (``FORMATS``,
        text formats also with ``.gz``). Several files are read under one another in sorted order.
    what
        What the rows are, for messages.
    columns
        Read these columns only.
    written
        Columns of a CSV that are not looked at for numbers, but stay as they are written; None: all of them, for
        :func:`typed` to look at later.

    Notes
    -----
    Columns of a CSV whose every value is a number, or true or false, are read as such; all others as strings.
    Identifiers with leading zeros stay strings.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "nodes.csv"
    >>> _ = file.write_text("id;size\\n007;1.5\\n008;\\n")
    >>> read_table(file).to_pylist()
    [{'id': '007', 'size': 1.5}, {'id': '008', 'size': None}]
    """
    files = table_files(path, what=what)
    parts = [_read_file(file) for file in files]
    table = parts[0] if len(parts) == 1 else _stack(parts, files)
    if table.num_rows == 0:
        raise InputError(f"{path} has no rows; one row for each of the {what} was expected.")
    if columns is not None:
        absent = [name for name in columns if name not in table.column_names]
        if absent:
            raise InputError(f"{path} has no column {absent[0]!r}. Its columns: {', '.join(table.column_names)}.")
        table = table.select(list(columns))
    sizes = [(str(file), part.num_rows) for file, part in zip(files, parts, strict=True)]
    table = table.replace_schema_metadata({_FILES: json.dumps(sizes).encode()})
    return table if written is None else typed(table, written)


def typed(table: pa.Table, written: Iterable[str] = ()) -> pa.Table:
    """A table that was read as it is written, with numbers, true and false where a CSV holds nothing else.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "nodes.csv"
    >>> _ = file.write_text("version,size\\n1.10,1.50\\n")
    >>> typed(read_table(file, written=None), ["version"]).to_pylist()
    [{'version': '1.10', 'size': 1.5}]
    """
    if not any(map(is_delimited, files_of(table))):
        return table
    return infer_types(table, written).replace_schema_metadata(table.schema.metadata)


def files_of(table: pa.Table) -> list[str]:
    """The files that a table was read from; none where it was made otherwise."""
    return [file for file, _ in json.loads((table.schema.metadata or {}).get(_FILES, b"[]"))]


def place_of(table: pa.Table, row: int) -> tuple[str | None, int]:
    """File and number, from 1, of a row (from 0) of a whole table; None where the table was not read from a file.

    Examples
    --------
    >>> place_of(pa.table({"id": ["a", "b"]}), 1)
    (None, 2)
    """
    for file, rows in json.loads((table.schema.metadata or {}).get(_FILES, b"[]")):
        if row < rows:
            return file, row + 1
        row -= rows
    return None, row + 1


def _stack(parts: list[pa.Table], files: list[Path]) -> pa.Table:
    for part, file in zip(parts, files, strict=True):
        odd = set(part.column_names) ^ set(parts[0].column_names)
        if odd:
            raise InputError(
                f"{file} and {files[0]} do not have the same columns (only in one of them: "
                f"{', '.join(sorted(odd))}). Read files of one kind together."
            )
    return unify(parts)


def _read_file(path: Path) -> pa.Table:
    batches = list(_batches(path, 1 << 16, _raise))
    return unify(batches) if batches else pa.table({})


def _raise(reject: Reject) -> NoReturn:
    raise InputError(f"{reject.file}, row {reject.row}: {reject.reason}. Correct it or take it out.")


def stream_table(
    path: str | os.PathLike[str], *, batch_rows: int = 8192, rejects: Callable[[Reject], None]
) -> Iterator[pa.RecordBatch]:
    """A table in batches of at most ``batch_rows`` rows, in bounded memory.

    Rows of a text file that cannot be read go to ``rejects``; none is dropped in silence. All columns of a CSV
    come as strings: types are never guessed from a part of the file. :func:`row_numbers` says where the
    rows of a batch stand in the file.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "new.csv"
    >>> _ = file.write_text("id,size\\na,1\\nb\\nc,3\\n")
    >>> bad = []
    >>> [(batch.num_rows, row_numbers(batch).tolist()) for batch in stream_table(file, rejects=bad.append)]
    [(2, [1, 3])]
    >>> bad[0].row, bad[0].reason
    (2, 'the row has 1 fields, the header has 2')
    """
    seen = False

    def count(reject: Reject) -> None:
        nonlocal seen
        seen = True
        rejects(reject)

    for file in table_files(path, what="rows"):
        for batch in _batches(file, batch_rows, count):
            seen = seen or batch.num_rows > 0
            yield batch
    if not seen:
        raise InputError(f"{path} has no rows; at least one was expected.")


def row_numbers(batch: pa.RecordBatch) -> np.ndarray:
    """Row numbers of a batch of :func:`stream_table` in its file, as in :class:`Reject`."""
    stored = (batch.schema.metadata or {}).get(_ROWS)
    return np.arange(1, batch.num_rows + 1) if stored is None else np.frombuffer(stored, dtype=np.int64)


def table_files(path: str | os.PathLike[str], *, what: str = "nodes") -> list[Path]:
    """The files behind a path, a folder or a pattern, sorted; an error that says what is missing."""
    given = Path(path)
    if given.is_dir():
        found = sorted(p for p in given.iterdir() if p.is_file() and p.name[0] not in "._" and file_format(p))
        if not found:
            raise DataNotFoundError(f"the folder {given} has no table of {what}. Tables end in {', '.join(FORMATS)}.")
        return found
    if given.is_file():
        found = [given]
    elif glob.has_magic(str(path)):
        found = sorted(Path(name) for name in glob.glob(str(path)) if Path(name).is_file())
    else:
        found = []
    if not found:
        raise DataNotFoundError(f"there is no table of {what} {given}. Pass the path of a file, a folder or a pattern.")
    for file in found:
        if not file_format(file):
            raise InputError(f"{file} is of a kind that is not read. Tables end in {', '.join(FORMATS)}.")
    return found


def file_format(path: Path) -> str:
    """The suffix that says the format, in small letters; empty if there is none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"] and suffixes[-2:-1] and suffixes[-2] in _TEXT_FORMATS:
        return suffixes[-2]
    return suffixes[-1] if suffixes[-1:] and suffixes[-1] in FORMATS else ""


def is_delimited(path: str | os.PathLike[str]) -> bool:
    """Whether a file says no types: all of its values are text.

    Examples
    --------
    >>> is_delimited("nodes.csv.gz"), is_delimited("nodes.jsonl")
    (True, False)
    """
    return file_format(Path(path)) in (".csv", ".tsv")


def _batches(path: Path, rows: int, rejects: Callable[[Reject], None]) -> Iterator[pa.RecordBatch]:
    suffix = file_format(path)

    def reject(row: int, reason: str) -> None:
        rejects(Reject(str(path), row, None, reason))

    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty; a table was expected.")
    if suffix == ".parquet":
        from gsparc.tables._parquet import parquet_batches

        return parquet_batches(path, rows)
    if is_delimited(path):
        from gsparc.tables._delimited import csv_blocks

        blocks = csv_blocks(path, "\t" if suffix == ".tsv" else None, reject)
        return rebatched(((block.numbers, block.cells) for block in blocks), rows)
    if suffix in (".jsonl", ".ndjson"):
        return _json_batches(path, rows, reject)
    return rebatched(_numbered(_arrow_batches(path, rows)), rows)


def rebatched(blocks: Iterator[tuple[np.ndarray, pa.RecordBatch]], rows: int) -> Iterator[pa.RecordBatch]:
    """Blocks of any size as batches of ``rows`` rows, or fewer where rows are long."""
    waiting: list[tuple[np.ndarray, pa.RecordBatch]] = []
    count = size = 0
    for numbers, cells in blocks:
        start = 0
        while start < len(numbers):
            taken = min(rows - count, len(numbers) - start)
            waiting.append((numbers[start : start + taken], cells.slice(start, taken)))
            count, start, size = count + taken, start + taken, size + waiting[-1][1].nbytes
            if count == rows or size > _BATCH_BYTES:
                yield _joined(waiting)
                waiting, count, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[tuple[np.ndarray, pa.RecordBatch]]) -> pa.RecordBatch:
    numbers = np.concatenate([own for own, _ in parts]) if len(parts) > 1 else parts[0][0]
    batch = parts[0][1] if len(parts) == 1 else pa.concat_batches([cells for _, cells in parts])
    return batch.replace_schema_metadata({_ROWS: numbers.astype(np.int64).tobytes()})


def _json_batches(path: Path, rows: int, reject: Callable[[int, str], None]) -> Iterator[pa.RecordBatch]:
    from gsparc.tables._jsonl import json_rows

    names: dict[str, None] = {}  # a key that once was there stays a column
    waiting: list[dict[str, Any]] = []
    numbers: list[int] = []
    size = 0
    for number, record, length in json_rows(path, reject):
        waiting.append(record)
        numbers.append(number)
        names.update(dict.fromkeys(record))
        size += length
        if len(waiting) == rows or size > _BATCH_BYTES:
            yield _json_batch(waiting, numbers, names)
            waiting, numbers, size = [], [], 0
    if waiting:
        yield _json_batch(waiting, numbers, names)


def _json_batch(records: list[dict[str, Any]], numbers: list[int], names: dict[str, None]) -> pa.RecordBatch:
    arrays = [python_column([record.get(name) for record in records]) for name in names]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return _joined([(np.array(numbers), batch)])


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
    row = 1
    for batch in batches:
        yield np.arange(row, row + batch.num_rows), batch
        row += batch.num_rows


def _arrow_batches(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of a Feather or Arrow file, checked and with plain types."""
    with in_words(path, "Feather or Arrow"):
        for batch in _arrow(path, rows):
            yield plain_batch(batch, path)


@contextlib.contextmanager
def in_words(path: Path, kind: str) -> Iterator[None]:
    """Whatever Arrow says about a file it cannot read, as one sentence that names the file."""
    try:
        yield
    except GsparcError:
        raise
    except _ARROW_ERRORS as error:
        raise InputError(f"{path} cannot be read as {kind}: {str(error)[:200]}. Write the file again.") from error


def plain_batch(batch: pa.RecordBatch, path: Path) -> pa.RecordBatch:
    """A batch of a binary file, checked and with plain types."""
    batch.validate(full=True)  # a damaged file must not make us read outside its buffers
    refuse_repeats(batch.schema.names, path)
    return pa.RecordBatch.from_arrays([plain_column(column) for column in batch.columns], names=batch.schema.names)


def _arrow(path: Path, rows: int) -> Iterator[pa.RecordBatch]:
    from pyarrow import ipc

    with open(path, "rb") as stream:
        start = stream.read(6)
    if start[:4] == b"FEA1":  # Feather's first version has a format of its own
        from pyarrow import feather

        yield from feather.read_table(path).to_batches(max_chunksize=rows)
        return
    with pa.memory_map(str(path)) as source:
        if start == b"ARROW1":
            file = ipc.open_file(source)
            for place in range(file.num_record_batches):
                yield file.get_batch(place)
        else:
            yield from ipc.open_stream(source)


def refuse_repeats(names: list[str], path: Path) -> None:
    if len(set(names)) < len(names):
        again = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{path} has more than one column {again!r}. Give each column a name of its own.")
