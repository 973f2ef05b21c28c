"""Parser for YAML front matter: the block between two lines of `---` at the top of a Markdown file.

    data, body = split(text)

The file is untrusted input. Size and depth are bounded, anchors are refused, and the result is plain JSON data.
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
    """Return the front matter as JSON data, and the body; raise ConfigError if the front matter is invalid."""
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
    """Parse a YAML mapping to JSON data. Anchors, aliases, object tags and deep nesting are refused."""
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
    """Refuse aliases and deep nesting before any object is built, to prevent expansion attacks."""
    depth = 0
    for event in events:
        kind = type(event).__name__
        if kind == "AliasEvent" or getattr(event, "anchor", None) is not None:
            raise ConfigError("its front matter has anchors (&) or aliases (*); write out the value, or quote it")
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > FRONT_MATTER_DEPTH:
            raise ConfigError(f"its front matter is nested more than {FRONT_MATTER_DEPTH} levels deep")


def _to_json(value: Any) -> Any:
    """Convert a YAML value to JSON data. Values without a JSON form, such as NaN, become strings."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)


def _describe_error(error: Exception) -> str:
    """Return the problem and line of a YAML error, without the source excerpt."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = "" if mark is None else f" in line {mark.line + 2}"
    return f"{' '.join(str(problem).split())}{where}"
