"""Claude Code's settings format: which programs stand at which events, as files and wick's own config say it.

    {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}]}}

`parse` reads one such text, `merge` puts several together: an identical handler runs once. What cannot be used is not
left out: a handler at an event that decides, which wick cannot run, has not agreed to anything.
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
from wick.hook_programs.failure_policy import Fail, words
from wick.hook_programs.registry import Standing
from wick.permissions.rules import Rule, rule
from wick.workspace.grep import LineSearch

logger = logging.getLogger(__name__)

EVENTS = (
    *("SessionStart", "UserPromptSubmit", "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"),
    *("SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification", "Stop", "SessionEnd"),
)
TOOL_EVENTS = frozenset(("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"))
PLAIN = frozenset(("UserPromptSubmit", "Stop"))  # events that have nothing for a matcher to look at

LONGEST_SECONDS = 86_400.0

_NAMES = re.compile(r"[A-Za-z0-9_\-, |]*")
_NEEDS = {"command": ("command", "args"), "http": ("url",), "prompt": ("prompt",)}


def _stands() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One handler of one event. `problem` says, as the rest of a sentence, why it cannot be used."""

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
    trust: Standing = "trusted"
    problem: str = ""
    test: Callable[[Iterable[str]], bool] = field(default=lambda names: True, repr=False, compare=False)
    rule: Rule | None = field(default=None, repr=False, compare=False)
    check: Callable[[], str] = field(default=_stands, repr=False, compare=False)  # what is wrong with its files now

    @property
    def seconds(self) -> float:
        if self.timeout is not None:
            return self.timeout
        short = self.type == "prompt" or self.event == "UserPromptSubmit"
        return constants.HOOK_SECONDS if short else constants.HOOK_COMMAND_SECONDS

    @property
    def name(self) -> str:
        """What people know it by."""
        return words(self.command or " ".join(self.args) or self.url or self.prompt or self.type, 80)

    @property
    def key(self) -> str:
        """The same for handlers that are identical."""
        told = [self.event, self.type, self.command, [*self.args], self.url, dict(self.headers), self.prompt]
        return canonical_json([*told, self.timeout, self.condition, self.once, self.fail, self.problem]).decode()


@dataclass(frozen=True, slots=True)
class Settings:
    """The handlers of several files, in their order. `disabled` switches all of them off."""

    entries: tuple[Entry, ...] = ()
    disabled: bool = False

    def of(self, event: str) -> tuple[Entry, ...]:
        """The handlers of an event that may run."""
        return () if self.disabled else tuple(entry for entry in self.entries if entry.event == event and _runs(entry))


def _runs(entry: Entry) -> bool:
    return entry.trust != "untrusted"


def merge(*given: Settings) -> Settings:
    """Several settings as one; one that disables all hooks disables all."""
    return Settings(
        tuple(entry for settings in given for entry in settings.entries), any(settings.disabled for settings in given)
    )


def read(path: Path) -> Settings:
    """The settings in a file; one that is not there has none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ConfigError(f"the settings {path} are no file")
        with path.open("rb") as file:
            return from_bytes(file.read(constants.CONFIG_BYTES + 1), str(path))
    except FileNotFoundError:
        return Settings()
    except OSError as error:
        raise ConfigError(f"the settings {path} cannot be read: {error.strerror or error}") from None


def from_bytes(data: bytes, source: str) -> Settings:
    """The settings that a file holds. Events and kinds of handlers that other versions have are no error here."""
    if len(data) > constants.CONFIG_BYTES:
        raise ConfigError(f"the settings {source} are larger than {constants.CONFIG_BYTES:,} bytes")
    try:
        given = json.loads(data.decode()) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the settings {source} are not JSON: {words(error)}") from None
    if not isinstance(given, dict):
        raise ConfigError(f"the settings {source} are a JSON object, and this is not one")
    disabled = given.get("disableAllHooks", False)
    if not isinstance(disabled, bool):
        raise ConfigError(f"disableAllHooks in {source} is true or false, not {disabled!r}")
    hooks = given.get("hooks")
    return replace(parse({} if hooks is None else hooks, source, strict=False), disabled=disabled)


def parse(hooks: Any, source: str = "config", *, strict: bool = True) -> Settings:
    """The handlers in a map of events; `strict` refuses an event that wick does not know."""
    if not isinstance(hooks, Mapping):
        raise ConfigError(f"the hooks in {source} are a map of events, such as PreToolUse, not {_short(hooks)}")
    entries: list[Entry] = []
    for event, groups in hooks.items():
        if event in EVENTS:
            entries += _event(str(event), groups, source)
        elif strict:
            raise ConfigError(
                f"there is no event named {_short(event)} in {source}; the events are {', '.join(EVENTS)}"
            )
        else:
            logger.warning("the hooks of %r in %s are not called: wick has no such event", event, source)
    return Settings(tuple(entries))


def _event(event: str, groups: Any, source: str) -> Iterable[Entry]:
    where = f"{event} in {source}"
    for group in _list(groups, where):
        if not isinstance(group, Mapping):
            raise ConfigError(f"{where} is a list of {{matcher, hooks}}, and this is not one: {_short(group)}")
        matcher = _text(group, "matcher", where)
        for handler in _list(group.get("hooks", []), f"the hooks of {where}"):
            if not isinstance(handler, Mapping):
                raise ConfigError(f"a handler of {where} is {{type, command, …}}, not {_short(handler)}")
            yield _prepared(_entry(event, matcher, handler, where, source))


def _entry(event: str, matcher: str, handler: Mapping[str, Any], where: str, source: str) -> Entry:
    kind = _text(handler, "type", where) or "command"
    timeout, once = handler.get("timeout"), handler.get("once", False)
    if timeout is not None and not _is_time(timeout):
        raise ConfigError(f"the timeout of a handler of {where} is a number of seconds above 0, not {_short(timeout)}")
    if not isinstance(once, bool):
        raise ConfigError(f"once, in a handler of {where}, is true or false, not {_short(once)}")
    needs = _NEEDS.get(kind, ())
    if needs and not any(handler.get(name) for name in needs):
        raise ConfigError(f"a handler of {where} of the type {kind} needs {' or '.join(needs)}")
    return Entry(
        event,
        kind,
        matcher,
        command=_text(handler, "command", where),
        url=_text(handler, "url", where),
        prompt=_text(handler, "prompt", where),
        args=tuple(_texts(handler.get("args") or [], f"args, in a handler of {where},")),
        headers=_headers(handler.get("headers") or {}, where),
        timeout=timeout,
        condition=_text(handler, "if", where),
        once=once,
        fail=_fail(handler.get("fail"), where),
        source=source,
        problem="" if needs else f"is of the type {kind!r}, which wick cannot run",
    )


def _prepared(entry: Entry) -> Entry:
    """With its matcher and its rule; what is wrong with them is its problem, and then it stands at all of its event."""
    if entry.problem:
        return entry
    try:
        test = matching(entry.matcher) if entry.event not in PLAIN else entry.test
    except (BackendError, ConfigError) as error:
        return _broken(entry, f"has a matcher that cannot be used: {words(error)}")
    if not entry.condition:
        return replace(entry, test=test)
    if entry.event not in TOOL_EVENTS:
        return _broken(entry, f"has an `if`, which {entry.event} cannot have: it is for events of tools")
    try:
        return replace(entry, test=test, rule=rule("deny", entry.condition))
    except ConfigError as error:
        return _broken(entry, f"has an `if` that cannot be used: {words(error)}")


def _broken(entry: Entry, problem: str) -> Entry:
    logger.warning("the hook program %s at %s %s", entry.name, entry.event, problem)
    return replace(entry, problem=problem)


def matching(matcher: str) -> Callable[[Iterable[str]], bool]:
    """What a matcher means: everything, names, or a regular expression (RE2) that is found somewhere in a name."""
    if matcher in ("", "*"):
        return lambda names: True
    if _NAMES.fullmatch(matcher):
        wanted = frozenset(name.strip() for name in re.split("[,|]", matcher))
        return lambda names: not wanted.isdisjoint(names)
    search = LineSearch(matcher)
    return lambda names: any(next(search.find_lines([name.encode("utf-8", "replace")]), None) for name in names)


# -- reading what people write ----------------------------------------------------------------------------------------


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise ConfigError(f"{where} is a list, also of one, not {_short(given)}")
    return list(given)


def _text(given: Mapping[str, Any], name: str, where: str) -> str:
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}, in {where}, is a text, not {_short(value)}")
    return value or ""


def _texts(given: Any, what: str) -> list[str]:
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise ConfigError(f"{what} is a list of texts, not {_short(given)}")
    return list(given)


def _is_time(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool) and 0 < given <= LONGEST_SECONDS


def _headers(given: Any, where: str) -> dict[str, str]:
    if not isinstance(given, Mapping) or not all(isinstance(item, str) for pair in given.items() for item in pair):
        raise ConfigError(f"headers, in a handler of {where}, is a map of texts, not {_short(given)}")
    return dict(given)


def _fail(given: Any, where: str) -> Fail | None:
    if given not in (None, "open", "closed"):
        raise ConfigError(f"fail, in a handler of {where}, is open or closed, not {_short(given)}")
    return given  # type: ignore[no-any-return]


def _short(value: Any) -> str:
    return words(repr(value), 60)
