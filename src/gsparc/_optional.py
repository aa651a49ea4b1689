"""Optional packages: imported where they are used, with the install command when absent."""

from __future__ import annotations

import importlib
import warnings
from types import ModuleType

from gsparc.exceptions import MissingExtraError

__all__ = ["import_optional"]


def import_optional(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or say which extra of gsparc brings it.

    Examples
    --------
    >>> import_optional("json", extra="pyg", purpose="reading").__name__
    'json'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about the package's own code, not the user's
            return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        if error.name is not None and error.name.split(".")[0] != package:
            raise  # the package is there, but something that it needs is not
        raise MissingExtraError(
            f"{purpose} needs the package '{package}', which is not installed. "
            f"Install it with: pip install 'gsparc[{extra}]'"
        ) from error
