"""Discovery of hook programs: the directories in their order, and the type of each program.

    .wick/hooks/                     of the folder, when it is trusted
    .wick/plugins/<org@repo>/hooks/
    ~/.wick/hooks/                   the user's own
    ~/.wick/plugins/<org@repo>/hooks/

A name is loaded once. A broken or untrusted program does not shadow a later one of its name.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wick import constants
from wick._internal import aliases
from wick.errors import ConfigError, HookError
from wick.hook_programs.answers import InvalidAnswer, check_fields, parse_answer
from wick.hook_programs.failure_policy import Fail, one_line
from wick.hook_programs.kodelet import EVENTS
from wick.hook_programs.registry import HookProgram, Protocol
from wick.hook_programs.runner import ProgramResult, Runner, run_blocking
from wick.hook_programs.trust import Trust, expand_home, list_code_files, make_check, make_folder_check
from wick.hooks import parse_patterns

logger = logging.getLogger(__name__)

DISABLED = ".disable"
_TYPE = {"points": list, "protocol": str, "match": str, "tools": list}
_PROTOCOLS = ("run", "lines")


@dataclass(frozen=True, slots=True)
class HookDirectory:
    """A directory of hook programs. Unless it is `own`, its files must be trusted to run."""

    path: Path
    prefix: str = ""
    source: str = ""
    own: bool = True


@dataclass(frozen=True, slots=True)
class HookType:
    """The points, protocol, matcher and tools that a program declares."""

    points: tuple[str, ...]
    protocol: Protocol = "run"
    match: str | None = None
    tools: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        row = {"points": [*self.points], "protocol": self.protocol, "match": self.match, "tools": [*self.tools]}
        return {name: value for name, value in row.items() if value}


def parse_directories(dirs: Any, base: str | Path = ".") -> list[HookDirectory]:
    """Parse configured directories: each a path, or {"dir": path, "prefix": text}."""
    directories: list[HookDirectory] = []
    for given in [dirs] if isinstance(dirs, str | os.PathLike | Mapping) else dirs:
        if isinstance(given, str | os.PathLike):
            given = {"dir": given}
        if not isinstance(given, Mapping) or not isinstance(given.get("dir"), str | os.PathLike) or not given["dir"]:
            raise ConfigError(
                f'a directory of hook programs is a path, or {{"dir": path, "prefix": text}}; not {given!r}'
            )
        if unknown := sorted(map(str, given.keys() - {"dir", "prefix"})):
            raise ConfigError(f"a directory of hook programs has no option {unknown[0]!r}; there are dir, prefix")
        prefix = given.get("prefix") or ""
        if not isinstance(prefix, str):
            raise ConfigError(f"the prefix of a directory of hook programs is a text, not {prefix!r}")
        path = os.path.abspath(Path(base) / os.path.expanduser(given["dir"]))
        directories.append(HookDirectory(Path(path), prefix, str(given["dir"])))
    return directories


def default_directories(folder: str | Path, home: str | Path, brand: str = "wick") -> list[HookDirectory]:
    """Return the directories of a folder and of the user, in order. Plugins always need trust.

    In the home folder itself, they are the user's own.
    """
    local, own = Path(os.path.realpath(folder)) / f".{brand}", expand_home(home)
    theirs = [
        HookDirectory(local / "hooks", source=f".{brand}/hooks", own=False),
        *_plugin_directories(local / "plugins", f".{brand}/plugins"),
    ]
    if own is None:
        return theirs
    return [
        *([] if os.path.realpath(own) == str(local) else theirs),
        HookDirectory(own / "hooks", source=f"{home}/hooks"),
        *_plugin_directories(own / "plugins", f"{home}/plugins"),
    ]


def _plugin_directories(path: Path, source: str) -> list[HookDirectory]:
    try:
        names = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name.count("@") == 1)
    except OSError:
        return []
    return [
        HookDirectory(path / name / "hooks", f"{name.replace('@', '/')}/", f"{source}/{name}", own=False)
        for name in names
    ]


def list_programs(directory: HookDirectory) -> list[Path]:
    """Return the executable files of a directory, sorted by name."""
    try:
        names = sorted(entry.name for entry in os.scandir(directory.path))
    except OSError:
        return []
    if len(names) > constants.HOOK_FILES:
        raise ConfigError(
            f"{directory.path} has more than {constants.HOOK_FILES} files; give a directory of hook programs only"
        )
    paths = [directory.path / name for name in names if not name.endswith(DISABLED)]
    return [path for path in paths if path.is_file() and os.access(path, os.X_OK)]


def list_trustable(directories: Sequence[HookDirectory]) -> list[Path]:
    """Return the programs that need trust, with all code files of their folders."""
    return [
        path
        for directory in directories
        if not directory.own and list_programs(directory)
        for path in list_code_files(directory.path)
    ]


def discover(
    directories: Sequence[HookDirectory], runner: Runner, trust: Trust, fail: Mapping[str, Fail] | None = None
) -> list[HookProgram]:
    """Return every program of these directories in running order, including broken and untrusted ones."""
    listed = [(directory, list_programs(directory)) for directory in directories]
    policies = fail or {}

    async def inspect_all() -> list[HookProgram]:
        programs: list[HookProgram] = []
        loaded: set[str] = set()
        types: dict[str | os.PathLike[str], dict[str, Any]] = {}
        for directory, paths in listed:
            new = [path for path in paths if directory.prefix + path.name not in loaded]
            check = (lambda: "") if directory.own or not new else make_folder_check(directory.path, trust.files())
            rows = await asyncio.gather(*(_inspect_file(directory, path, runner, trust, check) for path in new))
            for row, type in rows:
                programs.append(replace(row, fail=policies[row.name]) if row.name in policies else row)
                loaded |= {row.name} if row.points or row.tools else set()
                types |= {row.path: type.to_json()} if type else {}
        trust.record_types(types)
        return programs

    return run_blocking(inspect_all) if any(paths for _, paths in listed) else []


async def _inspect_file(
    directory: HookDirectory, path: Path, runner: Runner, trust: Trust, beside: Callable[[], str]
) -> tuple[HookProgram, HookType | None]:
    """Check the trust of one file and ask it for its type."""
    name = directory.prefix + path.name
    known = "" if directory.own else trust.hash_of(path)
    if not directory.own and not known:
        return HookProgram(name, path, directory.source, trust="untrusted"), None
    check, last = make_check(path, known, beside), None
    if (stored := trust.last_type(path)) is not None:
        with suppress(InvalidAnswer):
            last = _parse_type(stored)
    if known and (problem := check()):
        return _make_program(name, path, directory.source, last, problem, trust="changed", check=check), None
    try:
        type = read_type(
            await runner.run([str(path), "hook"], timeout=min(constants.HOOK_TYPE_SECONDS, runner.timeout))
        )
    except InvalidAnswer as error:
        problem = f"does not declare its events: it {error}"
        return _make_program(name, path, directory.source, last, problem, check=check), None
    return _make_program(name, path, directory.source, type, "", check=check), type


def _make_program(name: str, path: Path, source: str, type: HookType | None, problem: str, **more: Any) -> HookProgram:
    if problem:
        logger.error("the hook program %s (%s) %s", name, path, problem)
    if type is None:
        return HookProgram(name, path, source, problem=problem, **more)
    about: dict[str, Any] = {"points": type.points, "protocol": type.protocol, "match": type.match, "tools": type.tools}
    return HookProgram(name, path, source, problem=problem, **about, **more)


def read_type(ran: ProgramResult) -> HookType:
    """Parse the output of `<program> hook`: the name of an event, or a JSON object with points."""
    if ran.problem or ran.exit_code != 0:
        raise InvalidAnswer(ran.problem or f"ended with exit code {ran.exit_code}: {one_line(ran.stderr)}".rstrip(": "))
    if ran.stdout.lstrip().startswith(b"{"):
        return _parse_type(parse_answer(ran.stdout))
    return HookType((parse_event(ran.stdout.decode(errors="replace").strip()),))


def _parse_type(answer: dict[str, Any]) -> HookType:
    check_fields(answer, _TYPE, "the type of a hook")
    given = {name: value for name, value in answer.items() if value is not None}
    protocol = given.get("protocol", "run")
    if protocol not in _PROTOCOLS:
        raise InvalidAnswer(
            f"answered with the protocol {one_line(protocol, 40)!r}; the protocols are {', '.join(_PROTOCOLS)}"
        )
    names, tools = given.get("points", []), given.get("tools", [])
    if not all(isinstance(name, str) for name in names) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidAnswer("answered with points that are not names, or tools that are not objects")
    if not names and protocol == "run":
        raise InvalidAnswer("answered without points")
    try:
        parse_patterns(given.get("match"))
    except HookError as error:
        raise InvalidAnswer(f"answered with a match that cannot be used: {one_line(error)}") from None
    return HookType(tuple(dict.fromkeys(map(parse_event, names))), protocol, given.get("match"), tuple(tools))


def parse_event(name: str) -> str:
    """Return a kodelet event or wick's name of a point; raise `InvalidAnswer` for any other name."""
    if name in EVENTS:
        return name
    try:
        return aliases.resolve_point(name)
    except ConfigError:
        known = ", ".join((*EVENTS, *aliases.POINT_NAMES))
        raise InvalidAnswer(f"answered with {one_line(json.dumps(name), 60)}; the events are {known}") from None
