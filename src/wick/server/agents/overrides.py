"""What was changed about an agent after it was set up: hooks, their order, the backend, skills, and what was granted.

It is kept for everyone by operators, and for each user by themselves, and laid over what the agent's template says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Mode = Literal["local", "remote"]
UPLOADS = "skills"  # the folder of a workspace that skills are uploaded to, where the agent has no other


@dataclass(frozen=True, slots=True)
class Overrides:
    """What was changed. `hooks` is by the keys of agents.yaml: options, or on and off."""

    hooks: Mapping[str, Any] = field(default_factory=dict)
    order: Sequence[str] = ()
    mode: Mode | None = None  # where commands run; None for what the template says
    sandbox_url: str | None = None  # of the engine; None for the one of this machine
    skills: Mapping[str, bool] = field(default_factory=dict)
    uploads: bool = False  # skills were uploaded

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Overrides:
        """As they are kept; what this version does not know is left out."""
        known = {one.name for one in fields(cls)}
        return cls(**{key: value for key, value in (data or {}).items() if key in known})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def apply_over(self, below: Overrides) -> Overrides:
        """These laid over others: whoever says something last is heard."""
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
        """The options of `skills` with what was switched on and off; `has_folder` where there is a workspace."""
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
