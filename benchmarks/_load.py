"""A load generator of its own process: asks one address over many connections and prints what came back as JSON.

    python benchmarks/_load.py URL bodies.json --connections 50 --seconds 20               # each asks as fast as it can
    python benchmarks/_load.py URL bodies.json --connections 1000 --seconds 20 --rate 800  # so many a second

With ``--rate`` a latency counts from the moment at which the request was due, so a service that stalls cannot hide it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np


class Connection(asyncio.Protocol):
    """One kept-alive connection with at most one request under way."""

    def __init__(self, load: Load) -> None:
        self.load, self.buffer, self.due, self.busy = load, b"", 0.0, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: bytes, due: float) -> None:
        """Ask; ``due``: since when the answer is waited for."""
        self.due, self.busy = due, True
        self.transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer, self.busy = b"", False
        self.load.answered(self, head[9:12].decode(), time.perf_counter() - self.due)

    def connection_lost(self, error: Exception | None) -> None:
        if self.busy:
            self.load.answered(self, "lost", time.perf_counter() - self.due)
        self.load.gone(self)


class Load:
    """Counts and latencies of one run."""

    def __init__(self, url: str, bodies: list[bytes], rate: float | None) -> None:
        parts = urlsplit(url)
        self.host, self.port, self.rate = parts.hostname or "127.0.0.1", parts.port or 80, rate
        head = f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self.requests = [f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
        self.statuses: Counter[str] = Counter()
        self.seconds: dict[str, list[float]] = {}
        self.idle: list[Connection] = []
        self.sent = 0
        self.running = True

    def next_request(self) -> bytes:
        """The bodies in turn."""
        self.sent += 1
        return self.requests[self.sent % len(self.requests)]

    def answered(self, connection: Connection, status: str, seconds: float) -> None:
        """Note an answer; without a rate the connection asks again at once."""
        self.statuses[status] += 1
        self.seconds.setdefault(status, []).append(seconds)
        if self.rate is None and self.running and status != "lost":
            connection.send(self.next_request(), time.perf_counter())
        elif status != "lost":
            self.idle.append(connection)

    def gone(self, connection: Connection) -> None:
        """A closed connection asks no more."""
        if connection in self.idle:
            self.idle.remove(connection)

    async def run(self, connections: int, seconds: float) -> float:
        """Ask for so long; gives the seconds that it took until the last answer."""
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, made = await loop.create_connection(lambda: Connection(self), self.host, self.port)
            self.idle.append(made)
        start = time.perf_counter()
        if self.rate is None:
            waiting, self.idle = self.idle, []
            for connection in waiting:
                connection.send(self.next_request(), time.perf_counter())
            await asyncio.sleep(seconds)
        else:
            await self._steadily(start, seconds)
        self.running = False
        while sum(self.statuses.values()) < self.sent and time.perf_counter() - start < seconds + 30:
            await asyncio.sleep(0.01)
        return time.perf_counter() - start

    async def _steadily(self, start: float, seconds: float) -> None:
        assert self.rate is not None
        while (now := time.perf_counter() - start) < seconds:
            while self.sent < self.rate * now and self.idle:
                due = start + self.sent / self.rate
                self.idle.pop().send(self.next_request(), due)
            await asyncio.sleep(0.001)


def figures(load: Load, seconds: float) -> dict[str, object]:
    """What a run came to; latencies are those of successes."""
    good = 1000 * np.array(load.seconds.get("200", [0.0]))
    p50, p99 = np.percentile(good, [50, 99])
    shed = 1000 * np.array(load.seconds.get("429", [0.0]))
    return {
        "sent": load.sent,
        "unanswered": load.sent - sum(load.statuses.values()),
        "statuses": dict(load.statuses),
        "seconds": round(seconds, 2),
        "per_second": round(load.statuses["200"] / seconds, 1),
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(float(good.max()), 1),
        "shed_p50_ms": round(float(np.median(shed)), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path, help="a JSON list of request bodies")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=None)
    args = parser.parse_args()
    bodies = [json.dumps(body).encode() for body in json.loads(args.bodies.read_text(encoding="utf-8"))]
    load = Load(args.url, bodies, args.rate)
    try:
        import uvloop

        run = uvloop.run
    except ImportError:
        run = asyncio.run
    print(json.dumps(figures(load, run(load.run(args.connections, args.seconds)))))


if __name__ == "__main__":
    main()
