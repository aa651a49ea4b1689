"""Run the cells of a table, in several processes, so that a killed run loses no finished cell."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gsparc._runtime import progress_bar, resolve_device
from gsparc._validation import check_count
from gsparc.exceptions import GsparcError
from gsparc.experiments.engine import Cell, Context, Experiment, plan
from gsparc.experiments.provenance import cores
from gsparc.experiments.results import ResultFile, plain

__all__ = ["failed_cells", "load_table", "run_experiment"]

logger = logging.getLogger(__name__)

Record = dict[str, Any]


def load_table(name: str) -> Experiment:
    """The table of a command's word: ``"cold-share"`` is ``TABLE`` of ``gsparc.experiments.cold_share``."""
    module = importlib.import_module(f"gsparc.experiments.{name.replace('-', '_')}")
    return module.TABLE


def run_experiment(
    experiment: Experiment,
    *,
    output: Path,
    seeds: int | Iterable[int] = 10,
    datasets: Iterable[str] | None = None,
    settings: Iterable[str] | None = None,
    methods: Iterable[str] | None = None,
    device: str = "auto",
    jobs: int = 1,
    resume: bool = False,
    fresh: bool = False,
    smoke: bool = False,
    data_dir: Path | None = None,
    generated: bool = False,
    show_progress: bool = True,
) -> Record:
    """Run what is missing of a table and return its result file, which is written after every finished cell.

    Parameters
    ----------
    experiment : Experiment
        The table.
    output : Path
        Folder of the result files; this one is ``output/NAME.json``.
    seeds : int or iterable of int
        How many seeds (0, 1, ...), or which.
    datasets, settings, methods : iterable of str, optional
        A part of the table. Default: all of it, with the table's own data sets.
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.
    jobs : int
        Processes; they share the cores.
    resume : bool
        Keep the finished cells of an earlier run with the same versions and the same GPU; failed ones run again.
        Without it a file that holds finished cells is refused.
    fresh : bool
        Start over: an existing file is replaced when the first cell is finished.
    smoke : bool
        Few steps, on a small generated graph unless ``datasets`` says otherwise: only whether everything runs.
    data_dir : Path, optional
        Where the data sets' files are.
    generated : bool
        Generated graphs of the size of Reddit and Amazon2M stand in for them; their cells are marked.
    show_progress : bool
        A bar with the time left on standard error.

    Notes
    -----
    A cell that raises is kept as ``{"error": ...}`` and the run goes on; :func:`failed_cells` lists them. After a
    KeyboardInterrupt no worker is left running and the file holds every cell finished before it.
    """
    check_count("jobs", jobs, 1)
    where = str(resolve_device(device))  # refused here rather than in every cell
    numbers = range(check_count("seeds", seeds, 1)) if isinstance(seeds, int) else list(seeds)
    cells = plan(experiment, seeds=numbers, datasets=datasets, settings=settings, methods=methods, smoke=smoke)
    graphs = dict.fromkeys(cell.dataset for cell in cells)
    contexts = {name: Context(name, where, smoke, data_dir, generated) for name in graphs}
    file = ResultFile(output / f"{experiment.name}.json", experiment, smoke=smoke)
    file.open(resume=resume, fresh=fresh)
    for name, context in contexts.items():
        file.check_generated(name, context.is_generated)
    file.groups |= dict.fromkeys((cell.dataset, cell.setting) for cell in cells)
    finished = file.finished
    pending = [
        cell
        for cell in cells
        if cell.key not in finished and experiment.skip(cell.dataset, cell.setting, cell.method) is None
    ]
    for name in dict.fromkeys(cell.dataset for cell in pending):
        _check_present(contexts[name])
    with (
        TemporaryDirectory(prefix="gsparc-", ignore_cleanup_errors=True) as shared,
        progress_bar(experiment.name, len(pending), show=show_progress) as bar,
    ):
        contexts = {name: replace(context, shared=Path(shared)) for name, context in contexts.items()}
        work = [(experiment.module, cell, contexts[cell.dataset]) for cell in pending]
        with closing(_results(work, jobs)) as results:  # closed at once on an interrupt, not when collected
            for count, (cell, record) in enumerate(results, start=1):
                file.add(cell, record)
                bar.update(count, last=f"{cell.key}{' failed' if 'error' in record else ''}")
    file.write()
    return file.document()


def failed_cells(document: Record) -> list[str]:
    """Keys of the cells of a result file that raised an error."""
    return [key for key, record in document["cells"].items() if "error" in record]


def _check_present(context: Context) -> None:
    """Say before any work that a data set's files are missing, rather than in each of its cells."""
    from gsparc.datasets import data_folders, load_dataset
    from gsparc.exceptions import DataNotFoundError

    name = context.dataset
    if context.is_generated or name == "debian":
        return
    if any((folder / f"{name}.npz").is_file() for folder in data_folders(context.data_dir)):
        return
    try:
        load_dataset(name, folder=context.data_dir, allow_pickle_sources=False)
    except DataNotFoundError as error:
        from gsparc.experiments.engine import GENERATED_SIZES

        stand_in = " Or pass --generated for a made-up graph of its size." if name in GENERATED_SIZES else ""
        raise DataNotFoundError(
            f"{error} On the command line: --data-dir, or leave {name!r} out with --datasets.{stand_in}"
        ) from error


Work = tuple[str, Cell, Context]


def _results(work: list[Work], jobs: int) -> Generator[tuple[Cell, Record], None, None]:
    """Cells as they finish."""
    if jobs == 1 or len(work) <= 1:
        for module, cell, context in work:
            yield cell, _run_cell(module, cell, context)
        return
    before = set(multiprocessing.active_children())
    workers = min(jobs, len(work))
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),  # CUDA and threads do not survive a fork
        initializer=_start_worker,
        initargs=(max(1, cores() // workers),),
    )
    try:
        futures = {pool.submit(_run_cell, *item): item[1] for item in work}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise GsparcError(
            "a worker process was killed, most often for want of memory. Finished cells are kept: run again with "
            "--resume and fewer --jobs."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()  # after an interrupt they are in the middle of a cell
            child.join()


def _start_worker(threads: int) -> None:
    """In a new worker: its share of the cores, no interrupts of its own, and an end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent answers it
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # torch and faiss are loaded later, and read it then
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)  # the parent was killed: nobody is left to take the result


def _run_cell(module: str, cell: Cell, context: Context) -> Record:
    """What a result file holds for a cell; an exception becomes a sentence."""
    start = time.perf_counter()
    record: Record = {}
    try:
        numbers = dict(importlib.import_module(module).TABLE.run(cell, context))
        if "not_applicable" in numbers:
            record["not_applicable"] = str(numbers["not_applicable"])
        else:
            record["seconds"] = float(numbers.pop("seconds", time.perf_counter() - start))
            record["numbers"] = plain(numbers)
    except Exception as error:
        if os.environ.get("GSPARC_DEBUG"):
            logger.warning("%s failed", cell.key, exc_info=True)
        record = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")}
    record.setdefault("seconds", time.perf_counter() - start)
    _leave_room(context.device)
    record["device"] = context.device.partition(":")[0]
    if context.is_generated:
        record["generated"] = True
    return record


def _leave_room(device: str) -> None:
    """Hand back what a cell held of a GPU: other workers may need it before this one does again."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
