"""``gsparc links``: the likeliest neighbours of nodes that have no edges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit, say
from gsparc.cli.embed import Data, Label, ModelIn, ModelOut, New, check_sources, check_width

NAME = "links"


@command
def run(
    data: Data = None,
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write: .parquet, .csv or .npz.")
    ] = None,
    new: New = None,
    label: Label = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Suggestions for each new node.")] = 20,
    comparable: Annotated[
        bool, typer.Option("--comparable", help="Scores that can be compared between new nodes, not only within each.")
    ] = False,
    model: ModelIn = None,
    model_out: ModelOut = None,
    components: Annotated[
        int | None, typer.Option("--components", min=1, help="Width of each map, instead of the default.")
    ] = None,
    max_steps: MaxSteps = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Suggest links of new nodes; without --new, measure on held-out nodes how good suggestions are.

    Columns: id, rank, target, score, the best suggestion of a node first. Scores rank the suggestions of one node;
    for one list over all new nodes, sorted by score, pass --comparable. Without --new a fifth of DATA's nodes is
    held out (split 'dense'), and the mean reciprocal rank is shown beside that of feature cosine.

    Example:  gsparc links graph.npz --new new.npz -k 20 -o links.parquet
    """
    check_sources(data, new, model, model_out, label)
    start = time.perf_counter()
    settings: dict[str, Any] = {"random_state": seed, "verbose": 1}
    if components is not None:
        settings["n_components"] = components
    if max_steps is not None:  # of each of the two phases
        settings |= {"spectral_steps": max_steps, "refine_steps": max_steps}
    if new is not None:
        if output is None:
            raise typer.BadParameter("with --new say where to write: -o links.parquet.", param_hint="-o")
        sources = {"label": label, "model": model, "model_out": model_out}
        document = _suggest(data, new, output, k, comparable, **sources, settings=settings)
    else:
        if model is not None or model_out is not None or data is None:
            raise typer.BadParameter(
                "a saved model needs --new; without it the model is fitted on a part of DATA only.",
                param_hint="--model",
            )
        document = _measure(data, label, output, k, comparable, settings)
    document["seconds"] = round(time.perf_counter() - start, 3)
    emit(document, as_json, _show)


def _suggest(
    data: str | None,
    new: str,
    output: Path,
    k: int,
    comparable: bool,
    *,
    label: str | None,
    model: Path | None,
    model_out: Path | None,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from gsparc.cli.files import align_columns, check_output, load_nodes
    from gsparc.cli.models import load_as, save_with_names
    from gsparc.datasets import load_dataset

    check_output(output, inputs=(data, new))
    if model is not None:
        predictor, names = load_as(model, "SparcLinkPredictor")
        further = load_nodes(new, names)
        X = align_columns(further, names, "the model")
        if data is not None:
            say("note: the saved model knows its own nodes; DATA is not used")
    else:
        seen = load_dataset(str(data), allow_pickle_sources=False, label=label)
        names = seen.feature_names
        further = load_nodes(new, names)
        X = align_columns(further, names, seen.name)
        check_width(X, seen.X, further.name, seen.name)
        say(f"fitting SparcLinkPredictor on {seen.graph.num_nodes:,} nodes and {seen.graph.num_edges:,} edges")
        from gsparc.estimators import SparcLinkPredictor

        predictor = SparcLinkPredictor(**settings).fit(seen.X, graph=seen.graph)
        if model_out is not None:
            save_with_names(predictor, model_out, names)
    found = _write(output, predictor, further.ids, X, k, comparable)
    return {
        "output": str(output),
        "new_nodes": len(further.ids),
        "k": found,
        "model": str(model or model_out) if model or model_out else None,
        "report": predictor.report_,
        "seed": settings["random_state"] if model is None else None,
    }


def _write(output: Path, predictor: Any, ids: Any, X: Any, k: int, comparable: bool) -> int:
    """The suggestions as one long table; returns how many each node got."""
    import numpy as np

    from gsparc.cli.files import write_table

    targets, scores = predictor.predict_links(X, k=k, comparable=comparable)
    found = targets.shape[1]
    columns = {
        "id": np.repeat(ids, found),
        "rank": np.tile(np.arange(1, found + 1, dtype=np.int32), len(ids)),
        "target": np.asarray(targets).ravel(),
        "score": np.asarray(scores, np.float32).ravel(),
    }
    write_table(output, columns)
    return found


def _measure(
    data: str, label: str | None, output: Path | None, k: int, comparable: bool, settings: dict[str, Any]
) -> dict[str, Any]:
    import numpy as np

    from gsparc.cli.files import check_output
    from gsparc.datasets import load_dataset

    if output is not None:
        check_output(output, inputs=(data,))
    whole, seed = load_dataset(data, allow_pickle_sources=False, label=label), settings["random_state"]
    from gsparc.baselines import FeatureCosineLinks
    from gsparc.estimators import SparcLinkPredictor
    from gsparc.experiments import compare_links
    from gsparc.metrics import truth_matrix
    from gsparc.splits import ColdStartSplit

    fold = next(iter(ColdStartSplit("dense", random_state=seed).folds(whole.X, whole.y, whole.groups)))
    X, X_cold, graph = whole.X[fold.seen], whole.X[fold.cold], whole.graph[fold.seen]
    say(f"fitting on {len(fold.seen):,} nodes; {len(fold.cold):,} are held out")
    ours = SparcLinkPredictor(**settings).fit(X, graph=graph)
    scorers = {
        "feature cosine": FeatureCosineLinks(random_state=seed).fit(X, graph=graph).score_all,
        "cosine + popularity": FeatureCosineLinks("degree", random_state=seed).fit(X, graph=graph).score_all,
        "gsparc": ours.score_all,
    }
    truth = truth_matrix(whole.graph, fold.cold, fold.seen)
    rows, _ = compare_links(X_cold, truth, scorers, ours=["gsparc"], progress=lambda name: say(f"ranking: {name}"))
    if output is not None:
        names = np.arange(whole.graph.num_nodes) if whole.node_ids is None else np.asarray(whole.node_ids)
        positions = fold.seen if whole.node_ids is None else None
        _write(output, _Renamed(ours, positions), names[fold.cold], X_cold, k, comparable)
    return {
        "data": whole.name,
        "split": "dense",
        "seed": seed,
        "seen": len(fold.seen),
        "cold": len(fold.cold),
        "output": None if output is None else str(output),
        "methods": rows,
        "report": ours.report_,
    }


class _Renamed:
    """A predictor whose positions among the seen nodes are given back as positions in the whole data set."""

    def __init__(self, predictor: Any, positions: Any) -> None:
        self._predictor, self._positions = predictor, positions

    def predict_links(self, X: Any, k: int, comparable: bool) -> tuple[Any, Any]:
        ids, scores = self._predictor.predict_links(X, k=k, comparable=comparable)
        return (ids if self._positions is None else self._positions[ids]), scores


def _show(document: dict[str, Any]) -> None:
    if "methods" not in document:
        typer.echo(
            f"{document['k']} suggestions for each of {document['new_nodes']:,} nodes: {document['output']}\n"
            f"{document['seconds']:.1f} s"
        )
        return
    from rich.console import Console

    from gsparc.cli.tables import LINK_COLUMNS, methods_table

    title = f"links of {document['cold']:,} held-out nodes, ranked against {document['seen']:,} known ones"
    Console().print(methods_table(document["methods"], LINK_COLUMNS, title))
    if document["output"]:
        typer.echo(f"suggestions for the held-out nodes: {document['output']}")
    typer.echo(f"{document['seconds']:.1f} s")
