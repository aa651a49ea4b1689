"""What an index leaves on disk, and the checks before it is believed: safetensors and JSON, no pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc._validation import check_name
from gsparc.exceptions import DamagedModelError, GsparcError, OutputError
from gsparc.ops._index_memory import CODED

__all__ = ["State", "checked_array", "checked_config", "checked_probes", "read_state", "write_state"]

KINDS = ("cells", "exact", "ivf", *CODED)
METRICS = ("cosine", "diffusion", "euclidean")

State = tuple[dict[str, NDArray[Any]], dict[str, Any]]
"""Arrays, and a JSON-able description of them."""


def write_state(folder: str | os.PathLike[str], arrays: dict[str, NDArray[Any]], config: dict[str, Any]) -> None:
    """Write arrays (safetensors) and their description (JSON) into a folder."""
    from safetensors.numpy import save_file

    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, path / "index.safetensors")
        (path / "index.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"the index cannot be written to {str(path)!r}: {error}. Pass a folder that you may write to."
        ) from error


def read_state(folder: str | os.PathLike[str]) -> State:
    """Read what :func:`write_state` wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(folder)
    try:
        config = json.loads((path / "index.json").read_text(encoding="utf-8"))
        arrays = load_file(path / "index.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise DamagedModelError(
            f"no readable index in {str(path)!r}: {error}. Expected index.json and index.safetensors "
            "as save() writes them; save the index again."
        ) from error
    return arrays, config


def checked_config(config: dict[str, Any]) -> tuple[str, str, tuple[int, int]]:
    try:
        metric = check_name("metric", config["metric"], METRICS)
        kind = check_name("index kind", config["kind"], KINDS)
        return metric, kind, (int(config["num_vectors"]), int(config["dim"]))
    except (KeyError, TypeError, ValueError, GsparcError) as error:
        raise DamagedModelError(
            f"the description of the neighbour index is damaged ({error}). Save the model again."
        ) from error


def checked_array(arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    array = arrays.get(name)
    if array is None or array.dtype != np.float32 or array.shape != shape:
        got = "nothing" if array is None else f"{array.dtype} of shape {array.shape}"
        raise DamagedModelError(
            f"array {name!r} of the index: got {got}, expected float32 of shape {shape}. Save the model again."
        )
    return array if array.flags.writeable else np.array(array)  # torch wants memory that could be written to


def checked_probes(config: dict[str, Any]) -> tuple[int, float]:
    probes, recall = config.get("num_probes"), config.get("recall")
    if not isinstance(probes, int) or probes < 1 or not isinstance(recall, int | float):
        raise DamagedModelError(
            f"the neighbour index has num_probes={probes!r} and recall={recall!r}; expected numbers. "
            "Save the model again."
        )
    return probes, float(recall)
