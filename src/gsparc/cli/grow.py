"""``gsparc grow``: new nodes with their edges join a model, without retraining."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit, say
from gsparc.cli.table_models import EdgeSource, EdgeTarget, ModelFolder, load_table_model, show_facts

NAME = "grow"


@command
def run(
    model_folder: ModelFolder,
    *,
    nodes: Annotated[Path, typer.Option("--nodes", metavar="FILE", help="New nodes, columns as in the fit.")],
    edges: Annotated[
        Path | None, typer.Option("--edges", metavar="FILE", help="Their edges, to known nodes and among themselves.")
    ] = None,
    edge_source: EdgeSource = None,
    edge_target: EdgeTarget = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Another folder for the grown model.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add nodes, with their classes and edges where they are known, to the index and the evidence of a model.

    Nothing is retrained. How far the new nodes are from what was seen, how the classes have shifted, and how many nodes
    are of a class that the model does not know (more than 5 % is too many) says when to fit again. The model is
    replaced as a whole when all is done. Nodes that it has already are left out.

    Example:  gsparc grow model --nodes more.parquet --edges more_edges.parquet
    """
    from gsparc._files import refuse_overwriting
    from gsparc.model_store import check_target
    from gsparc.tables.reading import Reject, place_of, table_files
    from gsparc.tables.typing import read_more_edges, read_more_rows
    from gsparc.tables.writing import RejectsFile, all_rejected, rejects_path

    start = time.perf_counter()
    target = output or model_folder
    check_target(target)
    beside = target.absolute().parent / f"{target.name}.grow"
    files = [*table_files(nodes), *(() if edges is None else table_files(edges, what="edges"))]
    for written in (target, rejects_path(beside)):
        refuse_overwriting(written, files)
    model = load_table_model(model_folder)
    table = read_more_rows(nodes, model, what="nodes")
    joining = () if edges is None else read_more_edges(edges, model.edge_columns, edge_source, edge_target)
    document = model.grow(table, *joining)
    bad, ids = document.pop("bad"), document.pop("bad_ids")
    for note in document["edge_notes"]:
        say(f"note: {note}")
    with RejectsFile(beside) as rejects:
        for row, reason in bad.items():
            file, number = place_of(table, row)
            rejects.add(Reject(file or str(nodes), number, ids[row], reason))
    if rejects.count == document["rows"]:
        raise all_rejected(rejects, f"{target} was not written")
    if document["added"] or output is not None:
        model.save(target)
    document |= {
        "model": str(target),
        "rejected": rejects.count,
        "rejects": str(rejects.path) if rejects.count else None,
        "seconds": round(time.perf_counter() - start, 3),
    }
    emit(document, as_json, _show)


def _show(document: dict[str, Any]) -> None:
    used = None if document["edges"] is None else document["edges"]["used"]
    show_facts(
        [
            ("added", document["added"]),
            ("already known", document["already_known"] or None),
            ("rejected", document["rejected"] or None),
            ("rejects", document["rejects"]),
            ("of a class that is not known", document["unknown_classes"] or None),
            ("edges", used),
            ("nodes now", document["nodes"]),
            ("drift", None if document["drift"] is None else document["drift"].get("sentence")),
            ("model", document["model"]),
            ("time", f"{document['seconds']:.1f} s"),
        ]
    )
