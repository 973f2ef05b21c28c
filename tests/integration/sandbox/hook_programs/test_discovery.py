"""Discovery of programs: directories, precedence, names, queries and trust."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from kit import execute, tool_agent, tool_result
from programs import Programs
from wick import constants
from wick.capabilities.executables import Executables
from wick.errors import ConfigError

TURN, CALL, STOP = "turn_end", "before_tool_call", "agent_stop"


class Places:
    """A project, a home, and plugins of both."""

    def __init__(self, programs: Programs, brand: str = "wick") -> None:
        self.programs, self.brand = programs, brand
        self.project, self.home = programs.folder / "project", programs.folder / "home"
        self.project.mkdir()
        self.local, self.own = self.project / f".{brand}" / "hooks", self.home / "hooks"
        self.local_plugin = self.project / f".{brand}" / "plugins" / "acme@tools" / "hooks"
        self.own_plugin = self.home / "plugins" / "acme@more" / "hooks"

    def executables(self, **options: Any) -> Executables:
        options = {"dirs": (), "folder": self.project, "home": self.home, "brand": self.brand} | options
        return self.programs.executables(**options)

    def trusted(self, **options: Any) -> Executables:
        """The same with everything trusted that is there."""
        made = self.executables(**options)
        made.trust.trust([found.path for found in made.found])
        return self.executables(**options)


@pytest.fixture
def places(programs: Programs) -> Places:
    return Places(programs)


def names(executables: Executables) -> list[str]:
    return [found.name for found in executables.programs()]


def rows(executables: Executables) -> dict[str, tuple[str, str, str]]:
    return {row.name: (row.source, row.trust, row.event) for row in executables.listed()}


@pytest.mark.shows("kodelet", "discovery", "precedence")
@pytest.mark.shows("kodelet", "discovery", "prefix")
@pytest.mark.shows("kodelet", "discovery", "order")
def test_directories_are_ordered_and_plugins_prefixed(programs: Programs, places: Places) -> None:
    for path in (places.own_plugin, places.own, places.local_plugin, places.local, programs.path):
        programs.sh("b", TURN, path=path)
        programs.sh(f"a-{path.parent.name}-{path.parent.parent.name}", TURN, path=path)
    made = places.trusted(dirs=[{"dir": programs.path, "prefix": "team/"}])
    assert rows(made) == {
        f"team/a-{programs.folder.name}-{programs.folder.parent.name}": (str(programs.path), "trusted", TURN),
        "team/b": (str(programs.path), "trusted", TURN),
        "a-.wick-project": (".wick/hooks", "trusted", TURN),
        "b": (".wick/hooks", "trusted", TURN),
        "acme/tools/a-acme@tools-plugins": (".wick/plugins/acme@tools", "trusted", TURN),
        "acme/tools/b": (".wick/plugins/acme@tools", "trusted", TURN),
        f"a-home-{programs.folder.name}": (f"{places.home}/hooks", "trusted", TURN),
        "acme/more/a-acme@more-plugins": (f"{places.home}/plugins/acme@more", "trusted", TURN),
        "acme/more/b": (f"{places.home}/plugins/acme@more", "trusted", TURN),
    }
    assert names(made) == [row.name for row in made.listed()]


@pytest.mark.shows("kodelet", "discovery", "shadowing")
def test_a_name_that_is_loaded_hides_the_same_name_further_on(programs: Programs, places: Places) -> None:
    programs.sh("check", CALL, path=places.local)
    programs.sh("check", TURN, path=places.own)
    assert [(found.name, found.points) for found in places.trusted().programs()] == [("check", (CALL,))]


@pytest.mark.shows("kodelet", "discovery", "shadowing")
@pytest.mark.parametrize("wrong", ["broken", "untrusted"])
def test_a_name_that_is_not_loaded_hides_nothing(programs: Programs, places: Places, wrong: str) -> None:
    programs.sh("check", CALL if wrong == "untrusted" else "no_such_event", path=places.local)
    programs.sh("check", TURN, path=places.own)
    made = places.executables() if wrong == "untrusted" else places.trusted()
    assert [(found.source, found.points) for found in made.programs()] == [(f"{places.home}/hooks", (TURN,))]
    assert len(made.found) == 2


@pytest.mark.shows("kodelet", "discovery", "disable")
@pytest.mark.shows("kodelet", "discovery", "execute-bit")
def test_non_programs_are_ignored(programs: Programs) -> None:
    programs.sh("good", TURN)
    programs.sh("off.disable", TURN)
    programs.sh("plain", TURN).chmod(0o644)
    (programs.path / "folder").mkdir()
    (programs.path / "link").symlink_to("nowhere")
    assert [found.name for found in programs.executables().found] == ["good"]


@pytest.mark.shows("kodelet", "discovery", "query-timeout")
def test_a_program_whose_query_times_out_is_broken(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(constants, "HOOK_TYPE_SECONDS", 5)  # the other one has to be faster, on any machine
    programs.write("slow", "#!/bin/sh\nsleep 600\n")
    programs.sh("good", TURN)
    made = programs.executables()
    assert names(made) == ["good"]
    (row,) = [row for row in made.listed() if row.name == "slow"]
    assert row.problem == "does not declare its events: it did not answer within 5 s" and row.point == ""
    assert caplog.records[0].levelno == logging.ERROR and "the hook program slow" in caplog.text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("exit 1", "ended with exit code 1"),
        ("echo lost >&2; exit 1", "ended with exit code 1: lost"),
        ("echo on_fire", 'answered with "on_fire"'),
        ("true", 'answered with ""'),
        ("printf '{'", "answered with something that is not JSON"),
        ("echo '{\"points\": 1}'", "answered with a JSON number in 'points'"),
        ("echo '{\"points\": []}'", "answered without points"),
        ('echo \'{"points": ["turn_end"], "protocol": "smoke"}\'', "answered with the protocol 'smoke'"),
        ('echo \'{"points": ["turn_end"], "colour": 1}\'', "answered with the field 'colour'"),
        ("echo '{\"points\": [1]}'", "answered with points that are not names"),
        ("head -c 5000000 /dev/zero", "printed more than 1 MB"),
        ("kill -9 $$", "was ended by SIGKILL"),
    ],
)
def test_a_program_without_valid_query_answer_is_listed_as_broken(programs: Programs, text: str, problem: str) -> None:
    programs.write("odd", f"#!/bin/sh\n{text}\n")
    made = programs.executables()
    assert made.hooks() == [] and made.programs() == []
    (row,) = made.listed()
    assert row.problem.startswith("does not declare its events: it ") and problem in row.problem


@pytest.mark.shows("kodelet", "discovery", "last-known-type")
async def test_a_program_whose_query_fails_later_keeps_its_hooks_and_denies(programs: Programs) -> None:
    programs.sh("check", CALL)
    programs.executables()
    programs.write("check", "#!/bin/sh\nexit 1\n")
    made = programs.executables()
    assert rows(made) == {"check": (str(programs.path), "trusted", CALL)}
    told = tool_result(await tool_agent(execute, made, args={"command": "ls"}).run("go"))
    assert told == "the hook program check does not declare its events: it ended with exit code 1, so it has not agreed"


def test_points_have_many_names(programs: Programs) -> None:
    for name in (TURN, CALL, "guard_tool_use", "after_model_call", "pre_tool_use", "should_continue"):
        programs.sh(name, name)
    programs.sh("json", json.dumps({"points": ["before_run", "after_run"], "protocol": "run"}))
    made = programs.executables()
    assert {row.name: row.point for row in made.listed() if row.name != "json"} == {
        TURN: "after_step",
        CALL: "before_tool_use",
        "guard_tool_use": "guard_tool_use",
        "after_model_call": "after_model_call",
        "pre_tool_use": "before_tool_use",
        "should_continue": "after_step",
    }
    assert [row.point for row in made.listed() if row.name == "json"] == ["before_run", "after_run"]


def test_no_program_of_an_untrusted_folder_runs(programs: Programs, places: Places) -> None:
    flag = programs.folder / "ran"
    for path in (places.local, places.local_plugin, places.own_plugin):
        programs.write("evil", f"#!/bin/sh\ntouch {flag}\necho {CALL}\n", path)
    made = places.executables()
    assert not flag.exists() and made.hooks() == []
    assert [row.trust for row in made.listed()] == ["untrusted"] * 3
    places.trusted()
    assert flag.exists()


def test_the_users_own_programs_need_no_trust(programs: Programs, places: Places) -> None:
    programs.sh("mine", TURN, path=places.own)
    assert rows(places.executables()) == {"mine": (f"{places.home}/hooks", "trusted", TURN)}


async def test_a_changed_trusted_program_keeps_its_hooks_and_denies(programs: Programs, places: Places) -> None:
    flag = programs.folder / "ran"
    program = programs.sh("check", CALL, path=places.local)
    places.trusted()
    program.write_text(f"#!/bin/sh\ntouch {flag}\n")
    made = places.executables()
    assert rows(made) == {"check": (".wick/hooks", "changed", CALL)}
    told = tool_result(await tool_agent(execute, made, args={"command": "ls"}).run("go"))
    assert told == "the hook program check was changed after it was trusted, so it has not agreed"
    assert not flag.exists()


def test_another_brand_has_other_folders(programs: Programs) -> None:
    places = Places(programs, "kodelet")
    programs.sh("theirs", TURN, path=places.local)
    programs.sh("ours", TURN, path=places.project / ".wick" / "hooks")
    assert names(places.trusted()) == ["theirs"]


def test_without_anything_configured_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("something was run")

    monkeypatch.setattr("wick.hook_programs.discovery.run_blocking", never)
    monkeypatch.setattr("wick.hook_programs.runner.get_host_daemon", never)
    for made in (Executables(), Executables([tmp_path / "no"], folder=tmp_path, home=tmp_path, trust=tmp_path / "t")):
        assert made.hooks() == [] and made.tools() == [] and made.listed() == [] and made.programs() == []
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "dirs", [[1], [{"path": "x"}], [{"dir": "x", "colour": 1}], [{"dir": "x", "prefix": 1}], [{"dir": ""}]]
)
def test_directories_are_paths_or_maps(dirs: Any) -> None:
    with pytest.raises(ConfigError, match="director|prefix"):
        Executables(dirs)


def test_a_directory_with_very_many_files_is_refused(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HOOK_FILES", 2)
    for name in "abc":
        programs.sh(name, TURN)
    with pytest.raises(ConfigError, match="more than 2 files"):
        programs.executables()


def test_an_unwritable_trust_file_is_not_fatal(programs: Programs, caplog: pytest.LogCaptureFixture) -> None:
    programs.sh("good", TURN)
    made = programs.executables(trust="/proc/no/trust.json")
    assert names(made) == ["good"] and "cannot be stored" in caplog.text


LOADS = '[ "$1" = hook ] && echo before_tool_call && exit; cat >/dev/null; . "$(dirname "$0")/lib"\n'


async def test_a_program_is_trusted_together_with_its_folder(programs: Programs, places: Places) -> None:
    programs.write("check", f"#!/bin/sh\n{LOADS}", places.local)
    lib = places.local / "lib"
    lib.write_text("exit 0\n")
    made = places.executables()
    assert made.untrusted() == [places.local / "check", lib]
    made.trust.trust(made.untrusted())
    made = places.executables()
    assert tool_result(await tool_agent(execute, made, args={"command": "ls"}).run("go")) == "ran ls"
    lib.write_text(f"touch '{programs.folder}/ran'\n")
    for again in (made, places.executables()):  # one with a cache, and one without
        told = tool_result(await tool_agent(execute, again, args={"command": "ls"}).run("go"))
        beside = "is beside lib, which was changed after it was trusted"
        assert told == f"the hook program check {beside}, so it has not agreed"
    assert [row.trust for row in again.listed()] == ["changed"] and not (programs.folder / "ran").exists()


def test_python_bytecode_is_not_written_beside_a_program(programs: Programs, places: Places) -> None:
    programs.write("check", f"#!{sys.executable}\nimport lib\nprint('turn_end')\n", places.local)
    (places.local / "lib.py").write_text("")
    made = places.executables()
    made.trust.trust(made.untrusted())
    assert names(places.executables()) == ["check"] == names(places.executables())
    assert not (places.local / "__pycache__").exists()


@pytest.mark.parametrize("match", ["", "|"])
def test_a_match_that_names_nothing_is_a_broken_program(programs: Programs, match: str) -> None:
    programs.sh("check", json.dumps({"points": [CALL], "match": match}))
    (row,) = programs.executables().listed()
    assert "answered with a match that cannot be used" in row.problem and row.point == ""
