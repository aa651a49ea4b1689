"""Plots as SVG text that follows the colours of the page around it.

Text and axes are drawn in a stand-in colour which becomes ``currentColor``; crowded points become one
embedded bitmap with a clear background. No window system and no global setting of matplotlib is used.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from gsparc._optional import import_optional
from gsparc.report.style import BASELINE, CLASS_COLOURS, OTHER, OURS

__all__ = ["plot_bars", "plot_history", "plot_map", "plot_spectrum"]

_INK = "#010203"  # replaced by currentColor
_TOP = len(CLASS_COLOURS)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure and its axes with the page's look; pyplot, which keeps global state, is not involved."""
    figures = import_optional("matplotlib.figure", extra="report", purpose="the HTML report")
    figure = figures.Figure(figsize=(width, height), layout="constrained")
    figure.patch.set_alpha(0.0)
    grid = figure.subplots(1, columns, squeeze=False)[0]
    for axes in grid:
        axes.patch.set_alpha(0.0)
        axes.tick_params(colors=_INK, labelsize=9)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(_INK)
            spine.set_alpha(0.4)
    return figure, list(grid)


def _svg(figure: Any, name: str, alt: str) -> str:
    """Inline SVG: no prologue, no outside names, ids that no other figure of the page has."""
    import html

    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream = io.StringIO()
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.family": ["sans-serif"]}),
        warnings.catch_warnings(),
    ):
        # letters that matplotlib's own font lacks: it only measures with it, the browser's fonts draw them
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"(\sid=\"|href=\"#|url\(#)", rf"\1{name}-", text)
    text = text.replace(_INK, "currentColor")
    label = html.escape(alt, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).strip()


def _label(axes: Any, *, title: str = "", x: str = "", y: str = "") -> None:
    axes.set_title(title, fontsize=10.5, color=_INK, loc="left")
    axes.set_xlabel(x, fontsize=9.5, color=_INK)
    axes.set_ylabel(y, fontsize=9.5, color=_INK)


def plot_map(
    known: Any,
    new: Any,
    known_class: Sequence[int],
    new_class: Sequence[int],
    class_names: Sequence[str],
    *,
    nodes: str = "nodes",
) -> str:
    """Two panels in the same coordinates: known nodes by class, and new ones over them.

    Parameters
    ----------
    known, new : arrays of shape (n, 2) and (m, 2)
    known_class, new_class : int sequences
        Class of each point, -1 for none.
    class_names : sequence of str
    nodes : str
        What nodes are called.

    Examples
    --------
    >>> plot_map([[0, 0], [1, 1]], [[0, 1]], [0, 1], [-1], ["a", "b"]).startswith("<svg role")
    True
    """
    known, new = np.reshape(np.asarray(known, float), (-1, 2)), np.reshape(np.asarray(new, float), (-1, 2))
    label, fresh = np.asarray(known_class, np.int64), np.asarray(new_class, np.int64)
    colour = _colours(np.concatenate([label, fresh]), len(class_names))
    figure, (left, right) = _figure(10.4, 5.1, columns=2)
    size = float(np.clip(18000 / max(len(known), 1), 4.5, 22.0))
    _scatter(left, known, colour[: len(known)], size)
    _scatter(right, known, np.full(len(known), OTHER), size, alpha=0.22)
    _scatter(right, new, colour[len(known) :], size * 1.6, alpha=0.95)
    _label(left, title=f"known {nodes}")
    _label(right, title=f"new {nodes}, placed by their features alone")
    for axes in (left, right):
        axes.set_xlim(left.get_xlim())
        axes.set_ylim(left.get_ylim())
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_visible(False)
    _legend(figure, np.concatenate([label, fresh]), class_names)
    alt = f"Map of {len(known)} known and {len(new)} new {nodes}, coloured by class."
    return _svg(figure, "map", alt)


def _scatter(axes: Any, points: Any, colours: Any, size: float, alpha: float = 0.75) -> None:
    order = np.argsort(np.asarray(colours) != OTHER, kind="stable")  # named classes above the rest
    axes.scatter(
        points[order, 0],
        points[order, 1],
        s=size,
        c=colours[order],
        alpha=alpha,
        linewidths=0,
        rasterized=True,
    )


def _ranking(label: Any, count: int) -> Any:
    """Classes from the most frequent on; at most ten get a colour of their own."""
    frequency = np.bincount(label[label >= 0], minlength=max(count, 1))
    order = np.argsort(-frequency, kind="stable")
    return order[frequency[order] > 0][:_TOP]


def _colours(label: Any, count: int) -> Any:
    palette = np.full(max(count, int(label.max(initial=0)) + 1) + 1, OTHER, dtype="<U7")  # last one: class -1
    for colour, kind in zip(CLASS_COLOURS, _ranking(label, count), strict=False):
        palette[kind] = colour
    return palette[label]


def _legend(figure: Any, label: Any, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    top = _ranking(label, len(names))
    entries = [(str(names[kind]), colour) for kind, colour in zip(top, CLASS_COLOURS, strict=False)]
    if np.setdiff1d(label, top).size:
        entries.append(("other" if len(top) else "no class", OTHER))
    marks = [Line2D([], [], marker="o", linestyle="", color=c, markersize=6, label=n) for n, c in entries]
    figure.legend(handles=marks, loc="outside lower center", ncols=6, frameon=False, fontsize=9, labelcolor=_INK)


def plot_spectrum(eigenvalues: Sequence[float]) -> str:
    """Eigenvalues of the Laplacian, from the smoothest component on.

    Examples
    --------
    >>> "eigenvalues" in plot_spectrum([0.1, 0.4])
    True
    """
    values = np.asarray(eigenvalues, float)
    figure, (axes,) = _figure(5.2, 3.1)
    where = np.arange(1, len(values) + 1)
    axes.vlines(where, 0, values, color=OURS, alpha=0.35, linewidth=1.4)
    axes.plot(where, values, "o", color=OURS, markersize=3.2)
    axes.set_ylim(0, max(1.0, float(values.max(initial=0)) * 1.05))
    _label(axes, x="component", y="eigenvalue")
    return _svg(figure, "spectrum", f"The first {len(values)} eigenvalues, rising to {values.max(initial=0):.2f}.")


def plot_history(history: Sequence[dict[str, Any]]) -> str:
    """The training loss and the score on held-out seen nodes, each on its own axis.

    Examples
    --------
    >>> plot_history([{"step": 10, "loss": 2.0, "score": 0.1}]).count("<svg")
    1
    """
    figure, (loss, score) = _figure(5.2, 3.1, columns=2)
    for axes, key, title in (
        (loss, "loss", "training loss"),
        (score, "score", "score on held-out nodes"),
    ):
        points = [(line["step"], line[key]) for line in history if line.get(key) is not None]
        if points:
            steps, values = zip(*points, strict=True)
            axes.plot(steps, values, color=OURS if key == "score" else BASELINE, linewidth=1.8)
            if key == "score":
                best = int(np.argmax(values))
                axes.plot([steps[best]], [values[best]], "o", color=OURS, markersize=5)
        _label(axes, title=title, x="step")
        axes.title.set_fontsize(9)
        axes.locator_params(nbins=4)
    return _svg(figure, "history", f"Training curve over {len(history)} evaluations.")


def plot_bars(rows: Sequence[dict[str, Any]], key: str, title: str, *, percent: bool = False) -> str:
    """Horizontal bars, ours in colour, with the 95 % interval where a row has ``<key>_interval``.

    Examples
    --------
    >>> plot_bars([{"method": "ours", "ours": True, "mrr": 0.3}], "mrr", "MRR").count("<svg")
    1
    """
    figure, (axes,) = _figure(5.2, 0.62 + 0.42 * len(rows))
    scale = 100.0 if percent else 1.0
    top = 0.0
    for place, row in enumerate(reversed(rows)):
        value = (row[key] or 0.0) * scale
        axes.barh(place, value, height=0.62, color=OURS if row.get("ours") else BASELINE)
        interval = row.get(f"{key}_interval")
        end = value
        if interval and None not in interval:
            low, high = (scale * edge for edge in interval)
            axes.plot([low, high], [place, place], color=_INK, linewidth=1.3, solid_capstyle="butt")
            end = max(value, high)
        text = f"{value:.1f} %" if percent else f"{value:.3f}"
        axes.annotate(text, (end, place), (5, 0), textcoords="offset points", va="center", fontsize=9, color=_INK)
        top = max(top, end)
    axes.set_yticks(range(len(rows)), [row["method"] for row in reversed(rows)])
    axes.set_xlim(0, top * 1.2 or 1.0)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _label(axes, title=title)
    words = ", ".join(f"{row['method']} {(row[key] or 0.0) * scale:.3g}" for row in rows)
    return _svg(figure, re.sub(r"\W+", "", f"bars{key}"), f"{title}: {words}.")
