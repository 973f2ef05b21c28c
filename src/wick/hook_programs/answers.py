"""What a program is told, as JSON, and the one JSON object that its answer should be; all else is its failure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from wick._internal.frozen import freeze, thaw
from wick.hook_programs.failure_policy import words
from wick.hook_programs.runner import Ran


class Unfit(ValueError):
    """An answer that is none. The text is the rest of a sentence about the program: "answered …"."""


def encoded(told: Mapping[str, Any]) -> bytes:
    """JSON as those tools write it for whom programs were made: on one line, without blanks between.

    A shell script may look for `"tool_name":"bash"`. Half characters, which have no bytes, are escaped, not replaced.
    """
    try:
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(told, separators=(",", ":")).encode()


def answered(ran: Ran) -> dict[str, Any]:
    """The answer of a program that must end with 0; nothing printed is an empty one."""
    if ran.problem:
        raise Unfit(ran.problem)
    if ran.exit_code != 0:
        said = f": {words(ran.stderr)}" if ran.stderr.strip() else ""
        raise Unfit(f"ended with exit code {ran.exit_code}{said}")
    return parsed(ran.stdout)


def parsed(printed: bytes) -> dict[str, Any]:
    """The JSON object that was printed, or an empty one for nothing."""
    if not printed.strip():
        return {}
    try:
        answer = json.loads(printed.decode(), parse_constant=_no_number, object_pairs_hook=_once)
        if isinstance(answer, dict):
            return thaw(freeze(answer))  # type: ignore[no-any-return]
    except json.JSONDecodeError as error:
        raise Unfit(_garbage(printed, error)) from None
    except UnicodeDecodeError:
        raise Unfit("answered with bytes that are no UTF-8") from None
    except RecursionError:
        raise Unfit("answered with JSON that is nested too deep") from None
    except (ValueError, TypeError) as error:
        raise Unfit(f"answered with JSON that cannot be taken: {words(error)}") from None
    raise Unfit(f"answered with a JSON {_KINDS[type(answer)]}, and not with an object")


def only(answer: Mapping[str, Any], fields: Mapping[str, Any], where: str) -> None:
    """Refuse an answer that has other fields than these, or one of another type; null stands for a field left out."""
    for name, value in answer.items():
        if name not in fields:
            raise Unfit(f"answered with the field {words(name, 40)!r}, which {where} does not have")
        if value is not None and not _is(value, fields[name]):
            raise Unfit(f"answered with {_article(value)} in {name!r}, which is {_names(fields[name])}")


def _is(value: Any, kinds: Any) -> bool:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    return type(value) in kinds


def _article(value: Any) -> str:
    return f"a JSON {_KINDS[type(value)]}"


def _names(kinds: Any) -> str:
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


def _garbage(printed: bytes, error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return "answered twice, or with more than one JSON document"
    start = printed[:80].decode(errors="replace")
    return f"answered with something that is no JSON: {words(start, 80)!r}"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found
