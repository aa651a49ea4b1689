"""Kill ``gsparc ingest`` with -9 at random moments: is half a store ever taken for one, and does the next run go on?

    python benchmarks/ingest_kills.py --times 20

After every kill the store must be refused as half written, or be whole. After one to three kills the command is run to
its end, and every array must have the bytes of a store that was never killed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from _common import record
from beyond_memory import generate

COLUMNS = [
    ["kills", "killed", ",d"],
    ["finished", "had finished before", ",d"],
    ["gone_on", "runs that took over finished stages", ",d"],
    ["taken", "half stores taken for whole", ",d"],
    ["completed", "next runs that succeeded", ",d"],
    ["different", "stores that differ", ",d"],
]


def checksums(folder: Path) -> dict[str, str] | None:
    """Of all arrays of a store that is whole; None where it is refused."""
    from gsparc import StoreError, open_store

    try:
        store = open_store(folder)
    except StoreError as error:
        if "half written" not in str(error):
            raise
        return None
    store.verify()
    # the transformers' own file holds the time and addresses of its making
    return {name: said["sha256"] for name, said in store.meta["files"].items() if not name.endswith(".skops")}


def measure(folder: Path, times: int) -> dict[str, Any]:
    generate(folder, 100_000, 1_000_000, 16, 10)
    store = folder / "store"
    asked = ["ingest", "--nodes", str(folder / "nodes"), "--edges", str(folder / "edges"), "--memory", "1GB"]
    command = [sys.executable, "-m", "gsparc", *asked, "-o"]
    start = time.perf_counter()
    subprocess.run([*command, str(folder / "whole"), "-q"], check=True, stdout=subprocess.DEVNULL)
    usual, whole = time.perf_counter() - start, checksums(folder / "whole")
    found = {"kills": 0, "finished": 0, "gone_on": 0, "taken": 0, "completed": 0, "different": 0}
    rng = np.random.default_rng(0)
    while found["kills"] + found["finished"] < times:
        for _ in range(int(rng.integers(1, 4))):
            process = subprocess.Popen([*command, str(store), "-q"], stdout=subprocess.DEVNULL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=float(rng.uniform(0.15, 1.05)) * usual)
            ended = process.poll() is not None
            process.send_signal(signal.SIGKILL)
            process.wait()
            found["finished" if ended else "kills"] += 1
            left = checksums(store) if store.is_dir() else None
            found["taken"] += left is not None and left != whole
        done = subprocess.run([*command, str(store)], capture_output=True, text=True, check=False)
        found["completed"] += done.returncode == 0
        found["gone_on"] += "done before" in done.stderr or "there already" in done.stderr
        found["different"] += checksums(store) != whole
        shutil.rmtree(store)
        print(found, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--output", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(Path(folder), asked.times)
    reached = not row["taken"] and not row["different"]
    record("ingest_kills", {"columns": COLUMNS, "rows": [row], "reached": reached}, asked.output)


if __name__ == "__main__":
    main()
