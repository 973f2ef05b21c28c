"""Arithmetic for people and models: what is rational is exact, and nothing in a text is ever run.

    calculated("0.1 + 0.2")      "0.3"
    calculated("1/3 + 1/6")      "0.5"
    calculated("2 / 3")          "2/3 (about 0.666666666666667)"
    calculated("sqrt(2)")        "1.4142135623731"

A number is a Fraction as long as it can be one, and a Decimal of fifty digits from then on. Every step is bounded: the
text, its nesting, the digits of each number on the way. What is wrong is a ToolError, a sentence that says where.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from typing import NamedTuple, NoReturn

from wick.caps import CALCULATE_CHARS, CALCULATE_DIGITS, CALCULATE_NESTING
from wick.errors import ToolError

Number = Fraction | Decimal

DIGITS, SHOWN = 50, 15  # of what is not rational: those it is computed to, and those that are shown
MOST_BITS = int(CALCULATE_DIGITS * math.log2(10))
MOST_ANGLE = 10**12  # beyond it too few digits of pi are left
MOST_OF_FACTORIAL = 1_400
MOST_OF_COMB = 10_000
MOST_PLACES = 100  # that a number is rounded to
HIGHEST_ROOT = 64  # that is looked for among the rationals
EXACT_PLACES = 30  # a fraction with more decimal places is shown as a fraction
NOTHING = Decimal("1e-40")  # a sine or cosine that is smaller came of rounding
NOISE = Decimal("1e-45")  # and so did what is left of two numbers, if it is so much smaller than they are


def _context(digits: int) -> Context:
    return Context(prec=digits, Emax=99_999, Emin=-99_999, traps=[DivisionByZero, InvalidOperation, Overflow])


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
E = Decimal("2.71828182845904523536028747135266249775724709369995957496696762772407663035354759457138")
NAMES: Mapping[str, Number] = {"pi": PI, "π": PI, "tau": 2 * PI, "e": E}


def calculated(text: str) -> str:
    """What an expression comes to, as a text."""
    return shown(evaluated(text))


def evaluated(text: str) -> Number:
    """The value of an expression."""
    if len(text) > CALCULATE_CHARS:
        raise ToolError(f"the expression has more than {CALCULATE_CHARS:,} characters; calculate it in parts")
    try:
        with localcontext(_context(DIGITS)):
            return _Parser([*_tokens(text)]).whole()
    except ZeroDivisionError:
        raise ToolError("nothing can be divided by zero") from None
    except Overflow:
        _too_large()
    except DecimalException:
        raise ToolError("this has no value among the real numbers") from None


# -- numbers as text --------------------------------------------------------------------------------------------------


def shown(value: Number) -> str:
    """A number as people write it; a fraction without a short decimal form also as what it is about."""
    if isinstance(value, Decimal):
        return _plain(value)
    if value.denominator == 1:
        return str(value.numerator)
    places = _places(value.denominator)
    if places is None or places > EXACT_PLACES:
        about = _context(DIGITS).divide(Decimal(value.numerator), Decimal(value.denominator))
        return f"{value.numerator}/{value.denominator} (about {_plain(about)})"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _plain(value: Decimal) -> str:
    rounded = value.normalize(_context(SHOWN))
    if not rounded:
        return "0"
    return f"{rounded:f}" if -7 < rounded.adjusted() < 21 else f"{rounded:e}"


def _places(denominator: int) -> int | None:
    """How many decimal places a fraction has; None if they never end."""
    twos = (denominator & -denominator).bit_length() - 1
    rest, fives = denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None


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
    power = int(exponent or 0)  # at most as long as the text, which Python reads
    if abs(power) > CALCULATE_DIGITS:
        _too_large()
    value = Fraction(int(whole + part or "0")) * Fraction(10) ** (power - len(part))
    _bounded(value)
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
            value = _OPERATIONS[sign](value, self._product())
        return value

    def _product(self) -> Number:
        value = self._signed()
        while sign := self._take("*", "/", "//", "%"):
            value = _OPERATIONS[sign](value, self._signed())
        return value

    def _signed(self) -> Number:
        minus = False
        while sign := self._take("+", "-"):
            minus ^= sign == "-"
        value = self._power()
        return -value if minus else value

    def _power(self) -> Number:
        base = self._factorial()
        return _power(base, self._deeper(self._signed)) if self._take("**", "^") else base

    def _factorial(self) -> Number:
        value = self._atom()
        while self._take("!"):
            value = _factorial(value)
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
        return _bounded(fn(*args))

    def _arguments(self) -> list[Number]:
        args = [self._deeper(self._sum)]
        while self._take(","):
            args.append(self._deeper(self._sum))
        self._closed(args[0])
        return args


def _unknown(token: _Token, what: str, known: list[str]) -> NoReturn:
    raise ToolError(f"there is no {what} {token.text[:40]!r} to calculate with; there are {', '.join(known)}")


def _too_large() -> NoReturn:
    raise ToolError(f"a number on the way has more than {CALCULATE_DIGITS:,} digits; calculate with smaller ones")


# -- operations -------------------------------------------------------------------------------------------------------


def _bounded(value: Number) -> Number:
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        _too_large()
    if isinstance(value, Decimal) and not value.is_finite():
        raise InvalidOperation
    return value


def _real(value: Number) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value.numerator) / Decimal(value.denominator)


def _alike(one: Number, other: Number) -> tuple[Number, Number]:
    """Two numbers of which both are exact, or none."""
    exact = isinstance(one, Fraction) and isinstance(other, Fraction)
    return (one, other) if exact else (_real(one), _real(other))


def _binary(do: Callable[..., Number]) -> Callable[[Number, Number], Number]:
    return lambda one, other: _bounded(do(*_alike(one, other)))


def _whole(value: Number, rounding: str) -> Fraction:
    """A whole number near a value."""
    if isinstance(value, Decimal) and value.adjusted() > CALCULATE_DIGITS:
        _too_large()
    if isinstance(value, Decimal):
        return Fraction(int(value.to_integral_value(rounding)))
    return Fraction(math.floor(value) if rounding == ROUND_FLOOR else math.ceil(value))


def _floor_divided(one: Number, other: Number) -> Number:
    return _whole(_OPERATIONS["/"](one, other), ROUND_FLOOR)


def _remainder(one: Number, other: Number) -> Number:
    times = _OPERATIONS["*"](other, _floor_divided(one, other))
    return _OPERATIONS["-"](one, times)


def _added(one: Number, other: Number) -> Number:
    """A sum; what is left over when two rounded numbers cancel each other out is nothing."""
    one, other = _alike(one, other)
    total: Number = operator.add(one, other)
    rounded = isinstance(total, Decimal) and abs(total) < NOISE * abs(_real(one))
    return Fraction(0) if rounded else _bounded(total)


_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": _added,
    "-": lambda one, other: _added(one, -other),
    "*": _binary(operator.mul),
    "/": _binary(operator.truediv),
    "//": _floor_divided,
    "%": _remainder,
}


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        root = base if exponent.denominator == 1 else _root(base, exponent.denominator)
        if root is not None:
            return _integral_power(root, exponent.numerator)
    return _real(base) ** _real(exponent)


def _integral_power(base: Fraction, exponent: int) -> Fraction:
    if abs(base) == 1 or not base:
        return base ** (exponent if exponent < 2 else 2 - exponent % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if bits * abs(exponent) > MOST_BITS:
        _too_large()
    return base**exponent


def _root(value: Fraction, degree: int) -> Fraction | None:
    """A root, if it is rational."""
    if value < 0 or degree > HIGHEST_ROOT:
        return None
    numerator, denominator = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    root = Fraction(numerator, denominator)
    return root if root**degree == value else None


def _whole_root(value: int, degree: int) -> int:
    """The largest whole number whose power is not above a value, by Newton's method from above."""
    root = 1 << (value.bit_length() // degree + 1)
    while value:
        closer = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if closer >= root:
            return root
        root = closer
    return 0


# -- functions --------------------------------------------------------------------------------------------------------


def _integer(value: Number, name: str, most: int | None = None) -> int:
    if not isinstance(value, Fraction) or value.denominator != 1:
        raise ToolError(f"{name} takes whole numbers, not {shown(value)[:40]}")
    if most is not None and not 0 <= value <= most:
        raise ToolError(f"{name} takes whole numbers from 0 to {most:,}, not {shown(value)[:40]}")
    return int(value)


def _factorial(value: Number) -> Number:
    return Fraction(math.factorial(_integer(value, "factorial", MOST_OF_FACTORIAL)))


def _comb(total: Number, chosen: Number) -> Number:
    whole = [_integer(value, "comb", MOST_OF_COMB) for value in (total, chosen)]
    return Fraction(math.comb(*whole))


def _of_integers(do: Callable[..., int], name: str) -> Callable[..., Number]:
    return lambda *values: Fraction(do(*(_integer(value, name) for value in values)))


def _rounded(value: Number, places: Number = Fraction(0)) -> Number:
    """A number to so many decimal places; what is in the middle goes away from zero, as in school."""
    if abs(_integer(places, "round")) > MOST_PLACES:
        raise ToolError(f"round takes at most {MOST_PLACES} places")
    if isinstance(value, Decimal) and value.adjusted() > CALCULATE_DIGITS:
        _too_large()
    shift = Fraction(10) ** int(places)
    size = math.floor(abs(Fraction(value)) * shift + Fraction(1, 2)) / shift
    return -size if value < 0 else size


def _cube_root(value: Number) -> Number:
    return -_power(-value, Fraction(1, 3)) if value < 0 else _power(value, Fraction(1, 3))


def _logarithm(value: Number, base: Number = E) -> Number:
    real = _real(value).ln() / (_real(base).ln() if base is not E else 1)
    return _exact_logarithm(value, base, real) or real


def _exact_logarithm(value: Number, base: Number, real: Decimal) -> Fraction | None:
    """The whole number that a logarithm is, where that is beyond doubt."""
    if isinstance(value, Decimal) or isinstance(base, Decimal) or abs(real) > MOST_BITS:
        return None
    near = Fraction(round(real))
    return near if _power(base, near) == value else None


def _sine(value: Number) -> Number:
    return _series(value, 1)


def _cosine(value: Number) -> Number:
    return _series(value, 0)


def _series(value: Number, first: int) -> Number:
    """Sine or cosine by its power series: x^first/first! - x^(first+2)/(first+2)! + …"""
    if abs(_real(value)) > MOST_ANGLE:
        raise ToolError(f"angles are at most {MOST_ANGLE:,} radians here")
    with localcontext(_context(DIGITS + 30)):
        x = _real(value)
        x -= 2 * PI * (x / (2 * PI)).to_integral_value()
        term = x if first else Decimal(1)
        total, number = term, first
        while abs(term) > Decimal("1e-70"):
            number += 2
            term *= -x * x / (number * (number - 1))
            total += term
    return +total if abs(total) > NOTHING else Fraction(0)


def _by_float(do: Callable[[float], float], name: str) -> Callable[[Number], Number]:
    def inverse(value: Number) -> Number:
        try:
            return Decimal(repr(do(float(_real(value)))))
        except ValueError:
            raise ToolError(f"{name} takes numbers from -1 to 1, not {shown(value)[:40]}") from None

    return inverse


MANY = 1_000
FUNCTIONS: Mapping[str, tuple[Callable[..., Number], int, int]] = {
    "sqrt": (lambda value: _power(value, Fraction(1, 2)), 1, 1),
    "cbrt": (_cube_root, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_rounded, 1, 2),
    "floor": (lambda value: _whole(value, ROUND_FLOOR), 1, 1),
    "ceil": (lambda value: _whole(value, ROUND_CEILING), 1, 1),
    "min": (lambda *values: min(values, key=_real), 1, MANY),
    "max": (lambda *values: max(values, key=_real), 1, MANY),
    "sum": (lambda *values: _total(values), 1, MANY),
    "mean": (lambda *values: _OPERATIONS["/"](_total(values), Fraction(len(values))), 1, MANY),
    "gcd": (_of_integers(math.gcd, "gcd"), 1, MANY),
    "lcm": (_of_integers(math.lcm, "lcm"), 1, MANY),
    "factorial": (_factorial, 1, 1),
    "comb": (_comb, 2, 2),
    "exp": (lambda value: _real(value).exp() if value else Fraction(1), 1, 1),
    "ln": (_logarithm, 1, 1),
    "log": (_logarithm, 1, 2),
    "log2": (lambda value: _logarithm(value, Fraction(2)), 1, 1),
    "log10": (lambda value: _logarithm(value, Fraction(10)), 1, 1),
    "sin": (_sine, 1, 1),
    "cos": (_cosine, 1, 1),
    "tan": (lambda value: _OPERATIONS["/"](_sine(value), _cosine(value)), 1, 1),
    "asin": (_by_float(math.asin, "asin"), 1, 1),
    "acos": (_by_float(math.acos, "acos"), 1, 1),
    "atan": (_by_float(math.atan, "atan"), 1, 1),
    "radians": (lambda value: _real(value) * PI / 180, 1, 1),
    "degrees": (lambda value: _real(value) * 180 / PI, 1, 1),
}


def _total(values: tuple[Number, ...]) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = _OPERATIONS["+"](total, value)
    return total
