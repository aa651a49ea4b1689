"""Files appear whole or not at all, and leave nothing beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gsparc._files import write_atomically, write_text
from gsparc.exceptions import OutputError


def test_text_is_written_with_its_folder(tmp_path: Path) -> None:
    target = write_text(tmp_path / "a" / "b.json", "é\n")
    assert target.read_text(encoding="utf-8") == "é\n"
    assert target.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in target.parent.iterdir()] == ["b.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_half_way_leaves_the_old_file(tmp_path: Path, error: BaseException) -> None:
    target = write_text(tmp_path / "old.csv", "old")

    def half(file: Path) -> None:
        assert file.suffix == ".csv"  # writers go by it
        file.write_text("ne", encoding="utf-8")
        raise error

    with pytest.raises(OutputError if isinstance(error, OSError) else KeyboardInterrupt):
        write_atomically(target, half)
    assert target.read_text(encoding="utf-8") == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["old.csv"]


def test_the_error_says_what_and_where(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"the report cannot be written to .*page\.html .*Choose a folder"):
        write_text(tmp_path / "file" / "page.html", "x", "the report")
    with pytest.raises(OutputError, match=r"cannot write .*page\.html"):
        write_text(tmp_path / "file" / "page.html", "x")
