"""What each step costs by node and by edge, what that makes at other sizes, and whether such a prediction holds.

    python benchmarks/costs.py                       # reads results/beyond_memory.json, writes results/costs.json
    python benchmarks/costs.py --core-hour 0.03      # with your own prices

Every figure of a step (processor seconds, its own memory, bytes moved to and from disk) is taken as ``fixed + a x
million nodes + b x million edges`` with no negative part, fitted so that relative errors are least. Only runs of at
most a tenth of the largest one are used; the largest one then says how far off the prediction was. Runs must differ in
edges per node, else nodes and edges cannot be told apart.

Money is processor seconds times the price of a core, whatever number of cores does them. Prices are assumptions, not
measurements.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from _common import RESULTS, record

MEASURES = ("cpu_seconds", "anonymous_gb", "moved_gb")
SIZES = {"100 M / 2 B": (100_000_000, 2_000_000_000), "1 B / 100 B": (1_000_000_000, 100_000_000_000)}
EDGES_PER_NODE = 20  # where a limit is met first is looked for along graphs of this density
LEAST = 0.02  # seconds or gigabytes below which a relative error says nothing
TITLES = {
    ("ingest", "sample"): "ingest: look at a sample",
    ("ingest", "nodes"): "ingest: read the nodes",
    ("ingest", "join"): "ingest: join the edges to the nodes",
    ("ingest", "sort"): "ingest: sort the edges",
    ("ingest", "checksums"): "ingest: checksums",
    ("fit", "cut"): "fit: leave out pretend-cold nodes",
    ("fit", "map"): "fit: F_theta",
    ("fit", "coordinates"): "fit: coordinates of all nodes",
    ("fit", "index"): "fit: index",
    ("fit", "classes"): "fit: network for the classes",
    ("fit", "measure"): "fit: measure on pretend-cold nodes",
    ("fit", "save"): "fit: write the model",
    ("predict", "start"): "predict 100,000 new rows",
}
KNOBS = {
    "ingest": "--memory (less is slower), several files, a wider disk",
    "fit: F_theta": "--processes or torchrun on more hosts, a GPU; its steps do not grow with the graph",
    "fit: index": "--index-memory (shorter codes, measured recall)",
    "fit": "--processes, a GPU; --max-steps for the networks",
    "predict": "--engine ray with more workers",
    "disk": "--dtype float16; fewer text columns; the tables themselves may go after ingest",
}

Model = tuple[float, float, float]
"""Fixed, by million nodes, by million edges."""


def fitted(sizes: Sequence[tuple[float, float]], values: Sequence[float]) -> Model:
    """The parts, none negative, whose relative errors are least.

    Examples
    --------
    >>> sizes = [(1e6, 2e6), (2e6, 2e6), (2e6, 8e6)]
    >>> [round(part, 6) for part in fitted(sizes, [1 + 3 + 4, 1 + 6 + 4, 1 + 6 + 16])]
    [1.0, 3.0, 2.0]
    """
    rows = np.array([[1.0, nodes / 1e6, edges / 1e6] for nodes, edges in sizes])
    y = np.asarray(values, float)
    weight = 1 / np.maximum(y, LEAST)
    parts, _ = nnls(rows * weight[:, None], y * weight)
    return float(parts[0]), float(parts[1]), float(parts[2])


def predicted(model: Model, nodes: float, edges: float) -> float:
    return model[0] + model[1] * nodes / 1e6 + model[2] * edges / 1e6


def parts_of(run: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """Every part of every step of a run, by name; what comes before the first named part belongs to it."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for step in run["steps"]:
        for part in step["parts"]:
            key = (step["stage"], part["part"])
            if key not in TITLES and step["stage"] != "generate":
                key = (step["stage"], next(name for stage, name in TITLES if stage == step["stage"]))
            into = found.setdefault(key, dict.fromkeys(MEASURES, 0.0))
            into["cpu_seconds"] += part["cpu_seconds"]
            into["moved_gb"] += part["read_gb"] + part["written_gb"]
            into["anonymous_gb"] = max(into["anonymous_gb"], part["anonymous_gb"])
    return {key: found[key] for key in TITLES if key in found}


def chosen(runs: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The runs to fit on, at most a tenth as large as the largest one, and that one."""
    largest = max(runs, key=lambda run: run["edges"])
    small = [r for r in runs if 10 * r["nodes"] <= largest["nodes"] and 10 * r["edges"] <= largest["edges"]]
    density = {round(run["edges"] / run["nodes"], 2) for run in small}
    if len(small) < 4 or len(density) < 2:
        raise SystemExit(
            f"{len(small)} runs of at most a tenth of {largest['nodes']:,} nodes and {largest['edges']:,} edges, "
            f"with {sorted(density)} edges per node, came; expected four or more, with different ones. Run "
            "benchmarks/beyond_memory.py with other --nodes and --edges."
        )
    return small, largest


def models_of(small: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Model]]:
    """For each step, by its title, a model of each measure; ``disk`` is what store and model take."""
    sizes = [(run["nodes"], run["edges"]) for run in small]
    parts = [parts_of(run) for run in small]
    found = {
        title: {name: fitted(sizes, [part[key][name] for part in parts]) for name in MEASURES}
        for key, title in TITLES.items()
        if all(key in part for part in parts)
    }
    disk = [run["disk_gb"]["store"] + run["disk_gb"]["model"] for run in small]
    return found | {"disk": {"gb": fitted(sizes, disk)}}


def stage_rows(models: Mapping[str, Mapping[str, Model]], core_hour: float) -> list[dict[str, Any]]:
    """What a million nodes and a million edges cost in each step."""
    rows = []
    for title, model in models.items():
        if title == "disk":
            continue
        row: dict[str, Any] = {"stage": title}
        for name, short in zip(MEASURES, ("seconds", "memory", "moved"), strict=True):
            row |= dict(zip((f"{short}_fixed", f"{short}_nodes", f"{short}_edges"), model[name], strict=True))
        row |= {f"money_{end}": 100 * core_hour / 3600 * row[f"seconds_{end}"] for end in ("nodes", "edges")}
        rows.append(row)
    return rows


def check_rows(models: Mapping[str, Mapping[str, Model]], largest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Prediction against outcome at the largest size."""
    n, m, seen, rows = largest["nodes"], largest["edges"], parts_of(largest), []
    for key, title in TITLES.items():
        if title in models and key in seen:
            row: dict[str, Any] = {"stage": title}
            for name, short in zip(MEASURES, ("seconds", "memory", "moved"), strict=True):
                row |= {f"{short}_said": predicted(models[title][name], n, m), f"{short}_was": seen[key][name]}
            rows.append(row)
    total: dict[str, Any] = {"stage": "all"}
    for short, join in (("seconds", sum), ("memory", max), ("moved", sum)):
        total |= {f"{short}_{end}": join([row[f"{short}_{end}"] for row in rows]) for end in ("said", "was")}
    rows.append(total)
    rows.append({"stage": "store and model on disk, GB", "moved_said": predicted(models["disk"]["gb"], n, m)})
    rows[-1]["moved_was"] = largest["disk_gb"]["store"] + largest["disk_gb"]["model"]
    for row in rows:
        for short in ("seconds", "memory", "moved"):
            if row.get(f"{short}_said"):
                row[f"{short}_ratio"] = row[f"{short}_was"] / row[f"{short}_said"]
    return rows


def size_rows(models: Mapping[str, Mapping[str, Model]], core_hour: float, gb_month: float) -> list[dict[str, Any]]:
    """Each step at the sizes in question."""
    rows = []
    for size, (nodes, edges) in SIZES.items():
        some = []
        for title, model in models.items():
            if title != "disk":
                hours = predicted(model["cpu_seconds"], nodes, edges) / 3600
                own = predicted(model["anonymous_gb"], nodes, edges)
                some.append({"size": size, "stage": title, "hours": hours, "memory": own, "money": hours * core_hour})
        disk = predicted(models["disk"]["gb"], nodes, edges)
        total = {"size": size, "stage": "all", "hours": sum(row["hours"] for row in some)}
        total |= {"memory": max(row["memory"] for row in some), "money": sum(row["money"] for row in some)}
        rows += [*some, total, {"size": size, "stage": "store and model", "disk": disk, "money": disk * gb_month}]
    return rows


def crossing(model: Model, limit: float) -> float:
    """How many nodes, with 20 edges each, meet a limit; infinity where none do.

    Examples
    --------
    >>> crossing((1.0, 2.0, 0.1), 9.0), crossing((1.0, 0.0, 0.0), 9.0)
    (2000000.0, inf)
    """
    rise = model[1] + EDGES_PER_NODE * model[2]
    return max(0.0, 1e6 * (limit - model[0]) / rise) if rise > 0 else float("inf")


def limit_rows(models: Mapping[str, Mapping[str, Model]], limits: Mapping[str, float]) -> list[dict[str, Any]]:
    """At how many nodes, with 20 edges each, a limit is met first, and by which step."""

    rows = []
    for name, measure, limit in (
        ("memory of one machine", "anonymous_gb", limits["memory_gb"]),
        ("one day on one core", "cpu_seconds", 86_400.0),
    ):
        by = {title: crossing(model[measure], limit) for title, model in models.items() if title != "disk"}
        for title, nodes in sorted(by.items(), key=lambda pair: pair[1])[:3]:
            knob = next(text for start, text in KNOBS.items() if title.startswith(start))
            rows.append({"limit": f"{name} ({limit:,.0f} {'GB' if measure[0] == 'a' else 's'})", "stage": title})
            rows[-1] |= {"nodes_m": nodes / 1e6 if np.isfinite(nodes) else None, "knob": knob}
    nodes = crossing(models["disk"]["gb"], limits["disk_gb"])
    rows.append({"limit": f"disk ({limits['disk_gb']:,.0f} GB)", "stage": "store and model", "knob": KNOBS["disk"]})
    rows[-1] |= {"nodes_m": nodes / 1e6 if np.isfinite(nodes) else None}
    return rows


COLUMNS = {
    "stages": [
        ["stage", "step", ""],
        ["seconds_fixed", "processor seconds, fixed", ",.1f"],
        ["seconds_nodes", "per million nodes", ".2f"],
        ["seconds_edges", "per million edges", ".3f"],
        ["memory_fixed", "own memory in GB, fixed", ".2f"],
        ["memory_nodes", "per million nodes", ".3f"],
        ["memory_edges", "per million edges", ".4f"],
        ["moved_nodes", "GB moved per million nodes", ".2f"],
        ["moved_edges", "per million edges", ".3f"],
        ["money_nodes", "cents per million nodes", ".3f"],
        ["money_edges", "per million edges", ".4f"],
    ],
    "check": [
        ["stage", "step", ""],
        ["seconds_said", "processor seconds, predicted", ",.0f"],
        ["seconds_was", "measured", ",.0f"],
        ["seconds_ratio", "ratio", ".2f"],
        ["memory_said", "own memory in GB, predicted", ".2f"],
        ["memory_was", "measured", ".2f"],
        ["moved_said", "GB moved, predicted", ".1f"],
        ["moved_was", "measured", ".1f"],
    ],
    "sizes": [
        ["size", "nodes / edges", ""],
        ["stage", "step", ""],
        ["hours", "core hours", ",.1f"],
        ["memory", "own memory, GB", ",.1f"],
        ["disk", "disk, GB", ",.0f"],
        ["money", "dollars", ",.2f"],
    ],
    "limits": [
        ["limit", "limit", ""],
        ["stage", "met by", ""],
        ["nodes_m", "at so many million nodes", ",.0f"],
        ["knob", "what to turn", ""],
    ],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=RESULTS / "beyond_memory.json")
    parser.add_argument("--core-hour", type=float, default=0.05, help="Dollars for one core for an hour.")
    parser.add_argument("--gb-month", type=float, default=0.08, help="Dollars for a gigabyte of disk for a month.")
    parser.add_argument("--memory-gb", type=float, default=64, help="Memory of one machine.")
    parser.add_argument("--disk-gb", type=float, default=2000, help="Disk of one machine.")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    small, largest = chosen(json.loads(asked.runs.read_text(encoding="utf-8"))["runs"])
    models = models_of(small)
    limits = {"memory_gb": asked.memory_gb, "disk_gb": asked.disk_gb}
    tables = {
        "stages": stage_rows(models, asked.core_hour),
        "check": check_rows(models, largest),
        "sizes": size_rows(models, asked.core_hour, asked.gb_month),
        "limits": limit_rows(models, limits),
    }
    payload = {
        "question": "what do a million nodes and a million edges cost, and does that hold at ten times the size?",
        "prices": {"core_hour": asked.core_hour, "gb_month": asked.gb_month},
        "limits": limits,
        "fitted_on": [{"nodes": run["nodes"], "edges": run["edges"], "commit": run["commit"]} for run in small],
        "checked_on": {"nodes": largest["nodes"], "edges": largest["edges"], "commit": largest["commit"]},
        "models": models,
        "tables": {name: {"columns": COLUMNS[name], "rows": rows} for name, rows in tables.items()},
    }
    print(record("costs", payload, asked.output))


if __name__ == "__main__":
    main()
