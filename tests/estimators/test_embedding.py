"""SpectralMap: known eigenfunctions, the same answer for the same question, and awkward graphs."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg
import torch

from gsparc import Graph, SpectralMap, load_model
from gsparc.datasets import make_blocks, make_circle
from gsparc.datasets.generators.manifolds import true_eigenfunctions
from gsparc.estimators import embedding
from gsparc.estimators._base import feature_graph
from gsparc.exceptions import FeatureError
from gsparc.metrics import grassmann_distance
from gsparc.ops.laplacian import normalized_affinity
from gsparc.training import spectral
from gsparc.training.batches import EdgeSampler

CIRCLE = make_circle(600, n_neighbors=20, noise_features=0, n_unseen=200, random_state=0)
BLOCKS = make_blocks(120, 500, 6, branching=(3, 2), random_state=1)


def tiny(n_components: int = 4, **changes) -> SpectralMap:
    settings = {"hidden_channels": (16,), "max_steps": 30, "batch_size": 128, "oversample": 1, "random_state": 0}
    return SpectralMap(n_components, device="cpu", **(settings | changes))


@pytest.fixture(scope="module")
def fitted() -> SpectralMap:
    return tiny().fit(BLOCKS.X, graph=BLOCKS.graph)


@pytest.mark.parametrize("objective", ["contrastive", "rayleigh"])
def test_the_circle_is_recovered_on_points_without_edges(objective: str) -> None:
    # the third and fourth function are cos and sin of twice the angle: not linear in the features
    options = {"hidden_channels": (64, 64), "max_steps": 400, "batch_size": 1024, "learning_rate": 3e-3}
    model = tiny(objective=objective, patience=99, **options).fit(CIRCLE.X, graph=CIRCLE.graph)
    unseen = CIRCLE.extra["X_unseen"]
    truth = true_eigenfunctions(CIRCLE, CIRCLE.extra["coordinates_unseen"], 4)
    untrained = tiny(max_steps=1).fit(CIRCLE.X, graph=CIRCLE.graph)
    # over three seeds and both objectives: at most 0.16; linear algebra on untrained features gives 0.26
    assert (
        grassmann_distance(model.transform(unseen), truth)
        < 0.2
        < grassmann_distance(untrained.transform(unseen), truth)
    )
    operator = normalized_affinity(CIRCLE.graph.to_scipy())
    exact = 1 - np.sort(scipy.sparse.linalg.eigsh(operator, 5, which="LA", v0=np.ones(600))[0])[::-1][1:]
    assert (np.diff(model.eigenvalues_) >= 0).all()
    assert (model.eigenvalues_ >= exact - 1e-6).all()  # Ritz values of a Laplacian lie above the true ones
    np.testing.assert_allclose(model.eigenvalues_, exact, rtol=0.25)  # at most 0.19 over the same six fits
    assert untrained.eigenvalues_[3] > 1.5 * exact[3]


@pytest.mark.parametrize("n_components", [4, 32, 64])
def test_no_component_is_rounding_made_large(n_components: int) -> None:
    # briefly trained, two features: most of the 64 functions are nearly combinations of a few
    model = SpectralMap(n_components, max_steps=20, device="cpu", random_state=1).fit(CIRCLE.X, graph=CIRCLE.graph)
    operator = normalized_affinity(CIRCLE.graph.to_scipy())
    smallest = 1 - scipy.sparse.linalg.eigsh(operator, 2, which="LA", v0=np.ones(600))[0][0]
    assert (model.eigenvalues_ >= smallest - 1e-6).all()
    found = model.transform(CIRCLE.X)
    pi = (CIRCLE.graph.degrees() + 1) / (CIRCLE.graph.degrees() + 1).sum()
    products = (found * pi[:, None]).T.astype(np.float64) @ found
    np.testing.assert_allclose(products, np.eye(found.shape[1]), atol=1e-4)
    alone = np.concatenate([model.transform(CIRCLE.X[i : i + 1]) for i in range(0, 600, 50)])
    np.testing.assert_allclose(alone, found[::50], atol=1e-3)


def test_coordinates_of_seen_nodes_are_orthonormal_under_the_degrees(fitted: SpectralMap) -> None:
    values = fitted.transform(BLOCKS.X).astype(float)
    pi = BLOCKS.graph.degrees() + 1
    pi /= pi.sum()
    np.testing.assert_allclose((pi[:, None] * values).T @ values, np.eye(4), atol=1e-4)
    np.testing.assert_allclose(pi @ values, 0, atol=1e-4)
    assert values.shape == (120, 4)
    assert fitted.n_components_ == len(fitted.eigenvalues_) == 4


def test_one_row_and_chunks_give_what_the_batch_gives(fitted: SpectralMap, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.transform(BLOCKS.X)
    assert whole.dtype == np.float32
    np.testing.assert_allclose(fitted.transform(BLOCKS.X[7:8]), whole[7:8], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(embedding, "values_at", lambda *a: spectral.values_at(*a, chunk=7))
    np.testing.assert_allclose(fitted.transform(BLOCKS.X), whole, rtol=1e-4, atol=1e-5)


def test_dense_and_sparse_forms_of_the_same_counts_agree() -> None:
    rng = np.random.default_rng(0)
    counts = (rng.random((120, 40)) < 0.1).astype(np.float32)
    dense = tiny(max_steps=5).fit(counts, graph=BLOCKS.graph)
    sparse = tiny(max_steps=5).fit(sp.csr_matrix(counts), graph=BLOCKS.graph)
    # the same map answers alike for both forms
    for model in (dense, sparse):
        np.testing.assert_allclose(model.transform(counts), model.transform(sp.csr_array(counts)), rtol=1e-3, atol=1e-4)
    assert dense._scaling.rows
    assert dense.module_.input_dropout == sparse.module_.input_dropout == 0.3


def test_dense_and_sparse_fits_without_dropout_agree() -> None:
    counts = (np.random.default_rng(0).random((120, 40)) < 0.1).astype(np.float32)
    options = {"max_steps": 3, "dropout": 0.0, "input_dropout": 0.0}
    dense = tiny(**options).fit(counts, graph=BLOCKS.graph)
    sparse = tiny(**options).fit(sp.csr_array(counts), graph=BLOCKS.graph)
    np.testing.assert_allclose(dense.eigenvalues_, sparse.eigenvalues_, rtol=1e-2)


def test_tables_are_taken_and_their_columns_checked(fitted: SpectralMap) -> None:
    names = [f"c{i}" for i in range(6)]
    for table in (pd.DataFrame(BLOCKS.X, columns=names), pl.DataFrame(np.asarray(BLOCKS.X), schema=names)):
        model = tiny().fit(table, graph=BLOCKS.graph)
        np.testing.assert_array_equal(model.transform(table), fitted.transform(BLOCKS.X))
        assert model.feature_names_in_.tolist() == names
    swapped = pd.DataFrame(BLOCKS.X, columns=names)[names[::-1]]
    with pytest.raises(FeatureError, match="same order as they were in fit"):
        model.transform(swapped)
    assert model.get_feature_names_out().tolist() == [f"spectralmap{i}" for i in range(4)]


def test_the_same_seed_gives_the_same_bytes(fitted: SpectralMap) -> None:
    np.random.seed(99)  # noqa: NPY002  (global state must not matter)
    again = tiny().fit(BLOCKS.X, graph=BLOCKS.graph)
    assert again.transform(BLOCKS.X).tobytes() == fitted.transform(BLOCKS.X).tobytes()
    other = tiny(random_state=1).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert not np.allclose(other.eigenvalues_, fitted.eigenvalues_, atol=1e-7)


def test_longer_walks_and_feature_edges() -> None:
    options = {"hidden_channels": (), "max_steps": 60, "validation_share": 0.0, "batch_size": 512}
    plain = tiny(2, **options).fit(CIRCLE.X, graph=CIRCLE.graph)
    longer = tiny(2, laplacian="k-power", k_power=3, **options).fit(CIRCLE.X, graph=CIRCLE.graph)
    # two linear functions of the two coordinates are all there is, whatever the objective: one span
    mu = 1 - plain.eigenvalues_
    np.testing.assert_allclose(1 - longer.eigenvalues_, (mu + mu**2 + mu**3) / 3, rtol=0.02)
    mixed = tiny(laplacian="feature-edge", alpha=0.3).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert mixed.operator_["edges"] > BLOCKS.graph.num_edges
    assert np.isfinite(mixed.transform(BLOCKS.X)).all()
    assert mixed.operator_["laplacian"] == "feature-edge"


def test_weights_and_tau_change_the_operator(fitted: SpectralMap) -> None:
    heavy = BLOCKS.graph.to_scipy().astype(np.float32)
    heavy.data[(heavy.indices < 60) & (heavy.nonzero()[0] < 60)] = 10  # both ends of an edge: symmetric
    weighted = tiny().fit(BLOCKS.X, graph=Graph.from_scipy(heavy))
    assert not np.allclose(weighted.eigenvalues_, fitted.eigenvalues_, atol=1e-3)
    damped = tiny(tau=5.0).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert damped.eigenvalues_[0] > fitted.eigenvalues_[0]


def test_held_out_nodes_of_a_large_graph_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_CUT_UP_TO", 50)  # now 120 nodes are many
    drawn, real = [], EdgeSampler.sample
    monkeypatch.setattr(EdgeSampler, "sample", lambda *a: drawn.append(real(*a)) or drawn[-1])
    model = tiny(max_steps=100).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert model._held is not None
    assert len(drawn) > 100
    nodes = np.concatenate([ends.numpy() for pair in drawn for ends in pair])
    assert not np.isin(model._held.nodes, nodes).any()
    assert len(np.unique(nodes)) == 120 - len(model._held.nodes)
    # the same nodes are judged as where the graph is cut, by the same edges
    monkeypatch.undo()
    cut = tiny(max_steps=100).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert cut._held is not None
    np.testing.assert_array_equal(cut._held.nodes, model._held.nodes)
    np.testing.assert_allclose(cut.eigenvalues_, model.eigenvalues_, atol=0.05)


def two_cliques_and_dust() -> tuple[np.ndarray, Graph]:
    """Two cliques of twenty, 50 nodes alone, and a pair."""
    first = np.array(np.triu_indices(20, 1))
    edges = np.hstack([first, first + 20, [[90], [91]]])
    X = np.random.default_rng(0).standard_normal((92, 3))
    X[:20, 0] += 4
    return X, Graph.from_edges(edges, num_nodes=92)


@pytest.mark.parametrize("pairs", [29, 30, 31, 70])
def test_a_graph_of_small_components_is_learned_from_all_of_them(pairs: int, caplog: pytest.LogCaptureFixture) -> None:
    # a ring of 15 and pairs: from 31 pairs on the ring is less than a fifth of the nodes with edges
    n = 15 + 2 * pairs + 30  # 30 nodes without edges count for nothing
    ring = np.stack([np.arange(15), (np.arange(15) + 1) % 15])
    graph = Graph.from_edges(np.hstack([ring, np.arange(15, 15 + 2 * pairs).reshape(2, -1)]), num_nodes=n)
    X = np.random.default_rng(0).normal(size=(n, 3))
    with caplog.at_level(logging.INFO, logger="gsparc"):
        model = tiny(max_steps=2).fit(X, graph=graph)
    everything = 0.2 * (15 + 2 * pairs) > 15
    assert model.operator_["components_kept"] == (1 + pairs + 30 if everything else 1)
    assert model.operator_["nodes"] == (n if everything else 15)
    said = f"the large ones hold only 15 of the {15 + 2 * pairs} nodes with edges" in caplog.text
    assert said == everything


def test_small_components_are_left_out_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    X, graph = two_cliques_and_dust()
    with caplog.at_level(logging.INFO, "gsparc"):
        model = tiny(max_steps=60).fit(X, graph=graph)
    assert model.operator_ == {
        "laplacian": "sym",
        "edges_from": "graph",
        "components_kept": 2,
        "components": 53,
        "nodes": 40,
        "edges": 380,
    }
    assert "53 connected components; the map is learned on the large ones: 2, with 40 nodes" in caplog.text
    values = model.transform(X)
    assert values.shape[0] == 92
    assert np.isfinite(values).all()
    assert model.eigenvalues_[0] < 0.3  # which clique a node is in
    split = np.sign(values[:40, 0])
    assert abs(split[:20].mean() - split[20:].mean()) > 1.5
    everything = tiny(components="all").fit(X, graph=graph)
    assert everything.operator_["nodes"] == 92
    assert "components_kept" not in everything.operator_


def test_more_components_than_nodes_gives_fewer_columns() -> None:
    edges = np.array([range(11), range(1, 12)])
    X = np.random.default_rng(0).standard_normal((12, 20))
    model = tiny(64).fit(X, graph=edges)
    assert model.n_components_ <= 11
    assert model.transform(X).shape == (12, model.n_components_)
    assert len(model.get_feature_names_out()) == model.n_components_
    assert np.isfinite(model.transform(X)).all()
    assert (model.eigenvalues_ >= -1e-6).all()


def test_linear_map_of_few_features_spans_few_functions() -> None:
    model = tiny(10, hidden_channels=()).fit(BLOCKS.X[:, :2], graph=BLOCKS.graph)
    assert model.n_components_ == 2


def test_features_that_tell_nothing_are_refused() -> None:
    for X in (np.ones((120, 3)), sp.csr_array(np.ones((120, 3)))):
        with pytest.raises(FeatureError, match="all 120 rows of X are the same"):
            tiny().fit(X, graph=BLOCKS.graph)


def test_features_of_which_rounding_leaves_nothing_are_refused() -> None:
    seconds = 1.7e9 + 10.0 * np.arange(240).reshape(120, 2)  # of some minutes: single precision has steps of 128
    for X in (seconds, sp.csr_array(seconds), 1e-38 * BLOCKS.X):
        with pytest.raises(FeatureError, match=r"no column of X varies .* subtract an offset .* tiny"):
            tiny().fit(X, graph=BLOCKS.graph)
    beside = np.c_[seconds, BLOCKS.X]
    assert np.isfinite(tiny().fit(beside, graph=BLOCKS.graph).transform(beside)).all()


def test_diffusion_time_scales_the_columns(fitted: SpectralMap) -> None:
    scaled = tiny(diffusion_time=2.0).fit(BLOCKS.X, graph=BLOCKS.graph)
    mu = np.clip(1 - fitted.eigenvalues_, 0, None)
    np.testing.assert_allclose(scaled.transform(BLOCKS.X), fitted.transform(BLOCKS.X) * mu**2, rtol=1e-5, atol=1e-7)


def test_save_and_load_give_the_same_bytes(fitted: SpectralMap, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a")
    loaded = load_model(tmp_path / "a")
    assert isinstance(loaded, SpectralMap)
    assert loaded.transform(BLOCKS.X).tobytes() == fitted.transform(BLOCKS.X).tobytes()
    assert loaded.eigenvalues_.tobytes() == np.asarray(fitted.eigenvalues_).tobytes()
    assert (loaded.operator_, loaded.history_) == (fitted.operator_, fitted.history_)
    assert loaded.get_params()["n_components"] == 4
    loaded.save(tmp_path / "b")
    for name in ("weights.safetensors", "config.json", "checksums.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_without_a_graph_feature_neighbours_serve() -> None:
    X = np.vstack([np.random.default_rng(i).normal(6 * i, 1, (40, 2)) for i in range(2)])
    for form in (X, sp.csr_array(X)):
        model = tiny(2, n_neighbors=5).fit(form)
        assert model.operator_["edges_from"] == "feature neighbours"
        assert model.operator_["components"] >= 2
        assert np.isfinite(model.transform(form)).all()


@pytest.mark.parametrize("options", [{"nested": True}, {"validation_share": 0.0}, {"linear_path": True}])
def test_options_run_and_are_ordered(options: dict) -> None:
    model = tiny(**options).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert (np.diff(model.eigenvalues_) >= 0).all()
    assert ("score" in model.history_[0]) == (options != {"validation_share": 0.0})


@pytest.mark.parametrize("dense", [False, True])
def test_feature_neighbours_of_sparse_rows_are_those_of_all_pairs(dense: bool, monkeypatch) -> None:
    from gsparc.estimators import _base

    monkeypatch.setattr(_base, "_SPARSE_BLOCK", 7)
    rng = np.random.default_rng(0)
    rows = (rng.random((42, 25)) * (rng.random((42, 25)) < 0.3)).astype(np.float32)
    rows[40], rows[41] = rows[0], 0  # one twice, one empty
    X = sp.csr_array(rows)
    distances, ids = _base._sparse_neighbors(X, 3, torch.device("cpu"), dense=dense)
    expected = np.linalg.norm(rows[:, None].astype(np.float64) - rows, axis=2)
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :4], atol=2e-3)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, axis=1), distances, atol=2e-3)
    assert (np.sort(ids, axis=1)[:, 1:] > np.sort(ids, axis=1)[:, :-1]).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_finds_the_same_feature_neighbours() -> None:
    from gsparc.estimators import _base

    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.random((2_000, 300)) * (rng.random((2_000, 300)) < 0.1)).astype(np.float32))
    one, other = (_base.feature_graph(X, 5, 0, torch.device(name)).to_scipy() for name in ("cpu", "cuda"))
    assert abs(one - other).max() < 1e-3


def test_projected_feature_neighbours_mostly_agree_with_the_exact_ones(monkeypatch) -> None:
    from gsparc.estimators import _base

    rng = np.random.default_rng(0)
    blobs = np.repeat(rng.random((20, 300)) < 0.1, 10, axis=0) * 3.0
    X = sp.csr_matrix(blobs * (rng.random(blobs.shape) < 0.9), dtype=np.float32)
    exact = _base.feature_graph(X, 5, seed=0)
    monkeypatch.setattr(_base, "_EXACT_SPARSE", 0)
    projected = _base.feature_graph(X, 5, seed=0)

    def inside(graph) -> float:
        coo = graph.to_scipy().tocoo()
        return float((coo.row // 10 == coo.col // 10).mean())

    assert inside(exact) > 0.95
    assert inside(projected) > 0.9


def test_more_functions_are_trained_than_kept() -> None:
    model = tiny(3, oversample=10).fit(CIRCLE.X, graph=CIRCLE.graph)
    assert model.module_.out_channels == 10
    assert model.transform(CIRCLE.X).shape == (600, 3)
    assert len(model.eigenvalues_) == 3
    # the leading functions lie in the larger span more exactly
    assert model.eigenvalues_[2] < tiny(3).fit(CIRCLE.X, graph=CIRCLE.graph).eigenvalues_[2]


def test_on_few_nodes_no_more_functions_are_trained_than_one_for_twenty() -> None:
    model = tiny(3, oversample=10, validation_share=0).fit(BLOCKS.X, graph=BLOCKS.graph)
    assert model.module_.out_channels == 120 // 20


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("power", [-80, 80])
def test_feature_neighbours_do_not_depend_on_the_size_of_features(power: int, form) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    usual = feature_graph(form(X), 5, seed=0)
    other = feature_graph(form(X * np.float32(2.0**power)), 5, seed=0)
    np.testing.assert_array_equal(other.indices, usual.indices)
    np.testing.assert_allclose(other.weights, usual.weights, rtol=1e-5)
    if form is np.asarray and power > 0:
        assert len(tiny(max_steps=5).fit(X * np.float32(2.0**power)).eigenvalues_) == 4


def test_timestamps_that_single_precision_cannot_tell_apart_are_explained() -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)) + 1e9
    with pytest.raises(FeatureError, match=r"single precision.*subtract an offset"):
        tiny().fit(X)
