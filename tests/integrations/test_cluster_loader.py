"""The loader of clusters: every node once an epoch, the edges of brute force, attributes carried, errors in words."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gsparc.datasets import make_blocks
from gsparc.estimators import SpectralMap
from gsparc.estimators._partitions import scaled_coordinates
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError, UnknownNameError
from gsparc.ops.partition import partition_spectral

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv

from gsparc.integrations.pyg import SpectralClusterLoader

FAST: dict[str, Any] = {"max_steps": 20, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def blocks() -> Data:
    """240 nodes in 4 blocks; edges with two features each, masks, a list, a number and a position."""
    made = make_blocks(240, 1400, 6, branching=(4,), within=0.9, random_state=0)
    data = made.graph.to_pyg(made.X, made.y)
    generator = torch.Generator().manual_seed(0)
    data.edge_attr = torch.rand(data.num_edges, 2, generator=generator)
    data.train_mask = torch.arange(240) % 3 == 0
    data.names = [f"node {i}" for i in range(240)]
    data.size_of_world = 7
    data.scores = np.arange(240.0)
    return data


def rows_of(edges: torch.Tensor) -> list[tuple[int, ...]]:
    return sorted(map(tuple, edges.T.tolist()))


def edges_of(batch: Any) -> torch.Tensor:
    """Edges of a batch as node numbers of the whole graph."""
    return batch.n_id[batch.edge_index]


class TestBatches:
    @pytest.mark.parametrize("method", ["spectral", "random", "metis"])
    def test_every_node_once_an_epoch_and_edges_of_brute_force(self, blocks: Data, method: str) -> None:
        if method == "metis":
            pytest.importorskip("pymetis")
        given = SpectralMap(4, **FAST) if method == "spectral" else None
        loader = SpectralClusterLoader(
            blocks, 12, method=method, batch_size=5, spectral_map=given, random_state=0, device="cpu"
        )
        assert repr(loader) == f"SpectralClusterLoader(num_parts=12, method={method!r}, batch_size=5)"
        assert len(loader) == 3
        seen = []
        for batch in loader:
            seen += batch.n_id.tolist()
            inside = np.isin(blocks.edge_index.numpy(), batch.n_id.numpy()).all(axis=0)
            assert rows_of(edges_of(batch)) == rows_of(blocks.edge_index[:, inside])
        assert sorted(seen) == list(range(240))
        assert loader.partition_seconds >= 0

    def test_all_clusters_at_once_are_the_whole_graph(self, blocks: Data) -> None:
        (batch,) = SpectralClusterLoader(blocks, 12, batch_size=12, method="random", random_state=0)
        back = torch.argsort(batch.n_id)
        assert torch.equal(batch.x[back], blocks.x)
        assert torch.equal(batch.y[back], blocks.y)
        whole = torch.cat([blocks.edge_index, blocks.edge_attr.T])  # with the attributes, edge by edge
        assert rows_of(torch.cat([edges_of(batch), batch.edge_attr.T])) == rows_of(whole)

    def test_every_attribute_is_carried(self, blocks: Data) -> None:
        batch = next(iter(SpectralClusterLoader(blocks, 12, batch_size=3, method="random", random_state=0)))
        nodes = batch.n_id
        assert isinstance(batch, Data)
        assert batch.num_nodes == len(nodes) == 60
        assert torch.equal(batch.x, blocks.x[nodes])
        assert torch.equal(batch.train_mask, blocks.train_mask[nodes])
        assert batch.names == [blocks.names[i] for i in nodes]
        assert np.array_equal(batch.scores, blocks.scores[nodes.numpy()])
        assert batch.size_of_world == 7
        assert batch.edge_attr.shape == (batch.num_edges, 2)
        assert batch.validate()

    def test_the_input_is_not_changed(self, blocks: Data) -> None:
        keys, edges = sorted(blocks.keys()), blocks.edge_index.clone()
        list(SpectralClusterLoader(blocks, 12, method="random", random_state=0))
        assert sorted(blocks.keys()) == keys
        assert torch.equal(blocks.edge_index, edges)

    def test_a_directed_graph_with_isolated_nodes_worked_out_by_hand(self) -> None:
        # 0 -> 1 (twice), 1 -> 2, 2 -> 2, 3 -> 0; node 4 has no edge. Clusters {0, 1}, {2, 3}, {4}
        data = Data(
            edge_index=torch.tensor([[0, 0, 1, 2, 3], [1, 1, 2, 2, 0]]),
            edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]),
            num_nodes=5,
        )
        loader = SpectralClusterLoader(data, partition=[0, 0, 1, 1, 2], batch_size=2, shuffle=False)
        first, last = loader
        assert (first.num_nodes, last.num_nodes, len(loader)) == (4, 1, 2)
        assert first.n_id.tolist() == [0, 1, 2, 3]
        assert first.edge_index.tolist() == [[0, 0, 1, 2, 3], [1, 1, 2, 2, 0]]
        assert last.edge_index.shape == (2, 0)
        one = loader.cluster_data[0]
        assert one.edge_index.tolist() == [[0, 0], [1, 1]]
        assert one.edge_weight.tolist() == [1.0, 2.0]
        assert loader.cluster_data[-1].n_id.tolist() == [4]
        assert len(loader.cluster_data) == loader.num_parts == 3
        with pytest.raises(IndexError, match="cluster 3 came"):
            loader.cluster_data[3]

    def test_a_graph_without_edges(self) -> None:
        loader = SpectralClusterLoader(Data(x=torch.zeros(6, 2)), 3, method="random", batch_size=1)
        assert [(batch.num_nodes, batch.num_edges) for batch in loader] == [(2, 0)] * 3

    @pytest.mark.parametrize("layout", ["coo", "csr"])
    def test_sparse_features(self, blocks: Data, layout: str) -> None:
        data = Data(edge_index=blocks.edge_index, x=blocks.x.to_sparse_coo(), y=blocks.y)
        if layout == "csr":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says once that this is a beta
                data.x = blocks.x.to_sparse_csr()
        given = SpectralMap(4, **FAST)
        loader = SpectralClusterLoader(data, 6, spectral_map=given, batch_size=2, random_state=0, device="cpu")
        batch = next(iter(loader))
        assert batch.x.layout == data.x.layout
        assert torch.equal(batch.x.to_dense(), blocks.x[batch.n_id])


class TestOrder:
    def orders(self, loader: SpectralClusterLoader, epochs: int) -> list[list[int]]:
        return [[int(n) for batch in loader for n in batch.n_id] for _ in range(epochs)]

    def test_epochs_differ_and_the_seed_repeats_them(self, blocks: Data) -> None:
        first = SpectralClusterLoader(blocks, 12, method="random", batch_size=4, random_state=3)
        orders = self.orders(first, 3)
        assert len({tuple(order) for order in orders}) == 3
        again = SpectralClusterLoader(blocks, 12, method="random", batch_size=4, random_state=3)
        assert self.orders(again, 3) == orders
        again.set_epoch(1)
        assert self.orders(again, 1) == orders[1:2]

    def test_torch_state_is_left_alone(self, blocks: Data) -> None:
        before = torch.get_rng_state()
        list(SpectralClusterLoader(blocks, 12, method="random", random_state=3))
        assert torch.equal(torch.get_rng_state(), before)

    def test_workers_give_the_same_batches(self, blocks: Data) -> None:
        settings: dict[str, Any] = {"method": "random", "batch_size": 4, "random_state": 3}
        alone = self.orders(SpectralClusterLoader(blocks, 12, **settings), 1)
        assert self.orders(SpectralClusterLoader(blocks, 12, num_workers=2, **settings), 1) == alone

    def test_drop_last(self, blocks: Data) -> None:
        loader = SpectralClusterLoader(blocks, 12, method="random", batch_size=5, drop_last=True, random_state=0)
        assert len(loader) == len(list(loader)) == 2


class TestSpectral:
    def test_clusters_follow_the_coordinates_given(self, blocks: Data) -> None:
        angle = blocks.y.numpy() * np.pi / 2
        given = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        loader = SpectralClusterLoader(blocks, 4, coordinates=given, random_state=0)
        assert all(len(set(blocks.y[loader.partition == part].tolist())) == 1 for part in range(4))
        assert loader.spectral_map is None

    def test_a_fitted_map_is_used_and_an_unfitted_one_copied(self, blocks: Data) -> None:
        unfitted = SpectralMap(4, **FAST)
        first = SpectralClusterLoader(blocks, 8, spectral_map=unfitted, random_state=0, device="cpu")
        assert not hasattr(unfitted, "module_")
        second = SpectralClusterLoader(blocks, 8, spectral_map=first.spectral_map, random_state=0, device="cpu")
        assert second.spectral_map is first.spectral_map
        assert np.array_equal(first.partition, second.partition)

    def test_more_edges_inside_than_at_random(self, blocks: Data) -> None:
        given = SpectralMap(4, max_steps=40, random_state=0, device="cpu")
        kept = {}
        for method, fitted in (("spectral", given), ("random", None)):
            loader = SpectralClusterLoader(
                blocks, 8, method=method, spectral_map=fitted, batch_size=1, random_state=0, device="cpu"
            )
            kept[method] = sum(batch.num_edges for batch in loader)
        assert kept["spectral"] > 1.5 * kept["random"]

    def test_edges_speak_where_features_say_nothing(self) -> None:
        made = make_blocks(1200, 12_000, 6, branching=(10,), within=0.8, random_state=0)
        noise = np.random.default_rng(0).normal(size=made.X.shape).astype(np.float32)
        data = made.graph.to_pyg(noise, made.y)
        given = SpectralMap(8, max_steps=40, random_state=0, device="cpu").fit(noise, graph=made.graph)
        kept, labels = {}, {}
        for rounds in (0, 10):
            loader = SpectralClusterLoader(
                data, 10, spectral_map=given, smoothing=rounds, batch_size=1, random_state=0, device="cpu"
            )
            kept[rounds] = sum(batch.num_edges for batch in loader) / data.num_edges
            labels[rounds] = loader.partition
        assert kept[0] < 0.2  # 0.1 at random
        assert kept[10] > 0.5  # 0.8 of all edges are within the ten blocks
        by_hand = partition_spectral(scaled_coordinates(given, noise), 10, seed=0)
        assert np.array_equal(labels[0], by_hand)

    def test_small_clusters_of_nodes_with_equal_features_follow_the_edges(self) -> None:
        made = make_blocks(1200, 12_000, 6, branching=(4, 10), within=0.8, random_state=0)
        means = np.stack([made.X[made.y == c].mean(axis=0) for c in range(4)])[made.y]  # one place for each class
        data = made.graph.to_pyg(means, made.y)
        for method in ("spectral", "diffusion"):
            given = SpectralMap(8, max_steps=40) if method == "spectral" else None
            loader = SpectralClusterLoader(
                data, 40, method=method, spectral_map=given, batch_size=1, random_state=0, device="cpu"
            )
            kept = sum(batch.num_edges for batch in loader) / data.num_edges
            assert kept > 0.4, method  # within a class a fifth at most, if its nodes were cut at random
            assert loader.method == method
            assert (loader.spectral_map is None) == (method == "diffusion")

    def test_diffusion_needs_no_features(self, blocks: Data) -> None:
        bare = Data(edge_index=blocks.edge_index, num_nodes=240)
        loader = SpectralClusterLoader(bare, 4, method="diffusion", random_state=0, device="cpu")
        again = SpectralClusterLoader(blocks, 4, method="diffusion", random_state=0, device="cpu")
        assert np.array_equal(loader.partition, again.partition)
        shares = [np.bincount(blocks.y[loader.partition == part]).max() for part in range(4)]
        assert sum(shares) > 0.8 * 240

    def test_nodes_without_edges_go_by_the_map(self) -> None:
        made = make_blocks(200, 1200, 6, branching=(2,), within=0.9, noise=0.1, random_state=0)
        given = SpectralMap(2, max_steps=60, random_state=0, device="cpu").fit(made.X, graph=made.graph)
        data = made.graph.to_pyg(made.X, made.y)
        alone = torch.arange(200) % 10 == 0
        data.edge_index = data.edge_index[:, ~alone[data.edge_index].any(dim=0)]
        loader = SpectralClusterLoader(data, 2, spectral_map=given, random_state=0, device="cpu")
        sides = loader.partition[alone.numpy()] == made.y[alone.numpy()]
        assert sides.all() or not sides.any()

    def test_the_seed_is_also_that_of_an_unfitted_map(self, blocks: Data) -> None:
        def cut(seed: int, own: int | None) -> np.ndarray:
            unfitted = SpectralMap(4, max_steps=20, random_state=own)
            return SpectralClusterLoader(blocks, 8, spectral_map=unfitted, random_state=seed, device="cpu").partition

        assert np.array_equal(cut(0, None), cut(0, None))
        assert np.array_equal(cut(0, 5), cut(0, 6))
        assert not np.array_equal(cut(0, None), cut(1, None))

    def test_smoothing_is_a_count(self, blocks: Data) -> None:
        with pytest.raises(InputError, match=r"smoothing=0 came, expected a whole number >= 1"):
            SpectralClusterLoader(blocks, 8, method="diffusion", smoothing=0, device="cpu")
        given = SpectralMap(4, **FAST)
        with pytest.raises(InputError, match="smoothing"):
            SpectralClusterLoader(blocks, 8, spectral_map=given, smoothing=-1, device="cpu")

    def test_a_two_layer_gcn_learns(self, blocks: Data) -> None:
        loader = SpectralClusterLoader(
            blocks, 12, spectral_map=SpectralMap(4, **FAST), batch_size=4, random_state=0, device="cpu"
        )
        with torch.random.fork_rng():
            torch.manual_seed(0)
            first, second = GCNConv(6, 16), GCNConv(16, 4)
        optimiser = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)

        def logits(data: Any) -> torch.Tensor:
            return second(F.relu(first(data.x, data.edge_index)), data.edge_index)

        for _ in range(30):
            for batch in loader:
                loss = F.cross_entropy(logits(batch)[batch.train_mask], batch.y[batch.train_mask])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        right = logits(blocks).argmax(dim=1) == blocks.y
        assert right[~blocks.train_mask].float().mean() > 0.9


class TestBadInput:
    def refuse(self, data: Any, match: str, kind: type[Exception] = InputError, **settings: Any) -> None:
        with pytest.raises(kind, match=match):
            SpectralClusterLoader(data, **{"num_parts": 4, "random_state": 0, "device": "cpu"} | settings)

    def test_data(self, blocks: Data) -> None:
        self.refuse(HeteroData(), "HeteroData came.*to_homogeneous")
        self.refuse([blocks], "list came")
        self.refuse(Data(edge_index=blocks.edge_index), r"Set data\.x or data\.num_nodes")
        self.refuse(Data(), r"does not say how many nodes")
        self.refuse(Data(adj_t=torch.eye(4).to_sparse_coo(), num_nodes=4), "adj_t and no edge_index")

    def test_settings(self, blocks: Data) -> None:
        self.refuse(blocks, "num_parts=241 came for 240 nodes.*num_parts=1", num_parts=241)
        self.refuse(blocks, "num_parts=0 came", num_parts=0)
        self.refuse(blocks, "batch_size=0 came", batch_size=0)
        self.refuse(blocks, "Did you mean 'spectral'", UnknownNameError, method="spectrum")
        self.refuse(blocks, "leaves no batch of 4 clusters", method="random", batch_size=5, drop_last=True)
        self.refuse(blocks, "uses no coordinates", method="random", coordinates=np.zeros((240, 2)))
        self.refuse(blocks, "expected a SpectralMap", spectral_map="map")

    def test_shapes(self, blocks: Data) -> None:
        self.refuse(blocks, "3 rows of coordinates came for 240 nodes", GraphShapeError, coordinates=np.zeros((3, 2)))
        self.refuse(blocks, r"a partition of shape \(3,\)", partition=[0, 0, 1])
        bare = Data(edge_index=blocks.edge_index, num_nodes=240)
        self.refuse(bare, "need node features.*method='diffusion' or 'metis'", FeatureError)

    def test_no_edges(self) -> None:
        lonely = Data(x=torch.randn(20, 3), edge_index=torch.empty(2, 0, dtype=torch.long))
        for method in ("spectral", "diffusion"):
            self.refuse(lonely, "has no edges.*method='random'", GraphError, method=method)
        assert len(SpectralClusterLoader(lonely, 4, method="random", batch_size=2)) == 2

    def test_absent_package(self, blocks: Data, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pymetis", None)
        self.refuse(blocks, r"gsparc\[metis\]", ImportError, method="metis")
