"""Models by provider and name: `ollama:llama3.1:8b`, `claude-sonnet-4-5`, `sonnet`, `demo`, `auto`, …

A key of the environment is sent only to its provider's own address, or to the address in the environment.
An address in a spec gets only the key of the same spec.
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
from itertools import chain
from typing import Any

from wick._internal.factory_options import validate_options
from wick._internal.plugins import find_plugin, find_plugins
from wick.errors import ConfigError
from wick.models._http import TimeLimits
from wick.models.ollama import list_installed, ollama_url
from wick.protocols import Model

logger = logging.getLogger("wick.auto")

Options = dict[str, Any]

ALIASES = {
    "haiku": "claude-haiku-5-5",
    "sonnet": "claude-sonnet-5-5",
    "opus": "claude-opus-5-5",
}
FAMILIES = {"anthropic": r"claude-[^:]+", "openai": r"(gpt-|chatgpt-|o\d)[^:]*"}
OPEN_MODELS = r"(llama|mistral|mixtral|qwen|gemma|phi|deepseek|gpt-oss|smollm)"  # names that Ollama serves
DEFAULTS = {  # the model of `auto` if that key is set
    "ANTHROPIC_API_KEY": "sonnet",
    "OPENAI_API_KEY": "gpt-4o",
    "GEMINI_API_KEY": "google:gemini-2.5-flash",
    "GOOGLE_API_KEY": "google:gemini-2.5-flash",
}
HOSTED = {  # providers with OpenAI's API under their own name: their classes, and the variables of key and address
    "openrouter": ("OpenRouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL"),
    "groq": ("Groq", "GROQ_API_KEY", "GROQ_BASE_URL"),
    "mistral": ("Mistral", "MISTRAL_API_KEY", "MISTRAL_BASE_URL"),
    "deepseek": ("DeepSeek", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"),
    "xai": ("XAI", "XAI_API_KEY", "XAI_BASE_URL"),
    "together": ("Together", "TOGETHER_API_KEY", "TOGETHER_BASE_URL"),
    "fireworks": ("Fireworks", "FIREWORKS_API_KEY", "FIREWORKS_BASE_URL"),
    "nvidia": ("Nvidia", "NVIDIA_API_KEY", "NVIDIA_BASE_URL"),
    "cerebras": ("Cerebras", "CEREBRAS_API_KEY", "CEREBRAS_BASE_URL"),
}

# The credentials of each provider: alternatives, each a list of variables that are needed together; and a model.
CREDENTIALS: dict[str, tuple[tuple[str, ...], str]] = {
    "anthropic": (("ANTHROPIC_API_KEY",), "sonnet"),
    "openai": (("OPENAI_API_KEY",), "gpt-4o"),
    "google": (("GEMINI_API_KEY", "GOOGLE_API_KEY"), "google:gemini-2.5-flash"),
    "vertex": (("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN"), "vertex:gemini-2.5-flash"),
    "bedrock": (("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"), "bedrock:amazon.nova-pro-v1:0"),
    "azure": (("AZURE_OPENAI_ENDPOINT AZURE_OPENAI_API_KEY",), "azure:DEPLOYMENT"),
    **{provider: ((key,), f"{provider}:MODEL") for provider, (_, key, _) in HOSTED.items()},
}


def create_model(spec: str | Mapping[str, Any]) -> Model:
    """Create the model for a string or a dict."""
    provider, model, options = parse_spec(spec)
    if provider in ("demo", "auto"):
        _reject_options(provider, model, options)
    if provider == "demo":
        from wick.models.demo import Demo

        return Demo()
    if provider == "auto":
        chosen, why = choose_model()
        is_demo = ":" not in chosen.name  # a warning, as it is visible without logging configuration
        logger.log(logging.WARNING if is_demo else logging.INFO, "auto: %s", why)
        vars(chosen)["why"] = why
        return chosen
    if provider == "local":
        return _create_client(provider, _load_client(provider), model, options)
    if provider in _CLIENTS:
        return _create_served(provider, model, options)
    if (plugin := find_plugin("wick.models", provider)) is None:
        raise _unknown_model(provider, model)
    factory = plugin.load()
    created = _create_client(plugin.name, factory, model, _convert_options(provider, factory, options))
    if not hasattr(created, "stream"):
        raise plugin.build_error("is not a model: it has no method stream")
    return created


def check_spec(spec: str | Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown provider or key, without creating a client."""
    provider, model, options = parse_spec(spec)
    if provider not in PROVIDERS and not find_plugin("wick.models", provider):
        raise _unknown_model(provider, model)
    if provider in ("demo", "auto"):
        _reject_options(provider, model, options)
    elif provider not in _CLIENTS:
        _convert_options(provider, find_plugin("wick.models", provider).load(), options)  # type: ignore[union-attr]
    elif not options.keys() <= {"base_url", "api_key"}:
        _check_keys(provider, _load_client(provider), options)


def _check_keys(provider: str, client: Callable[..., Model], options: Options) -> None:
    """Raise ConfigError for a key that is not a parameter of a client, with the closest one."""
    parameters = inspect.signature(client).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = ["provider", *(parameter.name for parameter in parameters)]
    for key in options:
        if key not in known:
            close = get_close_matches(str(key), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(known)}"
            raise ConfigError(f"there is no key {key!r} for a model of {provider}; {hint}")


def _convert_options(provider: str, factory: Callable[..., Model], options: Options) -> Options:
    """Return the options for the model of a plugin, converted to the types of its parameters."""
    if not options:
        return options
    _check_keys(provider, factory, options)
    try:
        return validate_options(factory, options)
    except ConfigError as error:
        raise ConfigError(f"the model of {provider}: {error}") from None
    except (NameError, TypeError, ValueError):  # the signature cannot be read
        return options


_TEXTS = "provider model base_url api_key name version api_version project location region profile".split()
_CLIENTS = {
    "anthropic": ("wick.models.anthropic", "Anthropic"),
    "openai": ("wick.models.openai", "OpenAI"),
    "openai-responses": ("wick.models.openai_responses", "OpenAIResponses"),
    "google": ("wick.models.google", "Google"),
    "vertex": ("wick.models.vertex", "Vertex"),
    "bedrock": ("wick.models.bedrock", "Bedrock"),
    "azure": ("wick.models.azure", "Azure"),
    **{provider: ("wick.models.openai_hosts", name) for provider, (name, *_) in HOSTED.items()},
    **dict.fromkeys(("ollama", "gateway", "proxy"), ("wick.models.openai", "OpenAI")),
    "local": ("wick.models.local", "Local"),
}
PROVIDERS = (*_CLIENTS, "demo", "auto")


def _load_client(provider: str) -> Callable[..., Model]:
    """Import and return the client of a provider."""
    module, name = _CLIENTS[provider]
    client: Callable[..., Model] = getattr(import_module(module), name)
    return client


_SPEC_EXAMPLE = "{provider: openai, model: gpt-4o, timeout: 60}"


def parse_spec(spec: str | Mapping[str, Any]) -> tuple[str, str, Options]:
    """Return the provider, the model and the other options of a spec. An unknown provider is an empty string."""
    options = {"model": spec} if isinstance(spec, str) else {key: spec[key] for key in spec if spec[key] is not None}
    for key in _TEXTS:
        if not isinstance(options.get(key, ""), str):
            raise ConfigError(f"the {key!r} of a model's spec must be a string, not {type(options[key]).__name__}")
    model, provider = options.pop("model", "").strip(), options.pop("provider", "").strip()
    if not model and not provider and options:
        raise ConfigError(
            f"a model's spec names the model with the key 'model' or 'provider', or both, as in {_SPEC_EXAMPLE}; "
            f"this one has only {', '.join(map(repr, options))}"
        )
    if provider:
        return provider, model, options
    if model in ("demo", "auto"):
        return model, "", options
    full_name = ALIASES.get(model, model)
    for family_provider, family in FAMILIES.items():
        if re.fullmatch(family, full_name):
            return family_provider, full_name, options
    prefix, colon, rest = (part.strip() for part in model.partition(":"))
    if colon and (prefix in PROVIDERS or find_plugin("wick.models", prefix)):
        return prefix, rest, options
    return "", model, options


def _unknown_model(provider: str, model: str) -> ConfigError:
    what = f"provider {provider!r}" if provider else f"model named {model!r}"
    word, known = provider or model.partition(":")[0].strip(), [*PROVIDERS, *ALIASES]
    plugins = sorted({plugin.name for plugin in find_plugins("wick.models")} - {*PROVIDERS})
    # Another separator than a colon, Ollama's name without a prefix, or a misspelled provider.
    prefix, _, rest = model.replace("/", ":", 1).partition(":")
    if near := get_close_matches(prefix, PROVIDERS, n=1, cutoff=0.8) if rest else []:
        close = f"{near[0]}:{rest}"
    elif re.match(OPEN_MODELS, model, re.IGNORECASE):
        close = f"ollama:{model}"
    else:
        close = "".join(get_close_matches(word, known + plugins, n=1))
    hint = f"did you mean {close}? The names are" if close else "use"
    is_own = not close and re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", model)
    own = "; a model of your own is given as an object, as in Agent(MyModel()), or is a plugin" if is_own else ""
    *others, last = ["google", "vertex", "bedrock", "azure", *HOSTED]
    return ConfigError(
        f"there is no {what}; {hint} anthropic:MODEL, openai:MODEL, openai-responses:MODEL, ollama:MODEL, local:FILE, "
        f"gateway:MODEL@URL, {''.join(f'{name}:MODEL, ' for name in plugins)}PROVIDER:MODEL with {', '.join(others)} "
        f"or {last}, a name such as {ALIASES['sonnet']}, gpt-4o, o3, haiku, sonnet or opus, or else auto or demo{own}"
    )


def choose_model() -> tuple[Model, str]:
    """Return the model for `auto`, and the reason in one line."""
    for key, name in DEFAULTS.items():
        if os.environ.get(key, "").strip():
            model = create_model(name)
            return model, f"{model.name}, as {key} is set"
    hint = _suggest_provider()
    *others, last = DEFAULTS
    keys = f"{', '.join(others)} and {last} are not set"
    if installed := list_installed():
        model = create_model(f"ollama:{installed[0]}")
        return model, f"{model.name}, as {keys} and Ollama answers at {ollama_url()}{hint}"
    model = create_model("demo")
    return model, f"{model.name}, as {keys} and no Ollama with a model answers at {ollama_url()}{hint}"


def example_spec(provider: str) -> str:
    """Return the name of a model of a provider in `CREDENTIALS`, as an example."""
    if provider in HOSTED:
        return f"{provider}:{vars(_load_client(provider))['example']}"
    return CREDENTIALS[provider][1]


def _suggest_provider() -> str:
    """Return how to name a model of a provider whose key is set and which `auto` does not choose, or an empty string.

    Many models are behind such a key, and credentials of a cloud are often meant for its other services.
    """
    for provider, (alternatives, _) in CREDENTIALS.items():
        for names in map(str.split, alternatives):
            if all(os.environ.get(name, "").strip() for name in names):
                given = " and ".join(names)
                return f"; {given} set: for {provider} give the name of a model, as in {example_spec(provider)}"
    return ""


# -- the providers --------------------------------------------------------------------------------------------------


def _add_address(provider: str, model: str, options: Options) -> tuple[str, Options]:
    """Return the model and the options of a server, with its address if the environment or the provider has one."""
    if provider == "anthropic":
        return ALIASES.get(model, model), _with_environment("ANTHROPIC", options)
    if provider in ("openai", "openai-responses"):
        return model, _with_environment("OPENAI", options)
    if provider in HOSTED:
        return model, _with_environment(provider.upper(), options)
    if provider in ("vertex", "bedrock", "azure"):  # these read the environment themselves
        return model, options
    if provider == "google":
        key = next(filter(None, map(os.environ.get, ("GEMINI_API_KEY", "GOOGLE_API_KEY"))), None)
        return model, _with_address("GOOGLE_GEMINI_BASE_URL", key, options)
    if provider == "ollama":
        return model, _add_version_path({"base_url": ollama_url(), "name": "ollama", **options})
    # A gateway with OpenAI's API, such as LiteLLM's proxy.
    model, address = re.fullmatch(r"(.*?)(?:@(https?://.*))?", model, re.DOTALL).groups()  # type: ignore[union-attr]
    given = {"base_url": address, **options} if address else options
    options = {"name": "gateway", **_with_environment("OPENAI", given)}
    if "base_url" not in options:
        raise ConfigError("a gateway needs an address: use gateway:MODEL@http://host:4000, or set OPENAI_BASE_URL")
    return model, _add_version_path(options)


def _add_version_path(options: Options) -> Options:
    """Append /v1 to an address without a path."""
    bare = re.fullmatch(r"https?://[^/]+/?", str(options["base_url"]))
    return {**options, "base_url": f"{bare[0].rstrip('/')}/v1"} if bare else options


def _reject_options(provider: str, model: str, options: Options) -> None:
    if model not in ("", provider) or options:
        raise ConfigError(f"{provider!r} says it all; leave out {', '.join([model] if model else options)}")


def _with_environment(provider: str, options: Options) -> Options:
    """Add the address and the key of the environment, unless the options have an address."""
    return _with_address(f"{provider}_BASE_URL", os.environ.get(f"{provider}_API_KEY"), options)


def _with_address(variable: str, key: str | None, options: Options) -> Options:
    """Add the address in a variable and its key, unless the options have an address."""
    address = os.environ.get(variable, "").strip()
    return options if not address or "base_url" in options else {"base_url": address, "api_key": key, **options}


def _create_served(provider: str, model: str, options: Options) -> Model:
    """Create a model behind a server, after validating options that would fail at the first request."""
    model, options = _add_address(provider, model, options)
    for key in ("stream_usage", "replay_reasoning", "cache"):
        if not isinstance(options.get(key, True), bool):
            raise ConfigError(f"the {key!r} of a model's spec must be true or false, not {options[key]!r}")
    limits, headers = options.get("limits", {}), options.get("headers", {})
    if isinstance(limits, Mapping):
        try:
            limits = TimeLimits(**limits)
        except TypeError:
            known, given = ", ".join(field.name for field in fields(TimeLimits)), ", ".join(map(str, limits))
            raise ConfigError(f"the 'limits' of a model's spec are {known}, not {given}") from None
    if not isinstance(limits, TimeLimits) or not all(
        isinstance(seconds, int | float) and seconds > 0 for seconds in asdict(limits).values()
    ):
        raise ConfigError("the 'limits' of a model's spec must be seconds above 0, as in {'first_byte': 30}")
    if not isinstance(headers, Mapping) or not all(isinstance(text, str) for text in chain(*headers.items())):
        raise ConfigError("the 'headers' of a model's spec must be strings, as in {'x-team': 'search'}")
    options = {**options, "limits": limits} if "limits" in options else options
    return _create_client(provider, _load_client(provider), model, options)


def _create_client(provider: str, client: Callable[..., Model], model: str, options: Options) -> Model:
    """Create a client; raise ConfigError if its parameters do not fit the options of a spec."""
    _check_keys(provider, client, options)
    try:
        inspect.signature(client).bind(model, **options)
    except TypeError as error:
        raise ConfigError(f"the model {provider}:{model} cannot be created: {error}") from None
    return client(model, **options)


# -- plugins --------------------------------------------------------------------------------------------------------
