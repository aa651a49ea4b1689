"""From two CSV files of the Debian graph to a served prediction: the three commands of the README, timed.

python benchmarks/three_commands.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from _common import record

COLUMNS = [["command", "command", ""], ["seconds", "seconds", ".1f"]]
TEXT = "python bindings for the gtk widget toolkit graphical user interface library"


def run(*arguments: str) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "gsparc", *arguments], stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"gsparc {' '.join(arguments)} ended with {done.returncode}")
    return time.perf_counter() - start


def serve_and_ask(model: Path) -> tuple[float, dict[str, Any]]:
    """Seconds from the start of the service to its first prediction, and that prediction."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "gsparc", "serve", str(model), "--port", "8765"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        body = json.dumps({"records": [{"words": TEXT}]}).encode()
        json_body = {"Content-Type": "application/json"}
        asked = urllib.request.Request("http://127.0.0.1:8765/v1/predict", body, json_body)
        for _ in range(600):
            try:
                with urllib.request.urlopen(asked, timeout=30) as answer:
                    return time.perf_counter() - start, json.load(answer)["predictions"][0]
            except OSError:
                time.sleep(0.1)
        raise SystemExit("the service did not answer within a minute")
    finally:
        process.terminate()
        process.wait(timeout=30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None, help="leave tables and model there")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = str(args.folder or temporary)
        folder = Path(place)
        tables = ("--nodes", str(folder / "nodes.csv"), "--edges", str(folder / "edges.csv"))
        rows = [
            {"command": "gsparc datasets debian --export", "seconds": run("datasets", "debian", "--export", place)},
            {
                "command": "gsparc fit",
                "seconds": run("fit", *tables, "--target", "section", "-o", str(folder / "model")),
            },
        ]
        seconds, answer = serve_and_ask(folder / "model")
        rows.append({"command": "gsparc serve, up to its first prediction", "seconds": seconds})
    rows.append({"command": "all", "seconds": sum(row["seconds"] for row in rows)})
    print(json.dumps(rows, indent=1), answer["class"], answer["set"])
    record("three_commands", {"columns": COLUMNS, "rows": rows, "answer": answer, "bar": "360 s"}, args.output)


if __name__ == "__main__":
    main()
