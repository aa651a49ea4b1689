"""Does the service answer 300 single rows a second over 50 connections, and shed what is too much?

    python benchmarks/service.py                                       # fits the Debian graph first
    python benchmarks/service.py --model model --nodes nodes.csv --examples 200

The service runs in a process of its own, the load generator in another, all on this machine. Phases: 50 connections
that ask as fast as they are answered; then twice the rate that this gave, whatever comes back; then 50 connections
again, to see that it recovers; then the same while the model folder is replaced. At the end schemathesis sends a fresh
process what the OpenAPI description allows and what it forbids.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from _common import record

HERE = Path(__file__).resolve().parent
COLUMNS = [
    ["phase", "load", ""],
    ["per_second", "answers a second", ".0f"],
    ["p50_ms", "p50, ms", ".0f"],
    ["p99_ms", "p99, ms", ".0f"],
    ["shed", "429", ",d"],
    ["errors", "other than 200 and 429", "d"],
]
BAR = ">= 300 requests/s, p99 <= 250 ms, no error with 50 connections; at twice that load 429, then recovery"
WIDTHS = "but the model has"  # wide vectors: their length is in the text of the description only


def fitted(folder: Path) -> Path:
    """A model of the Debian graph, by the commands that a user would give."""
    command = [sys.executable, "-m", "gsparc"]
    tables = folder / "tables"
    subprocess.run([*command, "datasets", "debian", "--export", str(tables)], check=True)
    nodes, edges = str(tables / "nodes.csv"), str(tables / "edges.csv")
    made = folder / "model"
    subprocess.run(
        [*command, "fit", "--nodes", nodes, "--edges", edges, "--target", "section", "-o", str(made)], check=True
    )
    return made


@contextlib.contextmanager
def served(model: Path, *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """The service in a process of its own; its address."""
    command = [sys.executable, "-m", "gsparc", "serve", str(model), "--port", "0", *options]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        for line in child.stderr:
            print(line, end="", file=sys.stderr)
            if found := re.search(r"http://\S+", line):
                break
        else:
            raise SystemExit("the service did not start")
        threading.Thread(target=child.stderr.read, daemon=True).start()
        yield found.group(), psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait(60)


def bodies_of(url: str, nodes: Path | None, count: int = 500) -> list[dict[str, Any]]:
    """Single rows: of a node table where one is given, else the form's own examples."""
    form = httpx.get(f"{url}/info").json()["form"]
    names = [part["name"] for part in form]
    if nodes is None:
        return [{"records": [{part["name"]: part["example"] for part in form}]}]
    kinds = {part["name"]: part["kind"] for part in form}
    with open(nodes, newline="", encoding="utf-8") as stream:
        csv.field_size_limit(10**8)
        rows = [row for row, _ in zip(csv.DictReader(stream), range(count), strict=False)]
    return [
        {"records": [{name: float(row[name]) if kinds[name] == "number" else row[name] for name in names}]}
        for row in rows
    ]


def run_load(url: str, bodies: Path, *options: str) -> dict[str, Any]:
    """One phase, in a process of its own."""
    command = [sys.executable, str(HERE / "_load.py"), f"{url}/v1/predict", str(bodies), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def other_generators(url: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The same load by hey, where it is installed."""
    if shutil.which("hey") is None:
        return {}
    command = ["hey", "-z", f"{seconds:g}s", "-c", "50", "-m", "POST", "-T", "application/json", "-d", json.dumps(body)]
    text = subprocess.run([*command, f"{url}/v1/predict"], capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
    return {"hey_per_second": float(rate.group(1))} if rate else {}


def replace(model: Path) -> None:
    """What a save does: a complete folder takes the place of the old one."""
    fresh, old = model.with_name(f".{model.name}.fresh"), model.with_name(f".{model.name}.old")
    shutil.copytree(model, fresh)
    os.rename(model, old)
    os.rename(fresh, model)
    shutil.rmtree(old)


def reloads_of(url: str) -> tuple[int, str]:
    """How often a new folder was taken into use, waited for, and all metrics."""
    for _ in range(60):
        text = httpx.get(f"{url}/metrics").text
        found = re.search(r'gsparc_model_reloads_total\{result="ok"\} (\d+)', text)
        if found and int(found.group(1)):
            break
        time.sleep(0.5)
    return (int(found.group(1)) if found else 0), text


def loads(model: Path, nodes: Path | None, seconds: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All phases on one service, and what else was seen."""
    with tempfile.TemporaryDirectory() as scratch, served(model) as (url, process):
        bodies = Path(scratch) / "bodies.json"
        rows = bodies_of(url, nodes)
        bodies.write_text(json.dumps(rows), encoding="utf-8")
        closed = ("--connections", "50", "--seconds", f"{seconds:g}")
        run_load(url, bodies, "--connections", "50", "--seconds", "3")
        phases = {"50 connections": run_load(url, bodies, *closed)}
        rate = 2 * max(phases["50 connections"]["per_second"], 300.0)
        open_ = ("--connections", "1500", "--seconds", f"{seconds:g}", "--rate", f"{rate:g}")
        phases[f"{rate:.0f} a second (twice that)"] = run_load(url, bodies, *open_)
        phases["50 connections, after it"] = run_load(url, bodies, *closed)
        swap = threading.Timer(seconds / 3, replace, [model])
        swap.start()
        phases["50 connections, model replaced"] = run_load(url, bodies, *closed)
        swap.join()
        reloads, text = reloads_of(url)
        sizes = re.search(r"gsparc_batch_rows_sum (\S+)\n", text), re.search(r"gsparc_batch_rows_count (\S+)\n", text)
        seen = {
            "server_rss_gb": round(process.memory_info().rss / 1e9, 2),
            "reloads": reloads,
            "rows_a_batch": round(float(sizes[0].group(1)) / float(sizes[1].group(1)), 1) if all(sizes) else None,  # type: ignore[union-attr]
            **other_generators(url, rows[0], seconds),
        }
    for name, phase in phases.items():
        statuses = phase["statuses"]
        phase |= {"phase": name, "shed": statuses.get("429", 0)}
        phase["errors"] = phase["sent"] - statuses.get("200", 0) - phase["shed"]
        print(json.dumps(phase), flush=True)
    return list(phases.values()), seen


def with_rows_that_came(body: Any) -> Any:
    """The body with its edges at rows that are there: the one thing of a valid body that a schema cannot say."""
    rows = body.get("records", body.get("vectors"))
    edges = [[int(row) % len(rows), node] for row, node in body.get("edges", [])]
    return {**body, "edges": edges} if edges else body


def fuzz(model: Path, examples: int) -> dict[str, Any]:
    """So many valid and so many invalid requests a route, made by schemathesis from the description."""
    import requests
    import schemathesis
    from hypothesis import HealthCheck, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

    counts: dict[str, int] = {}
    slowest = 0.0
    with served(model) as (url, _), requests.Session() as session:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
        for result in schema.get_all_operations():
            operation = result.ok()
            anything = operation.body or operation.query or "{index}" in operation.path  # any text may be an id
            modes = list(schemathesis.GenerationMode) if anything else [schemathesis.GenerationMode.POSITIVE]
            for mode in modes:

                @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
                @given(case=operation.as_strategy(generation_mode=mode))
                def check(case: schemathesis.Case) -> None:
                    nonlocal slowest
                    if mode is schemathesis.GenerationMode.POSITIVE and isinstance(case.body, dict):  # noqa: B023
                        case.body = with_rows_that_came(case.body)
                    started = time.perf_counter()
                    response = case.call(base_url=url, session=session, timeout=60)
                    slowest = max(slowest, time.perf_counter() - started)
                    status = str(response.status_code)
                    counts[status] = counts.get(status, 0) + 1
                    beyond = status == "422" and WIDTHS in response.json()["error"]["message"]
                    known = [positive_data_acceptance] if beyond else []
                    known += [negative_data_rejection] if status == "413" else []  # too many rows; unknown to it
                    case.validate_response(response, excluded_checks=known)

                with contextlib.suppress(Unsatisfiable):  # a route to which nothing wrong can be sent
                    check()
            print(operation.method, operation.path, counts, flush=True)
    failures = sum(count for status, count in counts.items() if status.startswith("5"))
    return {
        "examples_a_route": 2 * examples,
        "statuses": counts,
        "status_5xx": failures,
        "slowest_s": round(slowest, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="a folder of gsparc fit; it is copied")
    parser.add_argument("--nodes", type=Path, default=None, help="a CSV file whose rows are sent")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--examples", type=int, default=100, help="of schemathesis a route, valid and invalid each")
    parser.add_argument("--output", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        model, nodes = args.model, args.nodes
        if model is None:
            model, nodes = fitted(Path(scratch)), Path(scratch) / "tables" / "nodes.csv"
        else:
            model = Path(shutil.copytree(model, Path(scratch) / "model"))
        rows, seen = loads(model, nodes, args.seconds)
        schemathesis_run = fuzz(model, args.examples)
    payload = {"columns": COLUMNS, "rows": rows, "bar": BAR, "seen": seen, "schemathesis": schemathesis_run}
    record("service", payload, args.output)


if __name__ == "__main__":
    main()
