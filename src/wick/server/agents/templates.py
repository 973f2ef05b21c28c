"""Templates of agents: from agents.yaml, from a program, or from a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from wick._internal.frozen import canonical_json, digest
from wick._internal.safe_yaml import ConfigLineError, KeyPath, YamlSource
from wick.agent import Agent
from wick.api.types import AgentOrigin
from wick.capabilities.sessions import Sessions
from wick.capability import Capability
from wick.config import RINGS, Config, merge_options
from wick.config.builder import AgentConfig, AgentsFile
from wick.config.keys import CapabilityRing
from wick.errors import ConfigError
from wick.hooks import Hook
from wick.protocols import Model
from wick.server.auth.identity import User
from wick.tools import Tool, tool

AgentFactory = Callable[[User], Agent]

EVERYONE = "*"  # the owner of shared records
RESERVED = frozenset(("tools", "skills", "events", "hooks"))  # path segments in the position of an agent id
_ID = re.compile(r"\w[\w.-]{0,63}")
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class AgentTemplate:
    """A template from which each user's instance of an agent is built."""

    id: str
    origin: AgentOrigin
    options: Mapping[str, Any] = field(default_factory=dict)  # as in agents.yaml, in their long form
    folder: Path = Path()  # base of relative paths
    owner: str = EVERYONE
    shares_budget: bool = False  # with the other agents of its file
    version: str = ""
    model: Model | None = None  # this and the next fields are objects of a program
    tools: tuple[Tool, ...] = ()
    hooks: tuple[Hook | Capability, ...] = ()
    factory: AgentFactory | None = None  # a function of a program that creates the agent
    enforced: Mapping[str, Any] = field(default_factory=dict)  # options of the server that its own cannot remove

    @property
    def name(self) -> str:
        return str(self.options.get("name", self.id))

    @property
    def has_auto_model(self) -> bool:
        """True if wick selects the model."""
        return self.factory is None and self.model is None and self.options.get("model", "auto") == "auto"


class InlineSource(YamlSource):
    """Config data that was not read from a file, so that errors have no line numbers."""

    __slots__ = ()

    def wrong(self, at: KeyPath, what: str) -> ConfigError:
        return ConfigError(f"{self.name}: {what}")


def check_id(id: str) -> None:
    """Raise a ConfigError if this is not a valid agent id."""
    if id in RESERVED:
        raise ConfigError(f"{id!r} cannot be the id of an agent, as it has a meaning in addresses; choose another")
    if not _ID.fullmatch(id):
        raise ConfigError(f"an agent's id has letters, digits, `_`, `.` and `-`, at most 64; not {id[:100]!r}")


def is_valid_id(id: str) -> bool:
    """Return True if this is a valid agent id."""
    return id not in RESERVED and _ID.fullmatch(id) is not None


def templates_from_config(config: Config) -> dict[str, AgentTemplate]:
    """Return the templates of a config file, by agent id."""
    templates = {}
    for id, part in config.agents.items():
        check_id(id)
        shares = "budget" in part.options and not part.is_own("budget")
        version = _options_digest(part.options)
        templates[id] = AgentTemplate(
            part.id, "file", part.options, part.file.folder, shares_budget=shares, version=version
        )
    return templates


def template_from_code(id: str, given: Mapping[str, Any] | Agent | AgentFactory, folder: Path) -> AgentTemplate:
    """Return the template of a registered agent: options, an Agent, or a function that creates one for a user."""
    check_id(id)
    version = f"code-{next(_numbers)}"
    if isinstance(given, Agent):
        if any(isinstance(hook.owner, Sessions) for hook in given.hooks):
            raise ConfigError(
                f"the agent {id!r} has its own Sessions; leave them out, since the server stores its threads"
            )
        if given.deps_factory is None and (problem := given.find_deps_problem()):
            raise ConfigError(f"the agent {id!r} cannot run in a server, which has no deps to pass: {problem}")
        return AgentTemplate(id, "code", {"name": given.name}, folder, version=version, factory=lambda user: given)
    if not isinstance(given, Mapping):
        return AgentTemplate(id, "code", {}, folder, version=version, factory=given)
    options, model = dict(given), given.get("model")
    objects: dict[str, Any] = {}
    if model is not None and not isinstance(model, str | Mapping):
        objects["model"] = options.pop("model")
    options["tools"], tools = _split_objects(given.get("tools", ()))
    options["hooks"], hooks = _split_objects(given.get("hooks", ()))
    objects |= {"tools": tuple(one if isinstance(one, Tool) else tool(one) for one in tools), "hooks": tuple(hooks)}
    return AgentTemplate(id, "code", validate_options(id, options, folder).options, folder, version=version, **objects)


def template_from_request(id: str, options: Mapping[str, Any], folder: Path, owner: str) -> AgentTemplate:
    """Return the template of a posted agent. Its options are checked on creation and on every build."""
    return AgentTemplate(id, "created", dict(options), folder, owner=owner, version=_options_digest(options))


def validate_options(
    id: str, options: Mapping[str, Any], folder: Path, over: Mapping[str, Any] | None = None
) -> AgentConfig:
    """Return the validated options of an agent, with `over` merged over them; raise a ConfigError if not valid."""
    config_data: dict[str, Any] = {"agents": {id: dict(over or {})}, "defaults": dict(options)}
    return Config(folder / "agents.yaml", InlineSource(f"the agent {id!r}", config_data, {(): 1})).agents[id]


def find_field_problems(template: AgentTemplate) -> dict[str, str]:
    """Return the messages of the options that are not valid, by their path. Each key is checked alone."""
    problems = {}
    for key, value in template.options.items():
        try:
            validate_options(template.id, {key: value}, template.folder)
        except ConfigLineError as error:
            problems[".".join(map(str, error.at[1:])) or key] = error.what
        except ConfigError as error:
            problems[key] = str(error)
    return problems


def add_enforced(options: Mapping[str, Any], enforced: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with those that the server enforces: rules and hooks are added, other values replaced."""
    merged = merge_options(options, enforced)
    if isinstance(own := options.get("hooks"), list) and isinstance(more := enforced.get("hooks"), list):
        merged["hooks"] = [*more, *own]
    elif own and enforced.get("hooks"):
        raise ConfigError("hooks: the server enforces hooks as a list; write the hooks of this agent as a list, too")
    return merged


def rebuild_config(
    config: AgentConfig, options: Mapping[str, Any], order: Sequence[str], given: Mapping[str, Any]
) -> AgentConfig:
    """Return a config with other options, reordered rings, and the `given` capabilities among or around them."""
    rings, known = sort_rings(order), {ring.key for ring in RINGS}
    outside = [CapabilityRing(key, shared=True) for key in given if key not in known]
    file = AgentsFile(config.file.source, config.file.folder, (*outside, *rings), None, dict(given))
    return AgentConfig(file, config.id, options, ((),))


def sort_rings(order: Sequence[str]) -> list[CapabilityRing]:
    """Return the rings with the named ones in this order; the others keep their positions."""
    named = iter([next(ring for ring in RINGS if ring.key == key) for key in order])
    return [next(named) if ring.key in order else ring for ring in RINGS]


def _split_objects(given: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Split names and mappings from objects."""
    items = [*given]
    words = [item for item in items if isinstance(item, str | Mapping)]
    return words, [item for item in items if not isinstance(item, str | Mapping)]


def _options_digest(options: Mapping[str, Any]) -> str:
    return digest(canonical_json(options))
