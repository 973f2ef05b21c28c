"""`wick skills`, as a process: on this machine, and at a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.forked_command import ForkedWick
from cli.hosts import HostCommand


def test_the_skills_of_an_agent(place: HostCommand) -> None:
    if place.server is None:
        place.wick.write("agents.yaml", "model: demo\nbackend: {type: local, workdir: work}\nskills: true\n")
        more = ["--agent", "agents.yaml"]
    else:
        more = []
    names = {row["name"] for row in place.json("skills", "list", *more)}
    assert {"slides", "code-review", "research"} <= names
    table = place("skills", "list", *more).out
    assert table.splitlines()[0].split() == ["skill", "description", "path"] and "slides" in table


def test_a_new_skill_is_one_of_the_folder(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    empty = here.wick.as_new_process("skills", "list")
    assert (empty.code, empty.out) == (0, "") and "wick skills new NAME" in empty.err
    made = here("skills", "new", "write-haiku", "--description", 'Write a "haiku": three lines.')
    assert made.code == 0, made.err
    path = here.wick.folder / made.out.strip()
    assert path == here.wick.folder / ".wick" / "skills" / "write-haiku" / "SKILL.md" and path.is_file()
    (row,) = here.json("skills", "list")
    assert (row["name"], row["description"]) == ("write-haiku", 'Write a "haiku": three lines.')
    assert len(here.json("skills", "list", "--shipped")) == 6


def test_an_invalid_skill_is_shown_with_the_reason(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    here.wick.write(".wick/skills/haiku/SKILL.md", "no front matter")
    (row,) = here.json("skills", "list")
    assert (row["name"], row["enabled"]) == ("haiku", False) and "front matter" in row["problem"]
    assert "broken" in here("skills", "list").out


def test_nothing_is_replaced_and_a_bad_name_is_a_sentence(tmp_path: Path) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    assert here("skills", "new", "mine").code == 0
    again = here("skills", "new", "mine")
    assert again.code == 2 and "already exists; choose another name" in again.err


@pytest.mark.parametrize(
    "words", [["a b"], ["../up"], ["x" * 100], ["mine", "--description", ""], [], ["mine", "--folder", "/nowhere"]]
)
def test_a_mistake_is_a_sentence_and_exits_with_2(tmp_path: Path, words: list[str]) -> None:
    here = HostCommand(ForkedWick(tmp_path))
    done = here("skills", "new", *words)
    assert done.code == 2 and "Error: " in done.err
    assert not (here.wick.folder / ".wick" / "skills").exists()
