"""A table model as the contents of a model folder, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from gsparc.estimators._base import SavedEstimator, jsonable, part_of, prefixed
from gsparc.estimators._nodes import NodeNames
from gsparc.exceptions import DamagedModelError
from gsparc.graph import Graph
from gsparc.model_store import ModelFiles
from gsparc.tables.answering import space
from gsparc.tables.columns import Columns, EdgeColumns
from gsparc.tables.picture import Picture
from gsparc.tables.preprocess import Preprocessor

if TYPE_CHECKING:
    from gsparc.tables.model import TableModel

__all__ = ["PREPROCESS", "damaged", "model_from", "model_to"]

PREPROCESS = "preprocess.skops"
_PARTS = {"classifier": "SparcClassifier", "links": "SparcLinkPredictor", "clusterer": "SparcClusterer"}
Arrays = dict[str, np.ndarray]


def part_to(estimator: SavedEstimator, name: str) -> tuple[dict[str, Any], Arrays]:
    """Config and arrays of one estimator inside a larger model."""
    fitted, arrays = estimator._state()
    config = {
        "class": type(estimator).__name__,
        "parameters": jsonable(estimator.get_params(deep=False)),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names": None,
        "fitted": fitted,
    }
    return config, prefixed(name, arrays)


def part_from(found: ModelFiles, name: str, kind: str) -> Any:
    """What :func:`part_to` described, or None where the model has no such part."""
    from gsparc.estimators import _base

    config = found.config["parts"].get(name)
    if config is None:
        return None
    if config["class"] != kind:
        raise ValueError(f"a {config['class']!r} as {name}")
    return _base._CLASSES[kind]._from_config(config, part_of(found.arrays, name))


def names_to_arrays(names: np.ndarray, prefix: str) -> tuple[dict[str, Any], Arrays]:
    """Ids or class names; numbers stay numbers."""
    kept = NodeNames(len(names), names)
    return kept.config(), prefixed(prefix, kept.arrays())


def names_from_arrays(config: Any, arrays: Arrays, prefix: str) -> np.ndarray:
    """What :func:`names_to_arrays` described."""
    count = config["count"]
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ValueError(f"{count!r} names")
    kept = NodeNames.from_state(part_of(arrays, prefix), config, count)
    names = kept.names(np.arange(count))
    if config["kind"] == "positions" or names.shape != (count,):
        raise ValueError("names that are none")
    return names if count else names.astype(np.str_)


def model_to(model: TableModel) -> tuple[dict[str, Any], Arrays]:
    """Config and arrays of a whole model."""
    config: dict[str, Any] = {"class": "TableModel", "parts": {}, "report": model.report, "class_names": None}
    arrays: Arrays = {
        "picture": model.picture,
        "drawing.rows": model.drawing.rows,
        "drawing.points": model.drawing.points,
    }
    for name, part in model.parts.items():
        if part is not None:
            config["parts"][name], own = part_to(part, name)
            arrays |= own
    config["node_ids"], own = names_to_arrays(model.node_ids, "node_ids")
    arrays |= own
    if model.class_names is not None:
        config["class_names"], own = names_to_arrays(model.class_names, "class_names")
        arrays |= own
    if model.space_rows is not None:
        arrays["space"] = model.space_rows
    if model.own_graph is not None:
        arrays |= {"graph.indptr": model.own_graph.indptr, "graph.indices": model.own_graph.indices}
    if model.top_scores is not None:
        arrays["top_scores"] = np.asarray(model.top_scores, np.float32)
    return config | {"columns": model.columns.to_json(), "edge_columns": asdict(model.edge_columns)}, arrays


def model_from(found: ModelFiles) -> dict[str, Any]:
    """What a model is made of; ValueError and its like where the parts do not belong together."""
    config, arrays = found.config, found.arrays
    columns = Columns.from_json(config["columns"])
    if PREPROCESS not in found.files:
        raise ValueError(f"there is no {PREPROCESS}")
    names = config["class_names"]
    made: dict[str, Any] = {
        "columns": columns,
        "edge_columns": EdgeColumns(**config["edge_columns"]),
        "preprocess": Preprocessor.from_bytes(found.files[PREPROCESS], columns),
        "node_ids": names_from_arrays(config["node_ids"], arrays, "node_ids"),
        **{name: part_from(found, name, kind) for name, kind in _PARTS.items()},
        "class_names": None if names is None else names_from_arrays(names, arrays, "class_names"),
        "drawing": Picture(arrays["drawing.rows"], arrays["drawing.points"]),
        "picture": arrays["picture"],
        "report": config["report"],
        "top_scores": arrays.get("top_scores"),
        "space_rows": arrays.get("space"),
        "graph": _graph(part_of(arrays, "graph")),
    }
    _check(made)
    return made


def _graph(arrays: Arrays) -> Graph | None:
    """The edges, which folders of earlier versions do not hold."""
    return Graph(arrays["indptr"], arrays["indices"]) if arrays else None


def _check(made: dict[str, Any]) -> None:
    """ValueError where the parts do not belong together."""
    parts = {name: made[name] for name in _PARTS}
    n, width = len(made["node_ids"]), made["preprocess"].n_features
    if all(part is None for part in parts.values()):
        raise ValueError("no estimator in it")
    counts = {
        "classifier": lambda part: len(part._codes),
        "links": lambda part: part.index_.num_vectors,
        "clusterer": lambda part: len(part.labels_),
    }
    for name, part in parts.items():
        if part is not None and (part.n_features_in_ != width or counts[name](part) != n):
            raise ValueError(f"the {name} is of another model")
    classes = 0 if made["classifier"] is None else len(made["classifier"].classes_)
    if classes != (0 if made["class_names"] is None else len(made["class_names"])):
        raise ValueError("the class names do not belong to the classifier")
    if made["picture"].shape != (n, 2) or made["picture"].dtype != np.float32:
        raise ValueError(f"a picture of shape {made['picture'].shape} for {n} nodes")
    found = space(parts, np.zeros((1, width), np.float32)).shape[1]
    if made["drawing"].rows.shape[1] != found:
        raise ValueError("the landmarks of the picture are of another space")
    alone = made["classifier"] is None and made["links"] is None
    if alone and (made["space_rows"] is None or made["space_rows"].shape != (n, found)):
        raise ValueError("the coordinates of the nodes are missing")
    if made["top_scores"] is not None and made["top_scores"].ndim != 1:
        raise ValueError("link scores of the wrong shape")
    if made["graph"] is not None and made["graph"].num_nodes != n:
        raise ValueError(f"edges of {made['graph'].num_nodes} nodes for {n}")
    if not isinstance(made["report"], dict):
        raise ValueError("a report that is none")


def damaged(folder: Any, error: Exception) -> DamagedModelError:
    """The error for parts that are whole but do not fit together."""
    return DamagedModelError(
        f"the model in {str(folder)!r} is damaged: its parts do not fit together ({error}). "
        "Restore the folder from a copy, or fit and save again."
    )
