"""Claude Code's settings format: handlers for events, in settings files and in wick's own config.

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}]}}

`parse_settings` parses one such map, and `merge_settings` combines several. Identical handlers run once. Unusable
handlers are not dropped: at a deciding event, a handler that wick cannot run has not agreed.
"""

from __future__ import annotations

import json
import logging
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wick import constants
from wick._internal.frozen import canonical_json
from wick.errors import BackendError, ConfigError
from wick.hook_programs.failure_policy import Fail, one_line
from wick.hook_programs.registry import TrustState
from wick.permissions.rules import Rule, parse_rule
from wick.workspace.grep import LineSearch

logger = logging.getLogger(__name__)

EVENTS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"),
    *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification", "Stop", "SessionEnd"),
)
TOOL_EVENTS = frozenset(("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"))
PLAIN = frozenset(("UserPromptSubmit", "Stop"))  # events without names for a matcher

LONGEST_SECONDS = 86_400.0

_NAMES = re.compile(r"[A-Za-z0-9_\-, |]*")
_NEEDS = {"command": ("command", "args"), "http": ("url",), "prompt": ("prompt",)}


@dataclass(frozen=True, slots=True)
class HookHandler:
    """A handler of one event. `problem` continues a sentence about why it cannot be used."""

    event: str
    type: str = "command"
    matcher: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    timeout: float | None = None
    condition: str = ""
    once: bool = False
    fail: Fail | None = None
    source: str = ""
    trust: TrustState = "trusted"
    problem: str = ""
    test: Callable[[Iterable[str]], bool] = field(default=lambda names: True, repr=False, compare=False)
    rule: Rule | None = field(default=None, repr=False, compare=False)
    check: Callable[[], str] = field(default=lambda: "", repr=False, compare=False)  # returns a problem of its files

    @property
    def seconds(self) -> float:
        if self.timeout is not None:
            return self.timeout
        short = self.type == "prompt" or self.event == "UserPromptSubmit"
        return constants.HOOK_SECONDS if short else constants.HOOK_COMMAND_SECONDS

    @property
    def name(self) -> str:
        """The name for messages and lists."""
        return one_line(self.command or " ".join(self.args) or self.url or self.prompt or self.type, 80)

    @property
    def key(self) -> str:
        """A key that identical handlers share."""
        fields = [self.event, self.type, self.command, [*self.args], self.url, dict(self.headers), self.prompt]
        return canonical_json([*fields, self.timeout, self.condition, self.once, self.fail, self.problem]).decode()


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The handlers of several files, in order. `disabled` switches all of them off."""

    entries: tuple[HookHandler, ...] = ()
    disabled: bool = False

    def for_event(self, event: str) -> tuple[HookHandler, ...]:
        """Return the handlers of an event, without untrusted ones."""
        if self.disabled:
            return ()
        return tuple(entry for entry in self.entries if entry.event == event and entry.trust != "untrusted")


def merge_settings(*given: HookSettings) -> HookSettings:
    """Merge settings. One that disables all hooks disables the result."""
    return HookSettings(
        tuple(entry for settings in given for entry in settings.entries), any(settings.disabled for settings in given)
    )


def read_settings(path: Path) -> HookSettings:
    """Read a settings file; a missing file gives empty settings."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"the settings {path} are not a file")
        with path.open("rb") as file:
            return parse_settings_bytes(file.read(constants.CONFIG_BYTES + 1), str(path))
    except FileNotFoundError:
        return HookSettings()
    except OSError as error:
        raise ConfigError(f"the settings {path} cannot be read: {error.strerror or error}") from None


def parse_settings_bytes(data: bytes, source: str) -> HookSettings:
    """Parse the content of a settings file. Unknown events and handler types are not errors here."""
    if len(data) > constants.CONFIG_BYTES:
        raise ConfigError(f"the settings {source} are larger than {constants.CONFIG_BYTES:,} bytes")
    try:
        given = json.loads(data.decode()) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the settings {source} are not JSON: {one_line(error)}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"the settings {source} are a JSON object, and this is not one")
    disabled = given.get("disableAllHooks", False)
    if not isinstance(disabled, bool):
        raise ConfigError(f"disableAllHooks in {source} is true or false, not {disabled!r}")
    hooks = given.get("hooks")
    return replace(parse_settings({} if hooks is None else hooks, source, strict=False), disabled=disabled)


def parse_settings(hooks: Any, source: str = "config", *, strict: bool = True) -> HookSettings:
    """Parse a map of events to handlers; `strict` raises ConfigError for an unknown event."""
    if not isinstance(hooks, Mapping):
        raise ConfigError(f"the hooks in {source} are a map of events, such as PreToolUse, not {_shorten(hooks)}")
    entries: list[HookHandler] = []
    for event, groups in hooks.items():
        if event in EVENTS:
            entries += _parse_event(str(event), groups, source)
        elif strict:
            raise ConfigError(
                f"there is no event named {_shorten(event)} in {source}; the events are {', '.join(EVENTS)}"
            )
        else:
            logger.warning("the hooks of %r in %s are not called: wick has no such event", event, source)
    return HookSettings(tuple(entries))


def _parse_event(event: str, groups: Any, source: str) -> Iterable[HookHandler]:
    where = f"{event} in {source}"
    for group in _check_list(groups, where):
        if not isinstance(group, Mapping):
            raise ConfigError(f"{where} is a list of {{matcher, hooks}}, and this is not one: {_shorten(group)}")
        matcher = _check_text(group, "matcher", where)
        for handler in _check_list(group.get("hooks", []), f"the hooks of {where}"):
            if not isinstance(handler, Mapping):
                raise ConfigError(f"a handler of {where} is {{type, command, …}}, not {_shorten(handler)}")
            yield _compile_handler(_parse_handler(event, matcher, handler, where, source))


def _parse_handler(event: str, matcher: str, handler: Mapping[str, Any], where: str, source: str) -> HookHandler:
    kind = _check_text(handler, "type", where) or "command"
    timeout, once, fail = handler.get("timeout"), handler.get("once", False), handler.get("fail")
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout <= LONGEST_SECONDS):
        raise ConfigError(
            f"the timeout of a handler of {where} is a number of seconds above 0, not {_shorten(timeout)}"
        )
    if not isinstance(once, bool):
        raise ConfigError(f"once, in a handler of {where}, is true or false, not {_shorten(once)}")
    needs = _NEEDS.get(kind, ())
    if needs and not any(handler.get(name) for name in needs):
        raise ConfigError(f"a handler of {where} of the type {kind} needs {' or '.join(needs)}")
    if fail not in (None, "open", "closed"):
        raise ConfigError(f"fail, in a handler of {where}, is open or closed, not {_shorten(fail)}")
    args, headers = handler.get("args") or [], handler.get("headers") or {}
    if not isinstance(args, list | tuple) or not all(isinstance(item, str) for item in args):
        raise ConfigError(f"args, in a handler of {where}, is a list of texts, not {_shorten(args)}")
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise ConfigError(f"headers, in a handler of {where}, is a map of texts, not {_shorten(headers)}")
    return HookHandler(
        event,
        kind,
        matcher,
        command=_check_text(handler, "command", where),
        url=_check_text(handler, "url", where),
        prompt=_check_text(handler, "prompt", where),
        args=tuple(args),
        headers=dict(headers),
        timeout=timeout,
        condition=_check_text(handler, "if", where),
        once=once,
        fail=fail,
        source=source,
        problem="" if needs else f"is of the type {kind!r}, which wick cannot run",
    )


def _compile_handler(entry: HookHandler) -> HookHandler:
    """Compile the matcher and the rule of a handler. A broken handler matches every use, with a problem."""
    if entry.problem:
        return entry
    try:
        test = compile_matcher(entry.matcher) if entry.event not in PLAIN else entry.test
    except (BackendError, ConfigError) as error:
        return _with_problem(entry, f"has a matcher that cannot be used: {one_line(error)}")
    if not entry.condition:
        return replace(entry, test=test)
    if entry.event not in TOOL_EVENTS:
        return _with_problem(entry, f"has an `if`, which {entry.event} cannot have: it is for events of tools")
    try:
        return replace(entry, test=test, rule=parse_rule("deny", entry.condition))
    except ConfigError as error:
        return _with_problem(entry, f"has an `if` that cannot be used: {one_line(error)}")


def _with_problem(entry: HookHandler, problem: str) -> HookHandler:
    logger.warning("the hook program %s at %s %s", entry.name, entry.event, problem)
    return replace(entry, problem=problem)


def compile_matcher(matcher: str) -> Callable[[Iterable[str]], bool]:
    """Compile a matcher: everything, a list of names, or a regular expression (RE2) searched in names."""
    if matcher in ("", "*"):
        return lambda names: True
    if _NAMES.fullmatch(matcher):
        wanted = frozenset(name.strip() for name in re.split("[,|]", matcher))
        return lambda names: not wanted.isdisjoint(names)
    search = LineSearch(matcher)
    return lambda names: any(next(search.find_lines([name.encode("utf-8", "replace")]), None) for name in names)


# -- validation -------------------------------------------------------------------------------------------------------


def _check_list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{where} is a list, also of one, not {_shorten(given)}")
    return list(given)


def _check_text(given: Mapping[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}, in {where}, is a text, not {_shorten(value)}")
    return value or ""


def _shorten(value: Any) -> str:
    return one_line(repr(value), 60)
