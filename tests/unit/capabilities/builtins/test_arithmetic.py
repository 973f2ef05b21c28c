"""Numbers are exact as long as they can be, and shown as people write them."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.capabilities.builtins.arithmetic import (
    DIGITS,
    FUNCTIONS,
    NAMES,
    OPERATIONS,
    PI,
    E,
    Number,
    bounded,
    context,
    power,
    shown,
)
from wick.constants import CALCULATE_DIGITS
from wick.errors import ToolError

SMALL = st.integers(0, 50)


def of(name: str, *args: Number) -> Number:
    with localcontext(context(DIGITS)):
        return FUNCTIONS[name][0](*args)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(-7), "-7"),
        (Fraction(1, 8), "0.125"),
        (Fraction(-1, 8), "-0.125"),
        (Fraction(12345, 100), "123.45"),
        (Fraction(1, 7), "1/7 (about 0.142857142857143)"),
        (Fraction(1, 10**30), "0." + "0" * 29 + "1"),
        (Fraction(1, 10**31), f"1/1{'0' * 31} (about 1e-31)"),
        (Decimal("1.50"), "1.5"),
        (Decimal("-0"), "0"),
        (Decimal("1e20"), "1" + "0" * 20),
        (Decimal("1e21"), "1e+21"),
        (Decimal("0.000001"), "0.000001"),
        (Decimal("0.0000001"), "1e-7"),
        (Decimal("123456789.123456789"), "123456789.123457"),
    ],
)
def test_a_number_as_people_write_it(value: Number, text: str) -> None:
    assert shown(value) == text


@given(SMALL, SMALL, st.integers(-6, 6))
def test_a_power_of_a_fraction_is_exact_and_so_is_its_root(one: int, other: int, exponent: int) -> None:
    base = Fraction(one + 1, other + 1)
    raised = power(base, Fraction(exponent))
    assert raised == base**exponent
    if exponent > 0:
        assert power(base**exponent, Fraction(1, exponent)) == base


@given(st.floats(-1000, 1000))
def test_sine_and_cosine_are_those_of_the_system(angle: float) -> None:
    assert math.isclose(of("sin", Fraction(angle)), math.sin(angle), abs_tol=1e-12)
    assert math.isclose(of("cos", Fraction(angle)), math.cos(angle), abs_tol=1e-12)


@given(st.fractions(Fraction(1, 1000), 1000))
def test_logarithms_and_powers_undo_each_other(value: Fraction) -> None:
    assert math.isclose(of("exp", of("ln", value)), value, rel_tol=1e-12)
    assert math.isclose(of("log", value, Fraction(7)), math.log(value, 7), rel_tol=1e-9, abs_tol=1e-12)


def test_what_is_left_of_two_rounded_numbers_is_nothing() -> None:
    with localcontext(context(DIGITS)):
        third = Decimal(1) / 3
        assert OPERATIONS["-"](third * 3, Fraction(1)) == 0
        assert OPERATIONS["-"](PI, Fraction(3)) != 0


def test_constants_have_more_digits_than_are_computed_with() -> None:
    assert all(len(value.as_tuple().digits) > DIGITS for value in NAMES.values() if isinstance(value, Decimal))
    assert (float(PI), float(E)) == (math.pi, math.e)


def test_numbers_are_bounded() -> None:
    most = Fraction(10) ** CALCULATE_DIGITS - 1
    assert bounded(most) == most and bounded(1 / most) == 1 / most
    for large in (10 * (most + 1), 1 / (10 * (most + 1))):
        with pytest.raises(ToolError, match="more than 4,000 digits"):
            bounded(large)
