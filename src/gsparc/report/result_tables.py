"""Tables of the results page as HTML: figures, the paper's in grey beside them, differences, reasons."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

from gsparc.report.result_files import Comparison, Figure, ResultTable
from gsparc.report.result_words import dataset_title, number, reason_for, setting_title, signed

__all__ = ["VERDICTS", "Column", "audit_table", "figures_table", "leak_table", "words_table"]

Column = tuple[str, str]  # data set, setting
VERDICTS = {"win": "we win", "even": "no clear difference", "loss": "we lose", "unknown": "one seed only"}


def figures_table(
    table: ResultTable, metric: dict[str, Any], columns: Sequence[Column], caption: str, *, by_setting: bool = False
) -> str:
    """Methods against data sets, or against settings of one data set, by one measure.

    Parameters
    ----------
    table : ResultTable
    metric : dict
        One of the table's measures.
    columns : sequence of (dataset, setting)
    caption : str
    by_setting : bool
        Head the columns by setting instead of by data set.
    """
    heads = "".join(f'<th scope="col">{_head(table, column, by_setting)}</th>' for column in columns)
    body = "".join(_method_row(table, metric, columns, method) for method in table.methods)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="results"><caption>{escape(caption)}</caption>'
        f'<thead><tr><th scope="col">method</th>{heads}</tr></thead><tbody>{body}</tbody>'
        f"{_foot(table, metric, columns)}</table></div>"
    )


def _head(table: ResultTable, column: Column, by_setting: bool) -> str:
    dataset, setting = column
    point = table.axis(setting)
    by = f"{point[1]:g}" if point else setting_title(table, setting)
    text = escape(by if by_setting else dataset_title(dataset))
    return f'{text}<br><span class="more">generated</span>' if table.generated(dataset) else text


def _method_row(table: ResultTable, metric: dict[str, Any], columns: Sequence[Column], method: dict[str, Any]) -> str:
    label, cells = method["label"], ""
    contents = [_figure_cell(table, metric, column, label) for column in columns]
    # neighbours that are empty for the same reason share one wide cell, in which it can be read
    for (kind, text), same in groupby(contents):
        count = len(list(same))
        if kind == "reason":
            span = f' colspan="{count}"' if count > 1 else ""
            cells += f'<td class="reason"{span}>{text}</td>'
        else:
            cells += f"<td{_class(kind)}>{text}</td>" * count
    return f'<tr{_class("ours" if method["ours"] else "")}><th scope="row">{escape(label)}</th>{cells}</tr>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _figure_cell(table: ResultTable, metric: dict[str, Any], column: Column, label: str) -> tuple[str, str]:
    """Kind of a cell ("", "best", "reason") and its HTML."""
    figure = table.figure(*column, label, metric["name"])
    row = table.rows.get((*column, label))
    published = row.paper.get(metric["name"]) if row else None
    beside = "" if published is None else f'<span class="paper">paper {number(published, 2)}</span>'
    if figure is None:
        return "reason", escape(reason_for(table, *column, label, metric)) + beside
    text = number(figure.mean)
    if figure.spread is not None:
        text += f" ± {number(figure.spread)}"
    if figure.seeds != table.seeds:
        failed = f", {row.failed} failed" if row and row.failed else ""
        text += f' <span class="more">({figure.seeds} seed{"s" if figure.seeds != 1 else ""}{failed})</span>'
    text += _own_gap(table, figure, label)
    is_best = label in table.best(*column, metric)
    mark = '<span class="hidden"> (best)</span>' if is_best else ""
    return "best" if is_best else "", text + mark + beside


def _own_gap(table: ResultTable, figure: Figure, label: str) -> str:
    """The difference to the best baseline under each of our figures, where the row below has room for one only."""
    ours = [method["label"] for method in table.methods if method["ours"]]
    gap = figure.difference
    if label not in ours or len(ours) < 2 or not gap or gap.get("low") is None or gap.get("high") is None:
        return ""
    words = f"{signed(gap['mean'])}<br>({signed(gap['low'])} to {signed(gap['high'])})"
    return f'<br><span class="more" title="to {escape(str(gap["to"]))}, the best baseline">{words}</span>'


def _foot(table: ResultTable, metric: dict[str, Any], columns: Sequence[Column]) -> str:
    """Our best minus the best baseline, and minus the one that the question names, where there are any."""
    best = [table.compare(*column, metric) for column in columns]
    named = [table.compare_named(*column, metric) for column in columns]
    rows = _gaps(table, columns, best, "best baseline")
    if named != best:
        rows += _gaps(table, columns, named, next((gap.baseline for gap in named if gap), ""), above=best)
    return f"<tfoot>{rows}</tfoot>" if rows else ""


def _gaps(
    table: ResultTable,
    columns: Sequence[Column],
    found: Sequence[Comparison | None],
    title: str,
    *,
    above: Sequence[Comparison | None] = (),
) -> str:
    """A row of differences; nothing where no column has one. What is in the row ``above`` is not said again."""
    if not any(found):
        return ""
    cells = ""
    for place, (column, gap) in enumerate(zip(columns, found, strict=True)):
        if gap is not None and above and gap == above[place]:
            cells += '<td class="reason">as above</td>'
            continue
        if gap is None:
            cells += '<td class="reason">nothing to compare</td>'
            continue
        interval = "" if gap.low is None or gap.high is None else f"<br>{signed(gap.low)} to {signed(gap.high)}"
        verdict = f'<span class="badge {gap.verdict}">{VERDICTS[gap.verdict]}</span>'
        if table.generated(column[0]):
            verdict = '<span class="more">generated: not counted</span>'
        cells += (
            f"<td><b>{signed(gap.mean)}</b>{interval}<br>{verdict}<br>"
            f'<span class="more">{escape(gap.ours)}<br>against {escape(gap.baseline)}</span></td>'
        )
    return (
        f'<tr><th scope="row">our best minus {escape(title)}<br>'
        f'<span class="more">paired, 95 % interval</span></th>{cells}</tr>'
    )


def words_table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table of text; its cells are HTML already."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{text}</td>" for text in row[1:]) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="words">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def audit_table(tables: Sequence[ResultTable]) -> str:
    """Each method once for each thing that it was allowed to see, with the tables it stands in."""
    entries: dict[tuple[str, str, str, bool], list[str]] = {}
    for table in tables:
        for method in table.methods:
            key = (method["label"], method.get("sees", ""), method.get("cold", ""), method["ours"])
            entries.setdefault(key, []).append(table.name)
    rows = [
        (
            escape(label) + (' <span class="more">ours</span>' if ours else ""),
            escape(sees or "not said in the result file"),
            escape(cold or "not said in the result file"),
            escape(", ".join(names)),
        )
        for (label, sees, cold, ours), names in entries.items()
    ]
    heads = ("method", "its fit was allowed to see", "with a node without edges it uses", "tables")
    return words_table(heads, rows, "What each method was allowed to see.")


def leak_table(audit: dict[str, Any]) -> str:
    """The leak test, line by line."""
    rows = []
    for row in audit["rows"]:
        same = bool(row.get("identical"))
        digest = str(row.get("sha256") or "")
        badge = "win" if same else "loss"
        rows.append(
            (
                escape(str(row.get("estimator", ""))),
                escape(str(row.get("change", ""))),
                f'<span class="badge {badge}">{"identical bytes" if same else "bytes differ"}</span>',
                escape(str(row.get("files", ""))),
                f'<code title="{escape(digest)}">{escape(digest[:16])}</code>',
            )
        )
    heads = ("estimator", "what was done to the cold rows", "fitted model", "files compared", "SHA-256 begins")
    return words_table(heads, rows, "The leak test: fit, change the cold nodes, fit again, compare the saved models.")
