"""The files of the pages: what stands in their folder is served from the top, where it does not hide a route."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from wick.server.auth.access_table import ACCESS, Access

logger = logging.getLogger("wick.server")

SHIPPED_PAGES = Path(__file__).parent / "static"  # what comes with wick
BUILT_PAGES = Path(__file__).parent / "ui"  # the same, where the user interface has been built
HASHED_CACHE = "public, max-age=31536000, immutable"  # what is below assets/ has its hash in its name
MAX_PATH_CHARS = 500  # of a file that is looked for: to look for a path of many parts takes long, and nobody has one
_RESERVED = {path.split("/")[1] for _, path, _ in ACCESS}

AccessRow = tuple[str, str, Access]


class PageFiles(StaticFiles):
    """Files of several folders; the first that has one counts."""

    def __init__(self, *folders: Path, cache: str = "no-cache") -> None:
        super().__init__(directory=folders[0], check_dir=False)
        self.directory = None  # so that a folder that is not there is no error
        self.all_directories = [str(folder) for folder in folders]
        self._cache = cache

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        return super().lookup_path(path) if len(path) <= MAX_PATH_CHARS else ("", None)

    def file_response(self, *args: Any, **options: Any) -> Response:
        answer = super().file_response(*args, **options)
        answer.headers["Cache-Control"] = self._cache
        return answer


def page_folder(named: Path | None) -> Path:
    """The folder of the page: the one that was named, or else wick's own."""
    if named is not None:
        return named
    return BUILT_PAGES if (BUILT_PAGES / "index.html").is_file() else SHIPPED_PAGES


def page_routes(folder: Path) -> tuple[list[BaseRoute], list[AccessRow]]:
    """The routes of what stands in a folder, and their rows in the table of who may do what: it is for everybody."""
    routes: list[BaseRoute] = [Mount("/static", PageFiles(folder / "static", folder, SHIPPED_PAGES), name="static")]
    rows: list[AccessRow] = []
    for entry in _list_entries(folder):
        if entry.is_dir():
            files = PageFiles(Path(entry.path), cache=HASHED_CACHE if entry.name == "assets" else "no-cache")
            routes.append(Mount(f"/{entry.name}", GZipMiddleware(files, minimum_size=1_000, compresslevel=6)))
            rows.append(("GET", f"/{entry.name}/{{path:path}}", "public"))
        else:
            routes.append(Route(f"/{entry.name}", _file_endpoint(Path(entry.path)), include_in_schema=False))
            rows.append(("GET", f"/{entry.name}", "public"))
    return routes, rows


def _list_entries(folder: Path) -> Sequence[os.DirEntry[str]]:
    """What stands at the top of a page's folder; wick's own is below /static already."""
    if folder == SHIPPED_PAGES or not folder.is_dir():
        return []
    found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    hidden = [entry.name for entry in found if entry.name in _RESERVED - {"static"}]
    if hidden:
        logger.warning("these files of %s are not served, as routes have their names: %s", folder, ", ".join(hidden))
    fine = [entry for entry in found if entry.name not in {*_RESERVED, "index.html"} and entry.name[0] not in ".{"]
    return [entry for entry in fine if entry.is_dir() or entry.is_file()]


def _file_endpoint(path: Path) -> Any:
    async def file(request: Any) -> FileResponse:
        return FileResponse(path, headers={"Cache-Control": "no-cache"})

    return file
