"""Results of ``gsparc reproduce`` in the terminal: ours beside the paper's figures and the best baseline."""

from __future__ import annotations

from typing import Any

__all__ = ["audit_table", "result_table"]

_MEASURES = 3  # columns that a terminal has room for; the page shows the others


def result_table(result: dict[str, Any]) -> Any:
    """One line a method: mean ± spread of the first measures, the paper's figure in grey, the headline's difference."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table, metrics = Table(box=None, pad_edge=False, header_style="dim"), result["metrics"][:_MEASURES]
    with_setting = any(row["setting"] for row in result["rows"])
    table.add_column("data set", no_wrap=True)
    if with_setting:
        table.add_column(result["x_axis"] or "setting", no_wrap=True)
    table.add_column("method", overflow="fold")
    for metric in metrics:
        table.add_column(metric["title"], justify="right", overflow="fold")
    table.add_column("to the best baseline", overflow="fold")
    group = None
    for row in result["rows"]:
        if group is not None and group != (row["dataset"], row["setting"]):
            table.add_section()
        group = (row["dataset"], row["setting"])
        name = row["dataset"] + " (generated)" * (row["generated"] and row["dataset"] != "generated")
        cells: list[Any] = [name, *([row["setting"]] if with_setting else []), row["method"]]
        cells += [_figure(row["metrics"][metric["name"]]) for metric in metrics]
        cells.append(Text(row["reason"], style="dim") if row["reason"] else _difference(row, metrics[0]))
        table.add_row(*cells, style="bold cyan" if row["ours"] else "")
    notes = [Text(result["question"], style="dim")]
    if any(row["generated"] for row in result["rows"]):
        notes.append(Text("Generated graphs show that it runs; no accuracy on the real data set is claimed.", "yellow"))
    return Group(Text(result["title"], style="bold"), *notes, table)


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
