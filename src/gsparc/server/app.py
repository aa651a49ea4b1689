"""The FastAPI app: what is shared by the routes, and their order of birth and death."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from gsparc._version import __version__
from gsparc.server.answers import warm_up
from gsparc.server.batching import Batcher
from gsparc.server.errors import add_handlers
from gsparc.server.metrics import Metrics
from gsparc.server.models import ModelHolder, load_table_model
from gsparc.server.openapi import describe
from gsparc.server.routes import router
from gsparc.server.security import Gate
from gsparc.server.static import static_router

__all__ = ["MAX_BYTES", "Service", "create_app"]

MAX_BYTES = 8 * 2**20


@dataclass
class Service:
    """What the routes of one app share; ``app.state.service``."""

    holder: ModelHolder
    batcher: Batcher
    metrics: Metrics
    max_rows: int
    max_bytes: int
    timeout: float
    token_set: bool
    watch_s: float | None = None


def create_app(
    folder: str | Path,
    *,
    token: str | None = None,
    queue: int = 512,
    max_wait_s: float = 1.0,
    max_rows: int = 1000,
    max_bytes: int = MAX_BYTES,
    timeout: float = 30.0,
    batch_rows: int = 32,
    batch_wait_ms: float = 2.0,
    workers: int = 2,
    threads: int = 1,
    watch_s: float | None = 2.0,
    hosts: Iterable[str] | None = None,
    load: Callable[[Path], Any] = load_table_model,
) -> FastAPI:
    """An ASGI app that serves a model folder.

    Parameters
    ----------
    folder
        A model folder as ``gsparc fit`` writes it. It is loaded here, so a damaged one raises at once.
    token
        Asked for as ``Authorization: Bearer TOKEN`` by every route that tells something of the model.
    queue
        Rows that may wait and requests that may be open; beyond, 429 with ``Retry-After``.
    max_wait_s
        The same beyond so many seconds that a row would be expected to wait for its turn.
    max_rows, max_bytes
        Limits of one request.
    timeout
        Seconds until a request is given up: 408 while its body is read, 504 after.
    batch_rows, batch_wait_ms
        Rows of one model call, and how long a first row waits for another; five times that while more keep coming.
    workers
        Threads that run the model, each on a batch of its own.
    threads
        Threads that torch and faiss may use for a call.
    watch_s
        Seconds between looks at the folder for a newer model; ``None``: only ``POST /v1/reload`` loads one.
    hosts
        Host names under which requests are taken; ``None``: any.
    load
        Reads a folder; for tests.
    """
    metrics = Metrics()
    holder = ModelHolder(Path(folder), metrics, max_rows=max_rows, load=load, warm=warm_up)
    batcher = Batcher(
        metrics,
        queue=queue,
        batch_rows=batch_rows,
        wait=batch_wait_ms / 1000,
        max_wait=max_wait_s,
        workers=workers,
        prepare=lambda: _limit_threads(threads),
    )
    app = FastAPI(
        title="gsparc",
        version=__version__,
        description="Predictions for nodes that have no edges yet.",
        docs_url=None,  # the framework's page loads scripts from elsewhere; ours is in static.py
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(watch_s),
    )
    app.state.service = Service(holder, batcher, metrics, max_rows, max_bytes, timeout, token is not None, watch_s)
    app.include_router(router)
    app.include_router(static_router)
    add_handlers(app)
    describe(app, secured=token is not None)
    app.add_middleware(Gate, metrics=metrics, token=token, hosts=hosts)
    return app


def _lifespan(watch_s: float | None) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service: Service = app.state.service
        await service.batcher.start()
        watcher = None if watch_s is None else asyncio.create_task(service.holder.watch(watch_s))
        try:
            yield
        finally:
            if watcher is not None:
                watcher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watcher
            await service.batcher.stop()

    return lifespan


def _limit_threads(threads: int) -> None:
    """Called in the model's thread: OpenMP counts threads for each caller of its own."""
    import faiss
    import torch

    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
