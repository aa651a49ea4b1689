"""``gsparc evaluate``: how well a model does on rows whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit, say
from gsparc.cli.table_models import Coverage, EdgeSource, EdgeTarget, ModelFolder, load_table_model

NAME = "evaluate"


@command
def run(
    model_folder: ModelFolder,
    source: Annotated[Path, typer.Argument(metavar="ROWS", help="Table of labelled rows that are not in the model.")],
    *,
    edges: Annotated[
        Path | None, typer.Option("--edges", metavar="FILE", help="True links of the rows: rank them, and say the MRR.")
    ] = None,
    edge_source: EdgeSource = None,
    edge_target: EdgeTarget = None,
    coverage: Coverage = 0.9,
    as_json: AsJson = False,
) -> None:
    """Measure a model on labelled rows: accuracy, calibration, coverage of the sets, abstention; MRR of their links.

    What is printed: accuracy with its 95 % interval; macro-F1, the mean over classes; the calibration error, by how
    much confidence and accuracy differ on average; how often the sets of --coverage hold the true class, and how large
    they are; how often the model abstains, and its accuracy where it does not; recall and precision of each class. Rows
    of a class that the model does not know count as wrong; the accuracy without them is given too. With --edges: the
    mean reciprocal rank of a row's best true link among all known nodes, and how often it is among the first ten.

    Example:  gsparc evaluate model labelled.csv

    Example:  gsparc evaluate model labelled.csv --edges their_links.csv --json
    """
    from gsparc.tables.reading import place_of
    from gsparc.tables.typing import read_more_rows

    model = load_table_model(model_folder)
    table = read_more_rows(source, model)
    links = None if edges is None else _links(model, table, edges, edge_source, edge_target)
    known = _already_known(model, table)
    document = {"model": str(model_folder), "source": str(source), "already_known": known}
    document |= model.evaluate(table, coverage=coverage, links=links)
    bad = document.pop("bad")
    document["unreadable"] = len(bad)
    if bad:
        row, reason = next(iter(bad.items()))
        file, number = place_of(table, row)
        say(f"note: {len(bad):,} rows cannot be read and are left out, such as {file}, row {number}: {reason}")
    unknown = document["classes"]["unknown_classes"] if document["classes"] else 0
    if unknown:
        rows = document["classes"]["rows"]
        say(
            f"note: {unknown:,} of {rows:,} rows are of a class that the model does not know: all figures count them "
            "as wrong, but for the accuracy on known classes"
        )
    if known:
        say(
            f"note: {known:,} of the rows are in the model already; it has learned from them, so it does better on them"
        )
    emit(document, as_json, _show)


def _already_known(model: Any, table: Any) -> int:
    if model.columns.id is None or model.columns.id not in table.column_names:
        return 0
    return int((model.find(table[model.columns.id]) >= 0).sum())


def _links(model: Any, table: Any, edges: Path, source: str | None, target: str | None) -> Any:
    """True links as rows of the table and positions of known nodes."""
    from gsparc.cli.table_models import read_first_edges
    from gsparc.exceptions import InputError
    from gsparc.tables._id_values import ids_like

    if model.columns.id is None or model.columns.id not in table.column_names:
        raise InputError("--edges needs ids: neither the model nor the rows may be without an id column.")
    import numpy as np

    ids = np.array(ids_like(model.node_ids, table[model.columns.id]).to_pylist(), object)
    found = read_first_edges(model, edges, source, target).of(ids)
    return found if found is not None else (np.zeros(0, np.int64), np.zeros(0, np.int64))


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console

    from gsparc.cli.table_models import show_facts

    classes, links = document["classes"], document["links"]
    if classes:
        low, high = classes["accuracy_interval"]
        span = "" if low is None else f" (95 % interval {100 * low:.1f} to {100 * high:.1f})"
        cover, where = classes["coverage"], classes["accuracy_where_it_says"]
        show_facts(
            [
                ("rows with a class", classes["rows"]),
                ("accuracy", f"{100 * classes['accuracy']:.1f} %{span}"),
                ("accuracy on known classes", _on_known(classes)),
                ("macro-F1", f"{100 * classes['macro_f1']:.1f} %"),
                ("calibration error", f"{100 * classes['ece']:.1f} %"),
                (
                    f"sets at {100 * cover['promised']:.0f} %",
                    f"hold the true class for {100 * cover['measured']:.1f} %, "
                    f"{cover['mean_size']:.1f} classes on average",
                ),
                ("abstained", f"{100 * classes['abstained']:.1f} %"),
                ("accuracy where it says", None if where is None else f"{100 * where:.1f} %"),
                ("rows of unknown classes", classes["unknown_classes"] or None),
            ]
        )
        _show_classes(Console(), classes["by_class"])
    if links:
        show_facts(
            [("rows with links", links["rows"]), ("MRR", f"{links['mrr']:.3f}"), ("hits@10", f"{links['hits@10']:.3f}")]
        )


def _on_known(classes: dict[str, Any]) -> str | None:
    """Accuracy without the rows of classes that the model does not know; None where that changes nothing."""
    found = classes["known_classes"]
    if not classes["unknown_classes"] or found["accuracy"] is None:
        return None
    return f"{100 * found['accuracy']:.1f} % of {found['rows']:,} rows"


def _show_classes(console: Any, lines: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("class", no_wrap=True)
    for heading in ("rows", "recall", "precision"):
        table.add_column(heading, justify="right", no_wrap=True)
    for line in lines[:30]:
        precision = "-" if line["precision"] is None else f"{100 * line['precision']:.1f} %"
        table.add_row(str(line["class"]), f"{line['rows']:,}", f"{100 * line['recall']:.1f} %", precision)
    console.print()
    console.print(table, markup=False, highlight=False)
