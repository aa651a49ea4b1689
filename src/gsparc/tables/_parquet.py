"""Parquet files in stretches: runs of rows that are cut into batches in the same way wherever reading begins.

Every batch lies inside one stretch. A reader that begins in the middle of a file, on another machine, thus makes the
batches of one that has read it from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gsparc.tables.reading import in_words, plain_batch, rebatched, refuse_repeats

__all__ = ["ParquetReader", "parquet_batches", "stretches"]

_STRETCH = 4  # batches; fewer would make many small parts of an output, more would share the work out unevenly


def stretches(rows: int, batch_rows: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of each stretch of a file of ``rows`` rows.

    Examples
    --------
    >>> list(stretches(10, 2))
    [(0, 8), (8, 2)]
    """
    length = _STRETCH * batch_rows
    for first in range(0, rows, length):
        yield first, min(length, rows - first)


def parquet_batches(path: Path, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """All batches of a file, in order."""
    with ParquetReader(path, batch_rows) as reader:
        for first, rows in stretches(reader.num_rows, batch_rows):
            yield from reader.stretch(first, rows)


class ParquetReader:
    """One open file; stretches that are asked for in ascending order are read without reading any row twice.

    Attributes
    ----------
    num_rows : int
    names : list of str
        Its columns.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet as pq
    >>> file = Path(tempfile.mkdtemp()) / "new.parquet"
    >>> pq.write_table(pa.table({"id": list(range(10))}), file)
    >>> with ParquetReader(file, 2) as reader:
    ...     [batch.column(0).to_pylist() for batch in reader.stretch(4, 3)]
    [[4, 5], [6]]
    """

    def __init__(self, path: Path, batch_rows: int) -> None:
        import pyarrow.parquet as pq

        self.path, self._batch_rows = path, batch_rows
        with in_words(path, "Parquet"):
            self._file = pq.ParquetFile(path)
            self.names: list[str] = self._file.schema_arrow.names
            refuse_repeats(self.names, path)
            meta = self._file.metadata
            counts = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.num_rows = int(self._starts[-1])
        self._coming: Iterator[Any] = iter(())
        self._rest: pa.RecordBatch | None = None  # of the batch that the last stretch ended in
        self._row = -1  # the row that comes next

    def __enter__(self) -> ParquetReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def stretch(self, first: int, rows: int) -> Iterator[pa.RecordBatch]:
        """The batches of one stretch."""
        return rebatched(self._slices(first, first + rows), self._batch_rows)

    def _slices(self, first: int, end: int) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        with in_words(self.path, "Parquet"):
            self._go_to(first)
            while self._row < end:
                batch = self._rest if self._rest is not None else next(self._coming, None)
                if batch is None:
                    raise ValueError(f"it ends at row {self._row:,} and names {self.num_rows:,}")
                begin, until = max(first - self._row, 0), min(end - self._row, batch.num_rows)
                self._rest = batch.slice(until) if until < batch.num_rows else None
                row, self._row = self._row, self._row + until
                if begin < until:
                    numbers = np.arange(row + begin + 1, row + until + 1)
                    yield numbers, plain_batch(batch.slice(begin, until - begin), self.path)

    def _go_to(self, first: int) -> None:
        """Go on where the last stretch ended, or begin again where that is behind, or a row group farther on."""
        group = int(np.searchsorted(self._starts, first, side="right")) - 1
        if self._starts[group] <= self._row <= first:
            return
        # a group at a time: pieces that span groups would depend on where reading began
        groups = range(group, len(self._starts) - 1)
        self._coming = (
            batch for one in groups for batch in self._file.iter_batches(batch_size=self._batch_rows, row_groups=[one])
        )
        self._rest, self._row = None, int(self._starts[group])
