"""Cluster-GCN: its equation on a path of three nodes, its batches, and what it writes down."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from gsparc.baselines import ClusterGCNBaseline
from gsparc.baselines._cluster_training import ClusterGCNNet, ClusterTask, WholeGraph
from gsparc.datasets import make_blocks
from gsparc.datasets.base import Dataset
from gsparc.estimators import SpectralMap
from gsparc.exceptions import InputError, LabelError, UnknownNameError
from gsparc.graph import Graph
from gsparc.ops.clusters import ClusterEdges

pytest.importorskip("torch_geometric")

FAST: dict[str, Any] = {"num_parts": 8, "batch_clusters": 3, "max_epochs": 8, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def blocks() -> Dataset:
    return make_blocks(240, 1400, 6, branching=(4,), within=0.9, random_state=0)


def hidden(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    assert data.y is not None
    y, test = data.y.copy(), np.arange(0, 240, 5)
    y[test] = -1
    return y, test


def edge_index(graph: Graph) -> torch.Tensor:
    sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([sources, graph.indices]).astype(np.int64))


class TestEquation:
    # Path 0 - 1 - 2. D + I = diag(2, 3, 2), so A' = [[1/2, 1/2, 0], [1/3, 1/3, 1/3], [0, 1/2, 1/2]], and with
    # lambda = 1 the diagonal counts twice: [[1, 1/2, 0], [1/3, 2/3, 1/3], [0, 1/2, 1]].
    enhanced = torch.tensor([[1.0, 1 / 2, 0.0], [1 / 3, 2 / 3, 1 / 3], [0.0, 1 / 2, 1.0]])
    x = torch.tensor([[1.0, 0.0], [2.0, 3.0], [6.0, -3.0]])

    def one_layer(self) -> ClusterGCNNet:
        net = ClusterGCNNet(2, 2, hidden_channels=1, num_layers=1, diag_lambda=1.0, dropout=0.0)
        conv: Any = net.convs[0]
        with torch.no_grad():
            conv.lin_out.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
            conv.lin_out.bias.copy_(torch.tensor([10.0, 20.0]))
            conv.lin_root.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        return net

    def test_diagonal_enhancement_worked_out_by_hand(self) -> None:
        path = Graph.from_edges([[0, 1], [1, 2]])
        # enhanced x: rows (2, 1.5), (11/3, 1), (7, -1.5); times W_1 = diag(1, 2), plus b, plus column 2 of x
        spread = torch.tensor([[2.0, 1.5], [11 / 3, 1.0], [7.0, -1.5]])
        expected = torch.tensor([[12.0, 23.0], [16.0 + 2 / 3, 22.0], [14.0, 17.0]])
        torch.testing.assert_close(self.enhanced @ self.x, spread)
        torch.testing.assert_close(self.one_layer()(self.x, edge_index(path)), expected)
        whole = WholeGraph(self.x, path, diag_lambda=1.0)
        torch.testing.assert_close(whole.first, spread)
        torch.testing.assert_close(whole.logits(self.one_layer()), expected)

    @pytest.mark.parametrize("num_layers", [1, 3])
    def test_whole_graph_equals_the_layers(self, blocks: Dataset, num_layers: int) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(1)
            net = ClusterGCNNet(6, 4, hidden_channels=5, num_layers=num_layers, diag_lambda=0.3, dropout=0.5).eval()
        x = torch.from_numpy(np.asarray(blocks.X))
        graph = blocks.graph.isolate([3])
        torch.testing.assert_close(WholeGraph(x, graph, 0.3).logits(net), net(x, edge_index(graph)).detach())


class TestTask:
    def test_an_epoch_goes_through_all_clusters_and_counts_labelled_nodes_only(self, blocks: Dataset) -> None:
        assert blocks.y is not None
        label = np.arange(240) % 7
        net = ClusterGCNNet(6, 4, hidden_channels=4, num_layers=2, diag_lambda=1.0, dropout=0.0)
        whole = WholeGraph(torch.from_numpy(np.asarray(blocks.X)), blocks.graph, 1.0)
        targets = np.where(label == 0, -1, blocks.y)  # a whole cluster without labels
        seen: list[int] = []
        clusters = ClusterEdges(edge_index(blocks.graph), label)
        induced = clusters.induced
        clusters.induced = lambda parts: seen.extend(parts.tolist()) or induced(parts)  # type: ignore[method-assign]
        task = ClusterTask(net, whole, clusters, targets, 3, {})
        assert task.batches == 3
        generator = torch.Generator().manual_seed(0)
        for epoch in range(2):
            losses = [float(task.loss(generator).detach()) for _ in range(3)]
            assert sorted(seen[7 * epoch :]) == list(range(7))
            assert np.isfinite(losses).all()
        unlabelled = ClusterTask(net, whole, clusters, np.full(240, -1), 7, {})
        assert float(unlabelled.loss(generator).detach()) == 0.0
        assert task.evaluate() is None

    def test_the_loss_of_all_clusters_is_that_of_the_graph(self, blocks: Dataset) -> None:
        assert blocks.y is not None
        net = ClusterGCNNet(6, 4, hidden_channels=4, num_layers=2, diag_lambda=1.0, dropout=0.0)
        whole = WholeGraph(torch.from_numpy(np.asarray(blocks.X)), blocks.graph, 1.0)
        task = ClusterTask(net, whole, ClusterEdges(edge_index(blocks.graph), np.arange(240) % 7), blocks.y, 7, {})
        expected = torch.nn.functional.cross_entropy(whole.logits(net), torch.from_numpy(blocks.y))
        torch.testing.assert_close(task.loss(torch.Generator()).detach(), expected)

    def test_the_step_before_the_clock_leaves_no_trace(self, blocks: Dataset) -> None:
        assert blocks.y is not None
        whole = WholeGraph(torch.from_numpy(np.asarray(blocks.X)), blocks.graph, 1.0)
        clusters = ClusterEdges(edge_index(blocks.graph), np.arange(240) % 7)
        found = []
        for warm in (False, True):
            torch.manual_seed(0)
            net = ClusterGCNNet(6, 4, hidden_channels=4, num_layers=2, diag_lambda=1.0, dropout=0.5)
            task = ClusterTask(net, whole, clusters, blocks.y, 2, {})
            if warm:
                task.start_clock()
            assert all(parameter.grad is None for parameter in net.parameters())
            generator = torch.Generator().manual_seed(3)
            found.append([float(task.loss(generator).detach()) for _ in range(5)])
        assert found[0] == found[1]


class TestEstimator:
    @pytest.mark.parametrize("partition", ["random", "metis", "diffusion", "spectral"])
    def test_learns_and_writes_down_every_epoch(self, blocks: Dataset, partition: str) -> None:
        if partition == "metis":
            pytest.importorskip("pymetis")
        y, test = hidden(blocks)
        assert blocks.y is not None
        given = SpectralMap(4, max_steps=20, random_state=0, device="cpu") if partition == "spectral" else None
        model = ClusterGCNBaseline(partition=partition, spectral_map=given, **FAST)  # type: ignore[arg-type]
        model.fit(blocks.X, y, graph=blocks.graph, watch=(test, blocks.y[test]))
        assert (model.predict_seen()[test] == blocks.y[test]).mean() > 0.9
        np.testing.assert_allclose(model.predict_seen_proba().sum(axis=1), 1.0, rtol=1e-5)
        assert [entry["step"] for entry in model.history_] == [3.0 * epoch for epoch in range(1, 9)]
        seconds = [entry["seconds"] for entry in model.history_]
        assert all(0 < a < b for a, b in pairwise(seconds))
        assert all(0 <= entry["watched"] <= 1 and 0 <= entry["validation"] <= 1 for entry in model.history_)
        assert model.partition_seconds_ > 0
        assert np.bincount(model.partition_).max() <= 38  # 240 / 8, and a quarter more

    def test_watching_changes_nothing_and_the_seed_decides(self, blocks: Dataset) -> None:
        y, test = hidden(blocks)
        assert blocks.y is not None
        fit: dict[str, Any] = {"graph": blocks.graph}
        plain = ClusterGCNBaseline(partition="random", **FAST).fit(blocks.X, y, **fit)
        wrong = (blocks.y[test] + 1) % 4
        watched = ClusterGCNBaseline(partition="random", **FAST).fit(blocks.X, y, watch=(test, wrong), **fit)
        assert np.array_equal(plain.predict_seen_proba(), watched.predict_seen_proba())
        assert "watched" not in plain.history_[0]

    def test_a_partition_of_ones_own(self, blocks: Dataset) -> None:
        y, _ = hidden(blocks)
        own = np.arange(240) // 60
        settings = FAST | {"batch_clusters": 1, "max_epochs": 1, "max_steps": 3, "num_parts": None}
        model = ClusterGCNBaseline(partition=own, **settings).fit(blocks.X, y, graph=blocks.graph)
        assert np.array_equal(model.partition_, own)
        sources = np.repeat(own, np.diff(blocks.graph.indptr))
        assert model.inner_share_ == (sources == own[blocks.graph.indices]).mean()
        assert [entry["step"] for entry in model.history_] == [3.0]  # max_steps ends it within the epoch

    @pytest.mark.parametrize(
        ("settings", "kind", "match"),
        [
            ({"partition": "kmeans"}, UnknownNameError, "unknown method 'kmeans'"),
            ({"partition": "random", "num_parts": 500}, InputError, "num_parts=500 came for 240 nodes"),
            ({"partition": "random", "max_epochs": 0}, InputError, "max_epochs=0"),
            ({"partition": "random", "dropout": 1.5}, InputError, "dropout=1.5"),
            ({"partition": np.zeros(3, int)}, InputError, r"a partition of shape \(3,\)"),
        ],
    )
    def test_bad_settings(self, blocks: Dataset, settings: Any, kind: type[Exception], match: str) -> None:
        with pytest.raises(kind, match=match):
            ClusterGCNBaseline(**FAST | settings).fit(blocks.X, blocks.y, graph=blocks.graph)

    @pytest.mark.parametrize("watch", [([0, 1], [0]), ([240], [0]), ([-1], [0])])
    def test_bad_watch(self, blocks: Dataset, watch: Any) -> None:
        with pytest.raises(LabelError, match="watch="):
            ClusterGCNBaseline(partition="random", **FAST).fit(blocks.X, blocks.y, graph=blocks.graph, watch=watch)
