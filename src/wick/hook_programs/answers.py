"""JSON payloads for hook programs, and strict parsing of the JSON object that they answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from wick._internal.frozen import freeze, thaw
from wick.hook_programs.failure_policy import one_line
from wick.hook_programs.runner import ProgramResult


class InvalidAnswer(ValueError):
    """An invalid answer. The message continues a sentence about the program: "answered …"."""


def encode_payload(told: Mapping[str, Any]) -> bytes:
    """Encode a payload as compact JSON on one line, as kodelet and Claude Code do.

    A shell script may search for `"tool_name":"bash"`. Lone surrogates are escaped, not replaced.
    """
    try:
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(told, separators=(",", ":")).encode()


def read_answer(ran: ProgramResult) -> dict[str, Any]:
    """Return the answer of a program that must exit with 0; empty output is an empty answer."""
    if ran.problem:
        raise InvalidAnswer(ran.problem)
    if ran.exit_code != 0:
        said = f": {one_line(ran.stderr)}" if ran.stderr.strip() else ""
        raise InvalidAnswer(f"ended with exit code {ran.exit_code}{said}")
    return parse_answer(ran.stdout)


def parse_answer(printed: bytes) -> dict[str, Any]:
    """Parse the printed JSON object; empty output is an empty object."""
    if not printed.strip():
        return {}
    try:
        answer = json.loads(printed.decode(), parse_constant=_reject_constant, object_pairs_hook=_reject_duplicates)
        if isinstance(answer, dict):
            return thaw(freeze(answer))  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        raise InvalidAnswer(_describe_garbage(printed, error)) from None
    except UnicodeDecodeError:
        raise InvalidAnswer("answered with bytes that are no UTF-8") from None
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
        if value is not None and not _is_of_kind(value, fields[name]):
            raise InvalidAnswer(f"answered with {_article(value)} in {name!r}, which is {_kind_names(fields[name])}")


def _is_of_kind(value: Any, kinds: Any) -> bool:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return type(value) in kinds


def _article(value: Any) -> str:
    return f"a JSON {_KINDS[type(value)]}"


def _kind_names(kinds: Any) -> str:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    named = dict.fromkeys(_KINDS[kind] for kind in kinds)
    return " or ".join(name if name == _SWITCH else f"{'an' if name == 'object' else 'a'} {name}" for name in named)


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


def _describe_garbage(printed: bytes, error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "answered twice, or with more than one JSON document"
    start = printed[:80].decode(errors="replace")
    return f"answered with something that is no JSON: {one_line(start, 80)!r}"


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _reject_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found
