"""Providers with OpenAI's Chat Completions API, each with its own address, key and differences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar, Literal

import orjson

from wick.messages import MediaPart, Message, assistant
from wick.models import openai_common
from wick.models._http import TimeLimits
from wick.models._network import PathText
from wick.models.openai import OpenAI
from wick.models.openai_common import ProviderHome
from wick.protocols import HoldsSchema, Request


class HostedChat(OpenAI):
    """The base of these providers: their address, and the key of their environment variable.

    Without an `api_key`, the key of the environment is used for the provider's own address, and no key for any other.
    """

    provider: ClassVar[str]  # the prefix of names, such as `groq` in `groq:llama-3.3-70b-versatile`
    limit_field: ClassVar[str] = "max_tokens"
    usage_on_request: ClassVar[bool] = True  # usage is streamed if `stream_options` ask for it
    needs_reasoning: ClassVar[bool] = False  # the model needs its reasoning back between tool calls

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        limits: TimeLimits = openai_common.DEFAULT_LIMITS,
        stream_usage: bool | None = None,
        replay_reasoning: bool | None = None,
        verify: bool | PathText = True,
        cert: PathText | Sequence[PathText] = (),
        trust_env: bool = True,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url or self.home.url,
            api_key=api_key,
            name=self.provider,
            headers=headers,
            limits=limits,
            stream_usage=self.usage_on_request if stream_usage is None else stream_usage,
            replay_reasoning=self.needs_reasoning if replay_reasoning is None else replay_reasoning,
            verify=verify,
            cert=cert,
            trust_env=trust_env,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class OpenRouter(HostedChat):
    """A model of any vendor at OpenRouter. It gets its signed reasoning back, which some models need for tool use."""

    provider, example = "openrouter", "anthropic/claude-sonnet-4.5"
    home = ProviderHome("OpenRouter", "OPENROUTER_API_KEY", "https://openrouter.ai/api/v1")
    own_encoding = True

    def _message_data(self, message: Message) -> dict[str, Any]:
        data = super()._message_data(message)
        for thought in message.reasoning:
            if thought.provider == "openrouter-details":
                data["reasoning_details"] = orjson.loads(thought.signature)
        return data


class Groq(HostedChat):
    """A model at Groq."""

    provider, example = "groq", "llama-3.3-70b-versatile"
    home = ProviderHome("Groq", "GROQ_API_KEY", "https://api.groq.com/openai/v1")
    limit_field = "max_completion_tokens"


class DeepSeek(HostedChat):
    """A model of DeepSeek. It gets its reasoning back, which it needs between tool calls."""

    provider, example = "deepseek", "deepseek-chat"
    home = ProviderHome("DeepSeek", "DEEPSEEK_API_KEY", "https://api.deepseek.com/v1")
    needs_reasoning = True

    @property
    def holds_schema(self) -> HoldsSchema | Literal[""]:
        return ""  # JSON without a schema only


class XAI(HostedChat):
    """A Grok model of xAI."""

    provider, example = "xai", "grok-4"
    home = ProviderHome("xAI", "XAI_API_KEY", "https://api.x.ai/v1")


class Together(HostedChat):
    """A model at Together."""

    provider, example = "together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"
    home = ProviderHome("Together", "TOGETHER_API_KEY", "https://api.together.xyz/v1")


class Fireworks(HostedChat):
    """A model at Fireworks."""

    provider, example = "fireworks", "accounts/fireworks/models/llama-v3p3-70b-instruct"
    home = ProviderHome("Fireworks", "FIREWORKS_API_KEY", "https://api.fireworks.ai/inference/v1")


class Nvidia(HostedChat):
    """A model in NVIDIA's API catalog."""

    provider, example = "nvidia", "meta/llama-3.3-70b-instruct"
    home = ProviderHome("NVIDIA", "NVIDIA_API_KEY", "https://integrate.api.nvidia.com/v1")


class Cerebras(HostedChat):
    """A model at Cerebras."""

    provider, example = "cerebras", "llama-3.3-70b"
    home = ProviderHome("Cerebras", "CEREBRAS_API_KEY", "https://api.cerebras.ai/v1")
    limit_field = "max_completion_tokens"


# -- Mistral --------------------------------------------------------------------------------------------------------

_CALL_ID = re.compile("[a-zA-Z0-9]{9}")
_BRIDGE = assistant("Done.")  # one object, so that the encoded beginning of a conversation is found in its cache
_BRIDGE_BYTES = b'{"role":"assistant","content":"Done."}'


class Mistral(HostedChat):
    """A model of Mistral.

    Its API refuses fields that it does not know, ids of tool calls that are not nine letters or digits, and a user
    message right after a tool result.
    """

    provider, example = "mistral", "mistral-large-latest"
    home = ProviderHome("Mistral", "MISTRAL_API_KEY", "https://api.mistral.ai/v1")
    usage_on_request = False
    own_encoding = True

    def body(self, request: Request) -> bytes:
        bridged = list[Message]()
        for message in request.messages:
            if bridged and bridged[-1].role == "tool" and message.role == "user":
                bridged.append(_BRIDGE)
            bridged.append(message)
        return super().body(replace(request, messages=tuple(bridged)))

    def _message_data(self, message: Message) -> dict[str, Any]:
        data = super()._message_data(message)
        if "tool_call_id" in data:
            data["tool_call_id"] = _short_id(data["tool_call_id"])
        for call in data.get("tool_calls", ()):
            call["id"] = _short_id(call["id"])
        return data

    def _audio_data(self, part: MediaPart) -> Any:
        return part.data

    def _media_message(self, parts: Iterable[bytes]) -> bytes:
        return _BRIDGE_BYTES + b"," + super()._media_message(parts)


def _short_id(id: str) -> str:
    """Return an id in the form that Mistral requires. It may be from another model."""
    return id if _CALL_ID.fullmatch(id) else sha256(id.encode()).hexdigest()[:9]
