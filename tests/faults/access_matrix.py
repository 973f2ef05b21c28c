"""Access matrix: every route of the app × credential × owner of the ids. Rows are generated from the routes.

An incomplete row raises Violated: a route without a role, a path variable without a declared owner kind, or a route
that changes private data and has no request body here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from faults.raw_http import Header, request
from faults.tally import Violated
from server_process import TOKENS, InProcessServer, ServerProcess, open_client, read_events
from wick.server.auth.access_table import ACCESS, Access
from wick.server.auth.signed_cookies import secret_id
from wick.server.records import Records

UNKNOWN = "unknown-id"
SECRET = "hush"
HOST = ("Host", "localhost")
JSON = ("Content-Type", "application/json")
ADMIN = TOKENS["root"]
BEARER = f"Bearer {ADMIN}"

# The kind of a private id, by the path up to it.
WHOSE: Mapping[str, str] = {
    "/evals/{name}": "eval",
    "/agents/{id}": "agent",
    "/agents/{id}/permissions/grants/{grant}": "grant",
    "/agents/tools/{name}": "tool",
    "/approvals/{id}": "approval",
    "/runs/{id}": "run",
    "/runs/{id}/spans/{path}": "span",
    "/settings/providers/{provider}": "setting",
    "/settings/tokens/{token}": "setting",
    "/threads/{id}": "thread",
    "/threads/{id}/calls/{call_id}": "call",
    "/threads/{id}/shares/{share}": "share",
    "/v1/models/{id}": "agent",
}
SAY = {"messages": [{"role": "user", "content": "x"}]}
PLACES = {"span": "0.0.0"}  # the first model call of any run; it is not private
# Bodies with which each route would change private data, if it were allowed.
BODIES: Mapping[tuple[str, str], Any] = {
    ("PUT", "/agents/{id}"): {
        "model": "demo",
        "backend": {"type": "local"},
        "recorder": True,
        "skills": True,
        "snapshots": True,
    },
    ("PUT", "/settings/providers/{provider}"): {"api_key": "sk-0123456789abcdef"},
    ("POST", "/settings/providers/{provider}/test"): {"api_key": "sk-0123456789abcdef"},
    ("POST", "/agents/{id}/invoke"): SAY,
    ("POST", "/agents/{id}/stream"): SAY,
    ("PATCH", "/agents/{id}/backend"): {"mode": "local"},
    ("POST", "/agents/{id}/container"): {"action": "stop"},
    ("POST", "/agents/{id}/files/move"): {"source": "moving.txt", "target": "moved.txt"},
    ("POST", "/agents/{id}/files/upload"): b"x",
    ("PUT", "/agents/{id}/files/write"): {"path": "x", "content": "x"},
    ("PATCH", "/agents/{id}/hooks"): {"hooks": {}},
    ("PATCH", "/agents/{id}/skills"): {},
    ("POST", "/agents/{id}/skills"): b"---\nname: mine\ndescription: Mine.\n---\nDo it.\n",
    ("POST", "/agents/{id}/slides/export"): {"content": "# A deck\n"},
    ("POST", "/approvals/{id}"): {"choice": "deny"},
    ("POST", "/runs/{id}/cancel"): {},
    ("PATCH", "/threads/{id}"): {"title": "x"},
    ("POST", "/threads/{id}/files/restore"): {"seq": 0},
    ("POST", "/threads/{id}/fork"): {},
    ("POST", "/threads/{id}/messages"): SAY,
    ("POST", "/threads/{id}/rewind"): {"to": 1},
    ("POST", "/threads/{id}/shares"): {},
    ("POST", "/threads/{id}/switch"): {"to": 1},
}
QUERIES = {"/search": "q=hush", "/files/list": "path=.", "/files/upload": "path=up.txt", "/files": "path=secret.txt"}


@dataclass(frozen=True, slots=True)
class Row:
    """One route, its role, and the kinds of its path variables."""

    method: str
    path: str
    access: Access
    kinds: tuple[str, ...] = ()

    def request(self, *headers: Header, ids: Mapping[str, str] | None = None, query: str = "") -> bytes:
        """A request to it with these ids in the place of its variables, which would work if it were let in."""
        path = filled(self.path, ids or {})
        query = "&".join(filter(None, [self._query(), query]))
        body = BODIES.get((self.method, self.path))
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = [*headers, *([JSON] if isinstance(body, dict) else [])]
        given += [("If-Match", "1")] if (self.method, self.path) == ("PUT", "/agents/{id}") else []
        return request(self.method, path + (f"?{query}" if query else ""), *given, body=data)

    def _query(self) -> str:
        return next((query for part, query in QUERIES.items() if part in self.path), "")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def rows(places: Iterable[tuple[str, str]], table: Iterable[tuple[str, str, Access]] = ACCESS) -> list[Row]:
    """Return the rows of the matrix; raise Violated for a route without known parameters."""
    roles = {(method, path): access for method, path, access in table}
    return [_row(method, path, roles) for method, path in places]


def _row(method: str, path: str, roles: Mapping[tuple[str, str], Access]) -> Row:
    if (method, path) not in roles:
        raise Violated(f"{method} {path} is not in the matrix: its role is not declared")
    kinds = tuple(_kind(path, at) for at in re.finditer(r"\{\w+\}", path))
    if kinds and method in ("POST", "PUT", "PATCH") and (method, path) not in BODIES:
        raise Violated(f"{method} {path} is not in the matrix: it has no request body")
    return Row(method, path, roles[method, path], kinds)


def _kind(path: str, at: re.Match[str]) -> str:
    if path[: at.end()] not in WHOSE:
        raise Violated(f"{path} is not in the matrix: the kind of {at[0]} is not declared")
    return WHOSE[path[: at.end()]]


def filled(path: str, ids: Mapping[str, str]) -> str:
    """A path with ids in the place of its variables."""

    def id_of(at: re.Match[str]) -> str:
        kind = WHOSE.get(path[: at.end()], "")
        return PLACES.get(kind) or ids.get(kind, UNKNOWN)

    return re.sub(r"\{\w+(?::path)?\}", id_of, path)


# -- credentials ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """A credential of a request and its refusal; `at` limits it to methods."""

    headers: tuple[Header, ...]
    refused: tuple[int, ...] = (401,)
    query: str = ""
    at: tuple[str, ...] = ()
    public: bool = False  # public routes refuse it, too


def _no_good(*values: str | bytes) -> Shown:
    return Shown((HOST, *(("Authorization", value) for value in values)))


def _origin(*values: str) -> Shown:
    return Shown((HOST, ("Authorization", BEARER), *(("Origin", value) for value in values)), (403, 400), public=True)


def _host(*values: str) -> Shown:
    hosts = tuple(("Host", value) for value in values)
    return Shown((*hosts, ("Authorization", BEARER)), (421, 400), public=True)


NO_CREDENTIAL: Mapping[str, Shown] = {
    "nothing": Shown((HOST,)),
    "a wrong token": _no_good("Bearer wrong"),
    "an empty token": _no_good("Bearer "),
    "a scheme alone": _no_good("Bearer"),
    "a token alone": _no_good(ADMIN),
    "half a token": _no_good(BEARER[:-1]),
    "a token and more": _no_good(BEARER + "x"),
    "a token in capitals": _no_good(BEARER.upper()),
    "a token in quotes": _no_good(f'Bearer "{ADMIN}"'),
    "a long token": Shown((HOST, ("Authorization", "Bearer " + "x" * 20_000)), (401, 400)),
    "bytes": _no_good(b"Bearer \xff\xfe" + ADMIN.encode()),
    "Basic": _no_good("Basic cm9vdDpyb290"),
    "another scheme": _no_good(f"Token {ADMIN}"),
    "the header twice": _no_good(BEARER, BEARER),
    "a wrong one beside it": _no_good("Bearer wrong", BEARER),
    "two in one": _no_good(f"Bearer wrong, {BEARER}"),
    "another header": Shown((HOST, ("X-Api-Key", ADMIN), ("Proxy-Authorization", BEARER), ("X-Auth-Token", ADMIN))),
    "who was forwarded": Shown((HOST, ("X-Forwarded-User", "root"), ("X-User", "root"), ("Remote-User", "root"))),
    "a wrong cookie": Shown((HOST, ("Cookie", "wick_session_0=wrong"))),
    "a token in a cookie": Shown((HOST, ("Cookie", f"wick_session_0={ADMIN}; token={ADMIN}"))),
    "an invalid cookie": Shown((HOST, ("Cookie", 'wick_session_0="\\400\\777; ;;='))),
    "a token in a protocol": Shown((HOST, ("Sec-WebSocket-Protocol", f"bearer, {ADMIN}"))),
    "a token as a ticket": Shown((HOST,), query=f"ticket={ADMIN}"),
    "an empty ticket": Shown((HOST,), query="ticket="),
    "a token in the address": Shown((HOST,), query=f"token={ADMIN}&access_token={ADMIN}&authorization=Bearer+{ADMIN}"),
}
ELSEWHERE: Mapping[str, Shown] = {
    "another origin": _origin("https://evil.example"),
    "no origin at all": _origin("null"),
    "an empty origin": _origin(""),
    "an origin that begins alike": _origin("http://localhost.evil.example"),
    "another port": _origin("http://localhost:1"),
    "a file": _origin("file://"),
    "two origins": _origin("http://localhost", "https://evil.example"),
    "another host": _host("evil.example"),
    "a host that begins alike": _host("localhost.evil.example"),
    "a host with a user": _host("evil@localhost"),
    "a list of hosts": _host("localhost, evil.example"),
    "two hosts": _host("localhost", "evil.example"),
    "no host": _host(),
}


async def used_up(server: ServerProcess | InProcessServer, records: Records) -> dict[str, Shown]:
    """Return credentials that were valid once or elsewhere: tickets and cookies of an admin."""
    async with open_client(server, "root") as root:
        used, expired, good = [await _ticket(root) for _ in range(3)]
        async with open_client(server, "") as visitor, visitor.get(f"/auth/me?ticket={used}") as answer:
            assert answer.status == 200, "a ticket is good once"
    await _expire(records, expired)
    over, cookie = await _cookie(server, "root"), await _cookie(server, "root")
    async with open_client(server, "", Cookie=over) as browser, browser.delete("/auth/session") as answer:
        assert answer.status == 204
    changing = ("POST", "PUT", "PATCH", "DELETE")
    return {
        "a used ticket": Shown((HOST,), query=f"ticket={used}"),
        "an expired ticket": Shown((HOST,), query=f"ticket={expired}"),
        "a ticket twice": Shown((HOST,), query=f"ticket={good}&ticket={good}"),
        "a ticket that would change something": Shown((HOST,), query=f"ticket={good}", at=changing),
        "a ticket as a token": _no_good(f"Bearer {good}"),
        "a cookie as a token": _no_good(f"Bearer {cookie.partition('=')[2]}"),
        "a cookie that was signed out": Shown((HOST, ("Cookie", over))),
        "a cookie twice": Shown((HOST, ("Cookie", cookie), ("Cookie", cookie))),
        "a cookie beside a wrong token": Shown((HOST, ("Cookie", cookie), ("Authorization", "Bearer wrong"))),
        "a cookie from another origin": Shown(
            (HOST, ("Cookie", cookie), ("Origin", "https://evil.example")), (403,), public=True
        ),
        "a cookie at another host": Shown((("Host", "evil.example"), ("Cookie", cookie)), (421,), public=True),
    }


async def _ticket(client: aiohttp.ClientSession) -> str:
    async with client.post("/auth/tickets") as answer:
        return str((await answer.json())["ticket"])


async def _expire(records: Records, ticket: str) -> None:
    """Advance the clock by half a minute."""
    found = await records.take("ticket", secret_id(ticket))
    assert found is not None
    await records.put("ticket", found[0], secret_id(ticket), found[1], until=1.0)


async def _cookie(server: ServerProcess | InProcessServer, user: str) -> str:
    async with (
        open_client(server, "") as browser,
        browser.post("/auth/session", json={"token": TOKENS[user]}) as answer,
    ):
        return answer.headers["Set-Cookie"].partition(";")[0]


async def other_users(server: ServerProcess | InProcessServer) -> dict[str, tuple[Header, ...]]:
    """Return other signed-in users, for every way to sign in; none is ada."""
    cookie = ("Cookie", await _cookie(server, "bob"))
    return {
        "bob": (HOST, ("Authorization", f"Bearer {TOKENS['bob']}")),
        "bob, with a cookie and no origin": (HOST, cookie),
        "bob, with a cookie": (HOST, cookie, ("Origin", "http://localhost")),
        "olga": (HOST, ("Authorization", f"Bearer {TOKENS['olga']}")),
        "root": (HOST, ("Authorization", BEARER)),
    }


def credentials(shown: Mapping[str, Shown], row: Row) -> Iterator[tuple[str, Shown]]:
    """Return the credentials to try at a route; at public routes only foreign origins."""
    for name, one in shown.items():
        if (row.access != "public" or one.public) and (not one.at or row.method in one.at):
            yield name, one


# -- private data -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Things:
    """Objects of ada (and a tool of olga), by the kind of their ids."""

    ids: dict[str, str] = field(default_factory=dict)
    user: str = ""

    def only(self, kind: str) -> dict[str, str]:
        """Return ids with only one private id, and shared ids for the other kinds."""
        return {"agent": "default", kind: self.ids[kind]}


async def furnish(server: ServerProcess | InProcessServer) -> Things:
    """Ada gets an agent, files, a thread with a run, a trace, a call and a link, a grant, and a question that waits."""
    things = Things()
    async with open_client(server, "ada") as ada:
        made = {"agent_id": "adas", "model": "demo", "backend": {"type": "local"}, "recorder": True, "skills": True}
        made["snapshots"] = True
        await _done(ada, "POST", "/agents/", made)
        things.user = (await _done(ada, "GET", "/auth/me"))["id"]
        said = await _said(ada, "adas", f"Write the secret word {SECRET} into secret.txt")
        things.ids |= {"agent": "adas", **said}
        things.ids["share"] = (await _done(ada, "POST", f"/threads/{said['thread']}/shares"))["id"]
        await _done(ada, "PUT", "/agents/adas/files/write", {"path": "moving.txt", "content": "x"})
        asked = await _asked(ada, "Run the command: ls")
        await _done(ada, "POST", f"/approvals/{asked['approval']}", {"choice": "allow_always"})
        granted = await _done(ada, "GET", "/agents/default/permissions")
        things.ids["grant"] = granted["grants"][0]["id"]
        things.ids["approval"] = (await _asked(ada, "Run the command: pwd"))["approval"]
    async with open_client(server, "olga") as olga:
        tool = {"name": "olgas", "description": "Hers.", "parameters": {"type": "object"}, "shared": False}
        await _done(olga, "POST", "/agents/tools/", {**tool, "callback_url": "http://127.0.0.1:9"})
        things.ids["tool"] = "olgas"
    return things


async def _done(client: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    async with client.request(method, path, json=body) as answer:
        assert answer.status < 300, (method, path, await answer.text())
        return await answer.json()


async def _said(client: aiohttp.ClientSession, agent: str, words: str) -> dict[str, str]:
    body = {"messages": [{"role": "user", "content": words}]}
    async with client.post(f"/agents/{agent}/stream", json=body) as answer:
        seen = await read_events(answer)
        assert seen[-1]["event"] == "done", seen[-1]
        call = next(frame["data"]["data"]["call_id"] for frame in seen if frame["event"] == "on_tool_end")
        return {"run": answer.headers["X-Run-Id"], "thread": answer.headers["X-Thread-Id"], "call": call}


async def _asked(client: aiohttp.ClientSession, words: str) -> dict[str, str]:
    body = {"messages": [{"role": "user", "content": words}]}
    async with client.post("/agents/default/stream", json=body) as answer:
        seen = await read_events(answer, until="on_approval_request")
        return {"approval": seen[-1]["data"]["data"]["id"]}
