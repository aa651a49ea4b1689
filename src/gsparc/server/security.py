"""Who may ask, and what every answer carries: one thin ASGI layer around the whole app.

It also counts every answer, and turns whatever escapes from below into a 500 without a traceback.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import time
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gsparc.exceptions import InputError
from gsparc.server.errors import ApiError, error_response
from gsparc.server.metrics import Metrics

__all__ = ["LOOPBACK_HOSTS", "PAGE_POLICY", "Gate", "check_exposure", "is_loopback"]

logger = logging.getLogger(__name__)

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_OPEN = frozenset({"/", "/health", "/ready", "/docs", "/favicon.ico"})  # nothing of the model is in these
_OPEN_FOLDERS = ("/assets/", "/docs/")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_MIN_TOKEN = 8


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_exposure(host: str, token: str | None, insecure: bool) -> None:
    """Refuse to be reachable from other machines without a token, unless that was asked for."""
    if token is not None and (len(token) < _MIN_TOKEN or not token.isascii() or any(c.isspace() for c in token)):
        raise InputError(
            f"the token has {len(token)} characters; at least {_MIN_TOKEN} ASCII characters without spaces are needed. "
            "Make one with: python -c 'import secrets; print(secrets.token_urlsafe(24))'"
        )
    if token is None and not insecure and not is_loopback(host):
        raise InputError(
            f"host {host!r} can be reached from other machines, so a token is needed: pass --token, or set "
            "GSPARC_TOKEN. To serve without one all the same, pass --insecure."
        )


class Gate:
    """ASGI layer: host and token checks, security headers, metrics, HEAD as GET, and a last net for errors.

    Parameters
    ----------
    token
        What ``Authorization: Bearer ...`` must hold; ``None``: anyone who can connect may ask.
    hosts
        Names under which the service may be addressed; ``None``: any. On a loopback address without a token this
        keeps web pages from reaching the service through a name of their own that points here.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics, token: str | None, hosts: Iterable[str] | None) -> None:
        self.app, self._metrics = app, metrics
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started, status = time.perf_counter(), 0
        head = scope["method"] == "HEAD"
        if head:  # answered as GET, less the body: routes need not know of it
            scope = {**scope, "method": "GET"}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(message)
            elif head:
                message = {"type": "http.response.body", "body": b"", "more_body": message.get("more_body", False)}
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if status:
                raise  # half an answer is out; only the connection can be ended
            await error_response(_as_answer(error))(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.answered(route, status or 500, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if self._hosts is not None:
            name = _without_port(headers.get(b"host", b"").decode("latin-1")).lower()
            if name not in self._hosts:
                message = f"the service is not addressed as {name[:80]!r}; start it with that host allowed, or a token."
                raise ApiError(403, "bad_host", message)
        path = scope["path"]
        if self._token is None or path in _OPEN or path.startswith(_OPEN_FOLDERS):
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
            message = "a valid token is needed: send the header 'Authorization: Bearer TOKEN'."
            raise ApiError(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})


def _as_answer(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    logger.error("an answer failed", exc_info=error)
    return ApiError(500, "internal", "something failed inside the service; the reason is in its log.")


def _without_port(host: str) -> str:
    """``[::1]:80`` and ``a.b:80`` without what follows the last colon outside brackets."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def _add_headers(message: Any) -> None:
    headers = MutableHeaders(scope=message)
    for name, value in _HEADERS.items():
        headers.setdefault(name, value)
