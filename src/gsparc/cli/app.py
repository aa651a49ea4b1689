"""The commands put together, and the entry point."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from gsparc._processes import launched
from gsparc._version import __version__
from gsparc.cli import (
    cluster,
    datasets,
    demo,
    embed,
    evaluate,
    export,
    fit,
    grow,
    info,
    ingest,
    links,
    predict,
    reproduce,
    serve,
)
from gsparc.cli.common import INTERRUPTED, TERMINATED, write_error

__all__ = ["app", "main"]

_SAME_WISH = 1.0  # seconds

app = typer.Typer(
    name="gsparc",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS = (
    demo,
    ingest,
    fit,
    predict,
    evaluate,
    grow,
    serve,
    export,
    embed,
    links,
    cluster,
    reproduce,
    datasets,
    info,
)
for module in _COMMANDS:
    app.command(name=module.NAME)(module.run)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gsparc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Predictions for graph nodes that have no edges yet.

    Results go to standard output, progress to standard error; --json turns a result into one JSON document.
    Exit status: 0 success, 1 a failure that the message explains, 2 wrong usage, 130 interrupted, 143 terminated.
    """


def main() -> None:
    """Run the command line; always ends in ``SystemExit``."""
    with _interrupted_by_sigterm() as told:
        try:
            app()
        except KeyboardInterrupt:  # outside of a command: while typer itself was loading
            write_error("interrupted.")
            sys.exit(TERMINATED if told else INTERRUPTED)
        except SystemExit as leave:
            if told and leave.code == INTERRUPTED:
                sys.exit(TERMINATED)
            raise


@contextmanager
def _interrupted_by_sigterm() -> Iterator[list[float]]:
    """Let SIGTERM (kill, timeout, a scheduler) end a command as Ctrl-C does, so that it tidies up; a later one ends it.

    The list holds the time of the signal once it has come. One right behind it is the same wish: timeout tells the
    process and then its group. Workers of torchrun keep to what that expects, and a signal that whoever started this
    process wants to be ignored, or handles, stays so.
    """
    told: list[float] = []

    def interrupt(number: int, _: object) -> None:
        told.append(time.monotonic())
        if len(told) == 1:
            raise KeyboardInterrupt
        if told[-1] - told[0] > _SAME_WISH:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    ours = threading.current_thread() is threading.main_thread() and launched() is None
    ours = ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, interrupt)
    try:
        yield told
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
