"""Everything that is wrong with an agents.yaml, not only the first thing.

What is wrong is noted and taken out, and the rest is looked at again, until nothing is wrong any more. Agents are
really built, so what is found is what would be in somebody's way; no model is asked and no command is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from wick._internal.safe_yaml import At, Source, WrongAt, read
from wick.capabilities.mcp.config import read_servers
from wick.config import Config
from wick.errors import ConfigError, WickError
from wick.models import resolve
from wick.permissions.rules import Type, rule

MAX_PROBLEMS = 100  # problems of one file


@dataclass(frozen=True, slots=True)
class FileProblem:
    """What is wrong, and on which line; the line is None where it is about the whole file."""

    line: int | None
    says: str


def check_agents_file(path: Path) -> tuple[Config | None, list[FileProblem]]:
    """What is left of a file, and all that is wrong with it."""
    found: list[FileProblem] = []
    source = _read_source(path, found)
    taken: list[At] = []
    while source is not None and len(found) < MAX_PROBLEMS:
        try:
            return _build_agents(path, source), sorted(found, key=lambda problem: problem.line or 0)
        except WrongAt as error:
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
    """The environment, with something for each variable that is not set; `asked` is the last one that was."""

    last_name = ""

    def get(self, name: str, default: Any = None) -> Any:
        self.last_name = name
        return super().get(name, default)


def _read_source(path: Path, found: list[FileProblem]) -> Source | None:
    """What a file says; of variables that are not set, each is noted."""
    environment = _Environment(os.environ)
    while len(found) < MAX_PROBLEMS:
        try:
            return read(path, environment)
        except WrongAt as error:
            found.append(FileProblem(error.line, error.what))
            if environment.last_name in ("", *environment):
                return None  # something else is wrong, and nobody knows what the rest means
            environment[environment.last_name] = "1"
        except ConfigError as error:
            found.append(_parse_location(str(error), path))
            return None
    return None


def _parse_location(text: str, path: Path) -> FileProblem:
    """What a file that cannot be read at all is told about, with the line in its sentence."""
    if (place := re.match(rf"{re.escape(str(path))}, line (\d+): ", text)) is not None:
        return FileProblem(int(place[1]), text[place.end() :])
    return FileProblem(None, text)


# -- building -------------------------------------------------------------------------------------------------------


def _build_agents(path: Path, source: Source) -> Config:
    """The agents of a file, each of them built; the first thing that is wrong is raised."""
    config = Config(path, source)
    for at, options in _iter_options(source):
        _check_options(source, at, options)
    for part in config.agents.values():
        model = part.options.get("model", "auto")
        try:
            if model != "auto":  # which says by itself what it chose, to those who run it
                resolve(model)
        except WickError as error:
            raise part.wrong("model", error) from None
        part.agent()
    return config


def _iter_options(source: Source) -> Iterator[tuple[At, Mapping[str, Any]]]:
    """Where options stand: those of the one agent, or of each, and the defaults."""
    data = source.data
    if not {"agents", "defaults"} & data.keys():
        yield (), data
        return
    yield ("defaults",), data.get("defaults") or {}
    yield from ((("agents", id), own or {}) for id, own in (data.get("agents") or {}).items())


def _check_options(source: Source, at: At, options: Mapping[str, Any]) -> None:
    """Each rule and each MCP server by itself, so that each that is wrong is named with its line."""
    for key, place, check in _iter_checks(options):
        try:
            check()
        except ConfigError as error:
            raise source.wrong((*at, key, *place), f"{key}: {error}") from None


def _iter_checks(options: Mapping[str, Any]) -> Iterator[tuple[str, At, Callable[[], object]]]:
    for type in get_args(Type):
        rules = _as_mapping(options.get("permissions")).get(type)
        for number, one in enumerate(rules if isinstance(rules, list) else ()):
            yield "permissions", (type, number), partial(rule, type, one)
    for name, server in _as_mapping(_as_mapping(options.get("mcp")).get("servers")).items():
        yield "mcp", ("servers", name), partial(read_servers, {name: server})


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# -- taking out -----------------------------------------------------------------------------------------------------


def _is_consequence(error: WrongAt, taken: list[At]) -> bool:
    """Whether something is wrong with what something was taken out of, which may be why."""
    if error.what.startswith("the agent "):
        return any(one[: len(error.at)] == error.at or one[:1] == ("defaults",) for one in taken)
    return any(one != error.at and one[: len(error.at)] == error.at for one in taken)


def _get_value(data: Any, at: At) -> Any:
    for key in at:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return None
    return data


def _remove_at(source: Source, at: At) -> Source | None:
    """A file without something of it; None if that is not there, or all that there is."""
    data = deepcopy(source.data)
    above: Any = _get_value(data, at[:-1]) if at else None
    try:
        del above[at[-1]]
    except (LookupError, TypeError):
        return None
    lines = _shift_lines(source.lines, at) if isinstance(above, list) else source.lines
    return Source(source.name, data, lines) if data else None


def _shift_lines(lines: Mapping[At, int], at: At) -> dict[At, int]:
    """The lines after an item of a list is gone: those behind it have moved up."""
    place, gone = len(at) - 1, int(at[-1])
    found: dict[At, int] = {}
    for one, line in lines.items():
        behind = len(one) > place and one[:place] == at[:place]
        number = int(one[place]) if behind else -1
        if behind and number == gone:
            continue
        found[(*one[:place], number - 1, *one[place + 1 :]) if behind and number > gone else one] = line
    return found
