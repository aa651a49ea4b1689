"""The words of user errors: what came, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gsparc.exceptions import UnknownNameError

__all__ = ["check_name"]


def check_name(kind: str, got: object, known: Iterable[str]) -> str:
    """Return ``got`` if it is one of ``known``; otherwise offer the nearest match.

    Examples
    --------
    >>> check_name("objective", "rayleigh", ["contrastive", "rayleigh"])
    'rayleigh'
    """
    names = sorted(known)
    if isinstance(got, str) and got in names:
        return got
    close = difflib.get_close_matches(str(got).lower(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise UnknownNameError(f"unknown {kind} {got!r}.{hint} Known: {', '.join(names)}.")
