"""The service as a process: started, asked over a real socket, told to stop, and replaced under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from gsparc.exceptions import InputError, OutputError
from gsparc.server.run import serve

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import FakeModel
from gsparc.server.run import serve
model = FakeModel()
model.pause = float(sys.argv[3])
serve(sys.argv[2], "127.0.0.1", 0, load=lambda _: model, on_start=lambda url: print(url, flush=True), watch_s=None)
print("ended", flush=True)
"""
ROW = {"vectors": [[1, 2, 3]]}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """Starts the service in a process of its own; gives it and its address."""
    started: list[subprocess.Popen[str]] = []
    folder = tmp_path_factory.mktemp("model")

    def begin(pause: float = 0.0) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(folder), str(pause)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(child)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    yield begin
    for child in started:
        if child.poll() is None:
            child.kill()
            child.communicate()


@pytest.fixture(scope="module")
def url(process) -> str:
    """The address of one that is not stopped."""
    return process()[1]


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_what_was_asked_is_answered_before_the_end(process, kind: signal.Signals) -> None:
    child, url = process(pause=1.0)
    answers: list[int] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/v1/predict", json=ROW, timeout=20).status_code)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    while "gsparc_open_requests 5.0" not in httpx.get(f"{url}/metrics").text:
        time.sleep(0.02)
    os.kill(child.pid, kind)
    for thread in threads:
        thread.join()
    output, errors = child.communicate(timeout=20)
    assert answers == [200] * 5
    assert child.returncode == 0
    assert output.strip() == "ended"
    assert "Traceback" not in errors


def test_bad_http_is_answered_in_json(url: str) -> None:
    port = int(url.rsplit(":", 1)[1])
    for sent in (b"NONSENSE\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sent)
            answer = b"".join(iter(lambda c=connection: c.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        assert json.loads(body)["error"]["code"] == "bad_http"
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}


def test_a_chunked_body_is_cut_off_over_a_real_socket(url: str) -> None:

    def endless() -> Iterator[bytes]:
        for _ in range(20):
            yield b"x" * 2**20

    try:
        status = httpx.post(
            f"{url}/v1/predict", content=endless(), headers={"Content-Type": "application/json"}, timeout=20
        ).status_code
    except (httpx.WriteError, httpx.ReadError):
        status = 413  # the connection was closed while the client was still sending
    assert status == 413
    assert httpx.get(f"{url}/health").status_code == 200


def test_other_host_names_are_refused_on_loopback(url: str) -> None:
    assert httpx.get(f"{url}/health", headers={"Host": "rebound.example"}).status_code == 403


def test_a_taken_port_is_said(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OutputError, match=r"cannot listen on 127\.0\.0\.1 port"):
            serve(folder, "127.0.0.1", taken.getsockname()[1])


def test_an_open_address_without_a_token_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="--insecure"):
        serve(folder, "0.0.0.0", 0)
