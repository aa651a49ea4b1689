"""Targets attached to their inferred neighbours: the subgraph by hand, batch independence, and PyG's own modules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from gsparc.exceptions import FeatureError, InputError
from gsparc.graph import Graph
from gsparc.nn.attach import AttachedGraph, AttachedModule, SeenEdges, attach_targets, check_module
from gsparc.training.batches import as_tensor


def seen_edges(graph: Graph) -> SeenEdges:
    weights = None if graph.weights is None else as_tensor(graph.weights)
    return SeenEdges(as_tensor(graph.indptr), as_tensor(graph.indices), weights)


def random_graph(num_nodes: int, num_edges: int, seed: int, *, weighted: bool = False) -> Graph:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2.0, num_edges) if weighted else None
    return Graph.from_edges(rng.integers(num_nodes, size=(2, num_edges)), num_nodes=num_nodes, weights=weights)


def named_edges(attached: AttachedGraph) -> set[tuple[int, Any, Any, float]]:
    """``(target, source, destination, weight)`` in terms of seen nodes; the target itself is "new"."""
    names = [*attached.node_ids.tolist(), *["new"] * len(attached.target_index)]
    rows = zip(*attached.edge_index.tolist(), attached.edge_weight.tolist(), strict=True)
    block = attached.batch.tolist()
    assert all(block[a] == block[b] for a, b in attached.edge_index.T.tolist())
    return {(block[a], names[a], names[b], round(w, 4)) for a, b, w in rows}


#   0 - 1 - 2 - 3    4 (isolated)
PATH = Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=5)


def test_one_target_on_a_path() -> None:
    attached = attach_targets(torch.tensor([[1, 4]]), torch.tensor([[0.5, 0.25]]), seen_edges(PATH))
    assert attached.node_ids.tolist() == [0, 1, 2, 4]
    assert attached.target_index.tolist() == [4]
    assert attached.batch.tolist() == [0] * 5
    real = {(0, 0, 1, 1.0), (0, 1, 0, 1.0), (0, 1, 2, 1.0), (0, 2, 1, 1.0)}
    assert named_edges(attached) == real | {(0, 1, "new", 0.5), (0, 4, "new", 0.25)}


@pytest.mark.parametrize(("num_hops", "nodes"), [(0, [0]), (1, [0, 1]), (2, [0, 1, 2]), (9, [0, 1, 2, 3])])
def test_hops_of_real_edges(num_hops: int, nodes: list[int]) -> None:
    attached = attach_targets(torch.tensor([[0]]), torch.ones(1, 1), seen_edges(PATH), num_hops=num_hops)
    assert attached.node_ids.tolist() == nodes
    assert attached.edge_index.shape[1] == 2 * (len(nodes) - 1) + 1


def test_targets_share_nothing_and_an_edge_named_by_both_ends_counts_once() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], weights=[0.5, 2.0])
    attached = attach_targets(torch.tensor([[0, 1], [1, -1]]), torch.ones(2, 2), seen_edges(graph))
    assert attached.node_ids.tolist() == [0, 1, 2, 0, 1, 2]
    assert attached.batch.tolist() == [0, 0, 0, 1, 1, 1, 0, 1]
    real = [(0, 1, 0.5), (1, 0, 0.5), (1, 2, 2.0), (2, 1, 2.0)]
    expected = {(t, a, b, w) for t in (0, 1) for a, b, w in real}
    expected |= {(0, 0, "new", 1.0), (0, 1, "new", 1.0), (1, 1, "new", 1.0)}
    assert named_edges(attached) == expected
    assert attached.edge_index.shape[1] == len(expected)


def test_no_edge_leads_from_a_target() -> None:
    attached = attach_targets(torch.tensor([[0, 1], [1, 2]]), torch.ones(2, 2), seen_edges(PATH), num_hops=2)
    assert not np.isin(attached.edge_index[0], attached.target_index).any()


def test_none_zero_and_repeated_neighbours() -> None:
    ids, weights = torch.tensor([[3, -1, 3], [0, 2, 2]]), torch.tensor([[0.5, 9.0, 0.25], [0.0, 0.0, 0.0]])
    attached = attach_targets(ids, weights, seen_edges(PATH), num_hops=0)
    assert named_edges(attached) == {(0, 3, "new", 0.75)}
    assert attached.node_ids.tolist() == [3]
    assert attached.target_index.tolist() == [1, 2]  # the second target has no neighbour and is still there


def test_the_original_is_left_out_of_its_own_graph_only() -> None:
    # node 1 plays a cold node; its copy is attached to 0 and 2, whose real neighbour it is, and (wrongly) to itself
    ids = torch.tensor([[0, 2, 1], [0, 2, 1]])
    attached = attach_targets(ids, torch.ones(2, 3), seen_edges(PATH), num_hops=3, exclude=torch.tensor([1, -1]))
    first = {edge for edge in named_edges(attached) if edge[0] == 0}
    assert first == {(0, 0, "new", 1.0), (0, 2, "new", 1.0), (0, 2, 3, 1.0), (0, 3, 2, 1.0)}
    assert attached.node_ids[attached.batch[:-2] == 1].tolist() == [0, 1, 2, 3]


def test_excluding_the_original_is_the_same_as_a_graph_without_it() -> None:
    graph = random_graph(40, 100, seed=1, weighted=True)
    gone = 7
    rest = np.delete(np.arange(40), gone)
    ids = torch.tensor([[1, 5, 30]])
    inside = attach_targets(
        ids, torch.ones(1, 3), seen_edges(graph), num_hops=2, fanout=99, exclude=torch.tensor([gone])
    )
    places = torch.from_numpy(np.searchsorted(rest, ids.numpy()))
    without = attach_targets(places, torch.ones(1, 3), seen_edges(graph[rest]), num_hops=2, fanout=99)
    assert inside.node_ids.tolist() == rest[without.node_ids].tolist()
    assert torch.equal(inside.edge_index, without.edge_index)
    torch.testing.assert_close(inside.edge_weight, without.edge_weight)


STAR = Graph.from_edges([[0] * 20, list(range(1, 21))])


def test_fanout_bounds_a_hub_and_is_the_same_every_time() -> None:
    one = attach_targets(torch.tensor([[0]]), torch.ones(1, 1), seen_edges(STAR), fanout=6)
    again = attach_targets(torch.tensor([[0], [0]]), torch.ones(2, 1), seen_edges(STAR), fanout=6)
    assert len(one.node_ids) == 7
    assert again.node_ids.tolist() == one.node_ids.tolist() * 2
    other = attach_targets(torch.tensor([[0]]), torch.ones(1, 1), seen_edges(STAR), fanout=6, seed=1)
    assert other.node_ids.tolist() != one.node_ids.tolist()


@given(degree=st.integers(1, 40), fanout=st.integers(1, 12), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_a_sample_has_no_repeats_and_the_right_size(degree: int, fanout: int, seed: int) -> None:
    star = Graph.from_edges([[0] * degree, list(range(1, degree + 1))])
    for generator in (None, torch.Generator().manual_seed(seed)):
        attached = attach_targets(
            torch.tensor([[0]]), torch.ones(1, 1), seen_edges(star), fanout=fanout, seed=seed, generator=generator
        )
        assert len(attached.node_ids) == 1 + min(degree, fanout)  # nodes are distinct by construction
        assert attached.node_ids.max() <= degree


def test_every_neighbour_is_drawn_equally_often() -> None:
    draws = 6000
    generator = torch.Generator().manual_seed(0)
    ids = torch.zeros(draws, 1, dtype=torch.int64)
    attached = attach_targets(ids, torch.ones(draws, 1), seen_edges(STAR), fanout=6, generator=generator)
    counts = torch.bincount(attached.node_ids, minlength=21)[1:]
    assert counts.sum() == 6 * draws
    expected = draws * 6 / 20
    assert (counts - expected).abs().max() < 5 * (expected * (1 - 6 / 20)) ** 0.5


def test_hashes_spread_over_nodes() -> None:
    # 500 hubs with the same 10 neighbours each: the fixed samples of size one must not agree
    hubs = np.repeat(np.arange(500), 10)
    leaves = 500 + np.tile(np.arange(10), 500)
    graph = Graph.from_edges(np.stack([hubs, leaves]))
    attached = attach_targets(torch.arange(500)[:, None], torch.ones(500, 1), seen_edges(graph), fanout=1)
    counts = torch.bincount(attached.node_ids, minlength=510)[500:]
    assert counts.sum() == 500
    assert counts.min() >= 25
    assert counts.max() <= 80


@given(seed=st.integers(0, 10_000), num_hops=st.integers(0, 3), fanout=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_a_targets_graph_is_the_same_alone_and_in_a_batch(seed: int, num_hops: int, fanout: int) -> None:
    graph = random_graph(25, 60, seed, weighted=True)
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(-1, 25, size=(4, 3)))
    weights = torch.from_numpy(rng.uniform(0, 1, (4, 3)))
    exclude = torch.from_numpy(rng.integers(-1, 25, size=4))
    options: Any = {"num_hops": num_hops, "fanout": fanout}
    together = named_edges(attach_targets(ids, weights, seen_edges(graph), exclude=exclude, **options))
    for i in range(4):
        alone = attach_targets(
            ids[i : i + 1], weights[i : i + 1], seen_edges(graph), exclude=exclude[i : i + 1], **options
        )
        assert named_edges(alone) == {(0, *edge[1:]) for edge in together if edge[0] == i}
        assert int(exclude[i]) not in alone.node_ids.tolist()
        assert len(alone.node_ids) <= 3 * sum(fanout**h for h in range(num_hops + 1))


def test_gradients_reach_the_weights() -> None:
    weights = torch.tensor([[0.5, 1.0]], requires_grad=True)
    attached = attach_targets(torch.tensor([[0, 2]]), weights, seen_edges(PATH))
    attached.edge_weight.square().sum().backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("ids", "weights", "exclude", "match"),
    [
        ([[0, 1]], [[1.0]], None, r"shape \(1, 2\) came with weights of shape \(1, 1\)"),
        ([[0, 5]], [[1.0, 1.0]], None, "from 0 to 5, expected positions 0 to 4"),
        ([[-2, 0]], [[1.0, 1.0]], None, "from -2 to 0"),
        ([[0, 1]], [[1.0, -0.1]], None, "finite and not negative"),
        ([[0, 1]], [[1.0, float("nan")]], None, "finite and not negative"),
        ([[0, 1]], [[1.0, 1.0]], [1, 2], r"exclude of shape \(2,\) came, expected one node for each of 1"),
    ],
)
def test_bad_targets(ids: Any, weights: Any, exclude: Any, match: str) -> None:
    removed = None if exclude is None else torch.tensor(exclude)
    with pytest.raises(InputError, match=match):
        attach_targets(torch.tensor(ids), torch.tensor(weights), seen_edges(PATH), exclude=removed)


# The wrapper, on modules without PyG.


class MeanOfNeighbours(nn.Module):
    """x + weighted sum of incoming rows: simple enough to work out by hand."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return x.index_add(0, edge_index[1], x[edge_index[0]] * edge_weight[:, None])


class Unweighted(nn.Module):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(x)


class Returns(nn.Module):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.make(x)


def test_the_answer_by_hand() -> None:
    model = AttachedModule(MeanOfNeighbours(), in_channels=1, out_channels=1)
    attached = model.attach(torch.tensor([[1, 4], [3, -1]]), torch.tensor([[0.5, 0.25], [1.0, 1.0]]), seen_edges(PATH))
    x_seen, x_new = torch.tensor([[1.0], [2.0], [4.0], [8.0], [16.0]]), torch.tensor([[100.0], [200.0]])
    expected = [[100 + 0.5 * 2 + 0.25 * 16], [200 + 8.0]]
    assert model(x_new, x_seen, attached).tolist() == expected
    asked: list[Tensor] = []

    def rows(index: Tensor) -> Tensor:
        asked.append(index)
        return x_seen[index]

    assert model(x_new, rows, attached).tolist() == expected
    assert [index.tolist() for index in asked] == [[0, 1, 2, 3, 4]]  # once, each position once


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (Unweighted(4, 5), r"gives 5 columns but y has 3 classes\. Build it with out_channels=3\."),
        (Unweighted(7, 3), r"have 4 columns but the module takes 7\. Build it with in_channels=4\."),
        (Returns(lambda x: (x, x)), "returned tuple, expected a tensor"),
        (Returns(lambda x: x.mean(dim=0)), r"shape \(4,\) for 3 nodes"),
        (Returns(lambda x: x[:1]), r"shape \(1, 4\) for 3 nodes"),
        (nn.Linear(4, 3), r"module failed on a graph of 3 nodes.*module\(x, edge_index\)"),
        (Unweighted, "expected a torch.nn.Module instance"),
    ],
)
def test_modules_that_do_not_fit(module: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        AttachedModule(module, in_channels=4, out_channels=3)


def test_the_trial_leaves_the_module_as_it_was() -> None:
    module = Returns(nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)))
    module.make[1].eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    check_module(module, 3, 3)
    assert module.training
    assert module.make[0].training
    assert not module.make[1].training
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


@pytest.mark.parametrize(("name", "value"), [("num_hops", -1), ("fanout", 0), ("fanout", 2.5)])
def test_bad_settings(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"{name}="):
        AttachedModule(Unweighted(2, 2), in_channels=2, out_channels=2, **{name: value})


def test_features_of_another_width() -> None:
    model = AttachedModule(Unweighted(2, 2), in_channels=2, out_channels=2)
    attached = model.attach(torch.tensor([[0]]), torch.ones(1, 1), seen_edges(PATH))
    with pytest.raises(FeatureError, match="have 3 columns but the module takes 2"):
        model(torch.ones(1, 3), torch.ones(5, 3), attached)


# PyG's own modules, unchanged.

MODELS = ["GCN", "GAT", "GraphSAGE", "GIN", "APPNP", "GCN+GraphNorm"]


def pyg_module(name: str, in_channels: int, out_channels: int) -> nn.Module:
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    if name == "GCN+GraphNorm":
        return pyg.GCN(in_channels, 16, num_layers=2, out_channels=out_channels, norm="GraphNorm")
    if name != "APPNP":
        return getattr(pyg, name)(in_channels, 16, num_layers=2, out_channels=out_channels)

    class Predictor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.propagate = nn.Linear(in_channels, out_channels), pyg.APPNP(K=5, alpha=0.1)

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            return self.propagate(self.lin(x), edge_index, edge_weight)

    return Predictor()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("num_hops", [1, 2])
def test_predictions_do_not_depend_on_the_batch(name: str, num_hops: int) -> None:
    graph = random_graph(60, 300, seed=3, weighted=True)
    model = AttachedModule(pyg_module(name, 6, 4), in_channels=6, out_channels=4, num_hops=num_hops, fanout=3).eval()
    generator = torch.Generator().manual_seed(0)
    x_seen, x_new = torch.randn(60, 6, generator=generator), torch.randn(8, 6, generator=generator)
    ids = torch.randint(60, (8, 5), generator=generator)  # 60 seen nodes for 40 places: many are shared
    weights = torch.rand(8, 5, generator=generator)

    def predict(rows: list[int]) -> Tensor:
        with torch.no_grad():
            return model(x_new[rows], x_seen, model.attach(ids[rows], weights[rows], seen_edges(graph)))

    together = predict(list(range(8)))
    assert together.shape == (8, 4)
    torch.testing.assert_close(torch.cat([predict([i]) for i in range(8)]), together, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(predict([5, 2]), together[[5, 2]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_pyg_errors_name_both_widths(name: str) -> None:
    with pytest.raises(InputError, match="gives 5 columns but y has 3 classes"):
        check_module(pyg_module(name, 4, 5), 4, 3)
    with pytest.raises(FeatureError, match=r"have 9 columns but the module takes 4\. Build it with in_channels=9"):
        check_module(pyg_module(name, 4, 3), 9, 3)


def test_cached_edges_are_refused() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    with pytest.raises(InputError, match="cached=True"):
        check_module(pyg.GCN(4, 8, num_layers=2, out_channels=3, cached=True), 4, 3)


def test_lazy_widths_are_filled_in() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    model = AttachedModule(pyg.GraphSAGE(-1, 8, num_layers=2, out_channels=3), in_channels=5, out_channels=3)
    attached = model.attach(torch.tensor([[0]]), torch.ones(1, 1), seen_edges(PATH))
    assert model(torch.ones(1, 5), torch.ones(5, 5), attached).shape == (1, 3)


def test_edge_weights_matter_where_the_module_takes_them() -> None:
    ids, x_seen, x_new = torch.tensor([[0, 3]]), torch.eye(5), torch.ones(1, 5)
    changed = {}
    for name in ("GCN", "GAT"):
        model = AttachedModule(pyg_module(name, 5, 2), in_channels=5, out_channels=2).eval()
        outs = [
            model(x_new, x_seen, model.attach(ids, torch.tensor([pair]), seen_edges(PATH)))
            for pair in ([1.0, 0.1], [0.1, 1.0])
        ]
        changed[name] = not torch.allclose(outs[0], outs[1])
    assert changed == {"GCN": True, "GAT": False}


def test_a_wrapped_gcn_learns_what_only_edges_say() -> None:
    """Features say which of 60 blobs a node is in; edges alone say which blobs form a class."""
    from gsparc.datasets import communities_of_blobs
    from gsparc.ops.neighbors import NeighborIndex

    data = communities_of_blobs(1500, num_blobs=60, num_classes=3, dim=16, degree=20, random_state=0)
    rng = np.random.default_rng(0)
    order = rng.permutation(1500)
    seen, cold = np.sort(order[:1200]), order[1200:]
    X: Any = data.X
    x, y = torch.from_numpy(X[seen]), torch.from_numpy(data.y[seen])
    labelled = np.concatenate([rng.choice(np.flatnonzero(data.y[seen] == c), 5, replace=False) for c in range(3)])
    index, edges = NeighborIndex.build(x), seen_edges(data.graph[seen])
    near = torch.from_numpy(index.search(x[labelled], 11)[1][:, 1:].copy())  # the first is the node itself
    model = AttachedModule(pyg_module("GCN", 16, 3), in_channels=16, out_channels=3)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=1e-2)
    generator, own = torch.Generator().manual_seed(0), torch.from_numpy(labelled)
    for _ in range(60):
        attached = model.attach(near, torch.ones(near.shape), edges, exclude=own, generator=generator)
        loss = nn.functional.cross_entropy(model(x[own], x, attached), y[own])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x_new = torch.from_numpy(X[cold])
    ids = torch.from_numpy(index.search(x_new, 10)[1])
    with torch.no_grad():
        guess = model.eval()(x_new, x, model.attach(ids, torch.ones(ids.shape), edges)).argmax(dim=1)
    assert (guess.numpy() == data.y[cold]).mean() >= 0.9
