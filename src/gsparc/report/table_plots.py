"""Plots of the page of a table model: calibration, and what first edges are worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gsparc.report.plots import _INK, _figure, _label, _svg
from gsparc.report.style import BASELINE, OURS

__all__ = ["plot_first_edges", "plot_reliability"]


def plot_reliability(curves: Sequence[dict[str, Any]]) -> str:
    """How often a method is right where it is so sure; on the dashed line when its word can be taken.

    Examples
    --------
    >>> bins = [{"confidence": 0.5, "accuracy": 0.4, "rows": 10}]
    >>> plot_reliability([{"method": "gsparc", "ours": True, "bins": bins}]).count("<svg")
    1
    """
    figure, (axes,) = _figure(5.2, 3.6)
    axes.plot([0, 100], [0, 100], linestyle="--", color=_INK, alpha=0.4, linewidth=1.0)
    for curve in curves:
        bins = curve["bins"]
        colour = OURS if curve["ours"] else BASELINE
        x, y = [100 * b["confidence"] for b in bins], [100 * b["accuracy"] for b in bins]
        axes.plot(x, y, color=colour, linewidth=1.8, label=curve["method"])
        most = max((b["rows"] for b in bins), default=1)
        axes.scatter(x, y, s=[12 + 60 * b["rows"] / most for b in bins], color=colour, zorder=3)
    axes.legend(frameon=False, fontsize=9, labelcolor=_INK, loc="upper left")
    _label(axes, x="confidence, %", y="right, %")
    words = "; ".join(f"{curve['method']}, {len(curve['bins'])} steps of confidence" for curve in curves)
    return _svg(figure, "reliability", f"Confidence against accuracy: {words}.")


def plot_first_edges(figures: Sequence[dict[str, Any]]) -> str:
    """Accuracy as edges arrive, with 95 % intervals.

    Examples
    --------
    >>> plot_first_edges([{"edges": 0, "accuracy": 0.7, "interval": [0.6, 0.8]}]).count("<svg")
    1
    """
    figure, (axes,) = _figure(5.2, 3.6)
    place = list(range(len(figures)))
    value = [100 * line["accuracy"] for line in figures]
    for x, line in zip(place, figures, strict=True):
        if None not in line["interval"]:
            axes.plot([x, x], [100 * edge for edge in line["interval"]], color=OURS, alpha=0.5, linewidth=2.0)
    axes.plot(place, value, "o-", color=OURS, linewidth=1.8, markersize=5)
    for x, y in zip(place, value, strict=True):
        # below and beside the dot: above it are the line, which rises, and the interval
        axes.annotate(f"{y:.1f}", (x, y), (6, -13), textcoords="offset points", ha="left", fontsize=9, color=_INK)
    axes.set_xticks(place, [str(line["edges"]) for line in figures])
    axes.margins(x=0.12, y=0.25)
    _label(axes, x="known edges of a row, at most", y="right, %")
    words = ", ".join(f"{line['edges']}: {100 * line['accuracy']:.1f} %" for line in figures)
    return _svg(figure, "firstedges", f"Accuracy by the number of known edges: {words}.")
