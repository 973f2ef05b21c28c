"""HTML pages: the web interface and the API reference."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

from wick.server.dependencies import Wick
from wick.server.errors import not_found
from wick.server.static_files import SHIPPED_PAGES

router = APIRouter(include_in_schema=False)


@router.get("/")
async def index(wick: Wick) -> FileResponse:
    return serve_page(wick.static, "index.html")


@router.get("/docs")
async def docs() -> FileResponse:
    return serve_page(SHIPPED_PAGES, "docs.html")


def serve_page(folder: Path, name: str) -> FileResponse:
    """Return a page of a folder; raise a 404 if it is missing."""
    if not (folder / name).is_file():
        raise not_found(f"page {name}")
    return FileResponse(folder / name, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})
