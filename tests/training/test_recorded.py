"""Recorded steps of every network on a GPU: the same lessons as ordinary steps, and they are recorded indeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc import SparcClassifier, SparcLinkPredictor, SpectralMap, baselines
from gsparc.datasets import make_blocks
from gsparc.nn.teacher import _SparseProject
from gsparc.training import loop
from gsparc.training._captured import Replayed
from gsparc.training.batches import FeatureSource, Scaling

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
COMMON: dict[str, Any] = {"device": "cuda", "random_state": 0}


@pytest.fixture(scope="module")
def words() -> Any:
    """A graph of 1,500 nodes whose features are few and positive, as those of texts."""
    data = make_blocks(1500, 9000, 48, branching=(4,), random_state=0)
    X = sp.csr_array(np.where(data.X > 0.8, data.X, 0).astype(np.float32))
    return X, data.y, data.graph


def classifier(**settings: Any) -> Callable[[Any, Any, Any], list[dict[str, float]]]:
    def fit(X: Any, y: Any, graph: Any) -> list[dict[str, float]]:
        model = SparcClassifier(**settings, max_steps=60, **COMMON).fit(X, y, graph=graph)
        return [{"loss": 0.0, "score": float((model.predict(X) == y).mean())}]

    return fit


def history(name: str, **settings: Any) -> Callable[[Any, Any, Any], list[dict[str, float]]]:
    def fit(X: Any, y: Any, graph: Any) -> list[dict[str, float]]:
        model = getattr(baselines, name)(**settings, **COMMON)
        model = model.fit(X, graph=graph) if "LLP" in name or "Links" in name else model.fit(X, y, graph=graph)
        return model.head_.history if hasattr(model, "head_") else model.history_

    return fit


def spectral(X: Any, y: Any, graph: Any) -> list[dict[str, float]]:
    return SpectralMap(8, max_steps=100, **COMMON).fit(X, graph=graph).history_


def linked(X: Any, y: Any, graph: Any) -> list[dict[str, float]]:
    model = SparcLinkPredictor(refine_steps=50, **COMMON).fit(X, graph=graph)
    return [{"loss": 0.0, "score": model.report_["mrr_chosen"]}]


LESSONS = {
    "map": spectral,
    "links": linked,
    "gcn": classifier(backbone="gcn"),
    "gcn, summary": classifier(backbone="gcn", gcn_inference="summary"),
    "phormer": classifier(backbone="phormer"),
    "samba": classifier(backbone="samba"),
    "mlp": classifier(backbone="mlp"),
    "cold brew": history("ColdBrewBaseline", max_steps=50),
    "GLNN": history("GLNNBaseline"),
    "SimMLP": history("SimMLPBaseline", max_steps=30),
    "NAGphormer": history("NAGphormerBaseline", max_steps=50),
    "Graph Mamba": history("GraphMambaBaseline", max_steps=50),
    "Spectral-GCN": history("SpectralGCNBaseline", max_steps=50),
    "LLP": history("LLPBaseline", max_steps=50),
    "LLP-MLP": history("LLPMLPBaseline", max_steps=50),
    "GraphSAGE links": history("SAGELinksBaseline", max_steps=50),
}


@needs_cuda
@pytest.mark.parametrize("name", LESSONS)
def test_recorded_steps_teach_what_ordinary_steps_teach(name: str, words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(name, words, monkeypatch)


@needs_cuda
@pytest.mark.parametrize("name", ["cold brew", "GLNN", "LLP", "GraphSAGE links"])
def test_whole_graphs_of_thin_rows_are_recorded_as_sparse_ones(
    name: str, words: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    products, product = [], _SparseProject.forward
    monkeypatch.setattr(_SparseProject, "forward", lambda *given: (products.append(1), product(*given))[1])
    X, y, graph = words
    wide = sp.csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], 20 * X.shape[1]))
    compare(name, (wide, y, graph), monkeypatch)
    assert products


def compare(name: str, words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses and scores of recorded steps are about those of ordinary ones, and steps are recorded at all."""
    replays, replay = [], Replayed.__call__
    monkeypatch.setattr(Replayed, "__call__", lambda step: (replays.append(step._graph is not None), replay(step))[1])
    recorded = LESSONS[name](*words)
    assert sum(replays) > 20
    monkeypatch.setattr(loop, "can_capture", lambda task, device: False)
    ordinary = LESSONS[name](*words)
    assert len(recorded) == len(ordinary)
    for one, other in zip(recorded, ordinary, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.05, abs=0.05)
        assert one.get("score", 0.0) == pytest.approx(other.get("score", 0.0), abs=0.1)


@needs_cuda
def test_filled_rows_are_those_read_one_by_one(words: Any) -> None:
    X = words[0]
    for scaling in (Scaling(True, None, None), Scaling.fit(X.toarray() - 0.5)):
        source = FeatureSource(X, scaling, "cuda")
        index = torch.tensor([3, 1400, 3, 0], device="cuda")
        before = source.rows(index)
        assert not source.resident
        assert source.settle()
        assert source.resident
        torch.testing.assert_close(source.rows(index), before, rtol=0, atol=0)
        assert (source.matrix() != X).nnz == 0
        assert sp.issparse(source.matrix())


def test_nothing_is_filled_on_a_processor(words: Any) -> None:
    source = FeatureSource(words[0], Scaling(True, None, None), "cpu")
    assert not source.settle()
    assert source._filled is None
