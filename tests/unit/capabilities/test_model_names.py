"""Models of capabilities by name: the same names as those of agents, looked up when they are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kit import thread_entries
from wick import Agent, Scripted, Thread
from wick.capabilities._model_names import check_model
from wick.capabilities.critique import Critique
from wick.capabilities.fallback import Fallback
from wick.capabilities.summarization import Summarization
from wick.config import load
from wick.errors import ConfigError, ModelError

NAMES: list[Any] = ["demo", {"provider": "demo"}]


@pytest.mark.parametrize("name", NAMES)
async def test_a_critic_by_name(name: Any) -> None:
    thread = Thread()
    await Agent(Scripted("42."), hooks=[Critique(name)]).run("What?", thread=thread)
    assert [row["name"] for row in thread_entries(thread, "event")] == [
        "critique_failed"
    ]  # the demo model returns no JSON


@pytest.mark.parametrize("name", NAMES)
async def test_a_summary_by_a_model_with_a_name(name: Any) -> None:
    thread = Thread()
    agent = Agent(Scripted("one " * 400, "two"), hooks=[Summarization(4_000, threshold=300, model=name)])
    await agent.run("Hello " * 100, thread=thread)
    await agent.run("Again", thread=thread)
    assert "two" in thread.messages[-1].text


@pytest.mark.parametrize("make", [lambda n: Critique(n), lambda n: Fallback(n), lambda n: Summarization(model=n)])
def test_names_are_resolved_lazily(make: Any) -> None:
    make("no-such-provider:model")
    with pytest.raises(ConfigError, match="takes a model, or the name of one"):
        make(object())


def test_a_class_is_no_model() -> None:
    with pytest.raises(ConfigError, match="takes a model"):
        check_model(Scripted, "x")


async def test_names_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "agents.yaml"
    file.write_text("model: demo\nfallback: [demo]\ncritique: {model: demo}\nsummarization: {model: demo}\n")
    config = load(file)
    try:
        agent = config.agents["default"].agent()
        assert {"fallback", "critique", "summarization"} <= {part.name for part in agent.capabilities}
        assert (await agent.run("Hello")).text
    finally:
        await config.close()


async def test_a_run_resolves_a_name_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    real = Agent.__init__

    def counted(self: Agent, model: Any, **options: Any) -> None:
        made.append(model)
        real(self, model, **options)

    agent = Agent(Scripted(ModelError("down"), ModelError("down")), hooks=[Fallback("demo")])
    monkeypatch.setattr(Agent, "__init__", counted)
    await agent.run("Hello")
    await agent.run("Hello")
    assert made == ["demo", "demo"]
