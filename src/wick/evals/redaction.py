"""Redaction of keys, tokens and passwords in the texts of imported cases."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from wick.constants import SECRET_LOG_CHARS
from wick.errors import ConfigError

PLACEHOLDER = "[redacted]"
_SECRET_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_KNOWN_FORMS = (
    r"sk-[\w-]{16,}",  # keys of model providers
    r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}",
    r"AKIA[0-9A-Z]{16}",
    r"AIza[\w-]{30,}",
    r"xox[abeprs]-[\w-]{10,}",
    r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # JSON Web Tokens
    r"(?<=[Bb]earer )[\w.~+/=-]{16,}",
    r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",  # user and password of a URL
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)


class TextRedactor:
    """Replaces known forms of secrets, the values of secret environment variables, and patterns of the user."""

    def __init__(self, patterns: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        values = [value for name, value in variables.items() if _SECRET_NAMES.search(name)]
        known = [re.escape(value) for value in sorted(values, key=len, reverse=True) if len(value) >= SECRET_LOG_CHARS]
        given = [f"(?:{pattern})" for pattern in patterns]
        try:
            self._pattern = re.compile("|".join([*known, *_KNOWN_FORMS, *given]), re.DOTALL)
        except re.error as error:
            raise ConfigError(f"--redact is not a regular expression: {error}") from None
        self.count = 0

    def redact_text(self, text: str) -> str:
        """Return a text with every secret replaced."""
        text, found = self._pattern.subn(PLACEHOLDER, text)
        self.count += found
        return text

    def redact_json(self, data: Any) -> Any:
        """Return JSON data with every secret in its texts and keys replaced."""
        if isinstance(data, str):
            return self.redact_text(data)
        if isinstance(data, list | tuple):
            return [self.redact_json(item) for item in data]
        if isinstance(data, Mapping):
            return {self.redact_text(str(key)): self.redact_json(value) for key, value in data.items()}
        return data
