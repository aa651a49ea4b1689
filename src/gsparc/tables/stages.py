"""A long fit in stages: what is done is kept on disk, so that a fit that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gsparc._files import write_text
from gsparc._processes import world
from gsparc.exceptions import CheckpointError, ModelFolderError
from gsparc.model_store import read_folder, write_folder
from gsparc.training.checkpoints import keep_loops

__all__ = ["Progress", "Stages", "identity"]

_log = logging.getLogger(__name__)
_IDENTITY, _LOOPS = "fit.json", "loops"
Progress = Callable[[str, float], object]
"""Gets a sentence before each stage, and the share of all work that is done by then."""
Result = tuple[dict[str, Any], dict[str, np.ndarray]]


def identity(settings: dict[str, Any], *arrays: Any) -> str:
    """What a fit is known by: its settings and its data.

    Examples
    --------
    >>> identity({"seed": 0}, np.zeros(3)) == identity({"seed": 1}, np.zeros(3))
    False
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for array in arrays:
        parts = [array.indptr, array.indices, array.data] if sp.issparse(array) else [np.asarray(array)]
        for part in parts:
            plain = part if part.dtype.kind in "iufb" else np.array("\0".join(map(str, part.ravel().tolist())).encode())
            digest.update(f"{part.shape} {part.dtype.kind}".encode())
            digest.update(np.ascontiguousarray(plain).tobytes() if plain.ndim == 0 else _bytes(plain))
    return digest.hexdigest()


def _bytes(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).data.cast("B") if array.size else memoryview(b"")


class Stages:
    """Runs the stages of a fit in order and keeps the result of each in a folder.

    Parameters
    ----------
    folder : path or None
        Where results are kept; ``None`` keeps nothing.
    name : str
        :func:`identity` of the fit. A folder that another fit has left is an error.
    progress : callable
    """

    def __init__(self, folder: Path | None, name: str, progress: Progress) -> None:
        self.folder, self._progress = folder, progress
        self._weights: Mapping[str, float] = {}
        self._done = 0.0
        if folder is not None and world().first:
            self._open(folder, name)

    def _open(self, folder: Path, name: str) -> None:
        path = folder / _IDENTITY
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["identity"] if path.exists() else None
        except (OSError, ValueError, KeyError, TypeError):
            found = "?"
        if found is not None and found != name:
            raise CheckpointError(
                f"{folder} keeps a fit of other data or with other settings. Repeat that command to go on with it, or "
                "leave out --resume to start from the beginning."
            )
        write_text(path, json.dumps({"identity": name}) + "\n")

    def plan(self, weights: Mapping[str, float]) -> None:
        """The stages to come, with how long each takes relative to the others."""
        self._weights = weights

    def announce(self, stage: str, sentence: str) -> None:
        """Say that a stage begins."""
        self._progress(sentence, self._done / max(sum(self._weights.values()), 1e-9))
        self._done += self._weights.get(stage, 0.0)

    def arrays(self, stage: str, sentence: str, compute: Callable[[], Result]) -> Result:
        """A stage whose result is plain values and arrays."""

        def load(path: Path) -> Result:
            config, arrays = read_folder(path)
            return config["result"], arrays

        return self._run(
            stage,
            sentence,
            compute,
            load,
            lambda result, path: write_folder(path, {"class": "stage", "result": result[0]}, result[1]),
        )

    def estimator(self, stage: str, sentence: str, compute: Callable[[], Any]) -> Any:
        """A stage whose result is a fitted estimator."""
        from gsparc.estimators import load_model

        return self._run(stage, sentence, compute, load_model, lambda model, path: model.save(path))

    def _run(
        self,
        stage: str,
        sentence: str,
        compute: Callable[[], Any],
        load: Callable[[Path], Any],
        save: Callable[[Any, Path], object],
    ) -> Any:
        path = None if self.folder is None else self.folder / stage
        kept = None if path is None else _kept(path, load)
        if _everyone(kept is not None):
            self.announce(stage, f"{sentence}: done before")
            return kept
        self.announce(stage, sentence)
        if path is None:
            return compute()
        loops = path.parent / _LOOPS / stage
        with keep_loops(loops):  # of a stage that is stopped half-way, the networks that were ready are kept
            result = compute()
        if world().first:
            save(result, path)
            shutil.rmtree(loops, ignore_errors=True)
        return result


def _kept(path: Path, load: Callable[[Path], Any]) -> Any:
    """What an earlier run has left of a stage; ``None`` if nothing that can be used."""
    if not path.exists():
        return None
    try:
        return load(path)
    except ModelFolderError:
        if world().first:
            _log.info("what %s keeps of %r cannot be read; it is done again", path.parent.name, path.name)
            shutil.rmtree(path, ignore_errors=True)
        return None


def _everyone(flag: bool) -> bool:
    """Whether ``flag`` is true in all processes: a stage is skipped by all of them, or by none."""
    if world().size == 1:
        return flag
    from gsparc.training.distributed import everyone

    return everyone(flag)
