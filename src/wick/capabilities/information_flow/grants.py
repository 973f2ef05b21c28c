"""Grants: the calls that the model planned before it read untrusted text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from wick._internal.frozen import canonical_json

GRANTS = "grants"  # in thread.values
MOST_STEPS, MOST_TIMES = 50, 100


class PlannedStep(BaseModel):
    """One tool of a plan."""

    model_config = ConfigDict(extra="forbid")

    tool: str = Field(description="the name of the tool")
    known: dict[str, Any] = Field(
        default_factory=dict, description="the arguments that are known now, with their values"
    )
    times: int = Field(default=1, ge=1, le=MOST_TIMES, description="how often it is used")


@dataclass(frozen=True, slots=True)
class CallGrant:
    """The permission to use a tool with known arguments a number of times. It ends with its run."""

    tool: str
    known: Mapping[str, Any]
    times: int  # how often it can still be used

    def matches(self, tool: str, args: Mapping[str, Any]) -> bool:
        """Return True if a call has all known arguments."""
        if tool != self.tool:
            return False
        for name, value in self.known.items():
            if name not in args or canonical_json(args[name]) != canonical_json(value):
                return False
        return True

    def use_once(self) -> CallGrant:
        """Return the grant that is left after one use."""
        return CallGrant(self.tool, self.known, self.times - 1)

    def to_json(self) -> dict[str, Any]:
        return {"tool": self.tool, "known": self.known, "times": self.times}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> CallGrant:
        return cls(row["tool"], row["known"], row["times"])
