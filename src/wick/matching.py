"""What a hook's `match` means: glob patterns over an operation's names, a kind of tool, or a predicate.

match="execute"            the tool of that name, whatever it was renamed to, and by every alias of it
match="read_*|ls"          any of these; a list of patterns is the same
match="kind:shell"         every tool of that kind
match=lambda use: …        whatever you like
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from wick.errors import HookError

Match = str | Sequence[str] | Callable[[Any], bool] | None


def patterns(match: Match) -> tuple[str, ...]:
    """The patterns of a match; none for a predicate."""
    if match is None or callable(match):
        return ()
    texts = [match] if isinstance(match, str) else list(match)
    found = tuple(part.strip() for text in texts for part in text.split("|") if part.strip())
    if not found:
        raise HookError(f"match={match!r} names nothing; leave it out to match everything")
    return found


def literal(pattern: str) -> bool:
    """Whether a pattern is the plain name of one tool."""
    return not pattern.startswith("kind:") and not any(sign in pattern for sign in "*?[")


def matcher(match: Match) -> Callable[[Any], bool]:
    """The test that a match stands for."""
    if match is None:
        return lambda op: True
    if callable(match):
        return lambda op: bool(match(op))
    exact = frozenset(filter(literal, patterns(match)))
    kinds = [pattern.removeprefix("kind:") for pattern in patterns(match) if pattern.startswith("kind:")]
    globs = [pattern for pattern in patterns(match) if pattern not in exact and not pattern.startswith("kind:")]

    def test(op: Any) -> bool:
        names, kind = op.names, op.kind
        return (
            not exact.isdisjoint(names)
            or any(fnmatchcase(name, pattern) for pattern in globs for name in names)
            or (kind != "" and any(fnmatchcase(kind, pattern) for pattern in kinds))
        )

    return test
