"""Request fuzzer: requests generated from the OpenAPI document and the route table.

flood = Flood(document, random.Random(7), bird, known)
made = flood.next()      # its bytes, what it is, and whether something follows it on its connection
"""

from __future__ import annotations

import gzip
import os
import random
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import quote

from faults.access_matrix import WHOSE
from faults.canary import Canary
from faults.json_fuzzer import Nonsense, written
from faults.raw_http import Header, request
from server_process import TOKENS
from wick.server.auth.access_table import ACCESS

PEOPLE = ("ada",) * 15 + ("bob", "olga", "olga", "root", "")
# Admin requests there are obeyed, including programs and addresses; others are refused.
OBEYED = ("/agents/", "/agents/{id}/hooks", "/replay", "/drain")
METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "BREW",
    "get",
    "CONNECT",
    "PRI",
    "G" * 300,
)
TYPES = (
    "text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data", "image/svg+xml",
    "application/json; charset=utf-7", "multipart/form-data; boundary=", "multipart/form-data; boundary=x", "", "\xff",
    "application/octet-stream", "application/json;" * 50, "application/vnd.api+json", "*/*", "json", "text/yaml",
)  # fmt: skip
PATHS = (
    "/", "//", "/..", "/%", "/%zz", "/%00", "/static/../server.py", "/static/%2e%2e/%2e%2e/access.py", "/agents//",
    "/static//etc/passwd", "/threads/%ff", "/docs/", "/openapi.json/", "/health?x=" + "y" * 9_000, "/.git/config",
    "/static/" + "a/" * 2_000, "*", "http://localhost/health", "/agents/default/files/read", "/ws", "/\xff\xfe", "/a b",
    "/?ticket=%00", "/#x", "/static/\0",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Made:
    """A request; `last` if nothing can follow it, `odd` if it is no HTTP, so that the server may just hang up."""

    raw: bytes
    label: str
    last: bool = False
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path with its documented parameters."""

    method: str
    path: str
    said: Mapping[str, Any]


def operations(document: Mapping[str, Any]) -> list[Operation]:
    """Return documented operations and undocumented routes."""
    found = [
        Operation(method.upper(), path, said)
        for path, methods in document["paths"].items()
        for method, said in methods.items()
    ]
    known = {(one.method, one.path) for one in found}
    return found + [Operation(method, path, {}) for method, path, _ in ACCESS if (method, path) not in known]


class Flood:
    """Makes one request after the other, by chance."""

    def __init__(
        self, document: Mapping[str, Any], chance: random.Random, bird: Canary, known: Mapping[str, Sequence[str]]
    ) -> None:
        self.document, self.chance, self.known = document, chance, known
        self.operations = operations(document)
        self.nonsense = Nonsense(chance, [*bird.addresses, *bird.texts], known)

    def next(self) -> Made:
        how = self.chance.random()
        if how < 0.84:
            return self._operation(self.chance.choice(self.operations))
        if how < 0.90:
            return self._method()
        return self._path() if how < 0.96 else self._framed()

    # -- documented requests ------------------------------------------------------------------------------------------

    def _operation(self, one: Operation) -> Made:
        who = self.chance.choice(PEOPLE)
        if who == "root" and one.path in OBEYED:
            who = "ada"
        path, query, headers = self._filled(one), [], [*self._who(who)]
        for parameter in one.said.get("parameters", ()):
            self._parameter(parameter, query, headers)
        if self.chance.random() < 0.05:
            query.append((self.nonsense.word(), self.nonsense.word()))
        body = self._body(one, headers)
        address = path + ("?" + "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in query) if query else "")
        return Made(request(one.method, address, *headers, body=body), f"{who} {one.method} {address[:150]}")

    def _who(self, who: str) -> list[Header]:
        return [("Host", "localhost"), *([("Authorization", f"Bearer {TOKENS[who]}")] if who else [])]

    def _filled(self, one: Operation) -> str:
        def id_of(at: re.Match[str]) -> str:
            kind = WHOSE.get(one.path[: at.end()], "")
            there = self.known.get(kind, ())
            return self.chance.choice(there) if there and self.chance.random() < 0.7 else self._segment()

        return re.sub(r"\{\w+(?::path)?\}", id_of, one.path)

    def _segment(self) -> str:
        """A part of a path; now and then as it is, mostly in percents."""
        word = self.nonsense.word()[:300]
        if self.chance.random() < 0.1:
            return "".join(char for char in word if "!" <= char <= "\xff" and char not in "?#")
        return _quoted(word)

    def _parameter(self, parameter: Mapping[str, Any], query: list[tuple[str, Any]], headers: list[Header]) -> None:
        if parameter["in"] == "path" or not (parameter.get("required") or self.chance.random() < 0.5):
            return
        value = self.nonsense.fitting(parameter.get("schema", {}), self.document, name=parameter["name"])
        if self.chance.random() < 0.3:
            value = self.nonsense.anything(1)
        if parameter["in"] == "header":
            headers.append((parameter["name"], _plain(value).encode("utf-8", "replace").translate(None, b"\r\n\0")))
        else:
            query += [(parameter["name"], value)] * (2 if self.chance.random() < 0.05 else 1)

    def _body(self, one: Operation, headers: list[Header]) -> bytes | None:
        kinds = one.said.get("requestBody", {}).get("content", {})
        if not kinds:
            return self.nonsense.bent(b"{}") if self.chance.random() < 0.05 else None
        kind = self.chance.choice([*kinds])
        body = self._of_type(kind, kinds[kind].get("schema", {}), one, headers)
        if self.chance.random() < 0.03:
            headers.append(("Content-Encoding", self.chance.choice(("gzip", "deflate", "br", "zstd", "x"))))
            body = gzip.compress(body) if self.chance.random() < 0.5 else body
        return body

    def _of_type(self, kind: str, schema: Any, one: Operation, headers: list[Header]) -> bytes:
        if self.chance.random() < 0.06:
            headers.append(("Content-Type", self.chance.choice(TYPES)))
            return self.nonsense.text(schema, self.document)
        if kind == "multipart/form-data":
            headers.append(("Content-Type", "multipart/form-data; boundary=edge"))
            return self._form()
        headers.append(("Content-Type", kind))
        if kind == "application/octet-stream":
            return self._file()
        body = self.nonsense.text(schema, self.document)
        return _here(body) if one.path.endswith("/backend") else body

    def _form(self) -> bytes:
        name = self.nonsense.word().encode("utf-8", "replace").replace(b'"', b"%22").translate(None, b"\r\n")
        field = self.chance.choice((b"file", b"file", b"file", b"path", b"x", name))
        head = b'Content-Disposition: form-data; name="%s"; filename="%s"' % (field, name)
        parts = [b"--edge", head, b"Content-Type: text/plain", b"", self._file(), b"--edge--", b""]
        made = b"\r\n".join(parts)
        return (
            self.nonsense.bent(made.decode("latin-1").encode("ascii", "replace"))
            if self.chance.random() < 0.2
            else made
        )

    def _file(self) -> bytes:
        """A file to be uploaded: bytes, a skill, or an archive with names that lead elsewhere."""
        how = self.chance.random()
        if how < 0.3:
            return self.chance.randbytes(self.chance.randrange(2_000))
        front = f"---\nname: {self.nonsense.word()}\ndescription: {self.nonsense.word()}\n---\n{self.nonsense.word()}\n"
        skill = front.encode("utf-8", "replace")
        return skill if how < 0.6 else self._archive(skill)

    def _archive(self, skill: bytes) -> bytes:
        file = BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("SKILL.md", skill)
            name = self.nonsense.word().encode("utf-8", "replace").decode() or "x"
            info = zipfile.ZipInfo(name)
            info.external_attr = self.chance.choice((0o100644, 0o120777, 0o104755, 0o010644)) << 16
            archive.writestr(info, self.chance.choice((b"x", b"/etc/passwd", b"\0" * 100_000)))
        made = file.getvalue()
        return made if self.chance.random() < 0.8 else made[: self.chance.randrange(len(made))]

    # -- undocumented requests ----------------------------------------------------------------------------------------

    def _method(self) -> Made:
        one = self.chance.choice(self.operations)
        method = self.chance.choice(METHODS)
        raw = request(method, self._filled(one), *self._who("ada"), body=self.chance.choice((None, b"", b"{}")))
        odd = method in ("CONNECT", "PRI") or len(method) > 20
        return Made(raw, f"{method[:20]} {one.path}", last=odd, odd=odd)

    def _path(self) -> Made:
        path = self.chance.choice(PATHS) if self.chance.random() < 0.7 else "/" + self._segment()
        odd = any(not "!" <= char <= "~" for char in path) or path[:1] != "/"
        return Made(request("GET", path, *self._who("ada")), f"GET {path[:100]}", last=odd, odd=odd)

    def _framed(self) -> Made:
        """Return invalid HTTP: lengths, chunks, headers."""
        head = (
            b"POST /agents/plain/invoke HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + TOKENS["ada"].encode()
        )
        text = written({"messages": [{"role": "user", "content": self.nonsense.word()}]})
        size, noise = b"%d" % len(text), self.chance.randbytes(self.chance.randrange(1, 60))
        ways: Mapping[str, bytes] = {
            "too short": b"\r\nContent-Length: %d\r\n\r\n" % (len(text) + 50) + text,
            "too long": b"\r\nContent-Length: 3\r\n\r\n" + text,
            "no length": b"\r\nContent-Length: x\r\n\r\n" + text,
            "two lengths": b"\r\nContent-Length: 2\r\nContent-Length: " + size + b"\r\n\r\n" + text,
            "huge": b"\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n" + text,
            "no piece": b"\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + text,
            "half a piece": b"\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n" + text,
            "a huge piece": b"\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n" + text,
            "both": b"\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "an invalid header": b"\r\n" + noise + b"\r\nContent-Length: " + size + b"\r\n\r\n" + text,
            "many headers": b"\r\n" + b"X-Y: z\r\n" * self.chance.randrange(3_000) + b"Content-Length: 0\r\n\r\n",
            "a long header": b"\r\nX: " + b"x" * self.chance.randrange(200_000) + b"\r\nContent-Length: 0\r\n\r\n",
            "continue": b"\r\nExpect: 100-continue\r\nContent-Length: " + size + b"\r\n\r\n" + text,
            "an upgrade": b"\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: " + size + b"\r\n\r\n" + text,
            "the end": b"",
        }
        name = self.chance.choice([*ways])
        return Made(head + ways[name], f"framing: {name}", last=True, odd=True)


def _here(body: bytes) -> bytes:
    """Not on an engine, which takes its time and may not be there."""
    return body.replace(b'"remote"', b'"local"')


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else written(value)[:2_000].decode("ascii")


def _quoted(value: Any) -> str:
    return quote(_plain(value).encode("utf-8", "surrogatepass")[:3_000], safe="")


# -- messages over a WebSocket ----------------------------------------------------------------------------------------

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA


def frame(code: int, data: bytes, *, fin: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    """A frame as a client sends it, or as it must not."""
    head = bytes([(0x80 if fin else 0) | reserved << 4 | code])
    size = len(data)
    bit = 0x80 if masked else 0
    if size < 126:
        head += bytes([bit | size])
    else:
        small = size < 65_536
        head += bytes([bit | (126 if small else 127)]) + size.to_bytes(2 if small else 8, "big")
    if not masked:
        return head + data
    key = os.urandom(4)
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(data))


def messages(chance: random.Random, nonsense: Nonsense) -> bytes:
    """Return messages to a terminal: input, control messages and invalid frames."""
    size = {"type": "string"}, {"type": "integer", "minimum": -5, "maximum": 2_000}
    resize = {"type": "object", "properties": {"type": size[0], "rows": size[1], "columns": size[1]}}
    ways: list[Callable[[], bytes]] = [
        lambda: frame(BINARY, b"\x01" + nonsense.text(resize)),
        lambda: frame(BINARY, b"\x01" + written({"type": "resize", "rows": nonsense.anything(1), "columns": 80})),
        lambda: frame(TEXT, chance.randbytes(chance.randrange(20))),
        lambda: frame(TEXT, "é🦊\0".encode()),
        lambda: frame(BINARY, chance.randbytes(chance.randrange(100))),
        lambda: frame(BINARY, b""),
        lambda: frame(PING, b"x" * chance.randrange(125)),
        lambda: frame(PONG, b""),
        lambda: frame(BINARY, b"x" * 70_000),
        lambda: frame(TEXT, b"half", fin=False),
        lambda: frame(0, b"the rest"),
    ]
    wrong: list[Callable[[], bytes]] = [
        lambda: frame(chance.randrange(16), b"x", reserved=chance.randrange(8)),
        lambda: frame(TEXT, b"x", masked=False),
        lambda: frame(CLOSE, chance.randbytes(chance.randrange(10))),
        lambda: b"\x82\xff" + b"\xff" * 8 + b"xxxx",
        lambda: chance.randbytes(chance.randrange(1, 50)),
    ]
    made = b"".join(chance.choice(ways)() for _ in range(chance.randrange(1, 8)))
    return made + chance.choice(wrong)()
