"""Every decision is written down where it was made."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kit import (
    OperationLog,
    ScriptedUser,
    collect_events,
    echo,
    echo_agent,
    hello_agent,
    thread_entries,
    tool_call,
    tool_calls_reply,
)
from wick import (  # fmt: skip
    Agent,
    Ask,
    Block,
    Continue,
    ModelCall,
    Operation,
    Run,
    Scripted,
    Step,
    Stop,
    ToolUse,
    after,
    before,
    guard,
    wrap,
)
from wick.constants import PREVIEW_CHARS
from wick.events import ChatModelStream, Event
from wick.hooks import Next
from wick.why import StreamState, Why, diff_values

# the record itself


def test_a_record_as_json_omits_empty_fields() -> None:
    assert Why("h", "guard", "pass", ms=1.23456).to_json() == {
        "hook": "h",
        "position": "guard",
        "verdict": "pass",
        "ms": 1.235,
    }
    full = Why("h", "guard", "block", "no", 0.5, {"a": [1, 2]}, shadow=True).to_json()
    assert (full["reason"], full["changed"], full["shadow"]) == ("no", {"a": [1, 2]}, True)


def test_a_difference_has_only_changes() -> None:
    old = {"same": 1, "changed": 1, "gone": None, "deep": {"a": 1, "b": 2}}
    new = {"same": 1, "changed": 2, "came": None, "deep": {"a": 1, "b": 3}}
    assert diff_values(old, new) == {
        "changed": [1, 2],
        "gone": [None, None],
        "came": [None, None],
        "deep": {"b": [2, 3]},
    }
    assert diff_values(old, dict(old)) == {}


def test_a_difference_shortens_long_values() -> None:
    long = "x" * (PREVIEW_CHARS + 1)
    changed = diff_values({"text": "", "rows": [], "n": 1}, {"text": long, "rows": [{"a": 1}] * 3, "n": 2.5})
    assert changed["text"] == ["", "x" * PREVIEW_CHARS + "…"]
    assert changed["rows"] == ["[]", "3 items"]
    assert changed["n"] == [1, 2.5]


# rule 18: held events


def _delta(text: str) -> Event:
    return ChatModelStream(delta=text)


def test_an_unheld_event_is_announced_at_once() -> None:
    trail, seen = StreamState(), list[Event]()
    trail.show(_delta("a"), seen.append)
    assert (seen, trail.shown) == ([_delta("a")], True)


def test_a_held_event_is_announced_after_the_last_holder() -> None:
    trail, seen = StreamState(holds=2), list[Event]()
    trail.show(_delta("a"), seen.append)
    assert (seen, trail.shown) == ([], False)
    trail.release(True, seen.append)
    assert seen == []
    trail.release(True, seen.append)
    assert (seen, trail.shown, trail.held) == ([_delta("a")], True, [])


def test_a_replaced_event_is_never_announced() -> None:
    trail, seen = StreamState(holds=1), list[Event]()
    trail.show(_delta("secret"), seen.append)
    trail.release(False, seen.append)
    assert (seen, trail.shown, trail.held) == ([], False, [])


# rule 21: every decision is recorded on its operation


def _why(watch: OperationLog) -> list[tuple[str, str, str]]:
    return [(why.hook, why.position, why.verdict) for why in watch.op.why]


async def test_every_hook_is_recorded_with_its_position_and_verdict() -> None:
    watch = OperationLog()

    @before(ToolUse)
    async def look(use: ToolUse) -> None: ...

    @wrap(ToolUse)
    async def stand(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use)

    @after(ToolUse)
    async def review(use: ToolUse) -> None: ...

    @guard(ToolUse)
    async def allow(use: ToolUse) -> None: ...

    @guard(ToolUse)
    async def deny(use: ToolUse) -> Block:
        return Block("no")

    await echo_agent(after(ToolUse, name="watch")(watch), look, stand, review, allow, deny).run("go")
    assert _why(watch) == [
        ("look", "before", "pass"),
        ("allow", "guard", "pass"),
        ("deny", "guard", "block"),
        ("review", "after", "pass"),
        ("stand", "wrap", "pass"),
        ("watch", "after", "pass"),
    ]
    assert watch.op.why[2].reason == "no"


async def test_the_words_of_each_decision_are_recorded() -> None:
    watch = OperationLog()

    @after(Step)
    async def decide(step: Step) -> Stop | Continue:
        watch(step)
        return Continue("go on") if step.number == 1 else Stop("enough")

    @before(Step)
    async def ask(step: Step) -> Ask:
        return Ask("may I?")

    user = ScriptedUser(True)
    await Agent(Scripted("a", "b"), hooks=[decide, ask], ask=user).run("go")
    rows = [(why.hook, why.verdict, why.reason) for op in watch.ops for why in op.why if why.verdict != "pass"]
    asked = [("ask", "ask", "may I?"), ("user", "approved", "")]
    assert rows == [*asked, ("decide", "continue", "go on"), *asked, ("decide", "stop", "enough")]


async def test_the_user_is_in_the_record_with_the_gate_as_position() -> None:
    watch = OperationLog()
    hooks = [after(ToolUse, name="watch")(watch), guard(ToolUse, name="ask")(lambda use: Ask("sure?"))]
    await echo_agent(*hooks, ask=ScriptedUser(Block("not today"))).run("go")
    (row,) = [why for why in watch.op.why if why.hook == "user"]
    assert (row.position, row.verdict, row.reason) == ("gate", "refused", "not today")


async def test_the_milliseconds_of_a_hook_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]

    def look(run: Run) -> None:
        clock[0] += 0.002

    monkeypatch.setattr("wick.onion.perf_counter", lambda: clock[0])
    watch = OperationLog()
    await hello_agent(after(Run, name="watch")(watch), before(Run)(look)).run("go")
    assert next(why.ms for why in watch.op.why if why.hook == "look") == pytest.approx(2.0)


async def test_a_change_of_arguments_is_recorded_as_a_difference() -> None:
    watch = OperationLog()

    @before(ToolUse)
    async def louder(use: ToolUse) -> None:
        use.args["text"] = "HI"

    @before(ToolUse)
    async def look(use: ToolUse) -> None: ...

    await echo_agent(after(ToolUse, name="watch")(watch), louder, look).run("go")
    changed = {why.hook: why.changed for why in watch.op.why}
    assert changed["louder"] == {"text": ["hi", "HI"]}
    assert changed["look"] is None


async def test_a_changed_copy_is_recorded_for_its_wrap() -> None:
    watch = OperationLog()

    @wrap(ToolUse)
    async def twice(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use.fork(args={**use.args, "times": 2}))

    await echo_agent(after(ToolUse, name="watch")(watch), twice).run("go")
    assert [why.changed for why in watch.op.why if why.hook == "twice"] == [{"times": [1, 2]}]


async def test_a_changed_result_is_recorded_without_the_old_value() -> None:
    watch = OperationLog()

    @after(ToolUse)
    async def redact(use: ToolUse) -> None:
        use.result.output = "***"

    await echo_agent(after(ToolUse, name="watch")(watch), redact).run("go")
    (row,) = [why for why in watch.op.why if why.hook == "redact"]
    assert row.changed == {"result": "changed"}
    assert "hi" not in json.dumps(row.to_json())


async def test_a_changed_request_is_recorded_by_its_fields_alone() -> None:
    watch = OperationLog()

    @before(ModelCall)
    async def redact(call: ModelCall) -> None:
        call.system = "nothing secret"
        call.settings["temperature"] = 0

    await Agent(Scripted("a"), system="the secret", hooks=[after(ModelCall, name="watch")(watch), redact]).run("go")
    assert [why.changed for why in watch.op.why if why.hook == "redact"] == [
        {"system": "changed", "settings": "changed"}
    ]


async def test_a_failure_is_recorded() -> None:
    watch = OperationLog()

    @before(ToolUse, on_error="log")
    async def boom(use: ToolUse) -> None:
        raise ValueError("oh")

    await echo_agent(after(ToolUse, name="watch")(watch), boom).run("go")
    assert [(why.verdict, why.reason) for why in watch.op.why if why.hook == "boom"] == [("failed", "ValueError: oh")]


async def test_a_shadow_guard_is_recorded_as_one() -> None:
    watch = OperationLog()
    shadow = guard(ToolUse, name="deny", shadow=True)(lambda use: Block("no"))
    result = await echo_agent(after(ToolUse, name="watch")(watch), shadow).run("go")
    (row,) = [why for why in watch.op.why if why.hook == "deny"]
    assert (row.verdict, row.reason, row.shadow) == ("block", "no", True)
    assert thread_entries(result.thread, "decision")[0]["shadow"] is True


async def test_decisions_are_logged_with_their_position_and_passes_are_not() -> None:
    hooks = [
        guard(ToolUse, name="deny")(lambda use: Block("no")),
        guard(Operation, name="allow")(lambda op: None),
        after(Step, name="end")(lambda step: Stop("enough")),
    ]
    result = await echo_agent(*hooks).run("go")
    rows = [
        {key: row[key] for key in row if key not in ("ms", "run", "hash")}
        for row in thread_entries(result.thread, "decision")
    ]
    assert rows == [
        {
            "operation": "tool_use",
            "call": "c1",
            "tool": "echo",
            "args": {"times": 1},
            "without": [],
            "hook": "deny",
            "position": "guard",
            "verdict": "block",
            "reason": "no",
        },
        {"operation": "step", "step": 1, "hook": "end", "position": "after", "verdict": "stop", "reason": "enough"},
    ]


async def test_a_tools_record_reaches_watchers() -> None:
    seen = await collect_events(echo_agent(guard(ToolUse, name="deny")(lambda use: Block("no"))))
    (end,) = [event for event in seen if event.event == "on_tool_end"]
    assert [(row["hook"], row["verdict"]) for row in end.to_json()["data"]["why"]] == [("deny", "block")]


async def test_a_hook_reads_earlier_verdicts_and_later_ones_read_its_notes() -> None:
    read: list[Any] = []

    @before(ToolUse)
    async def first(use: ToolUse) -> None:
        use.notes["score"] = 7

    @wrap(ToolUse)
    async def between(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use.fork(args=use.args))

    @guard(ToolUse)
    async def last(use: ToolUse) -> None:
        read.append((use.notes["score"], [why.hook for why in use.why]))
        use.notes["guarded"] = True

    @after(ToolUse)
    async def outermost(use: ToolUse) -> None:
        read.append(use.notes)

    await echo_agent(outermost, first, between, last).run("go")
    assert read == [(7, ["first"]), {"score": 7, "guarded": True}]


async def test_notes_and_records_are_each_operations_own() -> None:
    watch = OperationLog()

    @before(ToolUse)
    async def note(use: ToolUse) -> None:
        use.notes[use.call.id] = True
        await asyncio.sleep(0)

    model = Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")), "done")
    await Agent(model, tools=[echo], hooks=[after(ToolUse, name="watch")(watch), note]).run("go")
    assert sorted(str(op.notes) for op in watch.ops) == ["{'a': True}", "{'b': True}"]
    assert all(len(op.why) == 2 for op in watch.ops)
