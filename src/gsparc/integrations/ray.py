"""Batch scoring on Ray: units of work go to a pool of workers, each of which loads the model once.

The answers are those of the local engine to the byte: both cut files into the same batches, give each batch one
thread, and map the model's arrays (where numbers lie in memory decides how some products round). Workers write parts
that are named by their unit, so a unit that is done twice, because a worker was lost, is there once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gsparc._files import refuse_overwriting
from gsparc._optional import import_optional
from gsparc._validation import check_count
from gsparc.exceptions import GsparcError, InputError
from gsparc.tables import BATCH_ROWS
from gsparc.tables.parts import check_parts_target, parts_folder, publish_parts
from gsparc.tables.reading import Reject, table_files
from gsparc.tables.scoring import Job, Outcome, Scorer, Tally
from gsparc.tables.units import Unit, cut_units
from gsparc.tables.writing import RejectsFile, all_rejected, rejects_path

__all__ = ["predict_on_ray"]

_RETRIES = 8  # times that one worker may be lost: whatever kills it more often will kill it again
_STORE_BYTES = 1 << 30  # of Ray's memory for rows on their way, where we start it ourselves
_ARRAYS = ("used", "degrees", "keys")  # of an outcome: they travel as bytes
_PURPOSE = "scoring on Ray (--engine ray)"


def predict_on_ray(
    model: str | os.PathLike[str],
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    edges: str | os.PathLike[str] | None = None,
    edge_source: str | None = None,
    edge_target: str | None = None,
    coverage: float | None = 0.9,
    links: int = 5,
    near: int = 5,
    batch_rows: int = BATCH_ROWS,
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[int], object] = lambda rows: None,
) -> dict[str, Any]:
    """Predict every row of some files with a pool of Ray workers.

    Parameters
    ----------
    model
        Folder of a fitted table model. Every worker maps it from there, so it lies, as the rows and the output do,
        where all machines of the cluster find it under the same path.
    source
        A file, a folder or a pattern. Workers read Parquet themselves; other formats are read by one process.
    output
        A folder. It appears under its name when it is complete: Parquet parts in the order of the rows, and a file
        ``_SUCCESS`` with the counts. An earlier output of this function is replaced; a folder that
        holds anything else is refused. Rows that cannot be read go to ``NAME.rejects.csv`` beside it.
    edges, edge_source, edge_target
        Table of edges that new rows already have to known nodes, and its columns.
    workers : int, optional
        Processes that predict, one CPU each. Default: as many as there are CPUs.
    address : str, optional
        A running cluster, such as ``"auto"`` or ``"ray://host:10001"``. Default: Ray is started here and stopped at the
        end. A session that the calling process has already opened is used as it is.
    progress : callable
        Gets the number of rows that are done.

    Returns
    -------
    dict
        Counts, as of :func:`~gsparc.tables.streaming.predict_file`, with ``parts`` and ``workers``.

    Notes
    -----
    The rows are, to the bit, those of ``predict_file(TableModel.load(model, mapped=True), ...)`` with the same
    ``batch_rows`` on the same kind of processor.

    Examples
    --------
    >>> predict_on_ray("model", "new/*.parquet", "out", workers=2)["rows"]  # doctest: +SKIP
    5000000
    """
    start = time.perf_counter()
    files = table_files(source, what="rows")
    target = check_parts_target(output)
    for written in (target, rejects_path(output)):
        refuse_overwriting(written, [*files, edges])
    if workers is not None:
        check_count("workers", workers, 1)
    with RejectsFile(output) as rejects, parts_folder(target) as folder:
        job = Job(
            os.path.abspath(model),
            str(folder),
            coverage=coverage,
            links=links,
            near=near,
            batch_rows=batch_rows,
            edges=None if edges is None else os.path.abspath(edges),
            edge_source=edge_source,
            edge_target=edge_target,
        )
        tally = Tally(rejects.add)
        with _session(address, workers) as (ray, pool):
            for outcome in _outcomes(ray, job, files, pool):
                tally.add(outcome)
                progress(tally.rows)
        if not tally.is_complete:
            raise GsparcError("some of the work has been lost on the way; nothing was written. Run the command again.")
        nothing = not sum(tally.parts) and bool(rejects.count)
        if not nothing:
            publish_parts(folder, target, tally.parts, {"rejected": rejects.count, "abstained": tally.abstained})
    if nothing:
        raise all_rejected(rejects, f"{output} was not written")
    seconds = time.perf_counter() - start
    written = sum(tally.parts)
    return {
        "output": str(output),
        "rows": written,
        "rejected": rejects.count,
        "rejects": str(rejects.path) if rejects.count else None,
        "abstained": tally.abstained,
        "repeated_ids": tally.repeated.count,
        "edges": tally.edges(),
        "seconds": round(seconds, 3),
        "rows_per_second": round((written + rejects.count) / max(seconds, 1e-9), 1),
        "parts": len(tally.parts),
        "workers": pool,
    }


@contextlib.contextmanager
def _session(address: str | None, workers: int | None) -> Iterator[tuple[Any, int]]:
    """Ray, and how many workers it shall run; it is stopped afterwards if it was started here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # read when Ray starts: it sends nothing anywhere
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its lines would stand between those of the command
    ray = import_optional("ray", extra="ray", purpose=_PURPOSE)
    import_optional("ray.data", extra="ray", purpose=_PURPOSE)
    running = ray.is_initialized()
    if not running:
        _start(ray, address, workers)
    try:
        available = int(ray.cluster_resources().get("CPU", 0))
        if available < (workers or 1):
            raise InputError(
                f"{workers or 1} workers were asked for, and the Ray cluster has {available} CPUs; each worker takes "
                "one. Ask for fewer with --workers, or add machines."
            )
        yield ray, workers or (available if running or address else _cores())
    finally:
        if not running:
            ray.shutdown()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(ray: Any, address: str | None, workers: int | None) -> None:
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address is None:
        options |= {"num_cpus": workers or _cores(), "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        with _without_lines_of_the_backend():
            ray.init(address=address or "local", **options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = "here" if address is None else f"at {address}"
        raise GsparcError(
            f"Ray cannot be reached {where} ({' '.join(str(error).split())[:200]}). Start a cluster with "
            "'ray start --head', or leave --address out. A cluster that asks for a token is reached with "
            "RAY_AUTH_MODE=token in the environment, or, on its own machine, with --address auto."
        ) from error


def _outcomes(ray: Any, job: Job, files: list[Path], workers: int) -> Iterator[Outcome]:
    """Outcomes of all units, in any order."""
    data = ray.data
    context = data.DataContext.get_current().copy()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.target_max_block_size = 1  # byte: a block is what one worker gets at once, and shall be one unit
    with data.DataContext.current(context), _quiet():
        units = data.from_items([{"files": json.dumps([str(file) for file in files])}]).map_batches(
            _cut,
            fn_kwargs={"folder": os.getcwd(), "batch_rows": job.batch_rows},
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=0,  # so that it runs where workers hold all CPUs, and is not made one with them
        )
        done = units.map_batches(
            _Worker,
            fn_constructor_kwargs={"job": asdict(job)},
            batch_size=1,
            batch_format="pyarrow",
            compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=2),
            num_cpus=1,
            max_restarts=_RETRIES,
            max_task_retries=_RETRIES,
        )
        try:
            for row in done.iter_rows():
                yield _unpacked(row)
        except ray.exceptions.RayError as error:
            raise GsparcError(
                f"Ray gave up ({_first_line(error)}); nothing was written. Workers that are lost again and again often "
                "lack memory: ask for fewer with --workers, or for smaller batches with --batch-rows."
            ) from error


@contextlib.contextmanager
def _without_lines_of_the_backend() -> Iterator[None]:
    """Ray's compiled part greets on standard error, past Python; what goes wrong is raised and not only written."""
    if os.environ.get("GSPARC_DEBUG"):
        yield
        return
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without Ray Data's own notes of progress."""
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__


def _cut(batch: pa.Table, folder: str, batch_rows: int) -> Iterator[pa.Table]:
    """One row a unit; what is wrong with a file is passed on instead of raised, since trying again would not help."""
    try:
        os.chdir(folder)  # names of files are relative to where the command was given
        for unit in cut_units(json.loads(batch["files"][0].as_py()), batch_rows):
            yield _packed(unit.to_json(), unit.payload, "")
    except Exception as error:
        yield _packed("", b"", json.dumps([type(error).__name__, str(error)]))


def _packed(unit: str, payload: bytes, error: str) -> pa.Table:
    return pa.table({"unit": [unit], "payload": pa.array([payload], pa.large_binary()), "error": [error]})


class _Worker:
    """What runs in each process of the pool."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._scorer = Scorer(Job(**job))

    def __call__(self, batch: pa.Table) -> pa.Table:
        failed = batch["error"][0].as_py()
        if failed:
            outcome = Outcome(-1, error=tuple(json.loads(failed)))
        else:
            unit = Unit.from_json(batch["unit"][0].as_py(), batch["payload"][0].as_py())
            outcome = self._scorer.score(unit)
        plain = {key: value for key, value in vars(outcome).items() if key not in _ARRAYS}
        return pa.table(
            {
                "outcome": [json.dumps(plain)],
                **{name: pa.array([getattr(outcome, name).tobytes()], pa.large_binary()) for name in _ARRAYS},
            }
        )


def _unpacked(row: dict[str, Any]) -> Outcome:
    values = json.loads(row["outcome"])
    values["rejects"] = [Reject(*reject) for reject in values["rejects"]]
    values["error"] = None if values["error"] is None else tuple(values["error"])
    arrays: dict[str, Any] = {name: np.frombuffer(row[name], np.int64) for name in _ARRAYS}
    return Outcome(**values, **arrays)
