"""Static files of the web interface, served from the root path where they do not shadow a route."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from wick.server.auth.access_table import ACCESS, Access

logger = logging.getLogger("wick.server")

SHIPPED_PAGES = Path(__file__).parent / "static"  # the pages in the package
BUILT_PAGES = Path(__file__).parent / "ui"  # the built web interface, if present
HASHED_CACHE = "public, max-age=31536000, immutable"  # file names below assets/ contain a hash
MAX_PATH_CHARS = 500  # a path of many segments is slow to look up
_RESERVED = {path.split("/")[1] for _, path, _ in ACCESS}

AccessRow = tuple[str, str, Access]


class PageFiles(StaticFiles):
    """Static files of several folders; the first folder that has a file wins."""

    def __init__(self, *folders: Path, cache: str = "no-cache") -> None:
        super().__init__(directory=folders[0], check_dir=False)
        self.directory = None  # so that a missing folder is not an error
        self.all_directories = [str(folder) for folder in folders]
        self._cache = cache

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        return super().lookup_path(path) if len(path) <= MAX_PATH_CHARS else ("", None)

    def file_response(self, *args: Any, **options: Any) -> Response:
        answer = super().file_response(*args, **options)
        answer.headers["Cache-Control"] = self._cache
        return answer


def page_folder(named: Path | None) -> Path:
    """Return the folder of the web interface: the configured one, else wick's own."""
    if named is not None:
        return named
    return BUILT_PAGES if (BUILT_PAGES / "index.html").is_file() else SHIPPED_PAGES


def page_routes(folder: Path) -> tuple[list[BaseRoute], list[AccessRow]]:
    """Return the routes of a folder's files, and their public rows of the access table."""
    routes: list[BaseRoute] = [Mount("/static", PageFiles(folder / "static", folder, SHIPPED_PAGES), name="static")]
    rows: list[AccessRow] = []
    is_own = folder != SHIPPED_PAGES and folder.is_dir()  # wick's own pages are served below /static
    found = sorted(os.scandir(folder), key=lambda entry: entry.name) if is_own else []
    if hidden := [entry.name for entry in found if entry.name in _RESERVED - {"static"}]:
        logger.warning("files of %s that are not served, since routes have their names: %s", folder, ", ".join(hidden))
    for entry in found:
        if entry.name in {*_RESERVED, "index.html"} or entry.name[0] in ".{":
            continue
        if entry.is_dir():
            files = PageFiles(Path(entry.path), cache=HASHED_CACHE if entry.name == "assets" else "no-cache")
            routes.append(Mount(f"/{entry.name}", GZipMiddleware(files, minimum_size=1_000, compresslevel=6)))
            rows.append(("GET", f"/{entry.name}/{{path:path}}", "public"))
        elif entry.is_file():
            routes.append(Route(f"/{entry.name}", _file_endpoint(Path(entry.path)), include_in_schema=False))
            rows.append(("GET", f"/{entry.name}", "public"))
    return routes, rows


def _file_endpoint(path: Path) -> Any:
    async def file(request: Any) -> FileResponse:
        return FileResponse(path, headers={"Cache-Control": "no-cache"})

    return file
