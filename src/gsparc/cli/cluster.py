"""``gsparc cluster``: clusters of a graph's nodes, and of nodes that have no edges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit, say
from gsparc.cli.embed import Data, Label, ModelIn, ModelOut, New, check_sources, check_width, join_ids

NAME = "cluster"


@command
def run(
    data: Data = None,
    *,
    n_clusters: Annotated[
        int | None, typer.Option("--n-clusters", "-n", min=1, help="How many clusters; by default 8.")
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write: .parquet, .csv or .npz.")] = Path(
        "clusters.parquet"
    ),
    new: New = None,
    label: Label = None,
    model: ModelIn = None,
    model_out: ModelOut = None,
    components: Annotated[
        int | None, typer.Option("--components", min=1, help="Eigenfunctions, instead of the default.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", min=0.0, max=1.0, help="Share of feature likeness beside edges; by default chosen."),
    ] = None,
    max_steps: MaxSteps = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Find clusters of DATA's nodes; with --new also the clusters of new nodes, which have no edges.

    Columns: id, cluster, membership (of the cluster, 0 to 1), and with --new a column that tells who is new.

    Example:  gsparc cluster debian --n-clusters 30 -o clusters.parquet --model-out clusters
    """
    from gsparc.cli.files import check_output, write_table

    check_sources(data, new, model, model_out, label)
    if model is not None and n_clusters is not None:
        raise typer.BadParameter("a saved model has its clusters; leave --n-clusters out.", param_hint="--n-clusters")
    check_output(output)
    start = time.perf_counter()
    asked = {"n_clusters": n_clusters, "n_components": components, "alpha": alpha, "max_steps": max_steps}
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    settings |= {"random_state": seed, "verbose": 1}
    clusterer, columns = _clusters(data, new, label, model, model_out, settings)
    write_table(output, columns)
    document = {
        "output": str(output),
        "rows": len(columns["id"]),
        "new_rows": int(columns["new"].sum()) if "new" in columns else 0,
        "n_clusters": clusterer.n_clusters,
        "sizes": _sizes(columns["cluster"], clusterer.n_clusters),
        "seed": seed if model is None else None,
        "model": str(model or model_out) if model or model_out else None,
        "seconds": round(time.perf_counter() - start, 3),
    }
    emit(document, as_json, _show)


def _clusters(
    data: str | None,
    new: str | None,
    label: str | None,
    model: Path | None,
    model_out: Path | None,
    settings: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    """The clusterer, and the columns to be written."""
    import numpy as np

    from gsparc.cli.files import align_columns, load_nodes
    from gsparc.cli.models import load_as, save_with_names
    from gsparc.datasets import load_dataset

    # all inputs are read and checked first: what is wrong with them shows before anything is fitted
    parts: list[tuple[Any, Any]] = []
    if model is not None:
        clusterer, names = load_as(model, "SparcClusterer")
        tables = [load_nodes(source, names) for source in (data, new) if source is not None]
        parts += [(table.ids, align_columns(table, names, "the model")) for table in tables]
    else:
        seen = load_dataset(str(data), allow_pickle_sources=False, label=label)
        names = seen.feature_names
        ids = np.arange(seen.graph.num_nodes) if seen.node_ids is None else np.asarray(seen.node_ids)
        parts.append((ids, seen.X))
        if new is not None:
            further = load_nodes(new, names)
            parts.append((further.ids, align_columns(further, names, seen.name)))
            check_width(parts[-1][1], seen.X, further.name, seen.name)
        from gsparc.estimators import SparcClusterer

        say(f"fitting SparcClusterer on {seen.graph.num_nodes:,} nodes and {seen.graph.num_edges:,} edges")
        clusterer = SparcClusterer(**settings).fit(seen.X, graph=seen.graph)
        if model_out is not None:
            save_with_names(clusterer, model_out, names)
    shares = [clusterer.predict_proba(X) for _, X in parts]
    found = [share.argmax(axis=1).astype(np.int32) for share in shares]
    columns: dict[str, Any] = {"id": join_ids([ids for ids, _ in parts])}
    if new is not None:
        columns["new"] = np.repeat([False] * (len(parts) - 1) + [True], [len(part) for part in found])
    columns["cluster"] = np.concatenate(found)
    columns["membership"] = np.concatenate([share.max(axis=1) for share in shares]).astype(np.float32)
    return clusterer, columns


def _sizes(clusters: Any, count: int) -> list[int]:
    import numpy as np

    return np.bincount(clusters, minlength=count).tolist()


def _show(document: dict[str, Any]) -> None:
    new = f" ({document['new_rows']:,} of them new)" if document["new_rows"] else ""
    sizes = document["sizes"]
    shown = ", ".join(f"{size:,}" for size in sizes[:12]) + (", ..." if len(sizes) > 12 else "")
    typer.echo(
        f"{document['rows']:,} nodes{new} in {document['n_clusters']} clusters: {document['output']}\n"
        f"nodes of each: {shown}; {document['seconds']:.1f} s"
    )
