"""Properties of any set of hooks, in any order: the gate, the end of a run, and redactors."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_specs import Hook as Described
from agent_specs import Spec
from generated_agents import Observed, asking_specs, build_agent, deaf_specs, observe_agent, specs, yield_to_others
from kit import tool_calls_reply
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    Capability,
    Message,
    Paused,
    Run,
    Scripted,
    Stop,
    Thread,
    Tool,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick._internal.frozen import thaw
from wick.events import Event
from wick.hooks import Hook, Next

JSON = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# -- guards -----------------------------------------------------------------------------------------------------------

SAYS: dict[str, Any] = {"pass": None, "ask": Ask("sure?"), "block": Block("no"), "stop": Stop("enough"), "babble": 42}
verdicts = st.lists(st.sampled_from([*SAYS, "crash"]), max_size=6)


def guard_that(verdict: str, name: str, shadow: bool = False) -> Hook:
    def look(use: ToolUse) -> Any:
        if verdict == "crash":
            raise ValueError("oops")
        return SAYS[verdict]

    look.__annotations__.clear()
    return guard(ToolUse, name=name, shadow=shadow)(look)


def allows(said: Sequence[str], answer: Any = True, asked_before: bool = False) -> bool:
    """Return True if a tool runs under these guards."""
    used: list[str] = []

    @tool
    async def act() -> None:
        used.append("act")

    @before(ToolUse)
    def sure(use: ToolUse) -> Ask | None:
        return Ask("sure, before?") if asked_before else None

    async def ask(question: Any) -> Any:
        return answer

    hooks = [sure, *(guard_that(verdict, f"guard_{number}") for number, verdict in enumerate(said))]
    model = Scripted(tool_calls_reply(ToolCall("c1", "act")), "done", spare=True)
    asyncio.run(Agent(model, tools=[act], hooks=hooks, ask=ask).run("go"))
    return bool(used)


@given(verdicts, st.booleans())
def test_any_guard_that_does_not_agree_denies(said: list[str], asked_before: bool) -> None:
    assert allows(said, True, asked_before) == ({*said} <= {"pass", "ask"})


@given(verdicts, st.booleans(), st.sampled_from([True, False, None, 42, Block("no"), Allow()]), st.data())
def test_no_order_of_guards_turns_a_deny_into_an_allow(
    said: list[str], asked_before: bool, answer: Any, data: st.DataObject
) -> None:
    other = data.draw(st.permutations(said), label="in another order")
    assert allows(said, answer, asked_before) == allows(other, answer, asked_before)


@given(specs, st.data())
def test_no_order_of_hooks_turns_a_deny_into_an_allow(spec: Spec, data: st.DataObject) -> None:
    """In any order of hooks, a guard that denies everything prevents execution."""
    wall = Described("wall", "guard", "tool_use", data.draw(st.sampled_from(["block", "stop", "raise", "nonsense"])))
    parts = data.draw(st.permutations([*spec.parts, (wall,)]), label="in this order")
    walled = Spec(tuple(parts), spec.script, spec.answers, spec.child, spec.steps)
    observed, _ = asyncio.run(observe_agent(walled))
    assert not [row for rows in observed.trace.values() for row in rows if row[0] == "tool"]


@given(specs)
def test_the_guards_of_a_parent_see_everything_that_its_children_do(spec: Spec) -> None:
    watch = Described("watch", "guard", "operation")
    watched = Spec((*spec.parts, (watch,)), spec.script, spec.answers, spec.child, spec.steps)
    observed, _ = asyncio.run(observe_agent(watched))
    for strand, rows in observed.trace.items():
        seen = None
        for who, what, *more in rows:
            if (who, what) == ("guard", "watch"):
                seen = more[0]
            elif who in ("tool", "model"):
                assert what == seen, f"{strand}: {who} {what!r} was not what the guard saw last"


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["pass", "ask", "block"])), min_size=1, max_size=4))
def test_all_calls_of_a_step_pass_the_gate_before_any_question(uses: list[tuple[int, str]]) -> None:
    passed, unasked = set[str](), list[set[str]]()
    wanted = {f"c{number}": verdict for number, (_, verdict) in enumerate(uses)}

    @tool(name="act")
    async def act(awaits: int) -> None: ...

    @guard(ToolUse)
    async def decide(use: ToolUse) -> Any:
        await yield_to_others(use.args["awaits"])
        passed.add(use.call.id)
        return SAYS[wanted[use.call.id]]

    async def ask(question: Any) -> bool:
        unasked.append({*wanted} - passed)
        return True

    asked = tool_calls_reply(*(ToolCall(id, "act", {"awaits": uses[number][0]}) for number, id in enumerate(wanted)))
    asyncio.run(Agent(Scripted(asked, "done"), tools=[act], hooks=[decide], ask=ask).run("go"))
    assert unasked == [set()] * [*wanted.values()].count("ask")


# -- arguments --------------------------------------------------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=2)
lists = st.lists(scalars, max_size=2)
values = scalars | lists | st.dictionaries(st.sampled_from("kl"), scalars | lists, max_size=2)
plans = st.dictionaries(st.sampled_from("xyz"), values, max_size=3)


@dataclass
class Seen:
    """Guarded, sealed and executed arguments, in order."""

    guards: list[tuple[JSON, JSON]] = field(default_factory=list)
    executed: list[JSON] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)

    def tools(self) -> list[Tool]:
        @tool(idempotent=True)
        async def act(plan: dict[str, Any]) -> str:
            self.executed.append(plan)
            return "done"

        return [act]

    def first(self) -> Hook:
        @guard(ToolUse, priority=1)
        def first_look(use: ToolUse) -> None:
            self.guards.append((thaw(use.args["plan"]), {}))

        return first_look

    def last(self) -> Hook:
        @guard(ToolUse, priority=-1)
        def last_look(use: ToolUse) -> None:
            self.guards[-1] = (self.guards[-1][0], thaw(use.args["plan"]))

        return last_look


def rewriting(kind: str, plan: JSON, number: int, seen: Seen) -> Hook:
    """A hook that changes arguments in its own way, by all means it has."""

    def rewrite(use: ToolUse) -> None:
        use.args["plan"] = plan
        seen.held.append(use.args["plan"])

    def tamper(use: ToolUse) -> None:
        for held in seen.held:
            held["tampered"] = True
        for attempt in (lambda: use.args.update(plan=plan), lambda: use.args["plan"].update(tampered=True)):
            with pytest.raises(Exception, match="read-only"):
                attempt()

    async def pass_a_copy(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use.fork(args={"plan": plan}))

    async def retry(use: ToolUse, next: Next[Any]) -> Any:
        await next(use)
        await next(use.fork(args={"plan": plan}))
        use.args["plan"] = {**use.args["plan"], "again": number}
        return await next(use)

    name = f"{kind}_{number}"
    if kind == "before":
        return before(ToolUse, name=name)(rewrite)
    if kind == "guard":
        return guard(ToolUse, name=name)(tamper)
    if kind == "ask":
        return guard(ToolUse, name=name)(guard_that("ask", name).fn)
    return wrap(ToolUse, name=name)(pass_a_copy if kind == "copy" else retry)


@given(
    plans,
    st.lists(st.tuples(st.sampled_from(["before", "copy", "retry", "guard", "ask"]), plans), max_size=5),
    st.none() | plans,
)
def test_the_executed_operation_is_the_guarded_one(
    wanted: JSON, kinds: list[tuple[str, JSON]], said: JSON | None
) -> None:
    seen = Seen()
    hooks = [rewriting(kind, plan, number, seen) for number, (kind, plan) in enumerate(kinds)]

    async def ask(question: Any) -> Allow:
        assert question.about["args"]["plan"] == seen.guards[-1][1], "the user is asked about something else"
        return Allow(None if said is None else {"plan": said})

    model = Scripted(tool_calls_reply(ToolCall("c1", "act", {"plan": wanted})), "done", spare=True)
    agent = Agent(model, tools=seen.tools(), hooks=[seen.first(), *hooks, seen.last()], ask=ask)
    result = asyncio.run(agent.run("go"))
    assert all(first == last for first, last in seen.guards), "two guards saw different arguments"
    intents = [entry.data["hash"] for entry in result.thread.entries if entry.kind == "intent"]  # type: ignore[union-attr]
    assert len(intents) == len(seen.executed)
    agreed = iter(first for first, _ in seen.guards)
    for plan in seen.executed:  # each attempt is one that the guards have looked at, in that order
        assert any(plan == looked for looked in agreed), f"no guard saw {plan}"
    if not any(kind == "ask" for kind, _ in kinds):
        assert seen.executed == [first for first, _ in seen.guards]


# -- the end of a run -------------------------------------------------------------------------------------------------


@given(specs | deaf_specs, st.none() | st.integers(1, 40))
def test_every_run_has_one_end_and_leaves_a_valid_thread(spec: Spec, ticks: int | None) -> None:
    observed = asyncio.run(run_observed(spec, ticks))
    assert len(observed.terminal) == 1
    assert observed.events[-1] is observed.terminal[0]
    for thread in (observed.thread, *observed.below):
        assert Thread.from_json(thread.to_json()).messages == thread.messages.validate()
        kinds = [entry.kind for entry in thread.entries if entry.kind in ("run_start", "run_end")]
        assert kinds in ([], ["run_start", "run_end"])  # a run may end before its start
        assert not thread.busy
        assert not thread.pending or thread.entries[-1].data["outcome"] == "interrupted"


async def run_observed(spec: Spec, ticks: int | None) -> Observed:
    """Run an agent to its end, or cancel it after so many ticks."""
    observed = Observed()
    run = build_agent(spec, observed).run("go", thread=observed.thread, emit=observed.events.append)
    task = asyncio.create_task(run)
    if ticks is not None:
        await yield_to_others(ticks)
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return observed


@given(asking_specs())
def test_answering_later_is_answering_at_once(spec: Spec) -> None:
    """The user is absent at each question, and the run is resumed by another process."""
    at_once, outcome = asyncio.run(observe_agent(spec))
    later, pauses = asyncio.run(pausing(spec))
    questions = [row for rows in at_once.trace.values() for row in rows if row[0] == "user"]
    assert executed(later) == executed(at_once)
    assert later.messages == at_once.messages
    assert bool(pauses) == bool(questions)
    assert (later.terminal[-1].event == "error") == (outcome[0] == "failed")


async def pausing(spec: Spec) -> tuple[Observed, int]:
    observed, asked, pauses = Observed(), set[str](), -1
    result = None
    while result is None or result.outcome == "interrupted":
        pauses += 1
        agent = build_agent(spec, observed)
        agent.ask = Absent(agent.ask, asked)
        observed.thread = Thread.from_json(observed.thread.to_json())
        try:
            result = await agent.run("" if pauses else "go", thread=observed.thread, emit=observed.events.append)
        except Exception:
            break
    return observed, pauses


class Absent:
    """A user who is absent when first asked."""

    def __init__(self, user: Any, asked: set[str]) -> None:
        self.user, self.asked = user, asked

    async def __call__(self, question: Any) -> Any:
        if question.hash not in self.asked:
            self.asked.add(question.hash)
            raise Paused("not here")
        return await self.user(question)


def executed(observed: Observed) -> dict[str, list[Any]]:
    rows = {strand: [row for row in rows if row[0] == "tool"] for strand, rows in observed.trace.items()}
    return {strand: tools for strand, tools in rows.items() if tools}


@given(specs)
def test_streaming_equals_running(spec: Spec) -> None:
    ran, outcome = asyncio.run(observe_agent(spec))
    streamed, events = asyncio.run(stream(spec))
    assert [event.event for event in events] == [event.event for event in ran.events]
    assert streamed.trace == ran.trace
    assert streamed.messages == ran.messages
    assert (events[-1].event == "error") == (outcome[0] == "failed")


async def stream(spec: Spec) -> tuple[Observed, list[Event]]:
    observed = Observed()
    agent = build_agent(spec, observed)
    return observed, [event async for event in agent.stream("go", thread=observed.thread)]


# -- redactors --------------------------------------------------------------------------------------------------------

SECRET = "hunter2"


class Redactor(Capability):
    """Takes the secret out of everything a tool answers."""

    def __init__(self, crash: bool) -> None:
        self.crash = crash

    @after(ToolUse, priority=1, hold=True, inherit=True)
    async def redact(self, use: ToolUse) -> None:
        await asyncio.sleep(0)
        if self.crash:
            raise ValueError(f"cannot parse {use.result.text}")  # like parsers, it quotes unparsable text
        use.result = ToolResult(use.result.output.replace(SECRET, "***"), use.result.error.replace(SECRET, "***"))


def leaky(way: str) -> Tool:
    @tool(name=way, idempotent=True)
    async def leak(use: ToolUse) -> Any:
        use.stream(f"reading {SECRET}")
        if way == "raise":
            raise ValueError(SECRET)
        if way == "data":
            return ToolResult(SECRET, data={"password": SECRET})
        return {"password": SECRET} if way == "json" else f"the password is {SECRET}"

    return leak


def inner(act: str, number: int) -> Hook:
    """A hook inside of the redactor, which sees the secret."""

    def look(use: ToolUse) -> Any:
        if act == "decorate":
            use.result.output += "!"
        if act == "crash":
            raise ValueError(f"I saw {use.result.text}")
        return Block("no") if act == "block" else None

    async def around(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use)
        return await next(use) if act == "again" else result

    look.__annotations__.clear()
    return (
        wrap(ToolUse, name=f"h{number}")(around)
        if act in ("again", "around")
        else after(ToolUse, name=f"h{number}")(look)
    )


@given(
    st.lists(st.sampled_from(["text", "json", "data", "raise"]), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["decorate", "crash", "block", "again", "around"]), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_redacted_text_appears_nowhere(ways: list[str], acts: list[str], crash: bool, below: bool) -> None:
    hooks = [inner(act, number) for number, act in enumerate(acts)]
    asked = tool_calls_reply(*(ToolCall(f"c{number}", way) for number, way in enumerate(ways)))
    tools = [leaky(way) for way in ways]
    told = asyncio.run(everything_told(asked, tools, hooks, Redactor(crash), below))
    assert SECRET not in told, told[max(0, told.index(SECRET) - 200) :][:400]


async def everything_told(asked: Message, tools: list[Tool], hooks: list[Hook], redactor: Redactor, below: bool) -> str:
    """Return everything a run leaves behind: thread, events, result, and model requests."""
    events: list[Event] = []
    threads = [Thread(), Thread()]
    model = Scripted(asked, "done")
    leaf = Agent(model, tools=tools, hooks=hooks if below else [redactor, *hooks])

    @tool
    async def delegate(run: Run) -> str:
        result = await leaf.run("go", parent=run, thread=threads[1])
        return result.text

    above = Agent(
        Scripted(tool_calls_reply(ToolCall("d1", "delegate")), "done", spare=True), tools=[delegate], hooks=[redactor]
    )
    agent = above if below else leaf
    result = await agent.run("go", thread=threads[0], emit=events.append)
    told = [thread.to_json() for thread in threads], [event.to_json() for event in events], result.messages.to_json()
    return json.dumps([*told, [message.to_json() for request in model.requests for message in request.messages]])
