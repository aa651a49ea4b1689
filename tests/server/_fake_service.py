"""A stand-in for the service behind the explorer: generated nodes, the real static files, and failures on demand.

    python tests/server/_fake_service.py --nodes 100000 --port 8000

serves it for a look, and for ``npm run dev`` in web/.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mimetypes
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np

from gsparc.server.security import PAGE_POLICY

__all__ = ["FakeService"]

STATIC = Path(__file__).resolve().parents[2] / "src" / "gsparc" / "server" / "static"
_NAMES = """libs devel python perl science net web admin utils text editors graphics games sound video database java
javascript ruby rust golang haskell lisp math mail news kernel gnome kde xfce x11 fonts localization doc education
electronics embedded hamradio httpd interpreters misc ocaml otherosfs php shells tex vcs zope debug"""
SECTIONS = _NAMES.split()
FORM = [
    {"name": "description", "kind": "text", "choices": None, "example": "small web server with an embedded database"},
    {"name": "installed_size", "kind": "number", "choices": None, "example": 1200},
    {"name": "arch", "kind": "category", "choices": ["all", "any", "linux-any"], "example": "any"},
    {"name": "embedding", "kind": "vector", "choices": None, "example": None, "length": 3},
]


class FakeService:
    """The service on a free port of the loopback address.

    ``fail`` maps the beginning of a path to a status that it answers with instead; ``token`` is asked for when set.
    """

    def __init__(self, nodes: int = 600, *, classes: int = 12, clusters: int = 8, port: int = 0) -> None:
        self.token: str | None = None
        self.fail: dict[str, int] = {}
        self.asked: list[dict[str, Any]] = []
        self.gone = False
        self._make(nodes, classes, clusters)
        handler = type("Handler", (_Handler,), {"service": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def _make(self, nodes: int, classes: int, clusters: int) -> None:
        rng = np.random.default_rng(0)
        self.classes = [SECTIONS[i % len(SECTIONS)] + ("" if i < len(SECTIONS) else f"-{i}") for i in range(classes)]
        share = 1 / np.arange(1, classes + 1) ** 0.8 if classes else np.ones(1)
        self.class_of = rng.choice(max(classes, 1), nodes, p=share / share.sum()).astype("<i2")
        angle = rng.uniform(0, 2 * np.pi, max(classes, 1))
        radius = rng.uniform(0.25, 1, max(classes, 1))
        self.centres = np.c_[radius * np.cos(angle) * 1.35, radius * np.sin(angle)]
        spread = rng.gamma(2, 0.05, (nodes, 1)) * rng.normal(size=(nodes, 2))
        self.place = (self.centres[self.class_of] * rng.uniform(0.55, 1.1, (nodes, 1)) + spread).astype("<f4")
        self.cluster_of = (self.class_of % max(clusters, 1)).astype("<i2")
        self.class_of[rng.random(nodes) < 0.05] = -1
        if not classes:
            self.class_of[:] = -1
        if not clusters:
            self.cluster_of[:] = -1
        self.clusters = clusters
        self.ids = [f"{self.classes[c] if classes else 'node'}-{i:05d}" for i, c in enumerate(self.class_of)]
        self.row = {name: i for i, name in enumerate(self.ids)}

    def __enter__(self) -> FakeService:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.gone = True  # connections that are still open get no answer either
        self._server.shutdown()
        self._server.server_close()

    def map(self) -> bytes:
        header = {"count": len(self.ids), "classes": self.classes, "clusters": self.clusters, "ids": False}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 4)
        x, y = np.ascontiguousarray(self.place.T)
        parts = [struct.pack("<I", len(text)), text, x, y, self.class_of, self.cluster_of]
        return b"".join(part if isinstance(part, bytes) else part.tobytes() for part in parts)

    def info(self) -> dict[str, Any]:
        counts = {"nodes": len(self.ids), "edges": 4 * len(self.ids)}
        tasks = ["classes", "links", "clusters"]
        return {
            "name": "Debian packages",
            "classes": self.classes,
            "counts": counts,
            "form": FORM,
            "tasks": tasks,
            "version": "0.1.0",
        }

    def brief(self, i: int) -> dict[str, Any]:
        return {"id": self.ids[i], "index": i, "class": self.class_name(i)}

    def class_name(self, i: int) -> str | None:
        return self.classes[self.class_of[i]] if self.class_of[i] >= 0 else None

    def node(self, i: int) -> dict[str, Any]:
        near = np.argsort(((self.place - self.place[i]) ** 2).sum(1))[1:6].tolist()
        linked = [(i * 7 + k * 31) % len(self.ids) for k in range(1, 1 + i % 20)]
        return {
            **self.brief(i),
            "position": self.place[i].tolist(),
            "cluster": int(self.cluster_of[i]) if self.cluster_of[i] >= 0 else None,
            "degree": len(linked),
            "neighbours": [self.brief(k) for k in linked],
            "near": [self.brief(k) for k in near],
        }

    def search(self, query: str) -> list[dict[str, Any]]:
        hits = [i for i, name in enumerate(self.ids) if query.lower() in name.lower()]
        return [self.brief(i) for i in hits[:8]]

    def predict(self, record: dict[str, Any]) -> dict[str, Any]:
        """A class whose name is in the text wins; nonsense ("zzz") is far from everything."""
        text = str(record.get("description", "")).lower()
        chosen = next((i for i, name in enumerate(self.classes) if name in text.split()), 0)
        odd = "zzz" in text
        chances = np.exp(-1.1 * np.roll(np.arange(len(self.classes)), chosen)) * (0.15 if odd else 1) + odd
        chances /= chances.sum()
        at = np.array([1.6, 1.1]) if odd else self.centres[chosen] * 0.8
        order = np.argsort(((self.place - at) ** 2).sum(1))
        top = np.argsort(-chances)
        within = top[: int(np.searchsorted(np.cumsum(chances[top]), 0.9)) + 1]
        return {
            "id": None,
            "class": self.classes[chosen],
            "confidence": float(chances[chosen]),
            "probabilities": {self.classes[i]: float(chances[i]) for i in top[:10]},
            "set": [self.classes[i] for i in within],
            "abstained": odd,
            "why": "far from every known node" if odd else "",
            "cluster": chosen % self.clusters if self.clusters else None,
            "links": [
                {"id": self.ids[i], "index": int(i), "score": 0.9 - 0.1 * k} for k, i in enumerate(order[5:60:12])
            ],
            "near": [
                {**self.brief(int(i)), "distance": float(np.hypot(*(self.place[i] - at)))} for i in order[:5].tolist()
            ],
            "position": at.tolist(),
        }


class _Handler(BaseHTTPRequestHandler):
    service: FakeService
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if self._refused(url.path):
            return
        service, path = self.service, unquote(url.path)
        if path == "/info":
            self._json(service.info())
        elif path == "/v1/map":
            self._send(200, service.map(), "application/octet-stream")
        elif path == "/v1/search":
            self._json({"results": service.search(parse_qs(url.query).get("q", [""])[0])})
        elif path.startswith("/v1/nodes/by-position/"):
            self._json(service.node(int(path.rsplit("/", 1)[1])))
        elif path.startswith("/v1/nodes/"):
            name = path.removeprefix("/v1/nodes/")
            row = service.row.get(name)
            if row is None:
                self._error(404, f"no seen node has the id {name!r}")
            else:
                self._json(service.node(row))
        else:
            self._file("index.html" if path == "/" else path.lstrip("/"))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused(self.path):
            return
        self.service.asked.append(body)
        record = body["records"][0]
        if record.get("installed_size", 0) < 0:
            self._error(422, "installed_size is -1, expected a number that is not negative")
        else:
            self._json({"predictions": [self.service.predict(record)]})

    def _refused(self, path: str) -> bool:
        if self.service.gone:
            self.close_connection = True
            return True
        status = next((code for start, code in self.service.fail.items() if path.startswith(start)), 0)
        guarded = path.startswith("/v1/") or path == "/info"
        if not status and guarded and self.service.token not in (None, *self._bearer()):
            status = 401
        if status:
            words = {401: "a token is needed", 429: "the queue is full, 512 requests wait"}
            self._error(status, words.get(status, "something broke"))
        return bool(status)

    def _bearer(self) -> tuple[str, ...]:
        kind, _, value = self.headers.get("Authorization", "").partition(" ")
        return (value,) if kind == "Bearer" else ()

    def _file(self, name: str) -> None:
        path = (STATIC / name).resolve()
        if not path.is_relative_to(STATIC) or not path.is_file():
            self._error(404, "there is nothing here")
            return
        self._send(200, path.read_bytes(), mimetypes.guess_type(path.name)[0] or "application/octet-stream")

    def _json(self, value: Any, status: int = 200) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _error(self, status: int, message: str) -> None:
        self._json({"error": {"code": "fake", "message": message}}, status)

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", PAGE_POLICY)
        if status == 429:
            self.send_header("Retry-After", "1")
        with contextlib.suppress(ConnectionError):  # a page that was closed meanwhile
            self.end_headers()
            self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=34_000)
    parser.add_argument("--classes", type=int, default=51)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    service = FakeService(arguments.nodes, classes=arguments.classes, port=arguments.port)
    service._server.serve_forever()


if __name__ == "__main__":
    main()
