"""Tools that store JSON values by key with the thread."""

from __future__ import annotations

from typing import Annotated, Any

from wick._internal.frozen import canonical_json, thaw
from wick.capability import Capability
from wick.constants import METADATA_BYTES, METADATA_KEY_CHARS, METADATA_KEYS, METADATA_VALUE_BYTES
from wick.errors import ConfigError, ToolError
from wick.operations import Run
from wick.tools import tool

SHOWN_CHARS = 80  # of a value, in the list


class Metadata(Capability):
    """Adds tools that store JSON values by key in `thread.values["metadata"]`.

    The limits are `keys` entries, `value_bytes` bytes of JSON per value, and `total_bytes` for all values.
    """

    def __init__(
        self,
        *,
        keys: int = METADATA_KEYS,
        value_bytes: int = METADATA_VALUE_BYTES,
        total_bytes: int = METADATA_BYTES,
    ) -> None:
        for name, value in {"keys": keys, "value_bytes": value_bytes, "total_bytes": total_bytes}.items():
            if type(value) is not int or value < 1:
                raise ConfigError(f"Metadata({name}={value!r}): give a whole number of at least 1")
        self.keys, self.value_bytes, self.total_bytes = keys, value_bytes, total_bytes

    @tool(read_only=True, effect="read", returns="untrusted")
    async def metadata_read(self, run: Run, key: str) -> Any:
        """Read a value that was written under a key."""
        values = _load_values(run)
        if key not in values:
            raise ToolError(
                f"there is no key {key[:METADATA_KEY_CHARS]!r}; the keys are {', '.join(values) or '(none)'}"
            )
        return {"key": key, "value": values[key]}

    @tool(idempotent=True, effect="write", returns="own", targets=["key"])
    async def metadata_write(self, run: Run, key: str, value: Annotated[Any, "any JSON value"]) -> Any:
        """Write a value under a key, to be read later in this conversation; null removes the key."""
        values = _load_values(run)
        if not key or len(key) > METADATA_KEY_CHARS or not key.isprintable():
            raise ToolError(f"a key is a text of 1 to {METADATA_KEY_CHARS} characters on one line")
        if value is None:
            if key in values:
                run.thread.values["metadata"] = {name: item for name, item in values.items() if name != key}
            return {"key": key, "removed": key in values}
        if (size := len(canonical_json(value))) > self.value_bytes:
            raise ToolError(f"the value has {size:,} bytes, and {self.value_bytes:,} are the most; write less")
        if key not in values and len(values) >= self.keys:
            raise ToolError(f"there are {len(values)} keys, which is the most; remove one by writing null")
        if len(canonical_json({**values, key: value})) > self.total_bytes:
            raise ToolError(f"all values together may have {self.total_bytes:,} bytes; remove one by writing null")
        run.thread.values["metadata"] = {**values, key: value}
        return {"key": key, "written": True}

    @tool(read_only=True, effect="read", returns="untrusted")
    async def metadata_list(self, run: Run) -> Any:
        """List the keys that were written, each with the beginning of its value."""
        texts = {key: canonical_json(value).decode() for key, value in _load_values(run).items()}
        return {key: text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…" for key, text in texts.items()}


def _load_values(run: Run) -> dict[str, Any]:
    return dict(thaw(run.thread.values.get("metadata", {})))
