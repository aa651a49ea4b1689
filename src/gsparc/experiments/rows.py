"""From cells to the rows of a table: means, spreads, and differences to a baseline, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from gsparc.experiments.engine import Cell, Experiment, Metric
from gsparc.metrics import paired_difference

__all__ = ["NOT_RUN", "group_order", "group_rows"]

NOT_RUN = "not run"
Cells = Mapping[str, Mapping[str, Any]]
Record = dict[str, Any]


def group_order(experiment: Experiment, groups: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of data set and setting in the order of the table: the default data sets first, settings as declared."""
    known = dict.fromkeys(groups)
    ordered = []
    for dataset in dict.fromkeys((*experiment.datasets, *(name for name, _ in known))):
        found = [setting for name, setting in known if name == dataset]
        offered = [setting for setting in experiment.settings(dataset) if setting in found] if found else []
        ordered += [(dataset, setting) for setting in dict.fromkeys((*offered, *found))]
    return ordered


def group_rows(experiment: Experiment, dataset: str, setting: str, cells: Cells) -> list[Record]:
    """One row for every method of the table on one data set in one setting; each has figures or a reason.

    Parameters
    ----------
    experiment : Experiment
        The table.
    dataset, setting : str
        Which of its groups.
    cells : mapping
        Keys to what a result file holds for them; others than this group's are left aside.
    """
    runs: dict[str, dict[int, Mapping[str, Any]]] = {method.label: {} for method in experiment.methods}
    for key, record in cells.items():
        cell = Cell.from_key(key)
        if (cell.dataset, cell.setting) == (dataset, setting) and cell.method in runs:
            runs[cell.method][cell.seed] = record
    values = {m.name: {label: _values(runs[label], m.name) for label in runs} for m in experiment.metrics}
    best = {metric.name: _best_baseline(experiment, metric, values[metric.name]) for metric in experiment.metrics}
    named = {metric.name: _named_rival(experiment, metric) for metric in experiment.metrics}
    rows = []
    for method in experiment.methods:
        label = method.label
        paper = experiment.paper.get((dataset, setting, label), {})
        seconds = [run["seconds"] for run in runs[label].values() if "numbers" in run and "seconds" in run]
        row: Record = {"dataset": dataset, "setting": setting, "method": label, "ours": method.ours}
        row["generated"] = any(run.get("generated") for run in runs[label].values())
        row["seconds"] = float(np.mean(seconds)) if seconds else None
        row["reason"] = _reason(experiment, dataset, setting, label, runs[label])
        row["failed"] = sum("error" in run for run in runs[label].values())
        row["metrics"] = {
            name: _summary(values[name][label])
            | {"paper": paper.get(name), "difference": _difference(label, best[name], values[name])}
            | ({"against": _difference(label, named[name], values[name])} if experiment.against else {})
            | {"reason": None if values[name][label] else _reason_of(runs[label], name)}
            for name in values
        }
        row["curves"] = _curves(runs[label])
        rows.append(row)
    return rows


def _number(value: Any) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable else None


def _values(runs: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, float]:
    """Seed to number, where there is one."""
    found = {seed: _number(runs[seed].get("numbers", {}).get(name)) for seed in sorted(runs)}
    return {seed: value for seed, value in found.items() if value is not None}


def _reason_of(runs: Mapping[int, Mapping[str, Any]], name: str) -> str | None:
    """What a cell says of a figure that it cannot give."""
    found = (run.get("numbers", {}).get("reasons", {}).get(name) for run in runs.values())
    return next((sentence for sentence in found if sentence), None)


def _summary(values: Mapping[int, float]) -> Record:
    numbers = np.array(list(values.values()), np.float64)
    return {
        "mean": float(numbers.mean()) if len(numbers) else None,
        "spread": float(numbers.std(ddof=1)) if len(numbers) > 1 else None,
        "seeds": len(numbers),
    }


def _best_baseline(experiment: Experiment, metric: Metric, values: Mapping[str, Mapping[int, float]]) -> str | None:
    """The baseline with the best mean; of equal ones the first in the table."""
    rivals = [method for method in experiment.methods if not method.ours and metric.name not in method.no_rival_by]
    labels = [method.label for method in rivals if values[method.label]]
    sign = 1 if metric.better == "higher" else -1
    return max(labels, key=lambda label: sign * float(np.mean(list(values[label].values()))), default=None)


def _named_rival(experiment: Experiment, metric: Metric) -> str | None:
    """The method that the question names, except by a measure by which it does well by construction."""
    label = experiment.against
    return None if label is None or metric.name in experiment.method(label).no_rival_by else label


def _difference(label: str, other: str | None, values: Mapping[str, Mapping[int, float]]) -> Record | None:
    if other is None or other == label:
        return None
    seeds = sorted(values[label].keys() & values[other].keys())
    if not seeds:
        return None
    found = paired_difference([values[label][s] for s in seeds], [values[other][s] for s in seeds])
    mean, low, high = (_number(part) for part in found)  # the bounds of a single seed are NaN
    return {"to": other, "mean": mean, "low": low, "high": high, "seeds": len(seeds)}


def _curves(runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Record]:
    """Lists of numbers averaged point by point, up to where the shortest ends."""
    columns: dict[str, list[list[float]]] = {}
    for seed in sorted(runs):
        for name, value in runs[seed].get("numbers", {}).items():
            if isinstance(value, list) and value and all(_number(item) is not None for item in value):
                columns.setdefault(name, []).append([float(item) for item in value])
    curves = {}
    for name, lists in columns.items():
        shortest = min(map(len, lists))
        table = np.array([line[:shortest] for line in lists])
        spread = table.std(axis=0, ddof=1).tolist() if len(table) > 1 else None
        curves[name] = {"mean": table.mean(axis=0).tolist(), "spread": spread, "seeds": len(table)}
    return curves


def _reason(
    experiment: Experiment, dataset: str, setting: str, label: str, runs: Mapping[int, Mapping[str, Any]]
) -> str | None:
    """What to print where there is no figure; None where there is one."""
    if any("numbers" in run for run in runs.values()):
        return None
    for key, words in (("not_applicable", "{}"), ("error", "failed: {}")):
        sentence = next((run[key] for run in runs.values() if key in run), None)
        if sentence is not None:
            return words.format(sentence)
    return experiment.skip(dataset, setting, label) or NOT_RUN
