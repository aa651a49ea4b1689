"""The two tables of an ingest as streams of batches, and a bounded sample of the node rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gsparc.exceptions import FeatureError, InputError
from gsparc.tables._types import infer_types, is_list, plain_column, unify
from gsparc.tables._values import vector_width
from gsparc.tables.reading import Reject, file_format, is_delimited, stream_table

__all__ = [
    "HoldOut",
    "check_alike",
    "column_batches",
    "node_batches",
    "refuse_other_columns",
    "rows_in",
    "sample_nodes",
]

_BATCH = 1 << 16
_COLUMN_BATCH = 1 << 20


class HoldOut:
    """Which rows pretend to be new, by a hash of their place or group: the same in any pass over the tables.

    Examples
    --------
    >>> rule = HoldOut(0, 0.2)
    >>> bool((rule.parts(np.arange(50))[20:30] == rule.parts(np.arange(20, 30))).all())
    True
    >>> np.bincount(rule.parts(np.arange(10_000))).tolist()
    [8029, 997, 974]
    """

    def __init__(self, seed: int, share: float) -> None:
        self.seed, self.share = seed, share

    def parts(self, keys: NDArray[Any]) -> NDArray[np.uint8]:
        """0 for seen, 1 for those that validate, 2 for those that measure; half of the share each."""
        draw = _mixed(keys.astype(np.uint64) ^ _mixed(np.array([self.seed + 1], np.uint64)))
        place = (draw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.where(place < self.share / 2, 1, np.where(place < self.share, 2, 0)).astype(np.uint8)

    def of_batch(self, batch: pa.RecordBatch, start: int, group: str | None) -> NDArray[np.uint8]:
        """Parts of a batch whose first row is row ``start`` of all; rows of one group stay together."""
        if group is None:
            return self.parts(np.arange(start, start + batch.num_rows))
        import zlib

        coded = batch.column(group).cast(pa.string()).fill_null("").dictionary_encode()
        keys = np.array([zlib.crc32(name.encode()) for name in coded.dictionary.to_pylist()], np.uint64)
        return self.parts(keys[coded.indices.to_numpy()])


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Splitmix64's finaliser: neighbouring numbers become unrelated ones."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def rows_in(files: list[Path]) -> int | None:
    """How many rows there are, or about; None where it cannot be told without reading."""
    from gsparc.tables.streaming import estimated_rows

    counts = [estimated_rows(file) for file in files]
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def check_alike(files: list[Path]) -> None:
    """Refuse a file whose columns, or lengths of vectors, are not those of the first; its first rows are looked at."""
    first: dict[str, int] = {}
    for file in files:
        batch = next(node_batches(file, 64))
        kinds = zip(batch.schema.names, batch.columns, strict=True)
        widths = {name: vector_width(column) if is_list(column.type) else -1 for name, column in kinds}
        if file is files[0]:
            first = widths
        refuse_other_columns(file, list(widths), files[0], list(first))
        for name in set(first) & set(widths):
            if widths[name] > 0 and first[name] > 0 and widths[name] != first[name]:
                raise FeatureError(
                    f"{file}: column {name!r} holds lists of {widths[name]} numbers, those of {files[0]} have "
                    f"{first[name]}. Ingest features of one width together."
                )


def refuse_other_columns(file: Path, names: list[str], first: Path, known: list[str]) -> None:
    """FeatureError for a file whose columns are not those of the first; a line of JSON may leave some out."""
    odd = sorted(set(names) ^ set(known))
    if odd and file_format(file) not in (".jsonl", ".ndjson"):
        raise FeatureError(
            f"{file} and {first} do not have the same columns (only in one of them: {', '.join(odd)}). "
            "Ingest files of one kind together."
        )


def _refuse(reject: Reject) -> NoReturn:
    raise InputError(f"{reject.file}, row {reject.row}: {reject.reason}. Correct it or take it out.")


def node_batches(path: Path, rows: int = _BATCH) -> Iterator[pa.RecordBatch]:
    """A table in batches; a row that cannot be read is an error."""
    return stream_table(path, batch_rows=rows, rejects=_refuse)


def column_batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a table in batches; of Parquet the others are not read."""
    if path.suffix.lower() != ".parquet":
        for batch in node_batches(path, _COLUMN_BATCH):
            _refuse_absent(path, batch.schema.names, columns)
            yield batch.select(columns)
        return
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            _refuse_absent(path, file.schema_arrow.names, columns)
            for batch in file.iter_batches(batch_size=_COLUMN_BATCH, columns=columns):
                plain = [plain_column(batch.column(name)) for name in columns]
                yield pa.RecordBatch.from_arrays(plain, names=columns)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {str(error)[:200]}. Write the file again.") from error


def _refuse_absent(path: Path, names: list[str], wanted: list[str]) -> None:
    absent = [name for name in wanted if name not in names]
    if absent:
        raise InputError(
            f"{path} has no column {absent[0]!r}, which other files of the edges have. Its columns: {', '.join(names)}."
        )


def sample_nodes(
    files: list[Path], most: int, held: HoldOut | None, group: str | None, *, written: tuple[str, ...] = ()
) -> pa.Table:
    """About ``most`` rows from everywhere in the tables, none of them held out; text files are read once for it.

    Columns of text files are numbers where all their values are, but for those ``written``.
    """
    counts = [rows_in([file]) for file in files]
    total = sum(count or most for count in counts)
    parts, start = [], 0
    for file, count in zip(files, counts, strict=True):
        wanted = max(1, round(most * (count or most) / max(total, 1)))
        found, start = _sample_file(file, wanted, count or wanted, start, held, group)
        parts += found
    if not parts:
        raise InputError("no row of the node tables is left to fit the preprocessing on. Lower --holdout.")
    table = unify(parts)
    return infer_types(table, written) if any(map(is_delimited, files)) else table


def _sample_file(
    path: Path, wanted: int, count: int, start: int, held: HoldOut | None, group: str | None
) -> tuple[list[Any], int]:
    """Rows at even steps: of Parquet from row groups at even steps, of others from the whole stream."""
    batches = _spread_groups(path, wanted) if path.suffix.lower() == ".parquet" else _placed(node_batches(path))
    step, parts, rows, last = max(1, count // wanted), [], 0, start
    for place, batch in batches:
        own = np.ones(batch.num_rows, bool) if held is None else held.of_batch(batch, start + place, group) == 0
        chosen = np.flatnonzero(own)[:: 1 if path.suffix.lower() == ".parquet" else step]
        if rows < 2 * wanted and len(chosen):
            parts.append(batch.take(pa.array(chosen)).replace_schema_metadata(None))
            rows += len(chosen)
        last = start + place + batch.num_rows
    return parts, max(last, start + count) if path.suffix.lower() == ".parquet" else last


def _placed(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    place = 0
    for batch in batches:
        yield place, batch
        place += batch.num_rows


def _spread_groups(path: Path, wanted: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """First rows of row groups that are spread over the file, with their place in it."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        places = np.concatenate([[0], np.cumsum(sizes)])
        chosen = np.unique(np.linspace(0, len(sizes) - 1, min(len(sizes), 16)).astype(int)) if sizes else []
        each = max(1, -(-wanted // max(len(chosen), 1)))
        for group in chosen:
            taken = 0
            for batch in file.iter_batches(batch_size=min(each, _BATCH), row_groups=[int(group)]):
                plain = [plain_column(column) for column in batch.columns]
                yield int(places[group]) + taken, pa.RecordBatch.from_arrays(plain, names=batch.schema.names)
                taken += batch.num_rows
                if taken >= each:
                    break
