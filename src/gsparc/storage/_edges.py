"""Edges of any number as sorted CSR arrays on disk: ids joined to positions, and both directions sorted, by DuckDB.

DuckDB keeps to a limit of memory and goes on in files beyond it. On 20 million edges, one thread and a limit of
512 MB, join and sort take 16 s; polars is twice as fast but has no limit, and sorting blocks of rows in numpy
saves a third: not enough to keep a sort of our own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gsparc._csr import MAX_NODES, index_dtype
from gsparc._mapped import NpyWriter
from gsparc._optional import import_optional
from gsparc.exceptions import GraphError
from gsparc.storage._inputs import column_batches
from gsparc.tables._id_values import as_text_ids, as_whole_ids, text_values
from gsparc.tables._types import is_number
from gsparc.tables.columns import EdgeColumns
from gsparc.tables.joining import header_words
from gsparc.tables.reading import is_delimited

__all__ = ["DATABASE", "connect", "header_note", "join_edges", "refuse_repeated_ids", "write_csr"]

Progress = Callable[[int], object]
DATABASE = "edges.duckdb"
_BATCH = 1 << 20
_LEAST = 256 << 20  # bytes below which DuckDB cannot sort
_REST = 600 << 20  # what libraries and batches take beside it


def connect(folder: Path, memory: int, *, fresh: bool = False) -> Any:
    """A DuckDB database in ``folder`` with a share of ``memory`` bytes; Python and batches take the rest.

    ``fresh``: an empty one. What a run that was killed left of the file may be no database.
    """
    duckdb = import_optional("duckdb", extra="store", purpose="gsparc ingest")
    shutil.rmtree(folder / "spill", ignore_errors=True)  # of a run that was killed
    if fresh:
        for left in (DATABASE, f"{DATABASE}.wal"):
            (folder / left).unlink(missing_ok=True)
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    settings = {
        "memory_limit": f"{max(_LEAST, (memory - _REST) * 6 // 10) // (1 << 20)}MiB",
        "threads": max(1, min(threads, memory // (512 << 20))),
        "temp_directory": str(folder / "spill"),
        "preserve_insertion_order": False,
    }
    base = duckdb.connect(str(folder / DATABASE), config=settings)
    # it takes a stream for one row and would hash the edges, all of them, in memory, instead of the names of the nodes
    base.execute("SET disabled_optimizers = 'build_side_probe_side'")
    return base


def _rows(base: Any, query: str) -> list[Any]:
    """All rows of a query: one that is not read to its end holds the connection."""
    return base.execute(query).fetchall()


def _reader(relation: Any) -> Any:
    read = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
    return read(_BATCH)


def refuse_repeated_ids(base: Any, store: Path, kind: str, column: str) -> None:
    """Put the ids into the table ``names(id, place)``; GraphError where two nodes have the same."""
    base.execute("DROP TABLE IF EXISTS names")
    source = pa.RecordBatchReader.from_batches(_ids_schema(kind), _id_batches(store, kind))
    base.register("incoming", source)
    base.execute("CREATE TABLE names AS SELECT * FROM incoming")
    base.unregister("incoming")
    found = "SELECT id, list(place + 1 ORDER BY place)[:5] AS rows FROM names GROUP BY id HAVING count(*) > 1"
    count = _rows(base, f"SELECT count(*) FROM ({found})")[0][0]
    if count:
        first = _rows(base, f"{found} ORDER BY id LIMIT 3")
        shown = "; ".join(f"{name!r} in rows {', '.join(f'{row:,}' for row in rows)}" for name, rows in first)
        raise GraphError(
            f"{count:,} id(s) in column {column!r} of the node tables stand in more than one row: {shown}"
            f"{'; ...' if count > 3 else ''} (counted over all files). Each node needs an id of its own: drop or "
            "rename the others, or name another column with --id."
        )


def _ids_schema(kind: str) -> pa.Schema:
    return pa.schema([("id", pa.int64() if kind == "integers" else pa.string()), ("place", pa.int64())])


def _id_batches(store: Path, kind: str) -> Iterator[pa.RecordBatch]:
    if kind == "integers":
        ids = np.load(store / "ids.npy", mmap_mode="r", allow_pickle=False)
        for start in range(0, len(ids), _BATCH):
            part = np.array(ids[start : start + _BATCH])
            yield pa.record_batch([part, np.arange(start, start + len(part))], schema=_ids_schema(kind))
        return
    from pyarrow import ipc

    file, start = ipc.open_file(pa.memory_map(str(store / "ids.arrow"))), 0
    for number in range(file.num_record_batches):
        column = file.get_batch(number).column(0).cast(pa.string())
        yield pa.record_batch([column, np.arange(start, start + len(column))], schema=_ids_schema(kind))
        start += len(column)


def join_edges(
    base: Any, files: list[Path], columns: EdgeColumns, nodes: int, kind: str, dangling: str, progress: Progress
) -> dict[str, Any]:
    """Put all edges as positions into the table ``pairs(s, t[, w])`` and count what was left out.

    ``kind`` is what the ids of the nodes are; "positions": the ends are positions themselves.
    """
    if nodes > MAX_NODES:
        raise GraphError(f"{nodes:,} nodes are more than gsparc can index ({MAX_NODES:,}).")
    stream = _Stream(files, columns, kind != "strings", progress)
    base.execute("DROP TABLE IF EXISTS pairs")
    base.register("incoming", stream.reader())
    try:
        base.execute(f"CREATE TABLE pairs AS {_joined(kind, nodes, columns.weight is not None)}")
    except Exception:
        if stream.error is not None:
            raise stream.error from None
        raise
    finally:
        base.unregister("incoming")
    if stream.error is not None:
        raise stream.error
    if not stream.rows:
        raise GraphError("the edge tables have no rows; one row an edge was expected.")
    return _counts(base, stream, files, columns, nodes, kind, dangling)


def header_note(base: Any, files: list[Path], columns: EdgeColumns, nodes: int, kind: str) -> str | None:
    """That the columns of an edge list are called as two nodes are, where a text file has such a header."""
    names = [columns.source, columns.target]
    if not any(map(is_delimited, files)):
        return None
    if kind != "strings":
        whole = as_whole_ids(pa.array(names))
        if whole.null_count:
            return None
        names = [str(number) for number in whole.to_pylist()]
    if kind == "positions":
        found = all(0 <= int(name) < nodes for name in names)
    else:
        query = "SELECT count(DISTINCT id) FROM names WHERE CAST(id AS VARCHAR) IN (?, ?)"
        found = base.execute(query, names).fetchall()[0][0] == 2
    return header_words(columns.source, columns.target) if found else None


def _joined(kind: str, nodes: int, weighted: bool) -> str:
    more = ", e.w AS w" if weighted else ""
    if kind == "positions":
        ends = [f"CASE WHEN e.{end} BETWEEN 0 AND {nodes - 1} THEN e.{end} ELSE -1 END AS {end}" for end in "st"]
        return f"SELECT {', '.join(ends)}{more} FROM incoming e"
    return (
        f"SELECT coalesce(a.place, -1) AS s, coalesce(b.place, -1) AS t{more} FROM incoming e "
        "LEFT JOIN names a ON e.s = a.id LEFT JOIN names b ON e.t = b.id"
    )


def _counts(
    base: Any, stream: _Stream, files: list[Path], columns: EdgeColumns, nodes: int, kind: str, dangling: str
) -> dict[str, Any]:
    one = _rows(base, "SELECT count(*) FILTER (s < 0 OR t < 0), count(*) FILTER (s = t AND s >= 0) FROM pairs")[0]
    counts = {"rows": stream.rows, "missing": stream.missing, "unknown": one[0], "self_loops": one[1]}
    if counts["unknown"] and dangling == "error":
        shown = stream.strange_words() or _strangers(base, files, columns, nodes, kind)
        raise GraphError(
            f"{counts['unknown']:,} of {stream.rows:,} edges name a node that is not known (first: {shown}). Add these "
            "nodes, or leave such edges out with --dangling drop."
        )
    if counts["unknown"] + counts["self_loops"] == stream.rows - stream.missing:
        raise GraphError(
            f"none of the {stream.rows:,} edges (columns {columns.source!r} and {columns.target!r}) joins two "
            "different nodes of the node tables. Check which columns hold the ids."
        )
    return counts


def _strangers(base: Any, files: list[Path], columns: EdgeColumns, nodes: int, kind: str) -> str:
    """A few ids that edges name and no node has; the tables are read again for them."""
    base.register("incoming", _Stream(files, columns, kind != "strings", lambda rows: None).reader())
    unknown = f"NOT (id BETWEEN 0 AND {nodes - 1})" if kind == "positions" else "id NOT IN (SELECT id FROM names)"
    query = f"SELECT id FROM (SELECT unnest([s, t]) AS id FROM incoming) WHERE {unknown} LIMIT 3"
    shown = ", ".join(repr(row[0]) for row in _rows(base, query))
    base.unregister("incoming")
    return shown


class _Stream:
    """Batches of ends (s, t) and weights (w) for DuckDB; its first error is kept, since DuckDB would reword it."""

    def __init__(self, files: list[Path], columns: EdgeColumns, whole: bool, progress: Progress) -> None:
        self._files, self._columns, self._progress = files, columns, progress
        self._kind = pa.int64() if whole else pa.string()
        self.rows = self.missing = 0
        self._strange: list[Any] = []  # a few ends that are no whole numbers where the ids of the nodes are
        self.error: Exception | None = None
        more = [("w", pa.float64())] if columns.weight else []
        self._schema = pa.schema([("s", self._kind), ("t", self._kind), *more])

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            names = [n for n in (self._columns.source, self._columns.target, self._columns.weight) if n]
            for file in self._files:
                for batch in column_batches(file, names):
                    yield self._plain(file, batch)
                    self._progress(self.rows)
        except Exception as error:
            self.error = error
            raise

    def _plain(self, file: Path, batch: pa.RecordBatch) -> pa.RecordBatch:
        given = [text_values(batch.column(place)) for place in (0, 1)]
        ends = [self._ends(column) for column in given]
        keep = np.asarray(given[0].is_valid()) & np.asarray(given[1].is_valid())
        self.rows += batch.num_rows
        self.missing += int((~keep).sum())
        made = [*ends, *([self._weights(file, batch.column(2))] if self._columns.weight else [])]
        out = pa.RecordBatch.from_arrays(made, schema=self._schema)
        return out if keep.all() else out.filter(pa.array(keep))

    def _ends(self, values: Any) -> pa.Array:
        """Ends of the kind that the ids have; what cannot be one is missing here, and so names no node."""
        made = as_whole_ids(values) if pa.types.is_integer(self._kind) else as_text_ids(values)
        if made.null_count > values.null_count and len(self._strange) < 3:
            self._strange += values.filter(made.is_null()).drop_null()[:3].to_pylist()
        return made.combine_chunks().cast(self._kind)

    def strange_words(self) -> str:
        """Some ends that no id can be equal to; empty where there are none."""
        shown = ", ".join(repr(value) for value in self._strange[:3])
        return f"{shown}; the ids of the nodes are whole numbers" if shown else ""

    def _weights(self, file: Path, column: Any) -> pa.Array:
        column = text_values(column).combine_chunks()
        try:
            values = (
                column.cast(pa.float64()) if is_number(column.type) else column.cast(pa.string()).cast(pa.float64())
            )
        except pa.ArrowInvalid as error:
            raise GraphError(
                f"{file}: column {self._columns.weight!r} holds a weight that is no number: {error}."
            ) from error
        numbers = values.fill_null(np.nan).to_numpy(zero_copy_only=False)
        bad = ~(np.isfinite(numbers) & (numbers >= 0))
        if bad.any():
            raise GraphError(
                f"{file}: column {self._columns.weight!r} holds {int(bad.sum()):,} weights that are missing, negative "
                f"or not finite (first: {numbers[bad][0]}). Remove or fill those edges."
            )
        return values if isinstance(values, pa.Array) else values.combine_chunks()


def write_csr(base: Any, folder: Path, nodes: int, weighted: bool, progress: Progress) -> dict[str, Any]:
    """Sort both directions of all edges and write ``indptr.npy``, ``indices.npy`` and ``weights.npy``."""
    if weighted:
        _merge_weights(base, nodes)
        table, more = "merged", ", w"
    else:
        table, more = "pairs", ""
    usable = "WHERE s <> t AND s >= 0 AND t >= 0"
    query = (
        f"SELECT k{more} FROM (SELECT s * {nodes}::BIGINT + t AS k{more} FROM {table} {usable} UNION ALL "
        f"SELECT t * {nodes}::BIGINT + s AS k{more} FROM {table} {usable}) ORDER BY k"
    )
    last, ones, done = -1, True, 0
    with (
        NpyWriter(folder / "indptr.npy", np.int64) as indptr,
        NpyWriter(folder / "indices.npy", index_dtype(nodes)) as indices,
        NpyWriter(folder / "weights.npy", np.float32) as weights,
    ):
        for batch in _reader(base.sql(query)):
            keys = batch.column(0).to_numpy()
            if not len(keys):
                continue
            done += len(keys)
            fresh = np.append(keys[:1] != last, keys[1:] != keys[:-1])
            last, kept = int(keys[-1]), keys[fresh]
            if not len(kept):
                continue
            rows = kept // nodes
            _begin_rows(indptr, rows, indices.rows)
            indices.append(kept - rows * nodes)
            if weighted:
                values = batch.column(1).to_numpy()[fresh].astype(np.float32)
                ones = ones and bool((values == 1).all())
                weights.append(values)
            progress(done)
        entries = indices.rows
        for start in range(indptr.rows, nodes + 1, _BATCH):  # rows without entries at the end
            indptr.append(np.full(min(_BATCH, nodes + 1 - start), entries))
    if not weighted or ones:
        (folder / "weights.npy").unlink()
    return {"edges": entries // 2, "weighted": weighted and not ones}


def _begin_rows(indptr: NpyWriter, rows: NDArray[np.int64], entries: int) -> None:
    """Write where rows begin, up to the last of the sorted ``rows``, whose entries come after ``entries`` others."""
    for start in range(indptr.rows, int(rows[-1]) + 1, _BATCH):  # ids without edges may be many between two batches
        part = np.arange(start, min(start + _BATCH, int(rows[-1]) + 1))
        indptr.append(entries + np.searchsorted(rows, part))


def _merge_weights(base: Any, nodes: int) -> None:
    """The table ``merged(s, t, w)``, s < t: repeats of a direction added up, of two directions the larger weight.

    Sums are taken over sorted weights, so that they do not depend on the order in which DuckDB works.
    """
    query = (
        f"SELECT least(s, t) * {nodes}::BIGINT + greatest(s, t) AS k, s > t AS back, w FROM pairs "
        "WHERE s <> t AND s >= 0 AND t >= 0 AND w > 0 ORDER BY k, back, w"
    )
    base.execute("DROP TABLE IF EXISTS merged")
    base.execute("CREATE TABLE merged (s BIGINT, t BIGINT, w DOUBLE)")
    writer = base.cursor()
    kept = [np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0)]
    for batch in _reader(base.sql(query)):
        now = [batch.column(i).to_numpy(zero_copy_only=False) for i in range(3)]
        k, back, w = (np.concatenate(pair) for pair in zip(kept, now, strict=True))
        end = int(np.searchsorted(k, k[-1])) if len(k) else 0  # the last edge may go on in the next batch
        _insert(writer, (k[:end], back[:end], w[:end]), nodes)
        kept = [k[end:], back[end:], w[end:]]
    _insert(writer, tuple(kept), nodes)
    writer.close()


def _insert(base: Any, edges: tuple[NDArray[Any], ...], nodes: int) -> None:
    """Add sorted edges (key, direction, weight), merged, to the table."""
    k, back, w = edges
    if not len(k):
        return
    starts = np.flatnonzero(np.append(True, (k[1:] != k[:-1]) | (back[1:] != back[:-1])))
    sums, edge = np.add.reduceat(w, starts), k[starts]
    firsts = np.flatnonzero(np.append(True, edge[1:] != edge[:-1]))
    largest, edge = np.maximum.reduceat(sums, firsts), edge[firsts]
    with np.errstate(over="ignore", under="ignore"):
        single = largest.astype(np.float32)
    if not (np.isfinite(single).all() and (single > 0).all()):
        raise GraphError(
            "weights, once the repeats of an edge are added up, do not fit float32 "
            f"(they span {largest.min()} to {largest.max()}). Rescale them."
        )
    rows = pa.table({"s": edge // nodes, "t": edge % nodes, "w": largest})
    base.register("rows", rows)
    base.execute("INSERT INTO merged SELECT * FROM rows")
    base.unregister("rows")
