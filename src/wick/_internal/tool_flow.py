"""Declarations of tools: the authors of the data that a tool returns, and the effect of its calls.

returns    author of the result, or of each of its fields
private    the result is private to the user; a text names its source, which several tools may share
effect     read, fetch, write, change, delete, send, pay or account
targets    the arguments that name the recipient or the object of the effect
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from wick.errors import ConfigError

Effect = Literal["read", "fetch", "write", "change", "delete", "send", "pay", "account"]
Author = Literal["trusted", "id", "directory", "own", "child", "untrusted"]
EFFECTS, AUTHORS = frozenset(get_args(Effect)), frozenset(get_args(Author))
FOREIGN = frozenset(("untrusted", "directory"))  # others have chosen the text


@dataclass(frozen=True, slots=True)
class ToolFlow:
    """The declaration of a tool. Its defaults are what is assumed about a tool without one."""

    effect: Effect = "change"
    returns: Author | Mapping[str, Author] = "untrusted"
    private: bool | str = False
    targets: tuple[str, ...] | None = None  # None: every argument
    declared: bool = False

    @property
    def authors(self) -> Mapping[str, str]:
        """The author of each field of a result, by its name; `*` for all other fields."""
        return {"*": self.returns} if isinstance(self.returns, str) else {"*": "untrusted", **self.returns}

    def name_source(self, tool: str) -> str:
        """Return the private source that a tool reads, by default the tool itself; empty if it is not private."""
        return self.private if isinstance(self.private, str) else tool if self.private else ""

    def list_targets(self, args: Mapping[str, Any]) -> list[str]:
        """Return the names of the arguments that are targets."""
        return [name for name in args if self.targets is None or name in self.targets]


UNDECLARED = ToolFlow()
CONTROL = ""  # among the clean arguments of a call in a program: the conditions of the call
RESULT_FLOW = "result_flow"  # in the notes of a tool use: the declaration of this result in place of its tool's


def declare_flow(effect: Any = None, returns: Any = None, private: Any = None, targets: Any = None) -> ToolFlow | None:
    """Return the declaration of a tool from the options of `tool`, or None without any."""
    if (effect, returns, private, targets) == (None, None, None, None):
        return None
    if effect is not None and effect not in EFFECTS:
        raise ConfigError(
            f"effect={effect!r} is not an effect of a tool; the effects are {', '.join(get_args(Effect))}"
        )
    fields = returns if isinstance(returns, Mapping) else {"*": returns}
    for author in fields.values() if returns is not None else ():
        if author not in AUTHORS:
            raise ConfigError(f"returns={returns!r}: {author!r} is not an author; use {', '.join(get_args(Author))}")
    if targets is not None and (isinstance(targets, str) or not isinstance(targets, Sequence)):
        raise ConfigError(f"targets={targets!r}: give the names of arguments in a list, such as ['to']")
    return ToolFlow(
        effect or "change",
        dict(returns) if isinstance(returns, Mapping) else returns or "untrusted",
        private if isinstance(private, str) else bool(private),
        None if targets is None else tuple(targets),
        declared=True,
    )
