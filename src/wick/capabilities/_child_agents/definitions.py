"""Definitions of subagents: name, description, prompt, tools, model, settings and output type.

    Subagent("reviewer", "Reviews code", "You review code.", tools=["read_file", "grep"])
    {"name": "reviewer", "description": "Reviews code", "prompt": "…", "tools": "Read, Grep"}
    agents/reviewer.md                    front matter with name, description, tools and model; the prompt below

`load_definitions` reads all three forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

from wick._internal.aliases import resolve_tool_name
from wick._internal.familiar_words import SUBAGENT_OPTIONS, explain_options
from wick._internal.front_matter import split
from wick.capability import Capability
from wick.constants import SUBAGENT_BYTES
from wick.errors import ConfigError
from wick.protocols import check_settings
from wick.tools import Tool, tool

KEYS = ("name", "description", "prompt", "tools", "without", "model", "settings", "output_type", "timeout", "hooks")
_OTHER_KEYS = {"system": "prompt", "system_prompt": "prompt", "disallowedTools": "without"}
# A key with a plain text value, without YAML syntax.
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(\*|[^\s&*!|>{\[].*))?")

Definition = Any  # a Subagent, a dict, or the path of a Markdown file or of a folder of them


@dataclass(frozen=True, slots=True)
class Subagent:
    """The definition of a child agent. Without `tools` it inherits all of its parent's, without `model` its model.

    A tool name refers to a tool of the parent; a function or a `Tool` is the child's own. `without` excludes tools by
    name. `hooks` are the child's own, inside the hooks inherited from its parents. `settings` and `output_type` are as
    those of an `Agent`; the answer is also the `data` of the tool result.
    """

    name: str  # the name that the model uses
    description: str  # its purpose, which the parent's model reads
    prompt: str = ""  # its system prompt
    # names of the parent's tools, and tools of its own; None for all of the parent's
    tools: Sequence[Any] | None = None
    model: Any = None  # a model or its name; None for the parent's
    hooks: Sequence[Any] = ()  # its own hooks and capabilities
    without: Sequence[str] = ()  # names of tools that it does not get
    settings: Mapping[str, Any] = field(default_factory=dict)  # of its model, such as temperature
    output_type: Any = None  # a pydantic model, a JSON Schema or a StructuredOutput, for its answer
    timeout: float | None = None  # in seconds, for one piece of work; then it is cancelled, and the tool fails
    wanted: frozenset[str] | None = field(init=False, repr=False)  # names of tools inherited from the parent
    own: tuple[Tool, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for key in ("name", "description"):
            value = getattr(self, key)
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(
                    f"a subagent needs a {key}, which is a text; {self.name or 'this one'!r} has {value!r}"
                )
        if not isinstance(self.prompt, str):
            raise ConfigError(f"the prompt of the subagent {self.name!r} is a text, not {self.prompt!r}")
        given = None if self.tools is None else _parse_list(self.name, "tools", self.tools)
        names, own = list[str](), list[Tool]()
        for item in given or ():
            if isinstance(item, str):
                names += _parse_tool_names(self.name, [item])
            else:
                own.append(item if isinstance(item, Tool) else tool(item))
        if not isinstance(self.settings, Mapping):
            raise ConfigError(f"the settings of the subagent {self.name!r} are a dict, not {self.settings!r}")
        is_type = isinstance(self.output_type, type) or get_origin(self.output_type) is not None
        if not is_type and not isinstance(self.output_type, Mapping | Capability | None):
            forms = "a type, such as a pydantic model, a JSON Schema or a StructuredOutput"
            raise ConfigError(f"the output_type of the subagent {self.name!r} is {forms}, not {self.output_type!r}")
        limit = self.timeout
        if limit is not None and (type(limit) not in (int, float) or not 0 < limit < inf):
            problem = f"is a number of seconds above 0, not {limit!r}"
            raise ConfigError(f"the timeout of the subagent {self.name!r} {problem}")
        put = object.__setattr__
        put(self, "settings", check_settings(self.settings))
        put(self, "wanted", None if given is None or "*" in names else frozenset(names))
        put(self, "own", tuple(own))
        put(self, "without", _parse_tool_names(self.name, _parse_list(self.name, "without", self.without)))
        put(self, "hooks", tuple(_parse_list(self.name, "hooks", self.hooks)))

    def can_use(self, tool: Tool) -> bool:
        """Return True if the subagent inherits this tool of its parent."""
        known = {resolve_tool_name(name) for name in tool.names} | tool.names
        return (self.wanted is None or bool(known & self.wanted)) and not known & {*self.without}


if not TYPE_CHECKING:  # type checkers report unknown options themselves
    Subagent.__init__ = explain_options("Subagent()", SUBAGENT_OPTIONS)(Subagent.__init__)


def load_definitions(given: Iterable[Definition] | Mapping[str, Any] | str | Path) -> dict[str, Subagent]:
    """Return the subagents of a list, a map or a folder by name; raise a ConfigError for a duplicate name."""
    if isinstance(given, Mapping):
        for name, data in given.items():
            if not isinstance(data, Mapping):
                raise ConfigError(
                    f"the subagent {name!r} is defined by a dict with description and prompt, not {data!r}"
                )
        given = [{"name": name, **data} for name, data in given.items()]
    elif isinstance(given, str | Path | Subagent):
        given = [given]
    subagents: dict[str, Subagent] = {}
    for subagent in [subagent for definition in given for subagent in _read_definition(definition)]:
        if subagent.name in subagents:
            raise ConfigError(f"two subagents are named {subagent.name!r}; give one of them another name")
        subagents[subagent.name] = subagent
    if not subagents:
        raise ConfigError("there is no subagent; give at least one definition, or a folder with a Markdown file in it")
    return subagents


def _read_definition(definition: Definition) -> list[Subagent]:
    if isinstance(definition, Subagent):
        return [definition]
    if isinstance(definition, Mapping):
        known: dict[Any, Any] = {_OTHER_KEYS.get(key, key): value for key, value in definition.items()}
        for key in known:
            if key not in KEYS:
                close = get_close_matches(str(key), KEYS, n=1)
                hint = f"; did you mean {close[0]}?" if close else f"; the keys are {', '.join(KEYS)}"
                name = definition.get("name", "")
                raise ConfigError(f"the subagent {name!r} has the key {key!r}, which means nothing{hint}")
        return [_build_subagent(known)]
    if isinstance(definition, str | Path):
        path = Path(definition).expanduser()
        return [_from_file(file) for file in sorted(path.glob("*.md"))] if path.is_dir() else [_from_file(path)]
    raise ConfigError(
        f"a subagent is a Subagent, a dict or the path of a Markdown file, not {definition!r}; write "
        "Subagent(name, description, prompt, model=…, tools=[…])"
    )


def _from_file(path: Path) -> Subagent:
    """Return the subagent in a Markdown file; unknown keys are ignored."""
    try:
        with path.open("rb") as file:
            data = file.read(SUBAGENT_BYTES + 1)
        if len(data) > SUBAGENT_BYTES:
            raise ConfigError(f"it is longer than {SUBAGENT_BYTES:,} bytes")
        text = data.decode()
        try:
            keys, prompt = split(text)
        except ConfigError:
            if (plain := _parse_plain_keys(text)) is None:
                raise
            keys, prompt = plain
        known = {_OTHER_KEYS.get(key, key): value for key, value in keys.items()}
        options = {key: known[key] for key in KEYS if key in known and key != "hooks"}
        return _build_subagent({"name": path.stem, **options, "prompt": prompt.strip()})
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the subagent in {path} cannot be read: {error}") from None


def _parse_plain_keys(text: str) -> tuple[dict[str, Any], str] | None:
    """Parse front matter line by line: unquoted descriptions with a colon are common and not valid YAML."""
    head, dashes, prompt = text.removeprefix("\ufeff").replace("\r\n", "\n").removeprefix("---\n").partition("\n---")
    keys = [_KEY.fullmatch(line.rstrip()) for line in head.splitlines() if line.strip()]
    if not dashes or not keys or not all(keys):
        return None
    return {key[1]: (key[2] or "").strip().strip("\"'") for key in keys if key}, prompt


def _build_subagent(known: Mapping[str, Any]) -> Subagent:
    missing = [key for key in ("name", "description") if not known.get(key)]
    if missing:
        raise ConfigError(f"the subagent {known.get('name', '')!r} has no {' and no '.join(missing)}")
    return Subagent(**{key: value for key, value in known.items() if value is not None})


def _parse_list(name: str, key: str, given: Any) -> list[Any]:
    """Return a list; split a comma-separated text, as in Markdown files."""
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise ConfigError(f"the {key} of the subagent {name!r} are a list, not {given!r}")
    return [*given]


def _parse_tool_names(name: str, given: Iterable[Any]) -> tuple[str, ...]:
    for item in given:
        if not isinstance(item, str) or not re.fullmatch(r"\*|[\w.:-]+", item):
            raise ConfigError(
                f"the subagent {name!r} names a tool {item!r}; give only its name, and use a guard for the rest"
            )
    return tuple(resolve_tool_name(item) for item in given)
