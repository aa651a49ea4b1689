"""Results of ``gsparc reproduce`` in the terminal: ours beside the paper's figures and the best baseline."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["audit_table", "names_table", "result_table"]

_WORD = 12  # characters that are shorter said again than looked up
_MEASURES = 3  # columns that a terminal has room for; the page shows the others


def result_table(result: dict[str, Any]) -> Any:
    """One line a method: mean ± spread of the first measures, the paper's figure in grey, the headline's difference."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table, metrics = Table(box=None, pad_edge=False, header_style="dim"), result["metrics"][:_MEASURES]
    rows = [row for row in result["rows"] if result["asked"] is None or row["method"] in result["asked"]]
    missing = [_missing(result, row, metrics) for row in rows]
    with_setting, notes = any(row["setting"] for row in rows), _footnotes(rows, missing)
    table.add_column("data set", no_wrap=True)
    if with_setting:
        table.add_column(result["x_axis"] or "setting", no_wrap=True)
    table.add_column("method", overflow="fold")
    for metric in metrics:
        table.add_column(metric["title"], justify="right", overflow="fold")
    table.add_column("to the best baseline", overflow="fold")
    group = None
    for row, gaps in zip(rows, missing, strict=True):
        if group is not None and group != (row["dataset"], row["setting"]):
            table.add_section()
        group = (row["dataset"], row["setting"])
        name = row["dataset"] + " (generated)" * (row["generated"] and row["dataset"] != "generated")
        cells: list[Any] = [name, *([row["setting"]] if with_setting else []), row["method"]]
        cells += [_figure(row["metrics"][m["name"]], notes.get(gaps.get(m["name"], ""))) for m in metrics]
        reason = row["reason"] or gaps.get(metrics[0]["name"])
        cells.append(Text(notes.get(reason, reason), "dim") if reason else _difference(result, row, metrics[0]))
        table.add_row(*cells, style="bold cyan" if row["ours"] else "")
    head = [Text(result["title"], style="bold"), Text(result["question"], style="dim")]
    if any(row["generated"] for row in rows):
        head.append(Text("Generated graphs show that it runs; no accuracy on the real data set is claimed.", "yellow"))
    return Group(*head, table, *(Text(f"{mark} {sentence}", style="dim") for sentence, mark in notes.items()))


def _missing(result: dict[str, Any], row: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, str]:
    """Why figures are missing in a row that has others, measure by measure."""
    from gsparc.report.result_words import missing_words

    if row["reason"]:
        return {}
    cold = next(method["cold"] for method in result["methods"] if method["label"] == row["method"])
    found = {metric["name"]: (metric, row["metrics"][metric["name"]]) for metric in metrics}
    return {
        name: entry["reason"] or missing_words(metric, cold)
        for name, (metric, entry) in found.items()
        if entry["mean"] is None
    }


def _footnotes(rows: list[dict[str, Any]], missing: list[dict[str, str]]) -> dict[str, str]:
    """Marks of the sentences that stand in several rows or in place of single figures, in the order of the rows."""
    times: Counter[str] = Counter()
    for row, gaps in zip(rows, missing, strict=True):
        if row["reason"] and len(row["reason"]) > _WORD:
            times[row["reason"]] += 1
        times.update(dict.fromkeys(gaps.values(), 2))  # a column of figures has no room for a sentence
    return {sentence: f"[{mark}]" for mark, sentence in enumerate((s for s in times if times[s] > 1), start=1)}


def _figure(figure: dict[str, Any], note: str | None) -> Any:
    from rich.text import Text

    text = Text(note or "-", style="dim") if figure["mean"] is None else Text(f"{figure['mean']:.1f}")
    if figure["spread"] is not None:
        text.append(f" ± {figure['spread']:.1f}")
    if figure["paper"] is not None:
        text.append(f" (paper {figure['paper']:.2f})", style="bright_black not bold")
    return text


def _difference(result: dict[str, Any], row: dict[str, Any], metric: dict[str, Any]) -> Any:
    from rich.text import Text

    found = row["metrics"][metric["name"]]["difference"]
    if found is None:
        return Text(_no_difference(result, row, metric), style="dim")
    text = f"{found['mean']:+.1f}"
    if found["low"] is None:
        return Text(f"{text} to {found['to']}")
    text += f" [{found['low']:+.1f}, {found['high']:+.1f}] to {found['to']}"
    sign = 1 if metric["better"] == "higher" else -1
    worst, best = sorted((sign * found["low"], sign * found["high"]))
    return Text(text, style="green" if worst > 0 else "red" if best < 0 else "")


def _no_difference(result: dict[str, Any], row: dict[str, Any], metric: dict[str, Any]) -> str:
    """Why a row with a headline figure has no difference to the best baseline."""
    group = (row["dataset"], row["setting"])
    others = [other for other in result["rows"] if (other["dataset"], other["setting"]) == group]
    gaps = [other["metrics"][metric["name"]]["difference"] for other in others]
    best = next((gap["to"] for gap in gaps if gap), None)
    if best == row["method"] or (best is None and not row["ours"]):
        return "the best baseline"
    return "no baseline was run" if best is None else f"no seed in common with {best}"


def audit_table(audit: dict[str, Any]) -> Any:
    """One line for each estimator and change of the leak test."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("estimator", "what was done to the cold nodes", "saved model"):
        table.add_column(heading, overflow="fold")
    for row in audit["rows"]:
        same = row["identical"]
        verdict = Text("identical bytes", "green") if same else Text(f"{', '.join(row['differ'])} differ", "red")
        table.add_row(row["estimator"], row["change"], verdict)
    title = f"Leak test on {audit['dataset']}: {audit['cold_nodes']:,} cold nodes, {audit['seen_nodes']:,} seen"
    return Group(Text(title, style="bold"), table)


def names_table(document: dict[str, Any]) -> Any:
    """Names that the options of the command take, table by table; "; " stands between them as labels hold commas."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for name, kinds in document["tables"].items():
        grid = Table.grid(padding=(0, 2))
        for option, names in kinds.items():
            grid.add_row(Text(f"  --{option}", style="dim"), Text("; ".join(names)))
        parts += [Text(name, style="bold"), grid]
    return Group(*parts, Text(f"--datasets takes any of {'; '.join(document['datasets'])}."))
