"""Notes that an agent keeps with its conversation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import tool_calls_reply, tool_results
from wick import Agent, Block, Result, Scripted, Thread, ToolCall, ToolUse, guard
from wick.capabilities.metadata import Metadata
from wick.capabilities.permissions import Permissions
from wick.errors import ConfigError


async def use(*wanted: tuple[str, dict[str, Any]], thread: Thread | None = None, **options: Any) -> Result:
    """Use these tools one after the other; return the results."""
    made = [tool_calls_reply(ToolCall(str(number), name, args)) for number, (name, args) in enumerate(wanted)]
    agent = Agent(Scripted(*made, "done"), hooks=[Metadata(**options)])
    return await agent.run("go", thread=thread)


def write(key: str, value: Any) -> tuple[str, dict[str, Any]]:
    return "metadata_write", {"key": key, "value": value}


async def test_written_values_are_readable_and_stored_with_the_thread() -> None:
    thread = Thread()
    value = {"city": "Zürich", "tries": [1, 2]}
    result = await use(write("trip", value), ("metadata_read", {"key": "trip"}), thread=thread)
    assert json.loads(tool_results(result)[1]) == {"key": "trip", "value": value}
    assert thread.values["metadata"] == {"trip": value}
    later = await use(("metadata_read", {"key": "trip"}), thread=Thread.from_json(thread.to_json()))
    assert json.loads(tool_results(later)[0])["value"] == value


async def test_the_list_has_keys_and_value_prefixes() -> None:
    result = await use(write("a", 1), write("b", "x" * 500), ("metadata_list", {}))
    listed = json.loads(tool_results(result)[2])
    assert listed["a"] == "1"
    assert listed["b"].startswith('"xxx') and len(listed["b"]) < 100
    assert tool_results(await use(("metadata_list", {}))) == ["{}"]


async def test_null_removes_a_key() -> None:
    thread = Thread()
    result = await use(write("a", 1), write("a", None), write("a", None), thread=thread)
    assert [json.loads(text).get("removed") for text in tool_results(result)] == [None, True, False]
    assert thread.values["metadata"] == {}


async def test_a_missing_key_is_an_error() -> None:
    result = await use(write("a", 1), ("metadata_read", {"key": "b"}))
    assert tool_results(result)[1] == "there is no key 'b'; the keys are a"


@pytest.mark.parametrize("key", ["", "x" * 101, "two\nlines"])
async def test_a_key_that_cannot_be_one(key: str) -> None:
    thread = Thread()
    assert "a key is a text of 1 to 100 characters" in tool_results(await use(write(key, 1), thread=thread))[0]
    assert "metadata" not in thread.values


async def test_caps() -> None:
    thread = Thread()
    result = await use(
        write("a", "x" * 98), write("a", "x" * 99), write("b", 1), write("c", 1), write("a", 2),
        thread=thread, keys=2, value_bytes=100,
    )  # fmt: skip
    told = tool_results(result)
    assert told[1] == "the value has 101 bytes, and 100 are the most; write less"
    assert told[3] == "there are 2 keys, which is the most; remove one by writing null"
    assert thread.values["metadata"] == {"a": 2, "b": 1}


async def test_the_total_size_is_bounded() -> None:
    thread = Thread()
    result = await use(write("a", "x" * 50), write("b", "x" * 50), write("a", 1), thread=thread, total_bytes=100)
    assert tool_results(result)[1] == "all values together may have 100 bytes; remove one by writing null"
    assert thread.values["metadata"] == {"a": 1}


async def test_side_by_side_nothing_is_lost() -> None:
    thread = Thread()
    wanted = [ToolCall(str(number), "metadata_write", {"key": f"k{number}", "value": number}) for number in range(20)]
    await Agent(Scripted(tool_calls_reply(*wanted), "done"), hooks=[Metadata()]).run("go", thread=thread)
    assert len(thread.values["metadata"]) == 20


async def test_together_with_permissions_and_a_guard() -> None:
    @guard(ToolUse, match="metadata_write")
    def no_secrets(use: ToolUse) -> Block | None:
        return Block("not that") if use.args["key"] == "secret" else None

    model = Scripted(
        tool_calls_reply(
            ToolCall("1", "metadata_write", {"key": "secret", "value": 1}), ToolCall("2", "metadata_list", {})
        ),
        "done",
    )
    result = await Agent(model, hooks=[Permissions(mode="plan"), Metadata(), no_secrets]).run("go")
    refused, listed = tool_results(result)
    assert refused and refused != listed
    assert listed == "{}"  # a plan may read


@pytest.mark.parametrize("options", [{"keys": 0}, {"keys": True}, {"value_bytes": "many"}])
def test_invalid_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give a whole number of at least 1"):
        Metadata(**options)
