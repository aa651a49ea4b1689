"""What a training step reads: sampled pairs against the operator, feature rows against scaling by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc.graph import Graph
from gsparc.nn.spectral_map import InputLayer, SparseRows
from gsparc.training import batches
from gsparc.training.batches import EdgeSampler, FeatureSource, Scaling, as_tensor, rows_on

DRAWS = 200_000


def small_graph(weighted: bool) -> Graph:
    """A triangle 0, 1, 2 with a tail 2 - 3; nodes 4 and 5 alone, so rows without entries end the matrix."""
    edges = np.array([[0, 1, 0, 2], [1, 2, 2, 3]])
    return Graph.from_edges(edges, num_nodes=6, weights=np.array([0.5, 2.0, 1.0, 4.0]) if weighted else None)


def pair_shares(graph: Graph, tau: float, walk_length: int) -> np.ndarray:
    """Probability of every ordered pair, from dense matrices."""
    n = graph.num_nodes
    affinity = graph.to_scipy().toarray().astype(float) + np.eye(n) + tau / n
    pi, step = affinity.sum(axis=1) / affinity.sum(), affinity / affinity.sum(axis=1, keepdims=True)
    powers = [np.linalg.matrix_power(step, i) for i in range(1, walk_length + 1)]
    return pi[:, None] * np.mean(powers, axis=0)


@pytest.fixture(params=["listed", "unlisted"])
def listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the pairs of a small graph may be listed; those of a large one are looked for."""
    if request.param == "unlisted":
        monkeypatch.setattr(batches, "_LISTED", 0)
    return request.param == "listed"


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize(("tau", "walk_length"), [(0.0, 1), (1.5, 1), (0.0, 3), (0.7, 2)])
def test_pairs_are_drawn_by_their_weight(listed: bool, weighted: bool, tau: float, walk_length: int) -> None:
    graph = small_graph(weighted)
    sampler = EdgeSampler(graph, tau=tau, walk_length=walk_length)
    assert (sampler._pairs is not None) == (listed and not weighted and not tau)
    source, target = sampler.sample(DRAWS, torch.Generator().manual_seed(0))
    found = np.zeros((6, 6))
    np.add.at(found, (source.numpy(), target.numpy()), 1 / DRAWS)
    expected = pair_shares(graph, tau, walk_length)
    assert (found[expected == 0] == 0).all()  # no pair that the operator does not have
    sigma = np.sqrt(expected * (1 - expected) / DRAWS)
    assert (np.abs(found - expected) <= 5 * sigma + 1e-12).all()
    # both ends are distributed as pi
    pi = expected.sum(axis=1)
    for ends in (source, target):
        share = np.bincount(ends.numpy(), minlength=6) / DRAWS
        assert (np.abs(share - pi) <= 5 * np.sqrt(pi / DRAWS)).all()
    np.testing.assert_allclose(sampler.pi.numpy(), pi, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_no_entry_outside_a_row_is_read(listed: bool, weighted: bool) -> None:
    # 300 nodes with empty rows between: every drawn pair is an edge or a self-loop
    rng = np.random.default_rng(0)
    ends = 3 * rng.integers(0, 100, (2, 400))
    graph = Graph.from_edges(ends, num_nodes=300, weights=rng.uniform(1e-6, 10, 400) if weighted else None)
    allowed = graph.to_scipy().toarray() + np.eye(300)
    source, target = EdgeSampler(graph).sample(50_000, torch.Generator().manual_seed(1))
    assert (allowed[source, target] > 0).all()
    source, target = EdgeSampler(graph, walk_length=2).sample(50_000, torch.Generator().manual_seed(1))
    assert ((allowed + allowed @ allowed)[source, target] > 0).all()


def test_rounding_at_the_end_of_a_row_does_not_reach_the_next() -> None:
    # running sums near 2^54 have steps of 4: half of the draws in a row of weight 4 round up to its end
    graph = Graph.from_edges([[0, 2, 4], [1, 3, 5]], num_nodes=6, weights=np.array([2.0**53, 4.0, 4.0]))
    step = EdgeSampler(graph, walk_length=2)._one_step(torch.full((1000,), 3), torch.Generator().manual_seed(0))
    assert set(step.tolist()) == {2, 3}


def test_a_graph_without_edges_gives_self_loops(listed: bool) -> None:
    for walk_length in (1, 3):
        sampler = EdgeSampler(Graph.empty(4), walk_length=walk_length)
        source, target = sampler.sample(100, torch.Generator().manual_seed(0))
        assert torch.equal(source, target)
        assert sorted(set(source.tolist())) == [0, 1, 2, 3]


@pytest.mark.parametrize("weighted", [False, True])
def test_excluded_nodes_are_never_drawn(listed: bool, weighted: bool) -> None:
    graph, exclude = small_graph(weighted), np.array([3, 5])
    sampler = EdgeSampler(graph, exclude=exclude)
    source, target = sampler.sample(DRAWS, torch.Generator().manual_seed(0))
    found = np.zeros((6, 6))
    np.add.at(found, (source.numpy(), target.numpy()), 1 / DRAWS)
    expected = pair_shares(graph, 0.0, 1)
    expected[exclude] = expected[:, exclude] = 0
    # three draws, and of what is excluded then four in a row; the rest falls to the first node left; of a list nothing
    missed = 0.0 if sampler._pairs is not None else (1 - expected.sum()) ** 12
    expected *= (1 - missed) / expected.sum()
    expected[0, 0] += missed
    assert (found[expected == 0] == 0).all()
    assert (np.abs(found - expected) <= 7 * np.sqrt(expected * (1 - expected) / DRAWS) + 1e-12).all()


def test_walks_that_must_avoid_nodes_and_nothing_but_excluded_pairs_are_not_listed() -> None:
    exclude, generator = np.array([3]), torch.Generator().manual_seed(0)
    walking = EdgeSampler(small_graph(False), walk_length=2, exclude=exclude)
    assert walking._pairs is None
    assert not torch.isin(torch.stack(walking.sample(2000, generator)), 3).any()
    alone = EdgeSampler(Graph.from_edges([[0], [1]], num_nodes=3), self_loops=False, exclude=np.array([1]))
    assert alone._pairs is None
    assert set(torch.cat(alone.sample(50, generator)).tolist()) <= {0, 2}


def test_the_same_generator_state_draws_the_same_pairs() -> None:
    sampler = EdgeSampler(small_graph(True), tau=0.5, walk_length=2)
    first = sampler.sample(50, torch.Generator().manual_seed(7))
    again = sampler.sample(50, torch.Generator().manual_seed(7))
    other = sampler.sample(50, torch.Generator().manual_seed(8))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


COUNTS = np.array([[0, 3, 0, 4, 0, 0], [0, 0, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0], [1, 0, 0, 0, 2, 2]], np.float32)
# every row to length sqrt(6); the empty one stays
UNIT = COUNTS / np.array([[5], [1], [2], [3]], np.float32) * np.sqrt(6)
INDEX = torch.tensor([3, 0, 0, 1])


def test_rows_of_counts_by_hand_dense_and_sparse() -> None:
    scaling = Scaling.fit(COUNTS)
    assert scaling.rows
    np.testing.assert_allclose(FeatureSource(COUNTS, scaling).rows(INDEX), UNIT[INDEX], rtol=1e-6)
    matrix = sp.csr_array(COUNTS)
    assert Scaling.fit(matrix).rows
    rows = FeatureSource(matrix, Scaling.fit(matrix)).rows(INDEX)  # a quarter full: as dense rows
    assert isinstance(rows, torch.Tensor)
    np.testing.assert_allclose(rows, UNIT[INDEX], rtol=1e-6)


def test_thin_sparse_rows_stay_sparse() -> None:
    wide = sp.csr_array(np.pad(COUNTS, ((0, 0), (0, 94))))
    rows = FeatureSource(wide, Scaling.fit(wide)).rows(INDEX)
    assert isinstance(rows, SparseRows)
    assert rows.pointers.tolist() == [0, 3, 5, 7, 7]
    assert rows.columns.tolist() == [0, 4, 5, 1, 3, 1, 3]
    np.testing.assert_allclose(rows.values, 10 * np.array([1 / 3, 2 / 3, 2 / 3, 0.6, 0.8, 0.6, 0.8]), rtol=1e-6)


def test_rows_of_a_whole_graph_stay_sparse_where_few_entries_are_filled() -> None:
    wide = sp.csr_array(np.pad(COUNTS, ((0, 0), (0, 94))))
    source = FeatureSource(wide, Scaling.fit(wide))
    source._scatter = True  # as on a GPU
    assert isinstance(source.rows(INDEX), torch.Tensor)
    rows = source.fixed_rows(INDEX)
    assert isinstance(rows, SparseRows)
    assert rows.columns.tolist() == [0, 4, 5, 1, 3, 1, 3]
    for full in (COUNTS, sp.csr_array(COUNTS)):
        source = FeatureSource(full, Scaling.fit(full))
        assert torch.equal(source.fixed_rows(INDEX), source.rows(INDEX))


def test_columns_are_standardised_and_constant_ones_vanish() -> None:
    x = np.array([[1.0, 7.3, -2.0], [3.0, 7.3, 0.0], [5.0, 7.3, 8.0]], np.float32)
    scaling = Scaling.fit(x)
    assert not scaling.rows
    rows = FeatureSource(x, scaling).rows(torch.arange(3))
    assert isinstance(rows, torch.Tensor)
    np.testing.assert_allclose(rows[:, 0], np.array([-1, 0, 1]) * np.sqrt(1.5), rtol=1e-6)
    assert rows[:, 1].tolist() == [0, 0, 0]
    np.testing.assert_allclose(rows.mean(dim=0), 0, atol=1e-6)
    new = np.array([[3.0, 9.0, 2.0]], np.float32)  # a new node with another value in the constant column
    np.testing.assert_allclose(FeatureSource(new, scaling).rows(torch.tensor([0])), [[0, 0, 0]], atol=1e-6)


def test_a_million_columns_stay_sparse() -> None:
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(1_000_000, (2000, 5)), axis=1).ravel()
    wide = sp.csr_array((np.ones(10_000, np.float32), columns, np.arange(0, 10_001, 5)), shape=(2000, 1_000_000))
    source = FeatureSource(wide, Scaling.fit(wide))  # dense, this would be 8 GB
    rows = source.rows(torch.arange(2000))
    assert isinstance(rows, SparseRows)
    assert len(rows.values) == 10_000
    np.testing.assert_allclose(rows.values, 1000 / np.sqrt(5), rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_rows_of_counts_in_tiny_and_huge_units(scale: float) -> None:
    small = (COUNTS * scale).astype(np.float32)
    for X in (small, sp.csr_array(small)):
        np.testing.assert_allclose(FeatureSource(X, Scaling.fit(X)).rows(INDEX), UNIT[INDEX], rtol=1e-5)


@pytest.mark.parametrize(("scale", "mean"), [(1e-30, 0), (1e-25, 0), (1e30, 0), (1, 1e5), (1e6, 1.6e9)])
def test_columns_of_sparse_features_are_those_of_dense_ones(scale: float, mean: float) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(mean / scale, 1, (500, 4)) * (rng.random((500, 4)) < 0.9) * scale).astype(np.float32)
    X[:, 0] = (scale * rng.normal(mean / scale, 1, 500)).astype(np.float32)
    dense, sparse = Scaling.fit(X), Scaling.fit(sp.csr_array(X))
    assert dense.factor is not None
    assert (dense.factor > 0).all()
    np.testing.assert_allclose(sparse.factor, dense.factor, rtol=1e-6)  # type: ignore[arg-type]
    np.testing.assert_allclose(sparse.shift, dense.shift, rtol=1e-6)  # type: ignore[arg-type]


def test_read_only_arrays_make_no_warning_and_no_copy() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    assert as_tensor(array).data_ptr() == array.ctypes.data


def test_arrays_that_run_backwards_are_taken() -> None:
    array = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    for part in (array[::-1], array[:, ::-1], array[::-1, ::-1]):
        assert as_tensor(part).tolist() == part.tolist()
    matrix = sp.csr_array((array.ravel()[:0:-1], [0, 1, 0, 1, 0], [0, 2, 4, 5]))
    for X in (array[::-1], matrix):
        scaling = Scaling.fit(X)
        torch.testing.assert_close(
            FeatureSource(X, scaling).rows(torch.arange(3)), FeatureSource(X.copy(), scaling).rows(torch.arange(3))
        )


@pytest.mark.parametrize("kind", ["counts", "signed", "one column"])
def test_dense_and_sparse_rows_are_scaled_alike(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = {
        "counts": rng.poisson(0.3, (40, 12)),
        "signed": rng.normal(80, 5, (40, 12)) * (rng.random((40, 12)) < 0.7),
        "one column": np.arange(40.0)[:, None] * (np.arange(40)[:, None] % 3 == 0),
    }[kind].astype(np.float32)
    scaling = Scaling.fit(X)
    assert scaling.rows == (kind == "counts") == Scaling.fit(sp.csr_array(X)).rows == Scaling.fit(X[::-1]).rows
    index = torch.arange(40)
    dense = FeatureSource(X, scaling).rows(index)
    module = InputLayer(X.shape[1], 3)
    for other in (scaling, Scaling.fit(sp.csr_array(X))):  # fitted on either, asked with either
        sparse = FeatureSource(sp.csr_array(X), other).rows(index)
        torch.testing.assert_close(module(sparse), module(dense), rtol=1e-4, atol=1e-4)


def test_without_self_loops_only_edges_are_drawn() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=50, weights=[1e-4, 3e-4])
    source, target = EdgeSampler(graph, self_loops=False).sample(4000, torch.Generator().manual_seed(0))
    assert (source != target).all()
    assert abs(float(((source == 1) & (target == 2) | (source == 2) & (target == 1)).double().mean()) - 0.75) < 0.03


def test_categories_beside_an_income_are_not_drowned() -> None:
    kinds = np.eye(6, dtype=np.float32)[np.arange(48) % 6]
    income = np.random.default_rng(0).uniform(1e4, 9e4, 48)
    X = np.column_stack([kinds, income]).astype(np.float32)
    index = torch.arange(48)
    for matrix in (X, sp.csr_array(X), sp.csr_matrix(X), sp.csc_array(X)):
        scaling = Scaling.fit(matrix)
        assert not scaling.rows
        rows = FeatureSource(X, scaling).rows(index)
        assert isinstance(rows, torch.Tensor)
        np.testing.assert_allclose(rows.std(dim=0, unbiased=False), 1.0, rtol=1e-3)
    X[::3, -1] = 0.0  # not known of all: where it is known it still is all there is of the row
    assert not Scaling.fit(X).rows


@pytest.mark.parametrize("kind", ["shares", "one kind prevails", "frequent words"])
def test_rows_of_categories_and_words_stay_rows(kind: str) -> None:
    rng = np.random.default_rng(0)
    X = {
        "shares": np.column_stack([np.eye(6)[np.arange(60) % 6], rng.uniform(0, 1, 60)]),
        "one kind prevails": np.eye(6)[np.where(np.arange(60) % 10 < 9, 0, np.arange(60) % 6)],
        "frequent words": np.column_stack([np.full(60, 12.0), rng.poisson(0.3, (60, 50)) + np.eye(60)[:, :50]]),
    }[kind].astype(np.float32)
    assert (X != 0).mean() < 0.5
    assert Scaling.fit(X).rows
    assert Scaling.fit(sp.csr_array(X)).rows


@pytest.mark.parametrize("kind", ["normal", "counts", "constant column", "income"])
def test_scaling_block_by_block_on_a_device_is_the_same(kind: str) -> None:
    X = np.random.default_rng(0).normal(2.0, 3.0, (100, 5)).astype(np.float32)
    if kind == "counts":
        X = (X > 5).astype(np.float32)
    elif kind == "constant column":
        X[:, 2] = 0.1
    elif kind == "income":
        X = np.column_stack([X > 5, np.full(100, 3e4) + 1e4 * X[:, 0] ** 2]).astype(np.float32)
    expected = Scaling.fit(X)
    found = Scaling._fit_tensor(torch.from_numpy(X), [slice(0, 64), slice(64, 128)])
    assert found.rows == expected.rows
    if not expected.rows:
        np.testing.assert_allclose(found.shift, expected.shift, rtol=1e-6)
        np.testing.assert_allclose(found.factor, expected.factor, rtol=1e-6)


def test_some_rows_as_they_were_passed_and_the_lengths_of_all() -> None:
    X = np.array([[1.0, 0.0], [3.0, 3.0], [1.0, 4.0]], np.float32)
    scaling = Scaling(False, np.array([1.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
    for matrix in (X, sp.csr_array(X)):
        source = FeatureSource(matrix, scaling)
        some = source.matrix(np.array([2, 0]))
        assert (some.toarray() if sp.issparse(some) else some).tolist() == [[1.0, 4.0], [1.0, 0.0]]
    assert FeatureSource(X, scaling).lengths().tolist() == [0.0, 5.0, 4.0]
    assert FeatureSource(torch.from_numpy(X), scaling).matrix().tolist() == X.tolist()


def test_rows_stay_where_they_are_without_a_gpu() -> None:
    X = np.ones((2, 2), np.float32)
    assert rows_on(X, torch.device("cpu")) is X
