"""A second table: the cells of fake_table.py under the same keys, with other numbers and no broken method."""

from __future__ import annotations

from dataclasses import replace

import fake_table
from fake_table import COLD, note

from gsparc.experiments.engine import Cell, Context


def run(cell: Cell, context: Context) -> dict[str, object]:
    """A tenth of what the first table finds."""
    note(cell, "other: ")
    return {"cold": COLD.get(cell.method, (10.0, 20.0, 30.0))[cell.seed] / 10, "loss": 1.0, "seconds": 3.0}


TABLE = replace(fake_table.TABLE, name="other", title="A second table for tests.", run=run, paper={})
