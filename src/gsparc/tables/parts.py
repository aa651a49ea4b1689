"""An output that is a folder of Parquet parts with a mark of success, there as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gsparc._files import cannot_write
from gsparc._version import __version__
from gsparc.exceptions import OutputError
from gsparc.model_store import _held, _remove_abandoned, _replace
from gsparc.tables.reading import file_format

__all__ = ["SUCCESS", "check_parts_target", "part_name", "parts_folder", "publish_parts"]

SUCCESS = "_SUCCESS"


def part_name(number: int) -> str:
    """Names of parts sort as their numbers do.

    Examples
    --------
    >>> part_name(7)
    'part-0000007.parquet'
    """
    return f"part-{number:07d}.parquet"


def check_parts_target(output: str | os.PathLike[str]) -> Path:
    """Where the folder will be; refuses one that holds anything but an earlier output."""
    target = Path(output).resolve()
    if target.exists() and not target.is_dir():
        raise OutputError(f"{output} is a file, and a folder of parts is to be written. Pass the name of a folder.")
    if not target.exists() and file_format(target):
        raise OutputError(
            f"a folder of Parquet parts is to be written, and {str(output)!r} is named like a file. Name the folder "
            f"without {''.join(target.suffixes[-1:])}, or leave --engine ray out to get one file."
        )
    if target.is_dir() and any(target.iterdir()) and not _is_ours(target):
        raise OutputError(
            f"the folder {output} is not empty and holds no finished output of this command (its {SUCCESS} mark); "
            "nothing was changed. Pass another folder, or remove this one."
        )
    return target


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds what :func:`publish_parts` has written, and nothing else."""
    try:
        mark = json.loads((folder / SUCCESS).read_text(encoding="utf-8"))
        names = {path.name for path in folder.iterdir()} - {SUCCESS}
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(mark, dict) and "gsparc_version" in mark and names == {part_name(i) for i in range(len(names))}


@contextlib.contextmanager
def parts_folder(target: Path) -> Iterator[Path]:
    """A folder beside ``target`` to write parts to; it is gone afterwards, unless it was published."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target)
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        folder.chmod(0o755)
    except OSError as error:
        raise cannot_write(target, error) from error
    try:
        with _held(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish_parts(folder: Path, target: Path, rows: Sequence[int], facts: dict[str, Any]) -> None:
    """Check that the parts have the rows that they should have, set the mark, and give the folder its name."""
    import pyarrow.parquet as pq

    expected = {part_name(number): count for number, count in enumerate(rows)}
    for path in folder.iterdir():
        if path.name not in expected:  # begun by a worker that was lost
            path.unlink()
    for name, count in expected.items():
        path = folder / name
        found = pq.read_metadata(path).num_rows if path.is_file() else None
        if found != count:
            what = "is not there" if found is None else f"has {found:,} rows"
            raise OutputError(
                f"{name} of {target} {what} where a worker wrote {count:,} rows; nothing was changed. All workers must "
                "write to the same disk."
            )
    mark = {"gsparc_version": __version__, "rows": sum(rows), "parts": len(expected), **facts}
    try:
        (folder / SUCCESS).write_text(json.dumps(mark, indent=2) + "\n", encoding="utf-8")
        _replace(folder, target)
    except OSError as error:
        raise cannot_write(target, error) from error
