"""Providers of models whose key can be stored: their names, a model of each, and a test of a key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from typing import Any

from wick._internal.worker_threads import run_in_thread
from wick.messages import user
from wick.models import resolve
from wick.models.registry import CREDENTIALS, HOSTED, PROVIDERS, example_spec, parse_spec
from wick.protocols import Model, Request, TextDelta

GATEWAY = "gateway"  # a server with OpenAI's API at an address of its own
PROVIDERS_WITH_KEYS = ("anthropic", "openai", "google", *HOSTED, GATEWAY)
SHARED_KEYS = {"openai-responses": "openai", "proxy": GATEWAY}  # providers that use the key of another one
OWN_SERVER = frozenset(("api_key", "base_url", "cert", "headers"))  # a spec with one of these has its own server
DEMO = "offline demo model"
TEST_SECONDS = 30.0
TEST_CHARS = 200  # of a reply that are returned


def find_provider(spec: str | Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the provider with whose key a spec can be used, its model and its options.

    The provider is empty if the spec names a server or a key of its own.
    """
    provider, model, options = parse_spec(spec)
    has_own = options.keys() & OWN_SERVER or "@" in model
    return "" if has_own else provider, model, options


def default_model(provider: str) -> str:
    """Return the name of a model of a provider without the provider, or an empty text."""
    if provider not in CREDENTIALS:
        return ""
    spec_provider, model, _ = parse_spec(example_spec(provider))
    return model if spec_provider == provider else ""


def list_environment_models() -> Iterator[tuple[str, str]]:
    """Yield the providers whose key is in the environment, each with a model."""
    for provider, (alternatives, _) in CREDENTIALS.items():
        is_set = any(all(os.environ.get(name, "").strip() for name in names.split()) for names in alternatives)
        if is_set and provider in PROVIDERS_WITH_KEYS and (model := default_model(provider)):
            yield provider, model


def sort_providers(names: set[str]) -> list[str]:
    """Return the known providers among these names, in the order of preference."""
    return sorted(names & {*PROVIDERS}, key=PROVIDERS.index)


def is_demo(model: Model) -> bool:
    """Return True if this is the offline demo model."""
    return model.name == DEMO


async def request_reply(spec: str | Mapping[str, Any]) -> str:
    """Return the beginning of a model's reply to a small request; raise its error if it fails."""
    model = await run_in_thread(lambda: resolve(spec), "model")
    request = Request((user("Reply with the word OK."),), settings={"max_tokens": 16})
    text = ""
    async with asyncio.timeout(TEST_SECONDS), aclosing(model.stream(request)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            text += delta.text if isinstance(delta, TextDelta) else ""
    return text[:TEST_CHARS]
