"""File uploads: a multipart form with the field `file`, or the file as the request body.

An upload is spooled to disk until it is complete, so that slow or large uploads do not hold memory.
Reading stops at the size limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request

from wick.server.errors import ApiError

SMALL_BYTES = 1_000_000  # a smaller file stays in memory
_BINARY = {"type": "string", "format": "binary"}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file: in the field `file` of a form, or as the request body.",
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {"file": _BINARY, "path": {"type": "string"}},
                    "required": ["file"],
                }
            },
            "application/octet-stream": {"schema": _BINARY},
        },
    }
}


@dataclass(frozen=True, slots=True)
class Upload:
    """An uploaded file, and the target path of the form."""

    file: UploadFile
    path: str = ""

    @property
    def name(self) -> str:
        return self.file.filename or ""

    @property
    def is_large(self) -> bool:
        """Return True if the file is too large to be read by several requests at once."""
        return (self.file.size or 0) > SMALL_BYTES

    async def read(self) -> bytes:
        return await self.file.read()


@asynccontextmanager
async def open_upload(request: Request, most: int) -> AsyncIterator[Upload]:
    """Open the uploaded file of a request; raise a 413 if it has more than `most` bytes."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        async with request.form(max_files=1, max_fields=4, max_part_size=10_000) as form:
            part, path = form.get("file"), form.get("path", "")
            if not isinstance(part, UploadFile):
                raise ApiError(422, "invalid", "the form has no file in its field `file`; add one")
            _check_size(part, most)
            yield Upload(part, path if isinstance(path, str) else "")
        return
    with SpooledTemporaryFile(SMALL_BYTES) as spooled:
        file = UploadFile(spooled, size=0)  # type: ignore[arg-type]
        async for chunk in request.stream():
            await file.write(chunk)
            _check_size(file, most)
        await file.seek(0)
        yield Upload(file)


def _check_size(file: UploadFile, most: int) -> None:
    if (file.size or 0) > most:
        raise ApiError(413, "too_large", f"an uploaded file may have at most {most:,} bytes")
