"""HTML pages: the web interface and the API reference."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

from wick.server.dependencies import Wick
from wick.server.errors import not_found
from wick.server.static_files import SHIPPED_PAGES

router = APIRouter(include_in_schema=False)

FRAME_HEADERS = {
    # Pages on the canvas run here: scripts without an origin, and without any network.
    "Content-Security-Policy": (
        "sandbox allow-scripts; default-src 'none'; connect-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'unsafe-inline'; img-src data: blob:; media-src data: blob:; font-src data:; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "Connection-Allowlist": "()",  # also WebRTC and preconnects, which no directive covers
    "X-DNS-Prefetch-Control": "off",
    "X-Frame-Options": "SAMEORIGIN",
}


@router.get("/")
async def index(wick: Wick) -> FileResponse:
    return serve_page(wick.static, "index.html")


@router.get("/docs")
async def docs() -> FileResponse:
    return serve_page(SHIPPED_PAGES, "docs.html")


@router.get("/canvas/frame")
async def canvas_frame() -> FileResponse:
    page = serve_page(SHIPPED_PAGES, "frame.html")
    page.headers.update(FRAME_HEADERS)
    return page


def serve_page(folder: Path, name: str) -> FileResponse:
    """Return a page of a folder; raise a 404 if it is missing."""
    if not (folder / name).is_file():
        raise not_found(f"page {name}")
    return FileResponse(folder / name, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})
