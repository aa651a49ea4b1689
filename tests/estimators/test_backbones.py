"""Every backbone, ours and torch_geometric's: one contract for what is fitted, predicted, shown and saved."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from torch import Tensor, nn

from gsparc import Graph, SparcClassifier, SpectralMap, load_model
from gsparc.datasets import make_blocks
from gsparc.estimators.classifier import Evidence
from gsparc.exceptions import DamagedModelError, FeatureError, InputError, LabelError

pytest.importorskip("torch_geometric")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch_geometric.nn as pyg

DATA = make_blocks(240, 2000, 8, branching=(3,), noise=0.8, within=0.9, random_state=0)
SEEN, COLD = np.arange(190), np.arange(190, 240)
X, Y, X_COLD, Y_COLD = DATA.X[SEEN], DATA.y[SEEN], DATA.X[COLD], DATA.y[COLD]
GRAPH = DATA.graph[SEEN]
MAP = SpectralMap(4, hidden_channels=(16,), max_steps=40, batch_size=128)
SMALL: dict[str, Any] = {"spectral_map": MAP, "hidden_channels": 16, "num_tokens": 4, "num_heads": 4}
SMALL |= {"max_steps": 60, "batch_size": 64, "random_state": 0, "device": "cpu"}

OURS = ["gcn", "gcn summary", "phormer", "samba", "mlp", "auto"]
MODULES = ["GCN", "GAT", "GraphSAGE", "GIN", "APPNP"]
every = pytest.mark.parametrize("name", OURS + MODULES)
one_of_each_kind = pytest.mark.parametrize("name", [*OURS, "GCN"])
modules = pytest.mark.parametrize("name", MODULES)


class Propagated(nn.Module):
    """Predict, then propagate (Gasteiger et al., arXiv 1810.05997)."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.predict = nn.Linear(in_channels, out_channels)
        self.propagate = pyg.APPNP(K=3, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.propagate(self.predict(x), edge_index, edge_weight)


def network(name: str, in_channels: int = 8, out_channels: int = 3, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "APPNP":
            return Propagated(in_channels, out_channels)
        return getattr(pyg, name)(in_channels, 16, num_layers=2, out_channels=out_channels)


def make(name: str, *, in_channels: int = 8, out_channels: int = 3, **changes: Any) -> SparcClassifier:
    settings = dict(SMALL)
    backbone: Any = name.partition(" ")[0]
    if name == "gcn summary":
        settings["gcn_inference"] = "summary"
    elif name == "auto":
        settings["max_steps"] = 25
    elif name in MODULES:
        backbone = network(name, in_channels, out_channels)
    return SparcClassifier(backbone, **settings | changes)


@cache
def fitted(name: str) -> SparcClassifier:
    graph = Graph.from_scipy(GRAPH.to_scipy(), node_ids=[f"n{i}" for i in SEEN])
    return make(name).fit(X, Y, graph=graph)


@cache
def answers(name: str) -> np.ndarray:
    return fitted(name).predict_proba(X_COLD)


@every
def test_cold_nodes_are_classified(name: str) -> None:
    model, proba = fitted(name), answers(name)
    assert proba.shape == (50, 3)
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    assert (model.predict(X_COLD) == model.classes_[proba.argmax(axis=1)]).all()
    assert model.score(X_COLD, Y_COLD) > 0.8  # a third by chance
    assert len(model.history_) > 0
    assert sum(model.weights_.values()) == pytest.approx(1)


@every
def test_a_batch_of_one_is_a_row_of_the_batch(name: str) -> None:
    for i in (0, 49):
        np.testing.assert_allclose(fitted(name).predict_proba(X_COLD[i : i + 1]), answers(name)[i : i + 1], atol=1e-4)
    shuffled = np.random.default_rng(0).permutation(50)
    np.testing.assert_allclose(fitted(name).predict_proba(X_COLD[shuffled]), answers(name)[shuffled], atol=1e-4)


@one_of_each_kind
def test_blocks_of_new_nodes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import gsparc.estimators.classifier as module

    whole = fitted(name).evidence(X_COLD, 4)
    monkeypatch.setattr(module, "_BLOCK", 7)
    np.testing.assert_allclose(fitted(name).predict_proba(X_COLD), answers(name), atol=1e-4)
    assert fitted(name).evidence(X_COLD, 4).ids.tolist() == whole.ids.tolist()


@one_of_each_kind
def test_new_features_that_cannot_be_read(name: str) -> None:
    model = fitted(name)
    for call in (model.predict, model.predict_proba, model.evidence):
        with pytest.raises(FeatureError, match=r"0 sample\(s\)"):
            call(X_COLD[:0])
        with pytest.raises(FeatureError, match=r"X has 5 features, but SparcClassifier is expecting 8"):
            call(X_COLD[:, :5])
        broken = X_COLD.copy()
        broken[1, 2] = np.nan
        with pytest.raises(FeatureError, match="NaN"):
            call(broken)
        with pytest.raises(FeatureError, match="could not convert string"):
            call(np.full((2, 8), "word"))


@every
def test_kinds_of_new_features_give_the_same(name: str) -> None:
    model, proba = fitted(name), answers(name)
    assert model.predict_proba(X_COLD.astype(np.float64)).tobytes() == proba.tobytes()
    np.testing.assert_allclose(model.predict_proba(sp.csr_matrix(X_COLD)), proba, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X_COLD.tolist()), proba, atol=1e-6)
    whole = np.round(3 * X_COLD)
    np.testing.assert_allclose(model.predict_proba(whole.astype(np.int64)), model.predict_proba(whole), atol=1e-6)


@every
def test_evidence(name: str) -> None:
    model = fitted(name)
    found = model.evidence(X_COLD, 5)
    assert isinstance(found, Evidence)
    assert all(part.shape == (50, 5) for part in found)
    positions = np.array([[int(node[1:]) for node in row] for row in found.ids])
    assert all(len(set(row)) == 5 for row in positions)
    assert (found.labels == Y[positions]).all()
    assert (np.diff(found.distances, axis=1) >= -1e-6).all()
    assert (found.weights >= 0).all()
    np.testing.assert_allclose(found.weights.sum(axis=1), 1, rtol=1e-5)
    assert (np.diff(found.weights, axis=1) <= 1e-6).all()  # the nearer, the more
    assert (found.labels == Y_COLD[:, None]).mean() > 0.6
    ids, distances = model.nearest(X_COLD, 5)
    assert ids.tolist() == found.ids.tolist()
    assert distances.tolist() == found.distances.tolist()
    alone = model.evidence(X_COLD[7:8], 5)
    assert alone.ids.tolist() == found.ids[7:8].tolist()
    np.testing.assert_allclose(alone.weights, found.weights[7:8], atol=1e-4)


@every
def test_evidence_of_a_twin_and_of_everybody(name: str) -> None:
    found = fitted(name).evidence(X[:4], 1)
    assert found.ids.ravel().tolist() == ["n0", "n1", "n2", "n3"]
    np.testing.assert_allclose(found.distances, 0, atol=1e-4)
    np.testing.assert_allclose(found.weights, 1)
    everybody = fitted(name).evidence(X_COLD[:2], 10_000)
    assert everybody.ids.shape == (2, 190)
    np.testing.assert_allclose(everybody.weights.sum(axis=1), 1, rtol=1e-5)
    for bad in (0, -1, 2.5):
        with pytest.raises(InputError, match=f"k={bad!r} came"):
            fitted(name).evidence(X_COLD, bad)  # type: ignore[arg-type]


def test_weights_of_evidence_follow_the_token_lists() -> None:
    # two tokens, over 2 and 4 nodes, that are read alike: ranks 0 and 1 have 1/2 + 1/4, ranks 2 and 3 have 1/4
    model = make("samba", num_tokens=2, max_steps=2).fit(X, Y, graph=GRAPH)
    expected = np.array([3, 3, 1, 1, 0, 0]) / 8
    np.testing.assert_allclose(model.evidence(X_COLD[:3], 6).weights, np.tile(expected, (3, 1)), atol=1e-6)
    with_attention = make("phormer", num_tokens=2, max_steps=2).fit(X, Y, graph=GRAPH).evidence(X_COLD[:3], 6).weights
    assert (with_attention[:, 0] == with_attention[:, 1]).all()
    assert (with_attention[:, 4:] == 0).all()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every
def test_save_and_load(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "a")
    more = {"backbone": network(name, seed=7)} if name in MODULES else {}  # its own weights do not count
    loaded = load_model(tmp_path / "a", **more)
    assert isinstance(loaded, SparcClassifier)
    assert loaded.predict_proba(X_COLD).tobytes() == answers(name).tobytes()
    for old, new in zip(model.evidence(X_COLD, 5), loaded.evidence(X_COLD, 5), strict=True):
        np.testing.assert_array_equal(old, new)
    assert (loaded.report_, loaded.weights_, loaded.history_) == (model.report_, model.weights_, model.history_)
    loaded.save(tmp_path / "b")
    assert files(tmp_path / "a") == files(tmp_path / "b")


@modules
def test_a_network_of_the_users_own_is_needed_again(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path)
    with pytest.raises(InputError, match=r"not its code: [\s\S]*load_model\(folder, backbone=network\)"):
        load_model(tmp_path)
    narrower, deeper = pyg.GCN(8, 15, num_layers=2, out_channels=3), pyg.GAT(8, 16, num_layers=3, out_channels=3)
    for backbone in (narrower, deeper, network(name, 9, 3), network(name, 8, 4), nn.Identity()):
        with pytest.raises(InputError) as caught:
            load_model(tmp_path, backbone=backbone)
        assert not isinstance(caught.value, DamagedModelError)
        assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("name", ["gcn", "mlp", "auto"])
def test_a_network_for_a_model_that_has_its_own_is_refused(name: str, tmp_path: Path) -> None:
    fitted(name).save(tmp_path)
    with pytest.raises(InputError, match="backbone"):
        load_model(tmp_path, backbone=network("GCN"))
    map_only = SpectralMap(2, hidden_channels=(4,), max_steps=2, device="cpu").fit(X, graph=GRAPH)
    map_only.save(tmp_path)
    with pytest.raises(InputError, match="backbone"):
        load_model(tmp_path, backbone=network("GCN"))


@one_of_each_kind
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    model = make(name, max_steps=6)
    first = model.fit(X, Y, graph=GRAPH).predict_proba(X_COLD)
    assert model.fit(X, Y, graph=GRAPH).predict_proba(X_COLD).tobytes() == first.tobytes()  # once more, the same model
    assert make(name, max_steps=6).fit(X, Y, graph=GRAPH).predict_proba(X_COLD).tobytes() == first.tobytes()
    other = make(name, max_steps=6, random_state=1).fit(X, Y, graph=GRAPH)
    assert other.predict_proba(X_COLD).tobytes() != first.tobytes()


@modules
def test_the_users_network_is_copied_and_a_clone_fits_alike(name: str) -> None:
    model = make(name, max_steps=10)
    before = {key: value.clone() for key, value in model.backbone.state_dict().items()}
    mode = model.backbone.training
    first = clone(model).fit(X, Y, graph=GRAPH).predict_proba(X_COLD)
    assert model.fit(X, Y, graph=GRAPH).predict_proba(X_COLD).tobytes() == first.tobytes()
    assert all(torch.equal(value, before[key]) for key, value in model.backbone.state_dict().items())
    assert model.backbone.training == mode


def test_a_network_whose_width_is_left_open(tmp_path: Path) -> None:
    model = SparcClassifier(pyg.GraphSAGE(-1, 8, num_layers=2, out_channels=3), **SMALL | {"max_steps": 5})
    proba = model.fit(X, Y, graph=GRAPH).predict_proba(X_COLD)
    model.save(tmp_path)
    loaded: Any = load_model(tmp_path, backbone=pyg.GraphSAGE(-1, 8, num_layers=2, out_channels=3))
    assert loaded.predict_proba(X_COLD).tobytes() == proba.tobytes()


@one_of_each_kind
@pytest.mark.parametrize("kind", ["strings", "booleans", "far apart"])
def test_kinds_of_labels(name: str, kind: str, tmp_path: Path) -> None:
    forms = {"strings": np.array(["fig", "pear", "apple"])[Y], "booleans": Y == 1, "far apart": 100 * Y + 5}
    labels = forms[kind]
    classes = np.unique(labels)
    model = make(name, max_steps=3, out_channels=len(classes)).fit(X, labels, graph=GRAPH)
    assert model.classes_.tolist() == classes.tolist()
    predicted = model.predict(X_COLD)
    assert predicted.dtype.kind == labels.dtype.kind
    assert set(predicted.tolist()) <= set(classes.tolist())
    model.save(tmp_path)
    more = {"backbone": network(name, 8, len(classes))} if name in MODULES else {}
    loaded: Any = load_model(tmp_path, **more)
    assert loaded.predict(X_COLD).tolist() == predicted.tolist()


@every
def test_unlabelled_nodes(name: str) -> None:
    few = np.full(190, -1)
    for label in range(3):
        few[np.flatnonzero(label == Y)[:4]] = label
    model = make(name).fit(X, few, graph=GRAPH)
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.score(X_COLD, Y_COLD) > 0.7
    assert set(model.evidence(X_COLD, 190).labels.ravel().tolist()) == {-1, 0, 1, 2}
    if name != "auto":
        assert "One network" in model.report_
        assert "on 12 labelled nodes and the teachers' soft labels of 190" in model.report_
        alone = make(name, distill=False, max_steps=3).fit(X, few, graph=GRAPH)
        assert alone.report_.endswith("on 12 labelled nodes.")


@every
def test_a_class_with_one_example(name: str) -> None:
    labels = Y.copy()
    labels[17] = 9
    model = make(name, max_steps=3, out_channels=4).fit(X, labels, graph=GRAPH)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.predict_proba(X_COLD).shape == (50, 4)
    lonely = np.full(190, -1)
    lonely[[3, 80]] = 4, 6  # one label a class and nothing else
    assert make(name, max_steps=3, out_channels=2).fit(X, lonely, graph=GRAPH).classes_.tolist() == [4, 6]


@every
def test_labels_that_cannot_be_learned(name: str) -> None:
    for labels, words in (
        (np.zeros(190, int), "one class only"),
        (np.where(np.arange(190) < 9, 2, -1), "one class only"),
        (np.full(190, -1), "every label is -1"),
        (Y[:100], "y has 100 labels but X has 190 rows"),
    ):
        with pytest.raises(LabelError, match=words):
            make(name).fit(X, labels, graph=GRAPH)


@every
def test_given_nodes_judge(name: str) -> None:
    model = make(name, max_steps=30).fit(X, Y, graph=GRAPH, validation=(X_COLD, Y_COLD))
    assert "50 pretend-cold nodes" in model.report_
    assert f"{100 * model.score(X_COLD, Y_COLD):.1f} %" in model.report_
    if name != "auto":
        assert "on 190 labelled nodes" in model.report_
    # in other forms, with one that is unlabelled
    frame, labels = pd.DataFrame(X_COLD), Y_COLD.copy()
    labels[0] = -1
    other = make(name, max_steps=3).fit(X, Y, graph=GRAPH, validation=[frame.to_numpy().tolist(), labels.tolist()])
    assert other._mixture.judged == 49


@one_of_each_kind
def test_nodes_that_cannot_judge(name: str) -> None:
    model = make(name, max_steps=1)
    with pytest.raises(FeatureError, match="X has 5 features"):
        model.fit(X, Y, graph=GRAPH, validation=(X_COLD[:, :5], Y_COLD))
    with pytest.raises(LabelError, match=r"label .*7.*, which no seen node has. Expected some of \[0, 1, 2\]"):
        model.fit(X, Y, graph=GRAPH, validation=(X_COLD, np.where(Y_COLD == 0, 7, Y_COLD)))
    with pytest.raises(LabelError, match="y has 49 labels but X has 50 rows"):
        model.fit(X, Y, graph=GRAPH, validation=(X_COLD, Y_COLD[:49]))
    for bad in (X_COLD, (X_COLD,), (X_COLD, Y_COLD, 1), 3):
        with pytest.raises(InputError, match=r"expected a pair \(X, y\)"):
            model.fit(X, Y, graph=GRAPH, validation=bad)
    # all unlabelled: as if there were none
    model.fit(X, Y, graph=GRAPH, validation=(X_COLD, np.full(50, -1)))
    assert (
        model.predict_proba(X_COLD).tobytes()
        == make(name, max_steps=1).fit(X, Y, graph=GRAPH).predict_proba(X_COLD).tobytes()
    )


@one_of_each_kind
def test_wide_counts(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = rng.random((3, 600)) < 0.1  # each class has its own
    counts = sp.csr_matrix((rng.random((240, 600)) < 0.01 + 0.15 * words[DATA.y]).astype(float))
    model = make(name, in_channels=600, max_steps=25).fit(counts[SEEN], Y, graph=GRAPH)
    proba = model.predict_proba(counts[COLD])
    assert (proba.argmax(axis=1) == Y_COLD).mean() > 0.8
    np.testing.assert_allclose(model.predict_proba(counts[COLD].toarray()), proba, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(counts[COLD[:1]]), proba[:1], atol=1e-4)
    model.save(tmp_path)
    more = {"backbone": network(name, 600)} if name in MODULES else {}
    loaded: Any = load_model(tmp_path, **more)
    assert loaded.predict_proba(counts[COLD]).tobytes() == proba.tobytes()


@one_of_each_kind
def test_wide_dense_features(name: str) -> None:
    rng = np.random.default_rng(0)
    wide = (DATA.X @ rng.standard_normal((8, 1100))).astype(np.float32)
    model = make(name, in_channels=1100, max_steps=25).fit(wide[SEEN], Y, graph=GRAPH)
    proba = model.predict_proba(wide[COLD])
    assert (proba.argmax(axis=1) == Y_COLD).mean() > 0.6
    np.testing.assert_allclose(model.predict_proba(wide[COLD[:1]]), proba[:1], atol=1e-4)


@one_of_each_kind
def test_types_of_seen_features_give_the_same_model(name: str) -> None:
    whole = np.round(4 * DATA.X)
    proba = [
        make(name, max_steps=3).fit(whole[SEEN].astype(form), Y, graph=GRAPH).predict_proba(whole[COLD])
        for form in (np.float32, np.float64, np.int64)
    ]
    assert proba[0].tobytes() == proba[1].tobytes() == proba[2].tobytes()


@one_of_each_kind
def test_without_a_graph(name: str) -> None:
    model = make(name).fit(X, Y)
    assert model.score(X_COLD, Y_COLD) > 0.5
    assert model.evidence(X_COLD, 3).ids.dtype.kind == "i"


@one_of_each_kind
@pytest.mark.parametrize("count", [3, 4, 5])
def test_tiny_graphs(name: str, count: int, tmp_path: Path) -> None:
    path = Graph.from_edges(np.array([np.arange(count - 1), np.arange(1, count)]), num_nodes=count)
    for labels in (np.arange(count) % 2, np.array([0, 1, *[-1] * (count - 2)])):
        for graph in (path, None):
            model = make(name, max_steps=2, out_channels=2).fit(X[:count], labels, graph=graph)
            proba = model.predict_proba(X_COLD)
            assert np.isfinite(proba).all()
            assert model.evidence(X_COLD, 10).ids.shape == (50, count)
    model.save(tmp_path)
    more = {"backbone": network(name, 8, 2)} if name in MODULES else {}
    loaded: Any = load_model(tmp_path, **more)
    assert loaded.predict_proba(X_COLD).tobytes() == proba.tobytes()


@every
def test_isolated_seen_nodes_and_twins(name: str) -> None:
    adjacency = sp.lil_array(GRAPH.to_scipy())
    adjacency[:25] = 0
    adjacency[:, :25] = 0
    features = X.copy()
    features[25:60] = features[60]  # more twins than anybody has neighbours
    model = make(name, max_steps=30).fit(features, Y, graph=Graph.from_scipy(sp.csr_array(adjacency)))
    assert np.isfinite(model.predict_proba(X_COLD)).all()
    assert model.score(X_COLD, Y_COLD) > 0.5


@pytest.mark.parametrize("name", ["phormer", "samba", "auto"])
def test_more_tokens_than_nodes(name: str) -> None:
    model = make(name, num_tokens=12, max_steps=5).fit(X, Y, graph=GRAPH)
    proba = model.predict_proba(X_COLD)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(X_COLD[:1]), proba[:1], atol=1e-4)


@pytest.mark.parametrize("name", ["gcn", "GCN"])
def test_more_neighbours_than_nodes(name: str) -> None:
    model = make(name, n_neighbors=1000, max_steps=5).fit(X[:60], Y[:60], graph=GRAPH[np.arange(60)])
    assert model.predict_proba(X_COLD).shape == (50, 3)


def test_depth_of_the_convolutions() -> None:
    def widths(**changes: Any) -> tuple[int, ...]:
        model = make("gcn", max_steps=1, **changes).fit(X, Y, graph=GRAPH)
        return model._heads["gcn"].module.hidden_channels  # type: ignore[return-value]

    assert widths(hidden_channels=(12, 8, 4)) == (12, 8, 4)
    assert widths(hidden_channels=12) == (12, 12)
    assert widths(hidden_channels=12, num_layers=1) == (12,)
    assert widths(hidden_channels=12, num_layers=3) == (12, 12, 12)
    assert len(widths(hidden_channels=None, num_layers=3)) == 3


@pytest.mark.parametrize("name", ["phormer", "samba"])
def test_depth_and_width_of_token_networks(name: str) -> None:
    module: Any = make(name, hidden_channels=24, num_layers=2, max_steps=1).fit(X, Y, graph=GRAPH)._heads[name].module
    assert (module.hidden_channels, module.num_layers, module.num_tokens) == (24, 2, 5)
