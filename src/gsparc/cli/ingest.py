"""``gsparc ingest``: tables of any size into a store on disk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, Seed, command, emit, say

NAME = "ingest"
Columns = list[str] | None


@command
def run(
    *,
    nodes: Annotated[str, typer.Option("--nodes", metavar="FILES", help="Node tables: a file, folder or pattern.")],
    edges: Annotated[str, typer.Option("--edges", metavar="FILES", help="Edge tables: a file, folder or pattern.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the store.")],
    id_column: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Ids of the nodes.")] = None,
    target: Annotated[str | None, typer.Option("--target", metavar="COLUMN", help="Classes.")] = None,
    text: Annotated[Columns, typer.Option("--text", metavar="COLUMN", help="Words; may be repeated.")] = None,
    numeric: Annotated[Columns, typer.Option("--numeric", metavar="COLUMN", help="Numbers.")] = None,
    categorical: Annotated[Columns, typer.Option("--categorical", metavar="COLUMN", help="Names of few kinds.")] = None,
    ignore: Annotated[Columns, typer.Option("--ignore", metavar="COLUMN", help="Left out.")] = None,
    group: Annotated[str | None, typer.Option("--group", metavar="COLUMN", help="Rows held out together.")] = None,
    edge_source: Annotated[str | None, typer.Option("--edge-source", metavar="COLUMN", help="One end.")] = None,
    edge_target: Annotated[str | None, typer.Option("--edge-target", metavar="COLUMN", help="The other end.")] = None,
    edge_weight: Annotated[str | None, typer.Option("--edge-weight", metavar="COLUMN", help="Weights.")] = None,
    dtype: Annotated[str, typer.Option("--dtype", help="Of dense features: float32 or float16.")] = "float32",
    dangling: Annotated[str, typer.Option("--dangling", help="Edges to unknown nodes: error or drop.")] = "error",
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory to keep to, from 512MB.")] = "4GB",
    holdout: Annotated[
        float, typer.Option("--holdout", min=0.0, max=0.8, help="Share of the rows that pretend to be new in a fit.")
    ] = 0.2,
    seed: Seed = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, whatever an earlier run left.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write tables into a store on disk, in bounded memory; fit, embed and info take it where they take tables.

    Ids are mapped and edges are sorted out of memory. A run that was interrupted goes on with the same command:
    finished stages are kept while the tables do not change.

    Example:  gsparc ingest --nodes 'nodes/*.parquet' --edges 'edges/*.parquet' --memory 4GB -o store
    """
    from gsparc._runtime import stage_bar
    from gsparc.storage.ingesting import IngestSettings, check_ingest_memory, ingest

    start = time.perf_counter()
    settings = IngestSettings(
        id_column,
        target,
        tuple(text or ()),
        tuple(numeric or ()),
        tuple(categorical or ()),
        tuple(ignore or ()),
        group,
        edge_source,
        edge_target,
        edge_weight,
        dtype,
        dangling,
        holdout,
        seed,
        check_ingest_memory(memory),
    )
    with stage_bar("ingest", show=not quiet) as stage:
        store = ingest(nodes, edges, output, settings, fresh=fresh, stage=stage)
    if not quiet:
        _notes(store.meta)
    document = describe_store(store) | {"seconds": round(time.perf_counter() - start, 3)}
    emit(document, as_json, lambda found: _show(found, output))


def describe_store(store: Any) -> dict[str, Any]:
    """What ``gsparc info`` says of a store."""
    meta = store.meta
    roles = {name: value for name, value in meta["columns"].items() if value and name != "ignored"}
    return {
        "kind": "store",
        "path": str(store.path),
        "gsparc_version": meta["gsparc_version"],
        "format_version": meta["format_version"],
        "created": meta["created"],
        "nodes": meta["nodes"],
        "edges": meta["edges"],
        "weighted": meta["weighted"],
        "features": meta["features"],
        "dtype": meta["dtype"] + (", sparse" if meta["sparse"] else ""),
        "classes": meta["class_names"],
        "columns": roles,
        "edge_columns": meta["edge_columns"],
        "edge_counts": meta["edge_counts"],
        "ids": meta["ids"],
        "held_out": meta["holdout"],
        "megabytes": round(sum(file["bytes"] for file in meta["files"].values()) / 1e6, 2),
    }


def _notes(meta: dict[str, Any]) -> None:
    counts, rows = meta["edge_counts"], meta["edge_counts"]["rows"]
    words = {
        "unknown": "name a node that is not known",
        "missing": "have no source or no target",
        "self_loops": "join a node to itself",
    }
    for key, what in words.items():
        if counts[key]:
            say(f"note: {counts[key]:,} of {rows:,} edges {what}: left out")
    if meta["missing_numbers"]:
        say(f"note: {meta['missing_numbers']:,} missing numbers are filled with the median of their column")


def _show(document: dict[str, Any], output: Path) -> None:
    typer.echo(
        f"{document['nodes']:,} nodes, {document['edges']:,} edges, {document['features']:,} features "
        f"({document['dtype']}): {output}\n{document['megabytes']:,.0f} MB, {document['seconds']:.1f} s\n\n"
        f"next: gsparc fit --store {output} -o model"
    )
