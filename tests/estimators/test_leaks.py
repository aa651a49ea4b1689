"""Nothing of a cold node enters a fitted model: change, permute or delete it and the artefact keeps every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gsparc import Graph, SparcClassifier, SparcClusterer, SparcLinkPredictor, SpectralMap
from gsparc.baselines import (
    FeatureCosineLinks,
    GLNNBaseline,
    LLPBaseline,
    LLPMLPBaseline,
    MLPBaseline,
    SAGELinksBaseline,
    WeighedCosineLinks,
)
from gsparc.baselines._pair_links import PairLinks
from gsparc.datasets import make_blocks
from gsparc.splits import ColdStartSplit

DATA = make_blocks(150, 900, 6, branching=(3,), random_state=0)
FOLD = next(iter(ColdStartSplit("dense", random_state=0).split(DATA.X, DATA.y)))
SEEN = np.sort(np.asarray(FOLD[0]))
COLD = np.setdiff1d(np.arange(150), SEEN)

Full = tuple[np.ndarray, np.ndarray, sp.csr_array]


def as_it_is() -> Full:
    return np.array(DATA.X), np.array(DATA.y), DATA.graph.to_scipy()


def other_edges(adjacency: sp.csr_array, seed: int) -> sp.csr_array:
    """All edges with a cold end are gone, and random ones have come."""
    rng = np.random.default_rng(seed)
    cold = np.isin(np.arange(150), COLD)
    dense = adjacency.toarray()
    dense[cold] = dense[:, cold] = 0
    if seed:
        fresh = np.triu(rng.random((150, 150)) < 0.3, 1) * (cold[:, None] | cold[None, :])
        dense = dense + fresh + fresh.T
    return sp.csr_array(dense)


def changed() -> Full:
    X, y, adjacency = as_it_is()
    X[COLD] = 1000 * np.random.default_rng(1).standard_normal((len(COLD), 6))
    y[COLD] = 7  # a class that no seen node has
    return X, y, adjacency


def permuted() -> Full:
    X, y, adjacency = as_it_is()
    order = np.arange(150)
    order[COLD] = np.random.default_rng(2).permutation(COLD)
    return X[order], y[order], adjacency[order][:, order]


def deleted() -> Full:
    X, y, adjacency = as_it_is()
    X[COLD], y[COLD] = 0, -1
    return X, y, other_edges(adjacency, 0)


def rewired() -> Full:
    X, y, adjacency = as_it_is()
    return X, y, other_edges(adjacency, 3)


def cut(full: Full) -> tuple[np.ndarray, np.ndarray, Graph]:
    X, y, adjacency = full
    return X[SEEN], y[SEEN], Graph.from_scipy(adjacency)[SEEN]


SMALL: dict[str, Any] = {"random_state": 0, "device": "cpu"}
MAP = SpectralMap(4, hidden_channels=(8,), max_steps=60, batch_size=64, **SMALL)


def fit_map(X: np.ndarray, y: np.ndarray, graph: Graph) -> SpectralMap:
    return SpectralMap(**MAP.get_params()).fit(X, graph=graph)


def fit_links(X: np.ndarray, y: np.ndarray, graph: Graph) -> SparcLinkPredictor:
    model = SparcLinkPredictor(
        8, n_maps=2, hidden_channels=(8,), spectral_steps=10, refine_steps=30, batch_size=64, **SMALL
    )
    return model.fit(X, graph=graph)


def fit_clusters(X: np.ndarray, y: np.ndarray, graph: Graph) -> SparcClusterer:
    return SparcClusterer(3, n_components=4, n_neighbors=8, max_steps=20, n_init=2, **SMALL).fit(X, graph=graph)


class Mean(torch.nn.Module):
    """A network of the user's own: a node and the mean of its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.own, self.near = torch.nn.Linear(6, 3), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        source, target = edge_index
        total = torch.zeros_like(x).index_add(0, target, x[source])
        degree = torch.bincount(target, minlength=len(x)).clamp(min=1)
        return self.own(x) + self.near(total / degree[:, None])


BACKBONES: dict[str, dict[str, Any]] = {
    "mlp": {"max_steps": 30},
    "gcn": {"n_neighbors": 5},
    "gcn summary": {"gcn_inference": "summary"},
    "phormer": {"num_tokens": 4, "num_heads": 2},
    "samba": {"num_tokens": 3},
    "module": {"n_neighbors": 4},
    "auto": {"num_tokens": 3, "num_heads": 2, "max_steps": 3},
}


def fit_classifier(
    X: np.ndarray, y: np.ndarray, graph: Graph, *, backbone: str = "mlp", hidden: bool = False
) -> SparcClassifier:
    if hidden:  # most labels: the others come from teachers on the seen graph
        y = np.where(np.arange(len(y)) % 4 == 0, y, -1)
    kind: Any = Mean() if backbone == "module" else backbone.partition(" ")[0]
    settings = {"spectral_map": MAP, "hidden_channels": 8, "max_steps": 6} | BACKBONES[backbone] | SMALL
    return SparcClassifier(kind, **settings).fit(X, y, graph=graph)


def fit_mlp(X: np.ndarray, y: np.ndarray, graph: Graph) -> MLPBaseline:
    return MLPBaseline(max_steps=20, **SMALL).fit(X, y)


def fit_glnn(X: np.ndarray, y: np.ndarray, graph: Graph) -> GLNNBaseline:
    return GLNNBaseline(max_steps=10, teacher_steps=10, **SMALL).fit(X, y, graph=graph)


def fit_cosine(X: np.ndarray, y: np.ndarray, graph: Graph) -> FeatureCosineLinks:
    return FeatureCosineLinks("degree", random_state=0).fit(X, graph=graph)


def fit_weighed_cosine(X: np.ndarray, y: np.ndarray, graph: Graph) -> WeighedCosineLinks:
    return WeighedCosineLinks(**SMALL).fit(X, graph=graph)


def fit_pairs(X: np.ndarray, y: np.ndarray, graph: Graph, *, kind: type[PairLinks]) -> PairLinks:
    taught = {"teacher_steps": 5, "anchors": 8} if kind is LLPBaseline else {}
    return kind(hidden_channels=8, max_steps=10, n_starts=2, **taught, **SMALL).fit(X, graph=graph)


def artefact(model: object, folder: Path) -> str:
    """Digest of all that was fitted."""
    if isinstance(model, (SpectralMap, SparcLinkPredictor, SparcClassifier, SparcClusterer)):
        model.save(folder)
        names = ("weights.safetensors", "config.json")
        return hashlib.sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()
    if isinstance(model, (MLPBaseline, GLNNBaseline)):
        arrays, config = model.head_.arrays(), model.head_.config()
        if isinstance(model, GLNNBaseline):
            arrays["teacher"] = model.teacher_proba_
        arrays |= {"shift": np.asarray(model.scaling_.shift), "factor": np.asarray(model.scaling_.factor)}
    elif isinstance(model, PairLinks):
        nets = enumerate(model.modules_)
        arrays = {f"{i} {name}": value.numpy() for i, net in nets for name, value in net.state_dict().items()}
        config = {"histories": model.histories_, "weights": getattr(model, "scores_", None)}
    else:
        assert isinstance(model, (FeatureCosineLinks, WeighedCosineLinks))
        arrays, config = model.index_.state()
        config = {**config, "weight": model.weight_ if isinstance(model, FeatureCosineLinks) else model.report_}
    parts = [repr(config).encode(), *(name.encode() + arrays[name].tobytes() for name in sorted(arrays))]
    return hashlib.sha256(b"".join(parts)).hexdigest()


METHODS: list[Any] = [fit_map, fit_links, fit_clusters, fit_mlp, fit_glnn, fit_cosine, fit_weighed_cosine]
METHODS += [
    pytest.param(partial(fit_pairs, kind=kind), id=kind.__name__)
    for kind in (LLPMLPBaseline, LLPBaseline, SAGELinksBaseline)
]
METHODS += [pytest.param(partial(fit_classifier, backbone=name), id=name) for name in BACKBONES]
METHODS += [
    pytest.param(partial(fit_classifier, backbone=name, hidden=True), id=f"{name}, taught")
    for name in ("phormer", "module", "auto")
]
CHANGES = [changed, permuted, deleted, rewired]


@pytest.mark.parametrize("fit", METHODS)
def test_cold_nodes_leave_no_trace(fit: Callable, tmp_path: Path) -> None:
    expected = artefact(fit(*cut(as_it_is())), tmp_path / "model")
    for change in CHANGES:
        assert artefact(fit(*cut(change())), tmp_path / "model") == expected, change.__name__


@pytest.mark.parametrize("fit", METHODS)
def test_seen_nodes_do_leave_one(fit: Callable, tmp_path: Path) -> None:
    expected = artefact(fit(*cut(as_it_is())), tmp_path / "model")
    X, y, adjacency = as_it_is()
    X[SEEN[0], 0] += 0.5
    assert artefact(fit(*cut((X, y, adjacency))), tmp_path / "model") != expected


def leak_by_features(full: Full) -> SpectralMap:
    """Scales the features by the deviation over all nodes, the cold ones too: a usual mistake."""
    X, y, graph = cut(full)
    return fit_map(X / np.maximum(full[0].std(axis=0), 1e-9) + full[0].mean(axis=0), y, graph)


def leak_by_degrees(full: Full) -> SparcLinkPredictor:
    """Weighs the seen edges by degrees of the full graph."""
    X, y, graph = cut(full)
    degrees = np.asarray(full[2].sum(axis=1)).ravel()[SEEN]
    weighted = graph.to_scipy().multiply(1 / np.sqrt(1 + degrees)[:, None]).multiply(1 / np.sqrt(1 + degrees)[None])
    return fit_links(X, y, Graph.from_scipy(sp.csr_array(weighted)))


@pytest.mark.parametrize(("leaky", "changes"), [(leak_by_features, [changed, deleted]), (leak_by_degrees, [rewired])])
def test_a_model_that_leaks_is_caught(leaky: Callable, changes: list[Callable], tmp_path: Path) -> None:
    expected = artefact(leaky(as_it_is()), tmp_path / "model")
    assert artefact(leaky(as_it_is()), tmp_path / "model") == expected
    for change in changes:
        assert artefact(leaky(change()), tmp_path / "model") != expected, change.__name__


def test_the_changes_do_change_something() -> None:
    X, y, adjacency = as_it_is()
    for change in CHANGES:
        new_X, new_y, new_adjacency = change()
        assert (new_X != X).any() or (new_y != y).any() or (new_adjacency != adjacency).nnz
        np.testing.assert_array_equal(new_X[SEEN], X[SEEN])
        assert (new_adjacency[SEEN][:, SEEN] != adjacency[SEEN][:, SEEN]).nnz == 0
