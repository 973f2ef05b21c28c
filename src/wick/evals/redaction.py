"""Redaction of keys, tokens and passwords in imported cases and in recordings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from wick._internal.redaction import KEY_FORMS, PLACEHOLDER, named_variables
from wick.constants import SECRET_LOG_CHARS
from wick.errors import ConfigError


class TextRedactor:
    """Replaces known forms of secrets, the values of secret environment variables, and patterns of the user."""

    def __init__(self, patterns: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> None:
        values = [value for _, value in named_variables(environment) if len(value) >= SECRET_LOG_CHARS]
        known = [re.escape(value) for value in sorted(values, key=len, reverse=True)]
        given = [f"(?:{pattern})" for pattern in patterns]
        try:
            self._pattern = re.compile("|".join([*known, KEY_FORMS.pattern, *given]), re.DOTALL)
        except re.error as error:
            raise ConfigError(f"--redact is not a regular expression: {error}") from None
        self.count = 0

    def redact_text(self, text: str) -> str:
        """Return a text with every secret replaced."""
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # as messages repair texts
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
