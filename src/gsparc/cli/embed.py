"""``gsparc embed``: spectral coordinates of nodes, from features and a graph."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, MaxSteps, Seed, command, emit, say

NAME = "embed"

Data = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help="A data set's name, an .npz file, a store, or a folder with nodes.parquet, edges.parquet.",
    ),
]
New = Annotated[
    str | None,
    typer.Option("--new", metavar="NEW", help="Nodes without edges: the same formats, or one Parquet table."),
]
Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", help="Column of DATA's nodes.parquet with the classes; no feature."),
]
ModelIn = Annotated[Path | None, typer.Option("--model", metavar="DIR", help="Use this model; do not fit.")]
ModelOut = Annotated[Path | None, typer.Option("--model-out", metavar="DIR", help="Save the model here.")]


@command
def run(
    data: Data = None,
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Ends in .parquet, .csv or .npz; of a store .npy or .parquet.")
    ] = Path("coords.parquet"),
    new: New = None,
    label: Label = None,
    model: ModelIn = None,
    model_out: ModelOut = None,
    components: Annotated[int, typer.Option("--components", min=1, help="Number of eigenfunctions.")] = 64,
    objective: Annotated[str, typer.Option("--objective", help="contrastive or rayleigh.")] = "contrastive",
    laplacian: Annotated[str, typer.Option("--laplacian", help="sym, k-power or feature-edge.")] = "sym",
    max_steps: MaxSteps = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a spectral map and write the coordinates of every node; with --new also those of new nodes.

    Columns: id, c1, c2, ... from the smoothest component on, and with --new a column that tells who is new.

    Example:  gsparc embed debian -o coords.parquet --model-out map

    Example:  gsparc embed store --model model -o coords.npy
    """
    import numpy as np

    from gsparc._store import is_store
    from gsparc.cli.files import check_output, write_table

    check_sources(data, new, model, model_out, label)
    if data is not None and new is None and is_store(data):
        from gsparc.cli.fit_store import embed_store

        chosen: dict[str, Any] = {"n_components": components, "objective": objective, "laplacian": laplacian}
        chosen |= {"random_state": seed, "verbose": 1} | ({} if max_steps is None else {"max_steps": max_steps})
        embed_store(Path(data), output, model=model, model_out=model_out, settings=chosen, as_json=as_json)
        return
    check_output(output, inputs=(data, new))
    start = time.perf_counter()
    settings: dict[str, Any] = {"n_components": components, "objective": objective, "laplacian": laplacian}
    settings |= {"random_state": seed, "verbose": 1}
    if max_steps is not None:
        settings["max_steps"] = max_steps
    sources: dict[str, Any] = {"data": data, "new": new, "label": label, "model": model, "model_out": model_out}
    spectral, parts = fitted_with_rows("SpectralMap", settings, **sources)
    columns = id_columns(parts, new) | {"c": np.concatenate([spectral.transform(X) for _, X in parts])}
    write_table(output, columns)
    rows, width = columns["c"].shape
    document = {
        "output": str(output),
        "rows": rows,
        "new_rows": int(columns["new"].sum()) if "new" in columns else 0,
        "components": width,
        "eigenvalues": spectral.eigenvalues_,
        "learned_from": spectral.operator_,
        "seed": seed if model is None else None,
        "model": str(model or model_out) if model or model_out else None,
        "seconds": round(time.perf_counter() - start, 3),
    }
    emit(document, as_json, _show)


def check_sources(
    data: str | None, new: str | None, model: Path | None, model_out: Path | None, label: str | None
) -> None:
    """Which of DATA, --new, --model, --model-out and --label may go together; wrong usage otherwise.

    A --model-out that could not be written is refused here too, not after the fit.
    """
    if model is not None and model_out is not None:
        raise typer.BadParameter("pass either --model or --model-out, not both.", param_hint="--model")
    if data is None and model is None:
        raise typer.BadParameter("DATA is missing; it may be left out only with --model.", param_hint="DATA")
    if data is None and new is None:
        raise typer.BadParameter("with --model pass DATA, --new or both.", param_hint="DATA")
    if model is not None and label is not None:
        raise typer.BadParameter("--label is for fitting; a saved model knows its features.", param_hint="--label")
    if model_out is not None:
        from gsparc._files import refuse_overwriting
        from gsparc.cli.files import check_output
        from gsparc.datasets.registry import as_path
        from gsparc.model_store import check_target

        check_target(model_out)
        refuse_overwriting(model_out, [as_path(source) for source in (data, new) if source is not None])
        check_output(model_out.parent, table=False)


def fitted_with_rows(
    kind: str,
    settings: dict[str, Any],
    *,
    data: str | None,
    new: str | None,
    label: str | None,
    model: Path | None,
    model_out: Path | None,
) -> tuple[Any, list[tuple[Any, Any]]]:
    """An estimator, fitted or loaded, and the ids and features of DATA and NEW, as far as they came.

    All inputs are read and checked first: what is wrong with them shows before anything is fitted.
    """
    import numpy as np

    from gsparc import estimators
    from gsparc.cli.files import align_columns, load_nodes
    from gsparc.cli.models import load_as, save_with_names
    from gsparc.datasets import load_dataset

    if model is not None:
        found, names = load_as(model, kind)
        tables = [load_nodes(source, names) for source in (data, new) if source is not None]
        return found, [(table.ids, align_columns(table, names, "the model")) for table in tables]
    seen = load_dataset(str(data), allow_pickle_sources=False, label=label)
    names = seen.feature_names
    ids = np.arange(seen.graph.num_nodes) if seen.node_ids is None else np.asarray(seen.node_ids)
    parts = [(ids, seen.X)]
    if new is not None:
        further = load_nodes(new, names)
        parts.append((further.ids, align_columns(further, names, seen.name)))
        check_width(parts[-1][1], seen.X, further.name, seen.name)
    say(f"fitting {kind} on {seen.graph.num_nodes:,} nodes and {seen.graph.num_edges:,} edges")
    found = getattr(estimators, kind)(**settings).fit(seen.X, graph=seen.graph)
    if model_out is not None:
        save_with_names(found, model_out, names)
    return found, parts


def id_columns(parts: list[tuple[Any, Any]], new: str | None) -> dict[str, Any]:
    """The columns ``id`` and, where new nodes came, ``new``."""
    import numpy as np

    columns: dict[str, Any] = {"id": _join_ids([ids for ids, _ in parts])}
    if new is not None:
        columns["new"] = np.repeat([False] * (len(parts) - 1) + [True], [len(ids) for ids, _ in parts])
    return columns


def check_width(new_X: Any, X: Any, new_name: str, name: str) -> None:
    """New features must be as wide as the known ones; said before the fit, not after it."""
    from gsparc.exceptions import FeatureError

    if new_X.shape[1] != X.shape[1]:
        raise FeatureError(
            f"{new_name} has {new_X.shape[1]} features but {name} has {X.shape[1]}. "
            "Pass the same feature columns for new nodes."
        )


def _join_ids(ids: list[Any]) -> Any:
    """Ids of both tables in one column: as text where one of them is text."""
    import numpy as np

    if len({part.dtype.kind in "iu" for part in ids}) > 1:
        ids = [part.astype(np.str_) for part in ids]
    return np.concatenate(ids)


def _show(document: dict[str, Any]) -> None:
    values = document["eigenvalues"]
    new = f" ({document['new_rows']:,} of them new)" if document["new_rows"] else ""
    typer.echo(
        f"{document['rows']:,} nodes{new}, {document['components']} coordinates each: {document['output']}\n"
        f"eigenvalues {values[0]:.3f} to {values[-1]:.3f}, {document['seconds']:.1f} s"
    )
