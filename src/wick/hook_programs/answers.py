"""JSON payloads for hook programs, and strict parsing of the JSON object that they answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wick._internal.frozen import freeze, thaw
from wick._internal.strict_json import decode_strict
from wick.hook_programs.failure_policy import one_line
from wick.hook_programs.runner import ProgramResult


class InvalidAnswer(ValueError):
    """An invalid answer. The message continues a sentence about the program: "answered …"."""


def encode_payload(payload: Mapping[str, Any]) -> bytes:
    """Encode a payload as compact JSON on one line, as kodelet and Claude Code do.

    A shell script may search for `"tool_name":"bash"`. Lone surrogates are escaped, not replaced.
    """
    try:
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(payload, separators=(",", ":")).encode()


def read_answer(ran: ProgramResult) -> dict[str, Any]:
    """Return the answer of a program that must exit with 0; empty output is an empty answer."""
    if ran.problem:
        raise InvalidAnswer(ran.problem)
    if ran.exit_code != 0:
        detail = f": {one_line(ran.stderr)}" if ran.stderr.strip() else ""
        raise InvalidAnswer(f"ended with exit code {ran.exit_code}{detail}")
    return parse_answer(ran.stdout)


def parse_answer(printed: bytes) -> dict[str, Any]:
    """Parse the printed JSON object; empty output is an empty object."""
    if not printed.strip():
        return {}
    try:
        answer = decode_strict(printed.decode())
        if isinstance(answer, dict):
            return thaw(freeze(answer))  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            raise InvalidAnswer("answered twice, or with more than one JSON document") from None
        start = one_line(printed[:80].decode(errors="replace"), 80)
        raise InvalidAnswer(f"answered with something that is not JSON: {start!r}") from None
    except UnicodeDecodeError:
        raise InvalidAnswer("answered with bytes that are not UTF-8") from None
    except RecursionError:
        raise InvalidAnswer("answered with JSON that is nested too deep") from None
    except (ValueError, TypeError) as error:
        raise InvalidAnswer(f"answered with JSON that cannot be taken: {one_line(error)}") from None
    raise InvalidAnswer(f"answered with a JSON {_KINDS[type(answer)]}, and not with an object")


def check_fields(answer: Mapping[str, Any], fields: Mapping[str, Any], where: str) -> None:
    """Raise InvalidAnswer for an unknown field or a wrong type. Null counts as a missing field."""
    for name, value in answer.items():
        if name not in fields:
            raise InvalidAnswer(f"answered with the field {one_line(name, 40)!r}, which {where} does not have")
        kinds = fields[name] if isinstance(fields[name], tuple) else (fields[name],)
        if value is not None and type(value) not in kinds:
            names = dict.fromkeys(_KINDS[kind] for kind in kinds)  # without duplicates
            wanted = " or ".join(
                kind if kind == _SWITCH else f"{'an' if kind == 'object' else 'a'} {kind}" for kind in names
            )
            raise InvalidAnswer(f"answered with a JSON {_KINDS[type(value)]} in {name!r}, which is {wanted}")


_SWITCH = "true or false"
_KINDS = {
    dict: "object",
    list: "list",
    str: "text",
    bool: _SWITCH,
    int: "number",
    float: "number",
    type(None): "null",
}
