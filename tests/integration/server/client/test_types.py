"""The server and the client use the same response types, and the client reads the responses of a later server."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import BaseModel, ValidationError

from server_process import ServerProcess, open_client
from wick.api import types as api
from wick.client import Client, types

# The response of each method: the route, and the field that the method returns if it does not return the whole body.
ROUTES: dict[str, tuple[str, str, str]] = {
    "invoke": ("post", "/agents/{id}/invoke", ""),
    "run": ("get", "/runs/{id}", ""),
    "cancel": ("post", "/runs/{id}/cancel", ""),
    "trace": ("get", "/runs/{id}/trace", ""),
    "threads": ("get", "/threads", ""),
    "search": ("get", "/threads/search", "hits"),
    "thread": ("get", "/threads/{id}", ""),
    "describe_thread": ("patch", "/threads/{id}", ""),
    "fork": ("post", "/threads/{id}/fork", ""),
    "rewind": ("post", "/threads/{id}/rewind", ""),
    "switch_branch": ("post", "/threads/{id}/switch", ""),
    "send": ("post", "/threads/{id}/messages", ""),
    "file_changes": ("get", "/threads/{id}/files", ""),
    "restore_files": ("post", "/threads/{id}/files/restore", ""),
    "thread_runs": ("get", "/threads/{id}/runs", "runs"),
    "why": ("get", "/threads/{id}/calls/{call_id}/why", ""),
    "replay": ("post", "/replay", ""),
    "approvals": ("get", "/approvals", "approvals"),
    "agents": ("get", "/agents/", "agents"),
    "agent": ("get", "/agents/{id}", ""),
    "create_agent": ("post", "/agents/", ""),
    "onion": ("get", "/agents/{id}/onion", "operations"),
    "hooks": ("get", "/agents/{id}/hooks", "hooks"),
    "change_hooks": ("patch", "/agents/{id}/hooks", "hooks"),
    "permissions": ("get", "/agents/{id}/permissions", ""),
    "limits": ("get", "/agents/{id}/limits", ""),
    "skills": ("get", "/agents/{id}/skills", "skills"),
    "switch_skills": ("patch", "/agents/{id}/skills", "skills"),
    "upload_skill": ("post", "/agents/{id}/skills", ""),
    "list_files": ("get", "/agents/{id}/files/list", "entries"),
    "drain": ("post", "/drain", ""),
    "cluster": ("get", "/cluster", ""),
    "me": ("get", "/auth/me", ""),
    "usage": ("get", "/usage", ""),
}


def returned_type(method: str) -> type[BaseModel] | None:
    """Return the model that a method of the client returns, alone or in a list."""
    kind = get_type_hints(getattr(Client, method)).get("return")
    found = (get_args(kind) or (kind,))[0]
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


@pytest.fixture
async def document(server: ServerProcess) -> Any:
    async with open_client(server) as client, client.get("/openapi.json") as answer:
        return await answer.json()


def test_every_typed_method_has_a_route() -> None:
    public = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")]
    assert {name for name in public if returned_type(name)} == {*ROUTES}


@pytest.mark.parametrize("method", ROUTES)
async def test_a_method_returns_the_type_of_its_route(document: Any, method: str) -> None:
    verb, path, field = ROUTES[method]
    responses = document["paths"][path][verb]["responses"]
    answer = next(responses[status] for status in ("200", "201", "202") if status in responses)
    schema = answer["content"]["application/json"]["schema"]
    if field:
        body = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        schema = body["properties"][field]["items"]
    kind = returned_type(method)
    assert kind is not None and schema["$ref"].rpartition("/")[2] == kind.__name__
    assert kind is getattr(api, kind.__name__) and kind is getattr(types, kind.__name__)


def test_fields_and_values_of_a_later_server_are_read() -> None:
    later = {"id": "u_1", "username": "ada", "role": "auditor", "since": 2031}
    assert types.CurrentUser.model_validate(later).role == "auditor"
    with pytest.raises(ValidationError):
        types.CurrentUser.model_validate({**later, "role": 3})
