"""Validation of an agents.yaml that reports all errors, not only the first.

Each invalid part is recorded and removed, and the rest is validated again until it is valid. Agents are really
built, so the same errors are found as at runtime. No model is called and no command is run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from wick._internal.safe_yaml import ConfigLineError, KeyPath, YamlSource, read
from wick.capabilities.mcp.config import read_servers
from wick.config import Config
from wick.errors import ConfigError, WickError
from wick.models import resolve
from wick.permissions.rules import RuleType, parse_rule

MAX_PROBLEMS = 100  # reported for one file


@dataclass(frozen=True, slots=True)
class FileProblem:
    """An error in a file; `line` is None if it concerns the whole file."""

    line: int | None
    says: str


def check_agents_file(path: Path) -> tuple[Config | None, list[FileProblem]]:
    """Return the config of the valid parts of a file (or None), and all problems by line."""
    found: list[FileProblem] = []
    source = _read_source(path, found)
    taken: list[KeyPath] = []
    while source is not None and len(found) < MAX_PROBLEMS:
        try:
            return _build_agents(path, source), sorted(found, key=lambda problem: problem.line or 0)
        except ConfigLineError as error:
            if not _is_consequence(error, taken):
                found.append(FileProblem(error.line, error.what))
            taken.append(error.at)
            source = _remove_at(source, error.at)
        except ConfigError as error:
            found.append(FileProblem(None, str(error)))
            break
    return None, sorted(found, key=lambda problem: problem.line or 0)


# -- variables ------------------------------------------------------------------------------------------------------


class _Environment(dict[str, str]):
    """The environment, with placeholders for unset variables; `last_name` is the variable read last."""

    last_name = ""

    def get(self, name: str, default: Any = None) -> Any:
        self.last_name = name
        return super().get(name, default)


def _read_source(path: Path, found: list[FileProblem]) -> YamlSource | None:
    """Parse a file, and record each unset variable as a problem."""
    environment = _Environment(os.environ)
    while len(found) < MAX_PROBLEMS:
        try:
            return read(path, environment)
        except ConfigLineError as error:
            found.append(FileProblem(error.line, error.what))
            if environment.last_name in ("", *environment):
                return None  # not an unset variable: the rest cannot be parsed
            environment[environment.last_name] = "1"
        except ConfigError as error:
            found.append(FileProblem(None, str(error)))
            return None
    return None


# -- building -------------------------------------------------------------------------------------------------------


def _build_agents(path: Path, source: YamlSource) -> Config:
    """Build all agents of a file; raise the first error."""
    config = Config(path, source)
    for at, options in _iter_options(source):
        _check_options(source, at, options)
    for part in config.agents.values():
        model = part.options.get("model", "auto")
        try:
            if model != "auto":  # resolving `auto` would log the chosen model
                resolve(model)
        except WickError as error:
            raise part.build_error("model", error) from None
        part.agent()
    return config


def _iter_options(source: YamlSource) -> Iterator[tuple[KeyPath, Mapping[str, Any]]]:
    """Yield the options of the only agent, or the defaults and those of each agent, with their paths."""
    data = source.data
    if not {"agents", "defaults"} & data.keys():
        yield (), data
        return
    yield ("defaults",), data.get("defaults") or {}
    yield from ((("agents", id), own or {}) for id, own in (data.get("agents") or {}).items())


def _check_options(source: YamlSource, at: KeyPath, options: Mapping[str, Any]) -> None:
    """Validate each rule and MCP server by itself, so that each error has its line."""
    for key, path, check in _iter_checks(options):
        try:
            check()
        except ConfigError as error:
            raise source.error_at((*at, key, *path), f"{key}: {error}") from None


def _iter_checks(options: Mapping[str, Any]) -> Iterator[tuple[str, KeyPath, Callable[[], object]]]:
    for type in get_args(RuleType):
        rules = _as_mapping(options.get("permissions")).get(type)
        for number, one in enumerate(rules if isinstance(rules, list) else ()):
            yield "permissions", (type, number), partial(parse_rule, type, one)
    for name, server in _as_mapping(_as_mapping(options.get("mcp")).get("servers")).items():
        yield "mcp", ("servers", name), partial(read_servers, {name: server})


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- removing -------------------------------------------------------------------------------------------------------


def _is_consequence(error: ConfigLineError, taken: list[KeyPath]) -> bool:
    """Return True if an error may only result from the removal of a part below it."""
    if error.what.startswith("the agent "):
        return any(one[: len(error.at)] == error.at or one[:1] == ("defaults",) for one in taken)
    return any(one != error.at and one[: len(error.at)] == error.at for one in taken)


def _get_value(data: Any, at: KeyPath) -> Any:
    for key in at:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data


def _remove_at(source: YamlSource, at: KeyPath) -> YamlSource | None:
    """Return a copy of a file without the value at a path; None if there is no such value, or nothing is left."""
    data = deepcopy(source.data)
    above: Any = _get_value(data, at[:-1]) if at else None
    try:
        del above[at[-1]]
    except (LookupError, TypeError):
        return None
    lines = _shift_lines(source.lines, at) if isinstance(above, list) else source.lines
    return YamlSource(source.name, data, lines) if data else None


def _shift_lines(lines: Mapping[KeyPath, int], at: KeyPath) -> dict[KeyPath, int]:
    """Return the line numbers after the removal of a list item: later items move up by one index."""
    depth, gone = len(at) - 1, int(at[-1])
    found: dict[KeyPath, int] = {}
    for one, line in lines.items():
        behind = len(one) > depth and one[:depth] == at[:depth]
        number = int(one[depth]) if behind else -1
        if behind and number == gone:
            continue
        found[(*one[:depth], number - 1, *one[depth + 1 :]) if behind and number > gone else one] = line
    return found
