"""The public face: what ``gsparc.__all__`` promises can be had, and the contract's names are in it."""

from __future__ import annotations

import pytest

import gsparc
from gsparc import exceptions

CONTRACT = {
    "ColdStartSplit",
    "Graph",
    "SparcClassifier",
    "SparcClusterer",
    "SparcLinkPredictor",
    "SpectralMap",
    "load_dataset",
    "load_model",
}


def test_all_is_sorted_without_repeats() -> None:
    assert list(gsparc.__all__) == sorted(set(gsparc.__all__))


def test_every_exported_name_can_be_had() -> None:
    missing = [name for name in gsparc.__all__ if not hasattr(gsparc, name)]
    assert missing == []


def test_the_contract_is_exported() -> None:
    assert set(gsparc.__all__) >= CONTRACT


def test_every_error_is_exported() -> None:
    assert set(gsparc.__all__) >= set(exceptions.__all__)
    assert all(getattr(gsparc, name) is getattr(exceptions, name) for name in exceptions.__all__)


def test_exported_names_are_listed_by_dir() -> None:
    assert set(dir(gsparc)) >= set(gsparc.__all__)


@pytest.mark.parametrize("name", sorted(CONTRACT))
def test_a_public_name_has_a_docstring_with_an_example(name: str) -> None:
    member = getattr(gsparc, name)
    assert member.__name__ == name
    assert ">>>" in (member.__doc__ or ""), f"{name} shows no example"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        getattr(gsparc, "no_such_name")  # noqa: B009
