"""Evaluation of arithmetic expressions by a whitelist over Python's syntax tree. No text is ever executed.

    calculate_text("0.1 + 0.2")      "0.3"
    calculate_text("1/3 + 1/6")      "0.5"
    calculate_text("2 / 3")          "2/3 (about 0.666666666666667)"
    calculate_text("sqrt(2)")        "1.4142135623731"

Rational arithmetic is exact. Functions and powers without a rational result use floats. The text, its nesting and
intermediate numbers are bounded. An invalid expression raises a ToolError that says what is wrong.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NoReturn

from wick.constants import CALCULATE_CHARS, CALCULATE_DIGITS, CALCULATE_NESTING
from wick.errors import ToolError

Number = Fraction | float

MOST_BITS = math.ceil(CALCULATE_DIGITS * math.log2(10))
MOST_OF_FACTORIAL, MOST_OF_COMB, MOST_PLACES = 1_400, 10_000, 100
EXACT_PLACES = 30  # a fraction with more decimal places is shown as a fraction
NOISE = 1e-15  # a smaller sine or cosine is a rounding error
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "\n": " "})
_FACTORIAL = re.compile(r"(?<![\w.])(\d+)!(?!=)")


def calculate_text(text: str) -> str:
    """Return the value of an expression as a text."""
    return format_number(evaluate(text))


def evaluate(text: str) -> Number:
    """Return the value of an expression."""
    if len(text) > CALCULATE_CHARS:
        raise ToolError(f"the expression has more than {CALCULATE_CHARS:,} characters; calculate it in parts")
    source = _FACTORIAL.sub(r"factorial(\1)", text.translate(_SPELLINGS).replace("π", "pi")).strip()
    if not source.isascii():
        raise ToolError("the expression has a character that is not part of a calculation; write it in ASCII")
    try:
        return _Evaluator(source).value(ast.parse(source, mode="eval").body, 0)
    except SyntaxError as error:
        where = f" at character {error.offset}" if error.offset and len(source) == len(text.strip()) else ""
        raise ToolError(f"the expression is not valid{where}; write it as in (1 + 2) * sqrt(3)") from None
    except (RecursionError, MemoryError):
        _refuse_nesting()
    except ZeroDivisionError:
        raise ToolError("nothing can be divided by zero") from None
    except OverflowError:
        _refuse_size()
    except ValueError:
        raise ToolError("this has no value among the real numbers") from None


class _Evaluator:
    """Evaluates the syntax tree of one expression."""

    def __init__(self, source: str) -> None:
        self._source = source

    def value(self, node: ast.expr, depth: int) -> Number:
        if depth > CALCULATE_NESTING:
            _refuse_nesting()
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return _parse_number(self._source[node.col_offset : node.end_col_offset])
            case ast.Name(id=name):
                return CONSTANTS[name] if name in CONSTANTS else _refuse_name("name", name, CONSTANTS)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self.value(operand, depth + 1)
                return -value if isinstance(sign, ast.USub) else value
            case ast.BinOp():
                return self._binary(node, depth)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                if name not in FUNCTIONS:
                    _refuse_name("function", name, FUNCTIONS)
                function, least, most = FUNCTIONS[name]
                if not least <= len(args) <= most:
                    counts = str(least) if least == most else f"{least} or more" if most > 9 else f"{least} or {most}"
                    raise ToolError(f"{name} takes {counts} number{'s' * (counts != '1')}, not {len(args)}")
                return _check_size(function(*(self.value(arg, depth + 1) for arg in args)))
        raise ToolError(f"{ast.unparse(node)[:40]!r} is not part of a calculation")

    def _binary(self, node: ast.expr, depth: int) -> Number:
        """Evaluate a chain such as 1 + 2 + 3 in a loop: its tree is as deep as the chain is long."""
        chain: list[ast.BinOp] = []
        while isinstance(node, ast.BinOp):
            chain.append(node)
            node = node.left
        value = self.value(node, depth + 1)
        for part in reversed(chain):
            operation = OPERATORS.get(type(part.op))
            if operation is None:
                raise ToolError(f"the operator of {ast.unparse(part)[:40]!r} is not part of a calculation")
            value = _check_size(operation(value, self.value(part.right, depth + 1)))
        return value


def _parse_number(text: str) -> Fraction:
    """Return an exact number: `0.1` is a tenth, not the nearest float."""
    _, _, exponent = text.lower().partition("e")
    if not re.fullmatch(r"[\d._]*(?:e[+-]?\d+)?", text.lower()):
        raise ToolError(f"{text[:40]!r} is not a decimal number")
    if exponent and abs(int(exponent)) > CALCULATE_DIGITS:
        _refuse_size()
    value = Fraction(text.replace("_", ""))
    _check_size(value)
    return value


def _check_size(value: Number) -> Number:
    if isinstance(value, float):
        if not math.isfinite(value):
            _refuse_size()
    elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MOST_BITS:
        _refuse_size()
    return value


def _refuse_size() -> NoReturn:
    raise ToolError(f"a number on the way has more than {CALCULATE_DIGITS:,} digits; calculate with smaller ones")


def _refuse_nesting() -> NoReturn:
    raise ToolError(f"the expression is nested more than {CALCULATE_NESTING} levels deep; calculate it in parts")


def _refuse_name(kind: str, name: str, known: Mapping[str, object]) -> NoReturn:
    raise ToolError(f"there is no {kind} {name[:40]!r} to calculate with; there are {', '.join(known)}")


# -- operators and functions ------------------------------------------------------------------------------------------


def _power(base: Number, exponent: Number) -> Number:
    if base < 0 and exponent != int(exponent):
        raise ValueError
    if isinstance(base, float) or isinstance(exponent, float) or exponent.denominator != 1:
        return math.pow(base, exponent)
    if abs(base) == 1 or not base:
        return base ** (exponent.numerator if exponent < 2 else 2 - exponent.numerator % 2)
    bits = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if bits * abs(exponent.numerator) > MOST_BITS:
        _refuse_size()
    return base**exponent.numerator


def _require_integer(value: Number, name: str, most: int | None = None) -> int:
    if value != int(value):
        raise ToolError(f"{name} takes whole numbers, not {format_number(value)[:40]}")
    if most is not None and not 0 <= value <= most:
        raise ToolError(f"{name} takes whole numbers from 0 to {most:,}, not {format_number(value)[:40]}")
    return int(value)


def _integer_function(name: str, function: Callable[..., int], most: int | None = None) -> Callable[..., Number]:
    return lambda *values: Fraction(function(*(_require_integer(value, name, most) for value in values)))


def _round(value: Number, places: Number = Fraction(0)) -> Number:
    """Round half away from zero, as in school."""
    if abs(_require_integer(places, "round")) > MOST_PLACES:
        raise ToolError(f"round takes at most {MOST_PLACES} places")
    shift = Fraction(10) ** int(places)
    size = math.floor(abs(Fraction(value)) * shift + Fraction(1, 2)) / shift
    return -size if value < 0 else size


def _square_root(value: Number) -> Number:
    if isinstance(value, Fraction) and value >= 0:
        roots = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if (roots[0] ** 2, roots[1] ** 2) == (value.numerator, value.denominator):
            return Fraction(*roots)
    return math.sqrt(value)


def _logarithm(value: Number, base: Number = math.e) -> Number:
    exact = {2.0: math.log2, 10.0: math.log10, math.e: math.log}.get(float(base))
    return exact(value) if exact else math.log(value, base)


def _periodic(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def evaluate_angle(value: Number) -> Number:
        result = function(float(value))
        return Fraction(0) if abs(result) < NOISE else result

    return evaluate_angle


def _divide(left: Number, right: Number) -> Number:
    return left / right


CONSTANTS: Mapping[str, Number] = {"pi": math.pi, "tau": math.tau, "e": math.e}
OPERATORS: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: lambda left, right: Fraction(math.floor(_divide(left, right))),
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
MANY = 1_000
FUNCTIONS: Mapping[str, tuple[Callable[..., Number], int, int]] = {  # with the least and the most arguments
    "sqrt": (_square_root, 1, 1),
    "cbrt": (lambda value: math.cbrt(value), 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (lambda value: Fraction(math.floor(value)), 1, 1),
    "ceil": (lambda value: Fraction(math.ceil(value)), 1, 1),
    "min": (min, 1, MANY),
    "max": (max, 1, MANY),
    "sum": (lambda *values: sum(values, Fraction(0)), 1, MANY),
    "mean": (lambda *values: _divide(sum(values, Fraction(0)), Fraction(len(values))), 1, MANY),
    "gcd": (_integer_function("gcd", math.gcd), 1, MANY),
    "lcm": (_integer_function("lcm", math.lcm), 1, MANY),
    "factorial": (_integer_function("factorial", math.factorial, MOST_OF_FACTORIAL), 1, 1),
    "comb": (_integer_function("comb", math.comb, MOST_OF_COMB), 2, 2),
    "exp": (lambda value: math.exp(value), 1, 1),
    "ln": (_logarithm, 1, 1),
    "log": (_logarithm, 1, 2),
    "log2": (lambda value: _logarithm(value, 2), 1, 1),
    "log10": (lambda value: _logarithm(value, 10), 1, 1),
    "sin": (_periodic(math.sin), 1, 1),
    "cos": (_periodic(math.cos), 1, 1),
    "tan": (lambda value: _divide(_periodic(math.sin)(value), _periodic(math.cos)(value)), 1, 1),
    "asin": (lambda value: math.asin(value), 1, 1),
    "acos": (lambda value: math.acos(value), 1, 1),
    "atan": (lambda value: math.atan(value), 1, 1),
    "radians": (lambda value: math.radians(value), 1, 1),
    "degrees": (lambda value: math.degrees(value), 1, 1),
}


# -- numbers as text --------------------------------------------------------------------------------------------------


def format_number(value: Number) -> str:
    """Return a number as people write it; a fraction without a short decimal form has an approximation beside it."""
    if isinstance(value, float):
        return _format_float(value)
    if value.denominator == 1:
        return str(value.numerator)
    # A decimal form ends only if the denominator has no prime factors but 2 and 5.
    twos = (value.denominator & -value.denominator).bit_length() - 1
    rest, fives = value.denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or places > EXACT_PLACES:
        try:
            nearest = float(value)
        except OverflowError:
            _refuse_size()
        return f"{value.numerator}/{value.denominator} (about {_format_float(nearest)})"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"


def _format_float(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:.15g}"
