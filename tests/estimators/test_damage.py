"""A changed model folder with checksums that fit: an error of ours, never another answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gsparc import SparcClassifier, SparcClusterer, SpectralMap, load_model
from gsparc.datasets import make_blocks
from gsparc.exceptions import DamagedModelError
from gsparc.model_store import read_folder, write_folder

DATA = make_blocks(120, 900, 6, branching=(3,), random_state=0)
MAP = SpectralMap(4, hidden_channels=(8,), max_steps=10, batch_size=64)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auto") / "model"
    small: dict[str, Any] = {"hidden_channels": 8, "num_heads": 2, "max_steps": 5, "random_state": 0, "device": "cpu"}
    model = SparcClassifier(heads=("mlp", "phormer", "vote"), num_tokens=3, spectral_map=MAP, **small)
    model.fit(DATA.X, DATA.y, graph=DATA.graph).save(folder)
    return folder


def no_heads(config: dict, arrays: dict) -> None:
    config["fitted"]["heads"] = {}


def another_kind(config: dict, arrays: dict) -> None:
    config["fitted"]["kind"] = "phormer"


def strange_head(config: dict, arrays: dict) -> None:
    config["fitted"]["mixture"]["weights"]["oracle"] = 0.5


def a_word_as_weight(config: dict, arrays: dict) -> None:
    config["fitted"]["mixture"]["weights"]["mlp"] = "much"


def negative_weight(config: dict, arrays: dict) -> None:
    config["fitted"]["mixture"]["weights"]["mlp"] = -1.0


def zero_temperature(config: dict, arrays: dict) -> None:
    config["fitted"]["mixture"]["temperature"] = 0


def cold_head(config: dict, arrays: dict) -> None:
    config["fitted"]["heads"]["mlp"]["temperature"] = 0


def a_word_as_count(config: dict, arrays: dict) -> None:
    config["fitted"]["vote"]["n_neighbors"] = "many"


def no_tokens(config: dict, arrays: dict) -> None:
    config["fitted"]["heads"]["phormer"]["settings"]["num_tokens"] = -3


def nan_weights(config: dict, arrays: dict) -> None:
    name = next(name for name in arrays if name.startswith("head0.module") and arrays[name].ndim == 2)
    arrays[name] = np.full_like(arrays[name], np.nan)


def strange_labels(config: dict, arrays: dict) -> None:
    arrays["codes"] = arrays["codes"] + 1000


def fewer_rows(config: dict, arrays: dict) -> None:
    arrays["seen.rows"] = arrays["seen.rows"][:-1].copy()


CHANGES = [no_heads, another_kind, strange_head, a_word_as_weight, negative_weight, zero_temperature, cold_head]
CHANGES += [a_word_as_count, no_tokens, nan_weights, strange_labels, fewer_rows]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_folder_is_refused(change: Any, saved: Path, tmp_path: Path) -> None:
    config, arrays = read_folder(saved)
    config, arrays = json.loads(json.dumps(config)), dict(arrays)
    change(config, arrays)
    for key in ("format", "library", "version"):
        config.pop(key, None)
    write_folder(tmp_path / "changed", config, arrays)
    with pytest.raises(DamagedModelError, match="damaged"):
        load_model(tmp_path / "changed")


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clusters") / "model"
    model = SparcClusterer(3, n_components=4, max_steps=5, n_init=1, random_state=0, device="cpu")
    model.fit(DATA.X, graph=DATA.graph).save(folder)
    return folder


def fewer_centers(config: dict, arrays: dict) -> None:
    arrays["centers"] = arrays["centers"][:-1].copy()


def nan_centers(config: dict, arrays: dict) -> None:
    arrays["centers"] = np.full_like(arrays["centers"], np.nan)


def strange_clusters(config: dict, arrays: dict) -> None:
    arrays["labels"] = arrays["labels"] + np.int32(1000)


def no_spread(config: dict, arrays: dict) -> None:
    config["fitted"]["sigma"] = 0.0


def more_clusters(config: dict, arrays: dict) -> None:
    config["parameters"]["n_clusters"] = 5


OF_CLUSTERS = [fewer_centers, nan_centers, strange_clusters, no_spread, more_clusters]


@pytest.mark.parametrize("change", OF_CLUSTERS, ids=lambda change: change.__name__)
def test_changed_clusters_are_refused(change: Any, clusters: Path, tmp_path: Path) -> None:
    config, arrays = read_folder(clusters)
    arrays = dict(arrays)
    change(config, arrays)
    write_folder(tmp_path / "changed", config, arrays)
    with pytest.raises(DamagedModelError, match="damaged"):
        load_model(tmp_path / "changed")


def test_the_same_way_round_an_unchanged_folder_loads(saved: Path, tmp_path: Path) -> None:
    config, arrays = read_folder(saved)
    write_folder(tmp_path / "same", config, dict(arrays))
    same = load_model(tmp_path / "same").predict_proba(DATA.X[:9])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(same, load_model(saved).predict_proba(DATA.X[:9]))  # type: ignore[attr-defined]
