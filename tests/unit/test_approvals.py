"""Approvals: asked once, about exactly the executed operation, and logged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kit import (
    OperationLog,
    ScriptedUser,
    agent_for,
    collect_events,
    echo,
    echo_agent,
    entry_kinds,
    thread_entries,
    tool_call,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import (  # fmt: skip
    Agent,
    Allow,
    Ask,
    Block,
    ModelCall,
    Operation,
    Paused,
    Run,
    Scripted,
    Step,
    Stop,
    Thread,
    ToolError,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick._internal.sealed_copies import ReadOnly
from wick.events import ApprovalResponse
from wick.hooks import Next
from wick.operations import OPERATIONS

Kind = type[Operation[Any]]


def asking(question: str = "sure?", operation: Any = ToolUse, position: Any = guard) -> Any:
    async def ask(op):  # type: ignore[no-untyped-def]
        return Ask(question)

    return position(operation, name=f"asks_{question}")(ask)


def wrap_asking(question: str) -> Any:
    @wrap(ToolUse, name=f"asks_{question}")
    async def ask(use: ToolUse, next: Next[Any]) -> Ask:
        return Ask(question)

    return ask


# answers


@pytest.mark.parametrize("answer", [True, Allow()])
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_an_approved_operation_is_executed(operation: Kind, answer: Any) -> None:
    user = ScriptedUser(answer)
    result = await agent_for(operation, asking(operation=operation), ask=user).run("go")
    assert result.outcome == "completed"
    assert user.question.question == "sure?"
    if operation is ToolUse:
        assert tool_result(result) == "hi"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the user said no to: sure?"),
        (None, "the `ask` function returned None, which is not an approval of: sure?; return True"),
        (Block("not today"), "not today"),
        ("yes", "'yes' is not an answer to: sure?"),
        (1, "1 is not an answer to: sure?"),
        (0, "0 is not an answer to: sure?"),
        ({"args": {}}, "{'args': {}} is not an answer to: sure?"),
        (Stop("all"), "Stop(reason='all') is not an answer to: sure?"),
        (Ask("you?"), "Ask(question='you?') is not an answer to: sure?"),
        (RuntimeError("line is dead"), "the user could not be asked: line is dead"),
        (TimeoutError(), "the user could not be asked: "),
    ],
)
async def test_anything_else_is_a_no(answer: Any, reason: str) -> None:
    ran = OperationLog()
    result = await echo_agent(asking(), ask=ScriptedUser(answer), tools=[_echo_into(ran)]).run("go")
    hint = "; return True, False, Allow(…) or Block(…) from the `ask` function"
    assert tool_result(result) == (f"{reason}{hint}" if "is not an answer" in reason else reason)
    assert ran.ops == []


@pytest.mark.parametrize("operation", [Run, Step, ModelCall])
async def test_refusing_anything_but_a_tool_use_ends_the_run(operation: Kind) -> None:
    result = await agent_for(operation, asking(operation=operation), ask=ScriptedUser(Block("not today"))).run("go")
    assert (result.outcome, result.reason, result.text) == ("stopped", "blocked: not today", "")


async def test_without_a_user_an_ask_is_denied() -> None:
    text = tool_result(await echo_agent(asking()).run("go"))
    assert text == "no user is there to approve: sure?"


async def test_an_asker_may_pause_the_run() -> None:
    thread = Thread()
    result = await echo_agent(asking(), ask=ScriptedUser(Paused("ada is asleep"))).run("go", thread=thread)
    assert (result.outcome, result.reason) == ("interrupted", "paused: ada is asleep")
    assert (thread.pending, thread.attempt_status("c1")) == ((tool_call(),), "")
    assert entry_kinds(thread, "asked", "answered", "intent") == ["asked"]


# rule 8: about the sealed operation, once


async def test_the_question_is_about_the_sealed_operation() -> None:
    @before(ToolUse)
    async def change(use: ToolUse) -> None:
        use.args["text"] = "changed later"

    user = ScriptedUser(True)
    result = await echo_agent(asking(position=before), change, ask=user).run("go")
    question = user.question
    assert issubclass(type(question.op), ReadOnly)
    assert question.op.args == {"text": "changed later", "times": 1}
    assert question.about == {"call_id": "c1", "tool": "echo", "args": {"text": "changed later", "times": 1}}
    assert question.hash == question.op.hash
    assert question.id.startswith("ask_")
    assert tool_result(result) == "changed later"


async def test_questions_from_before_wrap_and_guard_are_put_together_once() -> None:
    user = ScriptedUser(True)
    hooks = [
        asking("before?", position=before),
        wrap_asking("wrap?"),
        asking("guard?"),
        asking("another guard?"),
        asking("inner before?", position=before),
    ]
    result = await echo_agent(*hooks, ask=user).run("go")
    assert user.question.question == "before?\nwrap?\ninner before?\nguard?\nanother guard?"
    assert tool_result(result) == "hi"


async def test_the_same_question_from_two_hooks_is_put_once() -> None:
    user = ScriptedUser(True)
    other = guard(ToolUse, name="other")(lambda use: Ask("sure?"))
    await echo_agent(asking(), other, ask=user).run("go")
    assert user.question.question == "sure?"


@pytest.mark.parametrize("position", [before, wrap])
async def test_an_ask_of_before_or_wrap_reaches_the_gate(position: Any) -> None:
    order: list[str] = []
    ask = wrap_asking("sure?") if position is wrap else asking(position=before)
    inner = before(ToolUse, name="inner")(lambda use: order.append("inner"))
    gate = guard(ToolUse, name="gate")(lambda use: order.append("gate"))

    async def user(question: Any) -> bool:
        order.append("asked")
        return True

    await echo_agent(ask, inner, gate, ask=user).run("go")
    assert order == ["inner", "gate", "asked"]


async def test_an_ask_survives_a_changed_copy_and_a_dropping_hook() -> None:
    @before(ToolUse)
    async def forget(use: ToolUse) -> None:
        use.asks = ()

    @wrap(ToolUse)
    async def swap(use: ToolUse, next: Next[Any]) -> Any:
        copy = use.fork(args={"text": "other"})
        copy.asks = ()
        use.asks = ()
        return await next(copy)

    user = ScriptedUser(False)
    result = await echo_agent(asking(position=before), forget, swap, ask=user).run("go")
    assert user.question.op.args["text"] == "other"
    assert tool_result(result) == "the user said no to: sure?"


# rule 8: any Block wins over any Ask


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
async def test_any_block_wins_over_any_ask_in_any_order(order: tuple[int, ...]) -> None:
    hooks = [asking(), guard(ToolUse, name="deny")(lambda use: Block("no")), asking("early?", position=before)]
    user = ScriptedUser(True)
    result = await echo_agent(*(hooks[place] for place in order), ask=user).run("go")
    assert (tool_result(result), user.questions) == ("no", [])


async def test_a_stop_wins_over_an_ask_too() -> None:
    user = ScriptedUser(True)
    result = await echo_agent(asking(), guard(ToolUse, name="stop")(lambda use: Stop("enough")), ask=user).run("go")
    assert (result.reason, tool_result(result), user.questions) == ("stop requested: enough", "enough", [])


# rules 8, 12 and 13: an approval is bound to the hash


def _retry(times: int = 2, **change: Any) -> Any:
    """A wrap that makes several attempts, the later ones with other arguments."""

    @wrap(ToolUse)
    async def retry(use: ToolUse, next: Next[Any]) -> Any:
        result = await next(use)
        for _ in range(times - 1):
            result = await next(use.fork(args={**use.args, **change}))
        return result

    return retry


async def test_an_approval_covers_later_attempts_with_the_same_hash() -> None:
    user = ScriptedUser(True)
    result = await echo_agent(_retry(3), asking(), ask=user).run("go")
    assert (len(user.questions), len(thread_entries(result.thread, "intent"))) == (1, 3)


async def test_an_approval_does_not_cover_other_arguments() -> None:
    user = ScriptedUser(True, False)
    result = await echo_agent(_retry(text="other"), asking(), ask=user).run("go")
    assert [question.op.args["text"] for question in user.questions] == ["hi", "other"]
    assert user.questions[0].hash != user.questions[1].hash
    assert tool_result(result) == "the user said no to: sure?"


async def test_a_refusal_covers_later_attempts_with_the_same_hash_too() -> None:
    user = ScriptedUser(False)
    result = await echo_agent(_retry(2), asking(), ask=user).run("go")
    assert (len(user.questions), tool_result(result)) == (1, "the user said no to: sure?")


async def test_an_approval_does_not_cover_another_call_with_the_same_arguments() -> None:
    user = ScriptedUser(True)
    model = Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b")), "done")
    await Agent(model, tools=[echo], hooks=[asking()], ask=user).run("go")
    assert len({question.hash for question in user.questions}) == 2


async def test_an_approval_does_not_cover_the_next_step_or_model_call() -> None:
    for operation in (Step, ModelCall):
        user = ScriptedUser(True)
        await echo_agent(asking(operation=operation), ask=user).run("go")
        assert len({question.hash for question in user.questions}) == 2


async def test_an_approval_silences_no_guard() -> None:  # rule 13
    verdicts = iter([None, Block("not twice")])
    user = ScriptedUser(True)
    deny = guard(ToolUse, name="deny")(lambda use: next(verdicts))
    result = await echo_agent(_retry(), asking(), deny, ask=user).run("go")
    assert tool_result(result) == "not twice"


# rule 13: an answer with changed arguments


async def test_an_answer_with_other_arguments_approves_exactly_those() -> None:
    seen: list[dict[str, Any]] = []
    look = guard(ToolUse, name="look")(lambda use: seen.append(dict(use.args)))
    user = ScriptedUser(Allow({"text": "better"}))
    result = await echo_agent(asking(), look, ask=user).run("go")
    assert len(user.questions) == 1
    assert seen == [{"text": "hi", "times": 1}, {"text": "better", "times": 1}]
    assert tool_result(result) == "better"
    assert [row.changed for row in user.question.op.why if row.verdict == "approved"] == [{"text": ["hi", "better"]}]
    assert [entry["hash"] for entry in thread_entries(result.thread, "intent")] != [user.question.hash]


async def test_guards_run_again_on_changed_arguments_and_a_block_wins() -> None:
    @guard(ToolUse)
    async def deny(use: ToolUse) -> Block | None:
        return Block("never that") if use.args["text"] == "worse" else None

    ran = OperationLog()
    result = await echo_agent(asking(), deny, ask=ScriptedUser(Allow({"text": "worse"})), tools=[_echo_into(ran)]).run(
        "go"
    )
    assert (tool_result(result), ran.ops) == ("never that", [])


@pytest.mark.parametrize("args", [{"nonsense": 1}, {"text": 3.5}, {}, {"text": object()}, "text", [], {1: 2}])
async def test_an_answer_with_arguments_that_do_not_fit_is_not_done(args: Any) -> None:
    ran = OperationLog()
    result = await echo_agent(asking(), ask=ScriptedUser(Allow(args)), tools=[_echo_into(ran)]).run("go")
    assert result.text == "done"
    assert tool_result(result) and ran.ops == []


@pytest.mark.parametrize("operation", [Run, Step, ModelCall])
async def test_only_a_tools_arguments_can_be_changed_by_an_answer(operation: Kind) -> None:
    result = await agent_for(operation, asking(operation=operation), ask=ScriptedUser(Allow({}))).run("go")
    assert result.reason == "blocked: only a tool's arguments can be changed by an answer"


async def test_a_retry_uses_the_arguments_of_the_user() -> None:
    user = ScriptedUser(Allow({"text": "better"}))
    result = await echo_agent(_retry(), asking(), ask=user).run("go")
    assert (len(user.questions), tool_result(result)) == (1, "better")
    one, other = thread_entries(result.thread, "intent")
    assert one["hash"] == other["hash"]


# the log


async def test_question_and_answer_are_logged_before_execution() -> None:
    user = ScriptedUser(Allow({"text": "better"}))
    result = await echo_agent(asking(), ask=user).run("go")
    assert result.thread is not None
    assert entry_kinds(result.thread, "asked", "answered", "intent", "done") == ["asked", "answered", "intent", "done"]
    (asked,), (answered,) = thread_entries(result.thread, "asked"), thread_entries(result.thread, "answered")
    assert (asked["id"], asked["hash"], asked["question"]) == (user.question.id, user.question.hash, "sure?")
    assert (asked["tool"], asked["args"]) == ("echo", {"text": "hi", "times": 1})
    assert answered == {
        "id": asked["id"],
        "hash": asked["hash"],
        "allowed": True,
        "reason": "",
        "args": {"text": "better"},
        "thread": result.thread.id,
    }


async def test_a_refusal_is_in_the_log_with_its_reason() -> None:
    result = await echo_agent(asking(), ask=ScriptedUser(Block("not today"))).run("go")
    (answered,) = thread_entries(result.thread, "answered")
    assert (answered["allowed"], answered["reason"]) == (False, "not today")


async def test_watchers_get_question_and_answer() -> None:
    seen = [
        event
        for event in await collect_events(echo_agent(asking(), ask=ScriptedUser(False)))
        if "approval" in event.event
    ]
    request, response = (event.to_json() for event in seen)
    assert (request["event"], response["event"]) == ("on_approval_request", "on_approval_response")
    assert request["data"]["question"] == "sure?"
    assert request["data"]["args"] == {"text": "hi", "times": 1}
    assert response["data"] == {
        "id": request["data"]["id"],
        "allowed": False,
        "reason": "the user said no to: sure?",
    }


async def test_watchers_get_changed_arguments() -> None:
    agent = echo_agent(asking(), ask=ScriptedUser(Allow({"text": "better"})))
    (response,) = [event for event in await collect_events(agent) if isinstance(event, ApprovalResponse)]
    assert response.data() == {"id": response.id, "allowed": True, "reason": "", "args": {"text": "better"}}


async def test_an_answer_during_a_pause_is_used_at_resume() -> None:
    thread = Thread()
    agent = echo_agent(asking(), ask=ScriptedUser(Paused("later")))
    await agent.run("go", thread=thread)
    (asked,) = thread_entries(thread, "asked")
    thread.append("answered", {"id": asked["id"], "hash": asked["hash"], "allowed": True, "reason": ""})
    result = await agent.run(thread=thread)
    assert (result.outcome, [m.text for m in thread.messages if m.role == "tool"]) == ("completed", ["hi"])


async def test_the_first_answer_wins() -> None:
    thread = Thread()
    agent = echo_agent(asking(), ask=ScriptedUser(Paused("later")))
    await agent.run("go", thread=thread)
    (asked,) = thread_entries(thread, "asked")
    for allowed in (False, True):
        thread.append("answered", {"id": asked["id"], "hash": asked["hash"], "allowed": allowed, "reason": "first"})
    await agent.run(thread=thread)
    assert [m.text for m in thread.messages if m.role == "tool"] == ["first"]


async def test_an_answer_about_something_else_is_not_taken() -> None:
    thread, user = Thread(), ScriptedUser(Paused("later"), False)
    agent = echo_agent(asking(), ask=user)
    await agent.run("go", thread=thread)
    thread.append("answered", {"id": "ask_x", "hash": "0" * 64, "allowed": True, "reason": ""})
    await agent.run(thread=thread)
    assert len(user.questions) == 2
    assert [m.text for m in thread.messages if m.role == "tool"] == ["the user said no to: sure?"]


# rule 10: a child's Ask reaches the user of the root run


def _delegate(child: Agent) -> Any:
    @tool
    async def delegate(text: str, run: Run) -> str:
        return (await child.run(text, parent=run)).text

    return delegate


async def test_a_childs_question_reaches_the_user_of_the_root_run() -> None:
    root, own = ScriptedUser(True), ScriptedUser(True)
    grandchild = Agent(
        Scripted(tool_calls_reply(tool_call(text="deep")), "deep done"), tools=[echo], hooks=[asking()], ask=own
    )
    child = Agent(
        Scripted(tool_calls_reply(tool_call("delegate")), "child done"), tools=[_delegate(grandchild)], ask=own
    )
    model = Scripted(tool_calls_reply(tool_call("delegate")), "done")
    result = await Agent(model, tools=[_delegate(child)], ask=root).run("go")
    assert (root.question.op.args["text"], own.questions) == ("deep", [])
    assert tool_results(result) == ["child done"]


async def test_a_child_without_a_root_user_is_refused() -> None:
    child = Agent(
        Scripted(tool_calls_reply(tool_call()), "done"), tools=[echo], hooks=[asking()], ask=ScriptedUser(True)
    )
    watch = OperationLog()
    model = Scripted(tool_calls_reply(tool_call("delegate")), "done")
    hook = after(ToolUse, name="watch", inherit=True)(watch)
    await Agent(model, tools=[_delegate(child)], hooks=[hook]).run("go")
    assert watch.ops[0].result.error == "no user is there to approve: sure?"


# rule 17: all calls pass the gate before any waits for an answer


async def test_every_call_of_a_step_passes_the_gate_before_any_question() -> None:
    order: list[str] = []

    @guard(ToolUse)
    async def slow(use: ToolUse) -> Ask | None:
        for _ in range(3 if use.call.id == "b" else 0):
            await asyncio.sleep(0)
        order.append(f"gate {use.call.id}")
        return Ask("sure?") if use.call.id != "c" else None

    async def user(question: Any) -> bool:
        order.append(f"asked {question.op.call.id}")
        return True

    model = Scripted(tool_calls_reply(tool_call(id="a"), tool_call(id="b"), tool_call(id="c")), "done")
    await Agent(model, tools=[echo], hooks=[slow], ask=user).run("go")
    assert sorted(order[:3]) == ["gate a", "gate b", "gate c"]
    assert sorted(order[3:]) == ["asked a", "asked b"]


async def test_the_user_is_asked_one_question_at_a_time_in_the_order_of_the_calls() -> None:
    order: list[str] = []

    async def user(question: Any) -> bool:
        order.append(f"asked {question.op.call.id}")
        await asyncio.sleep(0.01)
        order.append(f"answered {question.op.call.id}")
        return True

    calls = [tool_call(text=id, id=id) for id in "abc"]
    thread = Thread()
    agent = Agent(Scripted(tool_calls_reply(*calls), "done"), tools=[echo], hooks=[asking()], ask=user)
    assert tool_results(await agent.run("go", thread=thread)) == ["a", "b", "c"]
    assert order == [f"{event} {id}" for id in "abc" for event in ("asked", "answered")]
    kinds = [entry.kind for entry in thread.entries if entry.kind in ("asked", "answered")]
    assert kinds[:3] == ["asked"] * 3  # all are open in the log, for others that answer


async def test_an_asker_may_run_an_agent_that_asks() -> None:
    async def user(question: Any) -> bool:
        if question.op.call.args["text"] == "inner":
            return True
        inner = Agent(Scripted(tool_calls_reply(tool_call(text="inner")), "yes"), tools=[echo], hooks=[asking()])
        return (await inner.run("may it?", parent=question.op.run)).text == "yes"

    agent = Agent(Scripted(tool_calls_reply(tool_call(text="outer")), "done"), tools=[echo], hooks=[asking()], ask=user)
    assert tool_result(await asyncio.wait_for(agent.run("go"), 5)) == "outer"


async def test_a_call_that_never_reaches_the_gate_blocks_no_other() -> None:
    @before(ToolUse)
    async def some(use: ToolUse) -> Block | None:
        if use.call.id == "b":
            return Block("no")
        if use.call.id == "c":
            raise ToolError("broken hook")
        return None

    user = ScriptedUser(True)
    model = Scripted(
        tool_calls_reply(tool_call(id="a"), tool_call(id="b"), tool_call(id="c"), tool_call("gone", id="d"))
    )
    with pytest.raises(ToolError):
        await Agent(model, tools=[echo], hooks=[some, asking()], ask=user).run("go")
    assert user.question.op.call.id == "a"


# rule 9: time spent asking is not counted


async def test_a_user_may_take_longer_than_a_guard() -> None:
    async def slow(question: Any) -> bool:
        await asyncio.sleep(0.05)
        return True

    hook = guard(ToolUse, name="ask", timeout=0.01)(lambda use: Ask("sure?"))
    assert tool_result(await echo_agent(hook, ask=slow).run("go")) == "hi"


# delegates


def deputised(*answers: Any) -> Any:
    """A hook that delegates these questions to the first that answers."""

    def answering(answer: Any) -> Any:
        async def deputy(run: Run, question: Any) -> Any:
            return answer, f"deputy {answer}"

        return deputy

    @before(Run, inherit=True)
    def deputise(run: Run) -> None:
        run.progress.extensions.delegates.extend(map(answering, answers))

    return deputise


async def test_a_deputy_answers_and_the_user_is_not_asked() -> None:
    user, thread = ScriptedUser(False), Thread()
    watched = await collect_events(echo_agent(deputised(None, True), asking(), ask=user), thread=thread)
    assert user.questions == [] and "on_approval_request" not in [event.event for event in watched]
    assert [(said["allowed"], said["deputy"]) for said in thread_entries(thread, "answered")] == [(True, "deputy True")]
    (ended,) = [event for event in watched if event.event == "on_tool_end"]
    assert [(row["hook"], row["verdict"]) for row in ended.why][-1] == ("deputy True", "approved")  # type: ignore[attr-defined]


async def test_a_delegate_without_answer_defers_to_the_user() -> None:
    user = ScriptedUser(True)
    assert tool_result(await echo_agent(deputised(None), asking(), ask=user).run("go")) == "hi"
    assert len(user.questions) == 1


async def test_a_delegate_may_deny_or_change_arguments() -> None:
    assert (
        tool_result(await echo_agent(deputised(Block("not now")), asking(), ask=ScriptedUser(True)).run("go"))
        == "not now"
    )
    changed = deputised(Allow({"text": "ho", "times": 1}))
    assert tool_result(await echo_agent(changed, asking(), ask=ScriptedUser(False)).run("go")) == "ho"


def _echo_into(ran: OperationLog) -> Any:
    @tool(name="echo")
    async def echo_into(text: str) -> str:
        ran(text)
        return text

    return echo_into
