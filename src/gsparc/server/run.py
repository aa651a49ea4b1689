"""Run the service: bind, say where, answer until told to stop, then finish what was begun."""

from __future__ import annotations

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
    from gsparc.server.security import LOOPBACK_HOSTS, check_exposure, is_loopback

    check_exposure(host, token, insecure)
    open_to_this_machine = token is None and not insecure and is_loopback(host)
    allowed = [*LOOPBACK_HOSTS, host, f"[{host}]", *hosts] if open_to_this_machine else None
    with listen(host, port) as listener:
        app = create_app(folder, token=token, hosts=allowed, **limits)
        config = uvicorn.Config(
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
        server = AnnouncingServer(config, on_start, address(listener))
        server.run(sockets=[listener])
