"""Cold Brew: its attention and its teacher by hand, and that the teacher's edges reach new nodes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from gsparc import Graph
from gsparc.baselines import ColdBrewBaseline, MLPBaseline
from gsparc.baselines.cold_brew import StructuralTeacher, latent_neighbours
from gsparc.datasets import communities_of_blobs
from gsparc.exceptions import FeatureError, GraphError, GraphShapeError, InputError, LabelError
from gsparc.nn.teacher import FixedRows
from gsparc.ops.neighbors import NeighborIndex
from gsparc.ops.propagate import Propagation
from gsparc.training.batches import FeatureSource

CPU = torch.device("cpu")
MEMORY = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [1.2, 1.6]])  # all of length 2


def test_attention_over_the_best_two_by_hand() -> None:
    guess = torch.tensor([[1.0, 0.5]])
    # inner products 2, 1, -2, 2: rows 0 and 3 are the best, equally good
    found = latent_neighbours(guess, MEMORY, torch.tensor([[0, 3]]))
    np.testing.assert_allclose(found, [[1.6, 0.8]], rtol=1e-6)
    # rows 0 and 1: softmax of 2 and 1 over sqrt(2)
    share = 1 / (1 + np.exp(-1 / 2**0.5))
    np.testing.assert_allclose(
        latent_neighbours(guess, MEMORY, torch.tensor([[0, 1]])), [[2 * share, 2 - 2 * share]], rtol=1e-6
    )


def model_with_memory(n_neighbors: int) -> ColdBrewBaseline:
    model = ColdBrewBaseline(n_neighbors=n_neighbors)
    model.memory_, model.index_ = MEMORY, NeighborIndex.build(MEMORY, metric="cosine")
    return model


def test_the_index_finds_the_largest_inner_products() -> None:
    guess = torch.tensor([[1.0, 0.5], [-3.0, 0.1]])
    found = model_with_memory(2)._neighbourhood(guess, None)
    by_hand = latent_neighbours(guess, MEMORY, torch.tensor([[0, 3], [2, 1]]))
    np.testing.assert_allclose(found, by_hand, rtol=1e-5)


def test_a_seen_node_is_not_its_own_neighbour() -> None:
    found = model_with_memory(1)._neighbourhood(MEMORY[[0, 2]], torch.tensor([0, 2]))
    np.testing.assert_allclose(found, MEMORY[[3, 1]], rtol=1e-6)
    # a guess far from one's own embedding: that one is not among the found, the farthest of them is dropped
    lost = model_with_memory(1)._neighbourhood(-MEMORY[[0]], torch.tensor([0]))
    np.testing.assert_allclose(lost, MEMORY[[2]], rtol=1e-6)


def test_seen_nodes_have_the_neighbourhoods_of_training() -> None:
    data = communities_of_blobs(120, num_blobs=60, dim=8, degree=8, within=0.95, random_state=0)
    model = ColdBrewBaseline(n_neighbors=2, channels=8, max_steps=5, teacher_steps=5, random_state=0, device="cpu")
    model.fit(data.X, data.y, graph=data.graph)
    (held,) = np.nonzero(model._places < 0)
    assert len(held) == 12  # they judge, and are not in the memory
    kept = np.setdiff1d(np.arange(120), held)
    view = model._view(FeatureSource(data.X[kept], model.scaling_, CPU), torch.arange(108))
    assert np.array_equal(model.predict_seen(data.X)[kept], model.head_.logits(view).argmax(axis=1))
    assert np.array_equal(model.predict_seen(data.X[held], held), model.predict(data.X[held]))
    new = model._view(FeatureSource(data.X[kept], model.scaling_, CPU))
    assert not torch.allclose(*(one.coordinates(torch.arange(108)) for one in (view, new)))
    with pytest.raises(InputError, match=r"ids of shape \(1,\) came for 2 rows"):
        model.predict_seen(data.X[:2], [0])


def test_a_layer_of_the_teacher_by_hand() -> None:
    edge = Propagation(Graph.from_edges([[0], [1]], num_nodes=3), "sym")
    teacher = StructuralTeacher(FixedRows(torch.eye(3), 3), edge, 2, channels=2).eval()
    with torch.no_grad():
        teacher.input.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
        teacher.structure[0].copy_(torch.tensor([[0.0, 0.0], [0.0, 3.0], [0.0, 5.0]]))
        teacher.hidden.weight.copy_(torch.eye(2))
        teacher.hidden.bias.zero_()
        z = teacher.embed()
    # X W + E: (1, 0), (0, 3), (0, 5). The ends of the edge share their mean (.5, 1.5), node 2 keeps its own:
    # of two channels LayerNorm leaves (-1, 1) everywhere, relu (0, 1), and the second layer again (-1, 1)
    np.testing.assert_allclose(z, [[-1, 1]] * 3, atol=1e-4)
    with torch.no_grad():
        teacher.structure[1, 0] = torch.tensor([4.0, 0.0])  # reaches node 1 along the edge, and not node 2
        z = teacher.embed()
    np.testing.assert_allclose(z, [[1, -1], [1, -1], [-1, 1]], atol=1e-4)
    # squared lengths of both layers' embeddings: 16, 9 and 25
    assert teacher.penalty().item() == pytest.approx(50 / 3)


DATA = communities_of_blobs(600, num_blobs=30, dim=16, random_state=0)
COLD = np.arange(600) >= 500
SEEN = np.flatnonzero(~COLD)
MODEL = ColdBrewBaseline(channels=32, max_steps=100, teacher_steps=40, random_state=0, device="cpu")


def visible(per_class: int) -> np.ndarray:
    """Labels of the seen nodes, all but a few of each class hidden."""
    y = np.full(len(SEEN), -1)
    for label in range(4):
        y[np.flatnonzero(DATA.y[SEEN] == label)[:per_class]] = label
    return y


def fitted(y: np.ndarray, *, validation=None, **changes) -> ColdBrewBaseline:
    model = clone(MODEL).set_params(**changes)
    return model.fit(DATA.X[SEEN], y, graph=DATA.graph[SEEN], validation=validation)


@pytest.mark.parametrize("distil", [0.5, 0.0], ids=["soft labels", "labels only"])
def test_edges_reach_the_student(distil: float) -> None:
    y = visible(5)
    model = fitted(y, distil=distil)
    plain = MLPBaseline(max_steps=100, random_state=0, device="cpu").fit(DATA.X[SEEN], y)
    accuracy = (model.predict(DATA.X[COLD]) == DATA.y[COLD]).mean()
    assert accuracy > (plain.predict(DATA.X[COLD]) == DATA.y[COLD]).mean() + 0.1
    probabilities = model.predict_proba(DATA.X[COLD])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(DATA.X[COLD][:1]), probabilities[:1], atol=1e-5)  # a batch of one


def test_the_same_seed_gives_the_same_bytes() -> None:
    short = {"max_steps": 5, "teacher_steps": 5}
    first, again, other = (fitted(visible(20), random_state=s, **short).predict_proba(DATA.X) for s in (0, 0, 1))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


def test_validation_nodes_judge_and_teach_nobody() -> None:
    judges = DATA.X[COLD][:40], DATA.y[COLD][:40]
    short = {"max_steps": 25, "teacher_steps": 5}
    model = fitted(visible(20), validation=judges, **short)
    swapped = fitted(visible(20), validation=(judges[0], np.roll(judges[1], 1)), **short)
    assert torch.equal(model.memory_, swapped.memory_)
    assert model.history_[0]["score"] != swapped.history_[0]["score"]
    assert len(model.memory_) == 500
    assert len(fitted(visible(20), **short).memory_) == 492  # a tenth of the 80 labelled nodes judges, unseen


def test_fewer_nodes_than_neighbours_and_sparse_features() -> None:
    X = sp.csr_array(np.eye(6, dtype=np.float32))
    path = Graph.from_edges([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    model = clone(MODEL).set_params(max_steps=5, teacher_steps=5, n_neighbors=50).fit(X, list("aaabbb"), graph=path)
    assert set(model.predict(X)) <= set("ab")


def test_bad_input() -> None:
    y = visible(5)
    with pytest.raises(NotFittedError):
        clone(MODEL).predict(DATA.X)
    with pytest.raises(GraphShapeError, match="graph has 600 nodes but X has 500 rows"):
        clone(MODEL).fit(DATA.X[SEEN], y, graph=DATA.graph)
    with pytest.raises(GraphError, match="no edges"):
        clone(MODEL).fit(DATA.X[SEEN], y, graph=Graph.empty(500))
    with pytest.raises(LabelError, match="one class only"):
        fitted(np.where(y == 0, 0, -1))
    with pytest.raises(InputError, match="n_neighbors=0 came"):
        fitted(y, n_neighbors=0)
    with pytest.raises(InputError, match="distil=2 came, expected a number from 0 to 1"):
        fitted(y, distil=2)
    with pytest.raises(FeatureError, match="NaN"):
        clone(MODEL).fit(np.full((500, 2), np.nan), y, graph=DATA.graph[SEEN])
