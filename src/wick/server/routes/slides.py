"""Export of slides to PowerPoint."""

from __future__ import annotations

import posixpath
import re
from types import ModuleType
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field, model_validator

from wick._internal.worker_threads import run_in_thread
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
DECK_BYTES = 1_000_000  # of Markdown

router = APIRouter(tags=["slides"], route_class=JsonRoute)


class SlidesExport(BaseModel):
    """A slides document: its path in the workspace, or its text. If both are given, the text is used.

    Pictures are read from the folder of `path`.
    """

    path: str = Field("", max_length=4_096)
    content: str = Field("", max_length=DECK_BYTES)

    @model_validator(mode="after")
    def _check_given(self) -> SlidesExport:
        if not self.path and not self.content:
            raise ValueError("give the path of the document, or its content")
        return self


_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "a .pptx file"}
}


@router.post("/agents/{id}/slides/export", response_class=Response, responses=_RESPONSES)
async def export_slides(id: str, asked: SlidesExport, caller: Caller, wick: Wick) -> Response:
    """Export a slides document to a PowerPoint file, with native tables and charts."""
    backend = (await wick.registry.get_agent(caller, id)).backend
    text = asked.content
    if not text:
        if backend is None:
            raise ApiError(409, "no_workspace", f"agent {id} has no workspace; send the document as content")
        read = await backend.read(asked.path, limit=DECK_BYTES)
        if read["truncated"] or read["encoding"] != "utf-8":
            raise ApiError(415, "not_text", f"{asked.path} is not UTF-8 text, or longer than {DECK_BYTES:,} bytes")
        text = read["content"]
    deck = await run_in_thread(_import_exporter, "slides")
    data = await deck.export(text, backend, posixpath.dirname(asked.path))
    name = re.sub(r"[^\w.-]+", "-", posixpath.splitext(posixpath.basename(asked.path))[0], flags=re.ASCII) or "slides"
    headers = {"Content-Disposition": f'attachment; filename="{name}.pptx"'}
    return Response(data, media_type=MEDIA_TYPE, headers=headers)


def _import_exporter() -> ModuleType:
    """Import the exporter on first use: it is slow to import and rarely needed."""
    from wick.server.ops import pptx_export as deck

    return deck
