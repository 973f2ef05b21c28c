"""Histograms of tokens and durations of model calls, by OpenTelemetry's GenAI semantic conventions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from wick.capabilities.tracing.conventions import Attributes, describe_model, describe_model_name
from wick.operations import ModelCall
from wick.protocols import Model

# The boundaries that the conventions advise.
TOKEN_BUCKETS = tuple(4**power for power in range(14))
SECONDS_BUCKETS = tuple(round(0.01 * 2**power, 2) for power in range(14))


class ModelHistograms(NamedTuple):
    """The instruments of one meter provider."""

    tokens: Any
    seconds: Any


@lru_cache(maxsize=4)
def create_histograms(provider: Any) -> ModelHistograms:
    """Return the histograms of a meter provider, created once."""
    meter = provider.get_meter("wick")
    return ModelHistograms(
        meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        ),
        meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=SECONDS_BUCKETS,
        ),
    )


def record_model_call(call: ModelCall, seconds: float, failed: Attributes) -> None:
    """Record the tokens of each request of a model call, and its duration. A call without a request has none."""
    from opentelemetry.metrics import get_meter_provider

    if not call.is_sent:
        return
    histograms, model = create_histograms(get_meter_provider()), call.last_sealed("model")
    for charge in call.charges:
        known = _describe_call(call, model) if charge.model == model.name else describe_model_name(charge.model)
        counts = {"input": charge.usage.input_tokens, "output": charge.usage.output_tokens}
        for kind, count in counts.items() if any(counts.values()) else ():
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.token.type": kind}
            histograms.tokens.record(count, known | attributes)
    attributes = {"gen_ai.operation.name": "chat"}
    histograms.seconds.record(seconds, _describe_call(call, model) | attributes | failed)


def _describe_call(call: ModelCall, model: Model) -> Attributes:
    response = {"gen_ai.response.model": call.response_model} if call.response_model else {}
    return describe_model(model) | response
