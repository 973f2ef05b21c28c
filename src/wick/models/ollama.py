"""Where Ollama is, and which models it has."""

from __future__ import annotations

import json
import os
import re
from threading import Thread
from typing import Any
from urllib.request import ProxyHandler, build_opener

from wick.constants import OLLAMA_SECONDS
from wick.errors import ConfigError

_HOST = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+\]|[^:/@\s]*)(?::(\d+))?/?")
_PORTS = {"http": "80", "https": "443", None: "11434"}  # as Ollama itself reads its variable
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "localhost"}  # where to listen is not where to ask


def ollama_url() -> str:
    """The address of Ollama: OLLAMA_HOST, with or without a scheme and a port, or this machine."""
    found = _HOST.fullmatch(os.environ.get("OLLAMA_HOST", "").strip())
    if found is None:
        raise ConfigError("OLLAMA_HOST must be like localhost:11434 or http://host:port")
    scheme, host, port = found.groups()
    return f"{scheme or 'http'}://{_EVERYWHERE.get(host, host)}:{port or _PORTS[scheme]}"


def installed() -> list[str]:
    """The models that an Ollama has which answers at once; none, if no Ollama does."""
    found: list[str] = []
    asking = Thread(target=_ask, args=(f"{ollama_url()}/api/tags", found), daemon=True)
    asking.start()
    asking.join(OLLAMA_SECONDS)  # whatever takes long, the name, the connection or the answer
    return found.copy()


def _ask(url: str, found: list[str]) -> None:
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=OLLAMA_SECONDS) as answer:
            found += _names(json.loads(answer.read(1_000_000)))
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return  # no Ollama, or something else that listens there


def _names(answer: Any) -> list[str]:
    """Those that can talk: models for embeddings cannot."""
    names = [str(model["name"]) for model in answer["models"]]
    return [name for name in names if "embed" not in name and "minilm" not in name]
