"""Which model a name means: `ollama:llama3.1:8b`, `claude-sonnet-4-5`, `sonnet`, `demo`, `auto`, …

A key in the environment goes only to its provider's own address, or to the address that the environment gives.
An address that comes with a name gets no key but the one that comes with it, too.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from typing import Any

from wick._internal.import_path import load_module
from wick.errors import ConfigError
from wick.models._http import TimeLimits
from wick.models.ollama import installed, ollama_url
from wick.protocols import Model

logger = logging.getLogger("wick")

Options = dict[str, Any]

ALIASES = {
    "haiku": "claude-haiku-5-5",
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
}
FAMILIES = {"anthropic": r"claude-[^:]+", "openai": r"(gpt-|chatgpt-|o\d)[^:]*"}
DEFAULTS = {"ANTHROPIC_API_KEY": "sonnet", "OPENAI_API_KEY": "gpt-4o"}  # what `auto` takes if that key is there


def named(spec: str | Mapping[str, Any]) -> Model:
    """The model that a text or a dict names."""
    provider, model, options = _read(spec)
    make = PROVIDERS.get(provider) or _plugin(provider)
    if make is None:
        raise _unknown(provider, model)
    return make(model, options)


def check(spec: str | Mapping[str, Any]) -> None:
    """Refuse a spec that names no provider, or has keys that its client does not take; no client is made."""
    provider, model, options = _read(spec)
    if provider not in PROVIDERS and not _plugin(provider):
        raise _unknown(provider, model)
    if provider in ("demo", "auto"):
        _nothing_else(provider, model, options)
    elif provider in _CLIENTS and not options.keys() <= {"base_url", "api_key"}:
        module, kind = _CLIENTS[provider]
        _check_keys(provider, getattr(import_module(module), kind), options)


_CLIENTS = {
    "anthropic": ("wick.models.anthropic", "Anthropic"),
    **dict.fromkeys(("openai", "ollama", "gateway", "proxy"), ("wick.models.openai", "OpenAI")),
    "openai-responses": ("wick.models.openai_responses", "OpenAIResponses"),
    "local": ("wick.models.local", "Local"),
}


def _check_keys(provider: str, client: Callable[..., Model], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(client).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = ["provider", *(parameter.name for parameter in parameters)]
    for key in options:
        if key not in known:
            raise ConfigError(f"there is no key {key!r} for a model of {provider}; {_nearest(str(key), known)}")


def _nearest(word: str, known: list[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(known)}"


def _read(spec: str | Mapping[str, Any]) -> tuple[str, str, Options]:
    """The provider, the model and the other options of a spec."""
    options = {"model": spec} if isinstance(spec, str) else {key: spec[key] for key in spec if spec[key] is not None}
    for key in ("provider", "model", "base_url", "api_key", "name", "version"):
        if not isinstance(options.get(key, ""), str):
            raise ConfigError(f"the {key!r} of a model's spec must be a text, not {type(options[key]).__name__}")
    model, provider = options.pop("model", "").strip(), options.pop("provider", "").strip()
    return (*(_parse(model) if not provider else (provider, model)), options)


def _unknown(provider: str, model: str) -> ConfigError:
    what = f"provider {provider!r}" if provider else f"model named {model!r}"
    word, known = provider or model.partition(":")[0].strip(), [*PROVIDERS, *ALIASES]
    close = get_close_matches(word, known + [plugin.name for plugin in _plugins()], n=1)
    return ConfigError(f"there is no {what}; {_forms()}{f'; did you mean {close[0]}?' if close else ''}")


def choose() -> tuple[Model, str]:
    """What `auto` means here and now: a model, and in one line why it is this one."""
    for key, name in DEFAULTS.items():
        if os.environ.get(key, "").strip():
            model = named(name)
            return model, f"{model.name}, as {key} is set"
    if found := installed():
        model = named(f"ollama:{found[0]}")
        return model, f"{model.name}, as no API key is set and Ollama answers at {ollama_url()}"
    model = named("demo")
    keys = " and ".join(DEFAULTS)
    return model, f"{model.name}, as {keys} are not set and no Ollama with a model answers at {ollama_url()}"


def _parse(text: str) -> tuple[str, str]:
    """The provider and the model in a text; no provider, if it names none."""
    if text in ("demo", "auto"):
        return text, ""
    name = ALIASES.get(text, text)
    for provider, family in FAMILIES.items():
        if re.fullmatch(family, name):
            return provider, name
    provider, colon, model = (part.strip() for part in text.partition(":"))
    return (provider, model) if colon and (provider in PROVIDERS or _plugin(provider)) else ("", text)


def _forms() -> str:
    others = "".join(f"{plugin.name}:MODEL, " for plugin in _plugins())
    return (
        "say anthropic:MODEL, openai:MODEL, openai-responses:MODEL, ollama:MODEL, local:FILE, gateway:MODEL@URL, "
        f"{others}a name such as claude-sonnet-4-5, gpt-4o, o3, haiku, sonnet or opus, or else auto or demo"
    )


# -- the providers --------------------------------------------------------------------------------------------------


def _anthropic(model: str, options: Options) -> Model:
    from wick.models.anthropic import Anthropic

    return _served(Anthropic, ALIASES.get(model, model), _at_home("ANTHROPIC", options))


def _openai(model: str, options: Options) -> Model:
    from wick.models.openai import OpenAI

    return _served(OpenAI, model, _at_home("OPENAI", options))


def _responses(model: str, options: Options) -> Model:
    from wick.models.openai_responses import OpenAIResponses

    return _served(OpenAIResponses, model, _at_home("OPENAI", options))


def _ollama(model: str, options: Options) -> Model:
    from wick.models.openai import OpenAI

    return _served(OpenAI, model, _versioned({"base_url": ollama_url(), "name": "ollama", **options}))


def _gateway(model: str, options: Options) -> Model:
    """A server that speaks OpenAI's language for other models, such as LiteLLM's proxy."""
    from wick.models.openai import OpenAI

    model, address = re.fullmatch(r"(.*?)(?:@(https?://.*))?", model, re.DOTALL).groups()  # type: ignore[union-attr]
    given = {"base_url": address, **options} if address else options
    options = {"name": "gateway", **_at_home("OPENAI", given)}
    if "base_url" not in options:
        raise ConfigError("a gateway needs an address: say gateway:MODEL@http://host:4000, or set OPENAI_BASE_URL")
    return _served(OpenAI, model, _versioned(options))


def _versioned(options: Options) -> Options:
    """An address without a path means its first version, where the servers that speak OpenAI's language have it."""
    bare = re.fullmatch(r"https?://[^/]+/?", str(options["base_url"]))
    return {**options, "base_url": f"{bare[0].rstrip('/')}/v1"} if bare else options


def _local(model: str, options: Options) -> Model:
    from wick.models.local import Local

    return _made(Local, model, options)


def _demo(model: str, options: Options) -> Model:
    from wick.models.demo import Demo

    _nothing_else("demo", model, options)
    return Demo()


def _auto(model: str, options: Options) -> Model:
    _nothing_else("auto", model, options)
    chosen, why = choose()
    is_demo = ":" not in chosen.name  # which surprises: a warning is seen also where nobody has set up logging
    logger.log(logging.WARNING if is_demo else logging.INFO, "auto: %s", why)
    vars(chosen)["why"] = why
    return chosen


def _nothing_else(provider: str, model: str, options: Options) -> None:
    if model not in ("", provider) or options:
        raise ConfigError(f"{provider!r} says it all; leave out {', '.join([model] if model else options)}")


PROVIDERS: dict[str, Callable[[str, Options], Model]] = {
    "anthropic": _anthropic,
    "openai": _openai,
    "openai-responses": _responses,
    "ollama": _ollama,
    "gateway": _gateway,
    "proxy": _gateway,
    "local": _local,
    "demo": _demo,
    "auto": _auto,
}


def _at_home(provider: str, options: Options) -> Options:
    """The options, with the address that the environment gives, and its key, unless an address was given."""
    address = os.environ.get(f"{provider}_BASE_URL", "").strip()
    if not address or "base_url" in options:
        return options
    return {"base_url": address, "api_key": os.environ.get(f"{provider}_API_KEY"), **options}


def _served(client: Callable[..., Model], model: str, options: Options) -> Model:
    """A model behind a server. What would only be found out when it is asked is found out here."""
    for key in ("stream_usage", "replay_reasoning", "cache"):
        if not isinstance(options.get(key, True), bool):
            raise ConfigError(f"the {key!r} of a model's spec must be true or false, not {options[key]!r}")
    limits, headers = options.get("limits", {}), options.get("headers", {})
    if isinstance(limits, Mapping):
        limits = _limits(limits)
    if not isinstance(limits, TimeLimits) or not all(_is_time(seconds) for seconds in asdict(limits).values()):
        raise ConfigError("the 'limits' of a model's spec must be seconds above 0, as in {'first_byte': 30}")
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for text in chain(*headers.items())):
        raise ConfigError("the 'headers' of a model's spec must be texts, as in {'x-team': 'search'}")
    return _made(client, model, {**options, "limits": limits} if "limits" in options else options)


def _limits(limits: Mapping[str, Any]) -> TimeLimits:
    try:
        return TimeLimits(**limits)
    except TypeError:
        known = ", ".join(field.name for field in fields(TimeLimits))
        raise ConfigError(f"the 'limits' of a model's spec are {known}, not {', '.join(map(str, limits))}") from None


def _is_time(seconds: Any) -> bool:
    return isinstance(seconds, int | float) and seconds > 0


def _made(client: Callable[..., Model], model: str, options: Options) -> Model:
    try:
        inspect.signature(client).bind(model, **options)
    except TypeError as error:
        raise ConfigError(f"the model {model!r} cannot be made: {error}") from None
    return client(model, **options)


# -- those of other packages ----------------------------------------------------------------------------------------


def _plugins() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group="wick.models"))


def _plugin(provider: str) -> Callable[[str, Options], Model] | None:
    """A provider that another package brings: an entry point in the group `wick.models`, called like a client."""
    found = next((plugin for plugin in _plugins() if plugin.name == provider), None)
    if found is None:
        return None
    return lambda model, options: _made(_loaded(found), model, options)


def _loaded(plugin: EntryPoint) -> Callable[..., Model]:
    try:
        client: Callable[..., Model] = load_module(plugin.load)
    except Exception as error:
        raise ConfigError(f"the models of {plugin.name} cannot be loaded from {plugin.value}: {error}") from error
    return client
