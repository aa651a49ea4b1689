"""Run the service: bind, say where, answer until told to stop, then finish what was begun."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from gsparc._optional import import_optional

__all__ = ["require_packages", "serve"]


def require_packages() -> None:
    """Say what to install where a package of the extra is missing."""
    for module in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        import_optional(module, extra="serve", purpose="the HTTP service")


def serve(
    folder: str | Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    token: str | None = None,
    insecure: bool = False,
    hosts: Iterable[str] = (),
    processes: int = 1,
    grace_s: float = 30.0,
    on_start: Callable[[str], object] | None = None,
    **limits: Any,
) -> None:
    """Serve a model folder over HTTP until SIGTERM or Ctrl-C; what was asked before is still answered.

    Parameters
    ----------
    folder
        A model folder as ``gsparc fit`` writes it; replaced by another save, the new model is taken into use.
    host, port
        Where to listen; port 0 takes a free one.
    token
        Bearer token of all requests; needed when ``host`` can be reached from other machines.
    insecure
        Serve other machines without a token all the same.
    hosts
        More host names under which requests are taken when neither a token nor ``insecure`` is given.
    processes
        How many answer, at one address. They share one mapped model: four need little more memory than one. Each has
        a queue of its own.
    grace_s
        Seconds that open requests are given at the end.
    on_start
        Called with the address once requests are taken.
    limits
        Passed to ``create_app``: ``queue``, ``max_wait_s``, ``max_rows``, ``max_bytes``, ``timeout``, ``batch_rows``,
        ``batch_wait_ms``, ``workers``, ``threads``, ``watch_s``, ``load``.
    """
    require_packages()
    import uvicorn

    from gsparc.server.app import create_app
    from gsparc.server.listening import AnnouncingServer, JsonErrorProtocol, address, listen
    from gsparc.server.models import load_mapped_model
    from gsparc.server.security import LOOPBACK_HOSTS, check_exposure, is_loopback
    from gsparc.server.workers import check_processes, listen_together, run_workers

    check_exposure(host, token, insecure)
    check_processes(processes)
    open_to_this_machine = token is None and not insecure and is_loopback(host)
    allowed = [*LOOPBACK_HOSTS, host, f"[{host}]", *hosts] if open_to_this_machine else None
    with contextlib.ExitStack() as stack:
        listeners = [listen(host, port)] if processes == 1 else listen_together(host, port, processes)
        for listener in listeners:
            stack.enter_context(listener)
        if processes > 1:
            limits = {"load": load_mapped_model} | limits
            _one_thread()
        app = create_app(folder, token=token, hosts=allowed, **limits)

        def config() -> Any:
            return uvicorn.Config(
                app,
                http=JsonErrorProtocol,
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                server_header=False,
                ws="none",
                timeout_graceful_shutdown=max(int(grace_s), 1),
                timeout_keep_alive=30,
                backlog=2048,
            )

        if processes == 1:
            AnnouncingServer(config(), on_start, address(listeners[0])).run(sockets=listeners)
        else:
            run_workers(app, config, listeners, grace_s=grace_s, on_start=on_start)


def _one_thread() -> None:
    """A process that is forked must not have started a pool of threads: they would be missing in the other."""
    import faiss
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
