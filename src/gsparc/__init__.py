"""Predictions for nodes that have no edges yet.

gsparc learns a map from node features to the eigenspace of the graph's Laplacian, finds a new
node's neighbours there, and predicts its class and links without a single edge of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gsparc._version import __version__

if TYPE_CHECKING:
    from gsparc._store import open_store
    from gsparc.datasets import load_dataset
    from gsparc.estimators import SparcClassifier, SparcClusterer, SparcLinkPredictor, SpectralMap, load_model
    from gsparc.exceptions import (
        BackboneError,
        CheckpointError,
        DamagedModelError,
        DataNotFoundError,
        FeatureError,
        GraphError,
        GraphShapeError,
        GsparcError,
        InputError,
        LabelError,
        MissingExtraError,
        ModelFolderError,
        NewerFormatError,
        OutputError,
        ProcessesError,
        StoreError,
        UnknownNameError,
    )
    from gsparc.graph import Graph
    from gsparc.splits import ColdStartSplit

__all__ = [
    "BackboneError",
    "CheckpointError",
    "ColdStartSplit",
    "DamagedModelError",
    "DataNotFoundError",
    "FeatureError",
    "Graph",
    "GraphError",
    "GraphShapeError",
    "GsparcError",
    "InputError",
    "LabelError",
    "MissingExtraError",
    "ModelFolderError",
    "NewerFormatError",
    "OutputError",
    "ProcessesError",
    "SparcClassifier",
    "SparcClusterer",
    "SparcLinkPredictor",
    "SpectralMap",
    "StoreError",
    "UnknownNameError",
    "__version__",
    "load_dataset",
    "load_model",
    "open_store",
]

_HOMES = {
    "ColdStartSplit": "gsparc.splits",
    "Graph": "gsparc.graph",
    "SparcClassifier": "gsparc.estimators",
    "SparcClusterer": "gsparc.estimators",
    "SparcLinkPredictor": "gsparc.estimators",
    "SpectralMap": "gsparc.estimators",
    "load_dataset": "gsparc.datasets",
    "load_model": "gsparc.estimators",
    "open_store": "gsparc._store",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import, so nothing heavy is loaded before a name is used
    if name not in __all__:
        raise AttributeError(f"module 'gsparc' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "gsparc.exceptions")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
