"""What the results page says in words: names, verdicts and explanations, all figures taken from the results."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gsparc.report.result_files import Comparison, ResultTable

__all__ = [
    "EXPLANATIONS",
    "compare_words",
    "dataset_title",
    "date_words",
    "explanation",
    "group_title",
    "leak_words",
    "listed",
    "missing_words",
    "note_for",
    "number",
    "outcome_words",
    "reason_for",
    "seconds_words",
    "setting_title",
    "signed",
    "trend_words",
]

EXPLANATIONS = Path(__file__).with_name("explanations.json")
"""What is known about each table beforehand."""

_DATASETS = {
    "cora": "Cora",
    "citeseer": "Citeseer",
    "pubmed": "Pubmed",
    "amazon_photo": "Photo",
    "amazon_computers": "Computers",
    "coauthor_cs": "Coauthor-CS",
    "cora_ml": "Cora-ML",
    "actor": "Actor",
    "debian": "Debian",
    "reddit": "Reddit",
    "amazon2m": "Amazon2M",
    "generated": "Small graph",
}
_SETTINGS = {
    "paper": "paper's split (3 % cold)",
    "dense": "all labels, 20 % cold",
    "few": "few labels (20 a class)",
    "tenth": "a tenth of the labels",
}


def dataset_title(name: str) -> str:
    """A data set as it is printed.

    Examples
    --------
    >>> dataset_title("amazon_photo"), dataset_title("mine")
    ('Photo', 'mine')
    """
    return _DATASETS.get(name, name)


def setting_title(table: ResultTable, setting: str) -> str:
    """A split, a protocol or a point of the axis as it is printed; empty where a table has no settings."""
    if not setting:
        return ""
    point = table.axis(setting)
    names = _SETTINGS | explanation(table.name).get("settings", {})
    return f"{point[0]} {point[1]:g}" if point else names.get(setting, setting)


def group_title(table: ResultTable, dataset: str, setting: str) -> str:
    """Data set and setting in one phrase."""
    return ", ".join(part for part in (dataset_title(dataset), setting_title(table, setting)) if part)


@lru_cache(maxsize=1)
def _explanations() -> dict[str, Any]:
    return json.loads(EXPLANATIONS.read_text(encoding="utf-8"))


def explanation(name: str) -> dict[str, Any]:
    """What is known about a table beforehand: its place in the paper, why it comes out as it does, its plot."""
    return _explanations().get(name, {})


def note_for(name: str, dataset: str, setting: str) -> str:
    """The remark on one group of a table, or nothing."""
    notes = explanation(name).get("notes", {})
    return notes.get(f"{dataset} | {setting}", notes.get(dataset, ""))


def number(value: float, digits: int = 1) -> str:
    """A figure with its digits, never '-0.0', large ones with separators.

    Examples
    --------
    >>> number(78.856), number(-0.01), number(12345.6)
    ('78.9', '0.0', '12,345.6')
    """
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign, which is a minus sign and not a hyphen; digits are added until it is not zero.

    Examples
    --------
    >>> signed(2.44), signed(-2.44), signed(-0.0096), signed(0.0)
    ('+2.4', '−2.4', '−0.01', '+0.0')
    """
    return f"{round(value, _digits(value, digits)) + 0.0:+,.{_digits(value, digits)}f}".replace("-", "−")


def _digits(value: float, digits: int) -> int:
    """As many as show that a value is not zero: whether an interval reaches it must be seen."""
    return next((count for count in range(digits, digits + 4) if round(value, count)), digits)


def _size(value: float) -> str:
    """A difference without its sign."""
    return number(abs(value), _digits(value, 1))


def _unit(metric: dict[str, Any], amount: str) -> str:
    if "%" not in metric["title"]:
        return ""
    return " point" if amount == "1.0" else " points"


def compare_words(table: ResultTable, found: Comparison, *, counted: bool = True) -> str:
    """One sentence on our best method against a baseline of a group; losses are said as such if they are counted."""
    made_up = table.generated(found.dataset)
    where = f"On {group_title(table, found.dataset, found.setting)}" + (" (a generated graph)" if made_up else "")
    metric = next(m for m in table.metrics if m["name"] == found.metric)
    if "%" not in metric["title"] or metric["better"] == "lower" or metric != table.metrics[0]:
        title = metric["title"].partition(" (")[0].removesuffix(", %")
        where += f", by {title}" + (" (less is better)" if metric["better"] == "lower" else "")
    amount = _size(found.mean)
    unit = _unit(metric, amount)
    above = found.mean > 0
    if found.low is None or found.high is None:
        return (
            f"{where}, {found.ours} differs from {found.baseline} by {signed(found.mean)}{unit}; "
            "one seed cannot say whether that is chance."
        )
    edges = sorted((found.low, found.high) if above else (-found.low, -found.high))
    interval = f"95 % interval {_size(edges[0])} to {_size(edges[1])}"
    if found.low == found.high == 0:
        return f"{where}, {found.ours} and {found.baseline} are level, seed by seed."
    closing = _closing(found, made_up, counted)
    if found.verdict == "even":
        return (
            f"{where}, {found.ours} and {found.baseline} do not differ clearly: {signed(found.mean)}{unit}, "
            f"95 % interval {signed(found.low)} to {signed(found.high)}."
        )
    side = "above" if above else "below"
    if found.verdict == "loss":
        side = "below" if above else "above"
        return f"{where}, {found.baseline} came out {amount}{unit} {side} {found.ours} ({interval}){closing}"
    return f"{where}, {found.ours} came out {amount}{unit} {side} {found.baseline} ({interval}){closing}"


def _closing(found: Comparison, made_up: bool, counted: bool) -> str:
    """How a sentence on a win or a loss ends."""
    if made_up:
        return "; not counted."
    return f": {'we win' if found.verdict == 'win' else 'we lose'} here." if counted else "."


def trend_words(table: ResultTable, dataset: str, axis: str) -> list[str]:
    """Where along an axis each of our methods is best and worst."""
    metric, sentences = table.metrics[0], []
    for method in table.methods:
        if not method.get("ours"):
            continue
        points = table.series(dataset, method["label"], metric["name"], axis)
        if len(points) < 2:
            continue
        by_mean = sorted(points, key=lambda point: point[1].mean)
        worst, best = (by_mean[0], by_mean[-1]) if metric["better"] == "higher" else (by_mean[-1], by_mean[0])
        sentences.append(
            f"On {dataset_title(dataset)}, {method['label']} is best at {axis} {best[0]:g} "
            f"({number(best[1].mean)}) and worst at {axis} {worst[0]:g} ({number(worst[1].mean)})."
        )
    return sentences


def reason_for(table: ResultTable, dataset: str, setting: str, method: str, metric: dict[str, Any]) -> str:
    """Why a cell holds no figure."""
    row = table.rows.get((dataset, setting, method))
    if row is None:
        return "not run"
    if row.reason or not row.figures:
        return row.reason or "not run"
    cold = next(m for m in table.methods if m["label"] == method).get("cold", "")
    return row.reasons.get(metric["name"]) or missing_words(metric, cold)


def missing_words(metric: dict[str, Any], cold: str) -> str:
    """Why a method that has other figures has none by this measure; ``cold``: what it does without edges.

    Examples
    --------
    >>> missing_words({"name": "cold", "title": "cold accuracy, %"}, "not applicable: needs edges")
    'not applicable: needs edges'
    """
    asks_cold = "cold" in f"{metric['name']} {metric['title']}".lower()
    return cold if asks_cold and cold.startswith("not applicable") else "no run gave this figure"


def date_words(stamp: str) -> str:
    """A time stamp for people; anything else as it is.

    Examples
    --------
    >>> date_words("2026-11-15T15:00:09+00:00"), date_words("yesterday")
    ('2026-11-15 15:00 UTC', 'yesterday')
    """
    try:
        moment = datetime.datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    zone = " UTC" if moment.utcoffset() == datetime.timedelta(0) else ""
    return f"{moment:%Y-%m-%d %H:%M}{zone}"


def outcome_words(groups: Sequence[tuple[str, str]]) -> str:
    """Groups in few words, settings gathered behind their data set.

    Examples
    --------
    >>> outcome_words([("cora", "few"), ("pubmed", ""), ("cora", "dense")])
    'Cora (few, dense), Pubmed'
    """
    gathered: dict[str, list[str]] = {}
    for dataset, setting in groups:
        gathered.setdefault(dataset_title(dataset), []).extend([setting] if setting else [])
    return ", ".join(name + (f" ({', '.join(settings)})" if settings else "") for name, settings in gathered.items())


def seconds_words(seconds: float) -> str:
    """A duration for people.

    Examples
    --------
    >>> seconds_words(12.3), seconds_words(754), seconds_words(8000)
    ('12 s', '13 min', '2.2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listed(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


def leak_words(audit: dict[str, Any]) -> tuple[str, list[str]]:
    """Whether the leak test passed ("win" or "loss"), and what is to be said about it."""
    rows, controls = audit["rows"], audit.get("controls") or []
    differ = [f"{row.get('estimator')} ({row.get('change')})" for row in rows if not row.get("identical")]
    deaf = [str(control.get("estimator")) for control in controls if not control.get("noticed")]
    lines = []
    if differ:
        lines.append(
            f"Cold nodes reached a fitted model in {len(differ)} of {len(rows)} cases: {listed(differ)}. "
            "The results above cannot be trusted until that is mended."
        )
    elif rows:
        lines.append(f"In all {len(rows)} cases the fitted model is the same, byte for byte.")
    else:
        lines.append("The audit's file holds no case: nothing has been tested.")
    if deaf:
        lines.append(f"The control failed: a change to a seen node left the model of {listed(deaf)} as it was.")
    elif controls:
        lines.append(f"Control: a change to one seen node did change the model, for all {len(controls)} estimators.")
    if audit.get("smoke"):
        lines.append("This was a smoke run, with models too small to mean much.")
    facts = [
        f"{key.replace('_', ' ')}: {audit[key]}" for key in ("dataset", "seen_nodes", "cold_nodes") if key in audit
    ]
    facts += [f"made {date_words(str(audit['created']))}"] if audit.get("created") else []
    facts += [f"commit {audit['commit']}"] if audit.get("commit") else []
    if facts:
        lines.append(f"({'; '.join(facts)})")
    return "loss" if differ or deaf or not rows else "win", lines
