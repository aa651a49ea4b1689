"""Recipes: read from ``BACKBONE/DATASET.json`` beside this file, and turned into estimators.

A file holds, for the classifier (``parameters``) and for its spectral map (``map``), one setting a line: the value,
its ``source``, and what belongs to that source. ``"paper"``: ``where`` and ``row`` name the table (by its caption)
and the row. ``"paper, changed"``: ``paper_value`` too, and ``why`` the paper's value is not used as it stands.
``"not in the paper"``: ``why`` this value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gsparc._validation import check_name

if TYPE_CHECKING:
    from gsparc.estimators import SparcClassifier, SpectralMap

__all__ = ["SOURCES", "Recipe", "Setting", "list_recipes", "load_recipe"]

SOURCES = ("paper", "paper, changed", "not in the paper")
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Setting:
    """One value of a recipe and where it comes from.

    Attributes
    ----------
    value : number, str, tuple or None
        What is used.
    source : {"paper", "paper, changed", "not in the paper"}
    where, row : str or None
        Caption of the paper's table, and the row in it.
    paper_value : number, tuple or None
        The paper's own value, where another one is used.
    why : str or None
        Reason for a value that is not the paper's; remark on one that is.
    """

    value: Any
    source: str
    where: str | None = None
    row: str | None = None
    paper_value: Any = None
    why: str | None = None

    def __str__(self) -> str:
        place = ", ".join(part for part in (self.where, self.row) if part)
        words = f"{self.value!r}: {self.source}" + (f" ({place})" if place else "")
        if self.source == "paper, changed":
            words += f" from {self.paper_value!r}"
        return words + (f"; {self.why}" if self.why else "")


@dataclass(frozen=True)
class Recipe:
    """Settings of :class:`~gsparc.SparcClassifier` for one backbone on one data set.

    Attributes
    ----------
    name : str
        ``"phormer/pubmed"``.
    dataset : str
        What :func:`~gsparc.load_dataset` takes.
    backbone : str
    parameters : dict
        Parameters of the classifier, without its map's.
    map_parameters : dict
        Parameters of its :class:`~gsparc.SpectralMap`.
    provenance : dict of str to Setting
        Where each value comes from; those of the map are called ``map.hidden_channels`` and so on.
    paper : dict
        Title and arXiv number.

    Examples
    --------
    >>> recipe = load_recipe("phormer/pubmed")
    >>> recipe.dataset, recipe.parameters["num_tokens"], recipe.map_parameters["n_components"]
    ('pubmed', 10, 32)
    >>> print(recipe.provenance["num_heads"])
    8: paper (Hyperparameters for SPARCphormer and SAMBA, Number of Heads)
    """

    name: str
    dataset: str
    backbone: str
    parameters: dict[str, Any]
    map_parameters: dict[str, Any]
    provenance: dict[str, Setting]
    paper: dict[str, str]

    def classifier(self, **overrides: Any) -> SparcClassifier:
        """A classifier with these settings, not fitted.

        Parameters
        ----------
        **overrides
            Parameters of the classifier that shall differ, ``random_state`` for instance. Pass
            ``spectral_map=recipe.spectral_map(...)`` to change those of the map.
        """
        from gsparc.estimators import SparcClassifier

        known = SparcClassifier().get_params(deep=False)
        for name in overrides:
            check_name("parameter of SparcClassifier", name, known)
        settings = {
            "backbone": self.backbone,
            "n_components": self.map_parameters["n_components"],
            **self.parameters,
            "spectral_map": overrides.pop("spectral_map", None) or self.spectral_map(),
        }
        return SparcClassifier(**settings | overrides)

    def spectral_map(self, **overrides: Any) -> SpectralMap:
        """The classifier's map with these settings, not fitted."""
        from gsparc.estimators import SpectralMap

        known = SpectralMap().get_params(deep=False)
        for name in overrides:
            check_name("parameter of SpectralMap", name, known)
        return SpectralMap(**self.map_parameters | overrides)


def list_recipes() -> list[str]:
    """Names of all recipes.

    Examples
    --------
    >>> list_recipes()[:2]
    ['gcn/citeseer', 'gcn/cora']
    """
    return sorted(f"{path.parent.name}/{path.stem}" for path in _FOLDER.glob("*/*.json"))


def load_recipe(name: str) -> Recipe:
    """One recipe by its name, ``BACKBONE/DATASET``.

    Examples
    --------
    >>> load_recipe("gcn/cora").parameters["hidden_channels"]
    (64, 256)
    """
    name = check_name("recipe", str(name).lower(), list_recipes())
    document = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    own = {key: _setting(entry) for key, entry in document["parameters"].items()}
    spectral = {key: _setting(entry) for key, entry in document["map"].items()}
    dataset = _setting(document["dataset"])
    return Recipe(
        name=name,
        dataset=str(dataset.value),
        backbone=document["backbone"],
        parameters={key: setting.value for key, setting in own.items()},
        map_parameters={key: setting.value for key, setting in spectral.items()},
        provenance={"dataset": dataset, **own, **{f"map.{key}": setting for key, setting in spectral.items()}},
        paper=document["paper"],
    )


def _setting(entry: dict[str, Any]) -> Setting:
    """A setting with JSON's lists as tuples: widths of layers are compared and hashed."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return Setting(**fields)
