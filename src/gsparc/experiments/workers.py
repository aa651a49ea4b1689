"""Pieces of work in several processes, which end with the run whatever happens to it."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from pathlib import Path
from typing import TypeVar

from gsparc._files import cannot_write
from gsparc._runtime import resolve_device
from gsparc.exceptions import GsparcError, InputError
from gsparc.experiments.provenance import container_limits, cores, memory_gb

__all__ = ["alone", "as_finished", "one_at_a_time", "usual_jobs"]

_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # torch and faiss, numpy and scipy
_GRACE = 10.0  # seconds that a worker has for what it has begun on the GPU
_MEMORY_EACH = 4.0  # GB of the machine's memory a process, for the larger graphs of the tables
_UNKNOWN = 16.0  # GB, where the system does not say how much there is
_ON_ONE_GPU = 4  # processes that take turns there; more pay only where they compute side by side

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def usual_jobs(device: str) -> int:
    """How many processes to use where nobody says: one a core, as a small network hardly gains by several.

    Fewer where memory is short or not known, and few on a GPU.
    """
    share, room = container_limits()
    most = cores() if share is None else min(cores(), math.ceil(share))
    if resolve_device(device).type != "cpu":
        most = min(most, _ON_ONE_GPU)
    memory = min((size for size in (memory_gb(), room) if size is not None), default=_UNKNOWN)
    return max(1, min(most, int(memory / _MEMORY_EACH)))


def as_finished(
    work: Callable[[Piece], Result], pieces: Sequence[Piece], jobs: int, *, apart: bool = False
) -> Generator[tuple[Piece, Result], None, None]:
    """Each piece with what ``work`` makes of it, as they finish; by ``jobs`` processes that share the cores.

    What needs one process only is done here, unless it is to be ``apart``.

    Examples
    --------
    >>> list(as_finished(len, ["a", "few"], 1))
    [('a', 1), ('few', 3)]
    """
    if not apart and (jobs == 1 or len(pieces) <= 1):
        for piece in pieces:
            yield piece, work(piece)
        return
    before = set(multiprocessing.active_children())
    workers = min(jobs, len(pieces))
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),  # CUDA and threads do not survive a fork
        initializer=_start_worker,
    )
    try:
        with _threads(max(1, cores() // workers)):  # workers are started while pieces are handed in
            futures = {pool.submit(work, piece): piece for piece in pieces}
        for future in as_completed(futures):
            yield futures.pop(future), future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise GsparcError(
            "a worker process was killed, most often for want of memory. Run again with fewer --jobs; with --resume "
            "finished cells are kept."
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        children = set(multiprocessing.active_children()) - before
        for child in children:
            child.terminate()  # after an interrupt they are in the middle of a piece
        for child in children:
            child.join(_GRACE)
            if child.is_alive():  # in a long call outside Python, where no signal is heard
                child.kill()
                child.join()


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other worker is in here with this folder: what one has made there the next need not make again.

    The system lets go of the folder however a process ends. Where folders cannot be held (Windows), nobody waits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Refuse a second run that writes to the same file: each would leave out what the other one adds to it.

    A hidden file beside it is held meanwhile. The system lets go of that however a process ends. Where files cannot be
    held (Windows, some network folders), nobody is refused.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    beside, handle, new = path.with_name(f".{path.name}.lock"), None, not path.parent.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while handle is None:
            handle = os.open(beside, os.O_RDWR | os.O_CREAT, 0o644)
            with contextlib.suppress(OSError):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(handle)
                    raise InputError(
                        f"another run is writing to {path}; each would lose what the other adds. Wait until it has "
                        "ended and go on with --resume, or choose another folder with --output."
                    ) from None
            if not beside.exists() or beside.stat().st_ino != os.fstat(handle).st_ino:
                os.close(handle)  # its holder has just removed it: another run would hold a new one
                handle = None
    except OSError as error:
        raise cannot_write(path, error, "the table of results") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()
            if new:
                path.parent.rmdir()  # nothing was written, or it would not go
        os.close(handle)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Processes that are started in here use so many threads each, unless the user's environment says how many.

    Their libraries read it when they are loaded, some of them before a worker comes to its first line.
    """
    missing = [name for name in _POOLS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, str(count)))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


def _start_worker() -> None:
    """In a new worker: no interrupts of its own, and an end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent answers it
    signal.signal(signal.SIGTERM, lambda *_: _leave())
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _leave()  # the parent was killed: nobody is left to take the result


def _leave() -> None:
    """End this process at once, but not in the middle of work on the GPU.

    Processes may share a GPU through NVIDIA's MPS. One that ends with work outstanding can take the service, and so
    the GPU of all others and of the next run, with it.
    """
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # a GPU that is lost, or a recording under way: nothing to wait for
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
    os._exit(1)
