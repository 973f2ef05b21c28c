#!/usr/bin/env python3
"""The pages of the reference, made from the source: docstrings, signatures, schemas and tables.

    python scripts/reference.py FOLDER      writes them there, to look at them

They are made whenever the site is built, so they are never out of date and are not kept.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from reference_files import agents_yaml, http, server_yaml
from reference_text import doc, explained, field_comments, first, signature, table, type_

import wick
import wick.capabilities
from wick import constants, errors, events
from wick.config import RINGS
from wick.hook_checks import POSITIONS, allowed_decisions
from wick.operations import OPERATIONS

MORE = {  # what is public beside the names of `wick` itself
    "wick.agent": ["RunOptions"],
    "wick.backends.local": ["Local"],
    "wick.backends.docker": ["Docker"],
    "wick.backends.state": ["State"],
    "wick.client": ["Client", "SyncClient"],
    "wick.config": ["load", "schema", "Config"],
    "wick.evals": [
        "load_suite",
        "run_suite",
        "EvalOptions",
        "read_recordings",
        "recordings_path",
        "write_recordings",
        "EvalTranscript",
        "Score",
    ],
    "wick.models": ["resolve"],
    "wick.models.anthropic": ["Anthropic"],
    "wick.models.local": ["Local"],
    "wick.models.openai": ["OpenAI"],
    "wick.models.openai_responses": ["OpenAIResponses"],
    "wick.prices": ["price"],
    "wick.program": ["program"],
    "wick.protocols": ["Model", "Request", "Usage", "Backend", "Store"],
    "wick.replay": ["replay", "Report"],
    "wick.server": ["Server", "User"],
    "wick.stores.in_memory": ["InMemory"],
    "wick.stores.postgres": ["Postgres"],
    "wick.stores.sqlite": ["Sqlite"],
    "wick.testing": ["Cassette", "NewCassette"],
    "wick.capabilities.subagents": ["Subagent"],
}
GIVEN = {"Operation", "Run", "RunOptions", "Step", "Stream", "ModelCall", "ToolUse"}  # programs do not construct these
SAME = {  # classes by module whose methods are described once: those of a protocol, or of another client
    "wick.backends": ("wick.protocols", "Backend"),
    "wick.client": ("wick.client", "Client"),
    "wick.stores": ("wick.protocols", "Store"),
}
INTERNAL = {  # members that only the engine uses; those of a base class also count for its subclasses
    "Agent": "find_deps_problem",
    "Result": "needs_output",
    "Limits": "hooks",
    "Thread": "output_from apply saved has_ended is_waiting_for attempt_status count_attempts hash_messages replay",
    "Operation": "asks state result_rules names prepare seal view is_intact apply_sealed on_gate_passed before_asking"
    " fork snapshot restore changed_since log_key sealed_to_json last_sealed",
    "Run": "run loop emitter asker make progress opened screen spend halt guards",
    "ModelCall": "endpoint charge",
    "ToolUse": "turns number valid data values shown bound grants grant validate canonical_args seal_recorded",
    "Hook": "call_with_deps matches deps",
    "Stop": "with_prefix outranks",
    "Tool": "foreign copy is_same bind prepare call",
    "Message": "cache digest",
    "Messages": "view",
    "Subagent": "wanted own",
    "Cassette": "holds_schema unsupported_reason",
}
GROUPS = {
    "Agents": ["Agent", "Result", "Stream", "Limits", "Thread"],
    "Operations": ["Operation", "Run", "Step", "ModelCall", "ToolUse"],
    "Positions": ["before", "wrap", "after", "guard", "Hook", "Next", "Capability"],
    "Decisions": ["Block", "Ask", "Stop", "Continue", "Question", "Allow", "Paused"],
    "Tools": ["tool", "Tool", "Deps", "HttpTool", "ToolError"],
    "Messages": ["Message", "Messages", "ToolCall", "ToolResult", "user", "system", "assistant", "tool_message"],
    "For tests": ["Scripted", "FunctionModel"],
    "Errors": ["WickError"],
}


# -- the public API -------------------------------------------------------------------------------------------------


def api() -> str:
    """Every public name, with its signature and what it says about itself."""
    lost = {*wick.__all__} ^ {name for names in GROUPS.values() for name in names}
    if lost:
        raise SystemExit(f"scripts/reference.py puts these public names into no group: {', '.join(sorted(lost))}")
    parts = ["# Public API\n", "All names are exported by `wick`, unless a module is given.\n"]
    for group, names in GROUPS.items():
        parts += [f"## {group}\n", *(_entry(name, getattr(wick, name)) for name in names)]
    for module, names in MORE.items():
        parts += [f"## {module}\n", *(_entry(name, getattr(import_module(module), name)) for name in names)]
    return "\n".join(parts)


def _entry(name: str, value: Any, level: int = 3) -> str:
    kind = value if isinstance(value, type) else None
    shown = "" if name in GIVEN else signature(name, value, internal_members(kind))
    parts = [f"{'#' * level} {name}\n", shown, doc(value)]
    if kind is not None and not issubclass(kind, BaseException):
        parts += [_fields(kind), *_described_methods(name, kind)]
    return "\n".join(part for part in parts if part)


def _described_methods(name: str, kind: type) -> Iterator[str]:
    """The methods of a class. Those that it shares with a protocol are described there."""
    methods, shared = _methods(kind), set[str]()
    module, other = next((SAME[found] for found in SAME if kind.__module__.startswith(found)), ("", ""))
    if other and other != name:
        shared = {method for method, _ in _methods(getattr(import_module(module), other))}
        yield f"It has the methods of [{other}](#{other.lower()}).\n"
    yield from (_method(name, *found) for found in methods if found[0] not in shared)


def internal_members(kind: type | None) -> set[str]:
    """Return the names of a class that only the engine uses."""
    above = kind.__mro__ if kind is not None else ()
    return {name for cls in above for name in INTERNAL.get(cls.__name__, "").split()}


def public_fields(kind: type) -> list[tuple[str, str, str]]:
    """Return the name, the type and the description of each public field of a data class or a typed dict."""
    if dataclasses.is_dataclass(kind):
        fields = {field.name: field.type for field in dataclasses.fields(kind)}
    else:
        fields = dict(vars(kind).get("__annotations__", {})) if hasattr(kind, "__total__") else {}
    hidden, words = internal_members(kind), field_comments(kind)
    return [
        (name, type_(hint), words.get(name, ""))
        for name, hint in fields.items()
        if not name.startswith("_") and name not in hidden
    ]


def _fields(kind: type) -> str:
    rows = [(f"`{name}`", f"`{type}`", words) for name, type, words in public_fields(kind)]
    return table(("Field", "Type", "Description"), rows) if rows else ""


def _methods(kind: type) -> list[tuple[str, Any]]:
    listed = {getattr(wick, name) for name in wick.__all__} - {kind}
    above = [cls for cls in reversed(kind.__mro__) if cls.__module__.startswith("wick") and cls not in listed]
    own = [(name, value) for cls in above for name, value in vars(cls).items()]
    hidden = internal_members(kind)
    public = {name: value for name, value in own if not name.startswith("_") and name not in hidden}
    return [(name, value) for name, value in public.items() if _is_method(value)]


def _is_method(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)


def _method(owner: str, name: str, value: Any) -> str:
    fn = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if isinstance(value, property):
        return f"#### {owner}.{name}\n\n{doc(fn)}"
    options = "The options are those of [RunOptions](#runoptions).\n" if "RunOptions" in signature(name, fn) else ""
    return "\n".join([f"#### {owner}.{name}\n", signature(name, fn), doc(fn), options])


# -- capabilities ---------------------------------------------------------------------------------------------------


def capabilities() -> str:
    """Every capability: what it takes, and where its hooks stand."""
    parts = ["# Capabilities\n", "In the order of a configuration file, outermost first. Each is in the module"
             " `wick.capabilities.<key>`.\n"]  # fmt: skip
    for ring in RINGS:
        if ring.kind:
            kind: Any = ring.load_class()
            where = f"Key in agents.yaml: `{ring.key}`" + ("; on unless it is `false`" if ring.always else "") + ".\n"
            about = f"{where.rstrip()} {explained(ring.key)}"
            parts += [f"## {ring.kind}\n", signature(ring.kind, kind), doc(kind), about, _standing(kind)]
    named = {ring.key for ring in RINGS}
    modules = [found.name for found in iter_modules(wick.capabilities.__path__) if not found.name.startswith("_")]
    rest = [name for name in modules if name not in named]
    if rest:
        raise SystemExit(f"these capabilities are no ring of wick.config: {', '.join(rest)}")
    return "\n".join(parts)


def _standing(kind: type) -> str:
    hooks = [value for cls in reversed(kind.__mro__) for value in vars(cls).values() if isinstance(value, wick.Hook)]
    tools = [value for cls in reversed(kind.__mro__) for value in vars(cls).values() if isinstance(value, wick.Tool)]
    rows = [(f"`{hook.position}_{hook.operation.operation_name}`", f"`{hook.name}`", first(hook.fn)) for hook in hooks]
    rows += [("tool", f"`{tool.name}`", first(tool.fn)) for tool in tools]
    return table(("Hook point", "Name", "Description"), rows) if rows else ""


# -- points, events, errors, caps -----------------------------------------------------------------------------------


def points() -> str:
    """The sixteen points, and the decisions that each of them takes."""
    decisions = ("Block", "Ask", "Stop", "Continue")
    rows = []
    for operation in OPERATIONS:
        for position in POSITIONS:
            can = {kind.__name__ for kind in allowed_decisions(position, operation.operation_name)}
            point = f"`{position}_{operation.operation_name}`"
            rows.append((point, *("yes" if one in can else "" for one in decisions)))
    changes = [(f"`{op.__name__}`", ", ".join(f"`{name}`" for name in op.editable) or "none", first(op))
               for op in OPERATIONS]  # fmt: skip
    return "\n".join([
        "# Hook points\n",
        "A hook point is a position of an operation. Every hook can return `None`.\n",
        table(("Hook point", *decisions), rows),
        "## Editable fields\n",
        table(("Operation", "Editable by `before` and `wrap`", "Description"), changes),
    ])  # fmt: skip


def event_page() -> str:
    """Every event, with its fields."""
    parts = ["# Events\n", doc(events), "Each is a class of `wick.events`; `to_json()` returns its wire format.\n"]
    for kind in events.Event.__subclasses__():
        common = {field.name for field in dataclasses.fields(events.Event)}
        last = " It is the last event of its run." if kind.terminal else ""
        rows = [(f"`{name}`", f"`{type}`", words) for name, type, words in public_fields(kind) if name not in common]
        fields = table(("Field", "Type", "Description"), rows) if rows else ""
        parts += [f"## {kind.event}\n", f"`{kind.__name__}`: {first(kind)}{last}\n", fields]
    return "\n".join(parts)


def error_page() -> str:
    """The tree of errors, and each of them."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, BaseException)]
    parts = ["# Errors\n", doc(errors)]
    for kind in kinds:
        above = kind.__mro__[1].__name__
        parts += [f"## {kind.__name__}\n", f"{first(kind)} A subclass of `{above}`.\n"]
        parts += [signature(kind.__name__, kind)] if "__init__" in vars(kind) else []
    return "\n".join(parts)


def cap_page() -> str:
    """Every cap, as caps.py has it."""
    parts = ["# Size and time limits\n", "All external input is limited. The limits are in one module,"
             " `wick.constants`. The guide names the options that change some of them.\n"]  # fmt: skip
    rows: list[tuple[str, str, str]] = []
    title = ""
    for line in inspect.getsource(constants).splitlines():
        if line.startswith("# "):
            parts += _caps_of(title, rows)
            title, rows = line[2:], []
        elif found := re.match(r"([A-Z_]+(?: = [A-Z_]+)*) = (.+?)(?:  # (.*))?$", line):
            rows += [(f"`{name}`", _number(getattr(constants, name)), found[3] or "") for name in found[1].split(" = ")]
    return "\n".join([*parts, *_caps_of(title, rows)])


def _caps_of(title: str, rows: list[tuple[str, str, str]]) -> list[str]:
    return [f"## {title[:1].upper()}{title[1:]}\n", table(("Constant", "Value", "Description"), rows)] if rows else []


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return " to ".join(map(_number, value))
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


# -- all of them ----------------------------------------------------------------------------------------------------

PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "api.md": ("every public name, with its signature", api),
    "capabilities.md": ("every capability, its options and its hook points", capabilities),
    "points.md": ("the sixteen hook points, and their allowed decisions", points),
    "events.md": ("the events of a run", event_page),
    "errors.md": ("the exception hierarchy", error_page),
    "agents-yaml.md": ("every key of agents.yaml", agents_yaml),
    "server-yaml.md": ("every key of server.yaml", server_yaml),
    "http.md": ("every route of the server, with its role, request and response", http),
    "caps.md": ("every limit, and its value", cap_page),
}


def pages() -> dict[str, str]:
    """The pages by their names, and one that lists them."""
    made = {name: make() for name, (_, make) in PAGES.items()}
    rows = [(f"[{text.partition(chr(10))[0].lstrip('# ')}]({name})", PAGES[name][0]) for name, text in made.items()]
    rows += [("[Hook programs](executable-hooks.md)", "the supported fields of each format, generated from the tests")]
    return {
        "index.md": "# Reference\n\nGenerated from the source when this site is built.\n\n"
        + table(("Page", "Content"), rows),
        **made,
    }


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
    print(f"wrote {len(PAGES) + 1} pages")
