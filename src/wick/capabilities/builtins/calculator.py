"""Evaluation of arithmetic expressions. No text is ever executed.

    calculated("0.1 + 0.2")      "0.3"
    calculated("1/3 + 1/6")      "0.5"
    calculated("2 / 3")          "2/3 (about 0.666666666666667)"
    calculated("sqrt(2)")        "1.4142135623731"

Rational results are exact (see `wick.capabilities.builtins.arithmetic`). The text, its nesting and intermediate numbers
are bounded. An invalid expression raises a ToolError that says where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import DecimalException, Overflow, localcontext
from fractions import Fraction
from typing import NamedTuple, NoReturn

from wick.capabilities.builtins.arithmetic import (
    DIGITS,
    FUNCTIONS,
    NAMES,
    OPERATIONS,
    Number,
    bounded,
    context,
    factorial,
    power,
    shown,
    too_large,
)
from wick.constants import CALCULATE_CHARS, CALCULATE_DIGITS, CALCULATE_NESTING
from wick.errors import ToolError


def calculated(text: str) -> str:
    """What an expression comes to, as a text."""
    return shown(evaluated(text))


def evaluated(text: str) -> Number:
    """The value of an expression."""
    if len(text) > CALCULATE_CHARS:
        raise ToolError(f"the expression has more than {CALCULATE_CHARS:,} characters; calculate it in parts")
    try:
        with localcontext(context(DIGITS)):
            return _Parser([*_tokens(text)]).whole()
    except ZeroDivisionError:
        raise ToolError("nothing can be divided by zero") from None
    except Overflow:
        too_large()
    except DecimalException:
        raise ToolError("this has no value among the real numbers") from None


# -- text as numbers --------------------------------------------------------------------------------------------------


class _Token(NamedTuple):
    kind: str  # number, name or sign; the end has none
    text: str
    at: int

    def __str__(self) -> str:
        return repr(self.text) if self.kind else "the end"


_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|//|[-+*/%^!(),])"
)


def _tokens(text: str) -> Iterator[_Token]:
    text, at = text.translate(_SPELLINGS), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            raise ToolError(f"{text[at]!r} at character {at + 1} is no part of a calculation")
        yield _Token(str(found.lastgroup), found[0], at + 1)
        at = found.end()
    yield _Token("", "", at + 1)


def _number(text: str) -> Fraction:
    digits, _, exponent = text.replace("_", "").lower().partition("e")
    whole, _, part = digits.partition(".")
    shift = int(exponent or 0)  # at most as long as the text, which Python reads
    if abs(shift) > CALCULATE_DIGITS:
        too_large()
    value = Fraction(int(whole + part or "0")) * Fraction(10) ** (shift - len(part))
    bounded(value)
    return value


class _Parser:
    """Reads an expression from left to right, and calculates on the way."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def whole(self) -> Number:
        value = self._sum()
        if self._next.kind:
            self._expected("an operator")
        return value

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *signs: str) -> str:
        """The sign that is next, if it is one of these."""
        token = self._next
        if token.kind != "sign" or token.text not in signs:
            return ""
        self._at += 1
        return token.text

    def _expected(self, what: str) -> NoReturn:
        raise ToolError(f"at character {self._next.at} of the expression {what} is expected, not {self._next}")

    def _sum(self) -> Number:
        value = self._product()
        while sign := self._take("+", "-"):
            value = OPERATIONS[sign](value, self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while sign := self._take("*", "/", "//", "%"):
            value = OPERATIONS[sign](value, self._signed())
        return value

    def _signed(self) -> Number:
        minus = False
        while sign := self._take("+", "-"):
            minus ^= sign == "-"
        value = self._power()
        return -value if minus else value

    def _power(self) -> Number:
        base = self._factorial()
        return power(base, self._deeper(self._signed)) if self._take("**", "^") else base

    def _factorial(self) -> Number:
        value = self._atom()
        while self._take("!"):
            value = factorial(value)
        return value

    def _atom(self) -> Number:
        token = self._next
        if self._take("("):
            return self._closed(self._deeper(self._sum))
        if token.kind not in ("number", "name"):
            self._expected("a number, a name or '('")
        self._at += 1
        if token.kind == "number":
            return _number(token.text)
        return self._called(token) if self._take("(") else self._named(token)

    def _deeper(self, read: Callable[[], Number]) -> Number:
        if self._depth == CALCULATE_NESTING:
            raise ToolError(
                f"the expression is nested more than {CALCULATE_NESTING} levels deep; calculate it in parts"
            )
        self._depth += 1
        value = read()
        self._depth -= 1
        return value

    def _closed(self, value: Number) -> Number:
        return value if self._take(")") else self._expected("')'")

    def _named(self, token: _Token) -> Number:
        if token.text not in NAMES:
            _unknown(token, "name", [name for name in NAMES if name.isascii()])
        return NAMES[token.text]

    def _called(self, token: _Token) -> Number:
        if token.text not in FUNCTIONS:
            _unknown(token, "function", [*FUNCTIONS])
        fn, least, most = FUNCTIONS[token.text]
        args = [] if self._take(")") else self._arguments()
        if not least <= len(args) <= most:
            counts = str(least) if least == most else f"{least} or more" if most > 9 else f"{least} or {most}"
            raise ToolError(f"{token.text} takes {counts} number{'s' * (counts != '1')}, not {len(args)}")
        return bounded(fn(*args))

    def _arguments(self) -> list[Number]:
        args = [self._deeper(self._sum)]
        while self._take(","):
            args.append(self._deeper(self._sum))
        self._closed(args[0])
        return args


def _unknown(token: _Token, what: str, known: list[str]) -> NoReturn:
    raise ToolError(f"there is no {what} {token.text[:40]!r} to calculate with; there are {', '.join(known)}")
