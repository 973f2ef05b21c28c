"""What tokens cost, as far as it is known.

Some prices depend on how long one question is, so each question is priced by itself, and prices are added up, not
tokens. Nothing is looked up before somebody asks for a price.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from wick.protocols import Usage

_PROVIDERS = {"openai-responses": "openai"}  # wick's name, and that in the price list
_FAMILIES = {"anthropic": r"claude-.+", "openai": r"(gpt-|chatgpt-|o\d).*"}


@dataclass(frozen=True, slots=True)
class Charge:
    """One question to a model that was counted: who was asked, and the tokens that it took."""

    model: str
    usage: Usage

    @property
    def price(self) -> Decimal | None:
        """What it costs in dollars; `None` where the price is not known, or nobody counted the tokens."""
        return price(self.model, self.usage) if self.usage.total_tokens else None

    def to_json(self) -> dict[str, Any]:
        return {"model": self.model, **{name: count for name, count in self.usage.to_json().items() if count}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Charge:
        return cls(str(data["model"]), Usage.from_json(data))


def total_price(charges: Iterable[Charge]) -> Decimal | None:
    """What all of them cost in dollars; `None` if that is not known of one of them, for a part is not the whole."""
    spent = Decimal(0)
    for charge in charges:
        if (cost := charge.price) is None:
            return None
        spent += cost
    return spent


def price(model: str, usage: Usage) -> Decimal | None:
    """What one question to a model costs in dollars, by the list prices of `genai-prices`.

    `None` where that is not known: for a model nobody lists, one that runs at home, or without that package.
    A wrong price is worse than none, so a name without its provider must be one of Anthropic's or OpenAI's.
    """
    provider, name = _split_name(model)
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


def _split_name(model: str) -> tuple[str, str]:
    """The provider and the model in a name such as `openai:gpt-4o`, `anthropic/claude-sonnet-4-5` or `gpt-4o`."""
    if found := re.fullmatch(r"([^:/]+)[:/](.+)", model):
        return _PROVIDERS.get(found[1], found[1]), found[2]
    return next((provider for provider, family in _FAMILIES.items() if re.fullmatch(family, model)), ""), model
