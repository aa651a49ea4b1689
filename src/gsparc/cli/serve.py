"""``gsparc serve``: a model over HTTP, with the explorer as its front page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gsparc.cli.common import command, say

NAME = "serve"


@command
def run(
    model_folder: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Folder that 'gsparc fit --nodes --edges' wrote.")
    ],
    *,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option("--token", envvar="GSPARC_TOKEN", help="Bearer token that every request must carry."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve other machines without a token all the same.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A further host name under which requests are taken.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=1, help="Rows that may wait; beyond, 429.")] = 512,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Rows of one request at most.")] = 1000,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds until a request is given up.")] = 30.0,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Processes that answer; they share one mapped model.")
    ] = 1,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads that one model call may use.")] = 1,
) -> None:
    """Serve a model over HTTP until Ctrl-C: JSON under /v1, the explorer at /, the API's description at /docs.

    A model folder that is replaced by another fit or grow is taken into use without a request being dropped. A token is
    needed to listen beyond this machine. With --workers several processes answer at the same address, for little more
    memory than one; --queue counts for each.

    Example:  gsparc serve model --port 8000

    Example:  GSPARC_TOKEN=secret gsparc serve model --host 0.0.0.0
    """
    from gsparc.server import serve

    say(f"loading {model_folder}")
    serve(
        model_folder,
        host,
        port,
        token=token or None,
        insecure=insecure,
        hosts=allow_host or (),
        queue=queue,
        max_rows=max_rows,
        timeout=timeout,
        threads=threads,
        processes=workers,
        on_start=lambda address: say(f"serving {model_folder} at {address} (Ctrl-C stops)"),
    )
