"""All recipes: complete, equal to the paper's tables, and made of parameters that exist."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import gsparc.recipes
from gsparc import SparcClassifier, SpectralMap
from gsparc.datasets import list_datasets
from gsparc.exceptions import InputError
from gsparc.recipes import Recipe, Setting, list_recipes, load_recipe
from gsparc.recipes.recipe import SOURCES

DATASETS = ("cora", "citeseer", "pubmed", "reddit")
BACKBONES = ("gcn", "phormer", "samba")
NAMES = sorted(f"{backbone}/{dataset}" for backbone in BACKBONES for dataset in DATASETS)
EMBEDDINGS, GCN = "Hyperparameters for SPARC-Embeddings", "Hyperparameters for SPARC-GCN"
TOKENS = "Hyperparameters for SPARCphormer and SAMBA"
SIZES = "Characteristics of the datasets in our experiments"

# the paper's tables: one value a data set, in the order of DATASETS
TABLES: dict[str, dict[str, list[Any]]] = {
    EMBEDDINGS: {
        "Hidden Dimension": [(512, 256, 32), (512, 256, 32), (512, 256, 32), (512, 256, 64)],
        "K eigenvectors": [32, 32, 32, 64],
        "Peak Learning Rate": [0.1] * 4,
        "Weight Decay": [1e-5] * 4,
    },
    GCN: {
        "Dropout": [0.1] * 4,
        "Hidden Dimension": [(64, 256, 7), (64, 256, 6), (64, 256, 3), (64, 256, 41)],
        "Peak Learning Rate": [0.1] * 4,
        "Weight Decay": [1e-5] * 4,
    },
    TOKENS: {
        "Dropout": [0.1] * 4,
        "Hidden Dimension": [512] * 4,
        "Token List Size": [5, 7, 10, 13],
        "Number of Heads": [8] * 4,
        "Peak Learning Rate": [0.001] * 4,
        "Weight Decay": [1e-5] * 4,
    },
}
# which parameter is which row
ROWS = {
    "gcn": {
        "dropout": "Dropout",
        "hidden_channels": "Hidden Dimension",
        "learning_rate": "Peak Learning Rate",
        "weight_decay": "Weight Decay",
    },
    "phormer": {
        "dropout": "Dropout",
        "hidden_channels": "Hidden Dimension",
        "num_tokens": "Token List Size",
        "num_heads": "Number of Heads",
        "learning_rate": "Peak Learning Rate",
        "weight_decay": "Weight Decay",
    },
    "map": {
        "hidden_channels": "Hidden Dimension",
        "n_components": "K eigenvectors",
        "learning_rate": "Peak Learning Rate",
        "weight_decay": "Weight Decay",
    },
}
ROWS["samba"] = ROWS["phormer"]
TRAINING = {"dropout", "input_dropout", "batch_size", "max_steps", "learning_rate", "weight_decay", "patience"}
OWN = {
    "gcn": {"hidden_channels", "num_layers", "n_neighbors", "feature_share"},
    "phormer": {"hidden_channels", "num_layers", "num_tokens", "num_heads", "feature_share"},
    "samba": {"hidden_channels", "num_layers", "num_tokens", "num_heads", "feature_share"},
}
MAP = TRAINING | {"n_components", "hidden_channels", "oversample", "objective", "laplacian", "validation_share"}


@pytest.fixture(params=NAMES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return load_recipe(request.param)


def test_there_is_one_for_each_architecture_and_data_set() -> None:
    assert list_recipes() == NAMES


def test_files_hold_nothing_beyond_the_schema(recipe: Recipe) -> None:
    path = Path(gsparc.recipes.__file__).parent / f"{recipe.name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    assert set(document) == {"name", "paper", "dataset", "backbone", "parameters", "map"}
    assert document["name"] == recipe.name
    assert document["paper"]["arxiv"] == recipe.paper["arxiv"] == "2411.01532"


def test_complete(recipe: Recipe) -> None:
    backbone, dataset = recipe.name.split("/")
    assert recipe.backbone == backbone
    assert recipe.dataset == ("reddit2" if dataset == "reddit" else dataset)
    assert recipe.dataset in {entry.name for entry in list_datasets()}
    assert set(recipe.parameters) == TRAINING | OWN[backbone]
    assert set(recipe.map_parameters) == MAP
    assert set(recipe.provenance) == {"dataset", *recipe.parameters, *(f"map.{key}" for key in recipe.map_parameters)}


def test_every_value_says_where_it_comes_from(recipe: Recipe) -> None:
    for name, setting in recipe.provenance.items():
        assert setting.source in SOURCES, name
        if setting.source == "not in the paper":
            assert setting.why, name
            assert (setting.where, setting.row, setting.paper_value) == (None, None, None), name
        else:
            assert setting.where in {*TABLES, SIZES} if setting.row else setting.where, name
            changed = setting.source == "paper, changed"
            assert (setting.paper_value is not None) == changed, name
            assert setting.paper_value != setting.value, name
            assert setting.why or not changed, name


@pytest.mark.parametrize("part", ["own", "map"])
def test_values_are_those_of_the_paper_s_tables(recipe: Recipe, part: str) -> None:
    place = DATASETS.index(recipe.name.split("/")[1])
    kind = recipe.backbone if part == "own" else "map"
    table = {"map": EMBEDDINGS, "gcn": GCN, "phormer": TOKENS, "samba": TOKENS}[kind]
    for name, row in ROWS[kind].items():
        setting = recipe.provenance[f"map.{name}" if part == "map" else name]
        expected = TABLES[table][row][place]
        if isinstance(expected, tuple):
            expected = expected[:-1]  # the last width is that of the output
        assert (setting.where, setting.row) == (table, row), name
        assert (setting.paper_value if setting.source == "paper, changed" else setting.value) == expected, name
    widths = TABLES[EMBEDDINGS]["Hidden Dimension"][place]
    assert widths[-1] == recipe.map_parameters["n_components"] == recipe.map_parameters["oversample"]


def test_what_is_not_used_as_the_paper_has_it(recipe: Recipe) -> None:
    changed = {name for name, setting in recipe.provenance.items() if setting.source == "paper, changed"}
    assert changed == {"map.learning_rate"} | ({"learning_rate"} if recipe.backbone == "gcn" else set())


def test_every_key_is_a_parameter(recipe: Recipe) -> None:
    assert set(recipe.parameters) <= set(inspect.signature(SparcClassifier).parameters)
    assert set(recipe.map_parameters) <= set(inspect.signature(SpectralMap).parameters)


def test_the_map_is_made_with_the_settings(recipe: Recipe) -> None:
    spectral = recipe.spectral_map(max_steps=5)
    spectral._check_parameters()
    assert spectral.get_params() | {"max_steps": 5} == SpectralMap(**recipe.map_parameters).get_params() | {
        "max_steps": 5
    }
    assert spectral.max_steps == 5


def test_the_classifier_is_made_with_the_settings(recipe: Recipe) -> None:
    model = recipe.classifier(random_state=3, dropout=0.2)
    given = model.get_params(deep=False)
    assert given["backbone"] == recipe.backbone
    assert (given["random_state"], given["dropout"]) == (3, 0.2)
    assert {key: given[key] for key in recipe.parameters} == recipe.parameters | {"dropout": 0.2}
    assert given["spectral_map"].get_params() == recipe.spectral_map().get_params()
    assert given["n_components"] == given["spectral_map"].n_components
    other = recipe.spectral_map(max_steps=7)
    assert recipe.classifier(spectral_map=other).spectral_map is other


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"unknown recipe 'phormer/pubmet'. Did you mean 'phormer/pubmed'\?"):
        load_recipe("phormer/pubmet")
    with pytest.raises(InputError, match="unknown parameter of SpectralMap 'max_step'"):
        load_recipe("gcn/cora").spectral_map(max_step=3)
    with pytest.raises(InputError, match="unknown parameter of SparcClassifier 'drop'"):
        load_recipe("gcn/cora").classifier(drop=0.3)
    assert load_recipe("GCN/Cora").name == "gcn/cora"


def test_a_setting_in_words() -> None:
    changed = Setting(0.01, "paper, changed", "Table", "Rate", 0.1, "too long a step")
    assert str(changed) == "0.01: paper, changed (Table, Rate) from 0.1; too long a step"
    assert str(Setting(3, "not in the paper", why="a guess")) == "3: not in the paper; a guess"


# The tables above against the paper's own source, where it is at hand.


def rows_of(tex: str, caption: str) -> dict[str, list[Any]]:
    """The rows of the LaTeX table with this caption: numbers, or tuples of them."""
    start = tex.index("\\caption{" + caption + "}")
    body = tex[start : tex.index("\\end{tabular}", start)]
    found = {}
    for line in re.findall(r"^(\w[\w ]*?) *&(.*?)\\\\", body, flags=re.MULTILINE):
        cells = [
            tuple(float(number) for number in re.findall(r"[\d.]+(?:e-\d+)?", cell)) for cell in line[1].split("&")
        ]
        found[line[0]] = [cell if len(cell) > 1 else cell[0] for cell in cells]
    return found


@pytest.mark.parametrize("caption", list(TABLES))
def test_the_tables_are_those_of_the_source(caption: str) -> None:
    source = Path(__file__).resolve().parents[2] / "shared" / "paper" / "sparc.tex"
    if not source.is_file():
        pytest.skip("the paper's source is not beside the checkout")
    assert rows_of(source.read_text(encoding="utf-8"), caption) == TABLES[caption]
