"""A strict JSON decoder, for data that is checked before it is used.

It refuses NaN and infinities, and objects with a repeated key: a check and a use could read different values.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"{key!r} is there twice")
    return data


# Parses a text; raises ValueError if it is not JSON, or not strict.
decode_strict = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys).decode
