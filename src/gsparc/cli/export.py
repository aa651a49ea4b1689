"""``gsparc export``: a model for other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gsparc.cli.common import AsJson, command, emit
from gsparc.cli.table_models import show_facts

NAME = "export"


@command
def run(
    model_folder: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder.")],
    *,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="As ONNX: the spectral map, and the networks on features.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: MODEL.onnx beside the folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model as ONNX, to be run without torch: features in, coordinates and class probabilities out.

    Example:  gsparc export model --onnx -o model.onnx
    """
    if not onnx:
        raise typer.BadParameter("say which format: --onnx.", param_hint="--onnx")
    from gsparc._files import refuse_overwriting
    from gsparc.cli.files import check_output
    from gsparc.exceptions import OutputError
    from gsparc.integrations.onnx import export_onnx

    target = output or model_folder.absolute().parent / f"{model_folder.name}.onnx"
    if target.is_dir():
        raise OutputError(f"{target} is a folder. Pass the name of a file, such as model.onnx.")
    refuse_overwriting(target, model_folder.iterdir() if model_folder.is_dir() else ())
    check_output(target.absolute().parent, table=False)
    document: dict[str, Any] = {"model": str(model_folder), "output": str(target)}
    found = export_onnx(_estimator(model_folder), target)
    if isinstance(found, dict):
        document |= found
    document["megabytes"] = round(target.stat().st_size / 1e6, 2)
    emit(document, as_json, lambda facts: show_facts([*facts.items()]))


def _estimator(folder: Path) -> Any:
    """The classifier of a table model, or else its map; any other saved estimator as it is."""
    from gsparc.exceptions import InputError
    from gsparc.model_store import read_folder

    config, _ = read_folder(folder)
    if config.get("class") == "StoreModel":
        raise InputError(
            f"{folder} holds a model of a large store, which is not written as ONNX. Its answers come from an index of "
            "all nodes: use gsparc predict or gsparc serve."
        )
    if config.get("class") != "TableModel":
        from gsparc.estimators import load_model

        return load_model(folder)
    from gsparc.tables.model import TableModel

    model = TableModel.load(folder)
    if model.classifier is not None:
        classifier = model.classifier
        classifier.classes_ = model.class_names  # the file is to name them
        classifier.feature_names_in_ = model.preprocess.feature_names.astype(object)
        return classifier
    if model.clusterer is not None:
        return model.clusterer.map_
    raise InputError(f"{folder} holds a model of links alone, which is a search and not a network. Fit classes, too.")
