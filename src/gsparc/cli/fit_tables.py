"""``gsparc fit --nodes --edges``: from two tables of any kind to a table model."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from gsparc._processes import world
from gsparc.cli.common import INTERRUPTED, emit, say, write_error

__all__ = ["TableOptions", "fit_tables", "interrupts_keep", "measured_of", "save_with_report", "show_measured"]


@dataclass(frozen=True)
class TableOptions:
    """What was asked for."""

    nodes: Path
    edges: Path
    output: Path
    id: str | None
    target: str | None
    text: list[str]
    numeric: list[str]
    categorical: list[str]
    ignore: list[str]
    group: str | None
    edge_source: str | None
    edge_target: str | None
    edge_weight: str | None
    task: str | None
    clusters: int | None
    backbone: str
    holdout: float
    max_steps: int | None
    device: str
    seed: int
    resume: bool
    report: Path | None
    quiet: bool
    as_json: bool
    index_memory: str | None = None

    @property
    def name(self) -> str:
        """What the data is called: the file of the nodes, or its folder where that file is just 'nodes'."""
        folder = self.nodes.absolute().parent.name
        return folder if self.nodes.stem.lower() in ("nodes", "node") and folder else self.nodes.stem

    @property
    def state(self) -> Path:
        """Where a fit that is not finished keeps what is done."""
        return state_of(self.output)


def fit_tables(options: TableOptions) -> None:
    """Read, say what was understood, fit, report, save."""
    start = time.perf_counter()
    note = (lambda sentence: None) if options.quiet else say
    tasks = _tasks(options)
    nodes, edges, columns, edge_columns = _read(options, tasks, note)
    tasks = tasks or (("classes", "links") if columns.target else ("links",))
    prepare_state(options.state, options.resume, note)
    with interrupts_keep(options.state):
        model = _fit(options, nodes, edges, columns, edge_columns, tasks)
        if not world().first:
            return  # one process writes
        page = save_with_report(model, options.output, options.name, options.report, note)
    shutil.rmtree(options.state, ignore_errors=True)
    found = _document(model, options, page, time.perf_counter() - start)
    emit(found, options.as_json, _show_briefly if options.quiet else _show)


@contextmanager
def interrupts_keep(state: Path) -> Iterator[None]:
    """An interrupted fit says where what is done is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        kept = f"what is done is kept in {state}. Go on with: {_again()}"
        write_error(f"interrupted; {kept if state.exists() else 'nothing was written.'}")
        raise typer.Exit(INTERRUPTED) from None


def _again() -> str:
    arguments = [part for part in sys.argv[1:] if part != "--resume"]
    return shlex.join(["gsparc", *arguments, "--resume"])


def _tasks(options: TableOptions) -> tuple[str, ...]:
    from gsparc._validation import check_name

    if options.task is None:
        return ()
    names = [part.strip() for part in options.task.split(",") if part.strip()]
    return tuple(dict.fromkeys(check_name("task", name, ("classes", "clusters", "links")) for name in names))


def _several(given: list[str], names: list[str]) -> list[str]:
    """Columns of an option that was repeated, or written with commas."""
    out: list[str] = []
    for value in given:
        out += [value] if value in names else [part.strip() for part in value.split(",") if part.strip()]
    return out


def _read(options: TableOptions, tasks: tuple[str, ...], note: Any) -> tuple[Any, Any, Any, Any]:
    """The two tables, and what their columns are; all of it said before work starts."""
    from gsparc._runtime import resolve_device
    from gsparc.cli.fit_usage import check_folder, check_report
    from gsparc.tables.columns import guess_columns, role_lines, sample_ends
    from gsparc.tables.fitting import FitSettings, check_settings
    from gsparc.tables.reading import read_table, table_files, typed
    from gsparc.tables.typing import typed_nodes

    # says what is missing before anything is read
    files = [*table_files(options.nodes, what="nodes"), *table_files(options.edges, what="edges")]
    check_folder(options.output, files)
    if options.report is not None:
        check_report(options.report, options.output, files)
    resolve_device(options.device)
    note(f"loading {options.nodes} and {options.edges}")
    written = read_table(options.nodes, what="nodes", written=None)
    edges, edge_columns = _read_edges(options)
    names, nodes, ends = written.column_names, typed(written), sample_ends(edges, edge_columns)
    columns = guess_columns(
        nodes,
        id=options.id,
        target=options.target,
        text=_several(options.text, names),
        numeric=_several(options.numeric, names),
        categorical=_several(options.categorical, names),
        ignore=_several(options.ignore, names),
        group=options.group,
        ends=ends,
    )
    nodes = typed_nodes(nodes, written, columns)
    note(f"{nodes.num_rows:,} nodes and {edges.num_rows:,} edges; what their columns are:")
    for line in role_lines(columns, nodes, edge_columns, ends):
        note(line)
    settings = FitSettings(
        tasks or ("links",), options.clusters, options.backbone, options.seed, holdout=options.holdout
    )
    check_settings(settings, columns.target)
    return nodes, edges, columns, edge_columns


def _read_edges(options: TableOptions) -> tuple[Any, Any]:
    from gsparc.tables.columns import guess_edge_columns
    from gsparc.tables.reading import read_table, typed
    from gsparc.tables.typing import typed_edges

    written = read_table(options.edges, what="edges", written=None)
    edges = typed(written)
    columns = guess_edge_columns(
        edges, source=options.edge_source, target=options.edge_target, weight=options.edge_weight
    )
    return typed_edges(edges, written, columns), columns


def state_of(output: Path) -> Path:
    """Where a fit that is not finished keeps what is done."""
    return output.absolute().parent / f".{output.name}.fit"


def prepare_state(state: Path, resume: bool, note: Any) -> None:
    """With --resume, and after a process was lost, what an earlier fit has left is used; else it is removed."""
    if not world().first or world().attempt:
        return
    if not state.exists():
        if resume:
            note("there is nothing to resume: starting from the beginning")
        return
    if resume:
        note(f"resuming from {state}")
        return
    note(f"removing what an earlier fit that was not finished has left in {state} (--resume would go on with it)")
    shutil.rmtree(state, ignore_errors=True)


def _fit(options: TableOptions, nodes: Any, edges: Any, columns: Any, edge_columns: Any, tasks: Any) -> Any:
    from gsparc._runtime import stage_bar
    from gsparc.tables.model import TableModel

    with stage_bar("fit", show=not options.quiet) as progress:
        return TableModel.fit(
            nodes,
            edges,
            columns,
            edge_columns,
            tasks=tasks,
            n_clusters=options.clusters,
            backbone=options.backbone,
            seed=options.seed,
            device=options.device,
            max_steps=options.max_steps,
            holdout=options.holdout,
            index_memory=options.index_memory,
            checkpoint=options.state,
            progress=progress,
            verbose=int(not options.quiet),
        )


def save_with_report(model: Any, output: Path, name: str, report: Path | None, note: Any) -> Path | None:
    """The model with its report inside, or the report where it was asked to be."""
    from gsparc._files import write_text
    from gsparc.exceptions import MissingExtraError

    try:
        from gsparc.report.table_page import render_table_page

        page = render_table_page(model.report, name=name, roles=_roles(model), drawn=_drawn(model))
    except MissingExtraError as error:
        note(f"no report was written: {error}")
        model.save(output, documents={})
        return None
    inside = report is None
    model.save(output, documents={"report.html": page.encode()} if inside else {})
    return output / "report.html" if report is None else write_text(report, page, "the report")


def _roles(model: Any) -> list[tuple[str, str]]:
    columns = model.columns.to_json()
    single = [(columns[role], role) for role in ("id", "target", "group") if columns[role]]
    several = [(name, role) for role in ("text", "numeric", "categorical", "vector") for name in columns[role]]
    return [*single, *several, *((name, f"ignored: {why}") for name, why in columns["ignored"].items())]


def _drawn(model: Any) -> dict[str, Any]:
    """Points of the report's map: some rows that the fit saw, and some that it did not."""
    import numpy as np

    from gsparc.experiments.layout import sample_rows

    rng, seen = np.random.default_rng(0), model.report["split"]["seen"]
    known, new = sample_rows(seen, 4000, rng), seen + sample_rows(len(model.node_ids) - seen, 1000, rng)
    codes = np.full(len(model.node_ids), -1) if model.classifier is None else model.classifier._codes
    return {
        "known": model.picture[known],
        "new": model.picture[new],
        "known_class": codes[known],
        "new_class": codes[new],
        "class_names": [] if model.class_names is None else [str(name) for name in model.class_names],
    }


def measured_of(report: dict[str, Any]) -> dict[str, Any]:
    """What a fit measured, of all that its report holds."""
    names = ("split", "classification", "links", "gains", "coverage", "first_edges", "edge_counts", "clusters")
    return {name: report[name] for name in names if name in report}


def _document(model: Any, options: TableOptions, page: Path | None, seconds: float) -> dict[str, Any]:
    report = model.report
    return {
        "model": str(options.output),
        "data": options.name,
        "nodes": report["data"]["nodes"],
        "edges": report["data"]["edges"],
        "features": report["data"]["features"],
        "labelled_nodes": report["data"]["labelled"],
        "tasks": list(model.tasks),
        "columns": model.columns.to_json(),
        "classes": None if model.class_names is None else [str(name) for name in model.class_names],
        "backbone": options.backbone,
        "seed": options.seed,
        "measured": measured_of(report),
        "edge_counts": report["data"]["edge_counts"],
        "index": model.indexes(),
        "notes": report["notes"],
        "summary": report["summary"],
        "report": None if page is None else str(page),
        "seconds": round(seconds, 3),
    }


def _show_briefly(document: dict[str, Any]) -> None:
    typer.echo(f"model: {document['model']}")
    if document["report"]:
        typer.echo(f"report: {document['report']}")


def _show(document: dict[str, Any]) -> None:
    typer.echo(
        f"{', '.join(document['tasks'])} of {document['data']}: {document['nodes']:,} nodes, "
        f"{document['edges']:,} edges, {document['features']:,} features"
        + (f", {len(document['classes'])} classes" if document["classes"] else "")
    )
    show_measured(document["measured"])
    typer.echo("")
    for sentence in document["summary"]:
        typer.echo(sentence)
    for name, sentence in document["index"].items():
        typer.echo(f"index of the {name}: {sentence}")
    typer.echo(f"\nmodel: {document['model']}")
    if document["report"]:
        typer.echo(f"report: {document['report']}")
    typer.echo(f"{document['seconds']:.1f} s")


def show_measured(measured: dict[str, Any]) -> None:
    """The methods beside each other, on rows that pretended to be new."""
    from rich.console import Console

    from gsparc.cli.tables import CLASS_COLUMNS, LINK_COLUMNS, methods_table

    split, console = measured["split"], Console()
    if measured["classification"]:
        title = f"\nclass of {split['cold_labelled']:,} rows that pretended to be new"
        console.print(methods_table(measured["classification"], CLASS_COLUMNS, title))
    if measured["links"]:
        title = f"\nlinks of {split['cold_ranked']:,} such rows, ranked against {split['seen']:,}"
        console.print(methods_table(measured["links"], LINK_COLUMNS, title))
