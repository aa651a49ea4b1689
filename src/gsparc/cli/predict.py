"""``gsparc predict``: a file of new rows in, a file of predictions out."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit, say
from gsparc.cli.table_models import (
    Coverage,
    EdgeSource,
    EdgeTarget,
    ModelFolder,
    check_table_model,
    load_table_model,
    show_facts,
)
from gsparc.tables import BATCH_ROWS

NAME = "predict"


class Engine(enum.StrEnum):
    """Where the work is done."""

    local = "local"
    ray = "ray"


@command
def run(
    model_folder: ModelFolder,
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Table of new rows: a file, folder or pattern.")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Ends in .parquet, .csv, .tsv, .feather or .jsonl; with --engine ray a folder of Parquet parts.",
        ),
    ],
    edges: Annotated[
        Path | None, typer.Option("--edges", metavar="FILE", help="Edges that new rows already have to known nodes.")
    ] = None,
    edge_source: EdgeSource = None,
    edge_target: EdgeTarget = None,
    coverage: Coverage = 0.9,
    links: Annotated[int, typer.Option("--links", min=0, help="Suggested links a row; 0 for none.")] = 5,
    near: Annotated[int, typer.Option("--near", min=0, help="Nearest known nodes a row; 0 for none.")] = 5,
    batch_rows: Annotated[
        int, typer.Option("--batch-rows", min=1, help="Rows that are worked on at once.")
    ] = BATCH_ROWS,
    engine: Annotated[
        Engine, typer.Option("--engine", help="Threads of this process, or processes of a Ray cluster.")
    ] = Engine.local,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT", help="A running Ray cluster. Default: start one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Blocks worked on at once. Default: one a core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict new rows: class, confidence, prediction set, whether to abstain and why, cluster, links, nearest nodes.

    Any number of rows is streamed in bounded memory. Rows that cannot be read go to NAME.rejects.csv beside the
    output, with the reason. The output appears under its name only when it is complete. Without --links and --near
    columns (0) it is fastest.

    Example:  gsparc predict model new.csv -o out.parquet

    Columns of the output, as far as the model was fitted for them:

    - id: as in ROWS, or the row's place from 0 where there are no ids.

    - class, confidence: the most probable class, and its calibrated probability.

    - set: classes that hold the true one with the probability of --coverage, the most probable first.

    - abstained, why: whether the model would rather not say (far from every known node, nothing of it is known, or no
    class can be ruled out).

    - cluster, membership: the nearest cluster, and how much the row belongs to it, from 0 to 1.

    - links, link_scores: known nodes that it will most likely be linked to, best first. A score ranks the nodes of one
    row: how alike the two are in the eigenspace, in features and by what was learned from edges, and how popular
    the node is. It is no probability and may exceed 1.

    - near, near_distances: the known nodes most like it, nearest first, and how far they are (0 is equal).

    With --engine ray the answers are the same to the byte, and the output is a folder of Parquet parts with a file
    _SUCCESS. A worker that is lost is replaced, and no row is lost or written twice.

    Example:  gsparc predict model new.jsonl --edges first_edges.csv --coverage 0.95 -o out.csv

    Example:  gsparc predict model 'new/*.parquet' --engine ray --workers 8 -o out
    """
    from gsparc._runtime import progress_bar
    from gsparc.tables.reading import table_files

    table_files(source, what="rows")
    asked = {"coverage": coverage, "links": links, "near": near, "batch_rows": batch_rows, "workers": workers}
    if engine is Engine.ray:
        score = _with_ray(model_folder, source, output, edges, edge_source, edge_target, address)
    else:
        _refuse_address(address)
        score = _in_this_process(model_folder, source, output, edges, edge_source, edge_target)
    from gsparc.tables.streaming import estimated_rows

    with progress_bar("predict", estimated_rows(source), show=not (quiet or as_json)) as bar:
        document = score(**asked, progress=bar.update)
    if not quiet:
        _say_what_is_left(document)
    emit(document, as_json, _show)


def _in_this_process(
    folder: Path, rows: Path, output: Path, edges: Path | None, source: str | None, target: str | None
) -> Callable[..., dict[str, Any]]:
    from gsparc._files import refuse_overwriting
    from gsparc.tables.writing import TableWriter, rejects_path

    for written in (output, rejects_path(output)):
        refuse_overwriting(written, [edges])
    TableWriter(output)  # refuses a name that cannot be written before anything is loaded
    # mapped as Ray's workers have it: where numbers lie in memory decides how some products round
    model = load_table_model(folder, mapped=True)
    first = None if edges is None else _first_edges(model, edges, source, target)
    from gsparc.tables.streaming import predict_file

    return functools.partial(predict_file, model, rows, output, edges=first)


def _with_ray(
    folder: Path,
    rows: Path,
    output: Path,
    edges: Path | None,
    source: str | None,
    target: str | None,
    address: str | None,
) -> Callable[..., dict[str, Any]]:
    from gsparc.tables.parts import check_parts_target

    check_parts_target(output)
    check_table_model(folder)  # workers load it; this is to say at once what is wrong with it
    from gsparc.integrations.ray import predict_on_ray

    return functools.partial(
        predict_on_ray, folder, rows, output, edges=edges, edge_source=source, edge_target=target, address=address
    )


def _refuse_address(address: str | None) -> None:
    from gsparc.exceptions import InputError

    if address is not None:
        raise InputError(f"--address {address} came without --engine ray. Add it, or leave the address out.")


def _first_edges(model: Any, edges: Path, source: str | None, target: str | None) -> Any:
    from gsparc.cli.table_models import read_first_edges
    from gsparc.exceptions import InputError

    if model.columns.id is None:
        raise InputError("--edges came, but the model was fitted without an id column, so edges cannot name new rows.")
    return read_first_edges(model, edges, source, target)


def _say_what_is_left(document: dict[str, Any]) -> None:
    edges = document["edges"]
    if edges:
        say(f"note: {_used(edges)} edges join a row to a known node and are used")
    if edges and edges["unknown"]:
        say(f"note: {edges['unknown']:,} of {edges['edges']:,} edges name no known node: left out")
    if edges and edges["unused"]:
        say(f"note: {edges['unused']:,} of {edges['edges']:,} edges belong to none of the rows: left out")
    if document["repeated_ids"]:
        say(f"note: {document['repeated_ids']:,} rows have the id of an earlier row: each is predicted on its own")
    if document["rejected"]:
        say(f"note: {document['rejected']:,} rows could not be read: see {document['rejects']}")


def _used(edges: dict[str, int]) -> str:
    return f"{edges['edges'] - edges['unknown'] - edges['unused']:,} of {edges['edges']:,}"


def _show(document: dict[str, Any]) -> None:
    facts = [
        ("predicted", document["rows"]),
        ("rejected", document["rejected"] or None),
        ("rejects", document["rejects"]),
        ("abstained", document["abstained"]),
        ("edges used", None if document["edges"] is None else _used(document["edges"])),
        ("output", document["output"]),
        ("time", f"{document['seconds']:.1f} s, {document['rows_per_second']:,.0f} rows a second"),
    ]
    show_facts(facts)
