"""Which agent a command is about: one of a file, or the one that a folder has without any."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from wick._internal.safe_yaml import parse
from wick.agent import Agent
from wick.capabilities.executables import Executables
from wick.cli.completion import complete_agent_specs
from wick.config import DEFAULT, Config, load
from wick.config.builder import AgentConfig
from wick.config.options_schema import nearest
from wick.errors import ConfigError
from wick.hook_programs.trust import at_home
from wick.models import resolve
from wick.permissions.rules import rule
from wick.protocols import Backend

HOME = "~/.wick"
HARMLESS_TOOLS = (
    *("Read", "LS", "Glob", "Grep", "calculate", "datetime"),
    *("write_todos", "update_todo", "ask_user", "load_skill"),
)
ALLOW_ALL_MODE = "bypassPermissions"  # where no rule decides, nothing is said
PROMPT = """\
You are wick, an assistant in a terminal. You work in the user's folder, with its files and a shell.
Do what is asked, check what you did, and say plainly and briefly what you found. Answer in Markdown. When something
cannot be done, or the user says no to it, say so."""

AGENT = click.option(
    "--agent",
    metavar="FILE[:ID]",
    help="An agent of an agents.yaml; without it, a plain one.",
    shell_complete=complete_agent_specs,
)
FOLDER = click.option(
    "--folder", default=".", type=click.Path(exists=True, file_okay=False), help="The folder to work in."
)


@dataclass(frozen=True, slots=True)
class AgentOverrides:
    """What a command wants to be different about its agent; what is empty stays as it is."""

    model: str = ""
    steps: int | None = None
    dollars: float | None = None
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    hooks: bool = True  # False: neither hook programs nor recipes are loaded

    def apply_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an agent with these wishes."""
        found = dict(options)
        if self.model:
            found["model"] = self.model
        if self.steps is not None:
            found["limits"] = {**_as_dict(options.get("limits")), "steps": self.steps}
        if self.dollars is not None:
            found["budget"] = {**_as_dict(options.get("budget")), "dollars": self.dollars}
        for given in (*self.allow, *self.deny):
            rule("allow", given)  # says what is wrong with it, before it is one of many
        if self.allow or self.deny:
            found["permissions"] = add_rules(options.get("permissions"), allow=self.allow, deny=self.deny)
        if not self.hooks:
            found |= {"executables": False, "recipes": False}
            if isinstance(found.get("hooks"), Mapping):  # programs by their events; a list has Python's own hooks
                del found["hooks"]
        return found


class SelectedAgent:
    """An agent that a command was given, and the file it is of, which ends what the agent has begun."""

    def __init__(self, agent: str | None, folder: str, overrides: AgentOverrides | None = None) -> None:
        path, id = split_agent_spec(agent) if agent else (Path(), "")
        self.config = load(path) if agent else build_default_config(Path(folder))
        self.part = _select_agent(self.config, id)
        self.part.options = (overrides or AgentOverrides()).apply_to(self.part.options)

    def build(self) -> Agent:
        """The agent, the same each time."""
        return self.part.agent()

    def rebuild(self, *, model: str = "", backend: Backend | None = None) -> Agent:
        """The agent anew, as its options are now: with another model, and in the same place as before."""
        wanted = model or self.part.options.get("model", "auto")
        made = self.part.agent(model=resolve(wanted), backend=backend)
        self.part.options = {**self.part.options, "model": wanted}
        return made

    @property
    def executables(self) -> list[Executables]:
        """The programs among its hooks, once it is built."""
        return [part for part in self.part.begun if isinstance(part, Executables)]

    async def close(self) -> None:
        await self.config.close()


def build_default_config(folder: Path) -> Config:
    """The agent of a folder: its files and commands, its hooks, recipes and skills, what its AGENTS.md says.

    It asks before it changes anything.
    """
    homes = [folder.absolute() / ".wick", *filter(None, [at_home(HOME)])]
    options = {
        "name": "wick",
        "system_prompt": PROMPT,
        "backend": {"type": "local", "workdir": str(folder.absolute())},
        "executables": {"folder": str(folder.absolute()), "claude": True},
        "recipes": {"dirs": [str(home / "recipes") for home in homes]},
        "skills": {"paths": [".wick/skills"]},  # those of elsewhere would be copied into the folder
        "memory": {"paths": ["AGENTS.md"]},
        "builtins": ["calculate", "datetime"],
        "ask_user": True,
        "permissions": {"allow": [*HARMLESS_TOOLS]},
    }
    text = json.dumps(options).replace("${", "$${")  # a folder's name is not a variable
    return Config(folder.absolute() / "the plain agent", parse(text, "the plain agent", os.environ))


def split_agent_spec(given: str) -> tuple[Path, str]:
    """`agents.yaml:coder` is the agent `coder` of the file `agents.yaml`."""
    path, colon, id = given.rpartition(":")
    return (Path(path), id) if colon and path and not Path(given).exists() else (Path(given), "")


def add_rules(permissions: Any, **more: Sequence[Any]) -> dict[str, Any]:
    """Permissions with more rules, or grants; an agent that had none is not asked about the rest."""
    if permissions is None or permissions is False:
        permissions = {"mode": ALLOW_ALL_MODE}
    found = _as_dict(permissions)
    return {**found, **{type: [*found.get(type, ()), *rules] for type, rules in more.items() if rules}}


def _select_agent(config: Config, id: str) -> AgentConfig:
    wanted = id or (next(iter(config.agents)) if len(config.agents) == 1 else DEFAULT)
    if wanted in config.agents:
        return config.agents[wanted]
    if not id:
        raise ConfigError(
            f"{config.path} has several agents; say which, as in {config.path}:{next(iter(config.agents))}"
        )
    raise ConfigError(f"{config.path} has no agent {id!r}; {nearest(id, config.agents, 'its agents are')}")


def _as_dict(value: Any) -> dict[str, Any]:
    return {**value} if isinstance(value, Mapping) else {}
