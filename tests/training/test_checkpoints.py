"""Checkpoints: whole or not at all, of this fit or refused; a killed fit ends like one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from gsparc import SpectralMap
from gsparc.datasets import make_circle
from gsparc.estimators import embedding
from gsparc.exceptions import CheckpointError, OutputError
from gsparc.training import checkpoints
from gsparc.training.checkpoints import load_checkpoint, save_checkpoint
from gsparc.training.spectral import SpectralTask

TENSORS = {"module.a": torch.arange(6.0).reshape(2, 3), "rng.own": torch.arange(5, dtype=torch.uint8)}
RECORD = {"fingerprint": "x", "steps": 7, "history": [{"loss": 0.5}]}


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path / "new", "x") is None
    save_checkpoint(tmp_path / "new", TENSORS, RECORD)
    found = load_checkpoint(tmp_path / "new", "x")
    assert found is not None
    assert found[1] == RECORD
    assert all(torch.equal(found[0][name], value) for name, value in TENSORS.items())
    assert os.listdir(tmp_path / "new") == ["checkpoint.safetensors"]


def test_another_fits_checkpoint_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, TENSORS, RECORD)
    with pytest.raises(CheckpointError, match=r"written by a fit with other data or settings.*another checkpoint"):
        load_checkpoint(tmp_path, "y")


@pytest.mark.parametrize("damage", ["empty", "truncated", "header", "no record", "flipped"])
def test_a_damaged_checkpoint_is_refused(damage: str, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, TENSORS, RECORD)
    path = tmp_path / "checkpoint.safetensors"
    data = path.read_bytes()
    if damage == "no record":
        from safetensors.torch import save

        data = save(TENSORS)
    path.write_bytes(
        {
            "empty": b"",
            "truncated": data[:-3],
            "header": b"\xff" * 8 + data[8:],
            "no record": data,
            "flipped": data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
        }[damage]
    )
    with pytest.raises(CheckpointError, match=r"cannot be read.*Delete it to start from the beginning"):
        load_checkpoint(tmp_path, "x")


def test_a_kill_while_writing_leaves_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, TENSORS, RECORD)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.os, "fsync", die)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, TENSORS, {**RECORD, "steps": 8})
    found = load_checkpoint(tmp_path, "x")
    assert found is not None
    assert found[1]["steps"] == 7
    assert os.listdir(tmp_path) == ["checkpoint.safetensors"]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        OutputError, match=r"cannot write a checkpoint.*another place for the output.*in Python checkpoint=None"
    ):
        save_checkpoint(tmp_path / "file" / "below", TENSORS, RECORD)


DATA = make_circle(150, n_neighbors=6, noise_features=1, random_state=0)


def small_map(checkpoint: Path | None = None, **changes: object) -> SpectralMap:
    settings: dict = {"objective": "contrastive", "random_state": 4, "max_steps": 240} | changes
    return SpectralMap(
        3,
        hidden_channels=(16,),
        batch_size=64,
        patience=99,
        dropout=0.1,
        checkpoint=checkpoint,
        device="cpu",
        **settings,
    )


def state(model: SpectralMap) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model._state()[1].items()}


@pytest.mark.parametrize("objective", ["contrastive", "rayleigh"])
def test_an_interrupted_map_ends_with_the_same_weights(
    objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = small_map(objective=objective).fit(DATA.X, graph=DATA.graph)
    monkeypatch.setattr(embedding, "LoopSettings", partial(embedding.LoopSettings, checkpoint_seconds=0.0))
    real, calls = SpectralTask.loss, []

    def dies(self: SpectralTask, generator: torch.Generator) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 130:
            raise KeyboardInterrupt
        return real(self, generator)

    with monkeypatch.context() as patch:
        patch.setattr(SpectralTask, "loss", dies)
        with pytest.raises(KeyboardInterrupt):
            small_map(tmp_path, objective=objective).fit(DATA.X, graph=DATA.graph)
        calls.extend([1] * 200)  # past the step that dies
        resumed = small_map(tmp_path, objective=objective).fit(DATA.X, graph=DATA.graph)
    assert len(calls) == 130 + 200 + 140  # went on from step 100
    assert state(resumed) == state(whole)
    assert resumed.history_ == whole.history_


CHILD = """
import os, signal, sys
from functools import partial
import torch
torch.set_num_threads(1)
from gsparc import SpectralMap
from gsparc.datasets import make_circle
from gsparc.estimators import embedding
from gsparc.training.spectral import SpectralTask
embedding.LoopSettings = partial(embedding.LoopSettings, checkpoint_seconds=0.0)
real, calls = SpectralTask.loss, []
def loss(self, generator):
    calls.append(1)
    if len(calls) == 170:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, generator)
SpectralTask.loss = loss
data = make_circle(150, n_neighbors=6, noise_features=1, random_state=0)
SpectralMap(3, hidden_channels=(16,), batch_size=64, patience=99, dropout=0.1, checkpoint=sys.argv[1], device="cpu",
            random_state=4, max_steps=240).fit(data.X, graph=data.graph)
"""


def test_a_killed_process_is_resumed_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "state"
    child = subprocess.run([sys.executable, "-c", CHILD, folder], check=False, capture_output=True, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
    real, calls = SpectralTask.loss, []
    monkeypatch.setattr(SpectralTask, "loss", lambda self, g: calls.append(1) or real(self, g))
    resumed = small_map(folder).fit(DATA.X, graph=DATA.graph)
    assert len(calls) == 240 - 150
    resumed.save(tmp_path / "resumed")
    small_map().fit(DATA.X, graph=DATA.graph).save(tmp_path / "whole")
    for name in ("weights.safetensors", "config.json"):
        assert (tmp_path / "resumed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_map_refuses_the_checkpoint_of_other_data_settings_or_seed(tmp_path: Path) -> None:
    small_map(tmp_path, max_steps=5).fit(DATA.X, graph=DATA.graph)
    other = np.array(DATA.X)
    other[0, 0] += 1e-3
    with pytest.raises(CheckpointError, match="other data or settings"):
        small_map(tmp_path, max_steps=5).fit(other, graph=DATA.graph)
    for changes in ({"random_state": 5}, {"learning_rate": 1e-3}, {"tau": 0.5}):
        with pytest.raises(CheckpointError, match="other data or settings"):
            small_map(tmp_path, max_steps=5, **changes).fit(DATA.X, graph=DATA.graph)
    with pytest.raises(CheckpointError, match="other data or settings"):
        small_map(tmp_path, max_steps=5).fit(DATA.X, graph=DATA.graph[np.arange(150)[::-1]])
    small_map(tmp_path, max_steps=5).fit(DATA.X, graph=DATA.graph)  # the same fit is welcome
    small_map(tmp_path / "drawn", max_steps=5, random_state=np.random.default_rng(1)).fit(DATA.X, graph=DATA.graph)
    with pytest.raises(CheckpointError, match="other data or settings"):
        small_map(tmp_path / "drawn", max_steps=5, random_state=np.random.default_rng(2)).fit(DATA.X, graph=DATA.graph)
