"""What networks read of nodes: never a seen node among its own neighbours, the same from a cache and from a file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gsparc.estimators._views as views
from gsparc.estimators._views import (
    NodeView,
    SeenNodes,
    _directions,
    _directions_on_device,
    dense_rows,
    leading_directions,
)
from gsparc.nn.spectral_map import SparseRows
from gsparc.ops.tokens import tokens_reference
from gsparc.training.batches import FeatureSource, Scaling

CPU = torch.device("cpu")
PLAIN = Scaling(False, np.zeros(3, np.float32), np.ones(3, np.float32))


def unit_rows(count: int, width: int, seed: int) -> np.ndarray:
    """Coordinates as a classifier has them: every row of length sqrt(width)."""
    rows = np.random.default_rng(seed).standard_normal((count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True) * width**0.5).astype(np.float32)


def features(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3)).astype(np.float32)


def seen_nodes(X: Any, u: np.ndarray, scaling: Scaling = PLAIN) -> tuple[SeenNodes, NodeView]:
    return SeenNodes.fit(X, scaling, u, CPU, seed=0)


def every(view: NodeView) -> torch.Tensor:
    return torch.arange(len(view))


def test_dense_rows_by_hand() -> None:
    sparse = SparseRows(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]), torch.tensor([1.0, 2.0, 5.0]))
    assert dense_rows(sparse, 4).tolist() == [[1, 0, 0, 2], [0, 0, 0, 0], [0, 5, 0, 0]]
    dense = torch.ones(2, 3)
    assert dense_rows(dense, 3) is dense


def test_tokens_by_hand() -> None:
    # four directions of the plane; node 0's nearest are 1, then 2, then 3
    angles = np.deg2rad([0, 10, 30, 90])
    u = (2**0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1)).astype(np.float32)
    X = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [3, 3, 3]], np.float32)
    _, view = seen_nodes(X, u)
    tokens = view.tokens(torch.tensor([0]), 2)[0]
    assert tokens.shape == (3, 5)
    np.testing.assert_allclose(tokens[0], [1, 0, 0, *u[0]], atol=1e-6)  # itself
    np.testing.assert_allclose(tokens[1], [0, 0.5, 0.5, *u[1:3].mean(axis=0)], atol=1e-6)  # of nodes 1 and 2
    np.testing.assert_allclose(tokens[2], [1, 4 / 3, 4 / 3, *u[1:].mean(axis=0)], atol=1e-6)  # there are three others


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 40), st.integers(1, 7), st.integers(0, 1000))
def test_tokens_are_those_of_the_definition(count: int, num_tokens: int, seed: int) -> None:
    u, X = unit_rows(count, 4, seed), features(count, seed)
    seen, view = seen_nodes(X, u)
    table = np.concatenate([X, u], axis=1)
    found = view.tokens(every(view), num_tokens)[:, 1:].numpy()
    np.testing.assert_allclose(found, tokens_reference(u, u, table, num_tokens, np.arange(count)), atol=1e-5)
    new_u, new_X = unit_rows(5, 4, seed + 1), features(5, seed + 1)
    new = seen.view(new_X, new_u)
    found = new.tokens(torch.arange(5), num_tokens).numpy()
    np.testing.assert_allclose(found[:, 1:], tokens_reference(new_u, u, table, num_tokens), atol=1e-5)
    np.testing.assert_allclose(found[:, 0], np.concatenate([new_X, new_u], axis=1), atol=1e-6)


@pytest.mark.parametrize("num_tokens", [1, 4, 9])
def test_a_seen_node_is_not_in_its_own_tokens(num_tokens: int) -> None:
    u, X = unit_rows(60, 4, 0), features(60)
    changed = X.copy()
    changed[7] += 100
    before, after = (seen_nodes(rows, u)[1].tokens(torch.arange(60), num_tokens) for rows in (X, changed))
    torch.testing.assert_close(after[7, 1:], before[7, 1:])
    assert (after[7, 0, :3] - before[7, 0, :3]).min() > 99
    others = np.delete(np.arange(60), 7)
    moved = (after[others, 1:] - before[others, 1:]).abs().amax(dim=(1, 2)) > 0.01
    assert moved.any()  # while it is in those of others: in all of them once a token covers everybody
    assert moved.all() == (num_tokens == 9)


@pytest.mark.parametrize("copies", [2, 5, 30])
def test_duplicates_of_a_node_are_its_neighbours_and_it_is_not(copies: int) -> None:
    u = np.concatenate([np.repeat(unit_rows(1, 4, 3), copies, axis=0), unit_rows(30, 4, 0)])
    _, view = seen_nodes(features(len(u)), u)
    for k in (1, 4, copies, len(u) + 5):
        ids, distances = view.neighbors(every(view), k)
        assert ids.shape == distances.shape == (len(u), min(k, len(u) - 1))
        assert not (ids == every(view)[:, None]).any()
        assert all(len(set(row)) == len(row) for row in ids.tolist())
        assert (distances.diff(dim=1) >= -1e-6).all()
        assert (ids[:copies, : copies - 1] < copies).all()
        np.testing.assert_allclose(distances[:copies, : copies - 1], 0, atol=1e-5)


def test_a_new_node_like_a_seen_one_has_it_as_its_nearest() -> None:
    u, X = unit_rows(50, 6, 0), features(50)
    seen, own = seen_nodes(X, u)
    new = seen.view(X, u)
    ids, distances = new.neighbors(every(new), 3)
    assert ids[:, 0].tolist() == list(range(50))
    np.testing.assert_allclose(distances[:, 0], 0, atol=1e-6)
    without, _ = own.neighbors(every(own), 2)
    assert (ids[:, 1:] == without).all()
    cosine = (u / 6**0.5) @ (u / 6**0.5).T
    np.testing.assert_allclose(distances, 1 - np.take_along_axis(cosine, ids.numpy(), axis=1), atol=1e-5)


def test_neighbours_of_some_rows_in_any_order() -> None:
    _, view = seen_nodes(features(40), unit_rows(40, 4, 0))
    ids, _ = view.neighbors(every(view), 5)
    rows = torch.tensor([31, 2, 2])
    assert torch.equal(view.neighbors(rows, 5)[0], ids[rows])
    assert torch.equal(view.tokens(rows, 3), view.tokens(every(view), 3)[rows])


@pytest.mark.parametrize("own", [True, False])
def test_cached_and_fresh_are_the_same(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    u, X = unit_rows(80, 4, 0), features(80)
    rows = torch.tensor([5, 79, 5, 0])

    def read() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        seen, view = seen_nodes(X, u)
        view = view if own else seen.view(X[::-1].copy(), u[::-1].copy())
        return view.tokens(rows, 4), *view.neighbors(rows, 6)

    cached = read()
    monkeypatch.setattr(views, "_CACHED", 0)
    for kept, fresh in zip(cached, read(), strict=True):
        torch.testing.assert_close(kept, fresh)


def test_nothing_is_kept_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_CACHED", 0)
    _, view = seen_nodes(features(30), unit_rows(30, 4, 0))
    view.tokens(torch.arange(3), 2)
    view.neighbors(torch.arange(3), 2)
    assert not view._kept
    assert not view._near


def counts(rows: int, columns: int, seed: int = 0, share: float = 0.02) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    return sp.csr_array(
        ((rng.random((rows, columns)) < share) * rng.integers(1, 4, (rows, columns))).astype(np.float32)
    )


def test_wide_counts_are_reduced_to_their_leading_directions() -> None:
    X = counts(300, 700)
    scaling = Scaling.fit(X)
    assert scaling.rows
    seen, view = seen_nodes(X, unit_rows(300, 4, 0), scaling)
    assert seen.directions is not None
    assert seen.directions.shape == (700, 256)
    assert seen.own_channels == 700
    assert seen.rows.shape == (300, 256)
    eye = seen.directions.T @ seen.directions
    torch.testing.assert_close(eye, torch.eye(256), atol=1e-4, rtol=0)
    # a typical row has norm sqrt(width), as features have that are read as they are
    assert seen.rows.square().sum(dim=1).mean().item() == pytest.approx(256, rel=1e-4)
    expected = dense_rows(view.features(every(view)), 700) @ seen.directions * seen.scale
    torch.testing.assert_close(seen.rows, expected, atol=1e-4, rtol=1e-4)
    # new nodes alike, dense or sparse
    for form in (X[:9], X[:9].toarray()):
        new = seen.view(form, unit_rows(9, 4, 1))
        torch.testing.assert_close(new.reduced(torch.arange(9)), seen.rows[:9], atol=1e-4, rtol=1e-4)
        assert new.tokens(torch.arange(9), 3).shape == (9, 4, 260)


def test_the_leading_directions_hold_most_of_low_rank_features() -> None:
    rng = np.random.default_rng(0)
    dense = (rng.random((400, 6)) @ rng.random((6, 1100))).astype(np.float32)
    found = leading_directions(dense, Scaling.fit(dense), 0)
    assert found is not None
    source = FeatureSource(dense, Scaling.fit(dense))
    rows = dense_rows(source.rows(torch.arange(400)), 1100).numpy()
    left = rows - rows @ found @ found.T
    assert np.square(left).sum() < 1e-3 * np.square(rows).sum()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_directions_found_by_torch_are_those_of_the_reference(form: Any) -> None:
    rng = np.random.default_rng(0)
    strong = rng.standard_normal((500, 20)) * np.geomspace(30, 3, 20) @ rng.standard_normal((20, 300))
    rows = form((strong + rng.standard_normal((500, 300))).astype(np.float32))
    one, other = (find(rows, 20, 7, CPU) for find in (_directions, _directions_on_device))
    assert one.shape == other.shape == (300, 20)
    np.testing.assert_allclose(other.T @ other, np.eye(20), atol=1e-5)
    # vectors may be turned around; the space that they span may not
    assert np.linalg.svd(one.T @ other, compute_uv=False).min() > 0.999
    before = torch.get_rng_state()
    np.testing.assert_array_equal(_directions_on_device(rows, 20, 7, CPU), other)
    assert torch.equal(torch.get_rng_state(), before)
    assert _directions_on_device(rows[:9], 9, 7, CPU).shape == (300, 9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_finds_the_same_directions() -> None:
    X = counts(400, 700)
    one, other = (leading_directions(X, Scaling.fit(X), 0, torch.device(name)) for name in ("cpu", "cuda"))
    rows = X.toarray() / np.maximum(np.linalg.norm(X.toarray(), axis=1, keepdims=True), 1e-12)
    kept = [np.square(rows @ found).sum() for found in (one, other)]
    assert kept[1] == pytest.approx(kept[0], rel=2e-3)


def test_narrow_features_are_read_as_they_are() -> None:
    X = counts(50, 500)
    seen, view = seen_nodes(X, unit_rows(50, 4, 0), Scaling.fit(X))
    assert seen.directions is None
    assert seen.own_channels == 0
    torch.testing.assert_close(seen.rows, dense_rows(view.features(every(view)), 500))
    assert leading_directions(features(5), PLAIN, 0) is None
    few = counts(40, 700)  # fewer nodes than directions
    found = leading_directions(few, Scaling.fit(few), 0)
    assert found is not None
    assert found.shape == (700, 40)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("with_tokens", [False, True])
def test_saved_and_restored(wide: bool, with_tokens: bool) -> None:
    X: Any = counts(120, 700) if wide else features(120)
    scaling = Scaling.fit(X) if wide else PLAIN
    seen, view = seen_nodes(X, unit_rows(120, 4, 0), scaling)
    if with_tokens:
        view.tokens(torch.arange(3), 5)
    arrays = seen.arrays()
    again = SeenNodes.from_state(seen.config(), arrays, scaling, X.shape[1], CPU)
    assert again.config() == seen.config()
    assert {name: array.tobytes() for name, array in again.arrays().items()} == {
        name: array.tobytes() for name, array in arrays.items()
    }
    queries = unit_rows(10, 4, 5)
    for num_tokens in (2, 5):
        old, new = (s.view(X[:10], queries).tokens(torch.arange(10), num_tokens) for s in (seen, again))
        assert torch.equal(old, new)
    for old, new in zip(*(s.view(X[:10], queries).neighbors(torch.arange(10), 4) for s in (seen, again)), strict=True):
        assert torch.equal(old, new)


def test_parts_that_do_not_fit_are_refused() -> None:
    seen, _ = seen_nodes(features(30), unit_rows(30, 4, 0))
    arrays = seen.arrays()
    for change in ({"rows": arrays["rows"][:-1]}, {"rows": arrays["rows"][:, :2]}):
        with pytest.raises(ValueError, match="rows of the seen nodes have shape"):
            SeenNodes.from_state(seen.config(), arrays | change, PLAIN, 3, CPU)


def test_two_seen_nodes() -> None:
    _, view = seen_nodes(features(2), unit_rows(2, 4, 0))
    assert view.neighbors(every(view), 10)[0].tolist() == [[1], [0]]
    tokens = view.tokens(every(view), 3)
    torch.testing.assert_close(tokens[0, 1:], tokens[1, 0].expand(3, -1))


@pytest.mark.parametrize("own", [True, False])
def test_neighbours_asked_for_once_are_not_looked_for_of_all(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X, u = features(60), unit_rows(60, 4, 0)
    seen, view = seen_nodes(X, u)
    view = view if own else seen.view(features(60, 5), unit_rows(60, 4, 6))
    kept = view.neighbors(torch.tensor([7, 3]), 4)
    monkeypatch.setattr(views, "_MANY", 50)
    fresh = NodeView(view.source, view._coordinates, seen, own=own)
    once = fresh.neighbors(torch.tensor([7, 3]), 4, once=True)
    assert not fresh._near
    for found, expected in zip(once, kept, strict=True):
        torch.testing.assert_close(found, expected)
    fresh.neighbors(torch.arange(60), 4, once=True)  # nearly all: kept
    assert list(fresh._near) == [4]


def test_token_lists_are_kept_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    _, view = seen_nodes(features(20), unit_rows(20, 4, 0))
    monkeypatch.setattr(views, "_CACHED", 20 * 3 * 7 - 1)
    assert not view.keep_tokens(2)
    fresh = view.tokens(torch.tensor([5, 1]), 2)
    monkeypatch.setattr(views, "_CACHED", 20 * 3 * 7)
    assert view.keep_tokens(2)
    assert torch.equal(view.tokens(torch.tensor([5, 1]), 2), fresh)
