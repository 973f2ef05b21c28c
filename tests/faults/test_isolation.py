"""S1: access control and isolation of users. Every route and WebSocket × credential × owner of the ids is denied.

The matrix is generated from the routes of the app (access_matrix.py); a route without a row fails the test. In CI each
route is tried with a quarter of the credentials, with existing or unknown ids; with WICK_FULL with all, and with both.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from faults.access_matrix import (
    ELSEWHERE,
    HOST,
    JSON,
    NO_CREDENTIAL,
    SECRET,
    UNKNOWN,
    Row,
    Shown,
    Things,
    credentials,
    filled,
    furnish,
    other_users,
    rows,
    used_up,
)
from faults.raw_http import Answer, Header, Line, ask_all, request
from faults.tally import FULL, Tally, Violated
from server_process import ROLES, TOKENS, InProcessServer, ServerProcess, host_server, open_client, run_server
from wick.server.app import create_api
from wick.server.auth import middleware
from wick.server.auth.access_table import route_methods
from wick.server.auth.identity import LOCAL_USER, User
from wick.server.records import sqlite as records_sqlite
from wick.server.service import Service, open_records, open_store
from wick.server.settings import Settings
from wick.server.static_files import SHIPPED_PAGES
from wick.stores import sqlite

AGENTS: Mapping[str, Any] = {
    "default": {
        "model": "demo",
        "backend": {"type": "local"},
        "skills": True,
        "recorder": True,
        "permissions": {"mode": "acceptEdits"},
    },
    "plain": {"model": "demo"},
    "data": {"model": "demo", "backend": "state"},
}
CONFIG: Mapping[str, Any] = {"agents": AGENTS}
USERS = ("ada", "olga", "root")
EVERY = 1 if FULL else 4  # credential that a route meets

# Routes that do not use the store.
IN_CI_ONCE = pytest.mark.parametrize("server", ["sqlite", "postgres"] if FULL else ["sqlite"], indirect=True)

pytestmark = pytest.mark.timeout(1_800 if FULL else 300)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("served")
    with run_server(folder, store=request.param, config=CONFIG, static=str(SHIPPED_PAGES)) as found:
        yield found


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    """An in-process server, to plant faults in."""
    async with host_server(tmp_path, agents=AGENTS, static=SHIPPED_PAGES) as found:
        yield found


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """A row for every route of the app."""
    return rows(routes(Service(Settings(data=tmp_path_factory.mktemp("routes"), static=SHIPPED_PAGES))))


def routes(service: Service) -> list[tuple[str, str]]:
    return [place for route in create_api(service).router.routes for place in route_methods(route)]


async def shown_to(server: ServerProcess) -> dict[str, Shown]:
    """Return all credentials that give no access."""
    said = yaml.safe_load((server.folder / "server.yaml").read_text())
    settings = Settings(**{**said, "data": server.folder / "data"})
    store = open_store(settings)
    records = open_records(settings, store)
    try:
        return {**NO_CREDENTIAL, **ELSEWHERE, **await used_up(server, records)}
    finally:
        await records.close()
        await store.close()


# -- no access without credentials ------------------------------------------------------------------------------------


async def check_denied(
    url: str, matrix: Sequence[Row], shown: Mapping[str, Shown], things: Things, planted: bool = False
) -> None:
    tries = [*_tries(matrix, shown, things)][:: 1 if planted else EVERY]
    with Tally("S1", "routes × credentials × ids", planted=planted) as tally:
        answers = await ask_all(url, [raw for _, _, raw in tries])
        for (label, one, _), answer in zip(tries, answers, strict=True):
            denied = answer.status in one.refused and _explained(answer) and SECRET.encode() not in answer.body
            tally.check(denied, f"{label}: {answer.status} {answer.body[:200]!r}")
        tally.note(routes=len({str(row) for row in matrix}), credentials=len(shown))


def _tries(matrix: Sequence[Row], shown: Mapping[str, Shown], things: Things) -> Iterator[tuple[str, Shown, bytes]]:
    """Yield each route with each credential: with ada's ids, unknown ids, or both."""
    number = 0
    for row in matrix:
        for name, one in credentials(shown, row):
            number += 1
            every: list[Mapping[str, str]] = [things.ids, {}] if row.kinds else [{}]
            for ids in every if FULL else [every[number % len(every)]]:
                raw = row.request(*one.headers, ids=ids, query=one.query)
                yield f"{row}, {name}, {'existing' if ids else 'unknown'} ids", one, raw


def _explained(answer: Answer) -> bool:
    """Return True if a refusal has the error format; invalid HTTP is refused without it."""
    if answer.status == 400:
        return True
    error = json.loads(answer.body)["error"]
    return bool(error["code"] and error["message"])


async def test_requests_without_valid_credentials_are_denied(server: ServerProcess, matrix: list[Row]) -> None:
    things = await furnish(server)
    await check_denied(server.url, matrix, await shown_to(server), things)
    await check_hidden(server, matrix, things)
    await _create_own_threads(server, things)
    await _check_owner_access(server, matrix, things)


@IN_CI_ONCE
async def test_a_role_that_is_too_low_is_refused_and_one_that_is_enough_is_not(
    server: ServerProcess, matrix: list[Row]
) -> None:
    with Tally("S1", "routes × roles") as tally:
        for user in USERS:
            bearer = ("Authorization", f"Bearer {TOKENS[user]}")
            closed = [row for row in matrix if row.access != "public"]
            answers = await ask_all(server.url, [_empty(row, HOST, bearer) for row in closed])
            for row, answer in zip(closed, answers, strict=True):
                may = User("x", user, ROLES[user]).has_role(row.access)  # type: ignore[arg-type]
                right = (answer.status == 403) != may and answer.status != 401 and 0 < answer.status < 500
                tally.check(right, f"{row}, {user}: {answer.status}")


def _empty(row: Row, *headers: Header) -> bytes:
    """Return a request without effect: with unknown ids and without a body."""
    return request(row.method, filled(row.path, {}), *headers)


@IN_CI_ONCE
async def test_methods_that_are_not_there_are_denied_first(server: ServerProcess, matrix: list[Row]) -> None:
    odd = [("HEAD", ""), ("TRACE", ""), ("OPTIONS", ""), ("GET", "/"), ("BREW", ""), ("GET", "%2f"), ("GET", ";x")]
    odd = odd if FULL else odd[:4]
    closed = [filled(row.path, {}) for row in matrix if row.access != "public" and row.method != "WS"]
    tries = [(method, f"{path}{more}") for path in closed for method, more in odd]
    answers = await ask_all(server.url, [request(method, path, HOST) for method, path in tries])
    with Tally("S1", "undefined methods and path spellings") as tally:
        for (method, path), answer in zip(tries, answers, strict=True):
            tally.check(answer.status in (400, 401), f"{method} {path}: {answer.status}")


# -- no access to data of other users ---------------------------------------------------------------------------------


async def check_hidden(
    server: ServerProcess | InProcessServer, matrix: Sequence[Row], things: Things, planted: bool = False, *only: str
) -> None:
    """Other users who know ada's ids get the same responses as for unknown ids."""
    only = only or (() if FULL else ("bob", "bob, with a cookie and no origin", "root"))
    people = {name: one for name, one in (await other_users(server)).items() if not only or name in only}
    with Tally("S1", "other users × routes × ids of an owner", planted=planted) as tally:
        for who, headers in people.items():
            await _with_her_ids(tally, server.url, matrix, things, who, headers)
            await _elsewhere(tally, server.url, things, who, headers)
            await _lists(tally, server.url, things, who, headers)
        tally.note(users=len(people), kinds=len(things.ids))


async def _with_her_ids(
    tally: Tally, url: str, matrix: Sequence[Row], things: Things, who: str, headers: tuple[Header, ...]
) -> None:
    tries = [(row, ids) for row in matrix if row.kinds for ids in _ids(row, things)]
    if who == "olga":  # owner of the tool
        tries = [(row, ids) for row, ids in tries if "tool" not in row.kinds]
    hers = await ask_all(url, [row.request(*headers, ids=ids) for row, ids in tries])
    none = await ask_all(url, [row.request(*headers, ids=_like(ids, row)) for row, ids in tries])
    for (row, ids), answer, other in zip(tries, hers, none, strict=True):
        wanted = 403 if {"tool", "eval"} & {*row.kinds} and who.startswith("bob") else 404  # for operators
        if "setting" in row.kinds and who != "root":
            wanted = 403  # for admins
        same = answer.status == other.status == wanted and _without(answer, ids) == _without(other, _like(ids, row))
        tally.check(same, f"{row}, {who}: {answer.status} {answer.body[:200]!r}, unknown ids: {other.body[:200]!r}")


def _ids(row: Row, things: Things) -> list[Mapping[str, str]]:
    """Return all her ids; of two, the last one below a shared object."""
    found: list[Mapping[str, str]] = [things.ids]
    if row.kinds in (("agent", "grant"), ("thread", "share")):
        found.append(things.only(row.kinds[-1]))
    return found


def _like(ids: Mapping[str, str], row: Row) -> dict[str, str]:
    """Return the request with an unknown id in place of her last id."""
    return {kind: id for kind, id in ids.items() if id == "default"}


def _without(answer: Answer, ids: Mapping[str, str]) -> str:
    """Return a response without the requested ids."""
    text = answer.body.decode()
    for id in sorted({*ids.values(), UNKNOWN} - {"default"}, key=len, reverse=True):
        text = text.replace(id, "…")
    return text


async def _elsewhere(tally: Tally, url: str, things: Things, who: str, headers: tuple[Header, ...]) -> None:
    """Yield requests with ids in a query or in a body."""
    agent, thread, approval = (things.ids[kind] for kind in ("agent", "thread", "approval"))
    say = {"messages": [{"role": "user", "content": "x"}]}
    up = f"../../{things.user}/adas/secret.txt"
    asked: list[tuple[str, str, Any, tuple[int, ...]]] = [
        ("POST", "/replay", {"agent_id": agent}, (404,)),
        ("POST", "/replay", {"agent_id": "default", "thread_ids": [thread]}, (404,)),
        ("GET", f"/approvals?thread_id={thread}", None, (404,)),
        ("POST", f"/approvals/{approval}", {"choice": "allow", "thread_id": thread}, (404,)),
        ("POST", "/v1/chat/completions", {"model": agent, **say}, (404,)),
        ("GET", f"/agents/data/files/read?path=secret.txt&thread_id={thread}", None, (404,)),
        ("GET", f"/agents/data/files/list?path=.&thread_id={thread}", None, (404,)),
        ("GET", "/agents/default/files/read?path=secret.txt", None, (404,)),
        ("GET", f"/agents/default/files/download?path={up}", None, (400, 404)),
        ("POST", "/agents/default/slides/export", {"path": up}, (400, 404)),
        ("GET", f"/threads?cursor={thread}", None, (200, 400)),
        ("POST", "/agents/", {"agent_id": "x1", "model": "demo", "tools": ["olgas"]}, (403,) if who != "olga" else ()),
        ("GET", f"/usage?user={things.user}", None, () if who == "root" else (403,)),  # an admin may see the bill
    ]
    tries = [one for one in asked if one[3]]
    given = [(method, path, None if body is None else json.dumps(body).encode()) for method, path, body, _ in tries]
    raws = [request(method, path, *headers, JSON, body=body) for method, path, body in given]
    for (method, path, _, wanted), answer in zip(tries, await ask_all(url, raws), strict=True):
        denied = answer.status in wanted and SECRET.encode() not in answer.body
        tally.check(denied, f"{method} {path}, {who}: {answer.status} {answer.body[:200]!r}")


async def _lists(tally: Tally, url: str, things: Things, who: str, headers: tuple[Header, ...]) -> None:
    """Check that lists of other users contain nothing of hers."""
    paths = ["/agents/", "/threads", f"/threads/search?q={SECRET}", "/approvals", "/v1/models", "/usage", "/metrics"]
    paths += ["/agents/tools/available", "/agents/events", "/auth/me", "/agents/default/permissions"]
    ids = [id for kind, id in things.ids.items() if kind != "tool" or who != "olga"]
    for path, answer in zip(paths, await ask_all(url, [request("GET", path, *headers) for path in paths]), strict=True):
        told = answer.body.decode()
        clean = SECRET not in told and not any(id in told for id in ids)
        fine = answer.status == 200 or (path == "/metrics" and answer.status == 403)
        tally.check(fine and clean, f"GET {path}, {who}: {answer.status} {told[:500]}")


async def _create_own_threads(server: ServerProcess, things: Things) -> None:
    """Using another user's thread id or key creates a thread of the same name for oneself."""
    said = {"messages": [{"role": "user", "content": "What is 1 + 1?"}], "thread_id": things.ids["thread"]}
    for user in ("bob", "root"):
        async with open_client(server, user) as other:
            async with other.post("/agents/plain/invoke", json=said, headers={"Idempotency-Key": "k"}) as answer:
                made = await answer.json()
                assert answer.status == 200 and made["run_id"] != things.ids["run"], made
                assert SECRET not in str(made) and made["messages"][0]["role"] == "user"
            async with other.get(f"/runs/{things.ids['run']}") as answer:
                assert answer.status == 404
            async with other.delete(f"/threads/{things.ids['thread']}") as answer:
                assert answer.status == 204


async def _check_owner_access(server: ServerProcess, matrix: Sequence[Row], things: Things) -> None:
    """The same requests work for their owner: denied objects exist and are unchanged."""
    owned = [row for row in matrix if row.kinds and not {"eval", "setting"} & {*row.kinds}]  # these have no owner
    owners = {row: "olga" if "tool" in row.kinds else "ada" for row in owned}
    order = sorted(owners, key=lambda row: (row.method not in ("GET", "WS"), row.method == "DELETE"))
    undo = "POST /threads/{id}/files/restore"  # it also undoes the file that another row deletes
    last = [row for row in order if str(row) in (undo, "DELETE /agents/{id}", "DELETE /threads/{id}")]
    with Tally("S1", "the same ids with the owner's credentials") as tally:
        async with Line(server.url) as line:
            for row in [*(row for row in order if row not in last), *last]:
                ids = things.only("grant") if "grant" in row.kinds else things.ids
                bearer = ("Authorization", f"Bearer {TOKENS[owners[row]]}")
                answer = await line.ask(row.request(HOST, bearer, ids=ids))
                if answer.status == 101:
                    line.close()  # it is a terminal from here on
                tally.check(101 <= answer.status < 400, f"{row}: {answer.status} {answer.body[:200]!r}")
                if "/files/read" in row.path:
                    tally.check(SECRET.encode() in answer.body, f"{row}: the secret is gone")


# -- planted faults ---------------------------------------------------------------------------------------------------


async def test_a_route_without_access_check_is_detected(
    here: InProcessServer, matrix: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def let_in(self: middleware.AuthMiddleware, scope: Any) -> None:
        scope["wick.route_access"], scope["wick.user"] = None, LOCAL_USER

    monkeypatch.setattr(middleware.AuthMiddleware, "_authorize", let_in)
    some = [row for row in matrix if row.method == "GET" and row.access != "public"][::6]
    shown = {name: NO_CREDENTIAL[name] for name in ("nothing", "a wrong token")}
    with pytest.raises(Violated, match=r"violated (\d+) of \1\b"):
        await check_denied(here.url, some, shown, Things(), planted=True)


async def test_a_query_without_owner_filter_is_detected(
    here: InProcessServer, matrix: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    things = await furnish(here)
    real = sqlite.find_thread

    def of_any_owner(db: Any, owner: str, id: str, columns: str, *before: Any) -> Any:
        whose = db.execute("SELECT owner FROM threads WHERE id = ?", (id,)).fetchone()
        return real(db, whose[0] if whose else owner, id, columns, *before)

    some = [row for row in matrix if row.path in ("/threads/{id}/runs", "/runs/{id}")]
    await check_hidden(here, some, things, True, "bob")
    with monkeypatch.context() as planted:
        planted.setattr(sqlite, "find_thread", of_any_owner)
        with pytest.raises(Violated, match="GET /threads/{id}/runs, bob: 200"):
            await check_hidden(here, some, things, True, "bob")
    with monkeypatch.context() as planted:
        planted.setattr(records_sqlite, "_get", lambda db, kind, owner, id, now: _found(db, kind, id, now))
        with pytest.raises(Violated, match="GET /runs/{id}, bob"):
            await check_hidden(here, some, things, True, "bob")


def _found(db: Any, kind: str, id: str, now: float) -> Any:
    found = records_sqlite._find(db, kind, id, now)
    return None if found is None else found[1]


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (("GET", "/agents/{id}/diary"), "role is not declared"),
        (("GET", "/threads/{id}/parts/{part}"), "kind of {part} is"),
        (("POST", "/threads/{id}/shred"), "no request body"),
    ],
)
def test_a_route_missing_in_the_matrix_is_detected(route: tuple[str, str], why: str) -> None:
    known: Iterable[Any] = [] if "diary" in route[1] else [(*route, "user")]
    with pytest.raises(Violated, match=why):
        rows([route], known)
