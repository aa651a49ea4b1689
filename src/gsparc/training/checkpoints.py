"""Training state on disk: tensors in safetensors, the rest in JSON, replaced atomically.

Two things are kept. A loop that was told a folder keeps its state while it runs, and goes on from there. Within
:func:`keep_loops` every loop that has ended leaves its weights, and is not run a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gsparc._processes import world
from gsparc.exceptions import CheckpointError, OutputError
from gsparc.training.distributed import bytes_from_first

__all__ = ["digest", "finished_loop", "keep_loops", "load_checkpoint", "next_loop", "save_checkpoint"]

_NAME = "checkpoint.safetensors"
_places: ContextVar[Iterator[Path] | None] = ContextVar("places", default=None)


@contextlib.contextmanager
def keep_loops(folder: Path | None) -> Iterator[None]:
    """Keep the result of every loop that ends in here, and read what an earlier run of the same code has kept.

    Loops are known by their order. ``None`` keeps nothing.
    """
    places = None if folder is None else (folder / f"{number:03d}" for number in range(10**9))
    token = _places.set(places)
    try:
        yield
    finally:
        _places.reset(token)


def next_loop() -> Path | None:
    """Where the result of the loop that begins now is kept; ``None`` outside of :func:`keep_loops`."""
    places = _places.get()
    return None if places is None else next(places)


def finished_loop(folder: Path, fingerprint: str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """What a loop has left; ``None`` where there is nothing, or something that is damaged or another loop's."""
    try:
        return load_checkpoint(folder, fingerprint)
    except CheckpointError:
        return None


def save_checkpoint(folder: str | os.PathLike[str], tensors: dict[str, Tensor], record: dict[str, Any]) -> None:
    """Write one checkpoint; a kill at any moment leaves the previous one whole.

    ``record`` travels in the header of the same file, so tensors and record cannot disagree.
    """
    from safetensors.torch import save

    path = Path(folder)
    data = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(record)
    metadata = {"record": text, "sha256": digest(data, text)}
    try:
        path.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(save(data, metadata=metadata))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path / _NAME)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputError(
            f"cannot write a checkpoint to {str(path)!r} ({error.strerror or error}). Make room there, or choose "
            "another place for the output, which can be written to; in Python checkpoint=None does without checkpoints."
        ) from error


def load_checkpoint(
    folder: str | os.PathLike[str], fingerprint: str
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The checkpoint in ``folder``, ``None`` if there is none, an error if it is another fit's.

    Of several processes the first reads; the others, which may be on machines without that folder, get a copy.
    """
    if world().size == 1:
        return _load(folder, fingerprint, folder)
    path = Path(folder) / _NAME
    data = bytes_from_first(path.read_bytes() if world().first and path.exists() else None)
    if data is None:
        return None
    with tempfile.TemporaryDirectory() as copied:
        (Path(copied) / _NAME).write_bytes(data)
        return _load(copied, fingerprint, folder)


def _load(
    folder: str | os.PathLike[str], fingerprint: str, named: str | os.PathLike[str]
) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """``named`` is the folder that errors speak of."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / _NAME
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as stream:
            metadata = stream.metadata() or {}
            record = json.loads(metadata["record"])
            tensors: dict[str, Tensor] = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        if metadata["sha256"] != digest(tensors, metadata["record"]):
            raise ValueError("its contents are not those that were saved")
    except (SafetensorError, KeyError, ValueError, OSError) as error:
        raise CheckpointError(
            f"the checkpoint {str(Path(named) / _NAME)!r} cannot be read ({error}). "
            "Delete it to start from the beginning."
        ) from error
    if record.get("fingerprint") != fingerprint:
        raise CheckpointError(
            f"the checkpoint in {str(named)!r} was written by a fit with other data or settings. "
            "Use the same data, parameters and random_state, or another checkpoint folder."
        )
    return tensors, record


def digest(tensors: dict[str, Tensor], text: str) -> str:
    """What tensors on the CPU and a text are known by."""
    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        found.update(name.encode())
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
