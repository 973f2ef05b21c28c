"""The fields of the three protocols of hook programs, and their support by wick.

A field is supported if a test shows that it changes something: the test carries `@pytest.mark.shows(protocol, event,
field)`. Fields without such a test are listed below with a reason, in DIFFERENT (supported with other semantics) or in
MISSING (ignored). `scripts/conformance-table.py` generates docs/reference/executable-hooks.md from these tables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "executable-hooks.md"
EVERY = "*"  # common fields of all events of a protocol

Field = tuple[str, str, str]  # protocol, event, field


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event of a protocol: what a program is told, what it may answer, and what else there is to it."""

    event: str
    told: str = ""
    answers: str = ""
    rules: str = ""

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The kind of each field, and the field; one that a program is told and may answer is of both kinds."""
        kinds: dict[str, list[str]] = {}
        for kind, text in {"input": self.told, "output": self.answers, "rule": self.rules}.items():
            for field in text.split():
                kinds.setdefault(field, []).append(kind)
        return [(" and ".join(found), field) for field, found in kinds.items()]


TITLES = {
    "kodelet": "One program per hook (kodelet's format)",
    "claude": "Claude Code's settings format",
    "lines": "Warm programs",
}

_KODELET_CALL = "tool_name tool_input tool_user_id"
_CLAUDE_CALL = "tool_name tool_input"
_REASON = "decision reason"

CONTRACT: dict[str, tuple[HookEvent, ...]] = {
    "kodelet": (
        HookEvent(
            EVERY,
            "event conv_id cwd invoked_by recipe_name",
            "",
            "hook run empty-stdout exit-code timeout chain",
        ),
        HookEvent(
            "discovery",
            rules="precedence prefix disable execute-bit shadowing order query-timeout last-known-type",
        ),
        HookEvent("before_tool_call", _KODELET_CALL, "blocked reason input"),
        HookEvent(
            "after_tool_call",
            f"{_KODELET_CALL} tool_output tool_output.toolName tool_output.success tool_output.error "
            "tool_output.metadata tool_output.timestamp",
            "output",
            "after-a-block",
        ),
        HookEvent("user_message_send", "message", "blocked reason"),
        HookEvent("agent_stop", "messages messages.role messages.content", "follow_up_messages", "accumulate cap"),
        HookEvent("turn_end", "response turn_number", "", "not-for-an-empty-response"),
        HookEvent("recipe", rules="handler once swap_context allowed_tools"),
    ),
    "claude": (
        HookEvent(
            EVERY,
            "session_id transcript_path cwd permission_mode hook_event_name agent_id agent_type",
            "continue stopReason suppressOutput systemMessage hookEventName",
            "exit-0-text exit-2 exit-other invalid-json parallel long-strings CLAUDE_PROJECT_DIR",
        ),
        HookEvent(
            "settings",
            rules="hooks disableAllHooks matcher type-command type-http type-prompt command args url headers prompt "
            "timeout if once merge identical-handler",
        ),
        HookEvent("SessionStart", "source", "additionalContext initialUserMessage", "plain-text exit-2"),
        HookEvent("UserPromptSubmit", "prompt", "additionalContext decision reason", "plain-text exit-2"),
        HookEvent(
            "PreToolUse",
            f"{_CLAUDE_CALL} tool_use_id",
            "permissionDecision permissionDecisionReason updatedInput additionalContext decision reason",
            "exit-2 precedence",
        ),
        HookEvent(
            "PermissionRequest",
            f"{_CLAUDE_CALL} permission_suggestions",
            "decision.behavior decision.updatedInput decision.message decision.interrupt",
        ),
        HookEvent(
            "PostToolUse",
            f"{_CLAUDE_CALL} tool_response tool_use_id duration_ms",
            "additionalContext updatedToolOutput decision reason",
            "exit-2",
        ),
        HookEvent(
            "PostToolUseFailure",
            f"{_CLAUDE_CALL} error is_interrupt tool_use_id duration_ms",
            "additionalContext decision reason",
            "exit-2",
        ),
        HookEvent("SubagentStart", "agent_id agent_type", "additionalContext", "exit-2"),
        HookEvent("SubagentStop", "agent_id agent_type stop_hook_active last_assistant_message", _REASON, "exit-2"),
        HookEvent("PreCompact", "trigger custom_instructions", "decision reason", "exit-2"),
        HookEvent("PostCompact", "trigger compact_summary"),
        HookEvent("Notification", "message title notification_type"),
        HookEvent("Stop", "stop_hook_active last_assistant_message", "decision reason additionalContext", "exit-2 cap"),
        HookEvent("SessionEnd", "reason"),
    ),
    "lines": (
        HookEvent("hook", rules="points protocol match tools"),
        HookEvent(
            EVERY,
            "id event run thread agent user cwd",
            "id decision reason",
            "many-in-flight timeout crash broken-line idle back-off",
        ),
        HookEvent("before_run", "input system", "input system"),
        HookEvent("guard_run", "input system"),
        HookEvent("after_run", "result error"),
        HookEvent("wrap_run", "phase result", "result"),
        HookEvent("before_step", "number"),
        HookEvent("guard_step", "number"),
        HookEvent("after_step", "number result", "message"),
        HookEvent("before_model_call", "system messages", "system"),
        HookEvent("guard_model_call", "system messages"),
        HookEvent("after_model_call", "result error", "result"),
        HookEvent("wrap_model_call", "phase result", "result"),
        HookEvent("before_tool_use", "tool args", "args question"),
        HookEvent("guard_tool_use", "tool args", "question"),
        HookEvent("after_tool_use", "tool args result error", "result"),
        HookEvent("wrap_tool_use", "phase result", "result"),
    ),
}  # fmt: skip

# Fields that work, but not as the tool that they come from has them.
DIFFERENT: dict[Field, str] = {
    ("kodelet", EVERY, "exit-code"): "any code but 0 denies where a program decides, unless `fail: open` is set",
    ("kodelet", EVERY, "timeout"): "the whole process tree is killed, and a deciding program denies",
    ("kodelet", EVERY, "chain"): "each program sees the changes of the previous one; in kodelet each sees the original",
    ("kodelet", "discovery", "shadowing"): "a broken program does not hide a valid one of the same name further down",
    ("kodelet", "discovery", "last-known-type"): "a trusted program whose query fails keeps its type and denies",
    ("kodelet", "before_tool_call", "tool_input"): "arguments that kodelet's tool does not have keep wick's names",
    ("kodelet", "after_tool_call", "tool_output.metadata"): '`{"output": …}` for every tool',
    ("kodelet", "after_tool_call", "output"): "its `metadata.output` is what the model reads",
    ("claude", EVERY, "exit-other"): "denies for PreToolUse and UserPromptSubmit, unless the entry says `fail: open`",
    ("claude", EVERY, "invalid-json"): "denies for PreToolUse and UserPromptSubmit, unless the entry says `fail: open`",
    ("claude", EVERY, "transcript_path"): "it exists during the run; programs in a sandbox do not see it",
    ("claude", EVERY, "suppressOutput"): "the output of a program is in the log of the thread, unless this is true",
    ("claude", EVERY, "systemMessage"): "an event `system_message` in the log of the thread",
    ("claude", "settings", "matcher"): "regular expressions use RE2; an unsupported pattern denies",
    ("claude", "settings", "type-prompt"): "uses the model of the run; a reply that is not JSON denies",
    ("claude", "settings", "if"): "if it is unclear whether the rule matches, the handler is called",
    ("claude", "settings", "once"): "once per conversation",
    ("claude", "settings", "identical-handler"): "identical in every field except its matcher and its file",
    ("claude", "SessionStart", "source"): "clear for a conversation that was rewound to its beginning",
    ("claude", "SessionStart", "initialUserMessage"): "is added before the user message",
    ("claude", "PreToolUse", "permissionDecision"): "defer asks the user, like ask; an allow overrides no rule",
    (
        "claude",
        "PreToolUse",
        "updatedInput",
    ): "of several the last in the settings counts, and the other handlers are asked again",
    ("claude", "PermissionRequest", "decision.behavior"): "allow answers the permission mode, not a rule",
    ("claude", "Notification", "notification_type"): "idle_prompt is sent when a run has ended, not a minute later",
    ("claude", "PreCompact", "exit-2"): "nothing is summarized, and the run continues",
    ("claude", "Stop", "cap"): "8 per run in total",
    ("claude", "SessionEnd", "reason"): "always `other`: when the capability is closed",
}

# Fields that do nothing in wick, and why.
MISSING: dict[Field, str] = {
    ("claude", "PostToolUseFailure", "is_interrupt"): "always false: no hook is called after a run is cancelled",
}


@cache
def contract_fields() -> dict[Field, str]:
    """Every field of the contract, with its kind."""
    return {
        (protocol, part.event, field): kind
        for protocol, parts in CONTRACT.items()
        for part in parts
        for kind, field in part.fields
    }


# -- tests by field -------------------------------------------------------------------------------------------------


@cache
def marked_fields(folder: Path = ROOT / "tests") -> dict[Field, list[str]]:
    """The fields that tests say they show, with the names of those tests."""
    found: dict[Field, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for test, field in _find_marks(ast.parse(text)) if ".shows(" in text else ():
            found.setdefault(_expand_field(field), []).append(f"{path.relative_to(ROOT).as_posix()}::{test}")
    return found


def _expand_field(field: Field) -> Field:
    """A field that all events have may be shown at any of them."""
    protocol, _, name = field
    everywhere = (protocol, EVERY, name)
    return everywhere if field not in contract_fields() and everywhere in contract_fields() else field


def _find_marks(tree: ast.Module) -> Iterator[tuple[str, Field]]:
    module = [field for node in tree.body if isinstance(node, ast.Assign) for field in _fields_of_marks(node.value)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for field in [*module, *(field for mark in node.decorator_list for field in _fields_of_marks(mark))]:
                yield node.name, field


def _fields_of_marks(tree: ast.expr) -> Iterator[Field]:
    """Yield the fields of the marks in an expression, also inside `pytest.param(…, marks=…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "shows":
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            protocol, event, *names = map(str, words)
            yield from ((protocol, event, name) for name in names)


# -- the page -------------------------------------------------------------------------------------------------------

_HEAD = """\
# Hook programs, field by field

The fields of the three hook program protocols, and their support in wick. `scripts/conformance-table.py` generates
this page from the tests: a field is *supported* if a test shows its effect. The [guide](../guide/executables.md)
explains how to use hook programs.

| Status | Meaning |
|---|---|
| supported | a test shows it |
| different | it works, with the difference in the last column |
| not supported | it has no effect; the last column gives the reason |
"""


def render_page() -> str:
    """The page of the docs."""
    tested = marked_fields()
    parts = [_render_section(protocol, tested) for protocol in CONTRACT]
    return "\n".join([_HEAD, *parts]).rstrip() + "\n"


def _render_section(protocol: str, tested: dict[Field, list[str]]) -> str:
    lines = [f"## {TITLES[protocol]}", "", "| Event | Field | Kind | Status | Notes |", "|---|---|---|---|---|"]
    for part in CONTRACT[protocol]:
        for kind, field in part.fields:
            mark, reason = _render_mark((protocol, part.event, field), tested)
            event = "every event" if part.event == EVERY else f"`{part.event}`"
            lines.append(f"| {event} | `{field}` | {kind} | {mark} | {reason} |")
    return "\n".join([*lines, ""])


def _render_mark(field: Field, tested: dict[Field, list[str]]) -> tuple[str, str]:
    if field in tested:
        return ("different", DIFFERENT[field]) if field in DIFFERENT else ("supported", "")
    return "not supported", MISSING.get(field, "")
