"""Parser for YAML front matter: the block between two lines of `---` at the top of a Markdown file.

    data, body = split(text)

The file is untrusted input: it is read by the bounded loader of `safe_yaml`, as plain JSON data.
"""

from __future__ import annotations

from typing import Any

from wick._internal.safe_yaml import load_yaml
from wick.constants import FRONT_MATTER_BYTES
from wick.errors import ConfigError

_ENDS = ("---", "...")


def split(text: str) -> tuple[dict[str, Any], str]:
    """Return the front matter as JSON data, and the body; raise ConfigError if the front matter is invalid."""
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        raise ConfigError("it does not begin with a line of three dashes, so it has no front matter")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() in _ENDS), None)
    if end is None:
        raise ConfigError(
            f"its front matter does not end with a line of three dashes within {FRONT_MATTER_BYTES:,} bytes"
        )
    matter = "".join(lines[1:end])
    if len(matter.encode(errors="replace")) > FRONT_MATTER_BYTES:
        raise ConfigError(f"its front matter is longer than {FRONT_MATTER_BYTES:,} bytes")
    data, _ = load_yaml(f"\n{matter}", "its front matter")  # the empty line keeps the file's line numbers
    if not isinstance(data, dict):
        raise ConfigError("its front matter is not a map of names and values, such as `name: …`")
    return data, "".join(lines[end + 1 :])
