"""Result files as the page reads them: checked, in the order of the file, compared group by group."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gsparc.exceptions import InputError

__all__ = ["AUDIT", "Comparison", "Figure", "ResultTable", "Row", "read_results", "result_paths"]

AUDIT = "audit"
_KEYS = ("experiment", "title", "question", "methods", "metrics", "rows")
_SOURCE = ("versions", "hardware", "other_hardware", "commit", "created")
_REPAIR = "Remove the file and run its table again."
_OTHERS = (
    "If it is none of gsparc's, move it out of the folder or choose another one; otherwise remove it and run its table "
    "again."
)
_POINT = re.compile(r"(?:(?P<name>[^\d=]*[^\d=\s:])\s*[=:\s]\s*)?(?P<value>-?\d+(?:\.\d+)?)")
Group = tuple[str, str]
Verdict = Literal["win", "even", "loss", "unknown"]


@dataclass(frozen=True)
class Figure:
    """One figure of a table: a mean over seeds."""

    mean: float
    spread: float | None
    seeds: int
    paper: float | None
    difference: dict[str, Any] | None
    against: dict[str, Any] | None = None  # the difference to the method that the table's question names


@dataclass(frozen=True)
class Row:
    """A method on a data set in a setting."""

    figures: dict[str, Figure]
    paper: dict[str, float]
    curves: dict[str, dict[str, Any]]
    reason: str | None
    reasons: dict[str, str]  # of single figures
    generated: bool
    failed: int


@dataclass(frozen=True)
class Comparison:
    """Our best method of a group against its best baseline, or a named one, by one measure, seed by seed.

    ``mean`` is ours minus theirs; ``low`` and ``high`` bound its 95 % interval and are None with one seed.
    """

    dataset: str
    setting: str
    metric: str
    ours: str
    baseline: str
    mean: float
    low: float | None
    high: float | None
    better: str

    @property
    def verdict(self) -> Verdict:
        """'win' or 'loss' where the whole interval lies on one side of zero."""
        if self.low is None or self.high is None:
            return "unknown"
        low, high = self.low, self.high
        if self.better == "lower":
            low, high = -high, -low
        return "win" if low > 0 else "loss" if high < 0 else "even"


@dataclass(frozen=True)
class ResultTable:
    """One result file."""

    name: str
    title: str
    question: str
    methods: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    rows: dict[tuple[str, str, str], Row]
    x_axis: str | None = None
    source: dict[str, Any] = field(default_factory=dict)  # versions, hardware, commit, created
    seconds: float = 0.0
    devices: tuple[str, ...] = ()
    commits: dict[str, int] = field(default_factory=dict)  # that cells were made at, and how many
    smoke: bool = False

    @property
    def datasets(self) -> list[str]:
        """Data sets in the order of the file."""
        return list(dict.fromkeys(dataset for dataset, _, _ in self.rows))

    @property
    def settings(self) -> list[str]:
        """Settings in the order of the file."""
        return list(dict.fromkeys(setting for _, setting, _ in self.rows))

    @property
    def groups(self) -> list[Group]:
        """Pairs of data set and setting that share their splits."""
        return list(dict.fromkeys((dataset, setting) for dataset, setting, _ in self.rows))

    @property
    def seeds(self) -> int:
        """The most seeds behind any figure."""
        return max((figure.seeds for row in self.rows.values() for figure in row.figures.values()), default=0)

    def axis(self, setting: str) -> tuple[str, float] | None:
        """What a setting measures and its value, where it is a point of an axis: "0.3", "alpha=0.3", "alpha 0.3"."""
        found = _POINT.fullmatch(setting)
        if found is None or not (self.x_axis or "=" in setting):
            return None
        name = found["name"] or self.x_axis
        return (name, float(found["value"])) if name else None

    @property
    def axes(self) -> dict[str, list[str]]:
        """Settings by the axis they lie on, in rising order; empty for a table that is no plot against a number."""
        found: dict[str, list[str]] = {}
        for setting in self.settings:
            if point := self.axis(setting):
                found.setdefault(point[0], []).append(setting)
        return {name: sorted(places, key=lambda place: self.axis(place) or ()) for name, places in found.items()}

    def series(self, dataset: str, method: str, metric: str, axis: str) -> list[tuple[float, Figure]]:
        """The figures of a method along an axis."""
        return [
            (point[1], figure)
            for setting in self.axes.get(axis, [])
            if (point := self.axis(setting)) and (figure := self.figure(dataset, setting, method, metric))
        ]

    @property
    def failed(self) -> int:
        """Runs that ended in an error."""
        return sum(row.failed for row in self.rows.values())

    def generated(self, dataset: str) -> bool:
        """Whether a data set was made up at the size of the real one."""
        return any(row.generated for (name, _, _), row in self.rows.items() if name == dataset)

    def figure(self, dataset: str, setting: str, method: str, metric: str) -> Figure | None:
        """One figure, None where there is none."""
        row = self.rows.get((dataset, setting, method))
        return row.figures.get(metric) if row else None

    def best(self, dataset: str, setting: str, metric: dict[str, Any]) -> set[str]:
        """The methods with the best mean of a group; several where they are printed alike, none without a rival."""
        means = {
            method["label"]: round(figure.mean, 1)
            for method in self.methods
            if metric["name"] not in method.get("no_rival_by", ())
            and (figure := self.figure(dataset, setting, method["label"], metric["name"]))
        }
        if len(means) < 2:
            return set()
        top = max(means.values()) if metric["better"] == "higher" else min(means.values())
        return {label for label, mean in means.items() if mean == top}

    def compare(self, dataset: str, setting: str, metric: dict[str, Any]) -> Comparison | None:
        """Our best mean against the best baseline's; None without one of ours or without a baseline."""
        label, figure = self._our_best(dataset, setting, metric)
        return self._comparison(dataset, setting, metric, label, figure and figure.difference)

    def compare_named(self, dataset: str, setting: str, metric: dict[str, Any]) -> Comparison | None:
        """The same against the method that the table's question names; None where it names none."""
        label, figure = self._our_best(dataset, setting, metric)
        return self._comparison(dataset, setting, metric, label, figure and figure.against)

    def _our_best(self, dataset: str, setting: str, metric: dict[str, Any]) -> tuple[str, Figure | None]:
        sign = 1 if metric["better"] == "higher" else -1
        ours = [
            (figure, method["label"])
            for method in self.methods
            if method.get("ours") and (figure := self.figure(dataset, setting, method["label"], metric["name"]))
        ]
        figure, label = max(ours, key=lambda pair: sign * pair[0].mean, default=(None, ""))
        return label, figure

    def _comparison(
        self, dataset: str, setting: str, metric: dict[str, Any], label: str, gap: dict[str, Any] | None
    ) -> Comparison | None:
        if not gap:
            return None
        low, high = gap.get("low"), gap.get("high")
        return Comparison(
            dataset, setting, metric["name"], label, gap["to"], gap["mean"], low, high, better=metric["better"]
        )

    def comparisons_of(self, method: str) -> list[Comparison]:
        """One of our methods against the best baseline of every group, by the headline; made-up graphs left out."""
        metric = self.metrics[0]
        found = (
            self._comparison(*group, metric, method, figure.difference)
            for group in self.groups
            if not self.generated(group[0]) and (figure := self.figure(*group, method, metric["name"]))
        )
        return [comparison for comparison in found if comparison]

    def losses(self, metric: dict[str, Any]) -> list[Comparison]:
        """The groups in which we lose by a measure; made-up graphs left out."""
        return [found for found in self.comparisons(metric) if found.verdict == "loss"]

    def comparisons(self, metric: dict[str, Any] | None = None) -> list[Comparison]:
        """All groups by one measure, the headline unless told otherwise; made-up graphs left out."""
        chosen = metric or self.metrics[0]
        found = (self.compare(*group, chosen) for group in self.groups if not self.generated(group[0]))
        return [comparison for comparison in found if comparison]


def result_paths(folder: Path) -> list[Path]:
    """The result files of a folder; hidden ones are what a run that was killed had begun to write."""
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))


def read_results(folder: Path) -> tuple[dict[str, ResultTable], dict[str, Any] | None]:
    """All tables of a folder by name, and the audit's record where there is one.

    Raises
    ------
    InputError
        The folder is missing or holds no result, or a file in it cannot be understood; the file is named.
    """
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}. Run `gsparc reproduce all` first, or name the folder it wrote.")
    tables, audit = {}, None
    for path in result_paths(folder):
        record = _load(path)
        if record["experiment"] == AUDIT:
            audit = record
        else:
            table = _table(record, path)
            tables[table.name] = table
    if not tables and audit is None:
        raise InputError(f"{folder} holds no result file (*.json). Run `gsparc reproduce all` first.")
    return tables, audit


def _load(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}). {_OTHERS}") from error
    if not isinstance(record, dict) or not isinstance(record.get("experiment"), str):
        raise InputError(f"{path} is JSON but not a result file: it names no experiment. {_OTHERS}")
    if record["experiment"] == AUDIT and not isinstance(record.get("rows"), list):
        raise InputError(f"{path} is not a complete result file: 'rows' is missing. {_REPAIR}")
    return record


def _table(record: dict[str, Any], path: Path) -> ResultTable:
    missing = [key for key in _KEYS if key not in record]
    if missing or not record["metrics"]:
        raise InputError(f"{path} is not a complete result file: {missing or ['metrics']} missing. {_REPAIR}")
    cells, last = record.get("cells", {}), record.get("commit") or "unknown"
    try:
        return ResultTable(
            name=record["experiment"],
            title=record["title"],
            question=record["question"],
            methods=[{"label": m["label"], "ours": bool(m.get("ours")), **m} for m in record["methods"]],
            metrics=[{"better": "higher", **m, "name": m["name"], "title": m["title"]} for m in record["metrics"]],
            rows={(row["dataset"], row["setting"], row["method"]): _row(row) for row in record["rows"]},
            x_axis=record.get("x_axis"),
            source={key: record.get(key) for key in _SOURCE},
            seconds=sum(float(cell.get("seconds") or 0.0) for cell in cells.values()),
            smoke=bool(record.get("smoke")),
            commits=dict(Counter(str(cell.get("commit") or last) for cell in cells.values()).most_common()),
            devices=tuple(sorted({str(cell["device"]) for cell in cells.values() if cell.get("device")})),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} does not have the form of a result file ({error!r}). {_REPAIR}") from error


def _row(row: dict[str, Any]) -> Row:
    figures, paper = {}, {}
    for name, entry in (row.get("metrics") or {}).items():
        if entry.get("paper") is not None:
            paper[name] = float(entry["paper"])
        if entry.get("mean") is not None:
            figures[name] = Figure(
                mean=float(entry["mean"]),
                spread=None if entry.get("spread") is None else float(entry["spread"]),
                seeds=int(entry.get("seeds") or 0),
                paper=paper.get(name),
                difference=entry.get("difference"),
                against=entry.get("against"),
            )
    return Row(
        figures=figures,
        paper=paper,
        curves=row.get("curves") or {},
        reason=row.get("reason"),
        reasons={name: str(m["reason"]) for name, m in (row.get("metrics") or {}).items() if m.get("reason")},
        generated=bool(row.get("generated")),
        failed=int(row.get("failed") or 0),
    )
