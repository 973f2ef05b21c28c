"""Recipe files: Markdown prompts with arguments, allowed tools and hooks.

    ---
    description: Reviews a branch
    arguments: {branch: main}
    allowed_tools: [read_file, grep]
    hooks:
      turn_end: {handler: swap_context, once: true}
    ---
    Review the branch {{branch}}. {{input}}

Recipes are data. The input is inserted verbatim and not expanded again. Hooks name handlers of the program; a file
cannot define code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from wick._internal import front_matter
from wick._internal.aliases import resolve_tool_name
from wick.constants import RECIPE_BYTES, RECIPES
from wick.errors import ConfigError

EVENTS = ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end")
INPUT = "input"  # the placeholder for all of the input
_NAME = re.compile(r"\w[\w.-]{0,99}")
_PLACEHOLDER = re.compile(r"\{\{\s*(\w[\w-]*)\s*\}\}")
_ARGUMENT = re.compile(r"""\s*(\w[\w-]*)=("[^"]*"|'[^']*'|\S*)(?=\s|$)""")


@dataclass(frozen=True, slots=True)
class RecipeHook:
    """The handler of an event; with `once`, only on the first turn of a run."""

    handler: str
    once: bool = False


@dataclass(frozen=True, slots=True)
class Recipe:
    """A named prompt with placeholders.

    `arguments` maps placeholder names to defaults; the input overrides them by a leading `name=value`. `tools` are the
    allowed tools: empty for none, None for all tools of the agent.
    """

    name: str
    body: str
    description: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, RecipeHook] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    path: Path | None = field(default=None, compare=False)

    def render(self, input: str) -> str:
        """Return the text with the input filled in; without a placeholder, the input is appended."""
        values, at = dict(self.arguments), 0
        while (argument := _ARGUMENT.match(input, at)) and argument[1] in self.arguments:
            quoted = argument[2][:1] in ("'", '"')
            values[argument[1]] = argument[2][1:-1] if quoted else argument[2]
            at = argument.end()
        rest = values[INPUT] = input[at:].strip()
        filled = _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), self.body)
        has_place = any(match[1] == INPUT for match in _PLACEHOLDER.finditer(self.body))
        return filled if has_place or not rest else f"{filled}\n\n{rest}"


def find_recipe(name: str, dirs: Iterable[Path]) -> Recipe:
    """Return the recipe of this name from the first folder that has one; raise a ConfigError if none has."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a recipe's name has letters, digits, `_`, `.` and `-`, not {name[:100]!r}")
    folders = [*dirs]
    for folder in folders:
        if (path := folder / f"{name}.md").is_file():
            if not path.resolve().is_relative_to(folder.resolve()):  # a link could leak another file to the model
                raise ConfigError(f"the recipe in {path} is a link that leads out of its folder; put the file there")
            return read_recipe(path)
    names = sorted({path.stem for folder in folders for path in list_recipe_files(folder)})
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names) or 'none'}"
    raise ConfigError(f"there is no recipe {name!r} in {', '.join(map(str, folders)) or 'any folder'}; {hint}")


def list_recipe_files(folder: Path) -> list[Path]:
    """Return the recipe files of a folder; [] if it cannot be read."""
    try:
        return sorted(path for path in folder.glob("*.md") if _NAME.fullmatch(path.stem) and path.is_file())[:RECIPES]
    except OSError:
        return []


def read_recipe(path: Path) -> Recipe:
    """Return the recipe in a file, named after the file; raise a ConfigError if it is invalid."""
    try:
        with path.open("rb") as file:
            data = file.read(RECIPE_BYTES + 1)
        if len(data) > RECIPE_BYTES:
            raise ConfigError(f"it is longer than {RECIPE_BYTES:,} bytes")
        return parse_recipe(data.decode(), path.stem, path)
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the recipe in {path} cannot be read: {error}") from None


def parse_recipe(text: str, name: str, path: Path | None = None) -> Recipe:
    """Return the recipe in a text. Front matter is optional; unknown keys are ignored."""
    has_front = text.removeprefix("\ufeff").startswith("---")
    meta, body = front_matter.split(text) if has_front else ({}, text)
    if not body.strip():
        raise ConfigError("it has no text, so a run would have nothing to do")
    description = meta.get("description") or ""
    if not isinstance(description, str):
        raise ConfigError(f"its description is a text, not {description!r}")
    return Recipe(
        name,
        body.strip(),
        description.strip(),
        _parse_arguments(meta),
        _parse_hooks(meta),
        _parse_allowed_tools(meta),
        path,
    )


def _parse_arguments(meta: Mapping[str, Any]) -> dict[str, str]:
    given = meta.get("arguments") or {}
    if isinstance(given, list):
        given = dict.fromkeys(map(str, given), "")
    if not isinstance(given, dict):
        raise ConfigError("its arguments are a map of names to default values")
    if INPUT in given:
        raise ConfigError(f"an argument cannot be named {INPUT!r}: that is the place for the whole input")
    arguments = {}
    for name, value in given.items():
        default = value.get("default") if isinstance(value, dict) else value  # or {description: …, default: …}
        if default is not None and not isinstance(default, str | int | float):
            raise ConfigError(f"the default of the argument {name!r} is a text, not {default!r}")
        text = "" if default is None else str(default)
        arguments[name] = text.lower() if isinstance(default, bool) else text
    return arguments


def _parse_hooks(meta: Mapping[str, Any]) -> dict[str, RecipeHook]:
    given = meta.get("hooks") or {}
    if not isinstance(given, dict):
        raise ConfigError("its hooks are a map of events, such as `turn_end: {handler: swap_context}`")
    hooks = {}
    for event, options in given.items():
        if event not in EVENTS:
            close = get_close_matches(event, EVENTS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"the events are {', '.join(EVENTS)}"
            raise ConfigError(f"its hooks name an unknown event {event!r}; {hint}")
        if isinstance(options, str):
            options = {"handler": options}
        if not isinstance(options, dict) or not isinstance(options.get("handler"), str) or not options["handler"]:
            raise ConfigError(
                f"its hook {event} needs the name of a handler, as in `{event}: {{handler: swap_context}}`"
            )
        if unknown := sorted(options.keys() - {"handler", "once"}):
            raise ConfigError(f"its hook {event} has the key {unknown[0]!r}; it takes handler and once")
        once = options.get("once", False)
        if not isinstance(once, bool):
            raise ConfigError(f"once of its hook {event} is true or false, not {once!r}")
        hooks[event] = RecipeHook(options["handler"], once)
    return hooks


def _parse_allowed_tools(meta: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names in `allowed_tools`; raise a ConfigError for a restriction that wick cannot apply."""
    if "allowed_commands" in meta:
        raise ConfigError("it has allowed_commands, which wick does not read; write a permission rule instead")
    if "allowed_tools" not in meta:
        return None
    given = meta["allowed_tools"]
    names = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("its allowed_tools are a list of names, such as [read_file, grep]; [] allows no tool")
    if limited := next((name for name in names if "(" in name), None):
        raise ConfigError(f"its allowed_tools name tools alone, not {limited!r}; write permission rules for the rest")
    return tuple(map(resolve_tool_name, names))
