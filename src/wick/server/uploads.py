"""A file that comes with a request: as a form, or as the body itself. What is too large is not read to its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from weakref import WeakValueDictionary

from starlette.datastructures import UploadFile
from starlette.requests import Request

from wick.server.errors import ApiError

_BINARY = {"type": "string", "format": "binary"}
UPLOAD: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The file: in the field `file` of a form, or as the body itself.",
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
class Uploaded:
    """The bytes, and what the form said about them."""

    data: bytes
    name: str = ""
    path: str = ""


class Turns:
    """One file of a user is in memory at a time, and the others wait: nobody fills the memory of all."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, user: str) -> asyncio.Lock:
        return self._locks.setdefault(user, asyncio.Lock())


async def uploaded(request: Request, most: int) -> Uploaded:
    """The file of a request, of at most so many bytes."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "multipart/form-data":
        return await _of_form(request, most)
    data = BytesIO()  # whose bytes are taken out without a copy
    async for chunk in request.stream():
        data.write(chunk)
        if data.tell() > most:
            raise _too_large(most)
    return Uploaded(data.getvalue())


async def _of_form(request: Request, most: int) -> Uploaded:
    async with request.form(max_files=1, max_fields=4, max_part_size=10_000) as form:
        file, path = form.get("file"), form.get("path", "")
        if not isinstance(file, UploadFile):
            raise ApiError(422, "invalid", "the form has no file in its field `file`")
        data = await file.read(most + 1)
    if len(data) > most:
        raise _too_large(most)
    return Uploaded(data, file.filename or "", path if isinstance(path, str) else "")


def _too_large(most: int) -> ApiError:
    return ApiError(413, "too_large", f"a file has at most {most:,} bytes here")
