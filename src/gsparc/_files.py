"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gsparc.exceptions import OutputError

__all__ = ["cannot_write", "refuse_overwriting", "write_atomically", "write_text"]


def cannot_write(path: Path, error: OSError, what: str = "") -> OutputError:
    """The error for a file that cannot be written, in words; ``what``: what it would have been."""
    subject = f"{what} cannot be written to {path}" if what else f"cannot write {path}"
    return OutputError(f"{subject} ({error.strerror or error}). Choose a folder that exists and can be written.")


def refuse_overwriting(output: Path, inputs: Iterable[str | os.PathLike[str] | None]) -> None:
    """An OutputError where ``output`` is one of the files that are read, or a folder that holds one of them.

    The user's own data would be lost: an output that is a folder replaces what was there as a whole.
    """
    if not output.exists():
        return
    folder, around = output.is_dir(), output.resolve()
    for path in inputs:
        if path is None or not os.path.exists(path):
            continue
        if os.path.samefile(output, path):
            raise OutputError(f"{output} would be written over, but it is read ({path}). Choose another name.")
        places = Path(path).resolve(), Path(path).absolute().parent.resolve()  # a link may lie elsewhere than its file
        if folder and any(place.is_relative_to(around) for place in places):
            raise OutputError(
                f"{output} would be replaced as a whole, but {path} in it is read and would be lost. Choose another "
                "folder, or move the file."
            )


def write_atomically(path: Path, write: Callable[[Path], object], what: str = "") -> Path:
    """Let ``write`` fill a file beside ``path``, then rename it: a reader never sees half of it.

    The temporary file has the suffix of ``path``, since some writers go by it, and is gone after any failure.
    """
    temporary = None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, what) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def write_text(path: Path, text: str, what: str = "") -> Path:
    """Write a text file whole, and its folder where there is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error, what) from error
    return write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"), what)
