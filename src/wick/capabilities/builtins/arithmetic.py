"""Numbers that are exact as long as they can be: a Fraction, and a Decimal of fifty digits from then on.

    OPERATIONS["+"](Fraction(1, 10), Fraction(1, 5))      Fraction(3, 10)
    power(Fraction(2), Fraction(1, 2))                    Decimal("1.4142135623730950488…")
    shown(Fraction(2, 3))                                 "2/3 (about 0.666666666666667)"

Every step is bounded: a number with too many digits, and one that is not there, is a ToolError.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    localcontext,
)
from fractions import Fraction
from typing import NoReturn

from wick.constants import CALCULATE_DIGITS
from wick.errors import ToolError

Number = Fraction | Decimal

DIGITS, SHOWN = 50, 15  # of what is not rational: those it is computed to, and those that are shown
MOST_BITS = math.ceil(CALCULATE_DIGITS * math.log2(10))
MOST_ANGLE = 10**12  # beyond it too few digits of pi are left
MOST_OF_FACTORIAL = 1_400
MOST_OF_COMB = 10_000
MOST_PLACES = 100  # that a number is rounded to
HIGHEST_ROOT = 64  # that is looked for among the rationals
EXACT_PLACES = 30  # a fraction with more decimal places is shown as a fraction
NOTHING = Decimal("1e-40")  # a sine or cosine that is smaller came of rounding
NOISE = Decimal("1e-45")  # and so did what is left of two numbers, if it is so much smaller than they are


def context(digits: int) -> Context:
    return Context(prec=digits, Emax=99_999, Emin=-99_999, traps=[DivisionByZero, InvalidOperation, Overflow])


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
E = Decimal("2.71828182845904523536028747135266249775724709369995957496696762772407663035354759457138")
NAMES: Mapping[str, Number] = {"pi": PI, "π": PI, "tau": context(2 * DIGITS).add(PI, PI), "e": E}


# -- numbers as text --------------------------------------------------------------------------------------------------


def shown(value: Number) -> str:
    """A number as people write it; a fraction without a short decimal form also as what it is about."""
    if isinstance(value, Decimal):
        return _plain(value)
    if value.denominator == 1:
        return str(value.numerator)
    places = _places(value.denominator)
    if places is None or places > EXACT_PLACES:
        about = context(DIGITS).divide(Decimal(value.numerator), Decimal(value.denominator))
        return f"{value.numerator}/{value.denominator} (about {_plain(about)})"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _plain(value: Decimal) -> str:
    rounded = value.normalize(context(SHOWN))
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


# -- operations -------------------------------------------------------------------------------------------------------


def too_large() -> NoReturn:
    raise ToolError(f"a number on the way has more than {CALCULATE_DIGITS:,} digits; calculate with smaller ones")


def bounded(value: Number) -> Number:
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        too_large()
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
    return lambda one, other: bounded(do(*_alike(one, other)))


def _whole(value: Number, rounding: str) -> Fraction:
    """A whole number near a value."""
    if isinstance(value, Decimal) and value.adjusted() > CALCULATE_DIGITS:
        too_large()
    if isinstance(value, Decimal):
        return Fraction(int(value.to_integral_value(rounding)))
    return Fraction(math.floor(value) if rounding == ROUND_FLOOR else math.ceil(value))


def _floor_divided(one: Number, other: Number) -> Number:
    return _whole(OPERATIONS["/"](one, other), ROUND_FLOOR)


def _remainder(one: Number, other: Number) -> Number:
    times = OPERATIONS["*"](other, _floor_divided(one, other))
    return OPERATIONS["-"](one, times)


def _added(one: Number, other: Number) -> Number:
    """A sum; what is left over when two rounded numbers cancel each other out is nothing."""
    one, other = _alike(one, other)
    total: Number = operator.add(one, other)
    rounded = isinstance(total, Decimal) and abs(total) < NOISE * abs(_real(one))
    return Fraction(0) if rounded else bounded(total)


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": _added,
    "-": lambda one, other: _added(one, -other),
    "*": _binary(operator.mul),
    "/": _binary(operator.truediv),
    "//": _floor_divided,
    "%": _remainder,
}


def power(base: Number, exponent: Number) -> Number:
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
        too_large()
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


def factorial(value: Number) -> Number:
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
        too_large()
    shift = Fraction(10) ** int(places)
    size = math.floor(abs(Fraction(value)) * shift + Fraction(1, 2)) / shift
    return -size if value < 0 else size


def _cube_root(value: Number) -> Number:
    return -power(-value, Fraction(1, 3)) if value < 0 else power(value, Fraction(1, 3))


def _logarithm(value: Number, base: Number = E) -> Number:
    real = _real(value).ln() / (_real(base).ln() if base is not E else 1)
    return _exact_logarithm(value, base, real) or real


def _exact_logarithm(value: Number, base: Number, real: Decimal) -> Fraction | None:
    """The whole number that a logarithm is, where that is beyond doubt."""
    if isinstance(value, Decimal) or isinstance(base, Decimal) or abs(real) > MOST_BITS:
        return None
    near = Fraction(round(real))
    return near if power(base, near) == value else None


def _sine(value: Number) -> Number:
    return _series(value, 1)


def _cosine(value: Number) -> Number:
    return _series(value, 0)


def _series(value: Number, first: int) -> Number:
    """Sine or cosine by its power series: x^first/first! - x^(first+2)/(first+2)! + …"""
    if abs(_real(value)) > MOST_ANGLE:
        raise ToolError(f"angles are at most {MOST_ANGLE:,} radians here")
    with localcontext(context(DIGITS + 30)):
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
    "sqrt": (lambda value: power(value, Fraction(1, 2)), 1, 1),
    "cbrt": (_cube_root, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_rounded, 1, 2),
    "floor": (lambda value: _whole(value, ROUND_FLOOR), 1, 1),
    "ceil": (lambda value: _whole(value, ROUND_CEILING), 1, 1),
    "min": (lambda *values: min(values, key=_real), 1, MANY),
    "max": (lambda *values: max(values, key=_real), 1, MANY),
    "sum": (lambda *values: _total(values), 1, MANY),
    "mean": (lambda *values: OPERATIONS["/"](_total(values), Fraction(len(values))), 1, MANY),
    "gcd": (_of_integers(math.gcd, "gcd"), 1, MANY),
    "lcm": (_of_integers(math.lcm, "lcm"), 1, MANY),
    "factorial": (factorial, 1, 1),
    "comb": (_comb, 2, 2),
    "exp": (lambda value: _real(value).exp() if value else Fraction(1), 1, 1),
    "ln": (_logarithm, 1, 1),
    "log": (_logarithm, 1, 2),
    "log2": (lambda value: _logarithm(value, Fraction(2)), 1, 1),
    "log10": (lambda value: _logarithm(value, Fraction(10)), 1, 1),
    "sin": (_sine, 1, 1),
    "cos": (_cosine, 1, 1),
    "tan": (lambda value: OPERATIONS["/"](_sine(value), _cosine(value)), 1, 1),
    "asin": (_by_float(math.asin, "asin"), 1, 1),
    "acos": (_by_float(math.acos, "acos"), 1, 1),
    "atan": (_by_float(math.atan, "atan"), 1, 1),
    "radians": (lambda value: _real(value) * PI / 180, 1, 1),
    "degrees": (lambda value: _real(value) * 180 / PI, 1, 1),
}


def _total(values: tuple[Number, ...]) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = OPERATIONS["+"](total, value)
    return total
