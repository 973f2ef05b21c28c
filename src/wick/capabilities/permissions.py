"""Permission rules for tool uses: allow, ask or deny."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args
from weakref import WeakKeyDictionary

from wick._internal.aliases import ARGUMENTS, list_tool_aliases, resolve_tool_name
from wick._internal.frozen import canonical_json
from wick._internal.visible_text import cut_visible, make_visible
from wick._internal.worker_threads import run_in_thread
from wick.capability import Capability
from wick.constants import GUARD_SECONDS, QUESTION_CHARS, SHELL_INLINE_CHARS
from wick.decisions import Ask, Block
from wick.errors import BackendError, ConfigError
from wick.hooks import Hook, guard
from wick.operations import Run, ToolUse
from wick.permissions.proposals import parse_grants
from wick.permissions.rules import (
    POLICIES,
    Rule,
    RuleIndex,
    RuleSpec,
    RuleSubject,
    RuleType,
    find_allowing_rules,
    parse_rule,
)
from wick.protocols import Backend
from wick.threads import Thread
from wick.tools import Tool

T = TypeVar("T")

Mode = Literal["default", "plan", "acceptEdits", "bypassPermissions", "dontAsk"]
PLAN = "Plan mode: write operations not allowed"
KINDS = {
    "execute": "shell",
    **dict.fromkeys(("ls", "read_file", "glob", "grep"), "read"),
    **dict.fromkeys(("write_file", "edit_file"), "write"),
    **dict.fromkeys(("http_request", "web_search"), "network"),
}


@dataclass(frozen=True, slots=True)
class PermissionVerdict:
    """The decision about a tool use. `by` is the type of rule that decided, or `grant`, or `mode`."""

    decision: Literal["allow", "ask", "deny"]
    by: Literal["deny", "ask", "allow", "grant", "mode"]
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SessionGrants:
    """Grants in the answers of a thread: uses with exactly these arguments, and allow rules."""

    uses: frozenset[tuple[str, bytes]] = frozenset()
    rules: tuple[Rule, ...] = ()

    def join(self, others: SessionGrants) -> SessionGrants:
        rules = (*self.rules, *(rule for rule in others.rules if rule not in self.rules))
        return SessionGrants(self.uses | others.uses, rules)


class Permissions(Capability):
    """Decides about each tool use by rules, then by grants of the user, then by the mode.

    It is a guard: it sees the final arguments, and it also applies to child agents. A deny rule overrides everything.
    An allow rule only suppresses the question of the mode. With `missing_tools`, rules may name tools that the agent
    does not have.
    """

    def __init__(
        self,
        *,
        deny: Iterable[RuleSpec] = (),
        ask: Iterable[RuleSpec] = (),
        allow: Iterable[RuleSpec] = (),
        mode: Mode = "default",
        policy: str | Sequence[str] = (),
        grants: Iterable[Mapping[str, Any]] | None = None,
        backend: Backend | None = None,
        missing_tools: bool = False,
    ) -> None:
        if mode not in get_args(Mode):
            raise ConfigError(f"there is no permission mode {mode!r}; the modes are {', '.join(get_args(Mode))}")
        self.mode, self.backend, self.missing_tools = mode, backend, missing_tools
        names = [policy] if isinstance(policy, str) else _check_list("policy", policy)
        for name in names:
            if name not in POLICIES:
                raise ConfigError(f"there is no policy {name!r}; there is {', '.join(POLICIES)}")
        denied = [spec for name in names for spec in POLICIES[name]]
        self.rules = (
            *_parse_rules("deny", [*denied, *_check_list("deny", deny)]),
            *_parse_rules("ask", _check_list("ask", ask)),
            *_parse_rules("allow", _check_list("allow", allow)),
        )
        self._has_specifiers = any(rule.specifier for rule in self.rules)
        self._index = RuleIndex(self.rules)
        self._file_rules = tuple(rule for rule in self.rules if rule.specifier and not rule.is_host)
        self.grants = frozenset(_parse_grant(grant) for grant in _check_list("grants", grants or ()))
        self._are_stored = grants is not None  # in a store outside of the thread, where they can be revoked

    def hooks(self) -> list[Hook]:
        """Return the guard, and one hook per tool that is not built in: an agent without the tool refuses the rule."""
        needed = () if self.missing_tools else reversed(self.rules)
        names = {rule.tool: rule for rule in needed if not rule.allows_missing_tool}
        return [
            *super().hooks(),
            *(
                Hook(_pass_use, ToolUse, "guard", f"{self.name}.{rule.text}", tool, timeout=GUARD_SECONDS, owner=self)
                for tool, rule in names.items()
            ),
        ]

    @guard(ToolUse)
    async def check(self, use: ToolUse) -> Ask | Block | None:
        workdir = self.backend.workdir if self.backend is not None else ""
        subject = RuleSubject.from_use(use.bound, use.args, use.names, workdir=workdir)
        is_long = len(subject.command or "") > SHELL_INLINE_CHARS
        if is_long:
            script = await _run_in_thread(lambda: subject.script, "reading a command")
            subject = replace(subject, parsed=script)  # copies of the subject reuse the parsed script
        else:
            await asyncio.sleep(0)  # yield to the event loop between the calls of one reply
        if self.backend is not None and self._has_specifiers:
            # The target of a path that passes through a link is unknown.
            linked = [path for path in subject.paths() if await _leads_over_link(self.backend, path)]
            subject = replace(subject, linked=frozenset(linked))
        has_plain_path = subject.command is None and subject.path is not None and subject.path not in subject.linked
        if has_plain_path and any(rule.names_tool(subject) for rule in self._file_rules):
            # Rules match the path by its names, so the tool refuses it if a part of it becomes a link.
            use.state.grants.unlinked.add(use.args.get("path", ""))
        session = self._load_session_grants(use.run)
        granted = (use.bound.name, canonical_json(use.args)) in (self.grants | session.uses | use.grants)
        if is_long:
            verdict = await _run_in_thread(
                lambda: self._decide(subject, use.bound.read_only, granted, session.rules), "comparing rules"
            )
        else:
            verdict = self._decide(subject, use.bound.read_only, granted, session.rules)
        if verdict.decision == "deny":
            return Block(verdict.reason)
        if verdict.by == "mode" and verdict.decision == "ask":
            use.state.grants.default_question = verdict.reason
        return Ask(verdict.reason) if verdict.decision == "ask" else None

    def explain(self, tool: Tool | str, args: Mapping[str, Any], *, thread: Thread | None = None) -> PermissionVerdict:
        """Return the verdict about a tool use without running it. Links in the workspace are not resolved."""
        workdir = self.backend.workdir if self.backend is not None else ""
        if isinstance(tool, Tool):
            name, subject, read_only = tool.name, RuleSubject.from_use(tool, args, workdir=workdir), tool.read_only
        else:
            name, names = resolve_tool_name(tool), frozenset((tool, *list_tool_aliases(tool)))
            args = {ARGUMENTS.get(name, {}).get(key, key): value for key, value in args.items()}
            kind = KINDS.get(name, "")
            subject, read_only = RuleSubject(name, names, names, kind, args, workdir), kind == "read"
        entries = thread.effective_entries() if thread is not None else ()
        session = _collect_grants(thread.id if thread is not None else "", entries, self._are_stored)
        return self._decide(
            subject, read_only, (name, canonical_json(args)) in self.grants | session.uses, session.rules
        )

    def _decide(
        self, subject: RuleSubject, read_only: bool, granted: bool, granted_rules: tuple[Rule, ...]
    ) -> PermissionVerdict:
        """Return the verdict; in the mode `dontAsk`, a question becomes a denial."""
        verdict = self._apply_rules(subject, read_only, granted, granted_rules)
        if verdict.decision == "ask" and self.mode == "dontAsk":
            return replace(
                verdict,
                decision="deny",
                reason=f"questions are not asked in this mode, so this is denied: {verdict.reason}",
            )
        return verdict

    def _apply_rules(
        self, subject: RuleSubject, read_only: bool, granted: bool, granted_rules: tuple[Rule, ...]
    ) -> PermissionVerdict:
        matches = self._index.match(subject)
        for rule, answer in matches:
            if rule.type == "deny" and answer == "yes":
                return PermissionVerdict(
                    "deny", "deny", rule.text, rule.message or f"the permission rule {rule.text} denies this"
                )
        if self.mode == "plan" and not read_only:
            return PermissionVerdict("deny", "mode", "", PLAN)
        for rule, _ in matches:
            return PermissionVerdict("ask", rule.type, rule.text, _format_question(subject, rule))
        if granted:
            return PermissionVerdict("allow", "grant")
        if rules := find_allowing_rules(self.rules, subject):
            return PermissionVerdict("allow", "allow", ", ".join(rule.text for rule in rules))
        if granted_rules and (rules := find_allowing_rules((*self.rules, *granted_rules), subject)):
            return PermissionVerdict("allow", "grant", ", ".join(rule.text for rule in rules))
        is_edit = subject.kind == "read" or (subject.kind == "write" and subject.path is not None)
        if self.mode in ("bypassPermissions", "plan") or (self.mode == "acceptEdits" and is_edit):
            return PermissionVerdict("allow", "mode")
        # Tell the user why a command could not be parsed for the allow rules that name its tool.
        might = any(rule.type == "allow" and rule.specifier and rule.names_tool(subject) for rule in self.rules)
        opaque = subject.script.opaque if might and subject.command is not None else ()
        unread = opaque[0] if opaque else ""
        return PermissionVerdict("ask", "mode", "", _format_question(subject, unread=unread))

    def _load_session_grants(self, run: Run) -> SessionGrants:
        """Return the grants in the root run's thread. Each entry is read once per run."""
        thread, scratch = run.root.thread, run.root.scratch
        seen, granted = scratch.get(self, (0, SessionGrants()))
        fresh = thread.entries[seen:] if seen else thread.effective_entries()
        granted = granted.join(_collect_grants(thread.id, fresh, self._are_stored))
        scratch[self] = len(thread.entries), granted
        return granted  # type: ignore[no-any-return]


async def _leads_over_link(backend: Backend, path: str) -> bool:
    home = backend.workdir.rstrip("/")
    inside = path.removeprefix(f"{home}/") if path != home else ""
    if inside.startswith("/"):
        return True  # the backend cannot stat paths outside of the workspace
    parts = [part for part in inside.split("/") if part not in ("", ".")]
    for end in range(1, len(parts) + 1):
        try:
            entry = await backend.stat("/".join(parts[:end]))
        except BackendError as error:
            return error.code != "not_found"
        if entry["type"] == "link":
            return True
    return False


def _pass_use(use: ToolUse) -> None:
    """Allow the use. `check` applies the rules; this hook only makes the agent require the tool."""


def _check_list(option: str, given: Iterable[Any]) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise ConfigError(f"Permissions({option}=…) takes a list, also of one: {option}=[{given!r}]")
    return list(given)


def _parse_rules(type: RuleType, given: Iterable[RuleSpec]) -> list[Rule]:
    return [parse_rule(type, item) for item in given]


def _parse_grant(grant: Any) -> tuple[str, bytes]:
    """Return the tool and the canonical arguments that a grant covers."""
    fits = isinstance(grant, Mapping) and grant.get("operation", "tool_use") == "tool_use"
    if not fits or not isinstance(grant.get("tool"), str) or not isinstance(grant.get("args"), Mapping):
        raise ConfigError(f"a grant is {{tool: …, args: {{…}}}}, as an answer for good proposes it, not {grant!r}")
    return grant["tool"], canonical_json(grant["args"])


def _collect_grants(thread: str, entries: Iterable[Any], are_stored: bool) -> SessionGrants:
    """Return the grants for more than one use in a thread's answers.

    A grant is valid in the thread where it was given; a fork asks again. If grants are stored elsewhere, an `always`
    grant in the log counts only for its own run: it may have been revoked since.
    """
    grants: dict[str, set[tuple[str, bytes]]] = {"session": set(), "always": set()}
    rules: list[Rule] = []
    for entry in entries:
        if are_stored and entry.kind == "run_start":
            grants["always"].clear()
        answer = entry.data if entry.kind == "answered" and entry.data.get("thread") == thread else {}
        proposed = answer.get("rule", {})
        if answer.get("allowed") and answer.get("scope") in grants and proposed.get("operation") == "tool_use":
            use = (proposed["tool"], canonical_json(answer.get("args", proposed["args"])))  # as the user changed them
            grants[answer["scope"]].add(use)
            rules += parse_grants(proposed.get("rules", ()))
    return SessionGrants(frozenset(grants["session"] | grants["always"]), tuple(rules))


def _format_question(subject: RuleSubject, rule: Rule | None = None, unread: str = "") -> str:
    if rule is not None and rule.type == "ask" and rule.message:
        return rule.message
    # The whole command, path or URL is shown; other arguments are cut, with a count.
    target = subject.command or subject.path or subject.url
    args = json.dumps(subject.args, ensure_ascii=False)  # in the order of the call, as everywhere else
    shown = make_visible(target) if target else cut_visible(args, QUESTION_CHARS)
    words = f"May {subject.name} be used: {shown}"
    if rule is not None and rule.type == "deny":
        return f"{words} (it may be what the rule {rule.text} denies)"
    return f"{words} ({unread}, so no rule can allow it)" if unread else words


_thread_locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def _run_in_thread(fn: Callable[[], T], name: str) -> T:
    """Run a function in a worker thread, one at a time: several would starve the event loop of the GIL."""
    async with _thread_locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        return await run_in_thread(fn, name)
