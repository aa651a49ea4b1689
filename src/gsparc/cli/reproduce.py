"""``gsparc reproduce``: the tables and figures of the paper, beside baselines, from real runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gsparc.cli.common import INTERRUPTED, AsJson, command, emit, say, write_error

if TYPE_CHECKING:
    from gsparc.experiments.engine import Experiment
    from gsparc.experiments.runner import Part

NAME = "reproduce"
TABLES = ("neighbourhood", "classification", "clustering", "links", "minibatch", "cold-share", "laplacians")
WORDS = (*TABLES, "audit", "all")
_PAGE = "reproduction.html"
_SEEDS = 10
_OUTPUT = Path("reproduced")  # not results, where a clone keeps the figures of its documentation


def _complete(incomplete: str) -> list[str]:
    return [word for word in WORDS if word.startswith(incomplete)]


@command
def run(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE",
            help=f"One or several: {', '.join(WORDS)}.",
            autocompletion=_complete,
            show_default=False,
        ),
    ],
    *,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help=f"How many seeds: 0, 1, ...; default {_SEEDS}, in a smoke run 1."),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option("--datasets", metavar="NAMES", help="Only these, separated by commas; names: --list."),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option("--methods", metavar="NAMES", help="Only these, separated by commas; names: --list."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--splits", "--settings", metavar="NAMES", help="Only these splits, shares, ...; names: --list."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes; default: one a core, on a GPU 4 at most, in a smoke run 1."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Keep finished cells, run only what is missing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over: finished cells are dropped.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help=f"Folder of result files and page; default {_OUTPUT}."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="Where the files of the data sets are.", exists=True, file_okay=False
        ),
    ] = None,
    generated: Annotated[
        bool, typer.Option("--generated", help="Made-up graphs of the size of reddit and amazon2m for them.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Does it run? One seed, few steps, a small generated graph.")
    ] = False,
    names: Annotated[
        bool, typer.Option("--list", help="Run nothing: show the data sets, splits and methods of TABLE.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make tables and figures of the paper again, beside baselines; 'all' makes every one and the leak test.

    - neighbourhood: which neighbours are found in features, in the true spectral embedding, by the learned map.

    - classification: classes of connected and of cold nodes, every method, four splits.

    - clustering: clusters of connected and of cold nodes.

    - links: links of cold nodes, ranked among all seen nodes and by LLP's protocol.

    - minibatch: Cluster-GCN with random, METIS, diffusion and spectral batches, against epochs and time.

    - cold-share: accuracy as the share of cold nodes grows.

    - laplacians: clustering under other Laplacians.

    - audit: the leak test, does anything of a cold node reach a model; on Cora, or the smallest of --datasets.

    Writes DIR/TABLE.json after every finished cell, so a killed run continues with --resume, and the page
    DIR/reproduction.html of everything in the folder. A cell that fails is noted in its place and the rest goes on;
    the exit status is 1 then, and --resume tries it again.

    Example:  gsparc reproduce classification --seeds 3 --datasets cora --splits dense

    Example:  gsparc reproduce classification --list

    Example:  gsparc reproduce links clustering --jobs 4

    Example:  gsparc reproduce all --resume
    """
    from gsparc._validation import check_name
    from gsparc.cli.files import check_output
    from gsparc.experiments.audit import check_nothing_is_lost

    if resume and fresh:
        raise typer.BadParameter("pass --resume to keep finished cells or --fresh to drop them.", param_hint="--fresh")
    words = list(dict.fromkeys(table))
    for word in words:
        check_name("table", word, WORDS)
    everything = "all" in words
    tables = TABLES if everything else tuple(word for word in words if word in TABLES)
    if names:
        emit(_listed(tables), as_json, _show_names)
        return
    _check_choices({"--datasets": datasets, "--methods": methods, "--splits": settings})
    if not tables:
        _check_leak_test({"--methods": methods, "--splits": settings, "--seeds": seeds}, device)
    folder = output or (_OUTPUT / "smoke" if smoke else _OUTPUT)
    check_output(folder, table=False)
    start = time.perf_counter()
    common: dict[str, Any] = {"smoke": smoke, "data_dir": data_dir, "generated": generated}
    common |= {"output": folder, "show_progress": not quiet}
    options: dict[str, Any] = {"seeds": seeds or (1 if smoke else _SEEDS), "device": device}
    options |= {"jobs": _jobs(jobs, device, smoke=smoke), "resume": resume, "fresh": fresh, **common}
    wanted = {"datasets": datasets, "methods": methods, "settings": settings}
    document: dict[str, Any] = {"tables": {}, "audit": None}
    again = f"gsparc reproduce {' '.join(words)} --resume"
    leak_test = everything or "audit" in words
    if leak_test:
        check_nothing_is_lost(folder, resume=resume, fresh=fresh)
    if tables:
        document["tables"] = _run_tables(tables, wanted, options, again=again)
    if leak_test:
        own = {"jobs": _jobs(jobs, "cpu", smoke=smoke), "resume": resume, "fresh": fresh}
        document["audit"] = _run_audit(datasets, {**common, **own}, again=again)
    document["page"], trouble = _page(folder, needed=everything)
    document["seconds"] = round(time.perf_counter() - start, 3)
    emit(document, as_json, _show)
    _leave(document, trouble)


def _jobs(asked: int | None, device: str, *, smoke: bool) -> int:
    """How many processes; a smoke run is over before a second one has started."""
    from gsparc.experiments.workers import usual_jobs

    return asked or (1 if smoke else usual_jobs(device))


def _check_choices(given: dict[str, list[str] | None]) -> None:
    """Refuse an option that names nothing, as an empty variable of a shell does: all would be run in its place."""
    for option, texts in given.items():
        if texts and _names(texts, ()) is None:
            raise typer.BadParameter(
                f"{texts[-1]!r} names nothing. Pass at least one name, or leave the option out for all of them.",
                param_hint=option,
            )


def _check_leak_test(given: dict[str, Any], device: str) -> None:
    """Refuse what the leak test, without a table beside it, would not do."""
    for option, value in given.items():
        if value:
            raise typer.BadParameter(
                "the leak test has no such choice: it runs on all estimators, with one split and one seed.",
                param_hint=option,
            )
    if device not in ("auto", "cpu"):
        raise typer.BadParameter(
            "the leak test runs on the CPU, where equal input promises equal bytes.", param_hint="--device"
        )


def _run_tables(
    names: Collection[str], wanted: dict[str, Any], options: dict[str, Any], *, again: str
) -> dict[str, dict[str, Any]]:
    """Rows and failed cells of the tables; all are run by the same processes. ``again``: the command to go on with."""
    from gsparc.experiments.runner import run_experiments

    parts = _parts(names, wanted)
    if not parts:
        return {}
    folder: Path = options["output"]
    files = {name: folder / f"{part.experiment.name}.json" for name, part in parts.items()}
    try:
        results = run_experiments(parts.values(), **options)
    except KeyboardInterrupt:
        if any(file.exists() for file in files.values()):
            place = f"the result files of {folder}" if len(names) > 1 else next(iter(files.values()))
            write_error(
                f"interrupted; finished cells are kept in {place}. Continue with the same command and --resume "
                f"({again} ...)."
            )
        else:
            write_error("interrupted before the first cell was finished; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    return {name: _summary(files[name], parts[name], result) for name, result in zip(parts, results, strict=True)}


def _parts(names: Collection[str], wanted: dict[str, Any]) -> dict[str, Part]:
    """What to run of the tables of these names; of several, each gives what it has of the names asked for."""
    from gsparc.experiments.runner import Part, load_table

    tables = {name: load_table(name) for name in names}
    chosen = _chosen(wanted, tables.values())
    if len(tables) == 1:
        return {name: Part(table, **chosen) for name, table in tables.items()}
    anywhere = {dataset for table in tables.values() for dataset in table.datasets}
    found = {name: _part(table, chosen, anywhere=anywhere) for name, table in tables.items()}
    if without := [name for name, part in found.items() if part is None]:
        say(f"left out, as nothing of what was asked for is in them: {', '.join(without)}")
    return {name: part for name, part in found.items() if part is not None}


def _part(table: Experiment, chosen: dict[str, list[str] | None], *, anywhere: set[str]) -> Part | None:
    """What a table has of the names asked for, None where that is nothing; ``anywhere``: data sets of all tables."""
    from gsparc.experiments.runner import Part

    own: dict[str, list[str] | None] = {}
    for kind, names in chosen.items():
        known = _known(table, kind)
        # a data set that no table has of its own is one for all of them
        own[kind] = names and [n for n in names if n in known or (kind == "datasets" and n not in anywhere)]
        if own[kind] == []:
            return None
    return Part(table, **own)


def _summary(file: Path, part: Part, result: dict[str, Any]) -> dict[str, Any]:
    """What is printed of a result file; ``asked``: the methods asked for, None for all."""
    from gsparc.experiments.runner import failed_cells

    keys = ("title", "question", "x_axis", "methods", "metrics", "rows")
    return {
        "file": str(file),
        **{key: result[key] for key in keys},
        "asked": part.methods,
        "cells": len(result["cells"]),
        "failed": {key: result["cells"][key]["error"] for key in failed_cells(result)},
    }


def _chosen(wanted: dict[str, list[str] | None], tables: Collection[Experiment]) -> dict[str, list[str] | None]:
    """The names asked for, as these tables spell them; one that none of several tables has is a mistake."""
    from gsparc._validation import check_name

    known = {kind: [name for table in tables for name in _known(table, kind)] for kind in wanted}
    chosen = {kind: _names(texts, known[kind]) for kind, texts in wanted.items()}
    if len(tables) > 1:  # of one table, running it says so
        for kind, word in (("methods", "method"), ("settings", "setting")):
            for name in chosen[kind] or ():
                check_name(word, name, dict.fromkeys(known[kind]))
    return chosen


def _known(table: Experiment, kind: str) -> list[str]:
    """Names of a table."""
    if kind == "methods":
        return [method.label for method in table.methods]
    if kind == "settings":
        return list(dict.fromkeys(setting for name in table.datasets for setting in table.settings(name)))
    return list(table.datasets)


def _listed(names: Collection[str]) -> dict[str, Any]:
    """Names that the options take, table by table."""
    from gsparc.datasets import list_datasets
    from gsparc.experiments.runner import load_table

    tables = {name: load_table(name) for name in names}
    kinds = {"datasets": "datasets", "splits": "settings", "methods": "methods"}
    listed = {name: {option: _known(table, kind) for option, kind in kinds.items()} for name, table in tables.items()}
    return {"tables": listed, "datasets": [entry.name for entry in list_datasets()]}


def _names(wanted: Iterable[str] | None, known: Iterable[str]) -> list[str] | None:
    """Names from options that may be repeated and may hold several, separated by commas.

    A known name may hold commas itself: at each place the longest known name is taken.
    """
    if not wanted:
        return None
    whole = {tuple(_pieces(name.lower())): name for name in known}
    names = []
    for text in wanted:
        pieces = _pieces(text)
        while pieces:
            lower = tuple(piece.lower() for piece in pieces)
            length = next((n for n in range(len(pieces), 0, -1) if lower[:n] in whole), 1)
            names.append(whole.get(lower[:length], pieces[0]))
            del pieces[:length]
    return [name for name in names if name] or None


def _pieces(text: str) -> list[str]:
    return [piece.strip() for piece in text.split(",")]


def _run_audit(datasets: list[str] | None, common: dict[str, Any], *, again: str) -> dict[str, Any]:
    """The leak test on the smallest of the data sets that are named, or on its own."""
    from gsparc.datasets import list_datasets
    from gsparc.experiments.audit import UNFINISHED, run_audit

    edges = {entry.name: entry.edges for entry in list_datasets()}
    smallest = min(_names(datasets, edges) or [], key=lambda name: edges.get(name, 0), default=None)
    try:
        result = run_audit(dataset=smallest, **common)
    except KeyboardInterrupt:
        kept = common["output"] / UNFINISHED
        words = f"interrupted; finished fits of the leak test are kept in {kept}" if kept.exists() else "interrupted"
        write_error(f"{words}. Continue with the same command and --resume ({again} ...).")
        raise typer.Exit(INTERRUPTED) from None
    keys = ("dataset", "rows", "controls", "seen_nodes", "cold_nodes")
    return {"file": str(common["output"] / "audit.json"), **{key: result[key] for key in keys}}


def _page(folder: Path, *, needed: bool) -> tuple[str | None, str | None]:
    """The page of all results in the folder, or why there is none: that is said after the results, which stand.

    Plots need an extra, without which one table is made all the same.
    """
    from gsparc.exceptions import GsparcError, MissingExtraError
    from gsparc.report.reproduction import write_page

    try:
        return str(write_page(folder, folder / _PAGE)), None
    except GsparcError as error:
        words = f"no page was written: {error}"
        if needed or not isinstance(error, MissingExtraError):
            return None, words
        say(f"note: {words}")
        return None, None


def _leave(document: dict[str, Any], trouble: str | None) -> None:
    """Status 1 with the names of what failed, and of what leaks; ``trouble``: what was wrong with the page."""
    failed = [f"{name}: {key}" for name, table in document["tables"].items() for key in table["failed"]]
    if failed:
        shown = "; ".join(failed[:10]) + (f"; and {len(failed) - 10} more" if len(failed) > 10 else "")
        write_error(f"{len(failed)} cell(s) failed: {shown}. Their reasons are in the result files; try with --resume.")
    audit = document["audit"]
    leaks = [] if audit is None else [row for row in audit["rows"] if not row["identical"]]
    blind = [] if audit is None else [row["estimator"] for row in audit["controls"] if not row["noticed"]]
    if leaks:
        write_error(f"the leak test failed: {'; '.join(sorted({row['estimator'] for row in leaks}))}.")
    if blind:
        write_error(f"the leak test proves nothing: no change to a seen node was noticed by {'; '.join(blind)}.")
    if trouble:
        write_error(trouble)
    if failed or leaks or blind or trouble:
        raise typer.Exit(1)


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console

    from gsparc.cli.result_tables import audit_table, result_table

    console = Console()
    for table in document["tables"].values():
        console.print("", result_table(table))
        console.print(f"Results: {table['file']}", highlight=False, markup=False, soft_wrap=True)
    if document["audit"] is not None:
        console.print("", audit_table(document["audit"]))
    if document["page"] is not None:
        console.print(f"\nPage: {document['page']}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"All of it took {document['seconds']:.0f} s.", highlight=False)


def _show_names(document: dict[str, Any]) -> None:
    from rich.console import Console

    from gsparc.cli.result_tables import names_table

    Console().print(names_table(document))
