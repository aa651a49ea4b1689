"""Pages: the explorer at /, and the API's own at /docs. All their files are here; nothing is fetched elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Response
from starlette.responses import FileResponse

from gsparc.server.errors import ApiError
from gsparc.server.security import PAGE_POLICY

__all__ = ["static_router"]

_HERE = Path(__file__).resolve().parent
EXPLORER = _HERE / "static"
DOCS = _HERE / "docs_page"
_TYPES = {  # not left to the machine's own list, which may be missing or wrong
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
_PAGE = {"Content-Security-Policy": PAGE_POLICY, "Cache-Control": "no-cache"}
_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}  # the names of built files hold their hash
static_router = APIRouter(include_in_schema=False)


def _file(folder: Path, name: str, headers: dict[str, str]) -> Response:
    """A file of ``folder``, never one outside it; only of kinds that pages are made of."""
    path = (folder / name).resolve() if "\0" not in name else folder
    kind = _TYPES.get(path.suffix)
    if kind is None or not path.is_relative_to(folder) or not path.is_file():
        raise ApiError(404, "not_found", f"there is no file {name[:80]!r} here.")
    return FileResponse(path, media_type=kind, headers=headers)


@static_router.get("/")
async def explorer() -> Response:
    """The explorer."""
    if not (EXPLORER / "index.html").is_file():
        raise ApiError(404, "no_explorer", "this installation has no explorer; the routes are listed at /docs.")
    return _file(EXPLORER, "index.html", _PAGE)


@static_router.get("/favicon.ico")
async def icon() -> Response:
    """The explorer's sign, if it has one; browsers ask for it unbidden."""
    name = next((name for name in ("favicon.ico", "favicon.svg") if (EXPLORER / name).is_file()), None)
    return Response(status_code=204) if name is None else _file(EXPLORER, name, {"Cache-Control": "max-age=86400"})


@static_router.get("/assets/{name:path}")
async def asset(name: str) -> Response:
    """Built files of the explorer."""
    return _file(EXPLORER / "assets", name, _FOREVER)


@static_router.get("/docs")
async def docs() -> Response:
    """A page that shows /openapi.json and lets one try it."""
    return _file(DOCS, "index.html", _PAGE)


@static_router.get("/docs/{name}")
async def docs_part(name: str) -> Response:
    """Script and style of that page."""
    return _file(DOCS, name, {"Cache-Control": "no-cache"})
