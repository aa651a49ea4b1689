"""Several processes at one address: all answer, one that dies is replaced, and so is the model of all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from gsparc.exceptions import InputError, OutputError
from gsparc.server.metrics import merged
from gsparc.server.run import serve
from gsparc.server.workers import listen_together

PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import FakeModel
from gsparc.exceptions import DamagedModelError
from gsparc.server.run import serve

def load(folder):
    if (Path(folder) / "checksums.json").read_text() == "bad":
        raise DamagedModelError("the model is damaged: it says so.")
    return FakeModel()

serve(sys.argv[2], "127.0.0.1", 0, load=load, on_start=lambda url: print(url, flush=True), watch_s=0.2, processes=2,
      token="secret-token", grace_s=5.0)
print("ended", flush=True)
"""
ROW = {"vectors": [[1, 2, 3]]}
TOKEN = {"Authorization": "Bearer secret-token"}


class Service:
    """A service of two workers over a folder whose checksums name the version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("first")
        command = [sys.executable, "-c", PROGRAM, str(Path(__file__).parent), str(folder)]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        self.url = self.child.stdout.readline().strip()

    def write(self, text: str) -> None:
        fresh = self.folder / "fresh"
        fresh.write_text(text)
        fresh.replace(self.folder / "checksums.json")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, headers=TOKEN)

    def ask(self) -> str:
        answer = httpx.post(self.url + "/v1/predict", json=ROW, headers=TOKEN)
        assert answer.status_code == 200, answer.text
        return answer.json()["model"]

    def workers(self) -> set[int]:
        return {child.pid for child in psutil.Process(self.child.pid).children()}

    def until(self, condition) -> None:
        end = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < end, "waited for 20 s"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Shared by the tests below, of which the last stops it."""
    started = Service(tmp_path_factory.mktemp("model"))
    yield started
    if started.child.poll() is None:
        started.child.terminate()
    started.child.communicate(timeout=20)


def test_both_workers_answer_and_metrics_tell_of_both(service: Service) -> None:
    assert len(service.workers()) == 2

    def both_have() -> bool:
        service.ask()
        lines = service.get("/metrics").text.splitlines()
        rows = {line.split("{")[1][:10]: float(line.split()[-1]) for line in lines if line.startswith("gsparc_rows_t")}
        return sorted(rows) == ['worker="0"', 'worker="1"'] and min(rows.values()) > 0

    service.until(both_have)
    assert service.get("/metrics").text.count("# TYPE gsparc_rows_total") == 1


def test_a_killed_worker_is_replaced(service: Service) -> None:
    victim, other = sorted(service.workers())
    os.kill(victim, signal.SIGKILL)
    service.until(lambda: len(service.workers()) == 2 and victim not in service.workers())
    assert other in service.workers()
    for _ in range(8):
        service.ask()


def test_a_new_model_takes_over_without_a_request_dropped(service: Service) -> None:
    before, old = service.ask(), service.workers()
    answers: list[str] = []
    stop = threading.Event()

    def ask_on() -> None:
        with httpx.Client(headers=TOKEN) as client:  # a connection that is kept alive, as browsers do
            while not stop.is_set():
                answer = client.post(service.url + "/v1/predict", json=ROW)
                answers.append(answer.json()["model"] if answer.status_code == 200 else str(answer.status_code))

    threads = [threading.Thread(target=ask_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    service.write("second")
    service.until(lambda: not old & service.workers())
    time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    versions = list(dict.fromkeys(answers))
    assert len(versions) == 2
    assert versions[0] == before
    assert service.ask() == versions[1]
    assert len(service.workers()) == 2


def test_a_folder_that_cannot_be_used_is_told_by_every_worker(service: Service) -> None:
    version, old = service.ask(), service.workers()
    service.write("bad")
    service.until(lambda: all(not service.get("/ready").json()["reload"]["ok"] for _ in range(6)))
    assert service.ask() == version
    assert service.workers() == old
    answer = httpx.post(service.url + "/v1/reload", headers=TOKEN)
    assert answer.status_code == 409
    assert "it says so" in answer.text


def test_reload_by_request_reaches_all_workers(service: Service) -> None:
    service.write("third")
    service.until(lambda: service.get("/ready").json()["reload"]["ok"] and len(service.workers()) == 2)
    version, old = service.ask(), service.workers()
    answer = httpx.post(service.url + "/v1/reload", headers=TOKEN, timeout=20)
    assert answer.status_code == 200
    assert answer.json() == {"version": version}
    service.until(lambda: not old & service.workers())


def test_stops_quietly(service: Service) -> None:
    workers = service.workers()
    service.child.send_signal(signal.SIGTERM)
    out, err = service.child.communicate(timeout=20)
    assert (service.child.returncode, out) == (0, "ended\n")
    assert "Traceback" not in err
    assert not any(psutil.pid_exists(pid) for pid in workers)


def test_workers_end_with_the_first_process(tmp_path: Path) -> None:
    service = Service(tmp_path)
    workers = service.workers()
    assert len(workers) == 2
    service.child.kill()
    service.until(lambda: not any(psutil.pid_exists(pid) for pid in workers))
    service.child.communicate(timeout=20)


def test_a_port_in_use_is_refused_though_sockets_are_shared(tmp_path: Path) -> None:
    mine = listen_together("127.0.0.1", 0, 2)
    port = mine[0].getsockname()[1]
    assert mine[1].getsockname()[1] == port
    for listener in mine:
        listener.listen()
    with pytest.raises(OutputError, match=f"cannot listen on 127.0.0.1 port {port}"):
        listen_together("127.0.0.1", port, 2)
    for listener in mine:
        listener.close()


def test_several_workers_need_the_main_thread(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            serve(tmp_path, port=0, processes=2)
        except InputError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "2 workers came, but only the main thread" in str(errors[0])


def test_merged_metrics_keep_labels_and_values_with_braces() -> None:
    one = '# HELP a what {it} is\n# TYPE a counter\na{route="/v1/{x}",s="200"} 3.0\nb 1.0\n'
    text = merged([("0", one), ("1", one)])
    assert text.splitlines() == [
        "# HELP a what {it} is",
        "# TYPE a counter",
        'a{worker="0",route="/v1/{x}",s="200"} 3.0',
        'b{worker="0"} 1.0',
        'a{worker="1",route="/v1/{x}",s="200"} 3.0',
        'b{worker="1"} 1.0',
    ]
    assert json.dumps(merged([])) == '""'
