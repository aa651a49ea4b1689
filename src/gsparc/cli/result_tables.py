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
    with_setting, notes = any(row["setting"] for row in rows), _footnotes(rows)
    table.add_column("data set", no_wrap=True)
    if with_setting:
        table.add_column(result["x_axis"] or "setting", no_wrap=True)
    table.add_column("method", overflow="fold")
    for metric in metrics:
        table.add_column(metric["title"], justify="right", overflow="fold")
    table.add_column("to the best baseline", overflow="fold")
    group = None
    for row in rows:
        if group is not None and group != (row["dataset"], row["setting"]):
            table.add_section()
        group = (row["dataset"], row["setting"])
        name = row["dataset"] + " (generated)" * (row["generated"] and row["dataset"] != "generated")
        cells: list[Any] = [name, *([row["setting"]] if with_setting else []), row["method"]]
        cells += [_figure(row["metrics"][metric["name"]]) for metric in metrics]
        reason = notes.get(row["reason"], row["reason"])
        cells.append(Text(reason, style="dim") if reason else _difference(row, metrics[0]))
        table.add_row(*cells, style="bold cyan" if row["ours"] else "")
    head = [Text(result["title"], style="bold"), Text(result["question"], style="dim")]
    if any(row["generated"] for row in rows):
        head.append(Text("Generated graphs show that it runs; no accuracy on the real data set is claimed.", "yellow"))
    return Group(*head, table, *(Text(f"{mark} {sentence}", style="dim") for sentence, mark in notes.items()))


def _footnotes(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Marks of the sentences that stand in several rows, in the order of the rows."""
    times = Counter(row["reason"] for row in rows if row["reason"] and len(row["reason"]) > _WORD)
    return {sentence: f"[{mark}]" for mark, sentence in enumerate((s for s in times if times[s] > 1), start=1)}


def _figure(figure: dict[str, Any]) -> Any:
    from rich.text import Text

    text = Text("-" if figure["mean"] is None else f"{figure['mean']:.1f}")
    if figure["spread"] is not None:
        text.append(f" ± {figure['spread']:.1f}")
    if figure["paper"] is not None:
        text.append(f" (paper {figure['paper']:.1f})", style="bright_black not bold")
    return text


def _difference(row: dict[str, Any], metric: dict[str, Any]) -> Any:
    from rich.text import Text

    found = row["metrics"][metric["name"]]["difference"]
    if found is None:
        return ""
    text = f"{found['mean']:+.1f}"
    if found["low"] is None:
        return Text(f"{text} to {found['to']}")
    text += f" [{found['low']:+.1f}, {found['high']:+.1f}] to {found['to']}"
    sign = 1 if metric["better"] == "higher" else -1
    worst, best = sorted((sign * found["low"], sign * found["high"]))
    return Text(text, style="green" if worst > 0 else "red" if best < 0 else "")


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
