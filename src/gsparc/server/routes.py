"""The routes: what is asked, handed to the batcher or read off the loaded model."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from gsparc._version import __version__
from gsparc.server import schemas
from gsparc.server.answers import job_for
from gsparc.server.body import parse_json, read_body
from gsparc.server.errors import ApiError
from gsparc.server.models import LoadedModel
from gsparc.server.openapi import ASKED, responses, rows_body
from gsparc.server.requests import RowRequest

__all__ = ["router"]

router = APIRouter()
_LARGE = 64 * 2**10  # a body beyond this is parsed in a thread of its own, so that others are still answered
Limit = Annotated[int, Query(ge=1, le=100, description="results at most")]


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False), status, media_type="application/json")


async def _ask(task: str, request: Request) -> Response:
    """Read, check, wait for the model, answer."""
    service = request.app.state.service
    batcher = service.batcher
    batcher.admit()
    with batcher.opened():
        raw = await read_body(request, max_bytes=service.max_bytes, timeout=service.timeout)
        loaded: LoadedModel = service.holder.current

        def read() -> RowRequest:
            return loaded.reader.read(parse_json(raw))

        rows = await asyncio.to_thread(read) if len(raw) > _LARGE else read()
        answer = await batcher.submit(job_for(task, loaded, rows), service.timeout)
    return Response(answer, media_type="application/json")


@router.post("/v1/predict", tags=["rows"], responses=responses(schemas.PredictAnswer, ASKED), openapi_extra=rows_body())
async def predict(request: Request) -> Response:
    """Class, confidence, prediction set, cluster, suggested links and nearest known nodes of new rows.

    Columns that the model does not know are ignored. Those that a record leaves out count as null, and are named in
    the answer as missing_columns. Edges to nodes that the model does not know are counted as ignored_edges.
    """
    return await _ask("predict", request)


@router.post("/v1/links", tags=["rows"], responses=responses(schemas.LinksAnswer, ASKED), openapi_extra=rows_body())
async def links(request: Request) -> Response:
    """Known nodes that new rows are likely to be linked to, best first."""
    return await _ask("links", request)


@router.post("/v1/cluster", tags=["rows"], responses=responses(schemas.ClusterAnswer, ASKED), openapi_extra=rows_body())
async def cluster(request: Request) -> Response:
    """The cluster of new rows."""
    return await _ask("cluster", request)


@router.post("/v1/embed", tags=["rows"], responses=responses(schemas.EmbedAnswer, ASKED), openapi_extra=rows_body())
async def embed(request: Request) -> Response:
    """Where new rows lie in the eigenspace of the graph."""
    return await _ask("embed", request)


@router.get("/v1/nodes/by-position/{index}", tags=["nodes"], responses=responses(schemas.NodeCard, (401, 404, 422)))
async def place(request: Request, index: Annotated[int, Path(ge=0, description="place on the map")]) -> Response:
    """What is known of a seen node, by its place in the arrays of the map."""
    nodes = request.app.state.service.holder.current.nodes
    if index >= len(nodes):
        raise ApiError(404, "no_such_node", f"the map holds {len(nodes)} nodes, numbered from 0.")
    return _json(nodes.card(index, neighbours=True))


@router.get("/v1/nodes/{node_id:path}", tags=["nodes"], responses=responses(schemas.NodeCard, (401, 404, 422)))
async def node(request: Request, node_id: Annotated[str, Path(description="as in the node table")]) -> Response:
    """What is known of a seen node, by its id."""
    nodes = request.app.state.service.holder.current.nodes
    index = nodes.index(node_id)
    if index is None:
        raise ApiError(404, "no_such_node", f"the model knows no node {node_id[:80]!r}; /v1/search finds ids.")
    return _json(nodes.card(index, neighbours=True))


@router.get("/v1/search", tags=["nodes"], responses=responses(schemas.SearchAnswer, (401, 422)))
def search(
    request: Request,
    q: Annotated[str, Query(min_length=1, max_length=200, description="a part of an id")],
    limit: Limit = 10,
) -> Response:
    """Seen nodes whose id holds a text, whatever its case."""
    return _json({"results": request.app.state.service.holder.current.nodes.search(q, limit)})


@router.get(
    "/v1/map",
    tags=["nodes"],
    responses={**responses(None, (401,)), 200: {"content": {"application/octet-stream": {}}}, 304: {}},
)
async def map_(request: Request) -> Response:
    """All seen nodes in the plane, little-endian: uint32 length of a JSON header, the header (count, classes,
    clusters), then float32 x, float32 y, int16 class and int16 cluster of every node.
    """
    loaded: LoadedModel = request.app.state.service.holder.current
    headers = {"ETag": f'"{loaded.version}"', "Cache-Control": "no-cache"}
    if loaded.version != "unknown" and headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(loaded.map, media_type="application/octet-stream", headers=headers)


@router.get("/health", tags=["service"], responses=responses(schemas.Health, (503,)))
async def health(request: Request) -> Response:
    """Whether the process can answer at all."""
    if not request.app.state.service.batcher.alive:
        raise ApiError(503, "model_thread_ended", "the thread that runs the model has ended; restart the service.")
    return _json({"status": "ok"})


@router.get("/ready", tags=["service"], responses=responses(schemas.Ready, (503,)))
async def ready(request: Request) -> Response:
    """Whether a model is loaded, and whether it is the one that the folder holds now."""
    service = request.app.state.service
    if not service.batcher.alive:
        raise ApiError(503, "stopping", "the service is starting or stopping.")
    reload = {"ok": True, "message": ""}
    if service.holder.problem is not None:  # its words may name folders: they are for /info, behind the token
        reload = {
            "ok": False,
            "message": "the folder's model cannot be used, so the old one serves. See /info.",
        }
    answer = {"ready": True, "version": service.holder.current.version, "queue_rows": service.batcher.waiting_rows}
    return _json({**answer, "reload": reload})


@router.get("/info", tags=["service"], responses=responses(schemas.Info, (401,)))
async def info(request: Request) -> Response:
    """The model, its columns, its figures, and the limits of a request."""
    service = request.app.state.service
    loaded: LoadedModel = service.holder.current
    model, problem = loaded.model, service.holder.problem
    answer = {
        "name": service.holder.folder.resolve().name,
        "version": loaded.version,
        "library": __version__,
        "loaded_at": dt.datetime.fromtimestamp(loaded.loaded_at, dt.UTC).isoformat(timespec="seconds"),
        "tasks": loaded.tasks,
        "classes": loaded.class_names,
        "counts": loaded.counts,
        "form": model.preprocess.form(),
        "id_column": model.columns.id,
        "n_features": loaded.reader.n_features,
        "limits": {
            "queue": service.batcher.queue,
            "max_rows": service.max_rows,
            "max_bytes": service.max_bytes,
            "timeout": service.timeout,
        },
        "reload": {"ok": problem is None, "message": problem or ""},
        "report": model.report,
    }
    return _json(answer)


@router.get("/metrics", tags=["service"], responses={**responses(None, (401,)), 200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Figures for Prometheus."""
    return Response(request.app.state.service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/v1/reload", tags=["service"], responses=responses(schemas.Reloaded, (401, 403, 409)))
async def reload(request: Request) -> Response:
    """Load the folder again; only where a token is set. The old model serves until the new one is ready."""
    service = request.app.state.service
    if not service.token_set:
        message = "reloading by request needs a service that was started with a token; the folder is watched anyway."
        raise ApiError(403, "no_token_set", message)
    version = await service.holder.reload()
    if version is None:
        raise ApiError(409, "reload_failed", f"the old model stays in use: {service.holder.problem}")
    return _json({"version": version})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The description of all this, with the columns of the model in use."""
    return _json(request.app.openapi())
