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
    match = _HOST.fullmatch(os.environ.get("OLLAMA_HOST", "").strip())
    if match is None:
        raise ConfigError("OLLAMA_HOST must be like localhost:11434 or http://host:port")
    scheme, host, port = match.groups()
    return f"{scheme or 'http'}://{_EVERYWHERE.get(host, host)}:{port or _PORTS[scheme]}"


def list_installed() -> list[str]:
    """Return the chat models of an Ollama that answers quickly, or an empty list."""
    url, chat_models = f"{ollama_url()}/api/tags", list[str]()

    def fetch() -> None:
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=OLLAMA_SECONDS) as answer:
                names = [str(model["name"]) for model in json.loads(answer.read(1_000_000))["models"]]
            chat_models.extend(name for name in names if "embed" not in name and "minilm" not in name)
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return  # no Ollama, or another server

    thread = Thread(target=fetch, daemon=True)
    thread.start()
    thread.join(OLLAMA_SECONDS)  # limits name resolution, connection and response together
    return chat_models.copy()
