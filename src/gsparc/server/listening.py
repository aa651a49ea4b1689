"""The socket, and a uvicorn server that says when it takes requests and ends quietly when told to."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from gsparc.exceptions import OutputError
from gsparc.server.models import settle

__all__ = ["AnnouncingServer", "JsonErrorProtocol", "address", "listen"]

_MAX_HEAD = 64 * 2**10


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket; that it cannot be had is said before a model is loaded. Several ``shared`` ones may be bound."""
    name = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((name, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"cannot listen on {host} port {port} ({reason}). Choose another with --port, or end what uses this one."
        ) from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL of a bound socket."""
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class JsonErrorProtocol(HttpToolsProtocol):
    """HTTP that cannot be read is answered in JSON too, and a head without end is cut off."""

    _head_bytes = 0
    _in_head = True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD and not self.transport.is_closing():
                self.send_400_response(f"the request line and headers are longer than {_MAX_HEAD:,} bytes.")

    def send_400_response(self, msg: str) -> None:
        body = json.dumps({"error": {"code": "bad_http", "message": msg}})
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(f"{head}connection: close\r\n\r\n{body}".encode("ascii"))
        self.transport.close()


class AnnouncingServer(uvicorn.Server):
    """Calls ``on_start`` with its address once it takes requests."""

    settles = True

    def __init__(self, config: uvicorn.Config, on_start: Callable[[str], object] | None, url: str) -> None:
        super().__init__(config)
        self._on_start, self._url = on_start, url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.settles:
            settle()
        if self.started and self._on_start is not None:
            self._on_start(self._url)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until SIGTERM or Ctrl-C; then what was begun is finished, and this returns."""
        with _signals_end_quietly():
            super().run(sockets)


@contextlib.contextmanager
def _signals_end_quietly() -> Iterator[None]:
    """uvicorn sends itself the signal again after its graceful end; by then it has had its effect."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[Any, Any] = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}
    for kind in before:
        signal.signal(kind, lambda *_: None)
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
