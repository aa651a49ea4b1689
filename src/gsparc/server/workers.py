"""Several processes that answer at one address: a first loads the model, and the others are forked from it.

What the first has read is shared by all of them until somebody writes to it, so they need little more memory than one.
Each has a listening socket of its own at the same port, among which the kernel spreads connections. The first keeps
all of these open: what waits at the socket of a process that ends is answered by the one that takes its place. A new
model is loaded by the first process too, which forks the others again; the old ones end with their connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from gsparc.exceptions import InputError, OutputError
from gsparc.server.listening import AnnouncingServer, address, listen
from gsparc.server.models import settle

__all__ = ["check_processes", "listen_together", "run_workers"]

logger = logging.getLogger(__name__)

_LOOK = 0.1  # seconds between looks at the processes
_PUBLISH_TICKS = 10  # of uvicorn's tenths of a second
_MOST_RESTARTS, _WITHIN = 5, 60.0
_START_S = 60.0
_TOLD = "model.json"  # what the first process says of the last folder that it has read


def check_processes(count: int) -> None:
    """Say where several processes cannot be had."""
    if count > 1 and not (hasattr(os, "fork") and hasattr(socket, "SO_REUSEPORT")):
        raise InputError(f"{count} workers came, but this system cannot share a model among processes. Pass one.")
    if count > 1 and threading.current_thread() is not threading.main_thread():
        raise InputError(f"{count} workers came, but only the main thread of a program can start them. Pass one.")


def listen_together(host: str, port: int, count: int) -> list[socket.socket]:
    """Sockets bound to one port; an error where somebody else has it."""
    with listen(host, port) as alone:  # bound without sharing: another service at this port is found out
        port = alone.getsockname()[1]
    return [listen(host, port, shared=True) for _ in range(count)]


class _Worker(AnnouncingServer):
    """A server in a forked process; writes its figures down, and ends when another has taken its place."""

    settles = False  # a look at every object would copy every page that is shared

    def __init__(
        self,
        config: uvicorn.Config,
        on_start: Callable[[str], object],
        url: str,
        service: Any,
        told: Callable[[], dict[str, Any]],
    ) -> None:
        super().__init__(config, on_start, url)
        self._service, self._told = service, told
        self._number = told()["number"]
        self._retires = False

    def retire(self, *_: object) -> None:
        """Note that another has taken the place of this one; called as a signal comes, so it does no more."""
        self._retires = True

    async def on_tick(self, counter: int) -> bool:
        if self._retires and not self._service.metrics.retired:
            self._close()
        if counter % _PUBLISH_TICKS == 0:
            with contextlib.suppress(OSError):
                self._service.metrics.publish()
                self._hear()
        gone = self._retires and not self.server_state.connections
        return await super().on_tick(counter) or gone

    def _close(self) -> None:
        """Take no new connections; those that are open are asked to end with their next answer."""
        self._service.metrics.retired = True
        self.config.encoded_headers.append((b"connection", b"close"))
        for server in self.servers:
            server.close()

    def _hear(self) -> None:
        """Know of a new folder that the first process could not use."""
        told = self._told()
        if told["number"] != self._number:
            self._number, self._service.holder.problem = told["number"], told["problem"]
            if told["problem"] is not None:
                self._service.metrics.reloaded(ok=False)


class _Crew:
    """The processes, seen from the first."""

    def __init__(self, app: Any, make_config: Callable[[], Any], listeners: list[socket.socket], folder: Path) -> None:
        self.app, self.make_config, self.listeners, self.folder = app, make_config, listeners, folder
        self.service = app.state.service
        self.processes: dict[int, int] = {}  # process id: which of the workers it is
        self.retired: set[int] = set()  # process ids of those that answer their last requests
        self.stopping = False
        self._started_r, self._started_w = os.pipe()
        self._asked_r, self._asked_w = os.pipe()
        self._alive_r, self._alive_w = os.pipe()  # its end tells the others that the first is gone
        os.set_blocking(self._started_r, False)
        os.set_blocking(self._asked_r, False)
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS + 1)
        self._looked = time.monotonic()
        self._tell(0)

    def start(self, worker: int) -> None:
        """Fork one process."""
        process = os.fork()
        if process:
            self.processes[process] = worker
            return
        code = 1
        try:
            self._work(worker)
            code = 0
        except BaseException:
            logger.exception("worker %d failed", worker)
        finally:
            os._exit(code)  # nothing of the first process is to be tidied up here

    def _work(self, worker: int) -> None:
        os.close(self._alive_w)
        threading.Thread(target=self._end_with_the_first, daemon=True).start()
        for place, listener in enumerate(self.listeners):
            if place != worker:
                listener.close()
        self.service.metrics.share(self.folder, worker)
        self.service.holder.ask = self._ask_the_first
        listener = self.listeners[worker]
        server = _Worker(self.make_config(), self._say_started, address(listener), self.service, self._told)
        signal.signal(signal.SIGUSR1, server.retire)
        server.run(sockets=[listener])

    def _say_started(self, _: str) -> None:
        os.write(self._started_w, b".")

    def _end_with_the_first(self) -> None:
        os.read(self._alive_r, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    async def _ask_the_first(self) -> str | None:
        """In a worker: let the first process load the folder, and wait for what it says."""
        before = self._told()["number"]
        os.write(self._asked_w, b".")
        while (told := self._told())["number"] == before:
            await asyncio.sleep(_LOOK)
        self.service.holder.problem = told["problem"]
        return told["version"] if told["problem"] is None else None

    def _told(self) -> dict[str, Any]:
        return json.loads((self.folder / _TOLD).read_text(encoding="utf-8"))

    def _tell(self, number: int) -> None:
        holder = self.service.holder
        told = {"number": number, "version": holder.current.version, "problem": holder.problem}
        fresh = self.folder / f"{_TOLD}.new"
        fresh.write_text(json.dumps(told), encoding="utf-8")
        fresh.replace(self.folder / _TOLD)

    def start_all(self) -> None:
        """Fork all processes, and wait until they take requests."""
        settle()  # what is in memory now is left alone, or collecting garbage would copy it
        for worker in range(len(self.listeners)):
            self.start(worker)
        started, end = 0, time.monotonic() + _START_S
        while started < len(self.listeners) and not self.stopping:
            with contextlib.suppress(BlockingIOError):
                started += len(os.read(self._started_r, len(self.listeners)))
            if self.ended() or time.monotonic() > end:
                raise OutputError("a worker did not start; its log says why. Try with --workers 1.")
            time.sleep(_LOOK / 10)

    def ended(self) -> list[int]:
        """Which workers have ended since the last look."""
        self.retired = {process for process in self.retired if not os.waitpid(process, os.WNOHANG)[0]}
        gone = [process for process in self.processes if os.waitpid(process, os.WNOHANG)[0]]
        return [self.processes.pop(process) for process in gone]

    def watch(self) -> None:
        """Put new processes in the place of those that end, or that have a model which was replaced; until stopped."""
        while not self.stopping:
            for worker in self.ended():
                self._restart(worker)
            if self._is_asked() or self._is_behind():
                self._renew()
            time.sleep(_LOOK)

    def _restart(self, worker: int) -> None:
        if self.stopping:
            return
        self._restarts.append(time.monotonic())
        if len(self._restarts) > _MOST_RESTARTS and self._restarts[-1] - self._restarts[0] < _WITHIN:
            raise OutputError(f"workers ended {len(self._restarts)} times in a minute; their log says why.")
        logger.warning("worker %d has ended; another takes its place", worker)
        self.start(worker)

    def _is_asked(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            return bool(os.read(self._asked_r, 1 << 16))
        return False

    def _is_behind(self) -> bool:
        watch_s = self.service.watch_s
        if watch_s is None or time.monotonic() - self._looked < watch_s:
            return False
        self._looked = time.monotonic()
        return self.service.holder.behind

    def _renew(self) -> None:
        """Load what the folder holds now, and fork again; the old processes answer what has been asked of them."""
        if self.service.holder.reload_now() is not None:
            old, self.processes = set(self.processes), {}
            self.retired |= old
            self.start_all()
            _send(signal.SIGUSR1, old)
        self._tell(self._told()["number"] + 1)

    def stop(self, grace_s: float) -> None:
        """Let all finish what they have begun; those that do not are ended."""
        self.stopping = True
        end = time.monotonic() + grace_s + 5.0
        # never SIGINT: uvicorn takes a second one as a wish to drop what is open
        _send(signal.SIGTERM, {*self.processes, *self.retired})
        while (self.processes or self.retired) and time.monotonic() < end:
            self.ended()
            time.sleep(_LOOK / 10)
        _send(signal.SIGKILL, {*self.processes, *self.retired})
        for process in (*self.processes, *self.retired):
            os.waitpid(process, 0)
        pipes = (self._started_r, self._started_w, self._asked_r, self._asked_w, self._alive_r, self._alive_w)
        for handle in pipes:
            os.close(handle)


def _send(kind: signal.Signals, processes: set[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, kind)


@contextlib.contextmanager
def _stop_on_signals(crew: _Crew) -> Iterator[None]:
    def stop(*_: object) -> None:
        crew.stopping = True

    before: dict[Any, Any] = {kind: signal.signal(kind, stop) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def run_workers(
    app: Any,
    make_config: Callable[[], Any],
    listeners: list[socket.socket],
    *,
    grace_s: float,
    on_start: Callable[[str], object] | None,
) -> None:
    """Serve ``app`` by one process a listener until SIGTERM or Ctrl-C; what was asked before is still answered."""
    with tempfile.TemporaryDirectory(prefix="gsparc-serve-") as folder:
        crew = _Crew(app, make_config, listeners, Path(folder))
        with _stop_on_signals(crew):
            try:
                crew.start_all()
                if on_start is not None and not crew.stopping:
                    on_start(address(listeners[0]))
                crew.watch()
            finally:
                crew.stop(grace_s)
