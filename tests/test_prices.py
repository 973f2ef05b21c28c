"""Prices, as far as they are known."""

from __future__ import annotations

import sys
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.prices import price
from wick.protocols import Usage

MILLION = 1_000_000


def test_input_output_and_what_was_cached_have_prices_of_their_own() -> None:
    assert price("anthropic:claude-sonnet-4-5", Usage(1_000, 0)) == Decimal("0.003")
    assert price("anthropic:claude-sonnet-4-5", Usage(0, 1_000)) == Decimal("0.015")
    assert price("anthropic:claude-sonnet-4-5", Usage(1_000, 0, cached_tokens=1_000)) == Decimal("0.0003")


def test_reasoning_is_part_of_the_output() -> None:
    assert price("openai:gpt-5", Usage(0, 1_000, 0, 900)) == price("openai:gpt-5", Usage(0, 1_000))


@pytest.mark.parametrize(
    "name", ["gpt-4o", "openai:gpt-4o", "openai-responses:gpt-4o", "openai/gpt-4o", "openai:gpt-4o-2024-08-06"]
)
def test_one_model_has_one_price_whatever_it_is_called(name: str) -> None:
    assert price(name, Usage(MILLION, MILLION)) == Decimal("12.5")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "demo",
        "scripted",
        "local:smollm2",
        "ollama:llama3.1:8b",
        "ollama:gpt-oss:20b",
        "gateway:gpt-4o",
        "mistral-small",  # who runs it?
        "openai:no-such-model",
        "nobody:gpt-4o",
        "gpt-no-such",
    ],
)
def test_what_is_not_known_has_no_price(name: str) -> None:
    assert price(name, Usage(MILLION, MILLION)) is None


def test_without_the_package_nothing_has_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price("openai:gpt-4o", Usage(10, 10)) is None


TOKENS = st.integers(0, 10 * MILLION)


@given(st.text() | st.sampled_from(["openai:gpt-4o", "sonnet", "claude-opus-4-5"]), TOKENS, TOKENS, TOKENS)
def test_a_price_is_none_or_not_negative(name: str, entered: int, left: int, cached: int) -> None:
    found = price(name, Usage(entered, left, cached))
    assert found is None or found >= 0
