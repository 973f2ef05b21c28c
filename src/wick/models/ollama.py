"""The address of Ollama and its installed models."""

from __future__ import annotations

import json
import os
import re
from threading import Thread
from urllib.request import ProxyHandler, build_opener

from wick.constants import OLLAMA_SECONDS
from wick.errors import ConfigError

_HOST = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+\]|[^:/@\s]*)(?::(\d+))?/?")
_PORTS = {"http": "80", "https": "443", None: "11434"}  # default ports, as in Ollama itself
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "localhost"}  # replaces addresses for listening


def ollama_url() -> str:
    """Return the address of Ollama: OLLAMA_HOST, with or without scheme and port, or localhost."""
    found = _HOST.fullmatch(os.environ.get("OLLAMA_HOST", "").strip())
    if found is None:
        raise ConfigError("OLLAMA_HOST must be like localhost:11434 or http://host:port")
    scheme, host, port = found.groups()
    return f"{scheme or 'http'}://{_EVERYWHERE.get(host, host)}:{port or _PORTS[scheme]}"


def list_installed() -> list[str]:
    """Return the models of an Ollama that answers quickly, or an empty list."""
    names: list[str] = []
    thread = Thread(target=_fetch_models, args=(f"{ollama_url()}/api/tags", names), daemon=True)
    thread.start()
    thread.join(OLLAMA_SECONDS)  # limits name resolution, connection and response together
    return names.copy()


def _fetch_models(url: str, chat_models: list[str]) -> None:
    """Append the names of the installed chat models to the list."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=OLLAMA_SECONDS) as answer:
            names = [str(model["name"]) for model in json.loads(answer.read(1_000_000))["models"]]
        chat_models += [name for name in names if "embed" not in name and "minilm" not in name]  # no embedding models
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return  # no Ollama, or another server
