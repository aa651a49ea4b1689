"""What each step costs by node and by edge, what that makes at other sizes, and whether such a prediction holds.

    python benchmarks/costs.py                       # reads results/beyond_memory.json, writes results/costs.json
    python benchmarks/costs.py --core-hour 0.03      # with your own prices

Processor seconds and bytes moved of each part of each step are taken as ``fixed + a x million nodes + b x million
edges`` with no negative part, fitted so that relative errors are least. Parts that look nodes up in the index compare
them with all its cells and scan a few; how many cells there are, and how large each is, grow as the root of the number
of nodes: they are ``fixed + a x root``. Memory is that of a whole step. ``fit`` and ``predict`` keep arrays of nodes
and never of edges, so theirs is ``fixed + a x million nodes``; what ``--memory`` bounds stays below it.

For the check only runs of at most a tenth of the largest one are used; the largest one then says how far off the
prediction was. Everything else is fitted on all runs. Runs must differ in edges per node, else nodes and edges cannot
be told apart.

Money is processor seconds times the price of a core, whatever number of cores does them. Prices are assumptions, not
measurements.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls

from _common import RESULTS, record

SIZES = {"100 M / 2 B": (100_000_000, 2_000_000_000), "1 B / 100 B": (1_000_000_000, 100_000_000_000)}
EDGES_PER_NODE = 20  # where a limit is met first is looked for along graphs of this density
LEAST = 0.02  # seconds or gigabytes below which a relative error says nothing
PARTS = {
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
LOOK_UPS = (("fit", "measure"), ("predict", "start"))
STEPS = ("ingest", "fit", "predict")
KNOBS = {
    "memory": "--index-memory (shorter codes, measured recall), a machine with more of it",
    "ingest": "--memory (less is slower), several files, a wider disk",
    "fit: F_theta": "--processes or torchrun on more hosts, a GPU; its steps do not grow with the graph",
    "fit: index": "--index-memory (shorter codes, measured recall)",
    "fit": "--processes, a GPU; --max-steps for the networks",
    "predict": "--engine ray with more workers",
    "disk": "--dtype float16; fewer text columns; the tables themselves may go after ingest",
}


class Model(NamedTuple):
    """A cost: fixed, by million nodes, by million edges, by the root of million nodes, and what bounds it."""

    fixed: float
    nodes: float
    edges: float
    root: float = 0.0
    bound: float | None = None

    def at(self, nodes: float, edges: float) -> float:
        """The cost of a graph."""
        million = nodes / 1e6
        cost = self.fixed + self.nodes * million + self.edges * edges / 1e6 + self.root * million**0.5
        return cost if self.bound is None else min(cost, self.bound)

    def crossing(self, limit: float) -> float:
        """How many nodes, with 20 edges each, meet a limit; infinity where none do.

        Examples
        --------
        >>> Model(1.0, 2.0, 0.1).crossing(9.0), Model(1.0, 0.0, 0.0).crossing(9.0)
        (2000000.0, inf)
        """
        if self.bound is not None and self.bound < limit:
            return float("inf")
        rise = self.nodes + EDGES_PER_NODE * self.edges
        if rise > 0:
            return max(0.0, 1e6 * (limit - self.fixed) / rise)
        return 1e6 * (max(0.0, limit - self.fixed) / self.root) ** 2 if self.root > 0 else float("inf")


def fitted(sizes: Sequence[tuple[float, float]], values: Sequence[float], by: str = "nodes and edges") -> Model:
    """The parts, none negative, whose relative errors are least.

    Examples
    --------
    >>> sizes = [(1e6, 2e6), (2e6, 2e6), (2e6, 8e6)]
    >>> [round(part, 6) for part in fitted(sizes, [1 + 3 + 4, 1 + 6 + 4, 1 + 6 + 16])[:3]]
    [1.0, 3.0, 2.0]
    >>> round(fitted([(1e6, 1e6), (4e6, 9e6)], [3.0, 5.0], "root").root, 6)
    2.0
    """
    n, m = (np.array(part, float) / 1e6 for part in zip(*sizes, strict=True))
    y = np.asarray(values, float)
    weight = 1 / np.maximum(y, LEAST)
    columns = {"nodes and edges": {"nodes": n, "edges": m}, "nodes": {"nodes": n}, "root": {"root": np.sqrt(n)}}[by]
    columns = {"fixed": np.ones_like(n)} | columns
    parts, _ = nnls(np.stack(list(columns.values()), axis=1) * weight[:, None], y * weight)
    return Model(**{"fixed": 0.0, "nodes": 0.0, "edges": 0.0} | dict(zip(columns, map(float, parts), strict=True)))


def parts_of(run: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """Processor seconds and gigabytes moved of every part of every step; what comes before the first belongs to it."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for step in run["steps"]:
        for part in step["parts"]:
            key = (step["stage"], part["part"])
            if key not in PARTS and step["stage"] in STEPS:
                key = (step["stage"], next(name for stage, name in PARTS if stage == step["stage"]))
            into = found.setdefault(key, {"cpu_seconds": 0.0, "moved_gb": 0.0})
            into["cpu_seconds"] += part["cpu_seconds"]
            into["moved_gb"] += part["read_gb"] + part["written_gb"]
    return {key: found[key] for key in PARTS if key in found}


def memory_of(run: Mapping[str, Any]) -> dict[str, float]:
    """Own memory of every step: what is not a page of a file."""
    return {step["stage"]: step["anonymous_gb"] for step in run["steps"] if step["stage"] in STEPS}


def disk_of(run: Mapping[str, Any]) -> float:
    return run["disk_gb"]["store"] + run["disk_gb"]["model"]


def gigabytes(text: str) -> float:
    """``"4GB"`` as a number of gigabytes.

    Examples
    --------
    >>> gigabytes("4GB"), gigabytes("500MB")
    (4.0, 0.5)
    """
    return float(text[:-2]) / {"GB": 1.0, "MB": 1e3}[text[-2:].upper()]


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


class Costs:
    """Models of everything, fitted on some runs."""

    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        sizes = [(run["nodes"], run["edges"]) for run in runs]
        parts = [parts_of(run) for run in runs]
        common = [key for key in PARTS if all(key in part for part in parts)]
        self.seconds = {
            key: fitted(
                sizes, [part[key]["cpu_seconds"] for part in parts], "root" if key in LOOK_UPS else "nodes and edges"
            )
            for key in common
        }
        self.moved = {key: fitted(sizes, [part[key]["moved_gb"] for part in parts]) for key in common}
        memory = [memory_of(run) for run in runs]
        self.memory = {
            step: fitted(sizes, [found[step] for found in memory], "nodes and edges" if step == "ingest" else "nodes")
            for step in STEPS
        }
        bound = max(gigabytes(run["settings"]["memory"]) for run in runs)
        self.memory["ingest"] = self.memory["ingest"]._replace(bound=bound)
        self.disk = fitted(sizes, [disk_of(run) for run in runs])

    def stages(self, core_hour: float) -> list[dict[str, Any]]:
        """What a million nodes and a million edges cost in each part; cents of a hundred million."""
        cents = 100 * 100 * core_hour / 3600
        rows = []
        for key, title in PARTS.items():
            if key in self.seconds:
                seconds = self.seconds[key]
                rows.append({"stage": title, "fixed": seconds.fixed, "nodes": seconds.nodes, "edges": seconds.edges})
                rows[-1] |= {"root": seconds.root or None}
                rows[-1] |= {"money_nodes": cents * seconds.nodes, "money_edges": cents * seconds.edges}
        return rows

    def kept(self) -> list[dict[str, Any]]:
        """Memory of each step, what it moves to and from disk, and what stays there."""
        named = {f"own memory of {step}": self.memory[step] for step in STEPS}
        for step in STEPS:
            parts = [model for (stage, _), model in self.moved.items() if stage == step]
            named[f"moved by {step}"] = Model(*(sum(part[i] for part in parts) for i in range(4)))
        named["store and model on disk"] = self.disk
        return [{"what": what, **model._asdict()} for what, model in named.items()]

    def check(self, run: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Prediction against outcome."""
        size, parts, memory = (run["nodes"], run["edges"]), parts_of(run), memory_of(run)
        rows = []
        for key, model in self.seconds.items():
            said, was = model.at(*size), parts[key]["cpu_seconds"]
            rows.append({"what": PARTS[key], "unit": "processor seconds", "said": said, "was": was})
        total = {end: sum(row[end] for row in rows) for end in ("said", "was")}
        rows.append({"what": "all steps", "unit": "processor seconds", **total})
        for step, model in self.memory.items():
            rows.append({"what": f"{step}: own memory", "unit": "GB", "said": model.at(*size), "was": memory[step]})
        said = sum(model.at(*size) for model in self.moved.values())
        rows.append({"what": "all steps: moved to and from disk", "unit": "GB", "said": said})
        rows[-1]["was"] = sum(parts[key]["moved_gb"] for key in self.moved)
        rows.append({"what": "store and model on disk", "unit": "GB", "said": self.disk.at(*size), "was": disk_of(run)})
        return [row | {"ratio": row["was"] / row["said"] if row["said"] else None} for row in rows]

    def sizes(self, core_hour: float, gb_month: float) -> list[dict[str, Any]]:
        """Each step at the sizes in question."""
        rows = []
        for size, (nodes, edges) in SIZES.items():
            hours = dict.fromkeys(STEPS, 0.0)
            for (step, _), model in self.seconds.items():
                hours[step] += model.at(nodes, edges) / 3600
            for step in STEPS:
                own = self.memory[step].at(nodes, edges)
                rows.append({"size": size, "stage": step, "hours": hours[step], "memory": own})
                rows[-1]["money"] = hours[step] * core_hour
            disk = self.disk.at(nodes, edges)
            rows.append({"size": size, "stage": "store and model, a month", "disk": disk, "money": disk * gb_month})
        return rows

    def limits(self, memory_gb: float, disk_gb: float) -> list[dict[str, Any]]:
        """At how many nodes, with 20 edges each, limits are met, and by what."""
        met = [
            (f"memory of one machine ({memory_gb:,.0f} GB)", step, model.crossing(memory_gb))
            for step, model in self.memory.items()
        ]
        met += [("a day on one core", PARTS[key], model.crossing(86_400.0)) for key, model in self.seconds.items()]
        met.append((f"disk of one machine ({disk_gb:,.0f} GB)", "disk", self.disk.crossing(disk_gb)))
        rows = []
        for limit, what, nodes in sorted((one for one in met if np.isfinite(one[2])), key=lambda one: one[2])[:8]:
            about = "memory" if limit.startswith("memory") else what
            knob = next(text for start, text in KNOBS.items() if about.startswith(start))
            title = "store and model" if what == "disk" else what
            rows.append({"limit": limit, "stage": title, "nodes_m": nodes / 1e6, "knob": knob})
        return rows


COLUMNS = {
    "stages": [
        ["stage", "step", ""],
        ["fixed", "processor seconds, fixed", ",.1f"],
        ["nodes", "per million nodes", ".2f"],
        ["edges", "per million edges", ".3f"],
        ["root", "per root of million nodes", ",.1f"],
        ["money_nodes", "cents per 100 M nodes", ".2f"],
        ["money_edges", "per 100 M edges", ".3f"],
    ],
    "kept": [
        ["what", "", ""],
        ["fixed", "GB, fixed", ".2f"],
        ["nodes", "per million nodes", ".3f"],
        ["edges", "per million edges", ".4f"],
        ["bound", "at most", ".1f"],
    ],
    "check": [
        ["what", "", ""],
        ["unit", "unit", ""],
        ["said", "predicted", ",.1f"],
        ["was", "measured", ",.1f"],
        ["ratio", "measured / predicted", ".2f"],
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=RESULTS / "beyond_memory.json")
    parser.add_argument("--core-hour", type=float, default=0.05, help="Dollars for one core for an hour.")
    parser.add_argument("--gb-month", type=float, default=0.08, help="Dollars for a gigabyte of disk for a month.")
    parser.add_argument("--memory-gb", type=float, default=64, help="Memory of one machine.")
    parser.add_argument("--disk-gb", type=float, default=2000, help="Disk of one machine.")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    small, largest = chosen(json.loads(asked.runs.read_text(encoding="utf-8"))["runs"])
    costs = Costs([*small, largest])
    tables = {
        "stages": costs.stages(asked.core_hour),
        "kept": costs.kept(),
        "check": Costs(small).check(largest),
        "sizes": costs.sizes(asked.core_hour, asked.gb_month),
        "limits": costs.limits(asked.memory_gb, asked.disk_gb),
    }
    payload = {
        "question": "what do a million nodes and a million edges cost, and does that hold at ten times the size?",
        "prices": {"core_hour": asked.core_hour, "gb_month": asked.gb_month},
        "limits": {"memory_gb": asked.memory_gb, "disk_gb": asked.disk_gb},
        "predicted_from": [{"nodes": run["nodes"], "edges": run["edges"], "commit": run["commit"]} for run in small],
        "checked_on": {"nodes": largest["nodes"], "edges": largest["edges"], "commit": largest["commit"]},
        "tables": {name: {"columns": COLUMNS[name], "rows": rows} for name, rows in tables.items()},
    }
    print(record("costs", payload, asked.output))


if __name__ == "__main__":
    main()
