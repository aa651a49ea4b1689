"""Saved models as the command line uses them: of the right class, with the names of their features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gsparc.exceptions import ModelFolderError

__all__ = ["load_as", "save_with_names"]


def save_with_names(model: Any, folder: Path, names: Any) -> None:
    """Save, and keep the feature names, so that a table with its columns in another order still fits."""
    import numpy as np

    if names is not None:
        model.feature_names_in_ = np.asarray(names).astype(object)
    try:
        model.save(folder)
    finally:
        model.__dict__.pop("feature_names_in_", None)


def load_as(folder: Path, kind: str) -> tuple[Any, Any]:
    """The model in ``folder`` and its feature names, or an error where it is of another class."""
    from gsparc.model_store import read_folder

    config, _ = read_folder(folder)  # says what is wrong with a damaged folder
    if config.get("class") != kind:
        raise ModelFolderError(
            f"{folder} holds a {config.get('class')}, expected a {kind}. 'gsparc info {folder}' says what is in it."
        )
    from gsparc.estimators import load_model

    model = load_model(folder)
    # arrays are passed from here on, and scikit-learn warns about arrays where a fit had names
    return model, model.__dict__.pop("feature_names_in_", None)
