"""``--processes``: a command that starts itself several times through torchrun's engine, and what its workers do."""

from __future__ import annotations

import functools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from gsparc._processes import World, launched, usable_cores, world
from gsparc.cli.common import INTERRUPTED, say, write_error
from gsparc.exceptions import GsparcError, ProcessesError

__all__ = ["JoinTimeout", "Processes", "start_processes", "together"]

P = ParamSpec("P")
R = TypeVar("R")

Processes = Annotated[
    int | None,
    typer.Option("--processes", min=1, metavar="N", help="Train with N processes on this machine, all on one model."),
]
JoinTimeout = Annotated[
    float,
    typer.Option("--join-timeout", min=1.0, metavar="SECONDS", help="How long processes wait for each other to start."),
]
MAX_RESTARTS = 3
_OUTCOME = "GSPARC_OUTCOME"  # file in which the workers of one command leave its exit status, the first to know it


def start_processes(count: int | None, *, quiet: bool) -> None:
    """Run this command again in ``count`` processes and leave with their status; nothing for one, or in a worker."""
    if count is None or count == 1 or launched() is not None:
        return
    cores = usable_cores()
    if count > cores and not quiet:
        say(f"note: {count} processes share {cores} core(s): more of them than cores is slower, not faster")
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // count)))
    with tempfile.TemporaryDirectory(prefix="gsparc-") as folder:
        outcome = Path(folder) / "outcome"
        os.environ[_OUTCOME] = str(outcome)
        try:
            status = _run(count, folder)
        finally:
            del os.environ[_OUTCOME]
        if outcome.exists():
            status = int(outcome.read_text())
    raise typer.Exit(status)


def _run(count: int, folder: str) -> int:
    """Start the workers, and all of them again when one is lost."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=f"gsparc-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=MAX_RESTARTS,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    try:
        with _silent_engine():
            elastic_launch(config, sys.executable)("-m", "gsparc", *sys.argv[1:])
    except ChildFailedError as error:
        write_error(_lost(error, count))
        return 1
    except SignalException as error:
        if not _decided():  # of Ctrl-C the workers hear themselves, and the first of them says it
            write_error("interrupted; outputs that were not finished have not been written.")
        return INTERRUPTED if error.sigval == signal.SIGINT else 128 + int(error.sigval)
    return 0


@contextmanager
def _silent_engine() -> Iterator[None]:
    """The engine's own log, in which a lost process is a page of text, is left out: workers say what happened."""
    import logging

    name = "torch.distributed.elastic"
    # its parts have levels of their own
    parts = [name, *(part for part in logging.root.manager.loggerDict if part.startswith(f"{name}."))]
    before = {part: logging.getLogger(part).level for part in parts}
    for part in parts:
        logging.getLogger(part).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for part, level in before.items():
            logging.getLogger(part).setLevel(level)


def _lost(error: Any, count: int) -> str:
    rank, failure = min(error.failures.items(), key=lambda item: item[1].timestamp)
    how = f"ended with status {failure.exitcode}"
    if failure.exitcode < 0:
        name = signal.Signals(-failure.exitcode).name
        how = f"was killed ({name})" + (", perhaps for lack of memory" if name == "SIGKILL" else "")
    return (
        f"process {rank} of {count} (from 0) {how}, after all were started again {MAX_RESTARTS} times. What is done is "
        "kept: repeat the command with --resume, with fewer processes if memory is short."
    )


def together(function: Callable[P, R]) -> Callable[P, R]:
    """A command that takes part in what torchrun has started, if it has; one worker speaks for all.

    The first to know how the command ends, by success or by an error that a further try would meet again, leaves the
    exit status for the command that started them. A lost process is no such end: torchrun starts all again.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if launched() is None:
            return function(*args, **kwargs)
        if _decided():  # started again only because another was late to leave
            raise typer.Exit(0)
        quiet = bool(kwargs.get("quiet"))
        with ExitStack() as stack:
            here = _join(stack, float(str(kwargs["join_timeout"])))
            if here.attempt and here.first and not quiet:
                say(f"note: a process was lost; all were started again ({here.attempt}) and go on from what is done")
            return _one_outcome(functools.partial(function, *args, **kwargs | {"quiet": quiet or not here.first}))

    return wrapped


def _join(stack: ExitStack, timeout: float) -> World:
    from gsparc.training.distributed import joined

    try:
        return stack.enter_context(joined(timeout))
    except GsparcError:
        _speak_or_leave(1)
        raise


def _one_outcome(function: Callable[[], R]) -> R:
    try:
        result = function()
    except ProcessesError:
        if _decided():
            raise typer.Exit(0) from None
        if not os.environ.get(_OUTCOME):
            raise
        raise typer.Exit(1) from None  # all are started again, and that is said then
    except typer.Exit as leave:
        _speak_or_leave(leave.exit_code)
        raise
    except (Exception, KeyboardInterrupt) as error:
        _speak_or_leave(getattr(error, "exit_code", 1))
        raise
    if world().first:
        _decide(0)
    return result


def _speak_or_leave(status: int) -> None:
    """Go on to the sentence that explains the status if no other process has said one."""
    if not _decide(status):
        raise typer.Exit(0) from None


def _decided() -> bool:
    return bool(os.environ.get(_OUTCOME)) and Path(os.environ[_OUTCOME]).exists()


def _decide(status: int) -> bool:
    """Leave the exit status; false when another process has been faster."""
    path = os.environ.get(_OUTCOME)
    if not path:
        here = launched()
        if status and here is not None and not here.first:
            time.sleep(3)  # the first meets the same error as a rule, and torchrun then ends this process
        return True
    try:
        with open(path, "x", encoding="ascii") as file:
            file.write(str(status))
    except FileExistsError:
        return False
    return True
