"""The page of a table model: does the graph help on this data, and can its word be taken?"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from gsparc.report.html import document, section
from gsparc.report.page import _figure, _table
from gsparc.report.plots import plot_bars, plot_map
from gsparc.report.style import STYLE
from gsparc.report.table_plots import plot_first_edges, plot_reliability

__all__ = ["render_table_page"]

Record = dict[str, Any]


def render_table_page(
    record: Record, *, name: str, roles: Sequence[tuple[str, str]] = (), drawn: Record | None = None
) -> str:
    """The whole page as text.

    Parameters
    ----------
    record : dict
        ``TableModel.report``.
    name : str
        What the data is called.
    roles : pairs of column and role
    drawn : dict, optional
        Points of the map: ``known`` and ``new`` places, ``known_class``, ``new_class`` numbers, ``class_names``.
    """
    parts = [
        _head(record, name),
        _classes(record),
        _confidence(record),
        _links(record),
        _clusters(record),
        _map(drawn),
        _columns(roles, record),
        _method(record),
    ]
    return document(f"gsparc: {name}", STYLE, "<main>\n" + "\n".join(part for part in parts if part) + "\n</main>")


def _head(record: Record, name: str) -> str:
    data, split = record["data"], record["split"]
    facts = [
        (f"{data['nodes']:,}", "nodes"),
        (f"{data['edges']:,}", "edges"),
        (f"{data['features']:,}", "features"),
        (f"{split['cold']:,}", "rows that pretended to be new"),
        (f"{record['seconds']['total']:.0f} s", "for the fit"),
    ]
    items = "".join(f"<li><b>{escape(value)}</b>{escape(label)}</li>" for value, label in facts)
    first, *rest = record["summary"]
    verdict = f"<p><b>{escape(first)}</b></p>" + "".join(f"<p>{escape(line)}</p>" for line in rest)
    return (
        f'<header><h1>{escape(name)}: does the graph help?</h1><ul class="facts">{items}</ul></header>\n'
        f'<section class="verdict" aria-label="Result">{verdict}</section>'
    )


def _classes(record: Record) -> str:
    rows = record["classification"]
    if not rows:
        return ""
    columns = [("accuracy", "accuracy", True), ("macro_f1", "macro-F1", True), ("ece", "calibration", True)]
    text = (
        f"{record['split']['cold_labelled']:,} rows without edges whose class is known. Calibration: the gap between "
        "confidence and accuracy, less is better."
    )
    left = _table(rows, columns, text) + _gains(record["gains"]["accuracy"], 100, 1, "points of accuracy")
    bars = _figure(
        plot_bars(rows, "accuracy", "accuracy", percent=True), "The line is the 95 % interval over the rows."
    )
    return section("classes", "Classes", f'<div class="pair"><div>{left}</div>{bars}</div>')


def _gains(gains: list[Record], scale: float, digits: int, unit: str) -> str:
    """Paired differences with their intervals."""
    lines = []
    for gain in gains:
        if gain["mean"] is None or gain["low"] is None:
            continue
        mean, low, high = (scale * gain[key] for key in ("mean", "low", "high"))
        lines.append(
            f"<li>over {escape(gain['over'])}: {mean:+.{digits}f} {escape(unit)} "
            f"(95 % interval {low:+.{digits}f} to {high:+.{digits}f})</li>"
        )
    return f"<p>gsparc, on the same rows:</p><ul>{''.join(lines)}</ul>" if lines else ""


def _confidence(record: Record) -> str:
    covered, figures = record.get("coverage"), record.get("first_edges")
    panels = []
    if record.get("reliability"):
        caption = "How often a prediction is right where it is so sure; each dot is a tenth of the rows."
        panels.append(_figure(plot_reliability(record["reliability"]), caption))
    if figures:
        caption = (
            "The same rows with 0 to 8 of their edges to known nodes: what is known counts beside what is inferred."
        )
        panels.append(_figure(plot_first_edges(figures), caption))
    if not covered and not panels:
        return ""
    text = ""
    if covered:
        low, high = (100 * edge for edge in covered["interval"])
        text = (
            f"<p>Prediction sets that promise {100 * covered['promised']:.0f} % hold the true class for "
            f"{100 * covered['measured']:.1f} % of {covered['rows']:,} rows (95 % interval {low:.1f} to {high:.1f}). "
            f"They have {covered['mean_size']:.1f} classes on average; {100 * covered['one_class']:.0f} % have one. "
            f"{100 * covered['far']:.1f} % of the rows are so far from all that is known that the model abstains. "
            "Each half of the rows was judged by sets that the other half had sized.</p>"
        )
    return section("confidence", "Can its word be taken?", f'{text}<div class="pair">{"".join(panels)}</div>')


def _links(record: Record) -> str:
    rows = record["links"]
    if not rows:
        return ""
    columns = [("mrr", "MRR", False), ("mrr_edges", "MRR by edge", False), ("hits@10", "hits@10", True)]
    split = record["split"]
    text = (
        f"{split['cold_ranked']:,} rows with at least one true link to a known row, each ranked against all "
        f"{split['seen']:,} of them."
    )
    left = _table(rows, columns, text) + _gains(record["gains"]["mrr"], 1, 3, "MRR")
    svg = plot_bars(rows, "mrr", "mean reciprocal rank of the best true link")
    bars = _figure(svg, "The line is the 95 % interval over the rows.")
    return section("links", "Links", f'<div class="pair"><div>{left}</div>{bars}</div>')


def _clusters(record: Record) -> str:
    found = record.get("clusters")
    if not found:
        return ""
    sizes = ", ".join(f"{size:,}" for size in sorted(found["sizes"], reverse=True))
    return section("clusters", "Clusters", f"<p>{found['count']} clusters, of {escape(sizes)} rows.</p>")


def _map(drawn: Record | None) -> str:
    if not drawn or not len(drawn["known"]):
        return ""
    svg = plot_map(drawn["known"], drawn["new"], drawn["known_class"], drawn["new_class"], drawn["class_names"])
    caption = (
        f"Left: {len(drawn['known']):,} of the rows that the fit saw, placed by their coordinates in the graph's "
        f"eigenspace. Right: {len(drawn['new']):,} of those that were held out, in colour over them."
    )
    return section("map", "The map", _figure(svg, caption))


def _columns(roles: Sequence[tuple[str, str]], record: Record) -> str:
    rows = "".join(f'<tr><th scope="row">{escape(n)}</th><td>{escape(r)}</td></tr>' for n, r in roles)
    table = (
        '<div class="scroll"><table class="words"><caption>How each column was used.</caption><thead><tr>'
        f'<th scope="col">column</th><th scope="col">role</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in record["notes"])
    return section("data", "The tables", (table if rows else "") + (f"<ul>{notes}</ul>" if notes else ""))


def _settings(chosen: Record) -> str:
    """Those that were chosen, in words.

    Examples
    --------
    >>> _settings({"tasks": ("classes", "links"), "n_clusters": None, "seed": 0})
    'tasks classes and links, seed 0'
    """
    said = {name: " and ".join(value) if isinstance(value, (list, tuple)) else value for name, value in chosen.items()}
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in said.items() if value is not None)


def _method(record: Record) -> str:
    split, seconds = record["split"], record["seconds"]
    times = ", ".join(f"{name.replace('_', ' ')} {value:.1f} s" for name, value in seconds.items())
    lines = [
        f"{split['seen']:,} rows and the edges among them were fitted on. {split['validation']:,} without edges "
        f"decided when to stop and how networks are weighed, {split['cold']:,} were measured on: nothing was fitted to "
        "them. All methods used the same rows. Afterwards all rows joined the model with their edges, without "
        "retraining. One split says little about another: repeat with other seeds before comparing small differences.",
        f"Settings: {_settings(record['settings'])}.",
        f"Time: {times}. Made {record['created']} by gsparc {record.get('version', '')}.",
        record.get("classifier") or "",
    ]
    body = "".join(f'<p class="soft">{escape(line)}</p>' for line in lines if line)
    return f"<details open><summary>How this was measured</summary>{body}</details>"
