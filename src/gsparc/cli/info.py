"""``gsparc info``: what is in a model folder or a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit

NAME = "info"


@command
def run(
    source: Annotated[
        str, typer.Argument(metavar="MODEL_OR_DATA", help="A model folder, a store, or a data set's name or path.")
    ],
    label: Annotated[
        str | None,
        typer.Option("--label", metavar="COLUMN", help="Of a folder of tables: the column with the classes."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Of a store: read every file and compare its checksum.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is in a saved model, or what a data set looks like.

    Example:  gsparc info debian
    """
    from gsparc._store import is_store
    from gsparc.model_store import is_model_folder

    path = Path(source).expanduser()
    if label is not None and (is_store(path) or is_model_folder(path)):
        raise typer.BadParameter("it is for a folder of tables; here the classes are settled.", param_hint="--label")
    if is_store(path):
        emit(_describe_store(path, verify), as_json, _show)
        return
    emit(_describe_model(path) if is_model_folder(path) else _try_data(source, path, label), as_json, _show)


def _describe_store(path: Path, verify: bool) -> dict[str, Any]:
    from gsparc._store import open_store
    from gsparc.cli.ingest import describe_store

    store = open_store(path)
    if verify:
        store.verify()
    return describe_store(store) | ({"verified": True} if verify else {})


def _describe_model(path: Path) -> dict[str, Any]:
    from gsparc.estimators import load_model
    from gsparc.model_store import read_folder

    config, arrays = read_folder(path)
    if config.get("class") in ("StoreModel", "TableModel"):
        return _describe_table_model(path, config)
    model: Any = load_model(path)  # finds parts that are whole but do not fit together
    document: dict[str, Any] = {
        "kind": "model",
        "path": str(path),
        "class": config["class"],
        "gsparc_version": config["gsparc_version"],
        "format_version": config["format_version"],
        "features": config["n_features_in"],
        "megabytes": _megabytes(path),
        "arrays": len(arrays),
        "parameters": config["parameters"],
    }
    maps = getattr(model, "maps_", None) or [getattr(model, "map_", model)]
    if hasattr(maps[0], "operator_"):
        document["maps"] = len(maps)
        document["learned_from"] = maps[0].operator_
        document["eigenvalues"] = _spectrum(maps[0].eigenvalues_)
    if hasattr(model, "index_"):
        document["seen_nodes"] = int(model.index_.num_vectors)
        document["index"] = getattr(model.index_, "neighbors", model.index_).summary()
    if hasattr(model, "classes_"):
        document["classes"] = [str(name) for name in model.classes_]
    if hasattr(model, "report_"):
        document["report"] = model.report_
    return document


def _megabytes(path: Path) -> float | None:
    files = path.iterdir() if path.is_dir() else ()
    return round(sum(file.stat().st_size for file in files if file.is_file()) / 1e6, 2)


def _describe_table_model(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    from gsparc.tables.model import TableModel

    model = TableModel.load(path)
    roles = {name: value for name, value in model.columns.to_json().items() if value and name != "ignored"}
    return {
        "kind": "model",
        "path": str(path),
        "class": config["class"],
        "about": getattr(model, "about", None),
        "gsparc_version": config["gsparc_version"],
        "format_version": config["format_version"],
        "created": model.report.get("created"),
        "megabytes": _megabytes(path),
        "tasks": list(model.tasks),
        "known_nodes": len(model.node_ids),
        "columns": roles,
        "edge_columns": config["edge_columns"],
        "features": model.preprocess.n_features,
        "classes": None if model.class_names is None else [str(name) for name in model.class_names],
        "clusters": None if model.clusterer is None else int(model.clusterer.n_clusters),
        "backbone": None if model.classifier is None else str(model.classifier.backbone),
        "classifier": None if model.classifier is None else model.classifier.report_,
        "index": model.indexes(),
        "measured": model.report.get("summary"),
        "grown": model.report.get("grown"),
        "report": str(path / "report.html") if (path / "report.html").is_file() else None,
    }


def _try_data(source: str, path: Path, label: str | None) -> dict[str, Any]:
    """A data set; where there is none, the error says what else was looked for."""
    from gsparc.exceptions import DataNotFoundError, InputError, LabelError, UnknownNameError

    written = "as 'gsparc fit -o' writes it, or a store, as 'gsparc ingest -o' writes it"
    try:
        return _describe_data(source, label)
    except LabelError:
        raise  # it is a data set
    except (DataNotFoundError, InputError, UnknownNameError) as error:
        if path.exists():
            also = f"Nor is it a model folder, {written}."
        else:
            also = f"Nor is there a model folder {source}, {written}."
        raise type(error)(f"{error} {also}") from error


def _spectrum(values: Any) -> dict[str, Any]:
    import numpy as np

    numbers = np.asarray(values, np.float64)
    return {
        "count": len(numbers),
        "smallest": round(float(numbers.min()), 4),
        "median": round(float(np.median(numbers)), 4),
        "largest": round(float(numbers.max()), 4),
    }


def _describe_data(source: str, label: str | None) -> dict[str, Any]:
    import numpy as np

    from gsparc.datasets import load_dataset

    data = load_dataset(source, allow_pickle_sources=False, label=label)
    graph = data.graph
    neighbours = np.diff(graph.indptr)
    count, component = graph.connected_components()
    labelled = 0 if data.y is None else int((data.y >= 0).sum())
    return {
        "kind": "data set",
        "name": data.name,
        "description": data.description,
        "source": data.source,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "weighted": graph.weights is not None,
        "components": count,
        "largest_component": int(np.bincount(component).max()),
        "isolated_nodes": int((neighbours == 0).sum()),
        "mean_degree": round(float(neighbours.mean()), 2),
        "max_degree": int(neighbours.max()),
        "features": int(data.X.shape[1]),  # pyright: ignore[reportOptionalSubscript]
        "feature_kind": _feature_kind(data.X),
        "classes": data.num_classes,
        "labelled_nodes": labelled,
        "edge_homophily": _homophily(graph, data.y),
        "groups": None if data.groups is None else len(np.unique(data.groups)),
        "node_ids": data.node_ids is not None,
    }


def _homophily(graph: Any, y: Any) -> float | None:
    """Share of the edges between labelled nodes that join nodes of one class."""
    import numpy as np

    if y is None:
        return None
    left = np.repeat(y, np.diff(graph.indptr))
    right = y[graph.indices]
    known = (left >= 0) & (right >= 0)
    return round(float((left == right)[known].mean()), 4) if known.any() else None


def _feature_kind(X: Any) -> str:
    """In words: how full the matrix is, and what its numbers are."""
    import numpy as np
    import scipy.sparse as sp

    values = X.data if sp.issparse(X) else X
    filled = np.count_nonzero(values) / max(1, X.shape[0] * X.shape[1])
    whole = bool(values.size) and bool((values == np.round(values)).all())
    if whole and values.min(initial=0) >= 0:
        kind = "zeros and ones" if values.max(initial=0) <= 1 else "counts"
    else:
        kind = "real numbers"
    return f"{'sparse' if sp.issparse(X) else 'dense'}, {kind}, {_percent(filled)} not zero"


def _percent(share: float) -> str:
    """A share in words; what is neither none nor all is never rounded to it."""
    if share in (0, 1):
        return f"{100 * share:.0f} %"
    if share < 0.0001:
        return "less than 0.01 %"
    return f"{min(100 * share, 99.9):.1f} %" if share >= 0.01 else f"{100 * share:.2f} %"


def _show(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in document.items():
        if value is None or value == "":
            continue
        table.add_row(name.replace("_", " "), _words(value))
    Console().print(table, markup=False, highlight=False)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={_words(item)}" for name, item in value.items())
    if isinstance(value, list):
        return (" " if any(str(item).endswith(".") for item in value) else ", ").join(_words(item) for item in value)
    return str(value)
