"""Partitions: bounds on sizes, parts one can see, and subgraphs against brute force."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.exceptions import InputError, MissingExtraError
from gsparc.graph import Graph
from gsparc.ops._bounded import bounded_kmeans, place_within
from gsparc.ops.clusters import ClusterEdges
from gsparc.ops.partition import check_partition, inner_share, partition_metis, partition_random, partition_spectral


def two_cliques(size: int) -> Graph:
    pairs = list(itertools.combinations(range(size), 2))
    edges = [*pairs, *((a + size, b + size) for a, b in pairs), (0, size)]
    return Graph.from_edges(np.array(edges).T, 2 * size)


class TestRandom:
    @given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
    def test_sizes_differ_by_at_most_one(self, n: int, parts: int, seed: int) -> None:
        if parts > n:
            with pytest.raises(InputError, match=f"parts={parts} came for {n} nodes"):
                partition_random(n, parts, seed)
            return
        sizes = np.bincount(partition_random(n, parts, seed), minlength=parts)
        assert sizes.sum() == n
        assert sizes.max() - sizes.min() <= 1

    def test_the_seed_decides(self) -> None:
        assert np.array_equal(partition_random(50, 5, 1), partition_random(50, 5, 1))
        assert not np.array_equal(partition_random(50, 5, 1), partition_random(50, 5, 2))


class TestMetis:
    def test_cliques_stay_whole(self) -> None:
        pytest.importorskip("pymetis")
        graph = two_cliques(10)
        label = partition_metis(graph.indptr, graph.indices, 2, seed=3)
        assert label.dtype == np.int64
        assert sorted(np.bincount(label)) == [10, 10]
        assert inner_share(graph.indptr, graph.indices, label) == pytest.approx(180 / 182)
        assert np.array_equal(label, partition_metis(graph.indptr, graph.indices, 2, seed=3))

    @pytest.mark.parametrize("parts", [1, 2, 5, 7])
    def test_isolated_nodes_and_small_graphs(self, parts: int) -> None:
        pytest.importorskip("pymetis")
        graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=7)
        label = partition_metis(graph.indptr, graph.indices, parts)
        assert label.shape == (7,)
        assert set(label) == set(range(label.max() + 1))  # no gap, though METIS may leave parts empty
        assert len(set(label)) <= parts

    def test_no_edges(self) -> None:
        pytest.importorskip("pymetis")
        label = partition_metis(np.zeros(5, int), np.zeros(0, int), 2)
        assert np.bincount(label).tolist() == [2, 2]

    def test_absent_package_prints_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pymetis", None)
        with pytest.raises(MissingExtraError, match=r"gsparc\[metis\]"):
            partition_metis([0, 1, 2], [1, 0], 2)


class TestSpectral:
    def test_three_clumps_on_a_line(self) -> None:
        line = np.array([[0.0], [9.0], [1.0], [8.0], [4.0], [5.0]])
        for slack in (0.0, 0.25):
            label = partition_spectral(line, 3, unit=False, slack=slack)
            groups = sorted(np.flatnonzero(label == part).tolist() for part in range(3))
            assert groups == [[0, 2], [1, 3], [4, 5]]

    def test_directions_not_lengths(self) -> None:
        rows = np.array([[1.0, 0.0], [9.0, 0.1], [0.0, 1.0], [0.1, 9.0]])
        label = partition_spectral(rows, 2)
        assert label[0] == label[1]
        assert label[2] == label[3] != label[0]

    @settings(max_examples=40, deadline=None)
    @given(st.integers(1, 80), st.data(), st.integers(1, 4), st.sampled_from([0.0, 0.1, 0.25, 2.0]), st.booleans())
    def test_every_part_is_used_and_bounded(
        self, n: int, data: st.DataObject, dim: int, slack: float, equal: bool
    ) -> None:
        parts = data.draw(st.integers(1, n))
        rows = np.zeros((n, dim)) if equal else np.random.default_rng(n).normal(size=(n, dim))
        sizes = np.bincount(partition_spectral(rows, parts, slack=slack), minlength=parts)
        assert len(sizes) == parts
        assert sizes.sum() == n
        assert sizes.min() >= 1
        assert sizes.max() <= np.ceil((1 + slack) * n / parts)

    def test_rounds_pull_clusters_of_unequal_size_apart(self) -> None:
        rng = np.random.default_rng(0)
        centre = np.repeat(np.eye(5) * 20, [60, 50, 40, 30, 20], axis=0)
        rows = centre + rng.normal(size=centre.shape)
        truth = centre.argmax(axis=1)

        def pure(label: np.ndarray) -> int:  # parts with members of one clump only
            return sum(len(set(truth[label == part])) == 1 for part in range(5))

        halves = partition_spectral(rows, 5, slack=0)
        rounds = partition_spectral(rows, 5, slack=0.5)
        assert pure(halves) < 5
        assert pure(rounds) == 5
        assert np.bincount(rounds).max() == 60

    def test_same_seed_same_parts_and_tensors_are_taken(self) -> None:
        rows = np.random.default_rng(1).normal(size=(100, 6)).astype(np.float32)
        first = partition_spectral(rows, 9, seed=2)
        assert np.array_equal(first, partition_spectral(torch.from_numpy(rows), 9, seed=2))

    @pytest.mark.parametrize(
        ("rows", "parts", "match"),
        [
            (np.zeros(4), 2, r"coordinates of shape \(4,\)"),
            (np.zeros((4, 0)), 2, "a column at least"),
            (np.full((4, 1), np.nan), 2, "NaN or infinity"),
            (np.zeros((4, 1)), 5, "parts=5 came for 4 nodes"),
            (np.zeros((4, 1)), 0, "parts=0 came"),
        ],
    )
    def test_bad_input(self, rows: Any, parts: int, match: str) -> None:
        with pytest.raises(InputError, match=match):
            partition_spectral(rows, parts)


class TestPlaceWithin:
    def test_the_nearest_stay_and_the_others_ask_again(self) -> None:
        # all want part 0, which holds one: row 1 is nearest; of the others row 2 is nearer to part 1
        scores = torch.tensor([[3.0, 5.0, 6.0], [1.0, 4.0, 4.0], [2.0, 3.0, 9.0]])
        options = torch.tensor([[0, 1, 2]] * 3)
        assert place_within(scores, options, 3, 1).tolist() == [2, 0, 1]

    def test_rows_that_nobody_takes_fill_the_room(self) -> None:
        label = place_within(torch.zeros(4, 1), torch.zeros(4, 1, dtype=torch.int64), 2, 2)
        assert torch.bincount(label).tolist() == [2, 2]

    def test_an_empty_part_is_given_a_row(self) -> None:
        label = bounded_kmeans(torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), 2, 4, rounds=1)
        assert sorted(torch.bincount(label, minlength=2).tolist()) == [1, 3]


class TestCheckPartition:
    @pytest.mark.parametrize(
        ("label", "match"),
        [([0, 1], r"shape \(2,\)"), ([0.0, 1.0, 1.0], "type float64"), ([0, -1, 0], "part number -1")],
    )
    def test_bad_input(self, label: Any, match: str) -> None:
        with pytest.raises(InputError, match=match):
            check_partition(label, 3)

    def test_gaps_close(self) -> None:
        assert check_partition(torch.tensor([5, 5, 0]), 3).tolist() == [1, 1, 0]


@st.composite
def directed(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    """Nodes, edges (self-loops, repeats and single directions included), and a part for each node."""
    n = draw(st.integers(1, 12))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    label = check_partition(draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)), n)
    return n, np.array(pairs, np.int64).reshape(-1, 2).T, label


class TestClusterEdges:
    @settings(max_examples=80, deadline=None)
    @given(directed(), st.data())
    def test_edges_within_equal_brute_force(
        self, made: tuple[int, np.ndarray, np.ndarray], data: st.DataObject
    ) -> None:
        _, edges, label = made
        clusters = ClusterEdges(torch.from_numpy(edges), label)
        count = clusters.num_parts
        chosen = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count, unique=True))
        found = clusters.induced(chosen)
        assert sorted(found.nodes.tolist()) == np.flatnonzero(np.isin(label, chosen)).tolist()
        assert label[found.nodes.numpy()].tolist() == sorted(label[found.nodes.numpy()], key=chosen.index)
        inside = np.flatnonzero(np.isin(label[edges[0]], chosen) & np.isin(label[edges[1]], chosen))
        assert sorted(found.edges.tolist()) == inside.tolist()
        assert torch.equal(found.nodes[found.edge_index], torch.from_numpy(edges)[:, found.edges])

    def test_repr(self) -> None:
        clusters = ClusterEdges(torch.tensor([[0, 1], [1, 2]]), np.array([0, 1, 1]))
        assert repr(clusters) == "ClusterEdges(num_nodes=3, num_edges=2, num_parts=2)"
