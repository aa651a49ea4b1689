"""How much memory do four workers of the service take, against one? All map one model.

    python benchmarks/serve_workers.py --model model

Memory is the sum of the proportional set sizes (PSS) of all processes of a service, read after each has answered the
same requests: a page that four processes share counts as a quarter in each. It is read again after the model folder
was replaced while clients with kept-alive connections went on asking.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from _common import record
from service import fitted, served

HERE = Path(__file__).resolve().parent
COLUMNS = [
    ["workers", "workers", "d"],
    ["pss_mb", "PSS, MB", ",.0f"],
    ["ratio", "against one", ".2f"],
    ["swapped_pss_mb", "after a swap, MB", ",.0f"],
    ["swapped_ratio", "against one", ".2f"],
    ["per_second", "answers a second", ",.0f"],
    ["errors", "not answered with 200", "d"],
]


def pss(service: psutil.Process) -> int:
    """Proportional set size of a process and those that it started, in bytes."""
    total = 0
    for process in (service, *service.children(recursive=True)):
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
    return total


def bodies(url: str, path: Path, count: int = 64) -> int:
    """Requests of one vector each, such as bags of words are; how wide they are."""
    width = httpx.get(f"{url}/info").json()["n_features"]
    rng = np.random.default_rng(0)
    rows = (rng.random((count, width)) < 0.01).astype(float).tolist()
    path.write_text(json.dumps([{"vectors": [row]} for row in rows]))
    return width


def loaded(url: str, requests: Path, seconds: float) -> dict[str, Any]:
    """What the load generator says of so many seconds over 32 connections."""
    command = [sys.executable, str(HERE / "_load.py"), f"{url}/v1/predict", str(requests)]
    command += ["--connections", "32", "--seconds", str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def warmed(url: str, workers: int) -> list[float]:
    """Rows that each worker has answered, once all have answered some; fresh connections reach all of them."""
    width = httpx.get(f"{url}/info").json()["n_features"]
    for _ in range(50):
        for _ in range(8 * workers):
            httpx.post(f"{url}/v1/predict", json={"vectors": [[1.0] + [0.0] * (width - 1)]}).raise_for_status()
        time.sleep(1.5)  # figures are written down once a second
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        rows = [float(line.split()[-1]) for line in lines if line.startswith("gsparc_rows_total")]
        if len(rows) == workers and min(rows) >= 4:
            return rows
    raise SystemExit("not every worker has answered")


def keep_asking(url: str, requests: Path, stop: threading.Event, statuses: list[str]) -> None:
    """One client with a kept-alive connection."""
    rows = json.loads(requests.read_text())
    with httpx.Client(timeout=60) as client:
        place = 0
        while not stop.is_set():
            place += 1
            try:
                statuses.append(str(client.post(f"{url}/v1/predict", json=rows[place % len(rows)]).status_code))
            except httpx.HTTPError as error:
                statuses.append(type(error).__name__)


def swap(model: Path, url: str, workers: int) -> None:
    """Replace the folder by a copy, and wait until every worker serves it."""
    start, fresh = time.time(), model.with_name("fresh")
    shutil.copytree(model, fresh)
    config = json.loads((fresh / "checksums.json").read_text())
    (fresh / "checksums.json").write_text(json.dumps(config, indent=1))  # another version of the same contents
    model.rename(model.with_name(f"old-{time.time_ns()}"))
    fresh.rename(model)
    for _ in range(600):
        time.sleep(0.5)
        lines = httpx.get(f"{url}/metrics").text.splitlines()
        found = [line for line in lines if line.startswith("gsparc_model_loaded_timestamp_seconds")]
        if len(found) == workers and min(float(line.split()[-1]) for line in found) > start:
            return
    raise SystemExit("the new model was not taken into use")


def measure(model: Path, workers: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Figures of a service with so many workers."""
    own = folder / f"model-{workers}"
    shutil.copytree(model, own)
    with served(own, "--workers", str(workers)) as (url, service):
        requests = folder / "bodies.json"
        bodies(url, requests)
        warmed(url, workers)
        answers = loaded(url, requests, seconds)
        before = pss(service)
        statuses: list[str] = []
        stop = threading.Event()
        clients = [threading.Thread(target=keep_asking, args=(url, requests, stop, statuses)) for _ in range(4)]
        for client in clients:
            client.start()
        swap(own, url, workers)
        time.sleep(2)
        stop.set()
        for client in clients:
            client.join()
        time.sleep(8)  # a former model is let go of five seconds after a swap
        warmed(url, workers)
        after = pss(service)
    shutil.rmtree(own)
    lost = sum(status != "200" for status in statuses)
    return {
        "workers": workers,
        "pss_mb": round(before / 1e6, 1),
        "swapped_pss_mb": round(after / 1e6, 1),
        "per_second": round(answers["per_second"], 1),
        "errors": lost + sum(count for status, count in answers["statuses"].items() if status != "200"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=None, help="a model folder; left out, the Debian graph is fitted")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--output", type=Path, default=None, help="default: results/serve_workers.json")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or fitted(Path(folder))
        rows = []
        for workers in args.workers:
            rows.append(measure(model, workers, args.seconds, Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    for row in rows:
        row["ratio"] = round(row["pss_mb"] / rows[0]["pss_mb"], 3)
        row["swapped_ratio"] = round(row["swapped_pss_mb"] / rows[0]["swapped_pss_mb"], 3)
    record(
        "serve_workers", {"bar": "4 workers <= 1.4 x the memory of one", "columns": COLUMNS, "rows": rows}, args.output
    )


if __name__ == "__main__":
    main()
