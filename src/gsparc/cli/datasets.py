"""``gsparc datasets``: what there is, what is on this machine, and one of them as two tables."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit

NAME = "datasets"


@command
def run(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="With --export: which one.")] = None,
    *,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to look, instead of the usual places.")] = None,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="DIR", help="Write nodes.csv and edges.csv of NAME there.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label", metavar="COLUMN", help="Where NAME is a folder of tables: the column with the classes."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the data sets that have a name, and whether their files are on this machine; or write one as two tables.

    Example:  gsparc datasets --json

    Example:  gsparc datasets debian --export tables
    """
    from gsparc.datasets import data_folders, list_datasets

    if label is not None and export is None:
        raise typer.BadParameter("it goes with a name and --export DIR.", param_hint="--label")
    if (name is None) != (export is None):
        raise typer.BadParameter("a name and --export DIR go together.", param_hint="--export")
    if name is not None and export is not None:
        _export(name, export, folder, label, as_json)
        return
    document = {
        "datasets": [asdict(entry) for entry in list_datasets(folder)],
        "looked_in": [str(place) for place in data_folders(folder)],
    }
    emit(document, as_json, _show)


def _export(name: str, target: Path, folder: Path | None, label: str | None, as_json: bool) -> None:
    from gsparc.cli.files import check_output
    from gsparc.datasets import load_dataset
    from gsparc.datasets.writing import export_tables

    data = load_dataset(name, folder=folder, allow_pickle_sources=False, label=label)
    check_output(target, table=False)  # makes the folder: only for a data set that is there
    document = {"dataset": data.name, "nodes_rows": data.graph.num_nodes, "edges_rows": data.graph.num_edges}
    document |= export_tables(data, target)
    emit(document, as_json, _show_export)


def _show_export(document: dict[str, Any]) -> None:
    typer.echo(f"{document['nodes']}: {document['nodes_rows']:,} rows, columns {', '.join(document['columns'])}")
    typer.echo(f"{document['edges']}: {document['edges_rows']:,} rows")
    tables = f"--nodes {document['nodes']} --edges {document['edges']}"
    typer.echo(f"next: gsparc fit {tables} --target {document['target']} -o model")


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
