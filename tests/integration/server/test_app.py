"""Common behaviour of routes: errors, ids, caps, documentation."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from fastapi.exceptions import RequestValidationError
from yarl import URL

from server_process import InProcessServer, host_server
from wick import Agent, Scripted
from wick.errors import BackendError, ConfigError, HookError, MissingExtra, ModelError, StoreError
from wick.server.app import create_api
from wick.server.errors import STATUS_CODES, ApiError, as_api_error, validation_message
from wick.server.http.middleware import SMALL_BYTES
from wick.server.openapi import build_document
from wick.server.server import Server
from wick.server.static_files import page_routes
from wick.stores.in_memory import InMemory
from wick.stores.sqlite import Sqlite


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[InProcessServer]:
    async with host_server(tmp_path, agents={"default": {"model": "demo"}}) as found:
        yield found


async def test_an_internal_error_returns_only_an_id(
    here: InProcessServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> int:
        raise RuntimeError("the password is hush")

    monkeypatch.setattr(here.service, "agent_count", broken)
    async with here.client("") as nobody, nobody.get("/health") as answer:
        body, id = await answer.json(), answer.headers["X-Request-Id"]
        assert (answer.status, body["error"]["code"]) == (500, "internal")
        assert id in body["error"]["message"] and "hush" not in json.dumps(body)
    assert any(id in record.getMessage() and record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ApiError(418, "teapot", "no"), 418, "teapot"),
        (StoreError("there is no such thread", "not_found"), 404, "not_found"),
        (StoreError("somebody is there", "conflict"), 409, "conflict"),
        (StoreError("locked", "locked"), 503, "locked"),
        (BackendError("outside", "escapes"), 400, "escapes"),
        (BackendError("protected", "protected"), 403, "protected"),
        (BackendError("whatever", "a_new_word"), 502, "a_new_word"),
        (ConfigError("wrong"), 400, "invalid"),
        (MissingExtra("slides", "pptx", "this"), 501, "missing_extra"),
        (ModelError("no answer"), 502, "upstream"),
    ],
)
def test_every_error_has_its_status(error: Exception, status: int, code: str) -> None:
    found = as_api_error(error)
    assert found is not None and (found.status, found.code) == (status, code)
    assert ("Retry-After" in found.headers) == (status in (503, 504))


def test_server_faults_are_not_explained_to_clients() -> None:
    assert as_api_error(StoreError("damaged", "corrupt")) is None
    assert as_api_error(HookError("a hook failed")) is None
    assert as_api_error(RuntimeError("x")) is None
    assert set(STATUS_CODES.values()) <= {400, 403, 404, 409, 413, 501, 503, 504, 507}


def test_many_mistakes_are_one_sentence() -> None:
    errors = [{"loc": ("body", n), "msg": "is wrong"} for n in range(9)]
    told = validation_message(RequestValidationError(errors).errors())
    assert told.count("is wrong") == 5 and told.endswith("and 4 more")


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"\xff\xfe", b'{"a":' * 5_000, b"null", b'"x"'])
async def test_a_body_that_is_no_json_is_refused(here: InProcessServer, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    async with here.client("ada") as ada, ada.post("/auth/session", data=body, headers=headers) as answer:
        assert answer.status in (400, 401, 422)
        assert (await answer.json())["error"]["message"]


async def test_json_errors_have_their_position(here: InProcessServer) -> None:
    headers = {"Content-Type": "application/json"}
    async with here.client("ada") as ada, ada.post("/auth/session", data=b'{"token": }', headers=headers) as answer:
        told = (await answer.json())["error"]["message"]
        assert (answer.status, told.startswith("the body is not valid JSON (")) == (422, True)
        assert told.endswith("at character 10); /docs has its schema")


async def test_a_body_that_is_too_large_is_refused(here: InProcessServer) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(SMALL_BYTES // 1_000_000 + 2):
            yield b"x" * 1_000_000

    headers = {"Content-Type": "application/json"}
    async with here.client("ada") as ada:
        for data in (BytesIO(b"x" * (SMALL_BYTES + 1)), endless()):
            async with ada.post("/auth/session", data=data, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]["code"]) == (413, "too_large")


# -- the description --------------------------------------------------------------------------------------------------


def schemas(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return every JSON body of a document: its location and its schema."""
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            for type, body in about.get("requestBody", {}).get("content", {}).items():
                yield f"{method} {path} takes {type}", body.get("schema")
            for status, answer in about["responses"].items():
                for type, body in answer.get("content", {}).items():
                    yield f"{method} {path} answers {status} {type}", body.get("schema")


async def test_no_body_is_untyped(here: InProcessServer) -> None:
    made = build_document(create_api(here.service))
    untyped = [place for place, schema in schemas(made) if not _typed(schema)]
    assert not untyped
    loose = [
        f"{name}.{key}"
        for name, schema in made["components"]["schemas"].items()
        for key, one in schema.get("properties", {}).items()
        if not {*one} - {"title", "description", "default"}
    ]
    assert not loose


def _typed(schema: Any) -> bool:
    return bool(schema) and bool({"$ref", "type", "anyOf", "oneOf", "allOf"} & set(schema))


async def test_every_operation_documents_its_roles_and_errors(here: InProcessServer) -> None:
    made = build_document(create_api(here.service))
    for path, methods in made["paths"].items():
        for method, about in methods.items():
            assert about["x-role"] in ("public", "user", "operator", "admin"), (method, path)
            assert {"4XX", "5XX"} <= set(about["responses"]) and "422" not in about["responses"], (method, path)
            assert about.get("description") or about.get("summary"), (method, path)
    assert "HTTPValidationError" not in json.dumps(made)
    ids = [about["operationId"] for methods in made["paths"].values() for about in methods.values()]
    assert len({*ids}) == len(ids)


# -- pages ------------------------------------------------------------------------------------------------------------


async def test_the_page_loads_no_external_resources(here: InProcessServer) -> None:
    async with here.client("ada") as ada:
        for name in ("/", "/docs"):
            async with ada.get(name) as answer:
                text = await answer.text()
                assert answer.status == 200 and answer.content_type == "text/html"
            assert not re.search(r"https?://|<script(?![^>]*\bsrc=\"\.?/(?:static|assets)/)|\son\w+=|style=", text)
            for path in re.findall(r"(?:src|href)=\"(/(?:static|assets)/[^\"]+)\"", text):
                async with ada.get(path) as answer:
                    kept = "immutable" in answer.headers["Cache-Control"]
                    assert answer.status == 200 and kept == path.startswith("/assets/")


async def test_the_frame_of_the_canvas_has_no_origin_and_no_network(here: InProcessServer) -> None:
    async with here.client("") as anonymous, anonymous.get("/canvas/frame") as answer:
        policy = answer.headers["Content-Security-Policy"].split("; ")
        assert answer.status == 200 and answer.headers["X-Frame-Options"] == "SAMEORIGIN"
        assert answer.headers["Connection-Allowlist"] == "()"
    assert {"sandbox allow-scripts", "default-src 'none'", "connect-src 'none'", "form-action 'none'"} < {*policy}
    assert "frame-ancestors 'self'" in policy and not any("http" in rule for rule in policy)


async def test_a_folder_of_ones_own_is_served_from_the_top(tmp_path: Path) -> None:
    folder = tmp_path / "page"
    for name in (
        "index.html",
        "app.svg",
        "assets/a-1.js",
        "metrics",
        "agents/x",
        ".env",
        "static/b.js",
        "deep/er/c.js",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "secret").write_text("secret")
    (folder / "assets" / "link").symlink_to(tmp_path / "secret")
    expected = {
        "/": (200, "index.html"),
        "/app.svg": (200, "app.svg"),
        "/assets/a-1.js": (200, "assets/a-1.js"),
        "/static/b.js": (200, "static/b.js"),
        "/deep/er/c.js": (200, "deep/er/c.js"),
        "/static/docs.js": (200, None),
        "/metrics": (401, None),
        "/agents/x": (401, None),
        "/.env": (401, None),
        "/assets/link": (404, None),
        "/assets/../../secret": (404, None),
        "/assets/%2e%2e/%2e%2e/secret": (404, None),
        "/assets/": (404, None),
    }
    agents = {"default": {"model": "demo"}}
    async with host_server(tmp_path, agents=agents, static=folder) as here, here.client("") as nobody:
        for path, (status, text) in expected.items():
            async with nobody.get(URL(here.url + path, encoded=True)) as answer:
                assert answer.status == status, path
                assert text is None or await answer.text() == text, path
        async with nobody.get("/assets/a-1.js") as answer:
            assert "immutable" in answer.headers["Cache-Control"]
        (folder / "assets" / "large.js").write_text("x" * 5_000)
        async with nobody.get("/assets/large.js", headers={"Accept-Encoding": "gzip"}) as answer:
            assert answer.headers["Content-Encoding"] == "gzip" and await answer.text() == "x" * 5_000


def test_a_folder_that_is_not_there_has_no_files(tmp_path: Path) -> None:
    routes, rows = page_routes(tmp_path / "missing")
    assert len(routes) == 1 and rows == []


async def test_a_server_stores_threads_in_a_given_store(tmp_path: Path) -> None:
    store, lines = InMemory(), list[str]()
    made = Server(store=store, data=tmp_path, port=0, token="a-secret-that-is-long-enough")
    made.register_agent("default", Agent(Scripted("Hello.")))
    serving = asyncio.create_task(made.serve(tell=lines.append))
    while not any("http://" in line for line in lines):
        await asyncio.sleep(0.01)
    url = next(word for line in lines for word in line.split() if word.startswith("http://"))
    headers = {"Authorization": "Bearer a-secret-that-is-long-enough"}
    body = {"messages": [{"role": "user", "content": "Hi."}], "thread_id": "th_1"}
    path = f"{URL(url).origin()}/agents/default/invoke"
    async with ClientSession(headers=headers) as client, client.post(path, json=body) as response:
        assert (await response.json())["response"] == "Hello."
    made.shutdown()
    await serving
    assert [head.id for head in (await store.list("local")).threads] == ["th_1"]
    records = Sqlite(tmp_path / "threads.db")  # has users and settings only
    assert await records.count("local") == 0
    await records.close()
    await store.close()
