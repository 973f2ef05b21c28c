"""Agent keys settable over HTTP, by role: all unlisted ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from wick._internal.factory_options import read_hints
from wick.config import RINGS
from wick.server.agents.http_policy import ADMIN_OPTIONS, OPERATOR_OPTIONS, USER_OPTIONS, check_agent, check_hook
from wick.server.auth.identity import ROLES, Role, User
from wick.server.errors import ApiError

TOOLS = {"lookup"}


def user_with(role: Role) -> User:
    return User(f"u_{role}", role, role)


def refused(options: dict[str, Any], role: Role) -> bool:
    try:
        check_agent(options, user_with(role), TOOLS)
    except ApiError as error:
        assert (error.status, error.code) == (403, "not_allowed")
        return True
    return False


# A key and the lowest role that may set it; "" is no role.
SAID: list[tuple[dict[str, Any], Role | str]] = [
    ({"name": "Ann's", "system_prompt": "Be brief: os:system is a name.", "context_window": 1000}, "user"),
    ({"model": "sonnet"}, "user"),
    ({"model": "anthropic:claude-sonnet-4-5"}, "user"),
    ({"model": "ollama:llama3.1:8b"}, "user"),
    ({"model": "local:/etc/passwd"}, ""),
    ({"model": "gateway:x@http://10.0.0.1"}, ""),
    ({"model": {"provider": "openai", "model": "x", "base_url": "http://10.0.0.1"}}, "admin"),
    ({"model": {"provider": "local", "model": "/etc/passwd"}}, ""),
    ({"model": {"provider": "openai", "model": "x", "base_url": "https://10.0.0.1", "verify": False}}, "admin"),
    ({"model": {"provider": "openai", "model": "x", "base_url": "https://10.0.0.1", "verify": "/etc/ca.pem"}}, ""),
    ({"model": {"provider": "openai", "model": "x", "base_url": "https://10.0.0.1", "cert": ["/etc/a.pem"]}}, ""),
    ({"fallback": ["haiku", {"model": "x", "base_url": "http://10.0.0.1"}]}, "admin"),
    ({"fallback": ["haiku"]}, "user"),
    ({"settings": {"temperature": 0.5}}, "user"),
    ({"settings": {"extra": {"a": 1}}}, "admin"),
    ({"tools": ["calculate", "lookup"]}, "user"),
    ({"tools": ["os:system"]}, ""),
    ({"tools": ["unknown"]}, ""),
    ({"tools": [{"name": "x", "description": "x", "parameters": {}, "callback_url": "http://10.0.0.1"}]}, ""),
    ({"hooks": ["os:system"]}, ""),
    ({"hooks": []}, ""),
    ({"sessions": "postgresql://elsewhere"}, ""),
    ({"sessions": True}, ""),
    ({"recipes": ["/etc"]}, ""),
    ({"backend": "local"}, "user"),
    ({"backend": {"type": "state"}}, "user"),
    ({"backend": False}, "user"),
    ({"backend": {"type": "local", "sandbox": "none"}}, ""),
    ({"backend": {"type": "local", "sandbox": "auto"}}, "admin"),
    ({"backend": {"type": "local", "workdir": "/etc"}}, "admin"),
    ({"backend": {"type": "local", "env": {"PATH": "/x"}}}, "admin"),
    ({"backend": {"type": "local", "readable": ["/etc"]}}, "admin"),
    ({"backend": {"type": "local", "network": True}}, "admin"),
    ({"backend": {"type": "local", "protect": []}}, "admin"),
    ({"backend": {"type": "docker", "image": "x"}}, "operator"),
    ({"backend": {"type": "docker", "image": "x", "volumes": {"/": "/host"}}}, "admin"),
    ({"backend": {"type": "docker", "image": "x", "engine": "tcp://10.0.0.1:2375"}}, "admin"),
    ({"backend": {"type": "docker", "image": "x", "env": {"A": "b"}}}, "admin"),
    ({"backend": {"type": "docker", "image": "x", "user": "root"}}, "admin"),
    ({"backend": {"type": "elsewhere"}}, ""),
    ({"backend": 5}, ""),
    ({"todos": False}, "user"),
    ({"limits": {"steps": 3}}, "operator"),
    ({"budget": {"tokens": 3}}, "operator"),
    ({"skills": {"shipped": True, "disabled": ["slides"]}}, "user"),
    ({"skills": {"host": ["/etc"]}}, "admin"),
    ({"skills": ["skills"]}, "user"),
    ({"memory": ["AGENTS.md"]}, "user"),
    ({"context": "Words: a:b"}, "user"),
    ({"context": {"files": ["/etc/passwd"]}}, "admin"),
    ({"builtins": {"tools": ["calculate"]}}, "user"),
    ({"builtins": {"private": ["10.0.0.1"]}}, "admin"),
    ({"builtins": {"search": "os:system"}}, ""),
    ({"mcp": {"servers": {"x": {"command": "sh"}}}}, "admin"),
    ({"mcp": {"pins": "/etc/passwd"}}, ""),
    ({"subagents": {"helper": {"description": "Helps", "prompt": "Help.", "tools": ["ls"], "model": "haiku"}}}, "user"),
    ({"subagents": {"agents": [{"name": "h", "description": "Helps"}], "depth": 1}}, "user"),
    (
        {"subagents": {"helper": {"description": "x", "settings": {"top_p": 1}, "output_type": {"type": "object"}}}},
        "user",
    ),
    ({"subagents": {"helper": {"description": "x", "settings": {"extra": {}}}}}, "admin"),
    ({"subagents": {"helper": {"description": "x", "output_type": "os:system"}}}, ""),
    ({"subagents": "/etc"}, ""),
    ({"subagents": {"agents": "/etc"}}, ""),
    ({"subagents": {"agents": ["/etc/passwd"]}}, ""),
    ({"subagents": {"helper": {"description": "x", "hooks": ["os:system"]}}}, ""),
    ({"subagents": {"helper": {"description": "x", "tools": ["os:system"]}}}, ""),
    ({"subagents": {"helper": {"description": "x", "model": {"base_url": "http://10.0.0.1"}}}}, "admin"),
    ({"ask_user": True}, "user"),
    ({"ask_user": {"interactor": "terminal"}}, ""),
    ({"critique": {"rounds": 1, "criteria": "good"}}, "user"),
    ({"structured_output": {"schema": {"type": "object"}}}, "user"),
    ({"structured_output": {"schema": "os:system"}}, ""),
    ({"summarization": {"summarizer": "os:system"}}, ""),
    ({"summarization": {"keep": 0.5}}, "user"),
    ({"permissions": {"deny": ["Bash(rm *)"], "mode": "plan"}}, "user"),
    ({"permissions": {"mode": "bypassPermissions"}}, "operator"),
    ({"permissions": {"grants": [{"tool": "execute", "args": {}}]}}, ""),
    ({"permissions": {"policy": "os:system"}}, ""),
    ({"usage_log": {"logger": "root"}}, ""),
    ({"nothing_known": True}, ""),
    ({"todos": "os:system"}, ""),
    ({"recorder": {"runs": "os:system"}}, ""),
]


@pytest.mark.parametrize(("options", "least"), SAID, ids=lambda value: str(value)[:60])
def test_each_role_may_set_its_listed_keys(options: dict[str, Any], least: str) -> None:
    for role in ROLES:
        may = least != "" and user_with(role).has_role(least)  # type: ignore[arg-type]
        assert refused(options, role) is not may, f"{role}: {options}"


def test_every_option_of_every_capability_is_on_one_list_or_refused_to_all() -> None:
    """A new option of a capability is refused until it is listed."""
    listed = {
        (key, name)
        for table in (USER_OPTIONS, OPERATOR_OPTIONS, ADMIN_OPTIONS)
        for key, names in table.items()
        for name in names
    }
    for ring in RINGS:
        if not ring.kind:
            continue
        for name in read_hints(ring.load_class()):
            if (ring.key, name) not in listed:
                assert all(refused({ring.key: {name: 1}}, role) for role in ROLES), f"{ring.key}.{name}"


def test_the_lists_name_existing_keys() -> None:
    known = {(ring.key, name) for ring in RINGS if ring.kind for name in read_hints(ring.load_class())}
    for table in (USER_OPTIONS, OPERATOR_OPTIONS, ADMIN_OPTIONS):
        assert {(key, name) for key, names in table.items() for name in names} <= known


CONFINING = [
    "limits",
    "retry",
    "tracing",
    "permissions",
    "budget",
    "filesystem",
    "builtins",
    "subagents",
    "recorder",
    "mcp",
]


@pytest.mark.parametrize("key", CONFINING)
@pytest.mark.parametrize("value", [True, False, None], ids=str)
def test_users_cannot_change_the_confinement_of_a_shared_agent(key: str, value: bool | None) -> None:
    with pytest.raises(ApiError):
        check_hook(key, value, user_with("user"))
    check_hook(key, value, user_with("admin"))


def test_users_can_change_harmless_keys_of_a_shared_agent() -> None:
    for key, value in (
        ("todos", False),
        ("context", ["Words."]),
        ("skills", {"disabled": ["slides"]}),
        ("memory", True),
    ):
        check_hook(key, value, user_with("user"))
    with pytest.raises(ApiError):
        check_hook("critique", {"model": "opus"}, user_with("user"))
    check_hook("critique", {"model": "opus"}, user_with("user"), own=True)
    check_hook("permissions", {"allow": ["Bash(*)"]}, user_with("user"), own=True)
