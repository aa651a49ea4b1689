"""Tables to files that appear under their name only when they are complete."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyarrow as pa

from gsparc._files import cannot_write
from gsparc.exceptions import InputError, OutputError
from gsparc.tables._types import as_strings, is_number, is_text, json_text
from gsparc.tables.reading import FORMATS, Reject

__all__ = ["RejectsFile", "TableWriter", "all_rejected", "rejects_path"]


class _Pending:
    """A file beside its final place, renamed when it is complete and removed when it is not."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        except OSError as error:
            raise cannot_write(path, error) from error
        self.stream: IO[bytes] = os.fdopen(handle, "wb")
        self.temporary = Path(name)

    def publish(self) -> None:
        try:
            self.stream.flush()
            os.fsync(self.stream.fileno())
            self.stream.close()
            self.temporary.chmod(0o644)
            os.replace(self.temporary, self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # a full disk says so again when what is left is flushed
            self.stream.close()
        self.temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself last through a power failure, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class TableWriter:
    """A table written a batch at a time; the file is there when the last batch is, or not at all.

    Parameters
    ----------
    path
        Ends in one of ``FORMATS``, which says the format; ``.csv``, ``.tsv``, ``.jsonl`` and ``.ndjson`` also
        take ``.gz``.
    schema
        Columns and types; default: those of the first batch. Later batches are brought to it.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "out.csv"
    >>> with TableWriter(file) as writer:
    ...     writer.write(pa.table({"id": ["a"], "near": [["b", "c"]]}))
    >>> print(file.read_text().strip())
    "id","near"
    "a","[""b"", ""c""]"
    """

    def __init__(self, path: str | os.PathLike[str], schema: pa.Schema | None = None) -> None:
        self.path, self.schema = Path(path), schema
        self.rows = 0
        self._format = _format(self.path)
        if self.path.is_dir():
            raise OutputError(f"{self.path} is a folder. Pass the name of a file.")
        self._pending: _Pending | None = None
        self._sink: Any = None

    def __enter__(self) -> TableWriter:
        self._pending = _Pending(self.path)
        return self

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add rows."""
        if self._pending is None:
            raise InputError("the writer is not open. Use it as: with TableWriter(path) as writer: ...")
        table = batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch])
        if self.schema is None:
            self.schema = table.schema.remove_metadata()
        try:
            table = _as_schema(table, self.schema)
            if self._sink is None:
                self._sink = _SINKS[self._format](self._pending.stream, self.schema, self.path)
            self._sink.write(table)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self.rows += table.num_rows

    def discard(self) -> None:
        """Write nothing after all: what was there before stays."""
        pending, self._pending = self._pending, None
        if pending is not None:
            if self._sink is not None:  # its writer would complain later if its file went away first
                with contextlib.suppress(Exception):
                    self._sink.close()
            pending.discard()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        pending, self._pending = self._pending, None
        if pending is None:
            return
        try:
            if self._sink is None:
                schema = self.schema if self.schema is not None else pa.schema([])
                self._sink = _SINKS[self._format](pending.stream, schema, self.path)
            self._sink.close()
            pending.publish()
        except OSError as problem:
            raise problem if isinstance(problem, OutputError) else cannot_write(self.path, problem) from problem
        finally:
            pending.discard()


def _format(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = Path(path.stem).suffix.lower()
        if suffix in _SINKS and issubclass(_SINKS[suffix], _TextSink):
            return suffix
    elif suffix in _SINKS:
        return suffix
    what = f"ends in {path.suffix}, which is not written" if path.suffix else "has no ending that says the format"
    raise OutputError(f"{str(path)!r} {what}. Pass a name that ends in one of {', '.join(FORMATS)}.")


def _as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of ``schema``, cast where they have another type."""
    absent = [name for name in schema.names if name not in table.column_names]
    if absent:
        raise InputError(f"a batch has no column {absent[0]!r}; all batches of a file have the same columns.")
    columns = []
    for entry in schema:
        column = table[entry.name]
        if column.type != entry.type:
            try:
                column = as_strings(column) if pa.types.is_string(entry.type) else column
                column = column.cast(entry.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise InputError(
                    f"column {entry.name!r} was {entry.type} at first and now holds {column.type} ({error})."
                ) from error
        columns.append(column)
    return pa.table(columns, schema=schema)


class _ParquetSink:
    def __init__(self, stream: IO[bytes], schema: pa.Schema, path: Path) -> None:
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(stream, schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _ArrowSink:
    def __init__(self, stream: IO[bytes], schema: pa.Schema, path: Path) -> None:
        from pyarrow import ipc

        self._writer = ipc.new_file(stream, schema)

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class _TextSink:
    def __init__(self, stream: IO[bytes], schema: pa.Schema, path: Path) -> None:
        self._zipped = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) if path.suffix.lower() == ".gz" else None
        self._stream: Any = self._zipped or stream

    def close(self) -> None:
        if self._zipped is not None:
            self._zipped.close()


class _CsvSink(_TextSink):
    delimiter = ","

    def __init__(self, stream: IO[bytes], schema: pa.Schema, path: Path) -> None:
        from pyarrow import csv as pacsv

        super().__init__(stream, schema, path)
        flat = [(entry.name, pa.string() if _needs_text(entry.type) else entry.type) for entry in schema]
        self._schema = pa.schema(flat)
        self._writer = pacsv.CSVWriter(
            self._stream, self._schema, write_options=pacsv.WriteOptions(delimiter=self.delimiter)
        )

    def write(self, table: pa.Table) -> None:
        columns = [as_strings(c) if _needs_text(c.type) else c for c in table.columns]
        self._writer.write_table(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        self._writer.close()
        super().close()


class _TsvSink(_CsvSink):
    delimiter = "\t"


def _needs_text(kind: pa.DataType) -> bool:
    return not (is_number(kind) or is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_date(kind))


class _JsonSink(_TextSink):
    def write(self, table: pa.Table) -> None:
        columns = [as_strings(c) if pa.types.is_temporal(c.type) else c for c in table.columns]
        for record in pa.table(columns, names=table.column_names).to_pylist():
            self._stream.write((json_text(record) + "\n").encode("utf-8"))


_SINKS: dict[str, Any] = {
    ".parquet": _ParquetSink,
    ".feather": _ArrowSink,
    ".arrow": _ArrowSink,
    ".csv": _CsvSink,
    ".tsv": _TsvSink,
    ".jsonl": _JsonSink,
    ".ndjson": _JsonSink,
}


def rejects_path(output: str | os.PathLike[str]) -> Path:
    """Where the rejected rows of an output go.

    Examples
    --------
    >>> rejects_path("out.parquet").name
    'out.rejects.csv'
    """
    path = Path(output)
    stem = path.stem if path.suffix.lower() != ".gz" else Path(path.stem).stem
    return path.with_name(f"{stem}.rejects.csv")


class RejectsFile:
    """Rows that could not be used, in a CSV beside the output; there is no file when there are none.

    Examples
    --------
    >>> import tempfile
    >>> with RejectsFile(Path(tempfile.mkdtemp()) / "out.parquet") as rejects:
    ...     rejects.add(Reject("new.csv", 3, "b", "size is 'abc', expected a number"))
    >>> rejects.count, rejects.path.name
    (1, 'out.rejects.csv')
    """

    def __init__(self, output: str | os.PathLike[str]) -> None:
        self.path = rejects_path(output)
        self.count = 0
        self.first: Reject | None = None
        self._pending: _Pending | None = None
        self._text: Any = None

    def __enter__(self) -> RejectsFile:
        return self

    def add(self, reject: Reject) -> None:
        """One more row."""
        try:
            if self._pending is None:
                self._pending = _Pending(self.path)
                self._text = io.TextIOWrapper(self._pending.stream, encoding="utf-8", newline="", errors="replace")
                csv.writer(self._text, lineterminator="\n").writerow(Reject._fields)
            csv.writer(self._text, lineterminator="\n").writerow(reject)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self.first = self.first or reject
        self.count += 1

    __call__ = add

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            if kind is None:
                self.path.unlink(missing_ok=True)  # of an earlier run: it would be taken for this one's
            return
        try:
            if kind is None:
                self._text.flush()
                pending.publish()
        except OSError as problem:
            raise problem if isinstance(problem, OutputError) else cannot_write(self.path, problem) from problem
        finally:
            pending.discard()


def all_rejected(rejects: RejectsFile, left: str) -> InputError:
    """The error of a command that could use no row at all; ``left`` says what was not written."""
    first = rejects.first
    example = "" if first is None else f" The first: {first.file}, row {first.row:,}: {first.reason}."
    return InputError(
        f"none of the {rejects.count:,} rows can be used; {left}.{example} All reasons are in {rejects.path}. Check "
        "that the columns hold what they held in the fit."
    )
