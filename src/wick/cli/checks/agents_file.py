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
    message: str


def check_agents_file(path: Path) -> tuple[Config | None, list[FileProblem]]:
    """Return the config of the valid parts of a file (or None), and all problems by line."""
    problems: list[FileProblem] = []
    source = _read_source(path, problems)
    removed: list[KeyPath] = []
    while source is not None and len(problems) < MAX_PROBLEMS:
        try:
            return _build_agents(path, source), sorted(problems, key=lambda problem: problem.line or 0)
        except ConfigLineError as error:
            if not _is_consequence(error, removed):
                problems.append(FileProblem(error.line, error.what))
            removed.append(error.at)
            source = _remove_at(source, error.at)
        except ConfigError as error:
            problems.append(FileProblem(None, str(error)))
            break
    return None, sorted(problems, key=lambda problem: problem.line or 0)


# -- variables ------------------------------------------------------------------------------------------------------


class _Environment(dict[str, str]):
    """The environment, with placeholders for unset variables; `last_name` is the variable read last."""

    last_name = ""

    def get(self, name: str, default: Any = None) -> Any:
        self.last_name = name
        return super().get(name, default)


def _read_source(path: Path, problems: list[FileProblem]) -> YamlSource | None:
    """Parse a file, and add each unset variable to `problems`. Return None if the file cannot be parsed."""
    environment = _Environment(os.environ)
    while len(problems) < MAX_PROBLEMS:
        try:
            return read(path, environment)
        except ConfigLineError as error:
            problems.append(FileProblem(error.line, error.what))
            if environment.last_name in ("", *environment):
                return None  # not an unset variable: the rest cannot be parsed
            environment[environment.last_name] = "1"
        except ConfigError as error:
            problems.append(FileProblem(None, str(error)))
            return None
    return None


# -- building -------------------------------------------------------------------------------------------------------


def _build_agents(path: Path, source: YamlSource) -> Config:
    """Build all agents of a file; raise the first error."""
    config = Config(path, source)
    data = source.data
    options_by_path: dict[KeyPath, Mapping[str, Any]] = {(): data}
    if {"agents", "defaults"} & data.keys():  # else the file has the options of its only agent
        options_by_path = {("defaults",): data.get("defaults") or {}}
        options_by_path |= {("agents", id): own or {} for id, own in (data.get("agents") or {}).items()}
    for at, options in options_by_path.items():
        # Each rule and MCP server is validated by itself, so that each error has its line.
        for key, below, check in _iter_checks(options):
            try:
                check()
            except ConfigError as error:
                raise source.error_at((*at, key, *below), f"{key}: {error}") from None
    for part in config.agents.values():
        model = part.options.get("model", "auto")
        try:
            if model != "auto":  # resolving `auto` would log the chosen model
                resolve(model)
        except WickError as error:
            raise part.build_error("model", error) from None
        part.agent()
    return config


def _iter_checks(options: Mapping[str, Any]) -> Iterator[tuple[str, KeyPath, Callable[[], object]]]:
    for type in get_args(RuleType):
        rules = _as_mapping(options.get("permissions")).get(type)
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            yield "permissions", (type, number), partial(parse_rule, type, rule)
    for name, server in _as_mapping(_as_mapping(options.get("mcp")).get("servers")).items():
        yield "mcp", ("servers", name), partial(read_servers, {name: server})


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- removing -------------------------------------------------------------------------------------------------------


def _is_consequence(error: ConfigLineError, removed: list[KeyPath]) -> bool:
    """Return True if an error may only result from the removal of a part below it."""
    if error.what.startswith("the agent "):
        return any(path[: len(error.at)] == error.at or path[:1] == ("defaults",) for path in removed)
    return any(path != error.at and path[: len(error.at)] == error.at for path in removed)


def _remove_at(source: YamlSource, at: KeyPath) -> YamlSource | None:
    """Return a copy of a file without the value at a path; None if there is no such value, or nothing is left."""
    data = deepcopy(source.data)
    parent: Any = data
    try:
        for key in at[:-1]:
            parent = parent[key]
        del parent[at[-1]]
    except (LookupError, TypeError):
        return None
    lines = _shift_lines(source.lines, at) if isinstance(parent, list) else source.lines
    return YamlSource(source.name, data, lines) if data else None


def _shift_lines(lines: Mapping[KeyPath, int], at: KeyPath) -> dict[KeyPath, int]:
    """Return the line numbers after the removal of a list item: later items move up by one index."""
    depth, removed = len(at) - 1, int(at[-1])
    shifted: dict[KeyPath, int] = {}
    for path, line in lines.items():
        in_list = len(path) > depth and path[:depth] == at[:depth]
        index = int(path[depth]) if in_list else -1
        if in_list and index == removed:
            continue
        shifted[(*path[:depth], index - 1, *path[depth + 1 :]) if in_list and index > removed else path] = line
    return shifted
