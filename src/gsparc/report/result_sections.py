"""One section of the results page: what a table asks, what came out, why, the figures, and how they were made."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from gsparc.report.html import section
from gsparc.report.result_files import ResultTable
from gsparc.report.result_plots import bar_panel, curve_panel, dot_panel, key_of_lines, line_panel, panels
from gsparc.report.result_tables import VERDICTS, Column, figures_table
from gsparc.report.result_words import (
    compare_words,
    dataset_title,
    date_words,
    explanation,
    group_title,
    listed,
    note_for,
    seconds_words,
    setting_title,
    trend_words,
)

__all__ = ["MARKS", "sentence_list", "table_section"]

_SMALL = "generated"  # the data set of a smoke run, of which nobody expects the size of another
MARKS = {"win": "▲", "even": "●", "loss": "▼", "unknown": "?"}


def sentence_list(sentences: Sequence[tuple[str, str]], *, head: str = "") -> str:
    """Sentences under each other, each marked by its kind; ``head`` stands before every one."""
    first = f"<b>{escape(head)}</b>: " if head else ""
    items = "".join(f'<li class="{kind}">{first}{escape(text)}</li>' for kind, text in sentences)
    return f'<ul class="sentences">{items}</ul>' if items else ""


def table_section(table: ResultTable) -> str:
    """Everything that the page says about one table."""
    known = explanation(table.name)
    origin = f"In the paper: {known['paper']}. " if "paper" in known else ""
    body = (
        f'<p class="question">{escape(table.question)}</p>'
        f'<p class="soft">{escape(origin)}Made by <code>gsparc reproduce {escape(table.name)}</code>.</p>'
        f"{_warnings(table)}{_outcome(table)}{_why(table, known)}{_left_out(known)}"
        f"{_headline(table)}{_plots(table, known)}{_other_measures(table)}{_origin(table)}"
    )
    return section(f"table-{table.name}", table.title.rstrip("."), body)


def _warnings(table: ResultTable) -> str:
    lines = []
    if table.smoke:
        lines.append("This is a smoke run: it shows that the command works, and its figures mean nothing.")
    made_up = [dataset_title(name) for name in table.datasets if table.generated(name) and name != _SMALL]
    if made_up:
        lines.append(
            f"{listed(made_up)}: a generated graph, as large as the data set of that name. It shows that everything "
            "runs at this size, and in which time; no accuracy is claimed."
        )
    if table.failed:
        lines.append(f"{table.failed} run(s) ended in an error; the cells concerned say so.")
    return "".join(f'<p class="warning">{escape(line)}</p>' for line in lines)


def _outcome(table: ResultTable) -> str:
    """Losses in full, the rest a click away, and the course along an axis."""
    text = ""
    said = [(found.verdict, compare_words(table, found)) for found in table.comparisons()]
    for kind in ("loss", "unknown", "even", "win"):
        mine = [pair for pair in said if pair[0] == kind]
        if not mine:
            continue
        if kind == "loss" or len(mine) <= 4:
            text += sentence_list(mine)
        else:
            head = _capital(f"{VERDICTS[kind]}: {len(mine)} of {len(said)} groups")
            text += f"<details class='more-figures'><summary>{escape(head)}</summary>{sentence_list(mine)}</details>"
    if not said:
        text += "<p>No group of this table compares one of our methods with a baseline on a real data set.</p>"
    text += _other_losses(table)
    trends = [("note", line) for line in (*_named_words(table), *_made_up_words(table))]
    trends += [
        ("note", line)
        for axis in table.axes
        for dataset in table.datasets
        if not table.generated(dataset)
        for line in trend_words(table, dataset, axis)
    ]
    return f"<h3>What came out</h3>{text}{sentence_list(trends)}"


def _other_losses(table: ResultTable) -> str:
    """Losses by measures other than the headline, which the summary does not count, a click away."""
    said = [compare_words(table, found) for metric in table.metrics[1:] for found in table.losses(metric)]
    if not said or table.smoke:
        return ""
    compared = sum(len(table.comparisons(metric)) for metric in table.metrics[1:])
    head = f"By other measures than the first we lose {len(said)} of {compared} comparisons"
    items = sentence_list([("loss", line) for line in said])
    return f"<details class='more-figures'><summary>{escape(head)}</summary>{items}</details>"


def _named_words(table: ResultTable) -> list[str]:
    """Comparisons on real graphs with the method that the question names, where that is not the best baseline."""
    metric = table.metrics[0]
    real = [group for group in table.groups if not table.generated(group[0])]
    found = ((table.compare_named(*group, metric), table.compare(*group, metric)) for group in real)
    return [compare_words(table, gap, counted=False) for gap, best in found if gap and gap != best]


def _made_up_words(table: ResultTable) -> list[str]:
    """Comparisons on generated graphs: not of accuracies, which would claim something about real data."""
    metric = table.metrics[0]
    if table.smoke or "%" in metric["title"]:
        return []
    made_up = [group for group in table.groups if table.generated(group[0])]
    found = [(table.compare_named(*group, metric), table.compare(*group, metric)) for group in made_up]
    return [compare_words(table, gap) for pair in found for gap in dict.fromkeys(pair) if gap]


def _left_out(known: dict[str, Any]) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in known.get("left_out", []))
    return f"<h3>What of the paper is not here</h3>{lines}" if lines else ""


def _why(table: ResultTable, known: dict[str, Any]) -> str:
    if table.smoke:
        return ""
    lines = list(known.get("why", []))
    if any(table.losses(metric) for metric in table.metrics) and "loss" in known:
        lines.append(known["loss"])
    for dataset, setting in table.groups:
        if note := note_for(table.name, dataset, setting):
            lines.append(f"{group_title(table, dataset, setting)}: {note}")
    if not lines:
        return ""
    return "<h3>Why</h3>" + "".join(f"<p>{escape(line)}</p>" for line in dict.fromkeys(lines))


def _layouts(table: ResultTable) -> list[tuple[str, list[Column], bool]]:
    """Title, columns and whether they are settings: a table an axis and data set, or else a table a setting."""
    found = []
    for axis, settings in table.axes.items():
        for dataset in table.datasets:
            columns = [(dataset, setting) for setting in settings if (dataset, setting) in table.groups]
            if columns:
                found.append((f"{dataset_title(dataset)}, against {axis}", columns, True))
    for setting in table.settings:
        if table.axis(setting) is None:
            columns = [(dataset, setting) for dataset in table.datasets if (dataset, setting) in table.groups]
            found.append((setting_title(table, setting), columns, False))
    return found


def _headline(table: ResultTable) -> str:
    return "<h3>The figures</h3>" + _tables_by(table, table.metrics[0])


def _tables_by(table: ResultTable, metric: dict[str, Any]) -> str:
    seeds = f"mean ± spread over {table.seeds} seeds" if table.seeds > 1 else "one seed"
    less = "" if metric["better"] == "higher" else ", less is better"
    text = ""
    for title, columns, by_setting in _layouts(table):
        caption = ": ".join(part for part in (title, f"{metric['title']}{less}; {seeds}.") if part)
        text += figures_table(table, metric, columns, _capital(caption), by_setting=by_setting)
    return text


def _other_measures(table: ResultTable) -> str:
    text = ""
    for metric in table.metrics[1:]:
        text += (
            f'<details class="more-figures"><summary>By another measure: {escape(metric["title"])}</summary>'
            f"{_tables_by(table, metric)}</details>"
        )
    more = len(table.metrics) - 1
    if more <= 4:
        return text
    head = f"By {more} other measures"
    return f'<details class="more-figures"><summary>{head}</summary><div class="inner">{text}</div></details>'


def _plots(table: ResultTable, known: dict[str, Any]) -> str:
    kind = known.get("plot", "lines" if table.axes else "dots")
    draw = {"bars": _bars, "lines": _lines, "curves": _curves, "dots": _dots}[kind]
    return draw(table, known) or _dots(table, known)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _diamonds(table: ResultTable, columns: Sequence[Column], metrics: Sequence[dict[str, Any]]) -> str:
    """What hollow diamonds are, for plots that have any."""
    names = {metric["name"] for metric in metrics}
    drawn = any(not names.isdisjoint(row.paper) for (*group, _), row in table.rows.items() if tuple(group) in columns)
    return " Hollow diamonds: the paper's figures." if drawn else ""


def _dots(table: ResultTable, known: dict[str, Any]) -> str:
    metric, text = table.metrics[0], ""
    for title, columns, _ in _layouts(table):
        drawn = [dot_panel(table, dataset, setting, metric) for dataset, setting in columns]
        caption = f"{metric['title']}: mean and spread over seeds, ours in blue.{_diamonds(table, columns, [metric])}"
        text += panels(drawn, _capital(f"{title}: {caption}" if title else caption))
    return text


def _bars(table: ResultTable, known: dict[str, Any]) -> str:
    named = {metric["name"]: metric for metric in table.metrics}
    metrics = [named[name] for name in known.get("bars", ()) if name in named] or table.metrics[:2]
    colours = f"Full bars: {metrics[0]['title']}" + (f"; pale: {metrics[1]['title']}" if len(metrics) > 1 else "")
    text = ""
    for title, columns, _ in _layouts(table):
        drawn = [bar_panel(table, dataset, setting, metrics) for dataset, setting in columns]
        caption = f"{colours}. Ours in blue, the line is the spread over seeds.{_diamonds(table, columns, metrics)}"
        text += panels(drawn, _capital(f"{title}: {caption}" if title else caption))
    return text


def _lines(table: ResultTable, known: dict[str, Any]) -> str:
    metric, text = table.metrics[0], ""
    for axis in table.axes:
        drawn = [line_panel(table, dataset, metric, axis) for dataset in table.datasets]
        points = [group for group in table.groups if group[1] in table.axes[axis]]
        diamonds = _diamonds(table, points, [metric])
        caption = f"{_capital(metric['title'])} against {axis}; the band is the spread over seeds.{diamonds}"
        text += panels(drawn, caption, key_of_lines(table))
    return text


def _curves(table: ResultTable, known: dict[str, Any]) -> str:
    """Training curves, twice: against epochs and against time."""
    names = known.get("curves", {})
    if not names:
        return ""
    text = ""
    for dataset, setting in table.groups:
        drawn = [
            curve_panel(table, dataset, setting, y=names["y"], x=x, x_title=title, y_title=names["y_title"])
            for x, title in names["x"]
        ]
        caption = f"{group_title(table, dataset, setting)}: mean over seeds, up to where the shortest run ends."
        text += panels(drawn, caption, key_of_lines(table))
    return text


def _origin(table: ResultTable) -> str:
    """Seeds, machine, versions, commit, date, time."""
    source = table.source
    machines = [source.get("hardware") or {}, *(source.get("other_hardware") or [])]
    versions = ", ".join(f"{name} {value}" for name, value in (source.get("versions") or {}).items())
    lines = [
        f"Seeds behind a figure: up to {table.seeds}; {seconds_words(table.seconds)} of computing in all"
        + (f" on {listed(list(table.devices))}." if table.devices else "."),
        f"Hardware: {'; '.join(_machine(machine) for machine in machines if machine) or 'unknown'}.",
        f"Versions: {versions or 'unknown'}.",
        f"{_commits(table)}; {date_words(source.get('created') or 'date unknown')}.",
    ]
    body = "".join(f'<p class="soft">{escape(line)}</p>' for line in lines)
    return f'<details class="more-figures" open><summary>What was run</summary>{body}</details>'


def _commits(table: ResultTable) -> str:
    """The commits that the cells were made at, with their numbers where there are several."""
    if len(table.commits) < 2:
        return f"Commit {next(iter(table.commits), None) or table.source.get('commit') or 'unknown'}"
    return "Commits " + ", ".join(f"{name} ({count:,} cells)" for name, count in table.commits.items())


def _machine(machine: dict[str, Any]) -> str:
    memory = f", {machine['memory_gb']:g} GB" if machine.get("memory_gb") else ""
    return f"{machine.get('gpu') or 'no GPU'}; {machine.get('cores', '?')} cores of {machine.get('cpu') or '?'}{memory}"
