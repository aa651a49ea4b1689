"""Soft labels: distributions, from edges where features are silent, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gsparc.datasets import load_dataset, make_blocks
from gsparc.exceptions import UnknownNameError
from gsparc.splits import ColdStartSplit
from gsparc.training.batches import FeatureSource, Scaling
from gsparc.training.teach import soft_labels

# features are nearly noise, edges stay within blocks
BLOCKS = make_blocks(240, 2000, 8, branching=(3,), noise=4.0, random_state=0)


def source(X) -> FeatureSource:
    return FeatureSource(X, Scaling.fit(X))


def few_labels() -> np.ndarray:
    codes = np.full(240, -1)
    for label in range(3):
        codes[np.flatnonzero(BLOCKS.y == label)[:8]] = label
    return codes


@pytest.mark.parametrize("kind", ["sage", "appnp"])
def test_labels_travel_along_edges(kind) -> None:
    X, codes = np.asarray(BLOCKS.X, np.float32), few_labels()
    soft = soft_labels(source(X), BLOCKS.graph, codes, 3, kinds=(kind,), steps=40)
    assert soft.shape == (240, 3)
    assert soft.dtype == np.float32
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)
    hidden = codes < 0
    right = (soft.argmax(axis=1) == BLOCKS.y)[hidden].mean()
    centres = np.stack([X[codes == label].mean(axis=0) for label in range(3)])
    by_features = (((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1) == BLOCKS.y)[hidden].mean()
    assert right > by_features + 0.1


def test_teachers_are_averaged_and_seeded() -> None:
    X, codes = source(np.asarray(BLOCKS.X, np.float32)), few_labels()
    both = soft_labels(X, BLOCKS.graph, codes, 3, steps=5, seed=3)
    parts = [soft_labels(X, BLOCKS.graph, codes, 3, kinds=(kind,), steps=5, seed=3) for kind in ("sage", "appnp")]
    np.testing.assert_allclose(both, (parts[0] + parts[1]) / 2, atol=1e-6)
    two = soft_labels(X, BLOCKS.graph, codes, 3, kinds=("appnp",), seeds=2, steps=5, seed=2)
    first = soft_labels(X, BLOCKS.graph, codes, 3, kinds=("appnp",), steps=5, seed=2)
    np.testing.assert_allclose(two, (first + parts[1]) / 2, atol=1e-6)
    assert np.array_equal(first, soft_labels(X, BLOCKS.graph, codes, 3, kinds=("appnp",), steps=5, seed=2))
    assert not np.allclose(first, parts[1], atol=1e-3)


def test_sparse_features_and_hidden_labels_only() -> None:
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.poisson(0.2, (240, 30)).astype(np.float32))
    codes = few_labels()
    soft = soft_labels(source(X), BLOCKS.graph, codes, 3, kinds=("sage",), steps=5)
    assert np.isfinite(soft).all()


def test_unknown_teacher() -> None:
    with pytest.raises(UnknownNameError, match="unknown teacher 'gat'"):
        soft_labels(source(np.asarray(BLOCKS.X, np.float32)), BLOCKS.graph, few_labels(), 3, kinds=("gat",))  # type: ignore[arg-type]


@pytest.mark.data
def test_hidden_labels_of_cora() -> None:
    data = load_dataset("cora")
    fold = next(iter(ColdStartSplit("few", random_state=0).folds(data.X, data.y)))
    X: sp.csr_array = sp.csr_array(data.X, dtype=np.float32)[fold.seen]
    codes = fold.visible_labels(data.y).astype(np.int64)
    soft = soft_labels(source(X), data.graph[fold.seen], codes, 7, kinds=("appnp",), steps=60)
    assert (soft.argmax(axis=1) == data.y[fold.seen])[codes < 0].mean() > 0.7
