"""What tokens cost, as far as it is known."""

from __future__ import annotations

import re
from decimal import Decimal

from wick.protocols import Usage

_PROVIDERS = {"openai-responses": "openai"}  # wick's name, and that in the price list
_FAMILIES = {"anthropic": r"claude-.+", "openai": r"(gpt-|chatgpt-|o\d).*"}


def price(model: str, usage: Usage) -> Decimal | None:
    """What the usage of a model costs in dollars, by the list prices of `genai-prices`.

    `None` where that is not known: for a model nobody lists, one that runs at home, or without that package.
    A wrong price is worse than none, so a name without its provider must be one of Anthropic's or OpenAI's.
    """
    provider, name = _split(model)
    if not provider:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    cached = min(usage.cached_tokens, usage.input_tokens)
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens, cache_read_tokens=cached, output_tokens=usage.output_tokens
    )
    try:
        return genai_prices.calc_price(tokens, name, provider_id=provider).total_price
    except (LookupError, ValueError):
        return None


def _split(model: str) -> tuple[str, str]:
    """The provider and the model in a name such as `openai:gpt-4o`, `anthropic/claude-sonnet-4-5` or `gpt-4o`."""
    if found := re.fullmatch(r"([^:/]+)[:/](.+)", model):
        return _PROVIDERS.get(found[1], found[1]), found[2]
    return next((provider for provider, family in _FAMILIES.items() if re.fullmatch(family, model)), ""), model
