"""Fits on a store: as on arrays in memory, and without copies of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gsparc import FeatureError, Graph, InputError, SpectralMap
from gsparc._csr import component_labels
from gsparc._store import Store
from gsparc.ops.ritz import rayleigh_ritz, rayleigh_ritz_streamed
from gsparc.storage import IngestSettings, ingest
from gsparc.storage.fitting import model_of_store
from gsparc.storage.model import StringIds
from gsparc.tables.fitting import FitSettings
from gsparc.tables.model import TableModel


def make_store(folder: Path, dtype: str = "float32", weighted: bool = False) -> Store:
    """Three groups of 80 nodes that vectors and edges agree on, ids as strings."""
    rng, count = np.random.default_rng(0), 240
    kind = np.arange(count) % 3
    values = rng.normal(size=(count, 6)).astype(np.float32) + 2 * np.eye(6, dtype=np.float32)[kind]
    nodes = {
        "id": [f"n{i}" for i in range(count)],
        "v": pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 6),
        "label": np.array(["red", "green", "blue"])[kind],
    }
    source = np.repeat(np.arange(count), 4)
    target = (source + 3 * rng.integers(1, 20, size=len(source))) % count
    edges = {"source": [f"n{i}" for i in source], "target": [f"n{i}" for i in target]}
    if weighted:
        edges["weight"] = rng.integers(1, 5, size=len(source)).astype(float)
    pq.write_table(pa.table(nodes), folder / "nodes.parquet")
    pq.write_table(pa.table(edges), folder / "edges.parquet")
    chosen = IngestSettings(dtype=dtype)
    return ingest(folder / "nodes.parquet", folder / "edges.parquet", folder / "store", chosen, fresh=True)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_map_of_a_store_is_that_of_the_arrays(tmp_path: Path, dtype: str, weighted: bool) -> None:
    store = make_store(tmp_path, dtype, weighted)
    graph, X = store.graph, np.array(store.X, np.float32)
    weights = None if graph.weights is None else np.array(graph.weights)
    plain = Graph(np.array(graph.indptr), np.array(graph.indices), weights)
    asked = {"max_steps": 20, "hidden_channels": (16,), "random_state": 0, "device": "cpu"}
    mapped, whole = SpectralMap(4, **asked).fit(store), SpectralMap(4, **asked).fit(X, graph=plain)
    np.testing.assert_allclose(mapped.eigenvalues_, whole.eigenvalues_, atol=1e-5)
    np.testing.assert_allclose(mapped.transform(store), whole.transform(X), atol=5e-3)


def test_mapped_features_are_not_copied_and_are_checked(tmp_path: Path) -> None:
    from gsparc._validation import check_features

    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", rows)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r", allow_pickle=False)
    assert check_features(SpectralMap(), mapped, reset=True) is mapped
    rows[7, 1] = np.nan
    np.save(tmp_path / "y.npy", rows)
    with pytest.raises(FeatureError, match="NaN or infinity"):
        check_features(SpectralMap(), np.load(tmp_path / "y.npy", mmap_mode="r", allow_pickle=False), reset=True)


@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_streamed_ritz_is_the_plain_one(tau: float) -> None:
    import torch

    from gsparc.ops.laplacian import operator_degrees

    rng = np.random.default_rng(0)
    ends = rng.integers(0, 30, size=(2, 80))
    graph = Graph.from_edges(ends, 30, weights=rng.random(80) + 0.1)
    values = rng.normal(size=(30, 4)).astype(np.float32)
    degrees = operator_degrees(graph.indptr, graph.weights, tau=tau)
    pi = torch.from_numpy((degrees / degrees.sum()).astype(np.float32))
    arrays = (graph.indptr, graph.indices, graph.weights)
    plain = rayleigh_ritz(*arrays, pi, torch.from_numpy(values), tau=tau)
    streamed = rayleigh_ritz_streamed(*arrays, values, tau=tau)
    torch.testing.assert_close(streamed.mu, plain.mu, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(streamed.rotation, plain.rotation, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_components_by_blocks(chunk: int) -> None:
    graph = Graph.from_edges(np.random.default_rng(1).integers(0, 60, size=(2, 35)), 60)
    count, labels = graph.connected_components()
    found, own = component_labels(graph.indptr, graph.indices, chunk)
    assert found == count
    assert np.array_equal(own, labels)


def test_a_large_store_makes_a_model_that_predicts_and_is_saved(tmp_path: Path) -> None:
    store = make_store(tmp_path, "float16")
    chosen = FitSettings(("classes", "links"), device="cpu", max_steps=60)
    model = model_of_store(store, chosen, progress=lambda sentence, done: None, whole=False)
    assert model is not None
    assert model.report["measured"]["accuracy"] > 0.8
    model.save(tmp_path / "model")
    loaded = TableModel.load(tmp_path / "model")
    new = pa.table({"id": ["new"], "v": [[2.0, 0, 0, 0, 0, 0]], "label": ["?"]})
    first, again = model.predict(new), loaded.predict(new)
    assert first.near is not None
    assert again.near is not None
    assert again.near[0].tolist() == first.near[0].tolist()
    np.testing.assert_allclose(again.near[1], first.near[1], atol=1e-4)
    np.testing.assert_allclose(again.proba, first.proba, atol=1e-4)
    assert again.records()[0]["class"] == "red"
    assert len(again.records()[0]["near"]) == 5
    assert {record["class"] for record in again.records()[0]["near"]} <= {"red", "green", "blue"}


def test_too_little_memory_for_the_index_is_said_before_the_training(tmp_path: Path) -> None:
    store, told = make_store(tmp_path), []
    chosen = FitSettings(("links",), device="cpu", max_steps=60, index_memory=1000)
    with pytest.raises(InputError, match=r"does not fit into 1,000 bytes of memory; the smallest .* takes .* bytes"):
        model_of_store(store, chosen, progress=lambda sentence, done: told.append(sentence), whole=False)
    assert not any("spectral map" in sentence for sentence in told)


def test_string_ids_are_read_where_they_are_looked_at() -> None:
    words = ["ab", "", "é", "xyz"]
    encoded = [word.encode() for word in words]
    ids = StringIds(np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([len(word) for word in encoded]))
    assert ids[np.array([[3, 0], [1, 2]])].tolist() == [["xyz", "ab"], ["", "é"]]
    assert ids[:2].tolist() == words[:2]
