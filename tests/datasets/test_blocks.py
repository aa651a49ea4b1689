"""The hierarchical block model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gsparc.datasets import make_blocks
from gsparc.datasets.generators import blocks
from gsparc.exceptions import InputError, OutputError


def ends(data):
    rows = np.repeat(np.arange(data.graph.num_nodes), np.diff(data.graph.indptr))
    return rows, data.graph.indices


@settings(max_examples=30, deadline=None)
@given(
    nodes=st.integers(12, 300),
    share=st.floats(0, 0.5),
    branching=st.sampled_from([(1,), (2,), (3, 2), (2, 1, 3)]),
    skew=st.floats(0, 2),
    seed=st.integers(0, 1000),
)
def test_exactly_as_many_edges_as_asked(nodes, share, branching, skew, seed):
    count = int(share * nodes * (nodes - 1) / 2)
    data = make_blocks(nodes, count, 2, branching=branching, skew=skew, random_state=seed)
    assert data.graph.num_edges == count
    sizes = np.bincount(data.extra["leaf"])
    assert len(sizes) == np.prod(branching)
    assert sizes.max() - sizes.min() <= 1
    np.testing.assert_array_equal(data.y, data.extra["leaf"] // np.prod(branching[1:], dtype=int))


def test_edges_prefer_the_smaller_block():
    data = make_blocks(3000, 20_000, 2, branching=(3, 5), within=0.6, skew=0, random_state=0)
    one, two = (data.extra["leaf"][part] for part in ends(data))
    # in leaves: 0.6; of the rest 0.6 in one of 3 blocks, 1/5 of them in one leaf; then anywhere: 1/15
    assert (one == two).mean() == pytest.approx(0.6 + 0.24 / 5 + 0.16 / 15, abs=0.02)
    assert (one // 5 == two // 5).mean() == pytest.approx(0.84 + 0.16 / 3, abs=0.02)


def test_skew_gives_heavy_tails():
    flat, heavy = (make_blocks(5000, 50_000, 1, branching=(5,), skew=s, random_state=0) for s in (0.0, 1.5))
    assert np.diff(flat.graph.indptr).max() < 50  # mean 20, standard deviation 4.5
    assert np.diff(heavy.graph.indptr).max() > 150


def test_features_are_centroid_plus_noise():
    data = make_blocks(4000, 10, 30, branching=(4, 2), noise=0.5, random_state=0)
    leaf = data.extra["leaf"]
    centres = np.stack([data.X[leaf == i].mean(axis=0) for i in range(8)])
    assert (data.X - centres[leaf]).std() == pytest.approx(0.5, rel=0.02)
    siblings, strangers = np.square(centres[0] - centres[1]).mean(), np.square(centres[0] - centres[7]).mean()
    assert siblings < strangers  # siblings share one of two equal parts: 1 against 2 on average


def test_without_noise_rows_of_a_block_are_equal():
    data = make_blocks(40, 20, 3, branching=(2, 2), noise=0, random_state=0)
    assert len(np.unique(data.X, axis=0)) == 4


@pytest.mark.parametrize("chunk", [64, 1 << 21])
def test_streams_do_not_change_features(chunk, monkeypatch, tmp_path):
    whole = make_blocks(500, 2000, 7, branching=(5, 2), random_state=3)
    monkeypatch.setattr(blocks, "_CHUNK_VALUES", chunk)
    mapped = make_blocks(500, 2000, 7, branching=(5, 2), random_state=3, out=tmp_path / "new")
    assert isinstance(mapped.X, np.memmap)
    np.testing.assert_array_equal(mapped.X, whole.X)
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "features.npy", allow_pickle=False), whole.X)
    assert mapped.graph == whole.graph


def test_edges_in_many_small_streams(monkeypatch):
    monkeypatch.setattr(blocks, "_EDGE_CHUNK", 100)
    data = make_blocks(500, 2000, 1, branching=(5, 2), random_state=3)
    assert data.graph.num_edges == 2000


def test_seed():
    one, two, other = (make_blocks(300, 900, 4, random_state=seed) for seed in (5, 5, 6))
    assert one.graph == two.graph
    assert one.X.tobytes() == two.X.tobytes()
    assert one.graph != other.graph


def test_default_tree_and_classes():
    data = make_blocks(6000, 10, 1, num_classes=4, random_state=0)
    assert data.extra["branching"] == (4, 6)
    assert np.bincount(data.y).tolist() == [1500] * 4
    deeper = make_blocks(60, 10, 1, branching=(2, 3), num_classes=5, random_state=0)
    # six blocks in five classes: blocks 0 and 5 share one
    assert np.bincount(deeper.y).tolist() == [20, 10, 10, 10, 10]


@pytest.mark.parametrize(
    ("sizes", "options", "words"),
    [
        ((1, 0, 1), {}, "at least 2 nodes"),
        ((10, 40, 1), {}, "pass at most 22"),
        ((10, 5, 0), {}, "1 feature"),
        ((10, 5, 1), {"branching": (3, 3)}, "9 blocks of 10 nodes"),
        ((10, 5, 1), {"branching": ()}, "every width"),
        ((10, 5, 1), {"branching": (2, 0)}, "every width"),
        ((10, 5, 1), {"branching": (2,), "num_classes": 3}, "more than the 2 blocks"),
        ((10, 5, 1), {"num_classes": 0}, "at least one class"),
        ((10, 5, 1), {"within": 1.0}, "within=1.0"),
        ((10, 5, 1), {"noise": -1}, "noise=-1"),
    ],
)
def test_bad_settings(sizes, options, words):
    with pytest.raises(InputError, match=words):
        make_blocks(*sizes, **options)


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        make_blocks(10, 5, 1, branching=(2,), out=tmp_path / "file")
