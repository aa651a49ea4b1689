"""What benchmark scripts share: results carry their provenance and never a half-written file."""

from __future__ import annotations

import importlib.util
import json
import mmap
import platform
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


@pytest.fixture(scope="module")
def common(project: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_common", project / "benchmarks" / "_common.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_record_writes_the_payload_with_its_provenance(common: ModuleType, tmp_path: Path) -> None:
    payload = {"seconds": np.float32(1.5), "counts": np.array([1, 2]), "folder": tmp_path / "graphs"}
    path = common.record("toy", payload, tmp_path / "deep" / "toy.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    assert (result["seconds"], result["counts"], result["folder"]) == (1.5, [1, 2], "graphs")
    assert result["name"] == "toy"
    assert {"python", "torch", "numpy", "scipy", "faiss-cpu", "gsparc"} <= set(result["versions"])
    assert result["hardware"]["cores"] >= 1
    assert [entry.name for entry in path.parent.iterdir()] == ["toy.json"]


def test_nothing_in_a_result_names_the_machine(common: ModuleType, tmp_path: Path) -> None:
    text = common.record("toy", {}, tmp_path / "toy.json").read_text(encoding="utf-8")
    host = platform.node()
    assert not host or f'"{host}"' not in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        ({"versions": {}}, ValueError, "versions"),
        ({"model": object()}, TypeError, "object cannot be written"),
    ],
)
def test_record_refuses(
    common: ModuleType, tmp_path: Path, payload: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        common.record("toy", payload, tmp_path / "toy.json")
    assert list(tmp_path.iterdir()) == []


def test_peak_memory_sees_what_was_freed_before_the_end(common: ModuleType) -> None:
    size = 64_000_000  # fresh pages, whatever the allocator keeps
    with common.PeakMemory(interval=0.002) as memory, mmap.mmap(-1, size) as block:
        block.write(b"1" * size)
        deadline = time.monotonic() + 5
        while memory.peak_bytes - memory.start_bytes < 50e6 and time.monotonic() < deadline:
            time.sleep(0.005)  # on a busy machine the watching thread may have to wait
    assert memory.peak_bytes - memory.start_bytes > 50e6
    assert memory.maxrss_bytes >= memory.peak_bytes * 0.99


def test_timer_measures_the_block_only(common: ModuleType) -> None:
    with common.Timer() as timer:
        time.sleep(0.02)
    time.sleep(0.02)
    assert 0.015 < timer.seconds < 1.0
