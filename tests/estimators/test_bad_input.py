"""Bad input, for every estimator: a clear error of ours, never a crash deep inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.exceptions import NotFittedError

from gsparc import Graph, SparcClassifier, SparcLinkPredictor, SpectralMap, load_model
from gsparc.exceptions import (
    FeatureError,
    GraphError,
    GraphShapeError,
    InputError,
    LabelError,
    UnknownNameError,
)

X = np.random.default_rng(0).standard_normal((30, 4))
Y = np.arange(30) % 3
GRAPH = Graph.from_edges(np.array([np.arange(29), np.arange(1, 30)]), num_nodes=30)
SMALL: dict[str, Any] = {"random_state": 0, "device": "cpu"}


def make(kind: str, **changes: Any) -> Any:
    settings = SMALL | changes
    if kind == "map":
        return SpectralMap(2, hidden_channels=(4,), max_steps=2, batch_size=16, **settings)
    if kind == "links":
        return SparcLinkPredictor(
            2, n_maps=1, hidden_channels=(4,), spectral_steps=2, refine_steps=2, batch_size=16, **settings
        )
    base = SpectralMap(2, hidden_channels=(4,), max_steps=2, batch_size=16)
    small = {"backbone": "mlp", "spectral_map": base, "hidden_channels": 4, "num_heads": 2, "max_steps": 2}
    return SparcClassifier(**small | settings)


def fit(kind: str, X: Any = X, y: Any = Y, graph: Any = GRAPH, **changes: Any) -> Any:
    model = make(kind, **changes)
    return model.fit(X, y, graph=graph) if kind == "classifier" else model.fit(X, graph=graph)


def with_value(value: float) -> np.ndarray:
    out = X.copy()
    out[3, 1] = value
    return out


KINDS = ["map", "links", "classifier"]
every = pytest.mark.parametrize("kind", KINDS)


@every
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, pd.DataFrame])
def test_features_that_are_not_finite(kind: str, form: Any) -> None:
    with pytest.raises(FeatureError, match=r"NaN[\s\S]*SimpleImputer"):
        fit(kind, form(with_value(np.nan)))
    with pytest.raises(FeatureError, match=r"infinity[\s\S]*Replace infinite values"):
        fit(kind, form(with_value(np.inf)))
    with pytest.raises(FeatureError, match=r"infinity|too large"):
        fit(kind, form(with_value(1e300)))  # beyond float32


@every
def test_features_that_are_not_numbers(kind: str) -> None:
    with pytest.raises(FeatureError, match=r"could not convert string.*TfidfVectorizer"):
        fit(kind, np.array([["a", "b"]] * 30))
    with pytest.raises(FeatureError, match=r"promoted[\s\S]*Turn dates and durations into numbers"):
        fit(kind, pd.DataFrame({"day": pd.date_range("2026-01-01", periods=30), "size": X[:, 0]}))
    with pytest.raises(FeatureError, match=r"with a sequence\. Spread lists over columns"):
        fit(kind, pd.DataFrame({"vector": X.tolist()}))
    with pytest.raises(FeatureError, match=r"1D array|Reshape"):
        fit(kind, X[:, 0])
    with pytest.raises(FeatureError, match="0 feature"):
        fit(kind, X[:, :0])


@every
def test_graph_and_features_of_different_sizes(kind: str) -> None:
    with pytest.raises(GraphShapeError, match="graph has 30 nodes but X has 20 rows"):
        fit(kind, X[:20], Y[:20])
    with pytest.raises(GraphError, match="20"):
        fit(kind, graph=GRAPH.to_scipy()[:20])


@every
def test_edges_that_name_no_node(kind: str) -> None:
    with pytest.raises(GraphError, match="30"):
        fit(kind, graph=np.array([[0, 1], [1, 2], [2, 30]]))
    with pytest.raises(GraphError, match=r"-1|negative"):
        fit(kind, graph=np.array([[0, 1], [1, 2], [2, -1]]))
    with pytest.raises(GraphError, match="no edges, so there is no structure to learn"):
        fit(kind, graph=Graph.empty(30))


@every
def test_too_few_nodes(kind: str) -> None:
    for n in (1, 2):
        with pytest.raises(InputError, match=rf"n_samples = {n}|{n} node|at least 3|one class only|minimum"):
            fit(kind, X[:n], Y[:n], graph=None)
    assert np.isfinite(_answer(kind, fit(kind, X[:3], Y[:3], graph=[[0, 1], [1, 2]]), X[:3])).all()


def _answer(kind: str, model: Any, rows: Any) -> np.ndarray:
    return getattr(model, {"map": "transform", "links": "score_all", "classifier": "predict_proba"}[kind])(rows)


@every
def test_new_rows_of_another_width_and_no_fit(kind: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        _answer(kind, make(kind), X)
    with pytest.raises(NotFittedError, match="not fitted"):
        make(kind).save("never")
    model = fit(kind)
    with pytest.raises(FeatureError, match=r"X has 3 features, but .* is expecting 4.*same columns"):
        _answer(kind, model, X[:, :3])
    with pytest.raises(FeatureError, match="NaN"):
        _answer(kind, model, with_value(np.nan))


@every
@pytest.mark.parametrize("state", [-1, 1.5, "seed", True])
def test_seeds(kind: str, state: Any) -> None:
    with pytest.raises(InputError, match=r"random_state=.*pass an integer"):
        fit(kind, random_state=state)


@every
@pytest.mark.parametrize("device", ["toaster", "cuda:99", None, 2.5])
def test_devices(kind: str, device: Any) -> None:
    with pytest.raises(InputError, match=r"device=.*'cpu'|CUDA"):
        fit(kind, device=device)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"laplacian": "symm"}, "unknown laplacian 'symm'. Did you mean 'sym'"),
        ({"objective": "Contrastive"}, "unknown objective 'Contrastive'. Did you mean 'contrastive'"),
        ({"objective": "zzz"}, "unknown objective 'zzz'. Known: contrastive, rayleigh"),
        ({"components": "larg"}, "Did you mean 'large'"),
    ],
)
def test_names_of_the_map(changes: dict[str, str], words: str) -> None:
    with pytest.raises(UnknownNameError, match=words):
        fit("map", **changes)


def test_the_name_of_the_backbone() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown backbone 'mpl'. Did you mean 'mlp'"):
        fit("classifier", backbone="mpl")


@pytest.mark.parametrize(
    "changes",
    [
        {"k_power": 0},
        {"n_neighbors": 1.5},
        {"patience": True},
        {"alpha": 1.5},
        {"tau": -1},
        {"tau": float("nan")},
        {"validation_share": 0.9},
        {"dropout": 1.0},
        {"input_dropout": "some"},
        {"diffusion_time": -1},
    ],
    ids=str,
)
def test_numbers_of_the_map(changes: dict[str, Any]) -> None:
    (name, value) = next(iter(changes.items()))
    with pytest.raises(InputError, match=f"{name}={value!r} came, expected a"):
        fit("map", **changes)


def test_widths_and_counts_of_the_map() -> None:
    for bad in (0, -3, 2.0, "8", None):
        with pytest.raises(InputError, match="n_components="):
            SpectralMap(bad, **SMALL).fit(X, graph=GRAPH)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="hidden_channels=0"):
        SpectralMap(2, hidden_channels=(4, 0), **SMALL).fit(X, graph=GRAPH)
    with pytest.raises(InputError, match="hidden_channels=64 came"):
        SpectralMap(2, hidden_channels=64, **SMALL).fit(X, graph=GRAPH)  # type: ignore[arg-type]
    for bad in (0.0, -1e-3, "fast", float("nan")):
        with pytest.raises(InputError, match="learning_rate="):
            SpectralMap(2, learning_rate=bad, **SMALL).fit(X, graph=GRAPH)  # type: ignore[arg-type]


def test_labels() -> None:
    with pytest.raises(LabelError, match=r"one class only .*needs at least two"):
        fit("classifier", y=np.zeros(30, int))
    with pytest.raises(LabelError, match="one class only"):
        fit("classifier", y=np.where(np.arange(30) < 5, 4, -1))
    with pytest.raises(LabelError, match="every label is -1"):
        fit("classifier", y=np.full(30, -1))
    with pytest.raises(LabelError, match="y has 29 labels but X has 30 rows"):
        fit("classifier", y=Y[:29])
    with pytest.raises(LabelError, match=r"1d array, got an array of shape \(30, 3\).*argmax"):
        fit("classifier", y=np.eye(3, dtype=int)[Y])
    with pytest.raises(LabelError, match="target y is None"):
        fit("classifier", y=None)
    with pytest.raises(LabelError, match=r"NaN or infinity.*integer -1"):
        fit("classifier", y=np.where(np.arange(30) < 3, np.nan, Y))
    with pytest.raises(ValueError, match="Unknown label type"):
        fit("classifier", y=np.linspace(0, 1, 30))  # a regression target
    single = np.zeros(30, int)
    single[4] = 1
    assert fit("classifier", y=single).predict_proba(X).shape == (30, 2)


BACKBONES = ["auto", "gcn", "phormer", "samba", "mlp", "module"]
of_each_backbone = pytest.mark.parametrize("backbone", BACKBONES)


class Linear(torch.nn.Module):
    """The least network that can be wrapped."""

    def __init__(self, in_channels: int = 4, out_channels: int = 3) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(in_channels, out_channels)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def chosen(backbone: str, out_channels: int = 3) -> Any:
    return Linear(out_channels=out_channels) if backbone == "module" else backbone


@of_each_backbone
def test_labels_of_every_backbone(backbone: str) -> None:
    for labels, words in (
        (np.zeros(30, int), "one class only"),
        (np.full(30, "a"), "one class only"),
        (np.full(30, -1), "every label is -1"),
        (np.where(np.arange(30) < 4, 3, -1), "one class only"),
    ):
        with pytest.raises(LabelError, match=words):
            fit("classifier", y=labels, backbone=chosen(backbone))
    single = np.zeros(30, int)
    single[4] = 1
    assert fit("classifier", y=single, backbone=chosen(backbone, 2)).predict_proba(X).shape == (30, 2)


@of_each_backbone
def test_features_of_every_backbone(backbone: str) -> None:
    with pytest.raises(FeatureError, match="NaN"):
        fit("classifier", with_value(np.nan), backbone=chosen(backbone))
    model = fit("classifier", backbone=chosen(backbone))
    for rows, words in (
        (X[:, :3], "X has 3 features, but SparcClassifier is expecting 4"),
        (X[:0], r"0 sample\(s\)"),
        (with_value(np.nan), "NaN"),
        (with_value(np.inf), "infinity"),
        (X[0], "1D array"),
        (X.astype(complex), "Complex data not supported"),
        (np.full((2, 4), "word"), "could not convert string"),
    ):
        with pytest.raises(FeatureError, match=words):
            model.predict(rows)
    far = model.predict_proba(1e30 * X)  # far from everything, and finite
    assert np.isfinite(far).all()


@of_each_backbone
def test_rows_that_are_all_zero_have_an_answer(backbone: str) -> None:
    counts = sp.csr_array((np.random.default_rng(0).random((30, 4)) < 0.4).astype(float))
    model = fit("classifier", counts, backbone=chosen(backbone))
    for nothing in (np.zeros((2, 4)), sp.csr_array((2, 4))):
        assert np.isfinite(model.predict_proba(nothing)).all()
        assert np.isfinite(model.evidence(nothing, 3).weights).all()


NOT_A_CLASSIFIER = [
    ({"backbone": "gnc"}, "unknown backbone 'gnc'. Did you mean 'gcn'"),
    ({"backbone": None}, "unknown backbone None"),
    ({"backbone": Linear}, "unknown backbone"),
    ({"gcn_inference": "sums"}, "unknown gcn_inference 'sums'"),
    ({"heads": ["gcm"]}, "unknown head 'gcm'. Did you mean 'gcn'"),
    ({"heads": []}, "heads=\\[\\] came"),
    ({"heads": "gcn"}, "heads='gcn' came"),
    ({"distill": "yes"}, "distill='yes' came, expected True, False or 'auto'"),
    ({"distill": None}, "distill=None came"),
    ({"spectral_map": "small"}, "spectral_map='small' came"),
    ({"hidden_channels": 0}, "hidden_channels=0 came"),
    ({"hidden_channels": (8, -1)}, "hidden_channels=-1 came"),
    ({"hidden_channels": ()}, "hidden_channels"),
    ({"hidden_channels": "wide"}, "hidden_channels='wide' came"),
    ({"num_layers": 0}, "num_layers=0 came"),
    ({"num_tokens": 0}, "num_tokens=0 came"),
    ({"num_tokens": 31}, "num_tokens=31 came"),
    ({"num_tokens": 2.0}, "num_tokens=2.0 came"),
    ({"n_neighbors": 0}, "n_neighbors=0 came"),
    ({"batch_size": 0}, "batch_size=0 came"),
    ({"max_steps": 0}, "max_steps=0 came"),
    ({"patience": 0}, "patience=0 came"),
    ({"dropout": 1.0}, "dropout=1.0 came"),
    ({"input_dropout": "much"}, "input_dropout='much' came"),
    ({"learning_rate": 0.0}, "learning_rate=0.0 came"),
    ({"weight_decay": -1}, "weight_decay=-1 came"),
    ({"backbone": "phormer", "hidden_channels": 10, "num_heads": 4}, "num_heads=4 came.*hidden_channels=10"),
    ({"backbone": "auto", "hidden_channels": 10, "num_heads": 4}, "num_heads=4 came.*hidden_channels=10"),
    ({"backbone": Linear(4, 5)}, "the module gives 5 columns but y has 3 classes. Build it with out_channels=3"),
    ({"backbone": Linear(7, 3)}, "the features have 4 columns but the module takes 7. Build it with in_channels=4"),
    ({"backbone": torch.nn.Linear(4, 3)}, r"It is called as module\(x, edge_index\)"),
]


@pytest.mark.parametrize(("changes", "words"), NOT_A_CLASSIFIER, ids=[str(n) for n in range(len(NOT_A_CLASSIFIER))])
def test_settings_of_the_classifier(changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=words):
        fit("classifier", **changes)

    def too_late(*_: Any) -> None:
        raise AssertionError("the map, which takes the time, is trained before the settings are looked at")

    monkeypatch.setattr(SparcClassifier, "_fit_map", too_late)
    with pytest.raises(InputError, match=words):
        fit("classifier", **changes)


def test_networks_with_nothing_to_train() -> None:
    class Bare(torch.nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return x[:, :3]

    for module in (Bare(), Linear().requires_grad_(False)):
        with pytest.raises(InputError, match=r"no parameters|nothing to train|requires_grad"):
            fit("classifier", backbone=module)


@pytest.mark.parametrize("labels", [["a", None, "b"] * 10, ["a", 1, "b"] * 10], ids=["None", "numbers and words"])
def test_labels_that_cannot_be_ordered(labels: list[Any]) -> None:
    with pytest.raises(LabelError, match=r"label|y "):
        fit("classifier", y=np.array(labels, dtype=object))


@pytest.mark.parametrize("missing", [None, np.nan, -1, pd.NA], ids=str)
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("form", [list, lambda y: np.array(y, dtype=object), lambda y: pd.Series(y, dtype=object)])
def test_unlabelled_among_strings_is_told_how_to_be_marked(missing: Any, first: bool, form: Any) -> None:
    labels = [missing, "a", "b"] * 10 if first else ["a", "b", missing] * 10
    with pytest.raises(LabelError, match=r"y holds labels of the types .*str.*pass -1 for them.*factorize"):
        fit("classifier", y=form(labels))


def test_numbers_in_an_object_array_are_numbers() -> None:
    labels = np.array([0, -1, 2] * 10, dtype=object)
    model = fit("classifier", y=labels)
    assert model.classes_.tolist() == [0, 2]
    assert model.classes_.dtype == np.int64
    assert fit("classifier", y=pd.Series([True, False, True] * 10, dtype=object)).classes_.tolist() == [False, True]
    with pytest.raises(LabelError, match="NaN or infinity"):
        fit("classifier", y=np.array([0, np.nan, 2] * 10, dtype=object))
    with pytest.raises(LabelError, match=r"types NoneType, int.*pass -1"):
        fit("classifier", y=[0, None, 2] * 10)


def test_strings_of_any_length_are_strings(tmp_path: Path) -> None:
    names = np.array(["a", "b", "c"])[Y].astype(np.dtypes.StringDType())
    model = fit("classifier", y=names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))


@of_each_backbone
def test_settings_as_numpy_numbers_are_as_good(backbone: str, tmp_path: Path) -> None:
    """As GridSearchCV over np.arange gives them: fitted, and saved."""
    whole = {"hidden_channels": 4, "num_tokens": 2, "num_heads": 2, "num_layers": 2, "n_neighbors": 3}
    whole |= {"batch_size": 8, "max_steps": 2, "patience": 3}
    numbers = {name: np.int64(value) for name, value in whole.items()}
    numbers |= {"dropout": np.float32(0.25), "learning_rate": np.float32(0.125), "weight_decay": np.float32(0.5)}
    plain = {name: value.item() for name, value in numbers.items()}
    models = []
    for settings in (plain, numbers):
        torch.manual_seed(0)
        models.append(fit("classifier", backbone=chosen(backbone), **settings))
    models[1].save(tmp_path)
    loaded: Any = load_model(tmp_path, **({"backbone": Linear()} if backbone == "module" else {}))
    expected = models[0].predict_proba(X).tobytes()
    assert models[1].predict_proba(X).tobytes() == expected
    assert loaded.predict_proba(X).tobytes() == expected


def test_networks_that_do_not_answer_with_a_row_a_node() -> None:
    class Whole(Linear):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            return self.linear(x).mean(dim=0)

    class Pair(Linear):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> Any:
            return self.linear(x), edge_index

    with pytest.raises(InputError, match=r"shape \(3,\) for 3 nodes, expected one row a node"):
        fit("classifier", backbone=Whole())
    with pytest.raises(InputError, match="returned tuple, expected a tensor"):
        fit("classifier", backbone=Pair())


def test_how_many_neighbours() -> None:
    for kind, call in (("links", "predict_links"), ("classifier", "nearest")):
        model = fit(kind)
        for bad in (0, -1, 2.5, "3"):
            with pytest.raises(InputError, match=f"k={bad!r} came, expected a whole number >= 1"):
                getattr(model, call)(X, k=bad)


def test_extreme_but_finite_features_are_survived() -> None:
    wild = X.copy()
    wild[:, 0] *= 1e30
    wild[:, 1] *= 1e-30
    model = fit("map", wild)
    assert np.isfinite(model.transform(wild)).all()


def test_labels_that_are_ids_are_warned_of_in_our_words() -> None:
    from gsparc.estimators._labels import encode_labels, many_classes_known

    with pytest.warns(UserWarning, match="30 of them for 30 labelled nodes. If y holds measurements or ids"):
        classes, _ = encode_labels(np.arange(30))
    assert len(classes) == 30
    with many_classes_known():
        encode_labels(np.arange(30))  # a warning would be an error here
