"""Files of new rows as units of work that any worker can do, in any order and more than once.

A unit of a Parquet file names a stretch of its rows, which the worker reads itself. Other formats can only be read from
their start: their units carry the rows. The batches inside units are those of
:func:`~gsparc.tables.reading.stream_table`, so answers do not depend on who gives them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from gsparc.exceptions import InputError
from gsparc.tables._parquet import ParquetReader, stretches
from gsparc.tables.reading import Reject, file_format, stream_table

__all__ = ["Unit", "UnitReader", "cut_units"]


@dataclass(frozen=True)
class Unit:
    """Some rows of one file.

    Attributes
    ----------
    number : int
        Its place among all units, from 0. The last unit has no rows: it says that there are no more.
    file, path : str
        The file as it was named, and where every process finds it.
    first, rows : int
        The rows of the file, from 0.
    offset : int
        Rows of all units before this one.
    columns : tuple of str
        Columns of the first file.
    rejects : tuple of Reject
        Lines since the unit before that could not be read.
    payload : bytes
        The rows themselves, as an Arrow stream, where the worker cannot read them.
    """

    number: int
    file: str = ""
    path: str = ""
    first: int = 0
    rows: int = 0
    offset: int = 0
    columns: tuple[str, ...] = ()
    rejects: tuple[Reject, ...] = ()
    payload: bytes = b""

    @property
    def is_last(self) -> bool:
        """Whether this unit only says that there are no more."""
        return not self.path

    def to_json(self) -> str:
        """All but the payload."""
        return json.dumps(asdict(replace(self, payload=b"")) | {"payload": None})

    @classmethod
    def from_json(cls, text: str, payload: bytes) -> Unit:
        """What :meth:`to_json` described, with its payload."""
        values: dict[str, Any] = json.loads(text)
        rejects = tuple(Reject(*reject) for reject in values["rejects"])
        return cls(**(values | {"columns": tuple(values["columns"]), "rejects": rejects, "payload": payload}))


def cut_units(files: Sequence[str | os.PathLike[str]], batch_rows: int) -> Iterator[Unit]:
    """Units of all rows of some files, in order, and a last one without rows.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "new.csv"
    >>> _ = file.write_text("id,size\\na,1\\nb,2\\nc\\n")
    >>> [(unit.number, unit.rows, unit.offset, len(unit.rejects)) for unit in cut_units([file], 1)]
    [(0, 1, 0, 1), (1, 1, 1, 0), (2, 0, 2, 0)]
    """
    columns: tuple[str, ...] | None = None
    rejects: list[Reject] = []
    number = offset = 0
    for file in map(Path, files):
        for unit, names in _units_of(file, batch_rows, rejects):
            columns = names if columns is None else columns
            taken, rejects[:] = tuple(rejects), []
            yield replace(unit, number=number, offset=offset, columns=columns, rejects=taken)
            number, offset = number + 1, offset + unit.rows
    yield Unit(number, offset=offset, columns=columns or (), rejects=tuple(rejects))


def _units_of(file: Path, batch_rows: int, rejects: list[Reject]) -> Iterator[tuple[Unit, tuple[str, ...]]]:
    """Units of one file that do not know their place yet, and the columns that they have."""
    path = Path(os.path.abspath(file))
    start = Unit(0, str(file), str(path))
    if file_format(path) == ".parquet" and path.stat().st_size:
        with ParquetReader(path, batch_rows) as reader:
            if not reader.num_rows:
                raise InputError(f"{file} has no rows; at least one was expected.")
            for first, rows in stretches(reader.num_rows, batch_rows):
                yield replace(start, first=first, rows=rows), tuple(reader.names)
        return

    def reject(found: Reject) -> None:
        rejects.append(found._replace(file=str(file)))

    row = 0
    for batch in stream_table(path, batch_rows=batch_rows, rejects=reject):
        payload = _packed(batch)
        yield replace(start, first=row, rows=batch.num_rows, payload=payload), tuple(batch.schema.names)
        row += batch.num_rows


def _packed(batch: pa.RecordBatch) -> bytes:
    from pyarrow import ipc

    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


class UnitReader:
    """Batches of units; the Parquet file of the last unit stays open, since the next is likely to lie in it."""

    def __init__(self, batch_rows: int) -> None:
        self._batch_rows = batch_rows
        self._open: ParquetReader | None = None

    def batches(self, unit: Unit) -> Iterator[pa.RecordBatch]:
        """The batches of one unit."""
        from pyarrow import ipc

        if unit.payload:
            yield from ipc.open_stream(unit.payload)
            return
        path = Path(unit.path)
        if self._open is None or self._open.path != path:
            self.close()
            self._open = ParquetReader(path, self._batch_rows)
        yield from self._open.stretch(unit.first, unit.rows)

    def close(self) -> None:
        """Let go of the open file."""
        if self._open is not None:
            self._open.close()
            self._open = None
