"""One HTML page from the record of a demo run: no script, no outside request, light and dark."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import Any

from gsparc._files import write_text
from gsparc.report.plots import plot_bars, plot_history, plot_map, plot_spectrum
from gsparc.report.style import STYLE

__all__ = ["render_page", "write_page"]

Record = dict[str, Any]


def write_page(record: Record, path: str | os.PathLike[str]) -> Path:
    """Render ``record`` and write it; the file appears under its name only when it is complete."""
    return write_text(Path(path), render_page(record), "the report")


def render_page(record: Record) -> str:
    """The whole page as text.

    Parameters
    ----------
    record : dict
        What :func:`gsparc.experiments.run_demo` leaves in ``result.json``.
    """
    data, words = record["dataset"], record["words"]
    parts = [
        _head(record),
        _map(record),
        _classification(record),
        _links(record),
        _examples(record),
        _training(record),
        _method(record),
    ]
    title = f"gsparc: new {words['nodes']} in {data['name']}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _head(record: Record) -> str:
    data, split, words = record["dataset"], record["split"], record["words"]
    facts = [
        (f"{split['seen']:,}", f"known {words['nodes']}"),
        (f"{split['cold']:,}", f"new {words['nodes']}, without {words['links']}"),
        (f"{data['edges']:,}", f"{words['links']} in the whole graph"),
        (f"{data['features']:,}", "features"),
        (f"{record['seconds']['total']:.0f} s", "for everything here"),
    ]
    items = "".join(f"<li><b>{escape(value)}</b>{escape(name)}</li>" for value, name in facts)
    verdict = "".join(f"<p>{escape(sentence)}</p>" for sentence in record["summary"])
    return (
        f"<header><h1>What a graph knows about {escape(words['nodes'])} that are not in it yet</h1>"
        f'<p class="soft">Data set <b>{escape(data["name"])}</b>: '
        f"{escape(data['description'] or 'no description')}.</p>"
        f'<ul class="facts">{items}</ul></header>\n'
        f'<section class="verdict" aria-label="Result">{verdict}</section>'
    )


def _figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _map(record: Record) -> str:
    drawn, words = record.get("map"), record["words"]
    if not drawn:
        return ""
    svg = plot_map(
        drawn["known"],
        drawn["new"],
        drawn["known_class"],
        drawn["new_class"],
        drawn["class_names"],
        nodes=words["nodes"],
    )
    caption = (
        f"{drawn['how']} Left: a sample of {len(drawn['known']):,} known {words['nodes']}. Right: "
        f"{len(drawn['new']):,} new ones in colour over the known ones in grey. A new point takes the colour "
        f"of its true {words['class']}, which nothing in the fit has seen."
    )
    return f"<section><h2>The map</h2>{_figure(svg, caption)}</section>"


def _number(value: float | None, percent: bool) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f} %" if percent else f"{value:.3f}"


def _table(rows: list[Record], columns: list[tuple[str, str, bool]], caption: str) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("method", *(c[1] for c in columns)))
    body = ""
    for row in rows:
        cells = "".join(f"<td>{_number(row[key], percent)}</td>" for key, _, percent in columns)
        kind = ' class="ours"' if row.get("ours") else ""
        body += f'<tr{kind}><th scope="row">{escape(row["method"])}</th>{cells}</tr>'
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _classification(record: Record) -> str:
    rows, words = record["classification"], record["words"]
    if not rows:
        return ""
    columns = [
        ("accuracy", "accuracy", True),
        ("macro_f1", "macro-F1", True),
        ("ece", "calibration", True),
    ]
    count = f"{record['split']['cold_labelled']:,}"
    text = (
        f"{count} new {words['nodes']} whose {words['class']} is known. "
        "Calibration: the gap between confidence and accuracy, less is better."
    )
    table = _table(rows, columns, text)
    svg = plot_bars(rows, "accuracy", "accuracy", percent=True)
    bars = _figure(svg, f"The line is the 95 % interval over the new {words['nodes']} of this split.")
    return (
        f'<section><h2>Which {escape(words["class"])}?</h2><div class="pair"><div>{table}</div>{bars}</div></section>'
    )


def _links(record: Record) -> str:
    rows, words = record["links"], record["words"]
    columns = [("mrr", "MRR", False), ("mrr_edges", "MRR by edge", False), ("hits@10", "hits@10", True)]
    count = f"{record['split']['cold_ranked']:,}"
    table = _table(
        rows,
        columns,
        f"{count} new {words['nodes']} with at least one true link, each ranked against all "
        f"{record['split']['seen']:,} known ones.",
    )
    svg = plot_bars(rows, "mrr", "mean reciprocal rank of the best true link")
    bars = _figure(svg, f"The line is the 95 % interval over the new {words['nodes']} of this split.")
    return (
        f'<section><h2>Which {escape(words["links"])}?</h2><div class="pair"><div>{table}</div>{bars}</div></section>'
    )


def _examples(record: Record) -> str:
    cards = "".join(_card(example, record["words"]) for example in record["examples"])
    if not cards:
        return ""
    words = record["words"]
    text = (
        f"Chosen by a rule, not by hand: one that went well, a typical one and a mistake, among new "
        f"{words['nodes']} with at least {record['examples_rule']['min_links']} true links to known ones."
    )
    return (
        f"<section><h2>Three new {escape(words['nodes'])}</h2>"
        f'<p class="soft">{escape(text)}</p><div class="cards">{cards}</div></section>'
    )


def _card(example: Record, words: Record) -> str:
    text = f'<article class="card"><div class="tag">{escape(example["tag"])}</div>'
    text += f"<h3>{escape(example['id'])}</h3>"
    text += f'<p class="soft">{escape(example["why"])}</p>'
    if example["predicted"]:
        first = example["predicted"][0]
        mark = "yes" if example["correct"] else "no"
        verdict = "✓ right" if example["correct"] else f"✗ it is {example['true']}"
        rest = ", ".join(f"{p['class']} {100 * p['probability']:.0f} %" for p in example["predicted"][1:])
        text += (
            f"<h4>{escape(words['class'])}</h4><div><b>{escape(first['class'])}</b> "
            f'{100 * first["probability"]:.0f} % <span class="{mark}">{escape(verdict)}</span></div>'
            f'<div class="soft">then {escape(rest)}</div>'
        )
    links = "".join(
        f"<li>{escape(s['id'])}"
        + (' <span class="yes" role="img" aria-label="true">✓</span>' if s["true"] else "")
        + "</li>"
        for s in example["suggested"]
    )
    text += (
        f"<h4>suggested {escape(words['links'])}: {example['found']} of {len(example['suggested'])} true (✓), "
        f"{example['links']} exist</h4><ol>{links}</ol>"
    )
    if example["nearest"]:
        near = "".join(
            f"<li>{escape(n['id'])}"
            + (f' <span class="soft">{escape(n["class"])}</span>' if n["class"] else "")
            + "</li>"
            for n in example["nearest"]
        )
        text += f"<h4>nearest known {escape(words['nodes'])}</h4><ul>{near}</ul>"
    return text + "</article>"


def _training(record: Record) -> str:
    spectrum = record["spectrum"]
    left = _figure(
        plot_spectrum(spectrum["eigenvalues"]),
        "Eigenvalues of the learned components. Near 0: a component that hardly changes along links; "
        "near 1: one that has nothing to do with them.",
    )
    right = ""
    if record["history"]:
        right = _figure(
            plot_history(record["history"]),
            "Training stops when the score on held-out known nodes no longer rises; the dot was kept.",
        )
    return f'<section><h2>The spectral map</h2><div class="pair">{left}{right}</div></section>'


def _method(record: Record) -> str:
    split, words, seconds = record["split"], record["words"], record["seconds"]
    grouped = f" {words['nodes'].capitalize()} of one group stay on one side." if split["grouped"] else ""
    times = ", ".join(f"{name.replace('_', ' ')} {value:.1f} s" for name, value in seconds.items())
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items())
    lines = [
        f"Split '{split['name']}', seed {record['seed']}: {split['seen']:,} known, {split['validation']:,} "
        f"set aside, {split['cold']:,} new.{grouped} Everything was fitted on the known {words['nodes']} and "
        "the links among them; all methods used the same split in this one run. One split says little about "
        "another: repeat with other seeds before comparing small differences.",
        f"Time: {times}, on {record['machine']['cpus']} cores ({record['machine']['device']}).",
        f"Versions: {versions}. Made {record['created']}" + (", with --quick." if record["quick"] else "."),
        f"Source of the data: {record['dataset']['source'] or 'files of the user'}.",
    ]
    body = "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)
    return f"<details open><summary>How this was measured</summary>{body}</details>"
