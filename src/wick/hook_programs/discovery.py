"""Where programs are looked for, in which order, and what each of them says that it hooks.

    .wick/hooks/                     of the folder, when it is trusted
    .wick/plugins/<org@repo>/hooks/
    ~/.wick/hooks/                   the user's own
    ~/.wick/plugins/<org@repo>/hooks/

A name that was loaded is not loaded again; one that is broken or not trusted hides nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wick import constants
from wick._internal import aliases
from wick.errors import ConfigError, HookError
from wick.hook_programs.answers import Unfit, only, parsed
from wick.hook_programs.failure_policy import Fail, words
from wick.hook_programs.kodelet import EVENTS
from wick.hook_programs.registry import Found, Protocol
from wick.hook_programs.runner import Ran, Runner, blocking
from wick.hook_programs.trust import Trust, at_home, checking, guarding, parts
from wick.hooks import parse_patterns

logger = logging.getLogger(__name__)

DISABLED = ".disable"
_TYPE = {"points": list, "protocol": str, "match": str, "tools": list}
_PROTOCOLS = ("run", "lines")


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory with programs. What is not `own` runs only when its files are trusted."""

    path: Path
    prefix: str = ""
    source: str = ""
    own: bool = True


@dataclass(frozen=True, slots=True)
class Type:
    """What a program says that it hooks."""

    points: tuple[str, ...]
    protocol: Protocol = "run"
    match: str | None = None
    tools: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        row = {"points": [*self.points], "protocol": self.protocol, "match": self.match, "tools": [*self.tools]}
        return {name: value for name, value in row.items() if value}


def named(dirs: Any, base: str | Path = ".") -> list[Directory]:
    """Directories that somebody names: a path, or {"dir": path, "prefix": text}."""
    return [_named(given, Path(base)) for given in ([dirs] if isinstance(dirs, str | os.PathLike | Mapping) else dirs)]


def _named(given: Any, base: Path) -> Directory:
    if isinstance(given, str | os.PathLike):
        given = {"dir": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("dir"), str | os.PathLike) or not given["dir"]:
        raise ConfigError(f'a directory of hook programs is a path, or {{"dir": path, "prefix": text}}; not {given!r}')
    if unknown := sorted(map(str, given.keys() - {"dir", "prefix"})):
        raise ConfigError(f"a directory of hook programs has no option {unknown[0]!r}; there are dir, prefix")
    prefix = given.get("prefix") or ""
    if not isinstance(prefix, str):
        raise ConfigError(f"the prefix of a directory of hook programs is a text, not {prefix!r}")
    path = base / os.path.expanduser(given["dir"])
    return Directory(Path(os.path.abspath(path)), prefix, str(given["dir"]))


def usual(folder: str | Path, home: str | Path, brand: str = "wick") -> list[Directory]:
    """The directories of a folder and of the user, in their order; plugins need trust wherever they are."""
    local, own = Path(os.path.realpath(folder)) / f".{brand}", at_home(home)
    theirs = [
        Directory(local / "hooks", source=f".{brand}/hooks", own=False),
        *_plugins(local / "plugins", f".{brand}/plugins"),
    ]
    if own is None:
        return theirs
    return [*theirs, Directory(own / "hooks", source=f"{home}/hooks"), *_plugins(own / "plugins", f"{home}/plugins")]


def _plugins(path: Path, source: str) -> list[Directory]:
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name.count("@") == 1)
    except OSError:
        return []
    return [
        Directory(path / name / "hooks", f"{name.replace('@', '/')}/", f"{source}/{name}", own=False) for name in names
    ]


def _nothing() -> str:
    return ""


def programs(directory: Directory) -> list[Path]:
    """The files of a directory that could be programs, by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(directory.path))
    except OSError:
        return []
    if len(names) > constants.HOOK_FILES:
        raise ConfigError(f"{directory.path} has more than {constants.HOOK_FILES} files; that is no directory of hooks")
    paths = [directory.path / name for name in names if not name.endswith(DISABLED)]
    return [path for path in paths if path.is_file() and os.access(path, os.X_OK)]


def trustable(directories: Sequence[Directory]) -> list[Path]:
    """The programs that need trust, and all that lies in their folders: what is to be trusted together."""
    return [path for one in directories if not one.own and programs(one) for path in parts(one.path)]


def discover(
    directories: Sequence[Directory], runner: Runner, trust: Trust, fail: Mapping[str, Fail] | None = None
) -> list[Found]:
    """Every program of these directories, in the order in which they run; broken and untrusted ones among them."""
    there = [(directory, programs(directory)) for directory in directories]
    if not any(paths for _, paths in there):
        return []
    return blocking(lambda: _discover(there, runner, trust, fail or {}))


async def _discover(
    there: Sequence[tuple[Directory, list[Path]]], runner: Runner, trust: Trust, fail: Mapping[str, Fail]
) -> list[Found]:
    found: list[Found] = []
    loaded: set[str] = set()
    types: dict[str | os.PathLike[str], dict[str, Any]] = {}
    for directory, paths in there:
        new = [path for path in paths if directory.prefix + path.name not in loaded]
        check = _nothing if directory.own or not new else guarding(directory.path, trust.files())
        rows = await asyncio.gather(*(_look(directory, path, runner, trust, check) for path in new))
        for row, type in rows:
            found.append(_chosen(row, fail))
            loaded |= {row.name} if row.points or row.tools else set()
            types |= {row.path: type.to_json()} if type else {}
    trust.learn(types)
    return found


def _chosen(found: Found, fail: Mapping[str, Fail]) -> Found:
    return replace(found, fail=fail[found.name]) if found.name in fail else found


async def _look(
    directory: Directory, path: Path, runner: Runner, trust: Trust, beside: Callable[[], str]
) -> tuple[Found, Type | None]:
    """One file: who it is, whether it may run, and what it hooks."""
    name = directory.prefix + path.name
    known = "" if directory.own else trust.hash_of(path)
    if not directory.own and not known:
        return Found(name, path, directory.source, trust="untrusted"), None
    check, last = checking(path, known, beside), _last(trust.type_of(path))
    if known and (problem := check()):
        return _made(name, path, directory.source, last, problem, trust="changed", check=check), None
    try:
        type = read_type(
            await runner.run([str(path), "hook"], timeout=min(constants.HOOK_TYPE_SECONDS, runner.timeout))
        )
    except Unfit as error:
        problem = f"does not say what it hooks: it {error}"
        return _made(name, path, directory.source, last, problem, check=check), None
    return _made(name, path, directory.source, type, "", check=check), type


def _made(name: str, path: Path, source: str, type: Type | None, problem: str, **more: Any) -> Found:
    if problem:
        logger.error("the hook program %s (%s) %s", name, path, problem)
    if type is None:
        return Found(name, path, source, problem=problem, **more)
    about: dict[str, Any] = {"points": type.points, "protocol": type.protocol, "match": type.match, "tools": type.tools}
    return Found(name, path, source, problem=problem, **about, **more)


def _last(row: Mapping[str, Any] | None) -> Type | None:
    """What a program said last; what nobody can read says nothing."""
    if row is None:
        return None
    try:
        return _typed(dict(row))
    except Unfit:
        return None


def read_type(ran: Ran) -> Type:
    """What a program hooks: the name of an event, or a JSON object with its points."""
    if ran.problem or ran.exit_code != 0:
        raise Unfit(ran.problem or f"ended with exit code {ran.exit_code}: {words(ran.stderr)}".rstrip(": "))
    if ran.stdout.lstrip().startswith(b"{"):
        return _typed(parsed(ran.stdout))
    return Type((event(ran.stdout.decode(errors="replace").strip()),))


def _typed(answer: dict[str, Any]) -> Type:
    only(answer, _TYPE, "the type of a hook")
    given = {name: value for name, value in answer.items() if value is not None}
    protocol = given.get("protocol", "run")
    if protocol not in _PROTOCOLS:
        raise Unfit(f"answered with the protocol {words(protocol, 40)!r}; the protocols are {', '.join(_PROTOCOLS)}")
    names, tools = given.get("points", []), given.get("tools", [])
    if not all(isinstance(name, str) for name in names) or not all(isinstance(tool, dict) for tool in tools):
        raise Unfit("answered with points that are no names, or tools that are no objects")
    if not names and protocol == "run":
        raise Unfit("answered without points")
    try:
        parse_patterns(given.get("match"))
    except HookError as error:
        raise Unfit(f"answered with a match that cannot be used: {words(error)}") from None
    return Type(tuple(dict.fromkeys(map(event, names))), protocol, given.get("match"), tuple(tools))


def event(name: str) -> str:
    """An event of kodelet's, or wick's name of a point; everything else is `Unfit`."""
    if name in EVENTS:
        return name
    try:
        return aliases.resolve_point(name)
    except ConfigError:
        known = ", ".join((*EVENTS, *aliases.POINT_NAMES))
        raise Unfit(f"answered with {words(json.dumps(name), 60)}; the events are {known}") from None
