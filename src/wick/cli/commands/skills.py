"""`wick skills`: list the skills of an agent, and create one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from wick.api.conversions import make_skill_list
from wick.api.types import InvalidSkill
from wick.capabilities.skills.catalog import FILE, parse_skill, slugify
from wick.cli.command_group import CommandGroup
from wick.cli.host.agent_options import FOLDER
from wick.cli.host.open import HostOptions, call_host, with_host_options
from wick.cli.terminal.output import JSON, print_json, print_table, show_status
from wick.errors import ConfigError

SKILLS_FOLDER = ".wick/skills"  # below the working folder

SKILL = """\
---
name: {name}
description: {description}
---
# {title}

Describe the procedure step by step. The agent reads it when a task needs this skill.

1. …
2. …

Refer to other files of this folder, such as `reference.md` or `check.py`, by paths relative to it.
"""
DESCRIPTION = "Describe in one sentence the purpose of this skill and when to use it; the agent selects skills by it."


@click.group("skills", cls=CommandGroup)
def command() -> None:
    """List the skills of an agent, and create one."""


@command.command("list")
@with_host_options
@click.option("--shipped", is_flag=True, help="List the skills shipped with wick, which `skills: true` enables.")
@JSON
def list_skills(options: HostOptions, shipped: bool, as_json: bool) -> None:
    """List the skills of an agent; without --agent, those of this folder."""
    if shipped:
        from wick.capabilities.skills import Skills

        listed = make_skill_list(asyncio.run(Skills(shipped=True).discover()))
    else:
        with show_status("loading skills"):
            listed = call_host(options, lambda host: host.list_skills())
    broken = [problem for problem in listed.problems if problem.path.endswith(FILE)]
    if as_json:
        invalid = {"description": "", "enabled": False}
        return print_json(
            [skill.model_dump() | {"problem": ""} for skill in listed.skills]
            + [
                {"name": _folder_name(problem), "path": problem.path, "problem": problem.reason, **invalid}
                for problem in broken
            ]
        )
    rows = [(skill.name, "on" if skill.enabled else "off", skill.description, skill.path) for skill in listed.skills]
    rows += [(_folder_name(problem), "broken", problem.reason, problem.path) for problem in broken]
    print_table(("skill", "", "description", "path"), rows, nothing="no skills; create one with: wick skills new NAME")


def _folder_name(skill: InvalidSkill) -> str:
    return skill.path.rpartition("/")[0].rpartition("/")[2] or skill.path


@command.command()
@click.argument("name")
@click.option("--description", default=DESCRIPTION, help="The purpose of the skill, and when to use it.")
@FOLDER
def new(name: str, description: str, folder: str) -> None:
    """Write a skill template to .wick/skills of this folder, and print its path."""
    if slugify(name) != name:
        raise ConfigError(f"invalid name {name!r}; use letters, digits, `_`, `.` and `-`")
    title = name.replace("-", " ").replace("_", " ").capitalize()
    text = SKILL.format(name=json.dumps(name), description=json.dumps(description, ensure_ascii=False), title=title)
    parse_skill(text)  # raises if the skill would be invalid
    path = Path(folder) / SKILLS_FOLDER / name / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{path} already exists; choose another name") from None
    click.echo(str(path))
