"""Files of an agent's workspace. Its backend confines all paths to the workspace."""

from __future__ import annotations

import posixpath
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from wick._internal.fast_json import encode_json
from wick.api.types import FileContent, FileListing, FileMoved, FileWritten
from wick.backends.state import State
from wick.constants import FILE_READ_BYTES, FILE_WRITE_BYTES
from wick.protocols import Backend
from wick.server.agents.builder import AgentInstance
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.http.spooling import spool_response
from wick.server.http.uploads import UPLOAD, open_upload
from wick.server.service import Service
from wick.server.strict_models import StrictModel
from wick.workspace.results import ReadResult

router = APIRouter(tags=["files"], route_class=JsonRoute)

PIECE_BYTES = 128_000  # read at once for a download; each slow client holds a few in memory
SMALL_BYTES = 250_000  # a larger read takes the lock of large files
DOWNLOAD_HEADERS = {"Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff"}

FilePath = Annotated[str, Query(max_length=4_096, description="relative to the workspace")]
Thread = Annotated[str, Query(description="the thread of the files, if the backend stores files in threads")]


class FileWrite(StrictModel):
    """A file to write. An existing file is replaced."""

    path: str = Field(min_length=1, max_length=4_096)
    content: str
    encoding: Literal["utf-8", "base64"] = "utf-8"


class FileMove(StrictModel):
    """A file or a folder to move or rename. An existing target is not replaced."""

    source: str = Field(min_length=1, max_length=4_096)
    target: str = Field(min_length=1, max_length=4_096)


class FileJSONResponse(JSONResponse):
    """JSON that may contain file names which are not valid UTF-8."""

    def render(self, content: Any) -> bytes:
        return encode_json(content)


@router.get("/agents/{id}/files/list", response_model=FileListing)
async def list_files(id: str, caller: Caller, wick: Wick, path: FilePath = ".", thread_id: Thread = "") -> Response:
    """List a folder of your workspace."""
    async with _open_for_reading(wick, caller, id, thread_id) as backend:
        return FileJSONResponse(await backend.ls(path or "."))


@router.get("/agents/{id}/files/read", response_model=FileContent)
async def read_file(
    id: str,
    caller: Caller,
    wick: Wick,
    path: FilePath,
    thread_id: Thread = "",
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int | None, Query(ge=0, le=FILE_READ_BYTES)] = None,
) -> Response:
    """Read bytes of a workspace file."""
    async with _open_for_reading(wick, caller, id, thread_id) as backend:
        wanted = FILE_READ_BYTES if limit is None else limit
        found = await backend.read(path, offset=offset, limit=min(wanted, SMALL_BYTES))
        if not found["truncated"] or wanted <= SMALL_BYTES:
            return FileJSONResponse(found)
        del found
        async with wick.files:
            return await spool_response(FileJSONResponse(await backend.read(path, offset=offset, limit=limit)))


@router.put("/agents/{id}/files/write", response_model=FileWritten)
async def write_file(id: str, body: FileWrite, caller: Caller, wick: Wick) -> Response:
    """Write a workspace file, and create missing folders."""
    async with _open_for_writing(wick, caller, id) as backend:
        content: str | bytes = body.content
        if body.encoding == "base64":
            try:
                content = b64decode(body.content, validate=True)
            except (NotBase64, ValueError):
                raise ApiError(422, "invalid", "the content is not valid base64") from None
        return FileJSONResponse(await backend.write(body.path, content))


@router.post("/agents/{id}/files/upload", status_code=201, response_model=FileWritten, openapi_extra=UPLOAD)
async def upload_file(
    request: Request,
    id: str,
    caller: Caller,
    wick: Wick,
    path: Annotated[
        str, Query(max_length=4_096, description="the target; the default is the path of the form, or the file name")
    ] = "",
) -> Response:
    """Upload a file to your workspace: in the field `file` of a form, or as the request body."""
    async with _open_for_writing(wick, caller, id) as backend, open_upload(request, FILE_WRITE_BYTES) as file:
        target = path or file.path or posixpath.basename(file.name.replace("\\", "/"))
        if not target:
            raise ApiError(422, "invalid", "the file has no target; add ?path=")
        async with wick.files if file.is_large else nullcontext():
            return FileJSONResponse(await backend.write(target, await file.read()), 201)


@router.get(
    "/agents/{id}/files/download",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def download_file(id: str, caller: Caller, wick: Wick, path: FilePath, thread_id: Thread = "") -> Response:
    """Download a workspace file."""
    instance = await wick.registry.get_agent(caller, id)
    backend = await _readable_backend(instance, thread_id)
    with instance.hold():
        first = await backend.read(path, limit=PIECE_BYTES)
    name = posixpath.basename(path.rstrip("/")).encode("utf-8", "replace")
    headers = {**DOWNLOAD_HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return StreamingResponse(
        _read_pieces(instance, backend, first), headers=headers, media_type="application/octet-stream"
    )


@router.post("/agents/{id}/files/move", response_model=FileMoved)
async def move_file(id: str, body: FileMove, caller: Caller, wick: Wick) -> Response:
    """Move or rename a file or a folder of your workspace."""
    async with _open_for_writing(wick, caller, id) as backend:
        await backend.move(body.source, body.target)
        return FileJSONResponse({"path": body.target})


@router.delete("/agents/{id}/files", status_code=204)
async def delete_file(id: str, caller: Caller, wick: Wick, path: FilePath, recursive: bool = False) -> None:
    """Delete a file or a folder of your workspace."""
    async with _open_for_writing(wick, caller, id) as backend:
        await backend.delete(path, recursive=recursive)


@asynccontextmanager
async def _open_for_reading(wick: Service, user: User, id: str, thread_id: str) -> AsyncIterator[Backend]:
    instance = await wick.registry.get_agent(user, id)
    with instance.hold():
        yield await _readable_backend(instance, thread_id)


async def _readable_backend(instance: AgentInstance, thread_id: str) -> Backend:
    """Return the backend of an agent. If it stores files in threads, return that of the thread."""
    backend = _require_backend(instance)
    if not isinstance(backend, State) or not thread_id:
        return backend
    return backend.of(await instance.sessions.load(thread_id, owner=instance.user_id))


@asynccontextmanager
async def _open_for_writing(wick: Service, user: User, id: str) -> AsyncIterator[Backend]:
    instance = await wick.registry.get_agent(user, id)
    backend = _require_backend(instance)
    if isinstance(backend, State):
        raise ApiError(409, "conflict", f"the files of {id!r} are stored in threads; ask the agent to change them")
    with instance.hold():
        yield backend
    wick.file_changes.report(user.id, id)


def _require_backend(instance: AgentInstance) -> Backend:
    backend = instance.backend
    if backend is None:
        raise ApiError(409, "conflict", f"the agent {instance.id!r} has no workspace; switch its backend")
    return backend


async def _read_pieces(instance: AgentInstance, backend: Backend, piece: ReadResult) -> AsyncIterator[bytes]:
    """Yield a file in pieces. A file that shrinks meanwhile ends early."""
    with instance.hold():
        while True:
            data = b64decode(piece["content"]) if piece["encoding"] == "base64" else piece["content"].encode()
            yield data
            if not piece["truncated"] or not data:
                return
            piece = await backend.read(piece["path"], offset=piece["offset"] + piece["bytes"], limit=PIECE_BYTES)
