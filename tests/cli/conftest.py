"""A small graph on disk, and the command line in a process of its own."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def small_graph(folder: Path) -> Path:
    """150 nodes in three groups that features and edges agree on; one node of 150 has no label."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    x = rng.normal(size=(150, 8)).astype(np.float32) + 2.0 * np.eye(8, dtype=np.float32)[y]
    ends = [rng.choice(np.flatnonzero(y == y[i]), 4) for i in range(150)]
    edges = np.stack([np.repeat(np.arange(150), 4), np.concatenate(ends)])
    y[149] = -1
    path = folder / "small.npz"
    ids = np.array([f"n{i}" for i in range(150)])
    names = np.array(["red", "green", "blue"])
    np.savez(path, x=x, edges=edges, y=y, node_ids=ids, class_names=names)
    np.savez(folder / "new.npz", x=x[:5] + 0.1, node_ids=np.array([f"new{i}" for i in range(5)]))
    np.savez(folder / "narrow.npz", x=x[:5, :3])
    return path


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the small graph; new.npz (5 nodes) and narrow.npz (too few features) lie beside it."""
    return small_graph(tmp_path_factory.mktemp("graph"))


def check_advice(command: str, told: str) -> None:
    """Options that an error names are options of the command, or of the one that is named before them."""
    from gsparc.cli.app import _COMMANDS
    from gsparc.cli.common import options_of

    options = {module.NAME: options_of(module.run) | {"--help"} for module in _COMMANDS}
    if command not in options or "No such option" in told:
        return
    told = re.sub(r"(pip install|ray start|torchrun)[^.,;]*", "", " ".join(told.split()))
    of = command
    for other, option in re.findall(r"gsparc ([a-z]+)|(?<![\w-])(--[a-z][a-z-]*)", told):
        of = other if other in options else of
        known = options[of] | options[command]
        assert not option or option in known, f"{of} has no {option}, but its error names it: {told}"


@pytest.fixture(scope="module")
def inside() -> Iterator[Run]:
    """The same without a new process, which saves the seconds that torch takes to load."""
    from typer.testing import CliRunner

    from gsparc.cli import app

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "100", "TERM": "dumb"})
        if result.exit_code:
            check_advice(str(arguments[0]), result.stderr.rpartition("error: ")[2])
        return subprocess.CompletedProcess([*map(str, arguments)], result.exit_code, result.stdout, result.stderr)

    logger = logging.getLogger("gsparc")
    before = logger.handlers[:], logger.level, logger.propagate
    yield run
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture(scope="session")
def gsparc() -> Run:
    """Run ``python -m gsparc ...`` and give back what it printed and its exit status."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "TERM": "dumb", **environment}
        command = [sys.executable, "-m", "gsparc", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=200, check=False)

    return run
