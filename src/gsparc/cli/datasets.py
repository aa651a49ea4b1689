"""``gsparc datasets``: what there is, and what is on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit

NAME = "datasets"


@command
def run(
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to look, instead of the usual places.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that have a name, and whether their files are on this machine.

    Example:  gsparc datasets --json
    """
    from gsparc.datasets import data_folders, list_datasets

    document = {
        "datasets": [asdict(entry) for entry in list_datasets(folder)],
        "looked_in": [str(place) for place in data_folders(folder)],
    }
    emit(document, as_json, _show)


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("name", "left"), ("nodes", "right"), ("edges", "right"), ("features", "right")):
        table.add_column(name, justify=justify, no_wrap=True)  # pyright: ignore[reportArgumentType]
    table.add_column("classes", justify="right")
    table.add_column("here")
    table.add_column("source", overflow="fold")
    for line in document["datasets"]:
        sizes = [f"{line[key]:,}" for key in ("nodes", "edges", "features", "classes")]
        table.add_row(line["name"], *sizes, "yes" if line["available"] else "no", line["source"])
    console = Console()
    console.print(table)
    console.print(f"\nLooked in: {', '.join(document['looked_in'])}", soft_wrap=True, highlight=False)
    missing = [line for line in document["datasets"] if not line["available"]]
    if missing:
        console.print("How to get the others:", highlight=False)
        for line in missing:
            how = f"  {line['name']}: {line['how_to_get']}"
            console.print(how, soft_wrap=True, highlight=False, markup=False)
    own = "Your own: the path of an .npz file, or of a folder with nodes.parquet and edges.parquet."
    console.print(own, soft_wrap=True, highlight=False)
