"""The YAML at the top of a Markdown file, between two lines of `---`.

    data, body = split(text)

It is somebody's file: what is read of it is bounded, refers to nothing, and becomes plain JSON data.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from wick._internal.yaml_core import get_loader
from wick.constants import FRONT_MATTER_BYTES, FRONT_MATTER_DEPTH
from wick.errors import ConfigError

_ENDS = ("---", "...")


def split(text: str) -> tuple[dict[str, Any], str]:
    """The front matter as JSON data, and what follows it. A ConfigError says what is wrong with it."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        raise ConfigError("it does not begin with a line of three dashes, so it has no front matter")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in _ENDS), None)
    if end is None:
        raise ConfigError(
            f"its front matter does not end with a line of three dashes within {FRONT_MATTER_BYTES:,} bytes"
        )
    matter = "".join(lines[1:end])
    if len(matter.encode(errors="replace")) > FRONT_MATTER_BYTES:
        raise ConfigError(f"its front matter is longer than {FRONT_MATTER_BYTES:,} bytes")
    return read(matter), "".join(lines[end + 1 :])


def read(text: str) -> dict[str, Any]:
    """A YAML mapping as JSON data; without anchors, aliases, tags of programs, or depths without end."""
    import yaml

    try:
        _check_events(yaml.parse(text, Loader=get_loader()))
        data = yaml.load(text, get_loader())
    except yaml.YAMLError as error:
        raise ConfigError(f"its front matter is no YAML: {_describe_error(error)}") from None
    except (ValueError, OverflowError, RecursionError, TypeError, AttributeError) as error:
        raise ConfigError(f"its front matter has a value that cannot be read: {error}") from None
    if not isinstance(data, Mapping):
        raise ConfigError("its front matter is not a list of names and values, such as `name: …`")
    return {str(key): _to_json(value) for key, value in data.items()}


def _check_events(events: Any) -> None:
    """Refuse what could make much of little; before anything is built."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            raise ConfigError("its front matter has anchors (&) or aliases (*); write out what is meant, or quote it")
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > FRONT_MATTER_DEPTH:
            raise ConfigError(f"its front matter is nested more than {FRONT_MATTER_DEPTH} levels deep")


def _to_json(value: Any) -> Any:
    """As JSON has it; a number that JSON does not know becomes a text."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)


def _describe_error(error: Exception) -> str:
    """What is wrong and on which line, without a picture of it."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = "" if mark is None else f" in line {mark.line + 2}"
    return f"{' '.join(str(problem).split())}{where}"
