"""The startup message has the model and the sandbox of commands, each once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from wick import Agent, Thread
from wick.backends.sandbox import selection
from wick.backends.sandbox.base import SandboxUnavailable
from wick.backends.state import State
from wick.backends.state_tree import InThread
from wick.models import resolve
from wick.protocols import Protection
from wick.server.service import Service, describe_auto, describe_protection
from wick.server.settings import load_settings
from wick.server.startup_message import hide_auto_choices

WEAK = Protection("weak", "landlock", "commands run under Landlock")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")


async def describe_server(folder: Path, agents: dict[str, Any]) -> dict[str, str]:
    service = Service(load_settings({"data": folder}), agents=agents)
    await service.start()
    try:
        return dict(await service.describe())
    finally:
        await service.stop()


async def test_the_choice_of_auto_is_shown_for_several_agents(tmp_path: Path) -> None:
    lines = await describe_server(tmp_path, {"writer": {}, "coder": {"model": "demo"}})
    assert lines["agents"] == "coder, writer"
    assert lines["model"].startswith("auto: offline demo model, as ANTHROPIC_API_KEY")


async def test_no_model_is_shown_for_several_agents_that_name_theirs(tmp_path: Path) -> None:
    assert "model" not in await describe_server(tmp_path, {"writer": Agent("demo"), "coder": {"model": "demo"}})


def test_an_invalid_address_of_ollama_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "a b")
    assert "OLLAMA_HOST must be like" in describe_auto()


def test_choices_of_auto_are_logged_outside_of_a_server_only(caplog: pytest.LogCaptureFixture) -> None:
    with hide_auto_choices():
        resolve("auto")
        logging.getLogger("wick").warning("another message")
    assert caplog.messages == ["another message"]
    resolve("auto")
    assert caplog.messages[1].startswith("auto: ")


def test_a_missing_bubblewrap_is_noted_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> Any:
        raise SandboxUnavailable("bubblewrap is not installed; install it with: apt install bubblewrap")

    monkeypatch.setitem(selection.SANDBOXES, "bubblewrap", find_none)
    assert describe_protection(WEAK)[1] == (
        "note",
        "bubblewrap confines commands better: bubblewrap is not installed; install it with: apt install bubblewrap",
    )
    strong = Protection("strong", "docker", "commands run in a container")
    assert describe_protection(strong) == [("protection", "commands run in a container")]


async def test_files_of_a_program_are_not_those_of_the_conversation() -> None:
    class Table(dict[str, Any]):
        pass

    class Acme(State):
        pass

    says = State(Table()).protection.says
    assert says.endswith("the files are in a mapping of the type Table; wick does not know where it stores them")
    assert describe_protection(State(Table()).protection) == [("protection", says)]
    for backend in (State(), State().of(Thread()), State(InThread(Thread()))):
        assert backend.protection.says.endswith("the files are data of the conversation")
    (_, note) = describe_protection(Acme().protection, Acme)
    assert note[0] == "note" and "Acme, which is not part of wick; wick does not check it" in note[1]
