"""The fake table under a name that spawned workers find, too."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from gsparc.experiments.engine import Experiment

collect_ignore = ["fake_table.py", "other_table.py"]  # what tests import by these names, and no tests


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The table of fake_table.py."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    return importlib.import_module("fake_table").TABLE


@pytest.fixture
def other(fake: Experiment) -> Experiment:
    """The table of other_table.py."""
    return importlib.import_module("other_table").TABLE


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that gets one line for every cell that is run."""
    path = tmp_path / "calls.txt"
    path.touch()
    monkeypatch.setenv("FAKE_LOG", str(path))
    return path
