"""Prices of model calls, where known.

Some prices depend on the length of the request. Therefore each model call is priced separately, and the prices are
added. Prices are looked up on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from wick.protocols import Usage

_PROVIDERS = {  # wick's name: name in the price list; a deployment of Azure has any name, so it has no price
    "openai-responses": "openai",
    "vertex": "google",
    "bedrock": "aws",
    "xai": "x-ai",
    "azure": "",
}
_FAMILIES = {"anthropic": r"claude-.+", "openai": r"(gpt-|chatgpt-|o\d).*"}


@dataclass(frozen=True, slots=True)
class Charge:
    """The model and the token usage of one model call."""

    model: str
    usage: Usage
    estimated: bool = False  # the call was cancelled before the model reported its usage

    @property
    def price(self) -> Decimal | None:
        """The price in dollars, or `None` if the price or the usage is not known."""
        return price(self.model, self.usage) if self.usage.total_tokens else None

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, **{name: count for name, count in self.usage.to_json().items() if count}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Charge:
        return cls(str(data["model"]), Usage.from_json(data))


def total_price(charges: Iterable[Charge]) -> Decimal | None:
    """Return the total price in dollars, or `None` if one price is not known."""
    spent = Decimal(0)
    for charge in charges:
        if (cost := charge.price) is None:
            return None
        spent += cost
    return spent


def price(model: str, usage: Usage) -> Decimal | None:
    """Return the price of one model call in dollars, by the list prices of the package `genai-prices`.

    Return `None` for an unlisted or local model, or if the package is not installed. A wrong price is worse than
    none, so a name without a provider must match a model family of Anthropic or OpenAI.
    """
    if found := re.fullmatch(r"([^:/]+)[:/](.+)", model):  # `openai:gpt-4o` or `anthropic/claude-sonnet-4-5`
        provider, name = _PROVIDERS.get(found[1], found[1]), found[2]
    else:
        provider, name = next((known for known, family in _FAMILIES.items() if re.fullmatch(family, model)), ""), model
    if not provider:
        return None
    try:
        import genai_prices
    except ImportError:
        return None
    read = min(usage.cached_tokens, usage.input_tokens)
    tokens = genai_prices.Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=read,
        cache_write_tokens=min(usage.cache_write_tokens, usage.input_tokens - read),
        output_tokens=usage.output_tokens,
    )
    try:
        return genai_prices.calc_price(tokens, name, provider_id=provider).total_price
    except (LookupError, ValueError):
        return None
