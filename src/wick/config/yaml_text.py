"""Writes the options of an agent as the text of an `agents.yaml` that loads back to the same agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from wick._internal.safe_yaml import dump_yaml

_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w ./-]*[\w./-]|[A-Za-z_]")
_NOT_TEXTS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def write_agent(id: str, options: Mapping[str, Any]) -> str:
    """Return the text of a file with one agent. Texts are escaped, so that nothing in them is a variable."""
    data = {"agents": {id: _escape_variables(options)}}
    return dump_yaml(data, _choose_style, width=100)


def _choose_style(text: str) -> str | None:
    # YAML 1.1, which PyYAML writes, and YAML 1.2, which wick reads, disagree on scalars such as 1e5 and 0o17.
    plain = _PLAIN_TEXT.fullmatch(text) and text.lower() not in _NOT_TEXTS
    return None if plain else "|" if "\n" in text.strip() else '"'


class VariableText(str):
    """A text that refers to a variable of the environment, such as `${TOKEN}`."""

    __slots__ = ()


def _escape_variables(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _escape_variables(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_escape_variables(inner) for inner in value]
    if isinstance(value, VariableText):
        return str(value)
    return value.replace("${", "$${") if isinstance(value, str) else value
