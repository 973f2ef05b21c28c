"""One line for each run: user, tokens and cost."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kit import ScriptedUser, echo, tool_calls_reply
from wick import Agent, Ask, FunctionModel, Limits, Paused, Scripted, Thread, ToolCall, ToolUse, guard, tool
from wick.capabilities.usage_log import UsageLog
from wick.errors import ConfigError, ModelError
from wick.protocols import Request

SONNET = "anthropic:claude-sonnet-4-5"


@pytest.fixture(autouse=True)
def _capture_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "wick.usage")


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "wick.usage"]


async def test_a_run_is_one_line_with_all_its_tokens(caplog: pytest.LogCaptureFixture) -> None:
    model = Scripted(tool_calls_reply(ToolCall("1", "echo", {"text": "x" * 400})), "done" * 20, name=SONNET)
    agent = Agent(model, name="helper", tools=[echo], hooks=[UsageLog()])
    result = await agent.run("go" * 40, thread=Thread("th_1"), user="ada")
    (record,) = lines(caplog)
    assert record.levelno == logging.INFO
    assert (record.session_id, record.agent, record.user, record.outcome) == ("th_1", "helper", "ada", "completed")
    assert record.input_tokens == result.usage.input_tokens > 0
    assert record.output_tokens == result.usage.output_tokens > 0
    assert record.price == f"{result.price:f}"
    text = record.getMessage()
    assert text.startswith("generation complete: session_id=th_1 run_id=run_")
    assert f"input_tokens={result.usage.input_tokens} output_tokens={result.usage.output_tokens}" in text


async def test_an_unknown_price_is_none(caplog: pytest.LogCaptureFixture) -> None:
    await Agent(Scripted("hello"), hooks=[UsageLog()]).run("go")
    (record,) = lines(caplog)
    assert record.price is None
    assert record.seconds >= 0


async def test_children_are_counted_with_their_parent(caplog: pytest.LogCaptureFixture) -> None:
    child = Agent(Scripted("x" * 400), name="child")

    @tool
    async def delegate() -> str:
        return (await child.run("go")).text

    agent = Agent(Scripted(ToolCall("1", "delegate", {}), "ok"), tools=[delegate], hooks=[UsageLog()])
    await agent.run("go")
    (record,) = lines(caplog)
    assert record.output_tokens >= 100


async def test_a_run_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("no")), hooks=[UsageLog()]).run("go")
    assert [record.outcome for record in lines(caplog)] == ["failed"]


async def test_a_run_that_is_stopped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(
        Scripted(tool_calls_reply(ToolCall("1", "echo", {"text": "a"}))), tools=[echo], hooks=[Limits(1), UsageLog()]
    )
    await agent.run("go")
    assert [record.outcome for record in lines(caplog)] == ["stopped"]


async def test_a_run_that_is_cancelled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def never(request: Request) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    task = asyncio.create_task(Agent(FunctionModel(never), hooks=[UsageLog()]).run("go"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.outcome for record in lines(caplog)] == ["cancelled"]


async def test_a_waiting_run_is_logged_and_again_after_resume(caplog: pytest.LogCaptureFixture) -> None:
    @guard(ToolUse)
    def ask(use: ToolUse) -> Ask:
        return Ask("may it?")

    thread, user = Thread(), ScriptedUser(Paused("later"), True)
    model = Scripted(tool_calls_reply(ToolCall("1", "echo", {"text": "a"})), "done")
    agent = Agent(model, tools=[echo], hooks=[ask, UsageLog()], ask=user)
    await agent.run("go", thread=thread)
    await agent.run(thread=thread)
    assert [record.outcome for record in lines(caplog)] == ["interrupted", "completed"]


class Broken(logging.Logger):
    def log(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the disk is full")


async def test_a_logging_error_does_not_fail_the_run() -> None:
    result = await Agent(Scripted("hello"), hooks=[UsageLog(Broken("broken"))]).run("go")
    assert (result.text, result.outcome) == ("hello", "completed")


async def test_a_name_cannot_write_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    await Agent(Scripted("hello"), hooks=[UsageLog()]).run("go", user="eve\nuser=ada outcome=x")
    (record,) = lines(caplog)
    assert '\\nuser=ada outcome=x"' in record.getMessage() and "\n" not in record.getMessage()


async def test_another_logger_and_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "bills")
    for given in ("bills", logging.getLogger("bills")):
        await Agent(Scripted("hello"), hooks=[UsageLog(given, level="debug")]).run("go")
    found = [record.levelno for record in caplog.records if record.name == "bills"]
    assert found == [logging.DEBUG, logging.DEBUG]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"logger": 7}, "takes a logger or the name of one"),
        ({"level": "loud"}, "there is no such level"),
        ({"level": None}, "there is no such level"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        UsageLog(**options)
