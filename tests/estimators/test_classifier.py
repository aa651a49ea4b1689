"""SparcClassifier: kinds of labels, unlabelled nodes, probabilities, saving, nearest nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from gsparc import Graph, SparcClassifier, SpectralMap, load_model
from gsparc.baselines import MLPBaseline
from gsparc.datasets import make_blocks
from gsparc.estimators._labels import encode_labels, hold_out_labelled

DATA = make_blocks(300, 2500, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
SEEN, COLD = np.arange(240), np.arange(240, 300)
MAP = SpectralMap(6, hidden_channels=(32,), max_steps=60, batch_size=256)


def tiny(**changes) -> SparcClassifier:
    settings = {"spectral_map": MAP, "hidden_channels": 32, "max_steps": 75, "random_state": 0} | changes
    return SparcClassifier("mlp", device="cpu", **settings)


@pytest.fixture(scope="module")
def fitted() -> SparcClassifier:
    graph = Graph.from_scipy(DATA.graph[SEEN].to_scipy(), node_ids=[f"n{i}" for i in SEEN])
    return tiny().fit(DATA.X[SEEN], DATA.y[SEEN], graph=graph)


def test_classes_of_cold_nodes(fitted: SparcClassifier) -> None:
    assert fitted.classes_.tolist() == [0, 1, 2]
    assert fitted.score(DATA.X[COLD], DATA.y[COLD]) > 0.8
    proba = fitted.predict_proba(DATA.X[COLD])
    assert proba.shape == (60, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    assert (fitted.predict(DATA.X[COLD]) == proba.argmax(axis=1)).all()
    np.testing.assert_allclose(fitted.predict_proba(DATA.X[COLD[:1]]), proba[:1], atol=1e-4)


def test_unlabelled_nodes_help_through_the_graph() -> None:
    few = np.full(240, -1)
    for label in range(3):
        few[np.flatnonzero(DATA.y[SEEN] == label)[:3]] = label
    model = tiny().fit(DATA.X[SEEN], few, graph=DATA.graph[SEEN])
    assert model.classes_.tolist() == [0, 1, 2]
    alone = MLPBaseline(max_steps=75, random_state=0, device="cpu").fit(DATA.X[SEEN], few)
    assert model.score(DATA.X[COLD], DATA.y[COLD]) > alone.score(DATA.X[COLD], DATA.y[COLD])


def test_what_minus_one_means() -> None:
    def read(*labels) -> tuple[list, list]:
        classes, codes = encode_labels(np.array(labels))
        return classes.tolist(), codes.tolist()

    assert read(-1, 0, 1, 1) == ([0, 1], [-1, 0, 1, 1])
    assert read(-1, 1, -1) == ([-1, 1], [0, 1, 0])  # two classes, as in scikit-learn
    assert read(-2, -1, 3) == ([-2, -1, 3], [0, 1, 2])  # below -1: they are all classes
    assert read("-1", "a") == (["-1", "a"], [0, 1])
    assert read(True, False) == ([False, True], [1, 0])
    assert read(-1, 2, 5, -1) == ([2, 5], [-1, 0, 1, -1])


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["apple", "pear", "fig"])[DATA.y],
        np.array(["apple", "pear", "fig"], dtype=object)[DATA.y],
        DATA.y == 2,
        np.where(DATA.y == 0, 1, -1),
        DATA.y.astype(float),
        DATA.y.astype(np.uint8),
        DATA.y * 1000 - 5,
        DATA.y.astype(np.uint64) + np.uint64(2**63),
    ],
    ids=["strings", "objects", "booleans", "minus and plus one", "floats", "bytes", "large", "hashes"],
)
def test_kinds_of_labels_come_back(labels: np.ndarray, tmp_path: Path) -> None:
    quick = SpectralMap(2, hidden_channels=(8,), max_steps=5, batch_size=64)
    model = tiny(spectral_map=quick).fit(DATA.X[SEEN], labels[SEEN], graph=DATA.graph[SEEN])
    predicted = model.predict(DATA.X[COLD])
    assert set(predicted.tolist()) <= set(labels.tolist())
    assert (predicted == labels[COLD]).mean() > 0.7
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.predict(DATA.X[COLD]).tolist() == predicted.tolist()  # type: ignore[attr-defined]


def test_a_class_with_a_single_example() -> None:
    labels = np.array(DATA.y[SEEN])
    labels[17] = 9
    model = tiny(max_steps=5).fit(DATA.X[SEEN], labels, graph=DATA.graph[SEEN])
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.predict_proba(DATA.X[COLD]).shape == (60, 4)


def test_held_out_labels_never_take_a_class_away() -> None:
    codes = np.array([0] * 50 + [1] * 3 + [2] + [-1] * 46)
    held = hold_out_labelled(codes, np.arange(40, 70), seed=0)
    assert (codes[held] >= 0).all()
    assert set(codes[held]) == {0}  # all of classes 1 and 2 lie among the preferred ones: they stay
    assert hold_out_labelled(codes, np.zeros(0, int), seed=0).size <= 5
    assert hold_out_labelled(codes[:20], np.zeros(0, int), seed=0).size == 0


def test_pandas_in_and_sparse_counts() -> None:
    frame = pd.DataFrame(DATA.X[SEEN], columns=[f"c{i}" for i in range(8)])
    model = tiny(max_steps=5).fit(frame, pd.Series(DATA.y[SEEN]), graph=DATA.graph[SEEN])
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    counts = sp.csr_matrix((np.random.default_rng(0).random((240, 30)) < 0.1).astype(float))
    sparse = tiny(max_steps=5).fit(counts, DATA.y[SEEN], graph=DATA.graph[SEEN])
    np.testing.assert_allclose(sparse.predict_proba(counts[:4]), sparse.predict_proba(counts.toarray()[:4]), atol=1e-4)


def test_nearest_nodes(fitted: SparcClassifier) -> None:
    ids, distances = fitted.nearest(DATA.X[SEEN[:5]], k=4)
    assert ids[:, 0].tolist() == [f"n{i}" for i in range(5)]  # a seen node is nearest to itself
    np.testing.assert_allclose(distances[:, 0], 0, atol=1e-4)
    assert (np.diff(distances, axis=1) >= 0).all()
    of_cold = fitted.nearest(DATA.X[COLD], k=5)[0]
    labels = DATA.y[[[int(name[1:]) for name in row] for row in of_cold]]
    assert (labels == DATA.y[COLD][:, None]).mean() > 0.7
    assert fitted.nearest(DATA.X[:1], k=1000)[0].shape == (1, 240)


def test_save_and_load_give_the_same_bytes(fitted: SparcClassifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    assert isinstance(loaded, SparcClassifier)
    assert loaded.predict_proba(DATA.X[COLD]).tobytes() == fitted.predict_proba(DATA.X[COLD]).tobytes()
    assert loaded.nearest(DATA.X[:2], k=3)[0].tolist() == fitted.nearest(DATA.X[:2], k=3)[0].tolist()
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a/weights.safetensors").read_bytes() == (tmp_path / "b/weights.safetensors").read_bytes()


def test_the_same_seed_gives_the_same_bytes_and_parameters_stay(fitted: SparcClassifier) -> None:
    again = tiny().fit(DATA.X[SEEN], DATA.y[SEEN], graph=DATA.graph[SEEN])
    assert again.predict_proba(DATA.X[COLD]).tobytes() == fitted.predict_proba(DATA.X[COLD]).tobytes()
    assert again.spectral_map is MAP
    assert not hasattr(MAP, "module_")
