"""`wick skills`: list the skills of an agent, and create one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click

from wick.api.conversions import make_skill_list
from wick.api.types import InvalidSkill, SkillList
from wick.capabilities.skills.catalog import FILE, parse_skill, slugify
from wick.cli.host.agent_options import FOLDER
from wick.cli.host.open import HostOptions, open_host, with_host_options
from wick.cli.terminal.output import JSON, print_json, print_table, show_status
from wick.errors import ConfigError

SKILLS_FOLDER = ".wick/skills"  # below the working folder

SKILL = """\
---
name: {name}
description: {description}
---
# {title}

Say here, step by step, how this is done: the agent reads it when a task calls for it.

1. …
2. …

Other files of this folder can be named, such as `reference.md` or `check.py`; paths begin at this folder.
"""
DESCRIPTION = "Say in one sentence what this is for, and when to use it; the agent decides by it."


@click.group("skills")
def command() -> None:
    """List the skills of an agent, and create one."""


@command.command("list")
@with_host_options
@click.option("--shipped", is_flag=True, help="The skills shipped with wick, which `skills: true` enables.")
@JSON
def list_skills(options: HostOptions, shipped: bool, as_json: bool) -> None:
    """List the skills of an agent; without --agent, those of this folder."""
    found = asyncio.run(_shipped_skills() if shipped else _fetch_skills(options))
    broken = [one for one in found.problems if one.path.endswith(FILE)]
    if as_json:
        invalid = {"description": "", "enabled": False}
        return print_json(
            [skill.model_dump() | {"problem": ""} for skill in found.skills]
            + [{"name": _folder_name(one), "path": one.path, "problem": one.reason, **invalid} for one in broken]
        )
    rows = [(one.name, "on" if one.enabled else "off", one.description, one.path) for one in found.skills]
    rows += [(_folder_name(one), "broken", one.reason, one.path) for one in broken]
    print_table(
        ("skill", "", "description", "path"), rows, nothing="there are no skills; make one with: wick skills new NAME"
    )


def _folder_name(skill: InvalidSkill) -> str:
    return skill.path.rpartition("/")[0].rpartition("/")[2] or skill.path


async def _fetch_skills(options: HostOptions) -> SkillList:
    with show_status("looking for skills"):
        async with open_host(options) as host:
            return await host.list_skills()


async def _shipped_skills() -> SkillList:
    from wick.capabilities.skills import Skills

    return make_skill_list(await Skills(shipped=True).discover())


@command.command()
@click.argument("name")
@click.option("--description", default=DESCRIPTION, help="What it is for, and when to use it.")
@FOLDER
def new(name: str, description: str, folder: str) -> None:
    """Write a skill template to .wick/skills of this folder, and print its path."""
    if slugify(name) != name:
        raise ConfigError(f"a skill's name has letters, digits, `_`, `.` and `-`, not {name!r}")
    title = name.replace("-", " ").replace("_", " ").capitalize()
    text = SKILL.format(name=json.dumps(name), description=json.dumps(description, ensure_ascii=False), title=title)
    parse_skill(text)  # raises if the skill would be invalid
    path = Path(folder) / SKILLS_FOLDER / name / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"there is a file {path} already; choose another name") from None
    click.echo(str(path))
