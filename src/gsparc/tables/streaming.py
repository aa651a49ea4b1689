"""A file of new rows in, a file of predictions out, a block at a time."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gsparc._files import refuse_overwriting
from gsparc.exceptions import GraphError, InputError
from gsparc.tables import BATCH_ROWS
from gsparc.tables._id_values import as_text_ids, as_whole_ids, ids_like, text_values
from gsparc.tables.reading import Reject, row_numbers, stream_table, table_files
from gsparc.tables.writing import RejectsFile, TableWriter, all_rejected, rejects_path

if TYPE_CHECKING:
    import pyarrow as pa

    from gsparc.tables.columns import EdgeColumns
    from gsparc.tables.model import TableModel

__all__ = ["FirstEdges", "RepeatedIds", "estimated_rows", "id_keys", "predict_file"]

MOST_IDS = 1 << 23  # rows whose ids are remembered, to say how many repeat: 64 MB of hashes
Report = Callable[[int], object]


class FirstEdges:
    """Edges between new rows and known nodes, looked up by the new rows' ids.

    ``counts`` says how many there were, how many name no known node, and (at the end) how many name no new row.
    """

    def __init__(self, model: TableModel, edges: pa.Table, columns: EdgeColumns) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        ends = [ids_like(model.node_ids, edges[name]) for name in (columns.source, columns.target)]
        places = [model.find(column) for column in ends]
        # the far end is the target where that is known; otherwise the edge may be written the other way round
        forward = places[1] >= 0
        usable = forward | (places[0] >= 0)
        own = pc.call_function("if_else", [pa.array(forward), *(_text(column) for column in ends)])
        usable &= ~np.asarray(own.is_null())
        self.counts = {"edges": edges.num_rows, "unknown": int((~usable).sum()), "unused": 0}
        if not usable.any():
            raise GraphError(
                f"none of the {edges.num_rows:,} edges (columns {columns.source!r} and {columns.target!r}) names a "
                "known node. Check which columns hold the ids: --edge-source and --edge-target."
            )
        coded = own.filter(pa.array(usable)).combine_chunks().dictionary_encode()
        self._ids = coded.dictionary
        code = coded.indices.to_numpy()
        order = np.argsort(code, kind="stable")
        self._starts = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(self._ids)))])
        self._nodes = np.where(forward, places[1], places[0])[usable][order]
        self._used = np.zeros(len(self._ids), bool)

    def of(self, ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Rows and positions of the known nodes that rows with these ids are linked to."""
        import pyarrow as pa
        import pyarrow.compute as pc

        wanted = pa.array([None if value is None else str(value) for value in ids.tolist()], pa.large_string())
        found = pc.call_function("index_in", [wanted], pc.SetLookupOptions(value_set=self._ids))
        code = np.asarray(found.fill_null(-1)).astype(np.int64)
        rows = np.flatnonzero(code >= 0)
        self._used[code[rows]] = True
        self.counts["unused"] = int(np.diff(self._starts)[~self._used].sum())
        if not len(rows):
            return None
        count = np.diff(self._starts)[code[rows]]
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        return np.repeat(rows, count), self._nodes[np.repeat(self._starts[code[rows]], count) + inside]


class RepeatedIds:
    """Counts rows whose id an earlier row has, by hashes of 8 bytes and up to a number of rows.

    Examples
    --------
    >>> import pyarrow as pa
    >>> found = RepeatedIds()
    >>> for part in (["a", "b"], ["a", "a"]):
    ...     found.add(id_keys(pa.array(part)))
    >>> found.count
    2
    """

    def __init__(self) -> None:
        self._keys: list[NDArray[np.int64]] = []
        self.rows = 0

    def add(self, keys: NDArray[np.int64]) -> None:
        """Keys of further ids."""
        if self.rows < MOST_IDS:
            self._keys.append(keys)
            self.rows += len(keys)

    @property
    def count(self) -> int:
        """How many rows repeat an id, among those that were looked at."""
        return self.rows - (len(np.unique(np.concatenate(self._keys))) if self._keys else 0)


def id_keys(ids: Any, *, stable: bool = False) -> NDArray[np.int64]:
    """A whole number for each id of a column; ``stable``: the same in every process."""
    import pyarrow as pa

    if pa.types.is_integer(ids.type):
        return ids.to_numpy().astype(np.int64)
    if not stable:
        return np.array([hash(value) for value in ids.to_pylist()], np.int64)
    from hashlib import blake2b

    digests = [blake2b(str(value).encode(), digest_size=8).digest() for value in ids.to_pylist()]
    return np.frombuffer(b"".join(digests), np.int64)


def _text(column: Any) -> Any:
    import pyarrow as pa

    return column.cast(pa.large_string())


def estimated_rows(path: str | os.PathLike[str]) -> int | None:
    """About how many rows there are, without reading them; None where that cannot be told."""
    total = 0
    for file in table_files(path, what="rows"):
        suffix = file.suffix.lower()
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            try:
                total += pq.ParquetFile(file).metadata.num_rows
            except Exception:  # said in words when it is read
                return None
        elif suffix in (".csv", ".tsv", ".jsonl", ".ndjson"):
            with open(file, "rb") as stream:
                start = stream.read(1 << 16)
            size, lines = file.stat().st_size, start.count(b"\n") + (not start.endswith(b"\n"))
            lines = lines if len(start) == size else round(size * lines / max(len(start), 1))
            total += max(1, lines - (suffix in (".csv", ".tsv")))  # without the header
        else:
            return None
    return total


def predict_file(
    model: TableModel,
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    edges: FirstEdges | None = None,
    coverage: float | None = 0.9,
    links: int = 5,
    near: int = 5,
    batch_rows: int = BATCH_ROWS,
    workers: int | None = None,
    progress: Report = lambda rows: None,
) -> dict[str, Any]:
    """Predict every row of a file in bounded memory.

    Rows that cannot be read go to a file beside the output, ``NAME.rejects.csv``, each with the reason. Both files
    appear under their names only when they are complete. Where no row can be used the output is not written, and an
    InputError says so.
    """
    for written in (Path(output), rejects_path(output)):
        refuse_overwriting(written, table_files(source, what="rows"))
    start = time.perf_counter()
    asked: dict[str, Any] = {"coverage": coverage, "links": links, "near": near, "position": False}
    rows = abstained = 0
    repeated = RepeatedIds()
    with RejectsFile(output) as rejects:
        blocks = _blocks(source, batch_rows, rejects)
        first = next(blocks, None)
        named = first is not None and model.columns.id in first[1].schema.names
        with TableWriter(output, _schema(model, asked, named)) as writer:
            jobs = ((model, file, batch, asked, edges, named) for file, batch in _chain(first, blocks))
            for answer in _in_order(_predicted, jobs, workers or _workers(model)):
                for reject in answer.rejects:
                    rejects.add(reject)
                writer.write(answer.table if named else _numbered(answer.table, rows))
                if named:
                    repeated.add(id_keys(answer.table["id"]))
                rows, abstained = rows + answer.rows, abstained + answer.abstained
                progress(rows)
            if nothing := not writer.rows and bool(rejects.count):
                writer.discard()
    if nothing:
        raise all_rejected(rejects, f"{output} was not written")
    seconds = time.perf_counter() - start
    return {
        "output": str(output),
        "rows": writer.rows,
        "rejected": rejects.count,
        "rejects": str(rejects.path) if rejects.count else None,
        "abstained": abstained,
        "repeated_ids": repeated.count,
        "edges": None if edges is None else edges.counts,
        "seconds": round(seconds, 3),
        "rows_per_second": round((writer.rows + rejects.count) / max(seconds, 1e-9), 1),
    }


def _workers(model: TableModel) -> int:
    """Blocks that are worked on at once: one a core, or one where a GPU does the work."""
    import torch

    return 1 if torch.cuda.is_available() else max(1, min(torch.get_num_threads(), 8))


def _in_order(work: Callable[..., Any], jobs: Iterator[tuple[Any, ...]], workers: int) -> Iterator[Any]:
    """Results of jobs in their order, ``workers`` of them at work and at most one more waiting.

    One thread a block scales better than several threads in each: much of the work between matrix products is not
    shared among threads.
    """
    if workers == 1:
        yield from (work(*job) for job in jobs)
        return
    waiting: deque[Future[Any]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="gsparc-predict", initializer=_one_thread)
    try:
        for job in jobs:
            waiting.append(pool.submit(work, *job))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _one_thread() -> None:
    """In a worker: no threads of its own inside the products."""
    import contextlib

    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import faiss

        faiss.omp_set_num_threads(1)


def _blocks(source: Any, batch_rows: int, rejects: RejectsFile) -> Iterator[tuple[Path, pa.RecordBatch]]:
    for file in table_files(source, what="rows"):
        for batch in stream_table(file, batch_rows=batch_rows, rejects=rejects.add):
            yield file, batch


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
    yield from rest


def _schema(model: TableModel, asked: dict[str, Any], named: bool) -> pa.Schema:
    """Columns of the output, whatever the rows turn out to be."""
    row = np.zeros((1, model.preprocess.n_features), np.float32)
    example = model.predict(row, **asked, ids=model.node_ids[:1] if named else None)
    return example.to_arrow().schema


def _numbered(table: pa.Table, start: int) -> pa.Table:
    """The same with row numbers that go on from ``start``."""
    import pyarrow as pa

    return table.set_column(0, "id", pa.array(np.asarray(table["id"]) + start))


class _Answer(NamedTuple):
    table: pa.Table
    rejects: list[Reject]
    rows: int
    abstained: int


def _predicted(
    model: TableModel,
    file: Path,
    batch: pa.RecordBatch,
    asked: dict[str, Any],
    edges: FirstEdges | None,
    named: bool,
) -> _Answer:
    """Predictions of the rows of a block that can be read, and those that cannot."""
    ids, wrong = _ids(model, batch) if named else (np.arange(batch.num_rows), {})
    own = ids if named else None  # row numbers are no ids
    said = model.predict(batch, **asked, ids=own, edges=None if edges is None else edges.of(ids))
    said.bad = {**said.bad, **wrong}
    rejects, numbers = [], row_numbers(batch) if said.bad else ()
    for row, reason in sorted(said.bad.items()):
        given = None if row in wrong and ids[row] is None else str(ids[row])
        rejects.append(Reject(str(file), int(numbers[row]), given, reason))
    abstained = 0 if said.abstained is None else int(said.abstained[said.good].sum())
    return _Answer(said.to_arrow(), rejects, batch.num_rows, abstained)


def _ids(model: TableModel, batch: pa.RecordBatch) -> tuple[NDArray[Any], dict[int, str]]:
    """Ids of the kind that the model has, and what is wrong with those that are not."""
    import pyarrow as pa

    name = model.columns.id
    if name not in batch.schema.names:
        raise InputError(f"a part of the rows has no column {name!r}, which holds the ids.")
    column = text_values(batch.column(name))
    wrong = {int(row): f"{name} is missing" for row in np.flatnonzero(np.asarray(column.is_null()))}
    if pa.types.is_nested(column.type):
        reason = f"{name} holds {column.type}, expected one value a row"
        return np.full(len(column), None, dtype=object), dict.fromkeys(range(len(column)), reason)
    if model.node_ids.dtype.kind == "U":
        return np.array(as_text_ids(column).to_pylist(), dtype=object), wrong
    numbers = as_whole_ids(column)
    strange = np.flatnonzero(np.asarray(numbers.is_null()) & np.asarray(column.is_valid()))
    if not wrong and not len(strange):
        return np.asarray(numbers), wrong
    ids = np.array(numbers.to_pylist(), dtype=object)
    for row, value in zip(strange.tolist(), column.take(strange).to_pylist(), strict=True):
        ids[row] = value  # as it is written, for the list of rejects: a number of ours may be a node's
        wrong[row] = f"{name} is {value!r}, expected a whole number"
    return ids, wrong
