"""Does training across machines work? Two network namespaces play two hosts, with a wire and no folder in common.

    sudo python benchmarks/two_hosts.py

Each host starts ``torchrun --nnodes 2 ... -m gsparc fit`` on its own copy of the tables. In a second round a worker of
the second host is killed with -9 in the middle. Asked: do both end with success, does only the first host write a
model, is the class of pretend-new rows found as well as by one process, and is the figure the same after a kill?
Needs root (``ip netns``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from _common import record

HOSTS = {"gsparc-a": "10.77.0.1", "gsparc-b": "10.77.0.2"}
COLUMNS = [
    ["run", "run", ""],
    ["accuracy", "accuracy", ".3f"],
    ["status", "exit status of the hosts", ""],
    ["models", "hosts with a model", ",d"],
    ["restarts", "started again", ",d"],
    ["seconds", "seconds", ".0f"],
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def two_hosts() -> Iterator[None]:
    """Two network namespaces joined by a veth pair."""
    (first, one), (second, two) = HOSTS.items()
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            ip("-n", host, "link", "set", "lo", "up")
        ip("link", "add", "gsparc0", "netns", first, "type", "veth", "peer", "name", "gsparc0", "netns", second)
        for host, address in ((first, one), (second, two)):
            ip("-n", host, "address", "add", f"{address}/24", "dev", "gsparc0")
            ip("-n", host, "link", "set", "gsparc0", "up")
        yield
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def write_tables(folder: Path, nodes: int) -> None:
    from gsparc.datasets import make_blocks
    from gsparc.datasets.writing import export_tables

    export_tables(make_blocks(nodes, 8 * nodes, 16, num_classes=4, random_state=0), folder)


def fit_command(steps: int) -> list[str]:
    options = ["--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "label", "--task", "classes"]
    return [
        "-m",
        "gsparc",
        "fit",
        *options,
        "--max-steps",
        str(steps),
        "--backbone",
        "phormer",
        "--json",
        "-o",
        "model",
    ]


def start(host: str, folder: Path, steps: int) -> subprocess.Popen[str]:
    """torchrun on one host, with one worker, in a folder of its own."""
    words = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
    words += ["--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d", "--rdzv-id", "hosts"]
    words += ["--rdzv-endpoint", f"{HOSTS['gsparc-a']}:29500", "--local-addr", HOSTS[host]]
    # namespaces share a host name, so that torchrun cannot tell by itself which of the two is the endpoint
    words += ["--rdzv-conf", f"is_host={int(host == 'gsparc-a')}"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "gsparc0", "OMP_NUM_THREADS": "1"}
    with (folder / "log").open("w") as log:
        return subprocess.Popen(
            [*words, *fit_command(steps)], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )


def kill_a_worker(runner: subprocess.Popen[str], checkpoint: Path) -> None:
    """-9 for the worker of one host, once the first host has left a checkpoint of the spectral map."""
    while not checkpoint.exists() and runner.poll() is None:
        time.sleep(0.05)
    for process in psutil.Process(runner.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "RANK" in process.environ() and "gsparc" in process.cmdline():
                os.kill(process.pid, signal.SIGKILL)
                return


def measure(tables: Path, steps: int, *, kill: bool) -> dict[str, Any]:
    """Fit on both hosts at once."""
    folders = {host: Path(tempfile.mkdtemp(prefix=f"two-hosts-{host}-")) for host in HOSTS}
    begin = time.perf_counter()
    try:
        with two_hosts():
            runners = []
            for host, folder in folders.items():
                shutil.copytree(tables, folder, dirs_exist_ok=True)
                runners.append(start(host, folder, steps))
            if kill:
                kill_a_worker(runners[1], folders["gsparc-a"] / ".model.fit" / "map" / "checkpoint.safetensors")
            outputs = [runner.communicate(timeout=1200)[0] for runner in runners]
        logs = [(folder / "log").read_text() for folder in folders.values()]
        statuses = [runner.returncode for runner in runners]
        if any(statuses):
            raise SystemExit("\n".join(log[-2000:] for log in logs))
        return {
            "run": "two hosts, one worker killed" if kill else "two hosts",
            "accuracy": _accuracy(outputs[0]),
            "status": ", ".join(map(str, statuses)),
            "models": sum((folder / "model").exists() for folder in folders.values()),
            "restarts": sum("exitcode: -9" in log for log in logs),
            "seconds": time.perf_counter() - begin,
        }
    finally:
        for folder in folders.values():
            shutil.rmtree(folder, ignore_errors=True)


def _accuracy(output: str) -> float:
    rows = json.loads(output)["measured"]["classification"]
    return next(row["accuracy"] for row in rows if row["method"] == "gsparc")


def alone(tables: Path, steps: int) -> dict[str, Any]:
    """The same fit by one process."""
    begin = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="two-hosts-alone-"))
    shutil.copytree(tables, folder, dirs_exist_ok=True)
    done = subprocess.run(
        [sys.executable, *fit_command(steps), "-q"], cwd=folder, capture_output=True, text=True, check=True
    )
    shutil.rmtree(folder, ignore_errors=True)
    seconds = time.perf_counter() - begin
    row = {"run": "one process", "status": "0", "models": 1, "restarts": 0, "seconds": seconds}
    return row | {"accuracy": _accuracy(done.stdout)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    tables = Path(tempfile.mkdtemp(prefix="two-hosts-tables-"))
    try:
        write_tables(tables, args.nodes)
        rows = [alone(tables, args.steps)]
        for kill in (False, True):
            print(rows[-1], flush=True)
            rows.append(measure(tables, args.steps, kill=kill))
        print(rows[-1], flush=True)
    finally:
        shutil.rmtree(tables, ignore_errors=True)
    record("two_hosts", {"columns": COLUMNS, "rows": rows, "bar": "same accuracy within noise, one model"}, args.output)


if __name__ == "__main__":
    main()
