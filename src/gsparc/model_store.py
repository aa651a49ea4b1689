"""The model folder: how an estimator is written, and what must hold before it is believed.

``config.json`` (format, library version, class, parameters, fitted values), ``weights.safetensors``
(every array), ``checksums.json``, and further files that a model names itself, such as ``preprocess.skops``. Every
file that loading reads is in the checksums; documents for people, such as a report, may lie beside
them and are never read. Nothing in it can execute code. A save writes a complete folder beside the target and
renames it; a kill at any moment leaves the old model or the new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from glob import escape as glob_escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gsparc._mapped import is_mapped, map_tensors, write_tensors
from gsparc._version import __version__
from gsparc.exceptions import DamagedModelError, ModelFolderError, NewerFormatError, OutputError

__all__ = [
    "FORMAT_VERSION",
    "ModelFiles",
    "bounded_tensors",
    "check_target",
    "is_model_folder",
    "read_document",
    "read_folder",
    "read_model",
    "write_folder",
]

FORMAT_VERSION = 2
_CONFIG, _WEIGHTS, _CHECKSUMS = "config.json", "weights.safetensors", "checksums.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)+")
_MOST_JSON = 1 << 28  # bytes of a JSON file that is read at all
_MOST_DOCUMENT = 1 << 26
_ABANDONED = 60.0  # seconds after which a half-written folder that nobody holds is one that a kill has left
Arrays = dict[str, np.ndarray]


class ModelFiles(NamedTuple):
    """What a model folder holds."""

    config: dict[str, Any]
    arrays: Arrays
    files: dict[str, bytes]
    """Contents of the further files, by name."""


def is_model_folder(folder: str | os.PathLike[str]) -> bool:
    """Whether something at this place is, or tries to be, a model; the copy that a killed save left counts."""
    path = Path(folder)
    return any((_existing(path.resolve()) / name).exists() for name in (_CONFIG, _WEIGHTS, _CHECKSUMS))


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


def write_folder(
    folder: str | os.PathLike[str],
    config: dict[str, Any],
    arrays: Arrays,
    *,
    files: Mapping[str, bytes] | None = None,
    documents: Mapping[str, bytes] | None = None,
) -> None:
    """Write a model folder; an existing one is replaced as a whole.

    ``files`` are read again with the model, and checked. ``documents`` are for people: loading does not look at them.
    """
    target = check_target(folder)
    temporary: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        with _held(temporary):
            _write_files(temporary, config, arrays, dict(files or {}), dict(documents or {}))
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


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder while this process lives; the system lets go of it however the process ends."""
    handle = _lock(folder)
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _lock(folder: Path) -> int | None:
    """A handle that holds ``folder``, or None where another process holds it or folders cannot be held."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = None
    try:
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle


def _remove_abandoned(target: Path) -> None:
    """Remove what killed saves to the same target have left; what another process is writing stays."""
    for path in target.parent.glob(f".{glob_escape(target.name)}.*.tmp"):
        if path.is_symlink() or not path.is_dir() or time.time() - path.stat().st_mtime < _ABANDONED:
            continue
        handle = _lock(path)
        if handle is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)


def _write_files(
    folder: Path, config: dict[str, Any], arrays: Arrays, files: dict[str, bytes], documents: dict[str, bytes]
) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    header: dict[str, Any] = {"format_version": FORMAT_VERSION, "gsparc_version": __version__}
    mapped = any(is_mapped(array) for array in arrays.values())
    if mapped:
        header["mapped"] = True  # what did not have to fit into memory shall not have to when it is loaded
    text = json.dumps({**header, **config}, indent=2, allow_nan=False) + "\n"
    (folder / _CONFIG).write_text(text, encoding="utf-8")
    try:
        if mapped:
            write_tensors(folder / _WEIGHTS, dict(arrays))
        else:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, folder / _WEIGHTS)
    except SafetensorError as error:  # a full disk comes as this
        raise OSError(str(error)) from error
    for name, data in (files | documents).items():
        if not _is_own_name(name):
            raise ValueError(f"{name!r} cannot be the name of a file in a model folder")
        (folder / name).write_bytes(data)
    sums = {name: _checksum(folder / name) for name in (_CONFIG, _WEIGHTS, *files)}
    (folder / _CHECKSUMS).write_text(json.dumps(sums, indent=2) + "\n", encoding="utf-8")
    for name in (*sums, *documents, _CHECKSUMS):
        (folder / name).chmod(0o644)  # safetensors keeps its file to the owner; a model is there to be shared
        with open(folder / name, "rb") as stream:
            os.fsync(stream.fileno())


def _is_own_name(name: str) -> bool:
    """Whether a further file may be called so: a plain name with a suffix, and none of the three fixed ones."""
    return _PLAIN_NAME.fullmatch(name) is not None and name not in (_CONFIG, _WEIGHTS, _CHECKSUMS)


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


def read_folder(folder: str | os.PathLike[str], *, mapped: bool | None = None) -> tuple[dict[str, Any], Arrays]:
    """Config and arrays of a model folder, after every check that can be made without using them."""
    found = read_model(folder, mapped=mapped)
    return found.config, found.arrays


def read_model(folder: str | os.PathLike[str], *, mapped: bool | None = None) -> ModelFiles:
    """Everything in a model folder, after every check that can be made without using it.

    ``mapped`` arrays stay in their file: processes that map the same one share its memory, and it must not be written
    to (a save does not: it makes a new one). Default: where an index that does not have to fit into memory was saved.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = _existing(Path(folder).resolve())
    if not (path / _CONFIG).is_file():
        raise ModelFolderError(
            f"{str(folder)!r} is not a gsparc model: no {_CONFIG} in it. Pass a folder that was written by save()."
        )
    config = _read_json(path, _CONFIG)
    version = config.get("format_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise _damaged(path / _CONFIG, "it names no format version")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{str(folder)!r} has format {version}, written by gsparc {config.get('gsparc_version', '?')}; this "
            f"version reads up to format {FORMAT_VERSION}. Upgrade with: pip install --upgrade gsparc"
        )
    if version < FORMAT_VERSION:
        raise ModelFolderError(
            f"{str(folder)!r} has format {version}, written by gsparc {config.get('gsparc_version', '?')}; this "
            f"version reads format {FORMAT_VERSION}. Fit and save again, or load it with that version."
        )
    sums = _read_json(path, _CHECKSUMS)
    further = [name for name in sums if name not in (_CONFIG, _WEIGHTS)]
    for name in further:
        if not _is_own_name(name):
            raise _damaged(path / _CHECKSUMS, f"it names {name!r}, which is no file of a model folder")
    for name in (_CONFIG, _WEIGHTS, *further):
        _check_file(path, name)
        if sums.get(name) != _checksum(path / name):
            raise _damaged(path / name, "its contents are not those that were saved")
    try:
        files = {name: (path / name).read_bytes() for name in further}
        mapped = config.get("mapped") is True if mapped is None else mapped
        arrays = map_tensors(path / _WEIGHTS) if mapped else load_file(path / _WEIGHTS)
        strange = {str(array.dtype) for array in arrays.values() if array.dtype.kind not in "biuf"}
        if strange:
            raise ValueError(f"arrays of type {', '.join(sorted(strange))}")
        return ModelFiles(config, arrays, files)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _damaged(path / _WEIGHTS, str(error)) from error


def read_document(folder: str | os.PathLike[str], name: str) -> bytes | None:
    """A document that lies in a model folder, None where there is none that can be taken along."""
    path = _existing(Path(folder).resolve())
    try:
        _check_file(path, name)
        return None if (path / name).stat().st_size > _MOST_DOCUMENT else (path / name).read_bytes()
    except (DamagedModelError, OSError):
        return None


@contextlib.contextmanager
def bounded_tensors(numbers: int) -> Iterator[None]:
    """Refuse tensors of more than ``numbers`` numbers while a model is put together.

    A changed config can ask for networks of any size. What is larger than all that was saved is not made: the
    ValueError comes before the memory is taken.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Bounded(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            sizes = args[0] if args and isinstance(args[0], (list, tuple)) else ()
            if sizes and all(isinstance(size, int) for size in sizes):
                count = 1
                for size in sizes:
                    count *= size
                if count > numbers:
                    raise ValueError(f"a tensor of {count} numbers, but the folder holds {numbers} at most")
            return func(*args, **(kwargs or {}))

    with Bounded():
        yield


def _existing(path: Path) -> Path:
    """The folder itself, or what a kill between the two renames of a save has left of it."""
    return _backup_of(path) if not path.exists() and _backup_of(path).exists() else path


def _check_file(folder: Path, name: str) -> None:
    """A plain file inside the folder; a link that leads out of it is none of the model's."""
    path = folder / name
    if not path.is_file():
        raise _damaged(path, "the file is missing")
    if not path.resolve().is_relative_to(folder.resolve()):
        raise _damaged(path, "it is a link that leads out of the folder")


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    _check_file(folder, name)
    if path.stat().st_size > _MOST_JSON:
        raise _damaged(path, f"it has {path.stat().st_size:,} bytes, more than any model needs")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
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
