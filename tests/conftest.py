"""What all tests share: one thread, the benchmark graphs where they are present, and a graph one can draw."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

PROJECT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("GSPARC_DATA") or PROJECT.parent / "shared" / "data")
NO_DATA = "the benchmark graphs are not on this machine; set GSPARC_DATA to the folder that holds cora.npz"


def pytest_configure(config: pytest.Config) -> None:
    # pytest-xdist runs one process a core: more threads inside each would only fight for the same cores.
    torch.set_num_threads(1)
    # Its import warns of what torch has deprecated; here warnings are errors, and a failed import stays half done.
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        importlib.import_module("torch_geometric")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if (DATA / "cora.npz").is_file():
        return
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.skip(reason=NO_DATA))


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root folder."""
    return PROJECT


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the benchmark graphs; the test is skipped where there is none."""
    if not (DATA / "cora.npz").is_file():
        pytest.skip(NO_DATA)
    return DATA


@pytest.fixture
def tiny_graph():
    """The path 0 - 1 - 2 - 3."""
    from gsparc.graph import Graph

    return Graph.from_edges(np.array([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
