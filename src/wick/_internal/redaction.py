"""Redaction of known secrets in texts and JSON data, and the names and forms of secrets.

A user can print a guess and observe whether it is redacted. So redaction must reveal no more than whether a whole guess
equals a whole secret, and only for secrets that cannot be guessed (see `is_strong`). Live text is delayed up to the end
of a word, never by a comparison with a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from wick.constants import SECRET_CHARS, SECRET_DISTINCT, SECRET_LIVE_CHARS, SECRET_LOG_CHARS

PLACEHOLDER = "[secret]"
SECRET_WORDS = "api_?key|key|token|secret|password|passwd|credentials?"  # the ends of names
SECRET_NAMES = re.compile(rf"({SECRET_WORDS})$", re.IGNORECASE)
# The usual forms of keys and tokens. Files that are committed have a placeholder in their place.
KEY_FORMS = re.compile(
    "|".join((
        r"(?<![A-Za-z0-9])(?:sk|pk|rk)-[\w-]{16,}",  # keys of model providers
        r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|hf_)[\w-]{16,}",
        r"(?<![A-Za-z0-9])xox[abeprs]-[\w-]{10,}",
        r"AKIA[0-9A-Z]{16}",
        r"AIza[\w-]{30,}",
        r"eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",  # JSON Web Tokens
        r"(?i:(?<=bearer )|(?<=basic ))[\w.~+/=-]{16,}",
        r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)",  # user and password of a URL
        r"(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))",
    ))
)  # fmt: skip
_WORD_CHARS = "".join(map(chr, range(0x21, 0x7F)))  # printable ASCII without the space
_BANNER = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]+-----")  # the lines of a PEM file that are not secret


def named_variables(environment: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the environment variables that are named like a secret (`…_TOKEN`), with their values."""
    for name, value in (os.environ if environment is None else environment).items():
        if SECRET_NAMES.search(name):
            yield name, value.strip()


def is_strong(secret: str) -> bool:
    """Return True if a secret is too long to be guessed, so that redacting it does not help to guess it."""
    return len(secret) >= SECRET_CHARS and len({*secret}) >= SECRET_DISTINCT


class Secrets:
    """Known secrets, and their redaction.

    `redact_text` is for text that users see: it redacts strong secrets only. `redact_log` is for the operator's log and
    redacts all of them.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: frozenset[str] = frozenset()
        self._strong: re.Pattern[str] | None = None
        self._all: re.Pattern[str] | None = None
        self._in_json: re.Pattern[bytes] | None = None
        self._in_words = True  # no strong secret contains a space or another character that ends a word
        self.learn(known)

    def learn(self, known: Iterable[str]) -> None:
        """Add secrets to be redacted."""
        pieces = {piece for text in known for piece in split_secret(text) if len(piece) >= SECRET_LOG_CHARS}
        if pieces <= self._known:
            return
        self._known |= pieces
        strong = [*filter(is_strong, self._known)]
        self._all, self._strong = _compile_any(self._known), _compile_any(strong)
        # JSON escapes character by character, so a text that contains a secret contains its escaped form as JSON.
        self._in_json = re.compile(b"|".join(re.escape(_encode_text(piece)) for piece in strong)) if strong else None
        self._in_words = not any(piece.strip(_WORD_CHARS) for piece in strong)

    def __repr__(self) -> str:
        return "Secrets()"

    def __bool__(self) -> bool:
        return self._strong is not None

    def redact_text(self, text: str) -> str:
        """Return a text for users, with every strong secret replaced."""
        return text if self._strong is None else self._strong.sub(PLACEHOLDER, text)

    def redact_log(self, text: str) -> str:
        """Return a text for the operator's log, with every secret replaced."""
        return text if self._all is None else self._all.sub(PLACEHOLDER, text)

    def split_live(self, text: str) -> tuple[str, str]:
        """Return the part of a live text that can be sent, redacted, and the open end that must wait.

        A secret never spans the end of a word, so complete words are sent at once. The last word is held back, with the
        blanks before it. The cut depends on blanks and on a constant only. It must not depend on a secret, since a
        client can observe what is held back.
        """
        if self._strong is None:
            return text, ""
        closed = text.rstrip(_WORD_CHARS) if self._in_words else text[: max(text.rfind("\n"), text.rfind("\r")) + 1]
        at = len(closed) if len(closed) == len(text) else len(closed.rstrip())
        if len(text) - at <= SECRET_LIVE_CHARS:
            return self.redact_text(text[:at]), text[at:]
        text = self.redact_text(text)  # no whole secret is left, so the start of one is shorter than the part held back
        return text[:-SECRET_LIVE_CHARS], text[-SECRET_LIVE_CHARS:]

    def redact_json(self, data: Any) -> Any:
        """Return JSON data with every strong secret in its texts replaced; data without one is not copied."""
        if self._in_json is None:
            return data
        try:  # one search instead of a walk through the data
            if self._in_json.search(orjson.dumps(data, default=dict, option=orjson.OPT_NON_STR_KEYS)) is None:
                return data
        except TypeError:  # an integer over 64 bits, a lone surrogate, or an object that is not JSON
            pass
        return self._redact_parts(data)

    def _redact_parts(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.redact_text(data)
        if isinstance(data, list | tuple):
            return [self._redact_parts(item) for item in data]
        if isinstance(data, Mapping):
            return {self.redact_text(str(key)): self._redact_parts(value) for key, value in data.items()}
        return data


def split_secret(secret: str) -> Iterator[str]:
    """Yield the search texts of a secret: each line, and a long line in equal parts that live text can hold back."""
    for line in map(str.strip, secret.splitlines()):
        if line and not _BANNER.fullmatch(line):
            parts = -(-len(line) // SECRET_LIVE_CHARS)
            size = -(-len(line) // parts)
            yield from (line[at : at + size] for at in range(0, len(line), size))


def _encode_text(text: str) -> bytes:
    """Return a text as it is inside of a JSON text."""
    try:
        return orjson.dumps(text)[1:-1]
    except TypeError:  # a lone surrogate: JSON data that contains it cannot be encoded either
        return text.encode("utf-8", "surrogatepass")


def _compile_any(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
