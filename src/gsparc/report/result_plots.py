"""Plots of the results page: one small panel a data set, so that they find room on a phone and on paper."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from gsparc.report.plots import _INK, _figure, _label, _svg
from gsparc.report.result_files import Figure, ResultTable
from gsparc.report.result_words import dataset_title, number
from gsparc.report.style import BASELINE, CLASS_COLOURS, OURS

__all__ = ["bar_panel", "curve_panel", "dot_panel", "key_of_lines", "line_panel", "panels"]

_WIDTH = 3.05  # inches: about the width of a panel on the page, so that text keeps its size
_MARKS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"), ("X", "✖"), ("*", "★"))
_DASHES = ("--", "-.", ":")
_PALE = 0.45


def panels(svgs: Sequence[str], caption: str, key: str = "") -> str:
    """Panels side by side as room allows, under one caption."""
    shown = [svg for svg in svgs if svg]
    if not shown:
        return ""
    body = "".join(f"<div>{svg}</div>" for svg in shown)
    return f'<figure>{key}<div class="panels">{body}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _identifier(*parts: str) -> str:
    return "-".join(re.sub(r"\W+", "", part) for part in parts if part)


def _title(table: ResultTable, dataset: str) -> str:
    return dataset_title(dataset) + (" (generated)" if table.generated(dataset) else "")


def _methods(table: ResultTable, dataset: str, setting: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """The methods with at least one figure or paper's figure among these measures."""
    found = []
    for method in table.methods:
        row = table.rows.get((dataset, setting, method["label"]))
        if row and any(name in row.figures or name in row.paper for name in names):
            found.append(method)
    return found


def _rows_axes(labels: Sequence[str], per_row: float = 0.25) -> tuple[Any, Any]:
    """Axes with one method a line, the first on top."""
    figure, (axes,) = _figure(_WIDTH, 0.75 + per_row * len(labels))
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.spines["left"].set_visible(False)
    return figure, axes


def _name_rows(figure: Any, axes: Any, title: str, metrics: Sequence[dict[str, Any]]) -> None:
    """Title over the whole width; a measure's full name is in the caption, where it has the room."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, color=_INK)
    _label(axes, x="%" if all("%" in metric["title"] for metric in metrics) else "")


def _paper_mark(axes: Any, value: float, place: float) -> None:
    axes.plot(
        [value], [place], "D", markersize=4.2, markerfacecolor="none", markeredgecolor=BASELINE, mew=1.3, zorder=4
    )


def dot_panel(table: ResultTable, dataset: str, setting: str, metric: dict[str, Any]) -> str:
    """A dot for the mean, a line for the spread, a hollow diamond for the paper's figure; empty without figures."""
    methods = _methods(table, dataset, setting, [metric["name"]])
    if not methods:
        return ""
    figure, axes = _rows_axes([method["label"] for method in methods])
    axes.grid(axis="x", color=BASELINE, alpha=0.25, linewidth=0.7)
    floor, words = _floor(table, dataset, setting, metric["name"]), []
    for place, method in enumerate(methods):
        row = table.rows[dataset, setting, method["label"]]
        published = row.paper.get(metric["name"])
        if published is not None:
            _paper_mark(axes, published, place)
        if metric["name"] in row.figures:
            value = row.figures[metric["name"]]
            _dot(axes, value, place, OURS if method["ours"] else BASELINE, floor)
            words.append(f"{method['label']} {number(value.mean)}")
    _name_rows(figure, axes, _title(table, dataset), [metric])
    name = _identifier("dots", table.name, dataset, setting, metric["name"])
    return _svg(figure, name, f"{_title(table, dataset)}, {metric['title']}: {', '.join(words)}.")


def _floor(table: ResultTable, dataset: str, setting: str, metric: str) -> float:
    """Where the axis of a dot plot begins: one method far behind must not crowd all others together."""
    rows = [row for (name, place, _), row in table.rows.items() if (name, place) == (dataset, setting)]
    means = np.array([row.figures[metric].mean for row in rows if metric in row.figures])
    low, high = np.quantile(means, [0.25, 0.75]) if len(means) > 3 else (-np.inf, -np.inf)
    fence = low - 2.5 * max(high - low, 1.0)
    if not len(means) or not means.min() < fence:
        return -np.inf
    shown = np.array([*means[means >= fence], *(row.paper[metric] for row in rows if metric in row.paper)])
    return float(shown.min() - 0.12 * np.ptp(shown))


def _dot(axes: Any, value: Figure, place: float, colour: str, floor: float) -> None:
    """A mean with its spread; one that lies off the axis is written at its edge."""
    if value.mean < floor:
        axes.plot([floor], [place], marker="<", color=colour, markersize=5)
        axes.annotate(
            number(value.mean), (floor, place), (6, 0), textcoords="offset points", va="center", fontsize=8, color=_INK
        )
        return
    spread = value.spread or 0.0
    ends = [max(value.mean - spread, floor), value.mean + spread]
    axes.plot(ends, [place, place], color=colour, linewidth=1.6, alpha=0.6)
    axes.plot([value.mean], [place], "o", color=colour, markersize=5.5, zorder=3)


def bar_panel(table: ResultTable, dataset: str, setting: str, metrics: Sequence[dict[str, Any]]) -> str:
    """A bar a method and measure, the first one full and the others pale, with the spread and the paper's figure."""
    names = [metric["name"] for metric in metrics]
    methods = _methods(table, dataset, setting, names)
    if not methods:
        return ""
    figure, axes = _rows_axes([method["label"] for method in methods], per_row=0.14 + 0.17 * len(names))
    height, words = 0.8 / len(names), []
    for place, method in enumerate(methods):
        row = table.rows[dataset, setting, method["label"]]
        for index, metric in enumerate(metrics):
            at, name = place - 0.4 + height * (index + 0.5), metric["name"]
            if name in row.figures:
                value, colour = row.figures[name], OURS if method["ours"] else BASELINE
                axes.barh(
                    at, value.mean, height=0.86 * height, color=colour, alpha=_PALE if index else 1.0, linewidth=0
                )
                if value.spread is not None:
                    ends = [value.mean - value.spread, value.mean + value.spread]
                    axes.plot(ends, [at, at], color=_INK, linewidth=1.1)
                words.append(f"{method['label']} {metric['title']} {number(value.mean)}")
            elif row.reason or row.figures:
                axes.annotate(
                    "✗ no figure", (0, at), (3, 0), textcoords="offset points", va="center", fontsize=7.5, color=_INK
                )
            if name in row.paper:
                _paper_mark(axes, row.paper[name], at)
    axes.set_xlim(left=0)
    _name_rows(figure, axes, _title(table, dataset), metrics)
    return _svg(
        figure, _identifier("bars", table.name, dataset, setting), f"{_title(table, dataset)}: {', '.join(words)}."
    )


def _looks(table: ResultTable) -> dict[str, dict[str, Any]]:
    """Colour, mark and dash of each method, the same in all panels of a table; ours are thick and whole."""
    others = iter(range(1, 1000))
    mine = iter((0, 4, 9, 8))
    looks = {}
    for place, method in enumerate(table.methods):
        index = next(mine, 0) if method["ours"] else next(others)
        index = index if method["ours"] else (1, 2, 3, 5, 6, 7)[(index - 1) % 6]
        looks[method["label"]] = {
            "color": CLASS_COLOURS[index],
            "marker": _MARKS[place % len(_MARKS)][0],
            "linestyle": "-" if method["ours"] else _DASHES[place % len(_DASHES)],
            "linewidth": 2.2 if method["ours"] else 1.3,
        }
    return looks


def key_of_lines(table: ResultTable) -> str:
    """The legend of line plots as text, outside of the panels."""
    items = ""
    for place, method in enumerate(table.methods):
        colour = _looks(table)[method["label"]]["color"]
        sign = _MARKS[place % len(_MARKS)][1]
        name = escape(method["label"])
        items += f'<li><span style="color:{colour}" aria-hidden="true">{sign}</span> '
        items += f"<b>{name}</b> (ours)</li>" if method["ours"] else f"{name}</li>"
    return f'<ul class="key" aria-label="Methods in the plots">{items}</ul>'


def line_panel(table: ResultTable, dataset: str, metric: dict[str, Any], axis: str) -> str:
    """Means against a number, with the spread as a band around ours and the paper's figures as diamonds."""
    figure, (axes,) = _figure(_WIDTH, 2.75)
    looks, words = _looks(table), []
    for method in table.methods:
        points = table.series(dataset, method["label"], metric["name"], axis)
        if not points:
            continue
        x, mean = [point[0] for point in points], np.array([point[1].mean for point in points])
        spread = np.array([point[1].spread or 0.0 for point in points])
        look = looks[method["label"]]
        axes.plot(x, mean, markersize=4, zorder=3 if method["ours"] else 2, **look)
        axes.fill_between(
            x, mean - spread, mean + spread, color=look["color"], alpha=0.16 if method["ours"] else 0.07, linewidth=0
        )
        for place, value in points:
            if value.paper is not None:
                _paper_mark(axes, value.paper, place)
        words.append(f"{method['label']} from {number(mean[0])} at {x[0]:g} to {number(mean[-1])} at {x[-1]:g}")
    if not words:
        return ""
    axes.grid(axis="y", color=BASELINE, alpha=0.25, linewidth=0.7)
    _label(axes, title=_title(table, dataset), x=axis, y=metric["title"])
    name = _identifier("lines", table.name, dataset, axis)
    return _svg(figure, name, f"{_title(table, dataset)}, {metric['title']} against {axis}: {', '.join(words)}.")


def curve_panel(table: ResultTable, dataset: str, setting: str, *, y: str, x: str, x_title: str, y_title: str) -> str:
    """Mean curves of training, against the curve ``x`` or, where ``x`` is empty, against the number of the entry."""
    figure, (axes,) = _figure(_WIDTH, 2.75)
    looks, words = _looks(table), []
    for method in table.methods:
        row = table.rows.get((dataset, setting, method["label"]))
        values = row.curves.get(y, {}).get("mean") if row else None
        places = row.curves.get(x, {}).get("mean") if row and x else None
        if not values or (x and not places):
            continue
        where = places or list(range(1, len(values) + 1))
        count = min(len(where), len(values))
        look = {key: value for key, value in looks[method["label"]].items() if key != "marker"}
        shown = looks[method["label"]]["marker"]
        every = max(1, count // 8)
        axes.plot(where[:count], values[:count], marker=shown, markersize=4, markevery=every, **look)
        words.append(f"{method['label']} ends at {number(values[count - 1])}")
    if not words:
        return ""
    axes.grid(axis="y", color=BASELINE, alpha=0.25, linewidth=0.7)
    _label(axes, title=_title(table, dataset), x=x_title, y=y_title)
    if "%" in y_title:
        axes.set_ylim(top=min(axes.get_ylim()[1], 101.0))
    name = _identifier("curves", table.name, dataset, setting, x or "entry")
    return _svg(figure, name, f"{_title(table, dataset)}, {y_title} against {x_title}: {', '.join(words)}.")
