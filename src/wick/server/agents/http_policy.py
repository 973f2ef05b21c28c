"""Allowlist of the agent options that each role may set over HTTP. Everything else is refused.

A request is less trusted than the config file. It can neither name Python code nor disable the sandbox. Only an admin
may name host folders, mounts, environment variables, programs, MCP servers and addresses of providers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from wick.config.builder import BUILTIN
from wick.server.auth.identity import Role, User
from wick.server.errors import ApiError

# The options that a role may set, by key of agents.yaml. A higher role includes the options of the lower ones.
# Keys that are missing cannot be set: `hooks` names code, `sessions` belongs to the server.
NamesByKey = Mapping[str, Collection[str]]
USER_OPTIONS: NamesByKey = {
    "recorder": ("runs", "spans"),
    "todos": ("nudges",),
    "filesystem": ("execute", "read_only", "track", "result_chars"),
    "snapshots": ("seconds", "exclude", "required"),
    "skills": ("paths", "shipped", "enabled", "disabled"),
    "memory": ("paths",),
    "context": ("texts",),
    "self_description": ("text", "system", "tool"),
    "metadata": (),
    "builtins": ("tools", "timezone", "methods"),
    "subagents": ("agents", "depth", "background", "at_end"),
    "ask_user": ("seconds",),
    "critique": ("model", "rounds", "criteria"),
    "structured_output": ("schema", "retries", "native", "need"),
    "tool_search": ("threshold", "always", "results"),
    "code_mode": ("tools", "direct", "listed"),
    "summarization": ("window", "threshold", "keep", "buffer", "model"),
    "permissions": ("deny", "ask", "allow", "mode", "policy"),
    "fallback": ("models",),
}
OPERATOR_OPTIONS: NamesByKey = {
    "tracing": (),
    "usage_log": ("level",),
    "limits": ("steps", "tokens", "seconds", "cost", "tool_calls"),
    "retry": ("attempts", "base", "longest", "patience", "visible"),
    "budget": ("tokens", "dollars", "reserve", "name"),
    "subagents": ("at_once",),
    "code_mode": ("seconds", "memory_mb", "calls", "depth", "output"),
    "builtins": ("timeout", "max_bytes"),
    "filesystem": ("longest",),
    "metadata": ("keys", "value_bytes", "total_bytes"),
    "recorder": ("size",),
}
ADMIN_OPTIONS: NamesByKey = {
    "mcp": ("servers", "max_output"),
    "skills": ("host",),
    "context": ("files",),
    "builtins": ("private",),
    "subagents": ("models",),
}

# Capabilities that users may change on agents of others: none that confine or record an agent, and none that give it
# more permissions.
USER_CHANGEABLE = frozenset(
    ("todos", "skills", "memory", "context", "self_description", "metadata", "ask_user", "critique", "tool_search",
     "summarization", "structured_output")
)  # fmt: skip

# Options of an agent's backend. `sandbox: none` can only be set in the file.
USER_BACKENDS: NamesByKey = {"local": ("timeout",), "state": ()}
OPERATOR_BACKENDS: NamesByKey = {
    "local": ("limits",),
    "docker": ("image", "timeout", "limits", "read_only"),
}
ADMIN_BACKENDS: NamesByKey = {
    "local": ("workdir", "network", "env", "readable", "sandbox", "protect"),
    "docker": ("workdir", "engine", "volumes", "env", "network", "user", "daemon", "pull", "protect"),
    "state": ("protect",),
}

Tables = tuple[tuple[Role, NamesByKey], ...]
OPTION_TABLES: Tables = (("user", USER_OPTIONS), ("operator", OPERATOR_OPTIONS), ("admin", ADMIN_OPTIONS))
BACKEND_TABLES: Tables = (("user", USER_BACKENDS), ("operator", OPERATOR_BACKENDS), ("admin", ADMIN_BACKENDS))

SETTINGS = ("temperature", "max_tokens", "top_p", "stop", "parallel_tool_calls", "tool_choice", "response_format")
PLAIN_KEYS = ("name", "system_prompt", "context_window", "examples")
USER_MODES = ("default", "plan", "acceptEdits", "dontAsk")  # for every role

_PROVIDERS = tuple(  # the providers whose addresses and keys are those of the server
    "anthropic openai openai-responses google vertex bedrock azure openrouter groq mistral deepseek xai together "
    "fireworks nvidia cerebras ollama gateway".split()
)
_MODEL = re.compile(r"[\w.-]+(?:[:/][\w.-]+)*", re.ASCII)
_CODE = re.compile(r"\s*[A-Za-z_][\w.]*:[A-Za-z_][\w.]*\s*")


def check_agent(options: Mapping[str, Any], user: User, tools: Collection[str]) -> None:
    """Raise a 403 with its fields if this user may not create such an agent; `tools` are those of the server."""
    problems: dict[str, str] = {}
    for key, value in options.items():
        try:
            _check_option(key, value, user, tools)
        except ApiError as error:
            problems[key] = error.message
    if problems:
        raise ApiError(403, "not_allowed", "; ".join(problems.values()), fields=problems)


def _check_option(key: str, value: Any, user: User, tools: Collection[str]) -> None:
    if key in PLAIN_KEYS:
        return
    if key == "model":
        _check_model(value, user)
    elif key == "settings":
        _check_settings(value, user)
    elif key == "tools":
        known = {*BUILTIN, *tools}
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or name not in known:
                there = ", ".join(sorted(known))
                raise _not_allowed(f"there is no tool {str(name)[:100]!r} to be named here; there are {there}")
    elif key == "backend":
        _check_backend(value, user)
    else:
        check_hook(key, value, user, own=True)


def check_hook(key: str, value: Any, user: User, *, own: bool = False) -> None:
    """Raise a 403 if this user may not set a capability to this value; `own` if the agent is the user's."""
    options, guest = allowed_names(OPTION_TABLES, key, user), not own and not user.has_role("operator")
    if options is None:
        raise _not_allowed(f"{key} cannot be set over HTTP by {_with_article(user.role)}")
    if guest and key not in USER_CHANGEABLE:
        raise _not_allowed(f"only an operator changes {key} of an agent that is not one's own")
    if value is False or value is None:
        return
    for name, option in _expand_short_form(key, value).items():
        if name not in options or (guest and name == "model"):
            raise _not_allowed(f"{key}.{name} cannot be set over HTTP by {_with_article(user.role)}")
        check = _SPECIAL.get((key, name))
        if check is not None:
            check(option, user)
        else:
            _check_plain(f"{key}.{name}", option)


def allowed_names(tables: Tables, key: str, user: User) -> set[str] | None:
    """Return the names below a key that this user may set, or None if the user may not set the key."""
    allowed = [table[key] for role, table in tables if key in table and user.has_role(role)]
    return {name for names in allowed for name in names} if allowed else None


def _expand_short_form(key: str, value: Any) -> Mapping[str, Any]:
    """Return the long form of an option's value."""
    if value is True:
        return {}
    short = {"skills": "paths", "memory": "paths", "context": "texts", "self_description": "text", "builtins": "tools",
             "subagents": "agents", "fallback": "models"}  # fmt: skip
    if isinstance(value, Mapping) and not (key == "subagents" and "agents" not in value):
        return value
    if key not in short:
        raise _not_allowed(f"{key} takes true, false or a map of options")
    return {short[key]: value}


def _check_plain(place: str, value: Any) -> None:
    """Raise a 403 if a value holds a Python import path. Free-text options are exempt: see `_SPECIAL`."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _check_plain(f"{place}.{name}", inner)
    elif isinstance(value, list):
        for inner in value:
            _check_plain(place, inner)
    elif isinstance(value, str) and _CODE.fullmatch(value):
        raise _not_allowed(f"{place}: {value[:100]!r} is the name of code, which cannot be named over HTTP")


def _check_model(value: Any, user: User) -> None:
    """Raise a 403 unless this is the name of a model, or an admin's specification without files of the host."""
    if user.has_role("admin") and isinstance(value, Mapping):
        if "local" in (value.get("provider"), str(value.get("model", "")).partition(":")[0]):
            raise _not_allowed("a model in a file of this machine is named in agents.yaml")
        if value.get("cert") or not isinstance(value.get("verify", True), bool):
            raise _not_allowed("the certificate files of a model are named in agents.yaml")
        return
    provider = value.partition(":")[0] if isinstance(value, str) else ""
    named = isinstance(value, str) and _MODEL.fullmatch(value.strip())
    if not named or (":" in value and provider.strip() not in _PROVIDERS):
        providers = ", ".join(_PROVIDERS)
        raise _not_allowed(f"name a model as in sonnet, gpt-4o, auto, demo, or provider:name with one of {providers}")


def _check_models(value: Any, user: User) -> None:
    for one in value if isinstance(value, list) else [value]:
        _check_model(one, user)


def _check_backend(value: Any, user: User) -> None:
    if value is False:
        return
    options = {"type": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else {}
    kind = options.pop("type", "")
    allowed = allowed_names(BACKEND_TABLES, kind, user)
    if allowed is None:
        raise _not_allowed(
            f"a backend of type {str(kind)[:100]!r} cannot be asked for over HTTP by {_with_article(user.role)}"
        )
    for name in options:
        if name not in allowed:
            raise _not_allowed(f"backend.{name} cannot be set over HTTP by {_with_article(user.role)}")
    if options.get("sandbox") == "none":
        raise _not_allowed("a sandbox is switched off in agents.yaml only")


def _check_settings(value: Any, user: User) -> None:
    allowed = (*SETTINGS, "extra") if user.has_role("admin") else SETTINGS
    for name in value if isinstance(value, Mapping) else ():
        if name not in allowed:
            raise _not_allowed(f"settings.{name} cannot be set over HTTP by {_with_article(user.role)}")


def _check_subagents(value: Any, user: User) -> None:
    """Check inline definitions of subagents. A string would name a file or a folder of the host."""
    if not isinstance(value, Mapping | list):
        raise _not_allowed("subagents are defined here, by name, with a description and a prompt")
    for one in value.values() if isinstance(value, Mapping) else value:
        if not isinstance(one, Mapping) or "hooks" in one:
            raise _not_allowed("a subagent is a map with description, prompt, tools and model; it has no hooks here")
        if one.get("model") is not None:
            _check_model(one["model"], user)
        _check_plain("subagents.tools", one.get("tools", []))
        _check_settings(one.get("settings"), user)
        if one.get("output_type") is not None and not isinstance(one["output_type"], Mapping):
            raise _not_allowed("output_type of a subagent is a JSON Schema here")


def _check_schema(value: Any, user: User) -> None:
    if not isinstance(value, Mapping):
        raise _not_allowed("structured_output.schema is a JSON Schema here")


def _check_mode(value: Any, user: User) -> None:
    if value not in USER_MODES and not user.has_role("operator"):
        raise _not_allowed(f"permissions.mode is one of {', '.join(USER_MODES)} here")


def _accept_any(value: Any, user: User) -> None:
    """Accept all values: free text is never resolved to code or files, and only an admin may set MCP servers."""


_SPECIAL: Mapping[tuple[str, str], Callable[[Any, User], None]] = {
    ("fallback", "models"): _check_models,
    ("critique", "model"): _check_model,
    ("summarization", "model"): _check_model,
    ("subagents", "agents"): _check_subagents,
    ("subagents", "models"): _accept_any,
    ("structured_output", "schema"): _check_schema,
    ("permissions", "mode"): _check_mode,
    ("permissions", "deny"): _accept_any,
    ("permissions", "ask"): _accept_any,
    ("permissions", "allow"): _accept_any,
    ("mcp", "servers"): _accept_any,
    ("context", "texts"): _accept_any,
    ("critique", "criteria"): _accept_any,
    ("self_description", "text"): _accept_any,
}


def _with_article(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"


def _not_allowed(message: str) -> ApiError:
    return ApiError(403, "not_allowed", message)
