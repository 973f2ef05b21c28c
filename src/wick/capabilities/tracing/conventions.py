"""Names and attributes of spans, by OpenTelemetry's GenAI semantic conventions. Attributes of wick begin with `wick.`.

run               invoke_agent {agent}    INTERNAL
└─ step           step                    INTERNAL
   ├─ model call  chat {model}            CLIENT
   └─ tool use    execute_tool {tool}     INTERNAL
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from wick.errors import ModelError
from wick.messages import Message, ToolResult
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse
from wick.protocols import Model, Usage
from wick.run_log import label_result

Attributes = dict[str, Any]

# Values of `gen_ai.provider.name` for the providers whose name is another one in wick. Other names are used unchanged.
PROVIDER_NAMES = {
    "openai-responses": "openai",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
_SETTINGS: dict[str, tuple[str, tuple[type, ...]]] = {
    "temperature": ("gen_ai.request.temperature", (float, int)),
    "top_p": ("gen_ai.request.top_p", (float, int)),
    "max_tokens": ("gen_ai.request.max_tokens", (int,)),
}


def name_span(op: Operation[Any]) -> str:
    """Return the name of an operation's span."""
    if isinstance(op, Run):
        return f"invoke_agent {op.agent}"
    if isinstance(op, ModelCall):
        return f"chat {split_name(_final_model(op).name)[1]}"
    if isinstance(op, ToolUse):
        return f"execute_tool {op.call.name}"
    return op.operation_name


def describe_operation(op: Operation[Any]) -> Attributes:
    """Return the attributes known at the start of an operation."""
    run = op.run
    known = {"gen_ai.conversation.id": run.thread.id, "gen_ai.agent.name": run.agent, "wick.run.id": run.id}
    if isinstance(op, Run):
        return known | {"gen_ai.operation.name": "invoke_agent"} | describe_model_name(op.model.name)
    if isinstance(op, Step):
        return known | {"wick.step": op.number}
    if isinstance(op, ModelCall):
        return known | {"gen_ai.operation.name": "chat", "wick.purpose": op.purpose} | describe_model(op.model)
    if isinstance(op, ToolUse):
        known |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.type": "function"}
        known |= {"gen_ai.tool.name": op.call.name, "gen_ai.tool.call.id": op.call.id}
        description = op.tool.description if op.tool is not None else ""
        return known | ({"gen_ai.tool.description": description} if description else {})
    return known


def describe_request(call: ModelCall) -> Attributes:
    """Return the attributes of the last request of a model call, and the tokens of all its requests."""
    settings, messages = call.last_sealed("settings"), call.last_sealed("messages")
    asked = describe_model(_final_model(call)) | {"wick.message_count": len(messages)}
    for name, (attribute, kinds) in _SETTINGS.items():
        if type(settings.get(name)) in kinds:
            asked[attribute] = settings[name]
    stop = settings.get("stop")
    if stop and isinstance(stop, str | list | tuple):
        asked["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else [str(text) for text in stop]
    if settings.get("response_format"):
        asked["gen_ai.output.type"] = "json"
    return asked | _describe_usage(sum((charge.usage for charge in call.charges), Usage()))


def describe_reply(call: ModelCall, reply: Message) -> Attributes:
    """Return the attributes of the reply."""
    known = {
        "gen_ai.response.id": call.response_id,
        "gen_ai.response.model": call.response_model,
        "gen_ai.response.finish_reasons": [call.finish] if call.finish else [],
        "wick.tool_calls": [tool_call.name for tool_call in reply.tool_calls],
    }
    return {name: value for name, value in known.items() if value} | {"wick.content_length": len(reply.text)}


def describe_result(result: Result) -> Attributes:
    """Return the attributes of the result of a run."""
    return {"wick.outcome": result.outcome, "wick.reason": result.reason, **_describe_usage(result.usage)}


def describe_tool_result(use: ToolUse, result: ToolResult) -> Attributes:
    """Return the attributes of a tool's result."""
    found: Attributes = {"wick.output_length": len(result.output)}
    if label := label_result(use):
        found |= {"wick.trusted": label["trusted"], "wick.private": [*label["private"]]}
    if not result.error:
        return found
    crash = result.exception
    kind = "blocked" if use.prevented is not None else name_error(crash) if crash is not None else "tool_error"
    return found | {"error.type": kind}


def describe_model(model: Model) -> Attributes:
    """Return the provider, the name and the address of a model."""
    return describe_model_name(model.name) | describe_server(model)


def describe_model_name(name: str) -> Attributes:
    """Return the provider and the model of a name such as `ollama:qwen3`."""
    provider, model = split_name(name)
    return {"gen_ai.provider.name": PROVIDER_NAMES.get(provider, provider), "gen_ai.request.model": model}


def describe_server(model: Model) -> Attributes:
    """Return the address and the port of a model's server; nothing for a model without one."""
    endpoint = getattr(getattr(model, "server", None), "endpoint", None)
    url = getattr(endpoint, "url", None) or getattr(model, "base_url", None)
    with suppress(ValueError):  # an invalid address of a model that is not wick's
        parts = urlsplit(url if isinstance(url, str) else "")
        if parts.hostname:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            return {"server.address": parts.hostname, "server.port": port}
    return {}


def split_name(name: str) -> tuple[str, str]:
    """Return the provider and the model of a name. A name without a provider is both."""
    provider, colon, model = name.partition(":")
    return (provider, model) if colon and model else (name, name)


def name_error(error: BaseException) -> str:
    """Return the value of `error.type`: the HTTP status of a model's server, or the name of the exception."""
    if isinstance(error, ModelError) and error.status is not None:
        return str(error.status)
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _final_model(call: ModelCall) -> Model:
    model: Model = call.last_sealed("model")
    return model


def _describe_usage(usage: Usage) -> Attributes:
    details = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
    tokens = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    return tokens | {name: count for name, count in details.items() if count}
