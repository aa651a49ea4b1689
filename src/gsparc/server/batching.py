"""Micro-batching: requests wait for a moment, and one of a few threads runs the model on all that wait together.

The queue is bounded in rows, in requests and in the time that they are expected to wait: what does not fit is refused
at once rather than kept waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gsparc.exceptions import InputError
from gsparc.server.errors import ApiError
from gsparc.server.metrics import Metrics

__all__ = ["Batcher", "Job"]

logger = logging.getLogger(__name__)

Outcome = bytes | BaseException
_PATIENCE = 5  # times the wait for one more row that a first row waits at most, while others keep coming
_FIRST_GUESS_S = 0.05  # of a call, until some were measured


@dataclass(eq=False)
class Job:
    """Some rows of one request. Jobs with the same ``key`` may be answered by one call of ``run``.

    ``run(jobs)`` gives each job's answer or error, in order; it is called in the batcher's thread.
    """

    key: Hashable
    rows: int
    payload: Any
    run: Callable[[Sequence[Job]], list[Outcome]]
    future: asyncio.Future[bytes] = field(init=False)
    given_up: bool = False


class Batcher:
    """A queue, and the threads that empty it.

    Parameters
    ----------
    workers
        Threads that run the model, each on a batch of its own.
    queue
        Rows that may wait, and requests that may be open, before new ones are refused. A single request with
        more rows than this is taken when nothing else waits.
    batch_rows
        Rows that are gathered for one call; a larger request is still one call.
    wait
        Seconds that a first row waits for another. While rows keep coming it waits on, five times as long at most.
    max_wait
        Seconds that a row may be expected to wait for its turn; beyond, new ones are refused.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        queue: int,
        batch_rows: int,
        wait: float,
        max_wait: float = 1.0,
        workers: int = 1,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self.queue, self.batch_rows, self.wait, self.workers = queue, batch_rows, wait, workers
        self.max_wait = max_wait
        self.waiting_rows = self.open_requests = 0
        self._metrics, self._prepare = metrics, prepare
        self._jobs: deque[Job] = deque()
        # One thread at a time gathers a batch; it is woken when that is full, another one when there is work for it.
        # Waking all of them for every row would cost more than the row.
        self._lock = threading.Lock()
        self._work_left, self._full_batch = threading.Condition(self._lock), threading.Condition(self._lock)
        self._gathering = self._closing = False
        self._seconds_per_batch = _FIRST_GUESS_S  # running mean
        self._threads: list[threading.Thread] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Start the threads, and wait until they can take rows."""
        self._loop = asyncio.get_running_loop()
        self._closing = False
        ready = threading.Barrier(self.workers + 1)
        for place in range(self.workers):
            thread = threading.Thread(target=self._work, args=(ready,), name=f"gsparc-model-{place}", daemon=True)
            self._threads.append(thread)
            thread.start()
        await asyncio.to_thread(ready.wait)

    @property
    def alive(self) -> bool:
        """Whether all threads run."""
        return bool(self._threads) and all(thread.is_alive() for thread in self._threads)

    async def stop(self) -> None:
        """Answer what waits, then end the threads."""
        with self._lock:
            self._closing = True
            self._work_left.notify_all()
            self._full_batch.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def admit(self) -> None:
        """Raise a 429 if nothing more fits; asked before a body is read, since refusing must cost little."""
        if self.waiting_rows >= self.queue or self.open_requests >= self.queue or self.expected_wait > self.max_wait:
            raise self._refusal()

    @property
    def expected_wait(self) -> float:
        """Seconds until the rows that wait now have had their turn, by what calls took of late."""
        return self.waiting_rows / self.batch_rows * self._seconds_per_batch / self.workers

    def _refusal(self) -> ApiError:
        self._metrics.shed.inc()
        seconds = min(max(math.ceil(self.expected_wait), 1), 60)
        message = f"{self.waiting_rows} rows wait already. Try again in {seconds} s, or send fewer at once."
        return ApiError(429, "queue_full", message, headers={"Retry-After": str(seconds)})

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Count a request while it is read and answered."""
        self.open_requests += 1
        self._metrics.open_requests.set(self.open_requests)
        try:
            yield
        finally:
            self.open_requests -= 1
            self._metrics.open_requests.set(self.open_requests)

    async def submit(self, job: Job, timeout: float) -> bytes:
        """The job's answer; its error is raised, and so is a 504 when it takes too long."""
        if self._loop is None or self._closing or not self.alive:
            raise ApiError(503, "stopping", "the service is stopping and takes no new rows.")
        if self.waiting_rows and self.waiting_rows + job.rows > self.queue:
            raise self._refusal()
        job.future = self._loop.create_future()
        with self._lock:
            self._jobs.append(job)
            self._count(job.rows)
            if not self._gathering:
                self._work_left.notify()
            elif self.waiting_rows >= self.batch_rows:
                self._full_batch.notify()
        try:
            async with asyncio.timeout(timeout):
                return await job.future
        except TimeoutError:
            raise ApiError(504, "timeout", f"no answer within {timeout:g} s; send fewer rows at once.") from None
        finally:
            job.given_up = True  # nobody waits any more: not worth a call if it has not been made yet

    def _count(self, rows: int) -> None:
        self.waiting_rows += rows
        self._metrics.queue_rows.set(self.waiting_rows)

    def _work(self, ready: threading.Barrier) -> None:
        try:
            if self._prepare is not None:
                self._prepare()
        finally:
            ready.wait()
        while batch := self._take():
            started = time.perf_counter()
            outcomes = _answer(batch)
            seconds = time.perf_counter() - started
            rows = sum(job.rows for job in batch)
            one_batch = seconds * min(self.batch_rows / rows, 1.0)  # a larger request is several batches' work
            self._seconds_per_batch += 0.1 * (one_batch - self._seconds_per_batch)
            self._metrics.batch_rows.observe(rows)
            self._metrics.batch_seconds.observe(seconds)
            self._metrics.rows.inc(rows)
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_deliver, batch, outcomes)

    def _take(self) -> list[Job]:
        """The next jobs that go together; an empty list when the batcher stops and nothing waits."""
        with self._lock:
            while True:
                self._work_left.wait_for(lambda: self._closing or (self._jobs and not self._gathering))
                if not self._jobs:
                    return []
                self._gathering = True
                try:
                    self._await_others()
                finally:
                    self._gathering = False
                batch = self._gather()
                if self._jobs:
                    self._work_left.notify()
                if batch:
                    return batch

    def _await_others(self) -> None:
        """Wait until a batch is full, no further row came for a while, or the first has waited long enough."""
        until = time.monotonic() + _PATIENCE * self.wait
        seen = -1
        while seen < self.waiting_rows < self.batch_rows and not self._closing and time.monotonic() < until:
            seen = self.waiting_rows
            self._full_batch.wait(self.wait)

    def _gather(self) -> list[Job]:
        batch: list[Job] = []
        others: deque[Job] = deque()
        rows = 0
        while self._jobs:
            job = self._jobs.popleft()
            if job.given_up:
                self._count(-job.rows)
            elif batch and (job.key != batch[0].key or rows + job.rows > self.batch_rows):
                others.append(job)
            else:
                batch.append(job)
                rows += job.rows
        self._jobs = others
        self._count(-rows)
        return batch


def _answer(batch: list[Job]) -> list[Outcome]:
    """Each job's outcome; when a batch fails as a whole its jobs are tried one by one, so none pays for another."""
    try:
        return batch[0].run(batch)
    except Exception as error:
        if len(batch) == 1:
            return [_as_api_error(error)]
    return [outcome for job in batch for outcome in _answer([job])]


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, InputError):
        return ApiError(422, "bad_rows", " ".join(str(error).split()))
    if isinstance(error, MemoryError):
        return ApiError(503, "out_of_memory", "there is not enough memory for so many rows; send fewer at once.")
    logger.error("a model call failed", exc_info=error)
    return ApiError(500, "internal", "the model failed on these rows; the reason is in the service's log.")


def _deliver(batch: list[Job], outcomes: list[Outcome]) -> None:
    for job, outcome in zip(batch, outcomes, strict=True):
        if job.future.done():
            continue  # timed out or left
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
