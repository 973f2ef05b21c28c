"""Routes are made when somebody first comes, and a body with too many values is refused before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from server_process import hosted, talking
from wick.constants import JSON_VALUES
from wick.server.http import json_body
from wick.server.http.json_body import Router, exceeds_values


def test_a_route_learns_what_it_needs_when_it_is_needed() -> None:
    router = Router(prefix="/a", tags=["a"])

    @router.get("/{id}")
    async def one(id: str) -> dict[str, str]:
        return {"id": id}

    (route,) = router.routes
    assert "dependant" not in vars(route) and route.path == "/a/{id}" and route.methods == {"GET"}
    assert route.tags == ["a"] and "dependant" in vars(route)
    with pytest.raises(AttributeError):
        getattr(route, "not_" + "there")


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
        (b'"' * 43 + b",,,,,,", False),  # no JSON, which is told when it is read
        (b'{"a": "' + b"," * 100, False),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 3, 7, 32_768])
def test_what_stands_in_texts_is_no_value(body: bytes, many: bool, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_body, "PIECE_BYTES", piece)
    assert exceeds_values(body, 5) is many


async def test_too_many_values_are_refused(tmp_path: Path) -> None:
    async with hosted(tmp_path, agents={"a": {"model": "demo"}}) as server, talking(server) as client:
        headers = {"Content-Type": "application/json"}
        body = b"[" + b"[]," * JSON_VALUES + b"[]]"
        async with client.post("/agents/a/invoke", data=body, headers=headers) as answer:
            assert answer.status == 413 and (await answer.json())["error"]["code"] == "too_large"
        async with client.post("/agents/a/invoke", data=b"{", headers=headers) as answer:
            assert answer.status == 422
