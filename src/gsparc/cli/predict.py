"""``gsparc predict``: a file of new rows in, a file of predictions out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit, say
from gsparc.cli.table_models import Coverage, EdgeSource, EdgeTarget, ModelFolder, load_table_model, show_facts

NAME = "predict"


@command
def run(
    model_folder: ModelFolder,
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Table of new rows: a file, folder or pattern.")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Ends in .parquet, .csv, .tsv, .feather or .jsonl.")
    ],
    edges: Annotated[
        Path | None, typer.Option("--edges", metavar="FILE", help="Edges that new rows already have to known nodes.")
    ] = None,
    edge_source: EdgeSource = None,
    edge_target: EdgeTarget = None,
    coverage: Coverage = 0.9,
    links: Annotated[int, typer.Option("--links", min=0, help="Suggested links a row; 0 for none.")] = 5,
    near: Annotated[int, typer.Option("--near", min=0, help="Nearest known nodes a row; 0 for none.")] = 5,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Rows that are worked on at once.")] = 16_384,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows: class, confidence, prediction set, whether to abstain and why, cluster, links, nearest nodes.

    Any number of rows is streamed in bounded memory. Rows that cannot be read go to NAME.rejects.csv beside the
    output, with the reason. The output appears under its name only when it is complete. Without --links and --near
    columns (0) it is fastest.

    Example:  gsparc predict model new.csv -o out.parquet

    Example:  gsparc predict model new.jsonl --edges first_edges.csv --coverage 0.95 -o out.csv
    """
    from gsparc._runtime import progress_bar
    from gsparc.tables.reading import table_files
    from gsparc.tables.writing import TableWriter

    TableWriter(output)  # refuses a name that cannot be written before anything is loaded
    table_files(source, what="rows")
    model = load_table_model(model_folder)
    first = None if edges is None else _first_edges(model, edges, edge_source, edge_target)
    from gsparc.tables.streaming import estimated_rows, predict_file

    total = estimated_rows(source)
    with progress_bar("predict", total or 1, show=not quiet) as bar:
        document = predict_file(
            model,
            source,
            output,
            edges=first,
            coverage=coverage,
            links=links,
            near=near,
            batch_rows=batch_rows,
            progress=bar.update,
        )
    if not quiet:
        _say_what_is_left(document)
    emit(document, as_json, _show)


def _first_edges(model: Any, edges: Path, source: str | None, target: str | None) -> Any:
    from gsparc.cli.table_models import edge_columns_for
    from gsparc.exceptions import InputError
    from gsparc.tables.reading import read_table
    from gsparc.tables.streaming import FirstEdges

    if model.columns.id is None:
        raise InputError("--edges came, but the model was fitted without an id column, so edges cannot name new rows.")
    table = read_table(edges, what="edges")
    return FirstEdges(model, table, edge_columns_for(model, table, source, target))


def _say_what_is_left(document: dict[str, Any]) -> None:
    edges = document["edges"]
    if edges and edges["unknown"]:
        say(f"note: {edges['unknown']:,} of {edges['edges']:,} edges name no known node: left out")
    if edges and edges["unused"]:
        say(f"note: {edges['unused']:,} of {edges['edges']:,} edges belong to none of the rows")
    if document["rejected"]:
        say(f"note: {document['rejected']:,} rows could not be read: see {document['rejects']}")


def _show(document: dict[str, Any]) -> None:
    facts = [
        ("predicted", document["rows"]),
        ("rejected", document["rejected"] or None),
        ("rejects", document["rejects"]),
        ("abstained", document["abstained"]),
        ("output", document["output"]),
        ("time", f"{document['seconds']:.1f} s, {document['rows_per_second']:,.0f} rows a second"),
    ]
    show_facts(facts)
