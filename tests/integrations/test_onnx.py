"""ONNX files run by onnxruntime against torch."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

from gsparc import SparcClassifier, SparcClusterer, SpectralMap
from gsparc.datasets import make_blocks
from gsparc.exceptions import InputError, OutputError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from gsparc.integrations.onnx import export_onnx  # noqa: E402

DATA = make_blocks(240, 2000, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
COUNTS = np.floor(np.abs(DATA.X) * 3 * (np.random.default_rng(0).random(DATA.X.shape) < 0.4)).astype(np.float32)
SMALL: dict[str, Any] = {"max_steps": 30, "batch_size": 64, "random_state": 0, "device": "cpu"}
MAP = SpectralMap(4, hidden_channels=(16, 16), **SMALL)


def session(path: Path) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def outputs(path: Path, X: np.ndarray) -> dict[str, np.ndarray]:
    ran = session(path)
    names = [each.name for each in ran.get_outputs()]
    return dict(zip(names, ran.run(None, {"features": X.astype(np.float32)}), strict=True))


@cache
def classifier(backbone: str) -> Any:
    more = {"heads": ("mlp", "distilled", "spectral", "vote")} if backbone == "auto" else {}
    model = SparcClassifier(backbone, spectral_map=MAP, hidden_channels=16, num_heads=4, **SMALL, **more)
    return model.fit(DATA.X, np.array(["a", "b", "c"])[DATA.y], graph=DATA.graph)


@pytest.mark.parametrize("linear_path", [False, True])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 8, 8)])
@pytest.mark.parametrize("features", [DATA.X, COUNTS], ids=["columns", "rows"])
def test_maps_of_every_shape(linear_path: bool, hidden: tuple[int, ...], features: Any, tmp_path: Path) -> None:
    model = SpectralMap(4, hidden_channels=hidden, linear_path=linear_path, diffusion_time=len(hidden) / 2, **SMALL)
    model.fit(features, graph=DATA.graph)
    assert export_onnx(model, tmp_path / "map.onnx")["outputs"] == ["coordinates"]
    for rows in (features, features[:1], features * 100, np.zeros_like(features[:2]), features[:0]):
        got = outputs(tmp_path / "map.onnx", rows)["coordinates"]
        assert got.dtype == np.float32
        expected = model.transform(rows) if len(rows) else np.zeros((0, 4))
        np.testing.assert_allclose(got, expected, atol=1e-5 * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_classifier_on_features(make: Any, tmp_path: Path) -> None:
    model: Any = SparcClassifier("mlp", spectral_map=MAP, hidden_channels=16, **SMALL)
    model.fit(make(COUNTS), DATA.y, graph=DATA.graph)
    facts = export_onnx(model, tmp_path / "model.onnx")
    got = outputs(tmp_path / "model.onnx", COUNTS)
    np.testing.assert_allclose(got["probabilities"], model.predict_proba(COUNTS), atol=1e-5)
    np.testing.assert_allclose(got["coordinates"], model.map_.transform(COUNTS), atol=1e-5)
    assert facts["note"] == "probabilities are those of predict_proba"
    assert facts["classes"] == [0, 1, 2]
    assert facts["left_out"] == {}


def test_the_networks_of_a_mixture(tmp_path: Path) -> None:
    model = classifier("auto")
    facts = export_onnx(model, tmp_path / "model.onnx")
    heads = [name for name, head in model._heads.items() if head.kind == "mlp" and model.weights_[name] > 0]
    assert sorted(facts["heads"]) == sorted(heads)
    assert len(heads) > 2
    assert sum(facts["heads"].values()) == pytest.approx(1.0)
    assert list(facts["left_out"]) == ["vote"]
    said = model._head_probabilities(model._view(DATA.X, next(iter(model.map_.module_.parameters())).device), heads)
    total = sum(model.weights_[name] for name in heads)
    mixed = sum(model.weights_[name] / total * said[name] for name in heads) ** (1 / model._mixture.temperature)
    got = outputs(tmp_path / "model.onnx", DATA.X)["probabilities"]
    np.testing.assert_allclose(got, mixed / mixed.sum(axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(got.sum(axis=1), 1.0, atol=1e-6)
    assert "weights renormalised" in facts["note"]


def test_metadata_names_features_and_classes(tmp_path: Path) -> None:
    table = pd.DataFrame(DATA.X, columns=[f"word {i}" for i in range(8)])
    model: Any = SparcClassifier("mlp", spectral_map=MAP, hidden_channels=16, **SMALL)
    model.fit(table, np.array(["a", "b", "c"])[DATA.y], graph=DATA.graph)
    facts = export_onnx(model, tmp_path / "model.onnx")
    ran = session(tmp_path / "model.onnx")
    found = ran.get_modelmeta().custom_metadata_map
    assert json.loads(found["feature_names"]) == facts["feature_names"] == [f"word {i}" for i in range(8)]
    assert json.loads(found["classes"]) == ["a", "b", "c"]
    assert json.loads(found["heads"]) == {"mlp": 1.0}
    assert found["note"] == facts["note"]
    (features,) = ran.get_inputs()
    assert (features.name, features.shape, features.type) == ("features", ["rows", 8], "tensor(float)")
    assert [each.shape for each in ran.get_outputs()] == [["rows", 4], ["rows", 3]]


def test_a_file_says_what_it_cannot_hold(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'phormer' looks for neighbours .* export_onnx\(model.map_, path\)"):
        export_onnx(classifier("phormer"), tmp_path / "model.onnx")
    assert export_onnx(classifier("phormer").map_, tmp_path / "map.onnx")["estimator"] == "SpectralMap"
    with pytest.raises(InputError, match="a SparcClusterer came"):
        export_onnx(SparcClusterer(), tmp_path / "model.onnx")  # type: ignore[arg-type]
    with pytest.raises(NotFittedError):
        export_onnx(SpectralMap(), tmp_path / "model.onnx")
    with pytest.raises(OutputError, match="the ONNX file cannot be written"):
        export_onnx(classifier("phormer").map_, tmp_path / "missing" / "map.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["map.onnx"]


def test_more_than_a_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsparc.integrations.onnx._LARGEST", 1000)
    with pytest.raises(InputError, match="more than 2 GB"):
        export_onnx(classifier("phormer").map_, tmp_path / "map.onnx")
    assert not list(tmp_path.iterdir())
