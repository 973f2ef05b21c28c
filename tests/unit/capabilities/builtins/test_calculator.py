"""Arithmetic: exact where it can be, bounded everywhere, and nothing but arithmetic."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.capabilities.builtins import calculator
from wick.capabilities.builtins.calculator import CONSTANTS, FUNCTIONS, calculate_text, evaluate, format_number
from wick.constants import CALCULATE_CHARS, CALCULATE_DIGITS, CALCULATE_NESTING
from wick.errors import ToolError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+2", "4"),
        (" ( 1 + 2 ) * 3 ", "9"),
        ("0.1 + 0.2", "0.3"),
        ("10/4", "2.5"),
        ("1/3", "1/3 (about 0.333333333333333)"),
        ("1/3 + 1/6", "0.5"),
        ("-1/3", "-1/3 (about -0.333333333333333)"),
        ("-0.05", "-0.05"),
        ("1/2**40", "1/1099511627776 (about 9.09494701772928e-13)"),
        ("1_000 * 2", "2000"),
        (".5 + 1.", "1.5"),
        ("1e3 + 1E-1", "1000.1"),
        ("2**200", str(2**200)),
        ("2**3**2", "512"),
        ("2^10", "1024"),
        ("-2**2", "-4"),
        ("2**-3", "0.125"),
        ("--2 - +3", "-1"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("7 % 3", "1"),
        ("-7 % 3", "2"),
        ("7.5 % 2", "1.5"),
        ("pi // 1", "3"),
        ("pi % 1", "0.141592653589793"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("5!", "120"),
        ("2*3!", "12"),
        ("100!/98!", "9900"),
        ("0**0", "1"),
        ("0**5", "0"),
        ("(-1)**(10**100)", "1"),
        ("(-1)**(10**100+1)", "-1"),
        ("sqrt(4/9)", "2/3 (about 0.666666666666667)"),
        ("sqrt(2)", "1.4142135623731"),
        ("8^(1/3)", "2"),
        ("32**(2/5)", "4"),
        ("2**0.5", "1.4142135623731"),
        ("2**(1/64)", "1.0108892860517"),
        ("cbrt(-27)", "-3"),
        ("cbrt(2)", "1.25992104989487"),
        ("pi", "3.14159265358979"),
        ("π - pi", "0"),
        ("tau/pi", "2"),
        ("e", "2.71828182845905"),
        ("exp(0)", "1"),
        ("exp(-1e9)", "0"),
        ("ln(e)", "1"),
        ("ln(1)", "0"),
        ("log(8, 2)", "3"),
        ("log2(8)", "3"),
        ("floor(log2(8))", "3"),
        ("floor(log10(1000))", "3"),
        ("log10(0.001)", "-3"),
        ("log10(2)", "0.301029995663981"),
        ("sin(pi)", "0"),
        ("sin(pi/6)", "0.5"),
        ("sin(1e6)", "-0.349993502171293"),
        ("cos(pi)", "-1"),
        ("cos(pi/2)", "0"),
        ("tan(pi/4)", "1"),
        ("asin(1)*2", "3.14159265358979"),
        ("acos(-1)", "3.14159265358979"),
        ("4*atan(1)", "3.14159265358979"),
        ("degrees(pi)", "180"),
        ("radians(180) - pi", "0"),
        ("abs(-1/4)", "0.25"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("round(pi, 4)", "3.1416"),
        ("floor(-1/2)", "-1"),
        ("ceil(-1/2)", "0"),
        ("ceil(pi)", "4"),
        ("min(1, pi, 1/2)", "0.5"),
        ("max(3, pi)", "3.14159265358979"),
        ("sum(0.1, 0.2, 0.3)", "0.6"),
        ("mean(1, 2, 4)", "7/3 (about 2.33333333333333)"),
        ("gcd(12, 18, 8)", "2"),
        ("lcm(4, 6)", "12"),
        ("comb(5, 2)", "10"),
        ("factorial(10)", "3628800"),
        ("1e30*pi", "3.14159265358979e+30"),
        ("pi/1e30", "3.14159265358979e-30"),
        ("1+" * 999 + "1", "1000"),
    ],
)
def test_results_are_correct(text: str, value: str) -> None:
    assert calculate_text(text) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the expression is not valid; write it as in (1 + 2) * sqrt(3)"),
        ("   ", "the expression is not valid"),
        ("1 +", "the expression is not valid"),
        ("* 2", "the expression is not valid"),
        ("(1", "the expression is not valid at character 1"),
        ("1)", "the expression is not valid at character 2"),
        ("()", "'()' is not part of a calculation"),
        ("2 3", "the expression is not valid"),
        ("2(3)", "'2(3)' is not part of a calculation"),
        ("2pi", "the expression is not valid"),
        ("010", "the expression is not valid"),
        ("0x10", "'0x10' is not a decimal number"),
        ("1j", "not part of a calculation"),
        ("True", "'True' is not part of a calculation"),
        ("1,2", "not part of a calculation"),
        ("1;2", "the expression is not valid at character 2"),
        ("1 = 1", "the expression is not valid"),
        ("1 < 2", "not part of a calculation"),
        ("1 << 2", "the operator of '1 << 2' is not part of a calculation"),
        ("a.b", "'a.b' is not part of a calculation"),
        ("[1 for x in y]", "not part of a calculation"),
        ("\0", "the expression is not valid"),
        ("٣", "a character that is not part of a calculation"),
        ("__import__('os')", "there is no function '__import__' to calculate with"),
        ("'a' * 9", "not part of a calculation"),
        ("max(*a)", "not part of a calculation"),
        ("max(a=1)", "not part of a calculation"),
        ("x", "there is no name 'x' to calculate with; there are pi, tau, e"),
        ("print(1)", "there is no function 'print' to calculate with; there are sqrt,"),
        ("sqrt", "there is no name 'sqrt'"),
        ("pi(1)", "there is no function 'pi'"),
        ("sqrt()", "sqrt takes 1 number, not 0"),
        ("sqrt(1, 2)", "sqrt takes 1 number, not 2"),
        ("log(1, 2, 3)", "log takes 1 or 2 numbers, not 3"),
        ("min()", "min takes 1 or more numbers, not 0"),
        ("1/0", "nothing can be divided by zero"),
        ("1 // 0", "nothing can be divided by zero"),
        ("1 % 0", "nothing can be divided by zero"),
        ("pi/0", "nothing can be divided by zero"),
        ("pi % 0", "nothing can be divided by zero"),
        ("0**-1", "nothing can be divided by zero"),
        ("tan(pi/2)", "nothing can be divided by zero"),
        ("sqrt(-1)", "this has no value among the real numbers"),
        ("(-8)**(1/3)", "this has no value among the real numbers"),
        ("ln(0)", "this has no value among the real numbers"),
        ("ln(-1)", "this has no value among the real numbers"),
        ("asin(2)", "this has no value among the real numbers"),
        ("9**9**9", "more than 4,000 digits"),
        ("9**9**9**9", "more than 4,000 digits"),
        ("1e999999999999", "more than 4,000 digits"),
        ("1e-999999999999", "more than 4,000 digits"),
        ("10**5000", "more than 4,000 digits"),
        ("2**-100000", "more than 4,000 digits"),
        ("(10**3999)*(10**3999)", "more than 4,000 digits"),
        ("exp(1e9)", "more than 4,000 digits"),
        ("exp(10**3000)", "more than 4,000 digits"),
        ("pi**(10**3000)", "more than 4,000 digits"),
        ("floor(exp(20000))", "more than 4,000 digits"),
        ("round(exp(20000))", "more than 4,000 digits"),
        ("1401!", "factorial takes whole numbers from 0 to 1,400, not 1401"),
        ("factorial(-1)", "factorial takes whole numbers from 0 to 1,400, not -1"),
        ("factorial(1.5)", "factorial takes whole numbers, not 1.5"),
        ("comb(20000, 10000)", "comb takes whole numbers from 0 to 10,000, not 20000"),
        ("gcd(1.5, 2)", "gcd takes whole numbers, not 1.5"),
        ("gcd(pi, 2)", "gcd takes whole numbers, not 3.14159265358979"),
        ("round(1, 1000)", "round takes at most 100 places"),
        ("round(1, 0.5)", "round takes whole numbers, not 0.5"),
        ("abs(" * 60 + "1" + ")" * 60, f"nested more than {CALCULATE_NESTING} levels deep"),
        ("-" * 1_990 + "1", "nested more than"),
        ("(" * 990 + "1" + ")" * 990, "the expression is not valid"),
        ("2**" * 60 + "1", f"nested more than {CALCULATE_NESTING} levels deep"),
        ("1" * (CALCULATE_CHARS + 1), "more than 2,000 characters"),
    ],
)
def test_invalid_expressions_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ToolError) as caught:
        calculate_text(text)
    assert sentence in str(caught.value)


FRACTIONS = st.fractions(min_value=-1000, max_value=1000, max_denominator=1000)


@given(FRACTIONS, FRACTIONS, st.sampled_from("+-*/"))
def test_rational_arithmetic_is_exact(one: Fraction, other: Fraction, sign: str) -> None:
    text = f"({one}) {sign} ({other})"
    if sign == "/" and not other:
        with pytest.raises(ToolError, match="divided by zero"):
            evaluate(text)
        return
    expected = {"+": one + other, "-": one - other, "*": one * other, "/": one / other if other else None}[sign]
    assert evaluate(text) == expected


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9))
def test_a_decimal_is_exact(number: Decimal) -> None:
    assert Decimal(calculate_text(f"{number:f}")) == number


@given(st.integers(-(10**6), 10**6), st.integers(-100, 100).filter(bool))
def test_division_with_a_remainder_is_that_of_python(one: int, other: int) -> None:
    assert evaluate(f"({one}) // ({other})") == one // other
    assert evaluate(f"({one}) % ({other})") == one % other


PIECES = [*"0123456789.+-*/%^!(), _", "**", "//", "e", "1e9", "π", *CONSTANTS, *(f"{name}(" for name in FUNCTIONS)]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=30))
def test_any_text_gives_a_short_answer_or_error(text: str) -> None:
    try:
        answer = calculate_text(text)
    except ToolError as error:
        answer = str(error)
    assert 0 < len(answer) < 2 * CALCULATE_DIGITS + 100


@pytest.mark.parametrize(
    "piece", ["sin(1)+", "1400!+", "exp(9)*", "2**13000+", "sqrt(10**3999)+", "log(3,7)+", "(1/3)**99*"]
)
def test_the_numbers_of_the_longest_expressions_are_bounded(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So is the work: the length of the text bounds the number of operations."""
    sizes, value = list[int](), calculator._Evaluator.value

    def record_size(self: Any, node: Any, depth: int) -> Any:
        number = value(self, node, depth)
        exact = number if isinstance(number, Fraction) else Fraction(0)
        sizes.append(max(exact.numerator.bit_length(), exact.denominator.bit_length()))
        return number

    monkeypatch.setattr(calculator._Evaluator, "value", record_size)
    try:
        calculate_text(piece * ((CALCULATE_CHARS - 1) // len(piece)) + "1")
    except ToolError as error:
        assert "4,000 digits" in str(error)
    assert sizes and len(sizes) <= CALCULATE_CHARS and max(sizes) <= calculator.MOST_BITS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(-7), "-7"),
        (Fraction(-1, 8), "-0.125"),
        (Fraction(12345, 100), "123.45"),
        (Fraction(1, 10**30), "0." + "0" * 29 + "1"),
        (Fraction(1, 10**31), f"1/1{'0' * 31} (about 1e-31)"),
        (1.5, "1.5"),
        (-0.0, "-0"),
        (1e21, "1e+21"),
        (0.0000001, "1e-07"),
        (123456789.123456789, "123456789.123457"),
    ],
)
def test_numbers_are_formatted(value: Fraction | float, text: str) -> None:
    assert format_number(value) == text
