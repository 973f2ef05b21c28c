"""A JSON body with too many values is refused before it is parsed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from server_process import host_server, open_client
from wick.constants import JSON_VALUES
from wick.server.http import json_body
from wick.server.http.json_body import JsonRoute, exceeds_values
from wick.server.routes import ROUTERS


def test_every_json_route_has_a_body_limit() -> None:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    with_body = [route for route in routes if route.body_field is not None]
    assert len(with_body) > 15
    assert [route.path for route in with_body if not isinstance(route, JsonRoute)] == []


@pytest.mark.parametrize(
    ("body", "many"),
    [
        (b"[1, 2, 3, 4]", False),
        (b"[1, 2, 3, 4, 5, 6]", True),
        (b'["[[[,,,{{{", "a"]', False),
        (b'["\\\\", 1, 2, 3, 4, 5]', True),
        (b'["\\",,,,,,", 1]', False),
        (b"[[[[[[[[", True),
        (b'"' * 44 + b",,,,,,", True),
        (b'"' * 43 + b",,,,,,", False),  # not JSON: the parser reports it
        (b'{"a": "' + b"," * 100, False),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 32_768])
def test_separators_in_strings_do_not_count(
    body: bytes, many: bool, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_body, "PIECE_BYTES", piece)
    assert exceeds_values(body, 5) is many


async def test_too_many_values_are_refused(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents={"a": {"model": "demo"}}) as server, open_client(server) as client:
        headers = {"Content-Type": "application/json"}
        body = b"[" + b"[]," * JSON_VALUES + b"[]]"
        async with client.post("/agents/a/invoke", data=body, headers=headers) as answer:
            assert answer.status == 413 and (await answer.json())["error"]["code"] == "too_large"
        async with client.post("/agents/a/invoke", data=b"{", headers=headers) as answer:
            assert answer.status == 422
