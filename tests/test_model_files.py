"""Further files of a model folder, and folders that somebody has prepared: a clear error, and nothing executed."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gsparc import model_store
from gsparc.exceptions import DamagedModelError
from gsparc.model_store import bounded_tensors, is_model_folder, read_document, read_folder, read_model, write_folder

ARRAYS = {"a": np.arange(6.0, dtype=np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files, documents = {"preprocess.skops": b"steps"}, {"report.html": b"<html>"}
    write_folder(tmp_path / "model", {"class": "X"}, ARRAYS, files=files, documents=documents)
    return tmp_path / "model"


def seal(folder: Path, *more: str) -> None:
    names = ("config.json", "weights.safetensors", "preprocess.skops", *more)
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    (folder / "checksums.json").write_text(json.dumps(sums))


def test_files_come_back_and_documents_are_not_looked_at(folder: Path) -> None:
    found = read_model(folder)
    assert found.files == {"preprocess.skops": b"steps"}
    assert read_document(folder, "report.html") == b"<html>"
    (folder / "report.html").write_text("changed by its reader")
    (folder / "notes.txt").write_text("mine")
    assert read_model(folder).files == found.files
    (folder / "report.html").unlink()
    assert read_document(folder, "report.html") is None
    assert read_folder(folder)[0]["class"] == "X"
    assert is_model_folder(folder)
    assert not is_model_folder(folder.parent)


@pytest.mark.parametrize("damage", ["missing", "changed", "empty"])
def test_a_damaged_file_is_named(folder: Path, damage: str) -> None:
    path = folder / "preprocess.skops"
    path.unlink() if damage == "missing" else path.write_bytes(b"" if damage == "empty" else b"stepz")
    with pytest.raises(DamagedModelError, match=r"preprocess\.skops.*Restore the folder"):
        read_model(folder)


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/passwd", "..", "a/b.skops", ".hidden", "a\\b.txt", "x\0.y", ""]
)
def test_names_that_lead_elsewhere_are_refused(folder: Path, name: str) -> None:
    (folder.parent / "secret.txt").write_text("secret")
    sums = json.loads((folder / "checksums.json").read_text())
    sums[name] = hashlib.sha256(b"secret").hexdigest()
    (folder / "checksums.json").write_text(json.dumps(sums))
    with pytest.raises(DamagedModelError, match="which is no file of a model folder"):
        read_model(folder)
    with pytest.raises(ValueError, match="cannot be the name"):
        write_folder(folder.parent / "other", {}, {}, files={name: b""})


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "checksums.json", "preprocess.skops"])
def test_links_out_of_the_folder_are_refused(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    os.rename(folder / name, outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(DamagedModelError, match=r"a link that leads out of the folder"):
        read_model(folder)
    (folder / name).unlink()
    os.rename(outside, folder / f"real-{name}")
    (folder / name).symlink_to(folder / f"real-{name}")
    assert read_model(folder).files == {"preprocess.skops": b"steps"}  # inside it may be linked


def test_a_pipe_does_not_hang(folder: Path) -> None:
    (folder / "preprocess.skops").unlink()
    os.mkfifo(folder / "preprocess.skops")
    with pytest.raises(DamagedModelError, match="the file is missing"):
        read_model(folder)


def header(text: dict, data: bytes = b"", length: int | None = None) -> bytes:
    encoded = json.dumps(text).encode()
    return struct.pack("<Q", len(encoded) if length is None else length) + encoded + data


@pytest.mark.parametrize(
    "weights",
    [
        header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
        header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}, b"0000"),
        header({"a": {"dtype": "F32", "shape": [1 << 33, 1 << 33], "data_offsets": [0, 4]}}, b"0000"),
        header({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"0000"),
        header({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"0000"),
        header({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"0000"),
        header({}, length=1 << 62),
        header({}, length=99_000_000),
        b"",
        b"\0" * 7,
    ],
)
def test_weights_that_lie_about_their_size(folder: Path, weights: bytes) -> None:
    (folder / "weights.safetensors").write_bytes(weights)
    seal(folder)
    start = time.perf_counter()
    with pytest.raises(DamagedModelError, match=r"weights\.safetensors"):
        read_model(folder)
    assert time.perf_counter() - start < 5


def test_a_config_of_gigabytes_is_not_read(folder: Path) -> None:
    with open(folder / "config.json", "r+b") as stream:
        stream.truncate(1 << 33)  # takes no room on the disk
    with pytest.raises(DamagedModelError, match=r"8,589,934,592 bytes, more than any model needs"):
        read_model(folder)


def test_no_network_is_made_that_is_larger_than_the_folder() -> None:
    with bounded_tensors(1000):
        assert torch.nn.Linear(10, 10)(torch.zeros(2, 10)).shape == (2, 10)
        with pytest.raises(ValueError, match="1000000000 numbers, but the folder holds 1000 at most"):
            torch.nn.Linear(1_000_000_000, 1, bias=False)
        with pytest.raises(ValueError, match="a tensor of"):
            torch.zeros(100, 100)
    assert torch.zeros(100, 100).numel() == 10_000


def test_what_killed_saves_left_is_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, fresh, held = (folder.parent / f".model.{name}.tmp" for name in ("left", "fresh", "held"))
    for path in (left, fresh, held):
        path.mkdir()
        (path / "weights.safetensors").write_bytes(b"half")
    for path in (left, held):
        os.utime(path, (0, 0))
    with model_store._held(held):
        write_folder(folder, {"class": "X"}, ARRAYS)
        assert (left.exists(), fresh.exists(), held.exists()) == (False, True, True)
    write_folder(folder, {"class": "X"}, ARRAYS)
    assert not held.exists()
