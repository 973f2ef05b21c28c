"""YAML 1.2 loader for all files of wick: agents.yaml, server.yaml and front matter.

PyYAML follows version 1.1, in which `1:30` is 90, `010` is 8, `no` is false and `2020-01-01` is a date. Here a number
is written as in JSON (`0x1f` and `0o17` are numbers too), `true` and `false` are the only switches, `null` and `~` are
null, and everything else is a text. No key is special, and duplicate keys are refused.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_TAG = "tag:yaml.org,2002:"
NULL, BOOL, INT, FLOAT = (f"{_TAG}{kind}" for kind in ("null", "bool", "int", "float"))
_FORMS = (
    (NULL, re.compile(r"(?:~|null|Null|NULL|)\Z"), "~nN\0"),
    (BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), "tTfF"),
    (INT, re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), "-+0123456789"),
    (FLOAT, re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"), "-+.0123456789"),
)
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_SWITCHES = frozenset(("yes", "no", "on", "off"))


def find_ambiguity(text: str) -> str:
    """Return problem and remedy for a plain scalar that YAML 1.1 and 1.2 read differently; else an empty string."""
    if text.lower() in _SWITCHES:
        return f"{text} is a switch in one version of YAML and a text in another; write true or false, or quote it"
    if _OCTAL.fullmatch(text):
        return f"{text} is octal in one version of YAML and decimal in another; leave out the leading 0, or quote it"
    return ""


@cache
def get_loader() -> Any:
    """Return the loader class, in C where PyYAML has that."""
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own name
        yaml_constructors = dict(yaml.SafeLoader.yaml_constructors)  # noqa: RUF012

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            seen = set()
            for key, _ in node.value:
                if key.id == "scalar" and key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value[:60]!r} is repeated", key.start_mark
                    )
                seen.add(key.value if key.id == "scalar" else None)
            return super().construct_mapping(node, deep=deep)

    for tag, form, first in _FORMS:
        Loader.add_implicit_resolver(tag, form, ["" if sign == "\0" else sign for sign in first])
    Loader.add_constructor(INT, lambda made, node: _parse_int(made.construct_scalar(node)))
    Loader.add_constructor(FLOAT, lambda made, node: float(made.construct_scalar(node)))
    Loader.add_constructor(BOOL, lambda made, node: made.construct_scalar(node).lower() == "true")
    return Loader


def _parse_int(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
