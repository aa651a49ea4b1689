"""Tables for the terminal."""

from __future__ import annotations

from typing import Any

__all__ = ["CLASS_COLUMNS", "LINK_COLUMNS", "methods_table"]

CLASS_COLUMNS = (
    ("accuracy", "accuracy", True),
    ("macro_f1", "macro-F1", True),
    ("ece", "calibration", True),
)
LINK_COLUMNS = (("mrr", "MRR", False), ("mrr_edges", "MRR by edge", False), ("hits@10", "hits@10", True))


def methods_table(rows: list[dict[str, Any]], columns: tuple[tuple[str, str, bool], ...], title: str) -> Any:
    """One line a method, ours in bold; ``columns`` are (key, heading, as a percentage)."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("method", no_wrap=True)
    for _, heading, _ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        cells = [_cell(row[key], percent) for key, _, percent in columns]
        table.add_row(row["method"], *cells, style="bold cyan" if row["ours"] else "")
    return Group(Text(title, style="bold"), table)


def _cell(value: float | None, percent: bool) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f} %" if percent else f"{value:.3f}"
