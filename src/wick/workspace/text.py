"""Text of files: decoding, reading by lines, and replacing text in any encoding.

build_content("a.txt", data, size=len(data), offset=0)
read_lines("a.txt", blocks, size, offset=10, limit=5)
replace_text("a.txt", data, "old", "new")
"""

from __future__ import annotations

import base64
import io
import os
from itertools import chain
from typing import Iterable, Iterator

from wick.constants import (
    BINARY_HEAD_BYTES,
    EDIT_BYTES,
    FILE_READ_BYTES,
    FILE_WRITE_BYTES,
    LINE_BYTES,
    LINES_SCAN_BYTES,
)
from wick.errors import BackendError
from wick.workspace.results import FileLines, ReadResult


def decode_line(data: bytes) -> str:
    """Decode a line as UTF-8, or as Latin-1 if nothing in it is UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode(detect_codec(data)[0], "replace")


def detect_codec(data: bytes) -> tuple[str, str]:
    """Return encoding and error handler for bytes that are not UTF-16; both round-trip all bytes."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        foreign = text.encode("ascii", "surrogateescape") != text.encode("ascii", "replace")
    except UnicodeEncodeError:  # there is UTF-8 in it
        return "utf-8", "surrogateescape"
    return ("latin-1", "strict") if foreign else ("utf-8", "surrogateescape")


def is_binary(head: bytes) -> bool:
    """Return True if a file with this beginning is binary."""
    return b"\0" in head[:BINARY_HEAD_BYTES]


def cut_at_nul(block: bytes) -> bytes:
    """Return a block up to the line with the first NUL, where its text ends."""
    cut = block.find(b"\0")
    return block if cut < 0 else block[: block.rfind(b"\n", 0, cut) + 1]


def is_argument_text(text: str) -> bool:
    """Return True if a text can be passed to a program."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def encode_content(path: str, content: str | bytes) -> bytes:
    """Return the bytes of a file to write; a text is encoded as UTF-8."""
    try:
        data = content if isinstance(content, bytes) else content.encode("utf-8")
    except UnicodeEncodeError:
        raise BackendError("the text holds half characters that cannot be written; give bytes", "invalid") from None
    if len(data) > FILE_WRITE_BYTES:
        raise BackendError(f"{path} would have {len(data)} bytes; the most is {FILE_WRITE_BYTES}", "too_large")
    return data


# -- reading --------------------------------------------------------------------------------------------------------


def build_content(path: str, data: bytes, size: int, offset: int, *, exact: bool = True) -> ReadResult:
    """Return bytes as text, or as base64 if they are not UTF-8. Unless `exact`, drop a partial last character."""
    text = None if b"\0" in data else _decode_utf8(data)
    if text is None and not exact and offset + len(data) < size and b"\0" not in data:
        shorter = next((data[:-cut] for cut in (1, 2, 3) if _decode_utf8(data[:-cut]) is not None), None)
        data, text = (data, None) if shorter is None else (shorter, _decode_utf8(shorter))
    return {
        "path": path,
        "content": base64.b64encode(data).decode() if text is None else text,
        "encoding": "base64" if text is None else "utf-8",
        "size": size,
        "offset": offset,
        "bytes": len(data),
        "truncated": offset + len(data) < size,
    }


def _decode_utf8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


def read_lines(path: str, blocks: Iterable[bytes], size: int, offset: int, limit: int | None) -> FileLines:
    """Return a range of lines from blocks of text, holding only that range in memory."""
    blocks = iter(blocks)
    first = next(blocks, b"")
    if first[:2] in _UTF16:
        if size > EDIT_BYTES:
            message = f"{path} is UTF-16 and larger than {EDIT_BYTES} bytes; read it by a command"
            raise BackendError(message, "too_large")
        data = b"".join([first, *blocks])
        first = data[2:].decode(_UTF16[data[:2]], "replace").encode("utf-8", "replace")
    elif is_binary(first):
        raise _binary_error(path)
    shown: list[str] = []
    left, more = FILE_READ_BYTES, False
    for line in _iterate_lines(chain([first], blocks), offset, path):
        if line is not None:
            shown.append(line)
            left -= len(line)
        elif len(shown) == limit or left <= 0:
            more = True
            break
    return {"path": path, "content": "".join(shown), "offset": offset, "lines": len(shown), "truncated": more}


def _iterate_lines(blocks: Iterable[bytes], offset: int, path: str) -> Iterator[str | None]:
    """Yield the lines from `offset`: first None at the start of each, then the line, truncated if very long."""
    number = scanned = lost = 0
    line, has_begun = bytearray(), False
    for block in blocks:
        scanned += len(block)
        if scanned > LINES_SCAN_BYTES:
            raise BackendError(f"{path} is too large to count its lines; read a range of its bytes", "too_large")
        ends = block.count(b"\n")
        if number + ends < offset:
            number += ends
            continue
        for piece in io.BytesIO(block):  # splits at \n only, unlike bytes.splitlines
            if number >= offset:
                if not has_begun:
                    yield None
                has_begun, room = True, LINE_BYTES - len(line)
                line += piece[:room]
                lost += len(piece[room:])
            if piece.endswith(b"\n"):
                if has_begun:
                    yield _format_line(bytes(line), lost, True)
                number, lost, line, has_begun = number + 1, 0, bytearray(), False
    if has_begun:
        yield _format_line(bytes(line), lost, False)


def _format_line(line: bytes, lost: int, ended: bool) -> str:
    if not lost:
        return decode_line(line)
    return f"{decode_line(line)}… [{lost - ended} more bytes]" + ("\n" if ended else "")


# -- editing --------------------------------------------------------------------------------------------------------


def replace_text(
    path: str, data: bytes, old: str, new: str, *, replace_all: bool = False, occurrence: str = "only"
) -> tuple[bytes, int]:
    """Return a file's bytes with a text replaced, and the number of replacements. All other bytes stay as they are.

    An old text without \\r matches both line endings, and the new text gets the endings of the replaced one.
    """
    if not old:
        raise BackendError("the old text is empty; give a text that occurs in the file", "invalid")
    if occurrence not in ("only", "first"):
        raise BackendError(f"occurrence is 'only' or 'first', not {occurrence!r}", "invalid")
    if len(data) > EDIT_BYTES:
        raise BackendError(f"{path} is larger than {EDIT_BYTES} bytes; edit it by a command", "too_large")
    mark = b""
    if data[:2] in _UTF16 and len(data) % 2 == 0:
        mark, encoding, errors = data[:2], _UTF16[data[:2]], "surrogatepass"
    elif is_binary(data):
        raise _binary_error(path)
    else:
        encoding, errors = detect_codec(data)
    edit = _Edit(data[len(mark) :].decode(encoding, errors), old, new)
    if not edit.count:
        raise BackendError("old_text not found in file", "no_match")
    if edit.count > 1 and not replace_all and occurrence == "only":
        message = f"old_text occurs {edit.count} times in {path}; give more of the text around it, or replace all"
        raise BackendError(message, "not_unique")
    count = edit.count if replace_all else 1
    if len(data) + count * 2 * len(new) > FILE_WRITE_BYTES + count * len(old):
        raise BackendError(f"{path} would be larger than {FILE_WRITE_BYTES} bytes", "too_large")
    try:
        return mark + edit.apply(count).encode(encoding, errors), count
    except UnicodeEncodeError as error:
        odd = error.object[error.start]
        raise BackendError(f"{path} is {encoding}, which cannot hold {odd!r}", "invalid") from None


def _binary_error(path: str) -> BackendError:
    return BackendError(f"{path} is a binary file, not a text", "binary")


class _Edit:
    """A text replacement that adapts line endings to those of the file."""

    def __init__(self, text: str, old: str, new: str) -> None:
        windows, every = text.count("\r\n"), text.count("\n")
        self._text, self._old, self._new = text, old, new
        self._mixed = 0 < windows < every and "\n" in old and "\r" not in old
        if self._mixed:
            self._plain = text.replace("\r\n", "\n")
            self.count = self._plain.count(old)
            return
        if windows == every and "\r" not in old:
            self._old = _to_crlf(old)
        if "\r\n" in self._old if "\n" in old else windows * 2 > every:
            self._new = _to_crlf(new)
        self.count = text.count(self._old)

    def apply(self, count: int) -> str:
        """Return the text with the first `count` occurrences replaced."""
        if not self._mixed:
            return self._text.replace(self._old, self._new, count)
        place, done, at = _OffsetMap(self._text), io.StringIO(), 0
        plain_end = 0
        for _ in range(min(count, self.count)):
            plain_start = self._plain.find(self._old, plain_end)
            plain_end = plain_start + len(self._old)
            start, end = place.to_original(plain_start), place.to_original(plain_end)
            done.write(self._text[at:start])
            done.write(_to_crlf(self._new) if "\r\n" in self._text[start:end] else self._new)
            at = end
        return done.getvalue() + self._text[at:]


def _to_crlf(text: str) -> str:
    return text if "\r" in text else text.replace("\n", "\r\n")


class _OffsetMap:
    """A map from offsets in text with \\n endings to offsets in the original; queried in ascending order."""

    def __init__(self, text: str) -> None:
        self._text, self._plain, self._real = text, 0, 0

    def to_original(self, plain: int) -> int:
        ahead = plain - self._plain
        real, before = self._real + ahead, -1
        while real != before:  # each \r\n in between shifts the offset by one
            before, real = real, self._real + ahead + self._text.count("\r\n", self._real, real)
        if self._text[real - 1 : real + 1] == "\r\n":
            real += 1
        self._plain, self._real = plain, real
        return real
