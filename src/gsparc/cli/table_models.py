"""What the commands that use a fitted table model share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "Coverage",
    "EdgeSource",
    "EdgeTarget",
    "ModelFolder",
    "check_table_model",
    "load_table_model",
    "read_first_edges",
    "show_facts",
]

ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder that 'gsparc fit --nodes --edges' wrote.")]
Coverage = Annotated[
    float, typer.Option("--coverage", min=0.0, max=1.0, help="How often prediction sets shall hold the true class.")
]
EdgeSource = Annotated[str | None, typer.Option("--edge-source", metavar="COLUMN", help="One end of an edge.")]
EdgeTarget = Annotated[str | None, typer.Option("--edge-target", metavar="COLUMN", help="The other end.")]


def check_table_model(folder: Path) -> None:
    """An error that says what is in ``folder``, unless it is a whole table model."""
    from gsparc.exceptions import ModelFolderError
    from gsparc.model_store import read_folder

    config, _ = read_folder(folder)
    if config.get("class") not in ("StoreModel", "TableModel"):
        raise ModelFolderError(
            f"{folder} holds a {config.get('class')}, which knows features and not the columns of a table. Fit one "
            "with: gsparc fit --nodes FILE --edges FILE -o DIR"
        )


def load_table_model(folder: Path, *, mapped: bool | None = None) -> Any:
    """The model in ``folder``, or an error that says what is there instead."""
    check_table_model(folder)
    from gsparc.tables.model import TableModel

    return TableModel.load(folder, mapped=mapped)


def read_first_edges(model: Any, path: Path, source: str | None, target: str | None) -> Any:
    """Edges of new rows in a file, looked up by the rows' ids; its columns are as given, as in the fit, or guessed."""
    from gsparc.tables.streaming import FirstEdges
    from gsparc.tables.typing import read_more_edges

    return FirstEdges(model, *read_more_edges(path, model.edge_columns, source, target))


def show_facts(facts: list[tuple[str, Any]]) -> None:
    """Lines of a name and a value; those without a value are left out."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        if value is not None:
            table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    Console().print(table, markup=False, highlight=False)
