"""A model folder that somebody has changed, sealed with fresh checksums: a clear error, and nothing runs."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gsparc.exceptions import DamagedModelError
from gsparc.tables.columns import guess_columns, guess_edge_columns
from gsparc.tables.model import TableModel


@pytest.fixture(scope="module")
def saved(tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = guess_columns(tables.nodes, target="section")
    model = TableModel.fit(
        tables.nodes,
        tables.edges,
        columns,
        guess_edge_columns(tables.edges),
        tasks=("classes", "links", "clusters"),
        n_clusters=3,
        backbone="mlp",
        max_steps=3,
    )
    folder = tmp_path_factory.mktemp("model") / "model"
    model.save(folder)
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "copy")
    return tmp_path / "copy"


def seal(folder: Path) -> None:
    names = ("config.json", "weights.safetensors", "preprocess.skops")
    sums = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names if (folder / n).exists()}
    (folder / "checksums.json").write_text(json.dumps(sums))


def change(folder: Path, how: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    how(config)
    (folder / "config.json").write_text(json.dumps(config))
    seal(folder)


@pytest.mark.parametrize(
    "how",
    [
        lambda c: c.update(parts={}),
        lambda c: c["parts"].pop("classifier"),
        lambda c: c.update(parts=[]),
        lambda c: c["parts"]["classifier"].update({"class": "SparcClusterer"}),
        lambda c: c["parts"]["classifier"].update({"class": "os.system"}),
        lambda c: c["parts"]["links"].update(n_features_in=10**12),
        lambda c: c["parts"]["classifier"]["fitted"]["map"]["fitted"]["module"].update(in_channels=10**9),
        lambda c: c["parts"]["classifier"]["fitted"]["map"]["fitted"]["module"].update(hidden_channels=[10**6, 10**6]),
        lambda c: c["parts"]["clusterer"]["parameters"].update(n_clusters=10**12),
        lambda c: c["parts"]["classifier"]["parameters"].update(evil=1),
        lambda c: c["node_ids"].update(count=10**15),
        lambda c: c["node_ids"].update(count=-1),
        lambda c: c["node_ids"].update(kind="positions"),
        lambda c: c.update(class_names=None),
        lambda c: c.update(columns={"id": "../../etc"}),
        lambda c: c["columns"].update(text=[]),
        lambda c: c["columns"].update(text="description"),
        lambda c: c.update(edge_columns={"source": "a", "evil": 1}),
        lambda c: c.update(report=[]),
        lambda c: c.pop("columns"),
    ],
)
def test_a_changed_config_is_damage(copy: Path, how: Callable[[dict[str, Any]], object]) -> None:
    change(copy, how)
    with pytest.raises(DamagedModelError, match="damaged"):
        TableModel.load(copy)


def test_arrays_of_other_shapes_are_damage(saved: Path, copy: Path) -> None:
    arrays = load_file(saved / "weights.safetensors")
    own = ("node_ids.", "class_names.", "drawing.", "picture")
    accepted = []
    for name in [name for name in arrays if name.startswith(own)]:
        for how in ("gone", "shorter", "deeper"):
            changed = dict(arrays)
            if how == "gone":
                del changed[name]
            else:
                changed[name] = arrays[name][:-1] if how == "shorter" else arrays[name][None]
            save_file(changed, copy / "weights.safetensors")
            seal(copy)
            try:
                TableModel.load(copy)
            except DamagedModelError:
                continue
            accepted.append((name, how))
    assert accepted == []
    save_file(arrays, copy / "weights.safetensors")
    seal(copy)
    TableModel.load(copy)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("indices", lambda a: a + 10**6),
        ("indices", lambda a: -a - 1),
        ("indices", lambda a: a[:-1]),
        ("indices", lambda a: a.astype(np.float32)),
        ("indices", lambda a: None),
        ("indptr", lambda a: a[:-1]),
        ("indptr", lambda a: a[::-1].copy()),
        ("indptr", lambda a: np.append(a, a[-1])),
    ],
)
def test_edges_that_are_none_are_damage(copy: Path, name: str, how: Callable[[Any], Any]) -> None:
    model = TableModel.load(copy)
    assert model.graph is not None
    model.links, model.own_graph = None, model.graph  # as it is without links, which may keep the edges themselves
    model.save(copy)
    TableModel.load(copy)
    arrays = load_file(copy / "weights.safetensors")
    changed = how(arrays.pop(f"graph.{name}"))
    save_file(arrays if changed is None else arrays | {f"graph.{name}": changed}, copy / "weights.safetensors")
    seal(copy)
    with pytest.raises(DamagedModelError, match="damaged"):
        TableModel.load(copy)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x04cos\nsystem\n(S'touch /tmp/x'\ntR.", b"{}" * 1000])
def test_a_preprocessing_file_that_is_none(copy: Path, data: bytes) -> None:
    (copy / "preprocess.skops").write_bytes(data)
    seal(copy)
    with pytest.raises(DamagedModelError, match="damaged"):
        TableModel.load(copy)


def test_a_preprocessing_file_that_is_not_there(copy: Path) -> None:
    (copy / "preprocess.skops").unlink()
    seal(copy)
    with pytest.raises(DamagedModelError, match=r"there is no preprocess\.skops"):
        TableModel.load(copy)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors", "preprocess.skops", "checksums.json"])
def test_a_truncated_file_is_damage(copy: Path, name: str) -> None:
    data = (copy / name).read_bytes()
    for part in np.linspace(0, len(data) - 3, 5).astype(int):
        (copy / name).write_bytes(data[:part])
        with pytest.raises(DamagedModelError, match="damaged"):
            TableModel.load(copy)


def test_loading_runs_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import os
    import pickle
    import subprocess

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("code from a model folder was about to run")

    for module, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (builtins, "eval"),
        (builtins, "exec"),
        (os, "system"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(module, name, refuse)
    TableModel.load(saved)
