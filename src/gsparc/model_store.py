"""The model folder: how an estimator is written, and what must hold before it is believed.

``config.json`` (format, library version, class, parameters, fitted values), ``weights.safetensors``
(every array) and ``checksums.json``. Nothing in it can execute code. A save writes a
complete folder beside the target and renames it; a kill at any moment leaves the old model or the
new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from gsparc._version import __version__
from gsparc.exceptions import DamagedModelError, ModelFolderError, NewerFormatError, OutputError

__all__ = ["FORMAT_VERSION", "check_target", "read_folder", "write_folder"]

FORMAT_VERSION = 1
_CONFIG, _WEIGHTS, _CHECKSUMS = "config.json", "weights.safetensors", "checksums.json"
Arrays = dict[str, np.ndarray]


def check_target(folder: str | os.PathLike[str]) -> Path:
    """Where a model will be written; refuses a folder that holds something else. Call it before a long fit."""
    target = Path(folder).resolve()  # a link to a model folder stays a link
    is_model = all((target / name).is_file() for name in (_CONFIG, _CHECKSUMS))  # config.json alone may be anyone's
    if target.exists() and not is_model and (not target.is_dir() or any(target.iterdir())):
        raise OutputError(
            f"{str(folder)!r} exists and is not a gsparc model; nothing was written. "
            "Pass a new folder or one that holds a model."
        )
    return target


def write_folder(folder: str | os.PathLike[str], config: dict[str, Any], arrays: Arrays) -> None:
    """Write a model folder; an existing one is replaced as a whole."""
    target = check_target(folder)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        _write_files(temporary, config, arrays)
        temporary.chmod(0o755)
        _replace(temporary, target)
    except OSError as error:
        raise OutputError(
            f"the model cannot be written to {str(folder)!r} ({error.strerror or error}). "
            "Check that the folder can be written to and that the disk is not full; nothing was changed."
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _write_files(folder: Path, config: dict[str, Any], arrays: Arrays) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    header = {"format_version": FORMAT_VERSION, "gsparc_version": __version__}
    text = json.dumps({**header, **config}, indent=2, allow_nan=False) + "\n"
    (folder / _CONFIG).write_text(text, encoding="utf-8")
    try:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / _WEIGHTS)
    except SafetensorError as error:  # a full disk comes as this
        raise OSError(str(error)) from error
    sums = {name: _checksum(folder / name) for name in (_CONFIG, _WEIGHTS)}
    (folder / _CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")
    for name in (_CONFIG, _WEIGHTS, _CHECKSUMS):
        (folder / name).chmod(0o644)  # safetensors keeps its file to the owner; a model is there to be shared
        with open(folder / name, "rb") as stream:
            os.fsync(stream.fileno())


def _backup_of(target: Path) -> Path:
    return target.parent / f".{target.name}.previous"


def _replace(temporary: Path, target: Path) -> None:
    backup = _backup_of(target)
    if target.exists():
        shutil.rmtree(backup, ignore_errors=True)
        os.rename(target, backup)  # from here until the next line a load takes the backup
    try:
        os.rename(temporary, target)
    except OSError:
        if backup.exists():
            os.rename(backup, target)
        raise
    shutil.rmtree(backup, ignore_errors=True)


def read_folder(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Config and arrays of a model folder, after every check that can be made without using them."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(folder).resolve()
    if not path.exists() and _backup_of(path).exists():
        path = _backup_of(path)
    if not (path / _CONFIG).is_file():
        raise ModelFolderError(
            f"{str(folder)!r} is not a gsparc model: no {_CONFIG} in it. Pass a folder that was written by save()."
        )
    config = _read_json(path / _CONFIG)
    version = config.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise _damaged(path / _CONFIG, "it names no format version")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{str(folder)!r} has format {version}, written by gsparc {config.get('gsparc_version', '?')}; this "
            f"version reads up to format {FORMAT_VERSION}. Upgrade with: pip install --upgrade gsparc"
        )
    sums = _read_json(path / _CHECKSUMS)
    for name in (_CONFIG, _WEIGHTS):
        if not (path / name).is_file():
            raise _damaged(path / name, "the file is missing")
        if sums.get(name) != _checksum(path / name):
            raise _damaged(path / name, "its contents are not those that were saved")
    try:
        return config, load_file(path / _WEIGHTS)
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path / _WEIGHTS, str(error)) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise _damaged(path, "the file is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, f"it cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise _damaged(path, "it does not hold a JSON object")
    return value


def _damaged(path: Path, reason: str) -> DamagedModelError:
    return DamagedModelError(
        f"the model is damaged: {path.name}: {reason}. Restore the folder from a copy, or fit and save again."
    )


def _checksum(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
