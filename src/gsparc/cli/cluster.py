"""``gsparc cluster``: clusters of a graph's nodes, and of nodes that have no edges."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit
from gsparc.cli.embed import Data, Label, ModelIn, ModelOut, New, check_sources, fitted_with_rows, id_columns

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
    import numpy as np

    from gsparc.cli.files import check_output, write_table

    check_sources(data, new, model, model_out, label)
    if model is not None and n_clusters is not None:
        raise typer.BadParameter("a saved model has its clusters; leave --n-clusters out.", param_hint="--n-clusters")
    check_output(output, inputs=(data, new))
    start = time.perf_counter()
    asked = {"n_clusters": n_clusters, "n_components": components, "alpha": alpha, "max_steps": max_steps}
    settings: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    settings |= {"random_state": seed, "verbose": 1}
    sources: dict[str, Any] = {"data": data, "new": new, "label": label, "model": model, "model_out": model_out}
    clusterer, parts = fitted_with_rows("SparcClusterer", settings, **sources)
    shares = [clusterer.predict_proba(X) for _, X in parts]
    columns = id_columns(parts, new)
    columns["cluster"] = np.concatenate([share.argmax(axis=1).astype(np.int32) for share in shares])
    columns["membership"] = np.concatenate([share.max(axis=1) for share in shares]).astype(np.float32)
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
