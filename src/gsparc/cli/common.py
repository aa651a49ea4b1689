"""What all commands share: errors as one sentence, JSON or a table, notes on standard error."""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, ParamSpec, TypeVar, get_type_hints

import typer

from gsparc._processes import world
from gsparc.exceptions import GsparcError

__all__ = [
    "INTERRUPTED",
    "TERMINATED",
    "AsJson",
    "MaxSteps",
    "Seed",
    "command",
    "emit",
    "options_of",
    "plain",
    "say",
    "write_error",
]

INTERRUPTED = 130  # by Ctrl-C, in the shell's way of counting: 128 and the number of the signal
TERMINATED = 143  # by SIGTERM
P = ParamSpec("P")
R = TypeVar("R")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of everything random.")]
MaxSteps = Annotated[
    int | None, typer.Option("--max-steps", min=1, help="Training steps at most, instead of the default.")
]


def command(function: Callable[P, R]) -> Callable[P, R]:
    """A command whose failures become one sentence on standard error and an exit status."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        _show_notes()
        try:
            with _warnings_as_notes():
                return function(*args, **kwargs)
        except KeyboardInterrupt:
            write_error("interrupted; outputs that were not finished have not been written.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # the reader (head, less) left; this avoids a second error when Python flushes at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except (GsparcError, OSError, MemoryError) as error:
            _reraise_when_debugging(error)
            write_error(_sentence(error, function))
            raise typer.Exit(1) from None
        except Exception as error:
            if type(error).__module__.startswith(("typer", "click")):
                raise  # wrong usage, or a wish to leave: typer's own business
            _reraise_when_debugging(error)
            told = f"unexpected {type(error).__name__}: {_sentence(error, function)}"
            write_error(f"{told} (GSPARC_DEBUG=1 shows where it arose)")
            raise typer.Exit(1) from None

    return wrapped


def _reraise_when_debugging(error: BaseException) -> None:
    if os.environ.get("GSPARC_DEBUG"):
        raise error


def options_of(function: Callable[..., Any]) -> set[str]:
    """Long names of the options that a command takes."""
    hints = get_type_hints(function, include_extras=True).values()
    about = [info for hint in hints for info in getattr(hint, "__metadata__", ())]
    # typer.Option takes a default first, so within Annotated that is where the first name stands
    names = [
        name for info in about for name in (getattr(info, "default", None), *(getattr(info, "param_decls", ()) or ()))
    ]
    return {name for name in names if isinstance(name, str) and name.startswith("--")}


def _sentence(error: BaseException, function: Callable[..., Any]) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; try fewer nodes, features or components."
    text = " ".join(str(error).split()) or type(error).__name__
    return _with_options(text, options_of(function)) if isinstance(error, GsparcError) else text


def _with_options(text: str, options: set[str]) -> str:
    """The library speaks of its arguments (``device='cpu'``, ``label=``); here those are options, if there is one."""

    def option(match: re.Match[str]) -> str:
        name = f"--{match[1].replace('_', '-')}"
        return f"{name} {match[2] or match[3] or ''}".rstrip() if name in options else match[0]

    # a word by itself: neither part of a path or of a quoted name, nor with a value of several parts
    value = r"'([^']*)'|(-?\w(?:[\w.:+-]*\w)?|)"
    return re.sub(rf"(?<![^\s(])([a-z_]+)=(?:{value})(?=[\s,;:.)]|$)", option, text)


def write_error(sentence: str) -> None:
    """``error: ...`` as one line on standard error; of several processes the first says it."""
    if world().first:
        typer.echo(f"error: {sentence}", err=True)


def say(sentence: str) -> None:
    """A line of progress on standard error."""
    typer.echo(sentence, err=True)


class _ToStandardError(logging.Handler):
    """Looks standard error up each time, so that a replaced one (tests, notebooks) is respected."""

    def emit(self, record: logging.LogRecord) -> None:
        typer.echo(self.format(record), err=True)


def _show_notes() -> None:
    """Let the library's log be seen on standard error, once however often commands are called."""
    logger = logging.getLogger("gsparc")
    if not any(isinstance(handler, _ToStandardError) for handler in logger.handlers):
        handler = _ToStandardError()
        handler.setFormatter(logging.Formatter("note: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Python's warnings as one line each and once each, without the place in the code where they arose."""
    if os.environ.get("GSPARC_DEBUG"):
        yield
        return
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in told and world().first:
            told.add(text)
            say(f"note: {text}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def plain(value: Any) -> Any:
    """Values that JSON knows: numpy's numbers and arrays as Python's, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy array or number
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return str(value)


def emit(document: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """One JSON document on standard output, or the same for people; of several processes the first says it."""
    if not world().first:
        return
    if as_json:
        typer.echo(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False))
    else:
        show(document)
