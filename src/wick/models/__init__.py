"""Models by name: `resolve` creates a model from a text or a dict, and returns a model object unchanged.

The clients are imported when they are first used: `from wick.models import Anthropic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wick._internal.familiar_words import MODEL_NAMES
from wick._internal.lazy_names import lazy_names
from wick.errors import ConfigError
from wick.protocols import Model

if TYPE_CHECKING:
    from wick.models._http import TimeLimits
    from wick.models.anthropic import Anthropic
    from wick.models.azure import Azure
    from wick.models.bedrock import Bedrock
    from wick.models.demo import Demo
    from wick.models.google import Google
    from wick.models.local import Local
    from wick.models.openai import OpenAI
    from wick.models.openai_hosts import XAI, Cerebras, DeepSeek, Fireworks, Groq, Mistral, Nvidia, OpenRouter, Together
    from wick.models.openai_responses import OpenAIResponses
    from wick.models.scripted import FunctionModel, Scripted
    from wick.models.vertex import Vertex

__all__ = [
    "Anthropic", "Azure", "Bedrock", "Cerebras", "DeepSeek", "Demo", "Fireworks", "FunctionModel", "Google", "Groq",
    "Local", "Mistral", "Nvidia", "OpenAI", "OpenAIResponses", "OpenRouter", "Scripted", "TimeLimits", "Together",
    "Vertex", "XAI", "check_model", "close_connections", "resolve",
]  # fmt: skip

_MODULES = {
    "Anthropic": "anthropic", "Azure": "azure", "Bedrock": "bedrock", "Cerebras": "openai_hosts",
    "DeepSeek": "openai_hosts", "Demo": "demo",
    "Fireworks": "openai_hosts", "FunctionModel": "scripted", "Google": "google", "Groq": "openai_hosts",
    "Local": "local", "Mistral": "openai_hosts", "Nvidia": "openai_hosts", "OpenAI": "openai",
    "OpenAIResponses": "openai_responses", "OpenRouter": "openai_hosts", "Scripted": "scripted",
    "TimeLimits": "_http", "Together": "openai_hosts", "Vertex": "vertex", "XAI": "openai_hosts",
}  # fmt: skip

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, MODEL_NAMES)


async def close_connections() -> None:
    """Close the connections of all model clients of this event loop now, not when the loop ends."""
    from wick.models import _http  # imported late, as only clients over HTTP need it

    await _http.close()


def check_model(spec: str | Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown provider, model or key, without creating the model."""
    from wick.models.registry import check_spec  # imported late, as only names need it

    check_spec(spec)


def resolve(spec: str | Mapping[str, Any] | Model) -> Model:
    """Return the model for a text, or for a dict with `provider`, `model`, `base_url` and `api_key`.

    Missing keys and addresses are read from the environment. `auto` chooses an available model.
    """
    if isinstance(spec, str | Mapping):
        from wick.models.registry import create_model  # imported late, as only names need it

        return create_model(spec)
    if isinstance(spec, type) or not hasattr(spec, "stream"):
        raise ConfigError(f"a model is a text such as 'auto', a dict or an object with a stream method, not {spec!r}")
    return spec
