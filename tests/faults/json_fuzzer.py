"""JSON fuzzer: input generated from a JSON Schema, valid, nearly valid and invalid.

    nonsense = Nonsense(random.Random(7), planted=bird.addresses)
    nonsense.text(schema, root)      # JSON as bytes, mostly; with the planted texts in its strings

Each is made from chance alone, so the same chance makes the same input.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "\udfff\ud800", "\u202egnp.exe", "\ufeff", "é" * 50, "🦊" * 30, "\x1b[2J",
    "\r\nX-Evil: 1", "../" * 12 + "etc/passwd", "..", ".", "/", "~", "~root", "C:\\x", "file:///etc/passwd",
    "/proc/self/environ", "/dev/zero", "'; DROP TABLE threads; --", '" OR ""="', "%00", "%2e%2e%2f", "{}", "[]", "null",
    "true", "NaN", "1e999", "-0", "__proto__", "__class__", "constructor", "${HOME}", "$(id)", "`id`", "{{7*7}}",
    "%s%s%s%n", "a" * 5_000, "\t\n\v", "2024-02-30", "-1", "9" * 400, "0x10", "on", "ß", "İ", "ﷺ", "\u2028", "--help",
    "-rf", "*", "**/**/**", "[", "(((((((", "a{0,99999}", ".git/hooks/x", ".env", ".wick/agents.yaml", "con",
    "x" * 300 + "/y", "a/" * 200, "\\", "//", "a//b", " a ", "🏳️‍🌈",
)  # fmt: skip
NUMBERS = (
    0, -1, 1, 2, 7, 10**6, 2**31, -(2**31) - 1, 2**53, 2**63, -(2**63) - 1, 2**64, 10**30, -(10**400), 0.1, -0.0,
    1e308, 5e-324, math.inf, -math.inf, math.nan,
)  # fmt: skip
DEPTHS = (5, 30, 120, 2_000)
KEEP = 0.75  # of texts that fit are ordinary ones
WORDS = ("hello", "notes.txt", "a b", "x", "Hello, what is 2 + 2?", "src/main.py", "default", "Ünïcode 🦊", "42")


class Nonsense:
    """Makes input by chance; `planted` are texts that turn up everywhere, `known` names that are really there."""

    def __init__(
        self, chance: random.Random, planted: Sequence[str] = (), known: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self.chance, self.planted, self.known = chance, planted, known or {}

    # -- values -------------------------------------------------------------------------------------------------------

    def word(self, name: str = "") -> str:
        """Return a text; often a known name for that field."""
        chance = self.chance
        if name in self.known and chance.random() < 0.6:
            return chance.choice(self.known[name])
        if self.planted and chance.random() < 0.3:
            return chance.choice(self.planted)
        if chance.random() < KEEP:
            return chance.choice(WORDS)
        return chance.choice(TEXTS) if chance.random() < 0.8 else self.noise(chance.randrange(60))

    def noise(self, length: int) -> str:
        """Characters from anywhere."""
        most = self.chance.choice((0x80, 0x250, 0x3000, 0x110000))
        return "".join(chr(self.chance.randrange(most)) for _ in range(length))

    def anything(self, depth: int = 3) -> Any:
        """Return any JSON, or text that only looks like it."""
        kinds: list[Callable[[], Any]] = [
            self.word, lambda: self.chance.choice(TEXTS), lambda: self.chance.choice(NUMBERS), lambda: None,
            lambda: self.chance.random() < 0.5, list, dict,
        ]  # fmt: skip
        if depth:
            kinds += [
                lambda: [self.anything(depth - 1) for _ in range(self.chance.randrange(4))],
                lambda: {self.word(): self.anything(depth - 1) for _ in range(self.chance.randrange(4))},
                lambda: self.deep(self.chance.choice(DEPTHS)) if self.chance.random() < 0.1 else [],
            ]
        return self.chance.choice(kinds)()

    def deep(self, levels: int) -> Any:
        """A list or an object with so many inside of each other."""
        found: Any = 1
        listed = self.chance.random() < 0.5
        for _ in range(levels):
            found = [found] if listed else {"a": found}
        return found

    def fitting(self, schema: Any, root: Any = None, depth: int = 6, name: str = "") -> Any:
        """A value as a schema wants it, as far as that is easily done."""
        root = schema if root is None else root
        if not isinstance(schema, Mapping) or not schema:
            return self.anything(2)
        if "$ref" in schema:
            return self.fitting(_at(root, schema["$ref"]), root, depth - 1, name) if depth > 0 else None
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self.fitting(self.chance.choice(schema[choice]), root, depth - 1, name)
        if "allOf" in schema:
            return self.fitting(schema["allOf"][0], root, depth - 1, name)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.chance.choice(schema["enum"])
        kind = schema.get("type", "object" if "properties" in schema else None)
        kind = self.chance.choice(kind) if isinstance(kind, list) else kind
        return self._of_kind(kind, schema, root, depth, name)

    def _of_kind(self, kind: Any, schema: Mapping[str, Any], root: Any, depth: int, name: str) -> Any:
        if kind == "object":
            return self._object(schema, root, depth)
        if kind == "array":
            most = min(3, schema.get("maxItems", 3)) if depth > 0 else 0
            count = max(schema.get("minItems", 0), self.chance.randint(0, max(0, most)))
            return [self.fitting(schema.get("items", {}), root, depth - 1, name) for _ in range(count)]
        if kind == "string":
            return self.word(name)[: schema.get("maxLength", 10_000)] or "x" * schema.get("minLength", 0)
        if kind in ("integer", "number"):
            return self._number(kind, schema)
        return {"boolean": self.chance.random() < 0.5, "null": None}.get(kind, self.anything(2))

    def _object(self, schema: Mapping[str, Any], root: Any, depth: int) -> dict[str, Any]:
        wanted, known = set(schema.get("required", ())), schema.get("properties", {})
        likely = 0.5 if depth > 0 else 0.0
        if len(known) > 10:
            likely = 3 / len(known)
        made = {
            key: self.fitting(inner, root, depth - 1, key)
            for key, inner in known.items()
            if key in wanted or self.chance.random() < likely
        }
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping) and depth > 0:
            made |= {self.word(): self.fitting(more, root, depth - 1) for _ in range(self.chance.randrange(3))}
        return made

    def _number(self, kind: str, schema: Mapping[str, Any]) -> float:
        least, most = schema.get("minimum", schema.get("exclusiveMinimum", -5)), schema.get("maximum", 1_000)
        number = self.chance.uniform(max(least, -1e6), min(most, 1e6))
        return round(number) if kind == "integer" else number

    # -- mutations ----------------------------------------------------------------------------------------------------

    def spoiled(self, value: Any) -> Any:
        """The same with one place in it that is something else, or missing, or too much."""
        if isinstance(value, dict) and value and self.chance.random() < 0.8:
            key = self.chance.choice([*value])
            return self._changed(value, key)
        if isinstance(value, list) and value and self.chance.random() < 0.8:
            at = self.chance.randrange(len(value))
            return [*value[:at], self.spoiled(value[at]), *value[at + 1 :]]
        return self.anything()

    def _changed(self, value: dict[str, Any], key: str) -> dict[str, Any]:
        how = self.chance.random()
        if how < 0.15:
            return {name: inner for name, inner in value.items() if name != key}
        if how < 0.3:
            return {**value, self.word(): self.anything()}
        return {**value, key: self.spoiled(value[key])}

    # -- as bytes -----------------------------------------------------------------------------------------------------

    def text(self, schema: Any, root: Any = None, *, fitting: float = 0.5) -> bytes:
        """JSON for a schema: often it fits, often one place of it does not, sometimes it is no JSON."""
        how = self.chance.random()
        value = self.fitting(schema, root) if how < 0.95 else self.anything()
        if fitting < how < 0.95:
            value = self.spoiled(value)
        data = written(value)
        return self.bent(data) if self.chance.random() < 0.12 else data

    def bent(self, data: bytes) -> bytes:
        """Bytes that were JSON."""
        at = self.chance.randrange(len(data) + 1)
        ways: list[Callable[[], bytes]] = [
            lambda: data[:at],
            lambda: data[:at] + bytes([self.chance.randrange(256)]) + data[at:],
            lambda: data[:at] + bytes([self.chance.randrange(256)]) + data[at + 1 :],
            lambda: b"\xef\xbb\xbf" + data,
            lambda: data.decode("ascii").encode("utf-16"),
            lambda: data.decode("ascii").encode("utf-32-be"),
            lambda: data + data,
            lambda: b"[" * 3_000 + data,
            lambda: data.replace(b":", b"=", 1),
            lambda: data.replace(b'"', b"'"),
            lambda: data[:-1] + b"," + data[1:] if data[:1] == b"{" else data,  # every key twice
            lambda: b"",
            lambda: b"\0" * 10,
            lambda: self.chance.randbytes(self.chance.randrange(200)),
        ]
        return self.chance.choice(ways)()


def written(value: Any) -> bytes:
    """Serialize a value as JSON, including invalid values of Python: lone surrogates and NaN."""
    try:
        return json.dumps(value).encode("ascii")
    except (RecursionError, ValueError):  # too deep for Python, or too long a number
        return b"[" * 2_000 + b"]" * 2_000


def _at(root: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        root = root.get(part, {}) if isinstance(root, Mapping) else {}
    return root
