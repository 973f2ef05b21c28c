"""Who gets where: every route and WebSocket × every kind of credential × other people's ids. Made from the table.

A route that is missing in the table keeps the server from starting, so none is missing here either.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from yarl import URL

from serving import ROLES, TOKENS, Served, events, talking
from wick.server.access import ACCESS
from wick.server.identity import ROLES as ORDER

CLOSED = [(method, path, access) for method, path, access in ACCESS if access != "public"]
STREAMS = {"/agents/events"}  # which do not end by themselves
UNKNOWN = "nobody-has-this"

NO_CREDENTIAL: Mapping[str, dict[str, str]] = {
    "nothing": {},
    "a wrong token": {"Authorization": "Bearer wrong"},
    "an empty token": {"Authorization": "Bearer "},
    "another scheme": {"Authorization": "Basic YWRhOmFkYQ=="},
    "a wrong cookie": {"Cookie": "wick_session_0=wrong; wick_session_8000=wrong"},
    "a token in a cookie": {"Cookie": f"wick_session_0={TOKENS['root']}"},
    "a token beside a wrong one": {"Authorization": f"Bearer wrong, Bearer {TOKENS['root']}"},
}


def filled(path: str, ids: Mapping[str, str] | None = None) -> str:
    """A path with ids in place of its variables."""
    ids = ids or {}
    return re.sub(r"\{(\w+)(?::path)?\}", lambda found: ids.get(found[1], UNKNOWN), path)


async def asked(client: aiohttp.ClientSession, method: str, path: str, **options: Any) -> int:
    """The status of an answer; of a WebSocket that is accepted, 101."""
    if method == "WS":
        try:
            async with client.ws_connect(path, **options):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status
    async with client.request(method, path, **options) as answer:
        if answer.status >= 400 and method != "HEAD":
            body = await answer.json()
            assert body["error"]["code"] and body["error"]["message"], body
        return answer.status


@pytest.fixture
async def nobody(served: Served) -> AsyncIterator[aiohttp.ClientSession]:
    async with talking(served, "") as client:
        yield client


@pytest.mark.parametrize("shown", NO_CREDENTIAL.values(), ids=NO_CREDENTIAL)
async def test_who_shows_nothing_good_gets_nowhere(
    served: Served, nobody: aiohttp.ClientSession, shown: dict[str, str]
) -> None:
    for method, path, _ in CLOSED:
        assert await asked(nobody, method, filled(path), headers=shown) == 401, (method, path)


async def test_a_token_or_a_bad_ticket_in_the_address_opens_nothing(nobody: aiohttp.ClientSession) -> None:
    token = TOKENS["root"]
    for method, path, _ in CLOSED:
        for query in (f"ticket={token}", f"token={token}", f"access_token={token}", "ticket="):
            assert await asked(nobody, method, f"{filled(path)}?{query}") == 401, (method, path, query)


async def test_pages_of_other_origins_and_other_hosts_get_nowhere(served: Served) -> None:
    for user in ("", "root"):
        async with talking(served, user) as client:
            for method, path, _ in ACCESS:
                wrong = {"Origin": "https://evil.example"}
                assert await asked(client, method, filled(path), headers=wrong) == 403, (method, path)
                wrong = {"Host": "evil.example"}
                assert await asked(client, method, filled(path), headers=wrong) == 421, (method, path)


async def test_a_role_that_is_too_low_is_refused_and_one_that_is_enough_is_not(served: Served) -> None:
    for user in ("ada", "olga", "root"):
        async with talking(served, user) as client:
            for method, path, access in CLOSED:
                if path in STREAMS or path == "/auth/session":
                    continue
                enough = ORDER.index(ROLES[user]) >= ORDER.index(access)  # type: ignore[arg-type]
                status = await asked(client, method, filled(path))
                assert (status == 403) != enough, (user, method, path, status)
                assert status < 500 and status != 401, (user, method, path, status)


async def test_methods_and_paths_that_are_not_there_are_denied_first(served: Served, nobody: Any) -> None:
    paths = ["/agents", "/agents/x/secret", "/admin", "/threads/", "/static/../server.py", "//health", "/health/"]
    for path in paths:
        address: Any = URL(served.url + path, encoded=True)  # as it is, whatever a client would make of it
        assert await asked(nobody, "GET", address) in (401, 404), path
    for method, path, _ in CLOSED:
        if method != "WS":
            assert await asked(nobody, "TRACE", filled(path)) in (400, 401), path
            assert await asked(nobody, "OPTIONS", filled(path)) == 401, path


# -- two users --------------------------------------------------------------------------------------------------------


async def thread_of(client: aiohttp.ClientSession, agent: str, words: str) -> dict[str, str]:
    body = {"messages": [{"role": "user", "content": words}]}
    async with client.post(f"/agents/{agent}/stream", json=body) as answer:
        assert answer.status == 200, await answer.text()
        seen = await events(answer)
        assert seen[-1]["event"] == "done", seen[-1]
        call = next((frame["data"]["data"]["call_id"] for frame in seen if frame["event"] == "on_tool_end"), "")
        return {"run": answer.headers["X-Run-Id"], "thread": answer.headers["X-Thread-Id"], "call": call}


async def test_nobody_reaches_what_is_somebody_elses(served: Served) -> None:
    """Ada has an agent, a thread, a run and files; Bob, an operator and an admin know all of its ids."""
    async with talking(served, "ada") as ada:
        made = {"agent_id": "adas", "model": "demo", "backend": {"type": "local"}, "recorder": True, "skills": True}
        async with ada.post("/agents/", json=made) as answer:
            assert answer.status == 201, await answer.text()
        said = await thread_of(ada, "adas", "Write the secret word hush into secret.txt")
        ids = {"agents": "adas", "threads": said["thread"], "runs": said["run"], "approvals": UNKNOWN}
        try:
            for user in ("bob", "olga", "root"):
                async with talking(served, user) as other:
                    await _reaches_nothing(other, user, ids, said["call"])
            assert await _sees(ada, ids, said["call"]) == {200}  # hers is there, and as it was
        finally:
            async with ada.delete("/agents/adas?files=true") as answer:
                assert answer.status == 204


OWN = ("agents", "threads", "runs", "approvals")
BODIES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("POST", "/agents/{id}/invoke"): {"messages": [{"role": "user", "content": "x"}]},
    ("POST", "/agents/{id}/stream"): {"messages": [{"role": "user", "content": "x"}]},
    ("PATCH", "/agents/{id}/backend"): {"mode": "local"},
    ("POST", "/agents/{id}/container"): {"action": "stop"},
    ("POST", "/agents/{id}/files/move"): {"source": "secret.txt", "target": "x"},
    ("PUT", "/agents/{id}/files/write"): {"path": "x", "content": "x"},
    ("PATCH", "/agents/{id}/hooks"): {"hooks": {}},
    ("PATCH", "/agents/{id}/skills"): {"skills": {}},
    ("POST", "/approvals/{id}"): {"choice": "allow"},
    ("PATCH", "/threads/{id}"): {"title": "x"},
    ("POST", "/threads/{id}/fork"): {"at": 1},
    ("POST", "/threads/{id}/messages"): {"messages": [{"role": "user", "content": "x"}]},
    ("POST", "/threads/{id}/rewind"): {"to": 1},
}


def with_ids(ids: Mapping[str, str], call: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Every route that takes the id of something that belongs to somebody, with these ids."""
    found = []
    for method, path, _ in CLOSED:
        kind = path.split("/")[1]
        if kind in OWN and "{id}" in path:
            body = BODIES.get((method, path))
            given: dict[str, Any] = {} if body is None else {"json": body}
            query = "?path=." if path.endswith("/list") else "?path=secret.txt" if "/files" in path else ""
            found.append((method, filled(path, {"id": ids[kind], "call_id": call}) + query, given))
    return found


async def _reaches_nothing(other: aiohttp.ClientSession, user: str, ids: Mapping[str, str], call: str) -> None:
    for method, path, options in with_ids(ids, call):
        status = await asked(other, method, path, **options)
        assert status in (404, 422), (user, method, path, status)
    for path in ("/agents/", "/threads", "/threads/search?q=hush", "/approvals", "/v1/models"):
        async with other.get(path) as answer:
            text = await answer.text()
            assert answer.status == 200, (path, text)
            assert "hush" not in text and not any(id in text for id in ids.values()), (user, path)
    await _has_a_thread_of_their_own(other, ids)


async def _has_a_thread_of_their_own(other: aiohttp.ClientSession, ids: Mapping[str, str]) -> None:
    """Who says the id of somebody else's thread begins one of their own, which happens to be called the same."""
    body = {"messages": [{"role": "user", "content": "What is 1 + 1?"}], "thread_id": ids["threads"]}
    async with other.post("/agents/plain/invoke", json=body) as answer:
        made = await answer.json()
        assert answer.status == 200 and made["run_id"] != ids["runs"]
        assert "hush" not in str(made) and made["messages"][0]["role"] == "user"
    assert await asked(other, "GET", f"/runs/{ids['runs']}") == 404
    assert await asked(other, "DELETE", f"/threads/{ids['threads']}") == 204


async def _sees(ada: aiohttp.ClientSession, ids: Mapping[str, str], call: str) -> set[int]:
    reads = [path for method, path, _ in with_ids(ids, call) if method == "GET" and UNKNOWN not in path]
    assert len(reads) >= 10
    return {await asked(ada, "GET", path) for path in reads}


async def test_a_second_agent_of_the_same_name_is_another(served: Served) -> None:
    """Two users who name an agent alike have one each, with files of their own."""
    async with talking(served, "ada") as ada, talking(served, "bob") as bob:
        made = {"agent_id": "same", "model": "demo", "backend": {"type": "local"}}
        for client in (ada, bob):
            async with client.post("/agents/", json=made) as answer:
                assert answer.status == 201, await answer.text()
        write = {"path": "mine.txt", "content": "of ada"}
        assert await asked(ada, "PUT", "/agents/same/files/write", json=write) == 200
        assert await asked(bob, "GET", "/agents/same/files/read?path=mine.txt") == 404
        assert await asked(bob, "DELETE", "/agents/same?files=true") == 204
        assert await asked(ada, "GET", "/agents/same/files/read?path=mine.txt") == 200
        assert await asked(ada, "DELETE", "/agents/same?files=true") == 204


async def test_what_is_everybodys_has_files_of_each(served: Served) -> None:
    async with talking(served, "ada") as ada, talking(served, "bob") as bob:
        write = {"path": "ada.txt", "content": "of ada"}
        assert await asked(ada, "PUT", "/agents/default/files/write", json=write) == 200
        assert await asked(bob, "GET", "/agents/default/files/read?path=ada.txt") == 404
        assert await asked(ada, "DELETE", "/agents/default/files?path=ada.txt") in (200, 204)


async def test_a_ticket_opens_a_websocket_once_and_for_its_user(served: Served, nobody: aiohttp.ClientSession) -> None:
    async with talking(served, "ada") as ada, ada.post("/auth/tickets") as answer:
        ticket = (await answer.json())["ticket"]
    path = f"/agents/plain/terminal?ticket={ticket}"
    first = await asked(nobody, "WS", path)
    assert first == 409  # let in, but that agent has no workspace
    assert await asked(nobody, "WS", path) == 401


async def test_news_of_one_user_do_not_reach_another(served: Served) -> None:
    async with talking(served, "ada") as ada, talking(served, "bob") as bob, bob.get("/agents/events") as stream:
        assert stream.status == 200
        for client, id in ((ada, "news-ada"), (bob, "news-bob")):
            assert await asked(client, "POST", "/agents/", json={"agent_id": id, "model": "demo"}) == 201
            assert await asked(client, "DELETE", f"/agents/{id}") == 204
        seen = b""
        async with asyncio.timeout(20):
            while b"agent_deleted" not in seen:
                seen += await stream.content.readany()
        assert b"news-bob" in seen and b"news-ada" not in seen


async def test_nobody_answers_for_somebody_else(served: Served) -> None:
    made = {"agent_id": "asks", "model": "demo", "backend": {"type": "local"}, "permissions": {"ask": ["execute"]}}
    body = {"messages": [{"role": "user", "content": "Run the command: ls"}]}
    async with talking(served, "ada") as ada, talking(served, "bob") as bob, talking(served, "root") as root:
        assert await asked(ada, "POST", "/agents/", json=made) == 201
        async with ada.post("/agents/asks/stream", json=body) as stream:
            seen = await events(stream, until="on_approval_request")
            id, thread = seen[-1]["data"]["data"]["id"], stream.headers["X-Thread-Id"]
            for other in (bob, root):
                async with other.get("/approvals") as answer:
                    assert id not in await answer.text()
                for more in ({}, {"thread_id": thread}):
                    answer_it = {"choice": "allow", **more}
                    assert await asked(other, "POST", f"/approvals/{id}", json=answer_it) == 404
            async with ada.get("/approvals") as answer:
                assert id in await answer.text()
            assert await asked(ada, "POST", f"/approvals/{id}", json={"choice": "deny"}) == 200
            rest = await events(stream)
            assert rest[-1]["event"] == "done"
        assert await asked(ada, "DELETE", "/agents/asks?files=true") == 204
