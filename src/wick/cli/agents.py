"""Which agent a command is about: one of a file, or the one that a folder has without any."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from wick.agent import Agent
from wick.capabilities.executables import Executables
from wick.config import DEFAULT, Config, load
from wick.config_build import AgentConfig
from wick.config_schema import nearest
from wick.config_text import parse
from wick.decisions import Asker
from wick.errors import ConfigError
from wick.executables.trust import at_home

HOME = "~/.wick"
HARMLESS = ("Read", "LS", "Glob", "Grep", "calculate", "datetime", "write_todos", "update_todo")

AGENT = click.option("--agent", metavar="FILE[:ID]", help="An agent of an agents.yaml; without it, a plain one.")
FOLDER = click.option(
    "--folder", default=".", type=click.Path(exists=True, file_okay=False), help="The folder to work in."
)


class Chosen:
    """An agent that a command was given, and the file it is of, which ends what the agent has begun."""

    def __init__(self, agent: str | None, folder: str) -> None:
        path, id = _split(agent) if agent else (Path(), "")
        self.config = load(path) if agent else plain(Path(folder))
        self.part = _part(self.config, id)

    def built(self, *, model: str = "", ask: Asker | None = None, steps: int | None = None) -> Agent:
        """The agent, with another model, somebody to ask, and at most so many steps."""
        given = {"model": model} if model else {}
        limits = {"limits": _with_steps(self.part.options.get("limits"), steps)} if steps is not None else {}
        self.part.options = {**self.part.options, **given, **limits}
        return self.part.agent(ask=ask)

    @property
    def executables(self) -> list[Executables]:
        """The programs among its hooks, once it is built."""
        return [part for part in self.part.begun if isinstance(part, Executables)]

    async def close(self) -> None:
        await self.config.close()


def plain(folder: Path) -> Config:
    """The agent of a folder: its files and commands, its hooks and its recipes. It asks before it changes anything."""
    homes = [folder.absolute() / ".wick", *filter(None, [at_home(HOME)])]
    recipes = [str(home / "recipes") for home in homes]
    options = {
        "name": "wick",
        "backend": {"type": "local", "workdir": str(folder.absolute())},
        "executables": {"folder": str(folder.absolute()), "claude": True},
        "recipes": {"dirs": recipes},
        "builtins": ["calculate", "datetime"],
        "permissions": {"allow": [*HARMLESS]},
    }
    text = json.dumps(options).replace("${", "$${")  # a folder's name is not a variable
    return Config(folder.absolute() / "the plain agent", parse(text, "the plain agent", os.environ))


def _split(given: str) -> tuple[Path, str]:
    """`agents.yaml:coder` is the agent `coder` of the file `agents.yaml`."""
    path, colon, id = given.rpartition(":")
    return (Path(path), id) if colon and path and not Path(given).exists() else (Path(given), "")


def _part(config: Config, id: str) -> AgentConfig:
    wanted = id or (next(iter(config.agents)) if len(config.agents) == 1 else DEFAULT)
    if wanted in config.agents:
        return config.agents[wanted]
    if not id:
        raise ConfigError(
            f"{config.path} has several agents; say which, as in {config.path}:{next(iter(config.agents))}"
        )
    raise ConfigError(f"{config.path} has no agent {id!r}; {nearest(id, config.agents, 'its agents are')}")


def _with_steps(limits: Any, steps: int) -> dict[str, Any]:
    return {**(limits if isinstance(limits, dict) else {}), "steps": steps}
