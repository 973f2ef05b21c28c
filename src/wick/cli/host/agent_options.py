"""Selection of an agent: one from an agents.yaml, or the default agent of a folder, with overrides."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from wick._internal.factory_options import suggest_key
from wick._internal.safe_yaml import parse
from wick.agent import Agent
from wick.capabilities.executables import Executables
from wick.cli.completion import AGENTS_FILE, complete_agent_specs, list_agent_names
from wick.cli.host.skipped_hooks import HOME, list_skipped_hooks
from wick.config import DEFAULT, Config, load
from wick.config.selection import add_rules, find_permissions, split_agent_spec
from wick.errors import ConfigError, WorkspaceError
from wick.hook_programs.trust import expand_home
from wick.models import check_model, resolve
from wick.permissions.rules import parse_rule
from wick.protocols import Backend

HARMLESS_TOOLS = (
    *("Read", "LS", "Glob", "Grep", "calculate", "datetime"),
    *("write_todos", "update_todo", "ask_user", "load_skill"),
)
PROMPT = """\
You are wick, an assistant in a terminal. You work in the user's folder, with its files and a shell.
Do the task, verify the result, and report it plainly and briefly. Answer in Markdown. If something cannot be done, or
the user denies it, say so."""
NO_WORKSPACE_PROMPT = """\
You are wick, an assistant in a terminal. You have no files and no shell here.
Answer plainly and briefly, in Markdown. If a task needs files or commands, say that wick must be started in a project
folder."""

AGENT = click.option(
    "--agent",
    metavar="FILE[:ID]",
    help="An agent of an agents.yaml; the default agent of the folder by default.",
    shell_complete=complete_agent_specs,
)
FOLDER = click.option(
    "--folder", default=".", type=click.Path(exists=True, file_okay=False), help="The folder to work in."
)


@dataclass(frozen=True, slots=True)
class AgentOverrides:
    """Changes of an agent's options from the command line; empty values change nothing."""

    model: str = ""
    steps: int | None = None
    dollars: float | None = None
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    hooks: bool = True  # False: load no hook programs and no recipes
    claude: bool = False  # True: use the settings of Claude Code

    def apply_to(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of an agent with these changes."""
        changed = dict(options)
        if self.model:
            check_model(self.model)  # here, as an error in the agent would name a line of its file
            changed["model"] = self.model
        if self.steps is not None:
            changed["limits"] = {**_as_dict(options.get("limits")), "steps": self.steps}
        if self.dollars is not None:
            changed["budget"] = {**_as_dict(options.get("budget")), "dollars": self.dollars}
        for text in (*self.allow, *self.deny):
            parse_rule("allow", text)  # validate each rule by itself, for a precise error message
        if self.claude:
            changed["claude_settings"] = options.get("claude_settings") or True
        if self.allow or self.deny:
            changed["permissions"] = add_rules(find_permissions(changed), allow=self.allow, deny=self.deny)
        if not self.hooks:
            changed |= {"executables": False, "recipes": False}
            if isinstance(changed.get("hooks"), Mapping):  # a mapping has programs by event; a list has Python hooks
                del changed["hooks"]
        return changed


class SelectedAgent:
    """The agent selected by a command, with the config that owns its resources."""

    def __init__(self, agent: str | None, folder: str, overrides: AgentOverrides | None = None) -> None:
        self.no_workspace = ""  # the reason why the default agent works without a workspace
        self._is_default = not agent
        path, id = split_agent_spec(agent) if agent else (Path(), "")
        if agent and not id and not path.exists():
            file = Path(folder) / AGENTS_FILE
            hint = "--agent takes the path of an agents.yaml, as in agents.yaml or agents.yaml:coder"
            if agent in list_agent_names(str(file)):
                hint = f"did you mean {file}:{agent}?"
            raise ConfigError(f"there is no file {path}; {hint}")
        self.config = load(path) if agent else build_default_config(Path(folder))
        agents = self.config.agents
        wanted = id or (next(iter(agents)) if len(agents) == 1 else DEFAULT)
        if wanted not in agents:
            path = self.config.path
            if id:
                raise ConfigError(f"{path} has no agent {id!r}; {suggest_key(id, agents, 'its agents are')}")
            raise ConfigError(f"{path} has several agents; choose one, as in {path}:{next(iter(agents))}")
        self.part = agents[wanted]
        overrides = overrides or AgentOverrides()
        self.skipped_hooks = [] if overrides.hooks else list_skipped_hooks(self.part.options, self.part.file.folder)
        self.part.options = overrides.apply_to(self.part.options)

    def build(self) -> Agent:
        """Return the agent; later calls return the same one.

        In a folder that cannot be a workspace, such as the home folder, the default agent has no files and commands.
        """
        try:
            return self.part.agent()
        except ConfigError as error:
            if not self._is_default or not isinstance(error.__cause__, WorkspaceError):
                raise
            self.no_workspace = str(error.__cause__).partition(";")[0]
        kept = {key: value for key, value in self.part.options.items() if key not in ("backend", "skills", "memory")}
        self.part.options = {**kept, "system_prompt": NO_WORKSPACE_PROMPT}
        return self.part.agent()

    def rebuild(self, *, model: str = "", backend: Backend | None = None) -> Agent:
        """Build the agent again from its current options, with this model and backend."""
        wanted = model or self.part.options.get("model", "auto")
        agent = self.part.agent(model=resolve(wanted), backend=backend)
        self.part.options = {**self.part.options, "model": wanted}
        return agent

    @property
    def executables(self) -> list[Executables]:
        """Return its hook programs; build the agent first."""
        return [part for part in self.part.resources if isinstance(part, Executables)]

    async def close(self) -> None:
        await self.config.close()


def build_default_config(folder: Path) -> Config:
    """Return the config of a folder's default agent.

    It has the files, commands, hooks, recipes and skills of the folder, and its AGENTS.md. It asks before it changes
    anything.
    """
    homes = [folder.absolute() / ".wick", *filter(None, [expand_home(HOME)])]
    options = {
        "name": "wick",
        "system_prompt": PROMPT,
        "backend": {"type": "local", "workdir": str(folder.absolute())},
        "executables": {"folder": str(folder.absolute()), "claude": True},
        "recipes": {"dirs": [str(home / "recipes") for home in homes]},
        "skills": {"paths": [".wick/skills"]},  # skills from elsewhere would be copied into the folder
        "memory": {"paths": ["AGENTS.md"]},
        "builtins": ["calculate", "datetime"],
        "ask_user": True,
        "permissions": {"allow": [*HARMLESS_TOOLS]},
    }
    text = json.dumps(options).replace("${", "$${")  # the name of a folder may contain ${
    return Config(folder.absolute() / "the default agent", parse(text, "the default agent", os.environ))


def _as_dict(value: Any) -> dict[str, Any]:
    return {**value} if isinstance(value, Mapping) else {}
