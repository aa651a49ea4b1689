"""Manifolds: points, graphs and the closed-form eigenfunctions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import diags_array
from scipy.sparse.linalg import eigsh

from gsparc.datasets import make_circle, make_swiss_roll, make_torus, true_eigenfunctions, true_eigenvalues
from gsparc.exceptions import InputError, UnknownNameError

MAKERS = {"circle": make_circle, "torus": make_torus, "swiss_roll": make_swiss_roll}


def grid(name, side=64):
    """Midpoints that integrate the first eigenfunctions exactly."""
    sides = {"circle": [2 * np.pi], "torus": [2 * np.pi] * 2}.get(name)
    if sides is None:
        values = true_eigenvalues(name, 8)
        length = math.pi / math.sqrt(values[0])
        sides = [length, length / math.sqrt(5.6)]
    axes = [(np.arange(side) + 0.5) / side * s for s in sides]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(sides))


@pytest.mark.parametrize("name", MAKERS)
def test_eigenfunctions_are_orthonormal_and_centred(name):
    values = true_eigenfunctions(name, grid(name), k=8)
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(values.T @ values / len(values), np.eye(8), atol=1e-12)


@pytest.mark.parametrize("name", MAKERS)
def test_sampling_is_uniform(name):
    data = MAKERS[name](20_000, n_neighbors=1, noise_features=0, random_state=0)
    values = true_eigenfunctions(data, k=8)
    # a mean of 20,000 draws with variance at most 4 stays within 5 standard errors
    np.testing.assert_allclose(values.mean(axis=0), 0, atol=5 * 2 / math.sqrt(20_000))
    np.testing.assert_allclose(values.T @ values / len(values), np.eye(8), atol=5 * 4 / math.sqrt(20_000))


@pytest.mark.parametrize("name", MAKERS)
def test_eigenfunctions_solve_the_equation(name):
    points = grid(name, 9)
    step = 1e-4
    laplacian = 0
    for axis in range(points.shape[1]):
        move = np.eye(points.shape[1])[axis] * step
        around = [true_eigenfunctions(name, points + shift, k=8) for shift in (move, -move, 0 * move)]
        laplacian += (around[0] + around[1] - 2 * around[2]) / step**2
    here = true_eigenfunctions(name, points, k=8)
    np.testing.assert_allclose(-laplacian, here * true_eigenvalues(name, 8), atol=1e-5)


def test_eigenvalues_by_hand():
    assert true_eigenvalues("circle", 6).round(9).tolist() == [1, 1, 4, 4, 9, 9]
    assert true_eigenvalues("torus", 12).round(9).tolist() == [1] * 4 + [2] * 4 + [4] * 4
    roll = true_eigenvalues("swiss-roll", 9)
    # a^2 + 5.6 b^2 for (1,0) (2,0) (0,1) (1,1) (3,0) (2,1) (3,1) (4,0), then (4,1)
    np.testing.assert_allclose(roll / roll[0], [1, 4, 5.6, 6.6, 9, 9.6, 14.6, 16, 21.6])


def test_roll_offers_all_functions_below_a_bound():
    values = true_eigenvalues("swiss_roll", 200)
    values = values / values[0]
    everything = sorted(a * a + 5.6 * b * b for a in range(60) for b in range(60))[1:201]
    np.testing.assert_allclose(values, everything)


def test_circle_by_hand():
    at = np.array([[0.0], [np.pi / 2], [np.pi]])
    root = math.sqrt(2)
    expected = [[root, 0, root, 0], [0, root, -root, 0], [-root, 0, root, 0]]
    np.testing.assert_allclose(true_eigenfunctions("circle", at, k=4), expected, atol=1e-12)


def test_points_lie_on_the_manifold():
    circle = make_circle(50, n_neighbors=3, noise_features=0, random_state=1)
    np.testing.assert_allclose(np.linalg.norm(circle.X, axis=1), 1, rtol=1e-6)
    torus = make_torus(50, n_neighbors=3, noise_features=0, random_state=1)
    np.testing.assert_allclose(np.linalg.norm(torus.X[:, 2:], axis=1), 1, rtol=1e-6)


def test_roll_is_isometric_and_has_no_short_cuts():
    data = make_swiss_roll(5000, random_state=0)
    rows = np.repeat(np.arange(5000), np.diff(data.graph.indptr))
    apart = np.linalg.norm(data.coordinates[rows] - data.coordinates[data.graph.indices], axis=1)
    straight = np.linalg.norm(data.X[rows, :3] - data.X[data.graph.indices, :3], axis=1)
    assert (straight <= apart + 1e-5).all()
    assert (apart / straight).max() < 1.15  # a jump to the next layer would be 7 or more
    assert straight.max() < 0.9 * 2 * np.pi / 5.5  # the layers are 2 pi / 5.5 apart


@pytest.mark.parametrize(("name", "most"), [("circle", 0.1), ("torus", 0.2), ("swiss_roll", 0.2)])
def test_graph_eigenvectors_go_to_the_truth(name, most):
    # over eight seeds: circle 0.03-0.06, torus 0.09-0.11, roll 0.07-0.12; functions of a wrong frequency: 0.7
    data = MAKERS[name](1500, n_neighbors=40, noise_features=0, random_state=0)
    adjacency = data.graph.to_scipy().astype(np.float64)
    scale = diags_array(data.graph.degrees() ** -0.5)
    values, vectors = eigsh(scale @ adjacency @ scale, k=5, which="LA", v0=np.ones(1500))
    mine = np.linalg.qr((scale @ vectors)[:, np.argsort(-values)[1:]])[0]
    true = np.linalg.qr(true_eigenfunctions(data, k=4))[0]
    cosines = np.linalg.svd(mine.T @ true, compute_uv=False)
    assert math.sqrt(np.mean(1 - np.minimum(cosines, 1) ** 2)) < most


def test_circle_eigenvalues_grow_as_squares():
    data = make_circle(1500, n_neighbors=40, noise_features=0, random_state=0)
    scale = diags_array(data.graph.degrees() ** -0.5)
    values = eigsh(scale @ data.graph.to_scipy().astype(np.float64) @ scale, k=7, which="LA", v0=np.ones(1500))[0]
    rates = np.sort(1 - values)[1:]
    np.testing.assert_allclose(rates / rates[:2].mean(), [1, 1, 4, 4, 9, 9], rtol=0.1)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), name=st.sampled_from(sorted(MAKERS)))
def test_a_seed_gives_the_same_bytes(seed, name):
    one, two = (MAKERS[name](60, n_neighbors=4, noise_features=2, random_state=seed) for _ in range(2))
    assert one.X.tobytes() == two.X.tobytes()
    assert one.graph == two.graph
    assert one.X.tobytes() != MAKERS[name](60, n_neighbors=4, noise_features=2, random_state=seed + 1).X.tobytes()
    assert np.diff(one.graph.indptr).min() >= 4


def test_unseen_points_and_noise():
    data = make_circle(300, n_neighbors=5, noise_features=3, noise=2.0, n_unseen=700, random_state=0)
    assert data.X.shape == (300, 5)
    assert data.graph.num_nodes == 300
    unseen = data.extra["X_unseen"]
    assert unseen.shape == (700, 5)
    angle = data.extra["coordinates_unseen"][:, 0]
    np.testing.assert_allclose(unseen[:, 0], np.cos(angle), atol=1e-6)
    np.testing.assert_allclose(unseen[:, 2:].std(axis=0), 2.0, rtol=0.1)
    assert true_eigenfunctions(data, data.extra["coordinates_unseen"], 4).shape == (700, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_samples": 1}, "at least 2 points"),
        ({"n_samples": 5, "n_neighbors": 5}, "fewer than n_samples"),
        ({"n_samples": 5, "n_neighbors": 0}, "at least 1"),
        ({"n_samples": 5, "n_neighbors": 2, "noise": -1.0}, "must not be negative"),
        ({"n_samples": 5, "n_neighbors": 2, "random_state": -1}, "random_state"),
    ],
)
def test_bad_settings(options, words):
    with pytest.raises(InputError, match=words):
        make_torus(**options)


def test_bad_questions():
    with pytest.raises(UnknownNameError, match="Did you mean 'torus'"):
        true_eigenvalues("tours", 3)
    with pytest.raises(InputError, match=r"\(n, 2\) was expected"):
        true_eigenfunctions("torus", np.zeros((3, 1)))
    with pytest.raises(InputError, match="at least one"):
        true_eigenfunctions("circle", np.zeros((3, 1)), k=0)
