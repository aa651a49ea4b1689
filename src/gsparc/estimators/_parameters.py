"""What SparcClassifier accepts as parameters, and the words for what it does not."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from gsparc._validation import check_count, check_name, check_share
from gsparc.estimators._directions import MOST_SHARE
from gsparc.estimators._fitting import HEADS
from gsparc.estimators._heads import HeadSettings
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.nn.attach import check_module

__all__ = ["BACKBONES", "check_classifier", "check_own_module", "head_settings"]

BACKBONES = ("auto", "gcn", "mlp", "phormer", "samba")
_COUNTS = ("n_components", "num_tokens", "num_heads", "patience")
_COUNTS_OR_NONE = ("num_layers", "n_neighbors", "batch_size", "max_steps")
_SHARES_OR_NONE = {"dropout": (0.0, 0.95), "learning_rate": (1e-8, 10.0), "weight_decay": (0.0, 100.0)}
_PASSED_ON = (
    "hidden_channels",
    "num_layers",
    "num_tokens",
    "num_heads",
    "n_neighbors",
    "gcn_inference",
    "dropout",
    "input_dropout",
    "batch_size",
    "max_steps",
    "learning_rate",
    "weight_decay",
    "patience",
    "verbose",
)


def check_classifier(model: Any) -> None:
    """Refuse parameters that cannot be used, before anything is computed."""
    if not isinstance(model.backbone, torch.nn.Module):
        check_name("backbone", model.backbone, BACKBONES)
    check_name("gcn_inference", model.gcn_inference, ("neighbors", "summary"))
    _check_numbers(model)
    if not (isinstance(model.distill, (bool, np.bool_)) or model.distill == "auto"):
        raise InputError(f"distill={model.distill!r} came, expected True, False or 'auto'.")
    if model.heads is not None and (isinstance(model.heads, str) or len(model.heads) == 0):
        raise InputError(f"heads={model.heads!r} came, expected a list of some of {', '.join(HEADS)}, or None.")
    for name in [] if model.heads is None else list(model.heads):
        check_name("head", name, HEADS)
    if model.spectral_map is not None and not isinstance(model.spectral_map, SpectralMap):
        raise InputError(f"spectral_map={model.spectral_map!r} came, expected a SpectralMap or None.")


def _check_numbers(model: Any) -> None:
    for name in _COUNTS:
        check_count(name, getattr(model, name), 1)
    if model.num_tokens > 30:
        raise InputError(
            f"num_tokens={model.num_tokens} came: means of up to 2^{model.num_tokens} nodes. Pass 1 to 30."
        )
    for name in _COUNTS_OR_NONE:
        if getattr(model, name) is not None:
            check_count(name, getattr(model, name), 1)
    for name, (low, high) in _SHARES_OR_NONE.items():
        if getattr(model, name) is not None:
            check_share(name, getattr(model, name), low=low, high=high)
    if model.feature_share != "auto":
        check_share("feature_share", model.feature_share, high=MOST_SHARE)
    if model.input_dropout != "auto":
        check_share("input_dropout", model.input_dropout, high=0.95)
    widths = _plain(model.hidden_channels)
    if isinstance(widths, list) and not widths:
        raise InputError("hidden_channels=() came, expected one width or several.")
    for width in [] if widths is None else widths if isinstance(widths, list) else [widths]:
        check_count("hidden_channels", width, 1)
    if isinstance(widths, list) and model.num_layers not in (None, len(widths)):
        raise InputError(
            f"hidden_channels={tuple(widths)} and num_layers={model.num_layers} came: one width a layer, or leave "
            "num_layers out."
        )
    width = 128 if widths is None else widths[-1] if isinstance(widths, list) else widths
    transformer = model.backbone == "phormer" if isinstance(model.backbone, str) else False
    mixed = isinstance(model.backbone, str) and model.backbone == "auto"
    if (transformer or (mixed and (model.heads is None or "phormer" in list(model.heads)))) and width % model.num_heads:
        raise InputError(
            f"num_heads={model.num_heads} came, expected a divisor of hidden_channels={width}. "
            "Choose a hidden width that is a multiple of the number of heads."
        )


def check_own_module(module: torch.nn.Module, in_channels: int, out_channels: int) -> None:
    """Try a copy of the user's network on a graph of three nodes."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError(
            f"{type(module).__name__} has no parameters to train. Pass a network with weights that are not all frozen."
        )
    check_module(copy.deepcopy(module), in_channels, out_channels)


def head_settings(model: Any, seed: int) -> HeadSettings:
    """Network and optimiser as the user asked, numbers as Python's own."""
    return HeadSettings(**{name: _plain(getattr(model, name)) for name in _PASSED_ON}, seed=seed)


def _plain(value: Any) -> Any:
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
        return [_plain(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value
