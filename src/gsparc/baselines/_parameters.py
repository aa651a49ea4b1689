"""What the numbers among the baselines' parameters may be: one list for all, so that none of them forgets one."""

from __future__ import annotations

import inspect
from typing import Any

from gsparc._validation import check_count, check_share
from gsparc.exceptions import InputError

__all__ = ["check_parameters"]

_COUNTS = (
    "anchors",
    "batch_clusters",
    "batch_size",
    "channels",
    "hidden_channels",
    "hops",
    "max_epochs",
    "max_steps",
    "n_clusters",
    "n_components",
    "n_init",
    "n_neighbors",
    "n_starts",
    "num_heads",
    "num_layers",
    "num_parts",
    "num_tokens",
    "out_channels",
    "state_channels",
    "teacher_steps",
    "walks",
)
_RANGES = {
    "C": (1e-12, 1e12),
    "alpha": (0.0, 1.0),
    "diag_lambda": (0.0, 1e3),
    "distil": (0.0, 1.0),
    "dropout": (0.0, 0.95),
    "edge_dropout": (0.0, 0.95),
    "first": (0.0, 1.0),
    "gamma": (0.0, 1e6),
    "head_penalty": (0.0, 1e6),
    "input_dropout": (0.0, 0.95),
    "learning_rate": (1e-8, 10.0),
    "margin": (0.0, 1e6),
    "penalty": (0.0, 1e6),
    "reconstruction": (0.0, 1e6),
    "weight_decay": (0.0, 100.0),
}


def check_parameters(model: Any) -> None:
    """Refuse numbers that cannot be used, before anything is computed; a default is always good, whatever it is.

    Examples
    --------
    >>> from gsparc.baselines import GCNBaseline
    >>> check_parameters(GCNBaseline(dropout=2.0))
    Traceback (most recent call last):
    ...
    gsparc.exceptions.InputError: dropout=2.0 came, expected a number from 0 to 0.95.
    """
    defaults = {name: entry.default for name, entry in inspect.signature(type(model)).parameters.items()}
    for name, value in model.get_params(deep=False).items():
        default = defaults[name]
        if value is default or (isinstance(default, str) and isinstance(value, str) and value == default):
            continue
        if name in _COUNTS and isinstance(default, tuple):
            _check_widths(name, value, len(default))
        elif name in _COUNTS:
            check_count(name, value, 1)
        elif name in _RANGES:
            low, high = _RANGES[name]
            check_share(name, value, low=low, high=high)
    heads, width = getattr(model, "num_heads", None), getattr(model, "hidden_channels", None)
    if heads is not None and width is not None and width % heads:
        raise InputError(
            f"num_heads={heads} came, expected a divisor of hidden_channels={width}. Choose a hidden width that is a "
            "multiple of the number of heads."
        )


def _check_widths(name: str, value: Any, count: int) -> None:
    """As many widths as the default has."""
    if not isinstance(value, (tuple, list)) or len(value) != count:
        raise InputError(f"{name}={value!r} came, expected {count} widths, such as {name}={(64,) * count}.")
    for width in value:
        check_count(name, width, 1)
