"""GLNN: its targets by hand, and that the edges reach a network that is never shown them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc.baselines import GLNNBaseline, MLPBaseline
from gsparc.datasets import communities_of_blobs
from gsparc.estimators._labels import encode_labels, hold_out_labelled
from gsparc.exceptions import GraphShapeError, InputError, LabelError
from gsparc.training.teach import distilled_targets


def test_targets_by_hand() -> None:
    soft = np.array([[0.8, 0.2], [0.8, 0.2], [0.5, 0.5]], np.float32)
    targets = distilled_targets(soft, np.array([1, -1, 0]))
    np.testing.assert_allclose(targets, [[0.4, 0.6], [0.8, 0.2], [0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(soft[0], [0.8, 0.2])  # the teacher's word is not written over
    np.testing.assert_allclose(distilled_targets(soft, np.array([1, -1, 0]), hard=0), soft)


def test_the_loss_is_that_of_the_paper_by_hand() -> None:
    """Half the cross-entropy with the label, half that with the teacher's word; without a label, the latter."""
    soft, codes = np.array([[0.8, 0.2], [0.8, 0.2], [0.5, 0.5]], np.float32), np.array([1, -1, 0])
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0], [math.log(4), 0.0]])  # p = 1/4 3/4, 1/2 1/2, 4/5 1/5
    targets = torch.from_numpy(distilled_targets(soft, codes))
    label = -math.log(3 / 4), -math.log(4 / 5)
    word = [-0.8 * math.log(1 / 4) - 0.2 * math.log(3 / 4), math.log(2), -0.5 * math.log(4 / 5) - 0.5 * math.log(1 / 5)]
    expected = [0.5 * label[0] + 0.5 * word[0], word[1], 0.5 * label[1] + 0.5 * word[2]]
    found = torch.nn.functional.cross_entropy(logits, targets)  # what a step follows
    assert float(found) == pytest.approx(sum(expected) / 3, rel=1e-5)


DATA = communities_of_blobs(600, num_blobs=30, dim=16, random_state=0)
COLD = np.arange(600) >= 500
SEEN = np.flatnonzero(~COLD)


def visible(per_class: int) -> np.ndarray:
    """Labels of the seen nodes, all but a few of each class hidden."""
    y = np.full(len(SEEN), -1)
    for label in range(4):
        y[np.flatnonzero(DATA.y[SEEN] == label)[:per_class]] = label
    return y


def fitted(y: np.ndarray, **settings) -> GLNNBaseline:
    model = GLNNBaseline(max_steps=100, teacher_steps=40, random_state=0, device="cpu")
    return model.fit(DATA.X[SEEN], y, graph=DATA.graph[SEEN], **settings)


def test_edges_reach_the_student() -> None:
    y = visible(5)
    cold = DATA.X[COLD], DATA.y[COLD]
    model = fitted(y)
    plain = MLPBaseline(max_steps=150, random_state=0, device="cpu").fit(DATA.X[SEEN], y)
    accuracy = (model.predict(cold[0]) == cold[1]).mean()
    assert accuracy > 0.85
    assert accuracy > (plain.predict(cold[0]) == cold[1]).mean() + 0.2
    probabilities = model.predict_proba(cold[0])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(cold[0][:1]), probabilities[:1], atol=1e-5)  # a batch of one


def test_the_same_seed_gives_the_same_bytes() -> None:
    y = visible(5)
    again = [fitted(y).predict_proba(DATA.X[COLD]) for _ in range(2)]
    assert np.array_equal(*again)


def test_nodes_that_judge_are_not_shown() -> None:
    """Without validation a tenth of the labels judges: what they are must not move the teacher."""
    y = visible(20)
    model = fitted(y)
    held = hold_out_labelled(encode_labels(y)[1], np.zeros(0, np.int64), 0)
    assert len(held)
    changed = y.copy()
    changed[held] = np.roll(y[held], 1)
    # the classes keep their counts, so the same nodes are held out
    assert np.array_equal(model.teacher_proba_, fitted(changed).teacher_proba_)


def test_validation_nodes_judge_and_all_labels_train() -> None:
    y = visible(20)
    validation = DATA.X[COLD][:40], DATA.y[COLD][:40]
    model = fitted(y, validation=validation)
    without = fitted(y)
    assert not np.array_equal(model.teacher_proba_, without.teacher_proba_)
    swapped = fitted(y, validation=(validation[0], np.roll(validation[1], 1)))
    assert np.array_equal(model.teacher_proba_, swapped.teacher_proba_)
    assert [entry["score"] for entry in model.head_.history] != [entry["score"] for entry in swapped.head_.history]


def test_strings_and_sparse_features() -> None:
    names = np.array(["a", "b", "c", "d"])[DATA.y[SEEN]]
    model = GLNNBaseline(max_steps=25, teacher_steps=5, random_state=0, device="cpu")
    model.fit(sp.csr_array(DATA.X[SEEN]), names, graph=DATA.graph[SEEN])
    assert set(model.predict(sp.csr_array(DATA.X[COLD]))) <= set("abcd")


def test_bad_input() -> None:
    y = visible(5)
    with pytest.raises(GraphShapeError, match="graph has 600 nodes but X has 500 rows"):
        GLNNBaseline().fit(DATA.X[SEEN], y, graph=DATA.graph)
    with pytest.raises(LabelError, match="every label is -1"):
        GLNNBaseline().fit(DATA.X[SEEN], np.full(500, -1), graph=DATA.graph[SEEN])
    with pytest.raises(LabelError, match="one class only"):
        GLNNBaseline().fit(DATA.X[SEEN], np.where(y == 0, 0, -1), graph=DATA.graph[SEEN])
    with pytest.raises(InputError, match=r"expected a pair \(X, y\)"):
        fitted(y, validation=DATA.X)
