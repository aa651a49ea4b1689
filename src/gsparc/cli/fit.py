"""``gsparc fit``: a model from a node table and an edge table, or a classifier from a data set."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc._processes import world
from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit, say
from gsparc.cli.fit_usage import (
    BACKBONES,
    check_folder,
    check_usage,
    check_values,
    refuse_beside_a_store,
    refuse_other_sources,
    refuse_the_other_form,
)
from gsparc.cli.processes import JoinTimeout, Processes, start_processes, together

NAME = "fit"
_HOLDOUT = 0.2
_KINDS = "CSV, TSV, Parquet, Feather, Arrow or JSON lines"


@command
@together
def run(
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder for the model.")],
    nodes: Annotated[
        Path | None, typer.Option("--nodes", metavar="FILE", help=f"Table with one row a node: {_KINDS}.")
    ] = None,
    edges: Annotated[Path | None, typer.Option("--edges", metavar="FILE", help="Table with one row an edge.")] = None,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Instead of tables: what 'gsparc ingest' wrote.")
    ] = None,
    id_column: Annotated[str | None, typer.Option("--id", metavar="COLUMN", help="Names of the nodes.")] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "--label", metavar="COLUMN", help="Column of the nodes with the classes; no feature."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option("--text", metavar="COLUMN", help="Words. May be repeated, or a,b.")
    ] = None,
    numeric: Annotated[list[str] | None, typer.Option("--numeric", metavar="COLUMN", help="Numbers.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option("--categorical", metavar="COLUMN", help="Names of few kinds.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="COLUMN", help="Not to be used.")] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="COLUMN", help="Rows that are held out together, such as siblings.")
    ] = None,
    edge_source: Annotated[
        str | None, typer.Option("--edge-source", "--source", metavar="COLUMN", help="One end of an edge.")
    ] = None,
    edge_target: Annotated[str | None, typer.Option("--edge-target", metavar="COLUMN", help="The other end.")] = None,
    edge_weight: Annotated[
        str | None, typer.Option("--edge-weight", "--weight", metavar="COLUMN", help="Weight of an edge.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="TASKS",
            help="Some of classes,links,clusters. Default: classes,links; links alone without a target.",
        ),
    ] = None,
    clusters: Annotated[
        int | None, typer.Option("--clusters", min=2, help="How many clusters. Default: as many as classes.")
    ] = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout", min=0.0, max=0.8, show_default=str(_HOLDOUT), help="Share of the rows that pretend to be new."
        ),
    ] = None,
    index_memory: Annotated[
        str | None,
        typer.Option(
            "--index-memory",
            metavar="SIZE",
            help="Memory for the indexes of the nodes, such as 2GB; beyond, their rows stay on disk.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was interrupted.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Where to write the report. Default: in the folder.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Instead of tables: a data set's name, an .npz file or a folder.")
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="The paper's settings, such as phormer/pubmed; alone: its data set too."),
    ] = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help=f"{', '.join(BACKBONES)}.")] = None,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate", help="With --dataset or --recipe: keep a fifth of the nodes out, and compare."),
    ] = False,
    max_steps: MaxSteps = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    processes: Processes = None,
    join_timeout: JoinTimeout = 60.0,
    seed: Seed = 0,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no notes, and of the result only where it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model on a node table and an edge table, and save it; it predicts new rows by their columns alone.

    What a column is (words, numbers, categories, ids, classes) is guessed and printed where no option says it.
    A fifth of the rows pretends to be new: half of them decide when to stop, half say whether the graph helps on
    this data, beside methods on the features alone. They join the model afterwards. An interrupted fit goes on with
    --resume.

    Example:  gsparc fit --nodes packages.csv --edges depends.csv --target section -o model

    Example:  gsparc fit --nodes n.parquet --edges e.parquet --id package --target section --text description
    --numeric installed_size --categorical arch --task classes,links,clusters -o model

    --processes 2 trains with two processes on one model. Across machines, start the same command on each of them with
    torchrun --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 -m gsparc fit ...

    With --store the tables are those of a store (gsparc ingest): up to 200,000 nodes the model and its
    report are those of tables; beyond it is a spectral map, a network for the classes and an index, which never hold
    all rows in memory; it has no graph network, takes no first edges, does not grow and does not cluster, and no
    report.html is written. Rows were held out by the ingest, so --holdout is said there.

    Example:  gsparc fit --store store --index-memory 2GB -o model

    With --dataset or --recipe a single classifier is fitted on ready-made features.

    Example:  gsparc fit --recipe phormer/pubmed --evaluate -o model
    """
    check_values(backbone, index_memory)
    if store is not None:
        refuse_other_sources(dataset, nodes, edges, recipe)
        said = {"--id": id_column, "--target": target, "--text": text, "--numeric": numeric, "--group": group}
        said |= {"--categorical": categorical, "--ignore": ignore, "--edge-source": edge_source}
        said |= {"--edge-target": edge_target, "--edge-weight": edge_weight}
        said |= {"--holdout": holdout}
        refuse_beside_a_store(said, {"--report": report, "--evaluate": evaluate})
        check_folder(output, [store])
    else:
        check_usage(dataset, nodes, edges, recipe, backbone)
        said = {"--id": id_column, "--text": text, "--numeric": numeric, "--categorical": categorical, "--group": group}
        said |= {"--ignore": ignore, "--edge-source": edge_source, "--edge-target": edge_target, "--task": task}
        said |= {"--edge-weight": edge_weight, "--clusters": clusters, "--resume": resume, "--report": report}
        said |= {"--holdout": holdout}
        refuse_the_other_form(nodes is not None and recipe is None, said, evaluate)
    start_processes(processes, quiet=quiet)
    if store is not None:
        from gsparc.cli.fit_store import fit_from_store

        with _notes(quiet):
            fit_from_store(
                store,
                output,
                task=task,
                clusters=clusters,
                backbone=backbone,
                max_steps=max_steps,
                device=device,
                index_memory=index_memory,
                seed=seed,
                resume=resume,
                quiet=quiet,
                as_json=as_json,
            )
        return
    if nodes is not None and edges is not None and recipe is None:
        from gsparc.cli.fit_tables import TableOptions, fit_tables

        with _notes(quiet):
            fit_tables(
                TableOptions(
                    nodes=nodes,
                    edges=edges,
                    output=output,
                    id=id_column,
                    target=target,
                    text=text or [],
                    numeric=numeric or [],
                    categorical=categorical or [],
                    ignore=ignore or [],
                    group=group,
                    edge_source=edge_source,
                    edge_target=edge_target,
                    edge_weight=edge_weight,
                    task=task,
                    clusters=clusters,
                    backbone=backbone or "auto",
                    holdout=_HOLDOUT if holdout is None else holdout,
                    index_memory=index_memory,
                    max_steps=max_steps,
                    device=device,
                    seed=seed,
                    resume=resume,
                    report=report,
                    quiet=quiet,
                    as_json=as_json,
                )
            )
        return
    start = time.perf_counter()
    followed = None if recipe is None else _recipe(recipe)
    from gsparc.datasets.registry import as_path

    check_folder(output, [nodes, edges, None if dataset is None else as_path(dataset)])
    with _notes(quiet) as note:
        data = _load(dataset, nodes, edges, target, None if followed is None else followed.dataset, note)
        common = {"device": device, "random_state": seed, "verbose": int(not quiet), "index_memory": index_memory}
        model = _classifier(followed, backbone, max_steps, **common)
        evaluation = _fit(model, data, evaluate, max_steps, note)
        if world().first:
            _save(model, output, data)
    document = {
        "model": str(output),
        "data": data.name,
        "nodes": data.graph.num_nodes,
        "edges": data.graph.num_edges,
        "features": int(data.X.shape[1]),
        "labelled_nodes": int((data.y >= 0).sum()),
        "classes": [str(name) for name in model.classes_],
        "recipe": recipe,
        "backbone": str(model.backbone),
        "seed": seed,
        "evaluation": evaluation,
        "report": getattr(model, "report_", None),
        "seconds": round(time.perf_counter() - start, 3),
    }
    emit(document, as_json, _show_briefly if quiet else _show)


@contextmanager
def _notes(quiet: bool) -> Iterator[Callable[[str], None]]:
    """What progress is told to; a quiet command keeps the library's log to warnings while it runs."""
    logger = logging.getLogger("gsparc")
    before = logger.level
    if quiet:
        logger.setLevel(logging.WARNING)
    try:
        yield (lambda sentence: None) if quiet else say
    finally:
        logger.setLevel(before)


def _recipe(name: str) -> Any:
    from gsparc.recipes import load_recipe

    return load_recipe(name)


def _classifier(recipe: Any, backbone: str | None, max_steps: int | None, **settings: Any) -> Any:
    """The classifier that was asked for; ``max_steps`` holds for the map and for the network alike."""
    from gsparc._runtime import resolve_device
    from gsparc.estimators import SparcClassifier, SpectralMap

    resolve_device(settings["device"])
    steps: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
    if recipe is not None:
        return recipe.classifier(**settings, **steps, spectral_map=recipe.spectral_map(**steps))
    if backbone is not None:
        settings["backbone"] = backbone
    model = SparcClassifier(**settings, **steps)
    if steps:
        model.set_params(spectral_map=SpectralMap(model.n_components, **steps))
    return model


def _load(
    dataset: str | None,
    nodes: Path | None,
    edges: Path | None,
    target: str | None,
    own: str | None,
    note: Callable[[str], None],
) -> Any:
    """The data set, two tables, or else the recipe's ``own`` data set; with classes."""
    from gsparc.datasets import load_dataset, load_tables
    from gsparc.exceptions import LabelError

    if nodes is not None:
        note(f"loading {nodes} and {edges}")
        data = load_tables(nodes, edges, label=target, name=nodes.stem)
    else:
        name = dataset or str(own)
        note(f"loading {name}" + ("" if dataset else ", the recipe's own data set"))
        data = load_dataset(name, allow_pickle_sources=False, label=target)
    if data.y is None or not (data.y >= 0).any():
        raise LabelError(
            f"{data.name} has no classes to learn. Name the column that holds them: --target COLUMN (of a table), "
            "or give an .npz file an array y."
        )
    return _in_order_of_names(data)


def _in_order_of_names(data: Any) -> Any:
    """The same data with classes numbered in the order of their names, as scikit-learn orders them."""
    from dataclasses import replace

    import numpy as np

    if data.class_names is None:
        return data
    order = np.argsort(data.class_names, kind="stable")
    number = np.append(np.argsort(order), -1)  # the last one is for -1, unlabelled
    return replace(data, y=number[data.y], class_names=data.class_names[order])


def _fit(
    model: Any, data: Any, evaluate: bool, max_steps: int | None, note: Callable[[str], None]
) -> dict[str, Any] | None:
    """Fit the classifier; where nodes were kept out, say how it does on them."""
    if not evaluate:
        note(f"fitting on {data.graph.num_nodes:,} nodes and {data.graph.num_edges:,} edges")
        model.fit(data.X, data.y, graph=data.graph)
        return None
    from gsparc.baselines import MLPBaseline
    from gsparc.experiments import compare_classifiers
    from gsparc.splits import ColdStartSplit

    seed = model.random_state
    fold = next(iter(ColdStartSplit("dense", random_state=seed).folds(data.X, data.y, data.groups)))
    X, y, graph = data.X[fold.seen], fold.visible_labels(data.y), data.graph[fold.seen]
    judged, validation = fold.cold[data.y[fold.cold] >= 0], (data.X[fold.val], data.y[fold.val])
    note(
        f"fitting on {len(fold.seen):,} nodes and {graph.num_edges:,} edges; "
        f"{len(fold.val):,} without edges decide when to stop, {len(fold.cold):,} are kept out"
    )
    model.fit(X, y, graph=graph, validation=validation)
    note("fitting an MLP on the features")
    steps: dict[str, Any] = {} if max_steps is None else {"max_steps": max_steps}
    plain = MLPBaseline(device=model.device, random_state=seed, **steps).fit(X, y, validation=validation)
    methods = {"MLP on features": plain, "gsparc": model}
    probabilities = {name: method.predict_proba(data.X[judged]) for name, method in methods.items()}
    rows, _ = compare_classifiers(data.y[judged], probabilities, model.classes_, ours=["gsparc"])
    return {"split": "dense", "seen": len(fold.seen), "cold": len(judged), "methods": rows}


def _save(model: Any, output: Path, data: Any) -> None:
    from gsparc.cli.models import save_with_names

    if data.class_names is not None:
        # fitted on class numbers, where -1 can say unlabelled; predictions are to bear the names
        model.classes_ = data.class_names[model.classes_]
    save_with_names(model, output, data.feature_names)


def _show_briefly(document: dict[str, Any]) -> None:
    typer.echo(f"model: {document['model']}")


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console

    from gsparc.cli.tables import CLASS_COLUMNS, methods_table

    of = f"recipe {document['recipe']}" if document["recipe"] else f"backbone {document['backbone']}"
    typer.echo(
        f"SparcClassifier ({of}) on {document['data']}: {document['nodes']:,} nodes, "
        f"{document['labelled_nodes']:,} of them labelled, {document['edges']:,} edges, "
        f"{len(document['classes'])} classes"
    )
    measured = document["evaluation"]
    if measured:
        title = f"\nclass of {measured['cold']:,} nodes kept out, fitted on {measured['seen']:,}"
        Console().print(methods_table(measured["methods"], CLASS_COLUMNS, title))
    if document["report"]:
        typer.echo(f"\n{document['report']}")
    typer.echo(f"\nmodel: {document['model']}\n{document['seconds']:.1f} s")
