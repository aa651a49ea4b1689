"""``gsparc fit --store`` and ``gsparc embed STORE``: the same as for tables, a block of rows at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from gsparc.cli.common import emit, say
from gsparc.cli.fit_tables import measured_of, save_with_report, show_measured

__all__ = ["embed_store", "fit_from_store"]


def fit_from_store(
    folder: Path,
    output: Path,
    *,
    task: str | None,
    clusters: int | None,
    backbone: str | None,
    max_steps: int | None,
    device: str,
    index_memory: str | None,
    seed: int,
    resume: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Fit a model on a store and save it."""
    import shutil

    from gsparc._processes import world
    from gsparc._runtime import resolve_device, stage_bar
    from gsparc._validation import check_memory, check_name
    from gsparc.cli.fit_tables import interrupts_keep, prepare_state, state_of
    from gsparc.storage import open_store

    start = time.perf_counter()
    store = open_store(folder)
    resolve_device(device)
    names = [part.strip() for part in (task or "").split(",") if part.strip()]
    tasks = tuple(check_name("task", name, ("classes", "clusters", "links")) for name in names)
    tasks = tasks or (("classes", "links") if store.y is not None else ("links",))
    from gsparc.storage.fitting import SMALL, model_of_store
    from gsparc.storage.model import ABOUT
    from gsparc.tables.fitting import FitSettings

    memory = None if index_memory is None else check_memory("--index-memory", index_memory)
    settings = FitSettings(
        tasks, clusters, backbone or "auto", seed, device, max_steps, index_memory=memory, verbose=int(not quiet)
    )
    if store.num_nodes > SMALL:
        _refuse_what_is_for_small_ones(store.num_nodes, tasks, backbone)
    if world().first:  # a damaged array would end in nonsense or in a crash, hours later
        store.verify()
    if not quiet:
        say(f"store: {store.num_nodes:,} nodes, {store.meta['edges']:,} edges, {store.shape[1]:,} features")
        if store.num_nodes > SMALL:
            say(f"note: of more than {SMALL:,} nodes it will be {ABOUT}")
    state = state_of(output)
    prepare_state(state, resume, (lambda sentence: None) if quiet else say)
    with interrupts_keep(state), stage_bar("fit", show=not quiet) as progress:
        model = model_of_store(store, settings, checkpoint=state, progress=progress)
        if model is None or not world().first:
            return  # one process writes
        progress("writing the model", 0.98)
    small, page = store.num_nodes <= SMALL, None
    with interrupts_keep(state):
        if small:
            page = save_with_report(model, output, folder.absolute().name, None, (lambda _: None) if quiet else say)
        else:
            model.save(output, documents={})
    shutil.rmtree(state, ignore_errors=True)
    document = {
        "model": str(output),
        "store": str(folder),
        "nodes": store.num_nodes,
        "edges": store.meta["edges"],
        "features": store.shape[1],
        "tasks": list(model.tasks),
        "index": model.indexes(),
        "measured": measured_of(model.report) if small else model.report.get("measured"),
        "summary": model.report["summary"],
        "report": None if page is None else str(page),
        "stage_seconds": model.report["seconds"],
        "map_seconds": model.report.get("map_seconds"),
        "seconds": round(time.perf_counter() - start, 3),
    }
    brief = f"model: {output}"
    emit(document, as_json, (lambda _: typer.echo(brief)) if quiet else _show)


def _refuse_what_is_for_small_ones(nodes: int, tasks: tuple[str, ...], backbone: str | None) -> None:
    from gsparc.exceptions import InputError

    if "clusters" in tasks or backbone not in (None, "auto", "mlp"):
        raise InputError(
            f"a store of {nodes:,} nodes is fitted by a network of features and coordinates (--task classes,links); "
            "clusters and other backbones are for stores of up to 200,000 nodes."
        )


def _show(document: dict[str, Any]) -> None:
    typer.echo(
        f"{', '.join(document['tasks'])} of {document['store']}: {document['nodes']:,} nodes, {document['edges']:,} "
        f"edges, {document['features']:,} features"
    )
    if document["report"]:  # a model of tables
        show_measured(document["measured"])
        typer.echo("")
    for sentence in [*document["summary"], *document["index"].values()]:
        typer.echo(sentence)
    typer.echo(f"\nmodel: {document['model']}")
    if document["report"]:
        typer.echo(f"report: {document['report']}")
    typer.echo(f"{document['seconds']:.1f} s")


def embed_store(
    folder: Path, output: Path, *, model: Path | None, model_out: Path | None, settings: dict[str, Any], as_json: bool
) -> None:
    """Coordinates of all nodes of a store, by a saved model or by a map that is fitted on it."""
    from gsparc._files import refuse_overwriting
    from gsparc.storage import open_store

    start = time.perf_counter()
    store = open_store(folder)
    store.verify()
    refuse_overwriting(output, (folder / name for name in store.meta["files"]))
    if output.suffix.lower() not in (".npy", ".parquet"):
        raise typer.BadParameter("coordinates of a store are written to .npy or .parquet.", param_hint="--output")
    spectral, blocks = _embedding(store, model, settings)
    if model_out is not None:
        spectral.save(model_out)
    rows, width = _write(output, store, blocks)
    document = {
        "output": str(output),
        "rows": rows,
        "components": width,
        "model": str(model or model_out) if model or model_out else None,
        "seconds": round(time.perf_counter() - start, 3),
    }
    emit(document, as_json, lambda found: typer.echo(f"{rows:,} nodes, {width} coordinates each: {output}"))


def _embedding(store: Any, model: Path | None, settings: dict[str, Any]) -> tuple[Any, Iterator[Any]]:
    from gsparc.estimators import SpectralMap, load_model
    from gsparc.exceptions import ModelFolderError
    from gsparc.model_store import read_folder

    if model is None:
        say(f"fitting SpectralMap on {store.num_nodes:,} nodes and {store.meta['edges']:,} edges")
        spectral = SpectralMap(**settings).fit(store)
        return spectral, spectral.transform_blocks(store)
    kind = read_folder(model)[0].get("class")
    if kind in ("StoreModel", "TableModel"):
        from gsparc.tables.model import TableModel

        loaded = TableModel.load(model)
        return loaded, _model_blocks(store, loaded)
    if kind != "SpectralMap":
        raise ModelFolderError(f"{model} holds a {kind}, expected a SpectralMap or a model of 'gsparc fit'.")
    spectral = load_model(model)
    return spectral, spectral.transform_blocks(store)  # type: ignore[attr-defined]


def _model_blocks(store: Any, model: Any) -> Iterator[Any]:
    for start in range(0, store.num_nodes, 1 << 16):
        part = store.X[start : start + (1 << 16)]
        yield model.embed(part)
        store.release()


def _write(output: Path, store: Any, blocks: Iterator[Any]) -> tuple[int, int]:
    """All blocks to a file that is there when it is complete."""
    import numpy as np
    import pyarrow as pa

    from gsparc._files import write_atomically
    from gsparc._mapped import NpyWriter
    from gsparc.tables.writing import TableWriter

    first = next(blocks)
    width, rows = first.shape[1], 0

    def everything() -> Iterator[Any]:
        yield first
        yield from blocks

    if output.suffix.lower() == ".npy":

        def write(path: Path) -> None:
            with NpyWriter(path, np.float32, width) as writer:
                for part in everything():
                    writer.append(part)

        write_atomically(output, write)
        return store.num_nodes, width
    ids = store.id_column() if store.meta["ids"] != "positions" else None
    with TableWriter(output) as writer:
        for part in everything():
            own = np.arange(rows, rows + len(part)) if ids is None else ids.slice(rows, len(part))
            writer.write(pa.table({"id": own, **{f"c{i + 1}": part[:, i] for i in range(width)}}))
            rows += len(part)
    return rows, width
