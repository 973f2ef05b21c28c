"""Stored traces of the last runs: spans, their order, errors, and hook decisions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kit import collect_events, echo, echo_agent, hello_agent, tool_call, tool_calls_reply
from wick import (
    Agent,
    Ask,
    Block,
    FunctionModel,
    ModelCall,
    Run,
    Scripted,
    Thread,
    ToolCall,
    ToolUse,
    after,
    before,
    guard,
    tool,
)
from wick.capabilities.recorder import Recorder
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError, ModelError


def trace_of(thread: Thread | None) -> dict[str, Any]:
    """The one trace of a thread."""
    assert thread is not None
    (found,) = Recorder.traces(thread)
    return found


def flat(span: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each span as the path from its root."""
    here = (*path, span["name"])
    yield here
    for child in span["children"]:
        yield from flat(child, here)


def named(span: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = [span] if span["name"] == name else []
    return found + [inner for child in span["children"] for inner in named(child, name)]


async def test_the_tree_of_spans() -> None:
    result = await Agent(
        Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")), "done"),
        tools=[echo],
        name="parrot",
        hooks=[Recorder()],
    ).run("go")
    (root,) = trace_of(result.thread)["spans"]
    step = ("run", "step")
    inner = [(*step, "llm.call"), (*step, "tool.call"), (*step, "tool.call")]
    assert [*flat(root)] == [("run",), step, *inner, step, (*step, "llm.call")]
    assert root["attributes"]["gen_ai.agent.name"] == "parrot"
    assert root["attributes"]["outcome"] == "completed"
    uses = named(root, "tool.call")
    assert [use["attributes"]["tool_call_id"] for use in uses] == ["a", "b"]
    assert all(use["attributes"]["output_preview"] == "hi" for use in uses)
    for span in (root, *uses):
        assert span["ms"] >= 0
        assert span["start"] >= root["start"]


async def test_the_recorder_matches_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    result = await echo_agent(Recorder()).run("go")
    (root,) = trace_of(result.thread)["spans"]
    names = {
        "run": "invoke_agent agent",
        "step": "step",
        "llm.call": "chat scripted",
        "tool.call": "execute_tool echo",
    }
    for name, theirs in names.items():
        spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
        traced = [json.loads(json.dumps(dict(span.attributes or {}))) for span in spans if span.name == theirs]
        recorded = [span["attributes"] for span in named(root, name)]
        assert len(traced) == len(recorded) > 0
        for ours, other in zip(recorded, traced, strict=True):
            shared = {key: value for key, value in ours.items() if key.startswith("gen_ai.")}
            assert shared.items() <= other.items(), name


def test_the_recorder_needs_no_sdk() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from wick import Agent, Scripted
from wick.capabilities.recorder import Recorder
print(Recorder.traces(Agent(Scripted("hello"), hooks=[Recorder()]).run_sync("hi").thread)[0]["spans"][0]["name"])
"""
    source = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": source},
    )
    assert (done.stdout, done.stderr) == ("run\n", "")


async def test_every_hook_decision_is_recorded() -> None:
    @guard(ToolUse)
    def refuse(use: ToolUse) -> Block:
        return Block("not today")

    @before(ToolUse)
    def louder(use: ToolUse) -> None:
        use.args["text"] = "HI"

    @before(ModelCall)
    def look(call: ModelCall) -> None:
        """Decides nothing, and is recorded all the same."""

    result = await echo_agent(refuse, louder, look, Recorder()).run("go")
    (root,) = trace_of(result.thread)["spans"]
    (use,) = named(root, "tool.call")
    rows = {row["hook"]: row for row in use["why"]}
    assert {*rows} == {"refuse", "louder"}
    assert (rows["refuse"]["verdict"], rows["refuse"]["reason"]) == ("block", "not today")
    assert rows["louder"]["changed"] == {"text": ["hi", "HI"]}
    assert use["error"] == "not today"
    assert "look" in [row["hook"] for row in named(root, "llm.call")[0]["why"]]


async def test_a_question_and_its_answer_are_there() -> None:
    @guard(ToolUse)
    def ask(use: ToolUse) -> Ask:
        return Ask("May it?")

    result = await echo_agent(ask, Recorder(), ask=lambda question: True).run("go")
    (use,) = named(trace_of(result.thread)["spans"][0], "tool.call")
    assert [(row["hook"], row["verdict"]) for row in use["why"]] == [("ask", "ask"), ("user", "approved")]


async def test_a_recorded_value_is_an_event() -> None:
    @before(Run)
    def tell(run: Run) -> None:
        run.record("cache", hits=3)

    result = await hello_agent(tell, Recorder()).run("go")
    (root,) = trace_of(result.thread)["spans"]
    assert root["events"] == [{"name": "cache", "attributes": {"hits": 3}}]


async def test_output_removed_by_an_after_is_not_recorded() -> None:
    @after(ToolUse)
    def redact(use: ToolUse) -> None:
        use.result.output = use.result.output.replace("hunter2", "***")

    @tool
    def login() -> str:
        """Log in."""
        return "the password is hunter2"

    agent = Agent(Scripted(ToolCall("1", "login", {}), "done"), tools=[login], hooks=[Recorder(), redact])
    kept = json.dumps(trace_of((await agent.run("go")).thread))
    assert "***" in kept
    assert "hunter2" not in kept


async def test_a_call_that_cannot_be_made_has_a_span() -> None:
    result = await Agent(Scripted(ToolCall("1", "rm", {}), "done"), hooks=[Recorder()]).run("go")
    (use,) = named(trace_of(result.thread)["spans"][0], "tool.call")
    assert use["error"].startswith("there is no tool named 'rm'")


async def test_a_run_that_fails() -> None:
    async def broken(request: Any) -> str:
        raise ModelError("the server is on fire")

    thread = Thread()
    with pytest.raises(ModelError):
        await Agent(FunctionModel(broken), hooks=[Recorder()]).run("go", thread=thread)
    (root,) = trace_of(thread)["spans"]
    assert root["error"] == named(root, "llm.call")[0]["error"] == "ModelError: the server is on fire"
    assert named(root, "llm.call")[0]["attributes"]["message_count"] == 1


async def test_a_run_that_is_cancelled() -> None:
    started = asyncio.Event()

    async def slow(request: Any) -> str:
        started.set()
        await asyncio.sleep(60)
        return "never"

    thread = Thread()
    task = asyncio.create_task(Agent(FunctionModel(slow), hooks=[Recorder()]).run("go", thread=thread))
    await started.wait()
    task.cancel()
    await asyncio.wait((task,))
    (root,) = trace_of(thread)["spans"]
    assert [span["error"] for name in ("run", "step", "llm.call") for span in named(root, name)] == ["cancelled"] * 3
    assert root["ms"] is not None


async def test_child_spans_are_below_their_tool() -> None:
    child = Agent(Scripted(tool_calls_reply(tool_call()), "child done"), tools=[echo], name="child")

    @tool
    async def delegate() -> str:
        """Delegate the task."""
        return (await child.run("go")).text

    agent = Agent(Scripted(ToolCall("1", "delegate", {}), "done"), tools=[delegate], hooks=[Recorder()])
    (root,) = trace_of((await agent.run("go")).thread)["spans"]
    use = next(span for span in named(root, "tool.call") if span["attributes"]["tool_name"] == "delegate")
    (below,) = use["children"]
    assert below["attributes"]["gen_ai.agent.name"] == "child"
    assert [span["attributes"]["tool_name"] for span in named(below, "tool.call")] == ["echo"]
    assert len(named(root, "run")) == 2


@pytest.mark.parametrize("same", [True, False])
async def test_a_child_may_have_one_too(same: bool) -> None:
    mine = Recorder()
    kept = Thread()
    child = Agent(
        Scripted(tool_calls_reply(tool_call()), "child done"), tools=[echo], hooks=[mine if same else Recorder()]
    )

    @tool
    async def delegate() -> str:
        """Delegate the task."""
        return (await child.run("go", thread=kept)).text

    agent = Agent(Scripted(ToolCall("1", "delegate", {}), "done"), tools=[delegate], hooks=[mine])
    (root,) = trace_of((await agent.run("go")).thread)["spans"]
    assert len(named(root, "run")) == 2
    assert len(named(root, "tool.call")) == 2
    assert len(named(root, "llm.call")) == 4
    own = Recorder.traces(kept)
    assert len(own) == (0 if same else 1)
    for trace_ in own:
        assert len(named(trace_["spans"][0], "llm.call")) == 2


async def test_children_of_parallel_tools_are_separate() -> None:
    def child(name: str) -> Agent:
        async def answer(request: Any) -> str:
            await asyncio.sleep(0.01)
            return name

        return Agent(FunctionModel(answer), name=name)

    @tool
    async def delegate(name: str) -> str:
        """Delegate the task."""
        return (await child(name).run("go")).text

    wanted = tool_calls_reply(*(ToolCall(name, "delegate", {"name": name}) for name in "abc"))
    result = await Agent(Scripted(wanted, "done"), tools=[delegate], hooks=[Recorder()]).run("go")
    (root,) = trace_of(result.thread)["spans"]
    below = {
        use["attributes"]["tool_call_id"]: [run["attributes"]["gen_ai.agent.name"] for run in use["children"]]
        for use in named(root, "tool.call")
    }
    assert below == {"a": ["a"], "b": ["b"], "c": ["c"]}


async def test_the_last_runs_are_recorded_latest_first() -> None:
    agent, thread = hello_agent(Recorder(runs=2)), Thread()
    ids = []
    for word in ("one", "two", "three"):
        await agent.run(word, thread=thread)
        ids.append(next(iter(Recorder.traces(thread)))["run"])
    assert [found["run"] for found in Recorder.traces(thread)] == [ids[2], ids[1]]


async def test_spans_are_limited() -> None:
    replies = [tool_calls_reply(tool_call(id=str(number))) for number in range(10)]
    result = await Agent(Scripted(*replies, "done"), tools=[echo], hooks=[Recorder(spans=7)]).run("go")
    kept = trace_of(result.thread)
    assert len([*flat(kept["spans"][0])]) == 7
    assert kept["left_out"] == 1 + 11 + 11 + 10 - 7


async def test_the_size_is_limited() -> None:
    replies = [tool_calls_reply(tool_call(id=str(number), text="x" * 400)) for number in range(10)]
    result = await Agent(Scripted(*replies, "done"), tools=[echo], hooks=[Recorder(size=5_000)]).run("go")
    kept = trace_of(result.thread)
    assert kept["left_out"] > 0
    names = [path[-1] for path in flat(kept["spans"][0])]
    assert names.count("tool.call") == 10, "they are all there, the later ones in short"
    assert len(json.dumps(kept)) < 5_000 + 33 * 250


async def test_spans_that_are_too_deep_are_left_out() -> None:
    def nested(depth: int) -> Agent:
        @tool
        async def deeper() -> str:
            """Run a nested agent."""
            return (await nested(depth - 1).run("go")).text

        return Agent(Scripted(ToolCall("1", "deeper", {}), "up") if depth else Scripted("bottom"), tools=[deeper])

    result = await nested(20).with_hooks(Recorder()).run("go")
    kept = trace_of(result.thread)
    assert max(len(path) for path in flat(kept["spans"][0])) == 40
    assert kept["left_out"] > 0


async def test_a_resumed_run_continues_its_stored_trace(tmp_path: Path) -> None:
    @guard(ToolUse)
    def ask(use: ToolUse) -> Ask:
        return Ask("May it?")

    sessions = Sessions(tmp_path)
    agent = echo_agent(sessions, ask, Recorder())
    result = await agent.run("go", thread="th1")
    assert result.outcome == "interrupted"
    first = trace_of(await sessions.load("th1"))
    assert [span["error"] for span in named(first["spans"][0], "tool.call")] == ["paused"]
    ((question,),) = (await sessions.questions("th1"),)
    await sessions.answer("th1", question["id"], "allow")
    assert (await agent.run(thread="th1")).text == "done"
    both = trace_of(await sessions.load("th1"))
    assert both["run"] == first["run"]
    assert both["spans"][0] == first["spans"][0]
    assert named(both["spans"][1], "tool.call")[0]["attributes"]["output_preview"] == "hi"
    await sessions.close()


async def test_watchers_do_not_get_traces() -> None:
    thread = Thread()
    agent = hello_agent(Recorder())
    seen = [*await collect_events(agent, thread=thread), *await collect_events(agent, thread=thread)]
    assert "done" in [event.event for event in seen]
    assert not [event for event in seen if event.event == "on_state"]


@pytest.mark.parametrize("options", [{"runs": 0}, {"runs": "3"}, {"spans": True}, {"size": -1}, {"size": 1.5}])
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"Recorder\(\w+=.+\): give a whole number of at least 1"):
        Recorder(**options)
