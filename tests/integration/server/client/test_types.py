"""What the client reads is what the server says it sends."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from server_process import Served, talking
from wick.client import types

ANSWERS: list[tuple[str, str, str, type[BaseModel]]] = [
    ("post", "/agents/{id}/invoke", "", types.InvokeResult),
    ("get", "/runs/{id}", "", types.RunState),
    ("post", "/runs/{id}/cancel", "", types.RunState),
    ("get", "/runs/{id}/trace", "", types.RunTrace),
    ("get", "/threads", "", types.ThreadPage),
    ("get", "/threads", "threads", types.ThreadInfo),
    ("get", "/threads/search", "hits", types.SearchHit),
    ("get", "/threads/{id}", "", types.ThreadDetail),
    ("get", "/threads/{id}", "messages", types.ThreadMessage),
    ("patch", "/threads/{id}", "", types.ThreadInfo),
    ("post", "/threads/{id}/fork", "", types.ThreadInfo),
    ("post", "/threads/{id}/rewind", "", types.ThreadDetail),
    ("post", "/threads/{id}/messages", "", types.QueuedMessage),
    ("get", "/threads/{id}/calls/{call_id}/why", "", types.CallReasons),
    ("get", "/threads/{id}/calls/{call_id}/why", "verdicts", types.HookVerdict),
    ("get", "/approvals", "approvals", types.Approval),
    ("get", "/agents/", "agents", types.AgentInfo),
    ("get", "/agents/{id}", "", types.AgentDetail),
    ("post", "/agents/", "", types.AgentDetail),
    ("get", "/agents/{id}", "tools", types.ToolInfo),
    ("get", "/agents/{id}/files/list", "entries", types.FileEntry),
    ("get", "/threads/{id}/runs", "runs", types.ThreadRun),
    ("post", "/replay", "", types.ReplayReport),
    ("post", "/replay", "changes", types.ChangedVerdict),
    ("get", "/agents/{id}/onion", "operations", types.OperationRings),
    ("get", "/agents/{id}/hooks", "hooks", types.HookInfo),
    ("patch", "/agents/{id}/hooks", "hooks", types.HookInfo),
    ("get", "/agents/{id}/permissions", "", types.PermissionsInfo),
    ("get", "/agents/{id}/permissions", "rules", types.RuleInfo),
    ("get", "/agents/{id}/permissions", "grants", types.Grant),
    ("get", "/agents/{id}/limits", "", types.LimitsInfo),
    ("get", "/agents/{id}/limits", "budgets", types.BudgetInfo),
    ("get", "/agents/{id}/skills", "skills", types.SkillInfo),
    ("post", "/agents/{id}/skills", "", types.SkillInfo),
    ("get", "/auth/me", "", types.CurrentUser),
    ("get", "/usage", "", types.UsageReport),
    ("get", "/usage", "rows", types.UsageRow),
]


@pytest.fixture
async def document(served: Served) -> Any:
    async with talking(served) as client, client.get("/openapi.json") as answer:
        return await answer.json()


def resolved(document: Any, schema: Any) -> Any:
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


@pytest.mark.parametrize(("method", "path", "key", "kind"), ANSWERS, ids=lambda value: str(value))
async def test_every_field_is_one_of_the_servers(
    document: Any, method: str, path: str, key: str, kind: type[BaseModel]
) -> None:
    responses = document["paths"][path][method]["responses"]
    answer = next(responses[status] for status in ("200", "201", "202") if status in responses)
    schema = resolved(document, answer["content"]["application/json"]["schema"])
    if key:
        schema = resolved(document, schema["properties"][key]["items"])
    missing = kind.model_fields.keys() - schema["properties"].keys()
    assert not missing, f"the server does not send {sorted(missing)}"
    needed = {name for name, field in kind.model_fields.items() if field.is_required()}
    optional = (
        needed - set(schema.get("required", ())) - {name for name in needed if "default" in schema["properties"][name]}
    )
    assert not optional, f"the server may leave out {sorted(optional)}"
