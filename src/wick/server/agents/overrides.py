"""Overrides of an agent's options: hooks and their order, the backend, skills.

Operators store overrides for all users, and each user stores their own. Both are applied over the agent's template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Mode = Literal["local", "remote"]
UPLOADS = "skills"  # default folder of the workspace for uploaded skills


@dataclass(frozen=True, slots=True)
class Overrides:
    """Changed options. `hooks` maps keys of agents.yaml to options, or to true and false."""

    hooks: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = ()
    mode: Mode | None = None  # where commands run; None for the template's backend
    sandbox_url: str | None = None  # address of the engine; None for the local one
    skills: Mapping[str, bool] = field(default_factory=dict)
    uploads: bool = False  # skills were uploaded

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Overrides:
        """Create overrides from stored data, without fields that this version does not know."""
        known = {one.name for one in fields(cls)}
        return cls(**{key: value for key, value in (data or {}).items() if key in known})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def apply_over(self, below: Overrides) -> Overrides:
        """Return these overrides merged over others; these take precedence."""
        chosen = self if self.mode is not None else below
        return Overrides(
            {**below.hooks, **self.hooks},
            self.order or below.order,
            chosen.mode,
            chosen.sandbox_url,
            {**below.skills, **self.skills},
            self.uploads or below.uploads,
        )

    def skill_options(self, given: Any, has_folder: bool) -> Any:
        """Return the options of `skills` with these overrides; `has_folder` if the agent has a workspace."""
        if given is False or not (self.skills or self.uploads):
            return given
        options: dict[str, Any] = {"shipped": True} if given is True else dict(given)
        if self.uploads and has_folder and not options.get("paths"):
            options["paths"] = [UPLOADS]
        off = [name for name, on in self.skills.items() if not on]
        on = [name for name, on in self.skills.items() if on]
        options["disabled"] = [name for name in options.get("disabled", ()) if name not in on] + off
        if options.get("enabled") is not None:
            options["enabled"] = [*options["enabled"], *on]
        return options
