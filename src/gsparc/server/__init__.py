"""The HTTP service: ``create_app(folder)`` for any ASGI server, ``serve(folder)`` to run it at once.

Needs the extra ``serve`` (FastAPI, uvicorn, prometheus-client); its absence is said when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gsparc.server.app import create_app
    from gsparc.server.run import serve

__all__ = ["create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from gsparc.server.run import require_packages

        require_packages()
        from gsparc.server.app import create_app

        return create_app
    if name == "serve":
        from gsparc.server.run import serve

        return serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
