"""Run the cells of one or more tables, in several processes, so that a killed run loses no finished cell."""

from __future__ import annotations

import importlib
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gsparc._runtime import progress_bar, resolve_device
from gsparc._validation import check_count
from gsparc.exceptions import GsparcError, InputError
from gsparc.experiments.engine import Cell, Context, Experiment, plan
from gsparc.experiments.results import ResultFile, fault, plain
from gsparc.experiments.workers import alone, as_finished

__all__ = ["Part", "failed_cells", "load_table", "run_experiment", "run_experiments"]

logger = logging.getLogger(__name__)

Record = dict[str, Any]

_LOST, _NO_ROOM = "lost", "no room"  # what can be wrong with a GPU


@dataclass(frozen=True)
class Part:
    """A table and what of it is to be run: its data sets, settings and methods; ``None`` stands for all of them."""

    experiment: Experiment
    datasets: Iterable[str] | None = None
    settings: Iterable[str] | None = None
    methods: Iterable[str] | None = None

    def cells(self, seeds: Iterable[int], *, smoke: bool = False) -> list[Cell]:
        """Its cells in the order of the table; unknown names are refused."""
        chosen = {"datasets": self.datasets, "settings": self.settings, "methods": self.methods}
        return plan(self.experiment, seeds=seeds, smoke=smoke, **chosen)


@dataclass(frozen=True)
class Task:
    """A cell of a table, as a worker gets it."""

    table: str
    module: str  # where the worker finds the table again
    cell: Cell
    context: Context


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
    (document,) = run_experiments(
        [Part(experiment, datasets, settings, methods)],
        output=output,
        seeds=seeds,
        device=device,
        jobs=jobs,
        resume=resume,
        fresh=fresh,
        smoke=smoke,
        data_dir=data_dir,
        generated=generated,
        show_progress=show_progress,
    )
    return document


def run_experiments(
    parts: Iterable[Part],
    *,
    output: Path,
    seeds: int | Iterable[int] = 10,
    device: str = "auto",
    jobs: int = 1,
    resume: bool = False,
    fresh: bool = False,
    smoke: bool = False,
    data_dir: Path | None = None,
    generated: bool = False,
    show_progress: bool = True,
) -> list[Record]:
    """Run what is missing of several tables and return their result files, in the order of ``parts``.

    The cells of all tables are run by the same processes, under one bar, and each is written to the file of its own
    table. Names, data files and existing result files of every table are checked before the first cell runs.

    Parameters
    ----------
    parts : iterable of Part
        The tables, each with another name.
    output, seeds, device, jobs, resume, fresh, smoke, data_dir, generated, show_progress
        As in :func:`run_experiment`, for every table.
    """
    check_count("jobs", jobs, 1)
    where = str(resolve_device(device))  # refused here rather than in every cell
    numbers = range(check_count("seeds", seeds, 1)) if isinstance(seeds, int) else list(seeds)
    common = Context("", where, smoke, data_dir, generated)
    files: dict[str, ResultFile] = {}
    work: list[Task] = []
    with ExitStack() as held:
        for part in parts:
            name, cells = part.experiment.name, part.cells(numbers, smoke=smoke)
            if name in files:
                raise InputError(f"two tables are named {name!r}. Each needs a result file of its own: rename one.")
            files[name] = ResultFile(output / f"{name}.json", part.experiment, smoke=smoke)
            held.enter_context(alone(files[name].path))
            files[name].open(resume=resume, fresh=fresh)
            work += _missing(cells, files[name], common)
        for context in dict.fromkeys(task.context for task in work):
            _check_present(context)
        _run(_in_order(work, files), files, jobs, show_progress)
        for file in files.values():
            file.write()
    return [file.document() for file in files.values()]


def _run(work: list[Task], files: dict[str, ResultFile], jobs: int, show_progress: bool) -> None:
    """Run cells and put each into the file of its table as soon as it is finished."""
    several = len(files) > 1
    title = f"{len(files)} tables" if several else "".join(files)
    with (
        TemporaryDirectory(prefix="gsparc-", ignore_cleanup_errors=True) as folder,
        progress_bar(title, len(work), show=show_progress) as bar,
    ):
        shared = {name: Path(folder, name) for name in files}  # one a table: what they leave there cannot collide
        for place in shared.values():
            place.mkdir()
        work = [replace(task, context=replace(task.context, shared=shared[task.table])) for task in work]
        with closing(_finished(work, jobs)) as results:  # closed at once on an interrupt, not when collected
            for count, (task, record) in enumerate(results, start=1):
                files[task.table].add(task.cell, record)
                words = f"{task.table}: " * several + task.cell.key + " failed" * ("error" in record)
                bar.update(count, last=words)


def failed_cells(document: Record) -> list[str]:
    """Keys of the cells of a result file that raised an error."""
    return [key for key, record in document["cells"].items() if "error" in record]


def _missing(cells: list[Cell], file: ResultFile, common: Context) -> list[Task]:
    """Those cells that a table's file does not hold yet; all of them get their rows in the file."""
    table = file.experiment
    contexts = {name: replace(common, dataset=name) for name in dict.fromkeys(cell.dataset for cell in cells)}
    for name, context in contexts.items():
        file.check_generated(name, context.is_generated)
    file.groups |= dict.fromkeys((cell.dataset, cell.setting) for cell in cells)
    finished = file.finished
    return [
        Task(table.name, table.module, cell, contexts[cell.dataset])
        for cell in cells
        if cell.key not in finished and table.skip(cell.dataset, cell.setting, cell.method) is None
    ]


def _in_order(work: list[Task], files: dict[str, ResultFile]) -> list[Task]:
    """Graphs with many edges first; on the last one our methods before the baselines, on others all of them mixed.

    Our methods fit several networks: were such a cell the last to start, all other workers would wait for it. Before
    that, methods that keep a GPU busy run beside those that keep the cores busy. Cells of a data set stay together,
    whatever their table, as a worker keeps one data set in memory. One setting of it comes after the other: what
    settings share is then made by the first, and hardly a worker waits for another one to make it.
    """
    from gsparc.datasets import list_datasets

    edges = {entry.name: entry.edges for entry in list_datasets()}

    def size(task: Task) -> tuple[int, str]:
        return -edges.get(task.cell.dataset, 0), task.cell.dataset

    def baseline(task: Task) -> bool:
        return not files[task.table].experiment.method(task.cell.method).ours

    settings: dict[tuple[str, str], dict[str, int]] = {}  # of a data set in a table: which comes first, second, ...
    for task in work:
        known = settings.setdefault((task.table, task.cell.dataset), {})
        known.setdefault(task.cell.setting, len(known))

    def place(task: Task) -> tuple[tuple[int, str], int]:
        return size(task), settings[task.table, task.cell.dataset][task.cell.setting]

    last = max(map(size, work), default=None)
    shuffled = random.Random(0).sample(work, len(work))
    return sorted((task for task in shuffled if size(task) != last), key=place) + sorted(
        (task for task in work if size(task) == last), key=baseline
    )


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


def _finished(work: list[Task], jobs: int) -> Generator[tuple[Task, Record], None, None]:
    """Cells as they finish; those that found no room on the GPU beside other workers last, again and by fewer.

    A process that has lost its GPU gets nothing more done there. Its fellows may have lost it as well: all are ended,
    and others take up what is left. A cell in which that happens is tried once more, at the end.
    """
    left = {(task.table, task.cell.key): task for task in work}
    lost: set[tuple[str, str]] = set()
    while left:
        later, loss = {}, None
        with closing(as_finished(_run_cell, list(left.values()), jobs, apart=bool(lost))) as results:
            for task, record in results:
                key, trouble = (task.table, task.cell.key), record.pop("trouble", None)
                if trouble == _LOST and key not in lost:
                    loss, later[key] = (task, record["error"]), task
                    lost.add(key)
                    break
                del left[key]
                if trouble == _NO_ROOM and jobs > 1:
                    logger.info("%s: no room on the GPU beside other workers; tried again later", task.cell.key)
                    later[key] = task
                else:
                    yield task, record
            else:
                left, jobs = {}, max(1, jobs // 4)
        if loss is not None:  # a service that shares the GPU lets nobody in until all who have lost it are gone
            _check_gpu(*loss)
            logger.info("%s: the GPU was lost; new processes go on, it is tried again later", loss[0].cell.key)
        left = {key: task for key, task in left.items() if key not in later} | later


def _check_gpu(task: Task, error: str) -> None:
    """End the run if a new process cannot use the GPU either: all other cells would fail, and each would say so."""
    probe = f"import torch; torch.ones(1, device={task.context.device!r}).item()"
    if subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        raise GsparcError(
            f"the GPU was lost in {task.cell.key} ({error[:200]}). Finished cells are kept: see to the GPU "
            "(nvidia-smi; where processes share it through MPS, restart its daemon) and continue with --resume."
        )


def _run_cell(task: Task) -> Record:
    """What a result file holds for a cell; an exception becomes a sentence."""
    cell, context = task.cell, task.context
    start = time.perf_counter()
    record: Record = {}
    try:
        numbers = dict(importlib.import_module(task.module).TABLE.run(cell, context))
        if "not_applicable" in numbers:
            record["not_applicable"] = str(numbers["not_applicable"])
        else:
            record["seconds"] = float(numbers.pop("seconds", time.perf_counter() - start))
            record["numbers"] = plain(numbers)
            if wrong := fault(record["numbers"]):  # --resume would refuse the file
                raise TypeError(f"the numbers of the cell cannot be kept: {wrong}.")
    except Exception as error:
        if os.environ.get("GSPARC_DEBUG"):
            logger.warning("%s failed", cell.key, exc_info=True)
        record = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")}
        if trouble := _gpu_trouble(error, context.device):
            record["trouble"] = trouble  # for the parent; no part of the result
    record.setdefault("seconds", time.perf_counter() - start)
    _leave_room(context.device)
    record["device"] = context.device.partition(":")[0]
    if context.is_generated:
        record["generated"] = True
    return record


def _gpu_trouble(error: Exception, device: str) -> str | None:
    """Whether an error says that a GPU had no room left, or that it is lost to this process."""
    import torch

    if isinstance(error, torch.OutOfMemoryError) or "CUDA error: out of memory" in str(error):
        return _NO_ROOM
    lost = isinstance(error, torch.AcceleratorError) or (device.startswith("cuda") and not torch.cuda.is_available())
    return _LOST if lost else None


def _leave_room(device: str) -> None:
    """Hand back what a cell held of a GPU: other workers may need it before this one does again."""
    if device.startswith("cuda"):
        import torch

        with suppress(torch.AcceleratorError):  # of a GPU that is lost nothing is held
            torch.cuda.empty_cache()
