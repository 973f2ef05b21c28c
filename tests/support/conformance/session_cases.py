"""Conformance cases for sessions: runs over a store, questions and answers, one writer at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wick import Agent, Ask, FunctionModel, Run, Scripted, Thread, ToolCall, ToolUse, assistant, guard, tool, user
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError, StoreError, ThreadBusy
from wick.events import Failed
from wick.protocols import Request, Store
from wick.stores.held_thread import PAGE, HeldThread
from wick.testing import lapse_questions

ran: list[str] = []


@tool
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(f"paid {amount}")
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


@pytest.fixture(autouse=True)
def new_thread() -> None:
    ran.clear()


def agent(store: Store, *replies: Any, hooks: Any = (), **options: Any) -> Agent:
    return Agent(Scripted(*replies), tools=[pay], hooks=[Sessions(store, **options), *hooks])


def call(name: str, id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(id, name, args)


def spend(amount: int = 5) -> Any:
    return assistant("", call("pay", amount=amount))


async def list_rows(store: Store, id: str, owner: str = "local") -> list[dict[str, Any]]:
    return [row async for batch in store.read(owner, id) for row in batch]


# -- a conversation ---------------------------------------------------------------------------------------------------


async def test_a_conversation_continues_in_another_agent(store: Store) -> None:
    first = await agent(store, "Hello Ada.").run("I am Ada.", thread="th_1")
    model = Scripted("You are Ada.")
    second = await Agent(model, hooks=[Sessions(store)]).run("Who am I?", thread="th_1")
    assert (first.text, second.text) == ("Hello Ada.", "You are Ada.")
    assert [message.text for message in model.requests[0].messages] == ["I am Ada.", "Hello Ada.", "Who am I?"]
    kept = await Sessions(store).load("th_1")
    assert second.thread is not None and kept.to_json() == second.thread.to_json()


async def test_a_run_without_a_thread_gets_a_stored_one(store: Store) -> None:
    result = await agent(store, "Hi.").run("Hello")
    assert result.thread is not None and result.thread.writer is None, "the lease is released"
    assert len(await list_rows(store, result.thread.id)) == len(result.thread.entries)


async def test_an_existing_thread_is_stored_with_its_history(store: Store) -> None:
    thread = Thread("th_1")
    thread.add(user("one"), assistant("1"))
    await agent(store, "2").run("two", thread=thread)
    await agent(store, "3").run("three", thread=thread)
    assert [row["data"]["content"] for row in await list_rows(store, "th_1") if row["kind"] == "message"] == [
        *("one", "1", "two", "2", "three", "3"),
    ]


async def test_a_diverged_thread_is_refused(store: Store) -> None:
    await agent(store, "1").run("one", thread="th_1")
    other = Thread("th_1")
    other.add(user("something else"))
    with pytest.raises(StoreError, match="load it from there") as caught:
        await Agent(Scripted("2", spare=True), hooks=[Sessions(store)]).run("two", thread=other)
    assert caught.value.code == "conflict"


async def test_a_thread_in_memory_that_is_behind_catches_up(store: Store) -> None:
    first = (await agent(store, "1").run("one", thread="th_1")).thread
    await agent(store, "2").run("two", thread="th_1")
    result = await agent(store, "3").run("three", thread=first)
    assert [message.text for message in result.thread.messages] == ["one", "1", "two", "2", "three", "3"]  # type: ignore[union-attr]


async def test_owners_do_not_meet(store: Store) -> None:
    await agent(store, "Hello Ada.").run("I am Ada.", thread="th_1", user="ada")
    model = Scripted("I do not know you.")
    await Agent(model, hooks=[Sessions(store)]).run("Who am I?", thread="th_1", user="bob")
    assert len(model.requests[0].messages) == 1
    with pytest.raises(StoreError) as caught:
        await Sessions(store).load("th_1", owner="eve")
    assert caught.value.code == "not_found"


async def test_announced_data_is_stored(store: Store) -> None:
    """A client that sees a reply, a result or the end can read it in the store."""
    seen: list[tuple[str, int]] = []
    stream = agent(store, spend(), "Done.").stream("go", thread="th_1")
    async for event in stream:
        told = {"on_chat_model_end", "on_tool_end", "done"}
        if event.event in told:
            seen.append((event.event, len([row for row in await list_rows(store, "th_1") if row["kind"] == "message"])))
    assert [event for event, _ in seen] == ["on_chat_model_end", "on_tool_end", "on_chat_model_end", "done"]
    assert all(there >= least for (_, there), least in zip(seen, (2, 3, 4, 4), strict=True)), seen
    assert (await list_rows(store, "th_1"))[-1]["kind"] == "run_end"


async def test_a_tool_starts_after_its_start_is_stored(store: Store) -> None:
    there: list[list[str]] = []

    @tool
    async def look(run: Run) -> str:
        """Look at the store."""
        there.append([row["kind"] for row in await list_rows(store, "th_1")])
        return "seen"

    await Agent(Scripted(assistant("", call("look")), "ok"), tools=[look], hooks=[Sessions(store)]).run(
        "go", thread="th_1"
    )
    assert there == [["message", "run_start", "message", "intent"]]


async def test_a_python_thread_may_set_values(store: Store) -> None:
    @tool
    def note(text: str, run: Run) -> str:
        """Write something down, in a thread of its own."""
        run.thread.values[text] = [text]
        return "noted"

    calls = [call("note", id=f"c{n}", text=f"t{n}") for n in range(8)]
    await Agent(Scripted(assistant("", *calls), "ok"), tools=[note], hooks=[Sessions(store)]).run("go", thread="th_1")
    assert len((await Sessions(store).load("th_1")).values) == 8


# -- taking up --------------------------------------------------------------------------------------------------------


async def test_an_interrupted_run_is_resumed_from_the_store(store: Store) -> None:
    class Crash(BaseException):
        """The program dies."""

    @tool(name="pay")
    async def die(amount: int) -> str:
        """Pay, and die in the middle."""
        raise Crash

    with pytest.raises(Crash):
        await Agent(Scripted(spend(), spare=True), tools=[die], hooks=[Sessions(store)]).run("go", thread="th_1")
    cut = await Sessions(store).load("th_1")
    at = next(entry.seq for entry in cut.entries if entry.kind == "intent")
    await store.fork("local", "th_1", at, "th_2")  # as the log was in the moment of the crash
    model = Scripted("Let me look.")
    result = await Agent(model, tools=[pay], hooks=[Sessions(store)]).run(thread="th_2")
    assert "may have taken effect" in result.messages.tool_messages()[0].text
    assert (ran, result.text) == ([], "Let me look.")


@pytest.mark.parametrize(("choice", "paid"), [("allow", ["paid 5"]), ("deny", [])])
async def test_the_user_may_be_asked_about_unknown_calls(store: Store, choice: Any, paid: list[str]) -> None:
    sessions = Sessions(store, unknown="ask_user")
    await agent(store, spend(), "ok").run("go", thread="th_1")
    at = next(row["seq"] for row in await list_rows(store, "th_1") if row["kind"] == "intent")
    await store.fork("local", "th_1", at, "th_2")
    ran.clear()
    waits = await Agent(Scripted("done", spare=True), tools=[pay], hooks=[sessions]).run(thread="th_2")
    assert waits.outcome == "interrupted" and ran == []
    (question,) = await sessions.questions("th_2")
    assert question["question"] == "pay was started before, and may have taken effect. Run it again?"
    await sessions.answer("th_2", question["id"], choice)
    result = await Agent(Scripted("done"), tools=[pay], hooks=[sessions]).run(thread="th_2")
    assert (result.outcome, ran) == ("completed", paid)


# -- questions --------------------------------------------------------------------------------------------------------


async def run_to_question(store: Store, **options: Any) -> Any:
    """A run that waits for an answer, and its question."""
    result = await agent(store, spend(), hooks=[confirm], **options).run("go", thread="th_1")
    assert (result.outcome, ran) == ("interrupted", [])
    assert result.reason == "paused: waiting for an answer to: pay 5?"
    (question,) = await Sessions(store).questions("th_1")
    return question


async def test_a_stored_question_can_be_answered_anywhere(store: Store) -> None:
    question = await run_to_question(store)
    assert (question["question"], question["tool"], question["args"]) == ("pay 5?", "pay", {"amount": 5})
    assert question["expires"] > 1_700_000_000
    head = await store.head("local", "th_1")
    assert (head.asking, bool(head.run)) == (1, True)
    await Sessions(store).answer("th_1", question["id"], "allow", by="bob")
    result = await agent(store, "Paid.", hooks=[confirm]).run(thread="th_1")
    assert (result.text, ran) == ("Paid.", ["paid 5"])
    kinds = [row["kind"] for row in await list_rows(store, "th_1")]
    assert kinds.count("asked") == kinds.count("answered") == kinds.count("intent") == 1
    answered = next(row["data"] for row in await list_rows(store, "th_1") if row["kind"] == "answered")
    assert answered["by"] == "bob" and await store.inbox("local", "th_1") == []
    assert (await store.head("local", "th_1")).asking == 0


async def test_a_denial_has_words(store: Store) -> None:
    question = await run_to_question(store)
    await Sessions(store).answer("th_1", question["id"], "deny", words="too much")
    result = await agent(store, "Not paid.", hooks=[confirm]).run(thread="th_1")
    assert "too much" in result.messages.tool_messages()[0].text and ran == []


async def test_an_answer_may_change_the_arguments_and_guards_look_again(store: Store) -> None:
    question = await run_to_question(store)
    await Sessions(store).answer("th_1", question["id"], "allow", args={"amount": 3})
    await agent(store, "Paid.", hooks=[confirm]).run(thread="th_1")
    assert ran == ["paid 3"]


@pytest.mark.parametrize(("choice", "scope"), [("allow_session", "session"), ("allow_always", "always")])
async def test_an_answer_may_be_a_grant(store: Store, choice: Any, scope: str) -> None:
    question = await run_to_question(store)
    await Sessions(store).answer("th_1", question["id"], choice)
    await agent(store, "Paid.", hooks=[confirm]).run(thread="th_1")
    answered = next(row["data"] for row in await list_rows(store, "th_1") if row["kind"] == "answered")
    assert answered["scope"] == scope
    assert answered["rule"] == {"operation": "tool_use", "tool": "pay", "args": {"amount": 5}}


async def test_the_first_answer_counts(store: Store) -> None:
    question = await run_to_question(store)
    sessions = Sessions(store)
    await sessions.answer("th_1", question["id"], "deny")
    with pytest.raises(StoreError) as caught:
        await sessions.answer("th_1", question["id"], "allow")
    assert caught.value.code == "conflict"
    assert await sessions.questions("th_1") == []


async def test_answers_to_nothing_are_refused(store: Store) -> None:
    question = await run_to_question(store)
    sessions = Sessions(store)
    for bad in (
        sessions.answer("th_1", "ask_nothing", "allow"),
        sessions.answer("th_9", question["id"], "allow"),
        sessions.answer("th_1", question["id"], "allow", owner="eve"),
    ):
        with pytest.raises(StoreError) as caught:
            await bad
        assert caught.value.code == "not_found"
    with pytest.raises(StoreError, match="the answer is one of allow"):
        await sessions.answer("th_1", question["id"], "maybe")  # type: ignore[arg-type]
    with pytest.raises(StoreError, match="a denial cannot"):
        await sessions.answer("th_1", question["id"], "deny", args={})
    assert len(await sessions.questions("th_1")) == 1, "nothing is lost"


async def test_a_paused_run_is_cancelled(store: Store) -> None:
    sessions = Sessions(store)
    await agent(store, spend(), hooks=[confirm]).run("pay 5", thread="th_1", user="ada")
    with pytest.raises(StoreError, match="there is no thread 'th_1'"):
        await sessions.cancel("th_1")
    await sessions.cancel("th_1", owner="ada")
    await sessions.cancel("th_1", owner="ada")  # no run is open now, so that there is no effect
    thread = await sessions.load("th_1", owner="ada")
    assert thread.entries[-1].data["outcome"] == "cancelled" and not thread.pending
    assert thread.messages[-1].text == "the run was cancelled before pay ran"
    assert not await sessions.questions("th_1", owner="ada") and not [head async for head in sessions.iter_unfinished()]

    result = await agent(store, "What else?", hooks=[confirm]).run("never mind", thread="th_1", user="ada")
    assert (result.text, ran) == ("What else?", [])


async def test_a_run_in_progress_is_not_cancelled_by_its_thread(store: Store) -> None:
    sessions, refused = Sessions(store), list[str]()

    async def reply(request: Request) -> str:
        with pytest.raises(StoreError) as error:
            await sessions.cancel("th_1")
        refused.append(error.value.code)
        return "done"

    assert (await Agent(FunctionModel(reply), hooks=[sessions]).run("go", thread="th_1")).text == "done"
    assert refused == ["conflict"]


async def test_an_unanswered_question_expires(store: Store) -> None:
    result = await agent(store, spend(), "Never mind.", hooks=[confirm], answer_within=1e-9).run("go", thread="th_1")
    assert "lapsed" in result.messages.tool_messages()[0].text and ran == []
    answered = next(row["data"] for row in await list_rows(store, "th_1") if row["kind"] == "answered")
    assert answered["lapsed"] is True and answered["allowed"] is False


async def test_expired_questions_are_found(store: Store) -> None:
    sessions = Sessions(store)
    await run_to_question(store)
    (question,) = await sessions.questions("th_1")
    assert await sessions.lapsed() == [] == [head.id async for head, _ in sessions.iter_lapsed()]
    assert [head.id async for head, _ in sessions.iter_questions()] == ["th_1"]
    await lapse_questions(sessions, "th_1")
    assert await sessions.lapsed() == ["th_1"]
    assert [(head.id, lapsed["id"]) async for head, lapsed in sessions.iter_lapsed()] == [("th_1", question["id"])]
    assert await sessions.questions("th_1") == [], "an expired question is not pending"
    assert [one async for one in sessions.iter_questions()] == []
    assert (await sessions.threads(asking=True)).threads == ()
    assert (await sessions.store.head("local", "th_1")).asking == 0
    with pytest.raises(StoreError, match="lapsed") as caught:
        await sessions.answer("th_1", question["id"], "allow")
    assert caught.value.code == "conflict"
    result = await agent(store, "Never mind.", hooks=[confirm]).run(thread="th_1")
    assert "lapsed" in result.messages.tool_messages()[0].text and ran == []
    assert await sessions.lapsed() == []


async def test_unfinished_threads_are_listed_over_all_pages(store: Store) -> None:
    async def queue_message(owner: str, id: str) -> tuple[str, str]:
        await store.create(owner, id)
        await store.enqueue(owner, id, user("go").to_json())
        return owner, id

    await agent(store, "Done.").run("go", thread="th_done")
    await run_to_question(store)
    queued = await asyncio.gather(*(queue_message(f"user{n % 3}", f"th_{n}") for n in range(PAGE)))
    found = [(head.owner, head.id) async for head in Sessions(store).iter_unfinished()]
    assert sorted(found) == sorted([("local", "th_1"), *queued])


async def test_a_run_may_wait_for_its_answer(store: Store) -> None:
    sessions = Sessions(store, patience=30)
    running = asyncio.create_task(
        Agent(Scripted(spend(), "Paid."), tools=[pay], hooks=[sessions, confirm]).run("go", thread="th_1")
    )
    while not (questions := await sessions.questions("th_1") if await _exists(store) else []):
        await asyncio.sleep(0.01)
    await sessions.answer("th_1", questions[0]["id"], "allow")
    assert (await running).text == "Paid." and ran == ["paid 5"]


async def _exists(store: Store) -> bool:
    return bool((await store.list("local")).threads)


async def test_a_childs_question_is_one_of_the_roots_thread(store: Store) -> None:
    child, thread = (
        Agent(Scripted(spend(), "child done"), name="child", tools=[pay], hooks=[confirm]),
        Thread("th_child"),
    )

    @tool(idempotent=True)
    async def delegate() -> str:
        """Delegate the task."""
        return (await child.run("" if thread.entries else "pay", thread=thread)).text

    def root(*replies: Any) -> Agent:
        return Agent(Scripted(*replies), tools=[delegate], hooks=[Sessions(store)])

    assert (await root(assistant("", call("delegate"))).run("go", thread="th_1")).outcome == "interrupted"
    (question,) = await Sessions(store).questions("th_1")
    assert (question["question"], ran, thread.questions) == ("pay 5?", [], {})
    await Sessions(store).answer("th_1", question["id"], "allow")
    result = await root("all done").run(thread="th_1")
    assert (result.text, ran) == ("all done", ["paid 5"])
    assert result.messages.tool_messages()[0].text == "child done"


# -- one writer -------------------------------------------------------------------------------------------------------


def slow_agent(began: list[str], gate: asyncio.Event) -> FunctionModel:
    async def reply(request: Any) -> Any:
        began.append(request.messages[-1].text)
        await gate.wait()
        return assistant(f"re: {request.messages[-1].text}")

    return FunctionModel(reply)


async def test_two_messages_at_once_are_answered_in_order(store: Store) -> None:
    began: list[str] = []
    gate = asyncio.Event()
    talker = Agent(slow_agent(began, gate), hooks=[Sessions(store)])
    runs = [asyncio.create_task(talker.run(word, thread="th_1")) for word in ("one", "two", "three")]
    while not began:
        await asyncio.sleep(0.01)
    assert began == ["one"]
    gate.set()
    assert [(await run).text for run in runs] == ["re: one", "re: two", "re: three"]
    assert [message.text for message in (await Sessions(store).load("th_1")).messages] == [
        *("one", "re: one", "two", "re: two", "three", "re: three"),
    ]


async def test_a_second_message_may_be_refused(store: Store) -> None:
    began: list[str] = []
    gate = asyncio.Event()
    talker = Agent(slow_agent(began, gate), hooks=[Sessions(store, busy="refuse")])
    first = asyncio.create_task(talker.run("one", thread="th_1"))
    while not began:
        await asyncio.sleep(0.01)
    with pytest.raises(ThreadBusy, match="in progress") as caught:
        await talker.run("two", thread="th_1")
    assert caught.value.code == "conflict"
    events = [event async for event in talker.stream("two", thread="th_1")]
    assert isinstance(events[-1], Failed) and events[-1].code == "thread_busy"
    await store.create("local", "th_2")
    await store.lease("local", "th_2", "another program", 30)
    with pytest.raises(ThreadBusy, match="is held by"):
        await talker.run("two", thread="th_2")
    gate.set()
    await first
    assert (await talker.run("three", thread="th_1")).text == "re: three"


async def test_an_abandoned_wait_leaves_the_queue(store: Store) -> None:
    began: list[str] = []
    gate = asyncio.Event()
    talker = Agent(slow_agent(began, gate), hooks=[Sessions(store)])
    runs = [asyncio.create_task(talker.run(word, thread="th_1")) for word in ("one", "two", "three")]
    while not began:
        await asyncio.sleep(0.01)
    runs[1].cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await runs[1]
    assert (await runs[2]).text == "re: three"
    assert "two" not in [message.text for message in (await Sessions(store).load("th_1")).messages]


async def test_the_thread_of_another_program_is_waited_for(store: Store) -> None:
    await store.create("local", "th_1")
    lease = await store.lease("local", "th_1", "somebody else", 30)
    waiting = asyncio.create_task(agent(store, "hi").run("hello", thread="th_1"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await store.release("local", "th_1", lease.fence)
    assert (await waiting).text == "hi"


async def test_a_lost_lease_cannot_write(store: Store) -> None:
    """As if this program had been stopped until its lease was over and another one had it."""

    @tool
    async def sleep_long(run: Run) -> str:
        """Sleep."""
        assert isinstance(run.thread.writer, HeldThread)
        await store.release("local", "th_1", run.thread.writer.lease.fence)
        await store.lease("local", "th_1", "another program", 30)
        return "woke up"

    worker = Agent(Scripted(assistant("", call("sleep_long")), spare=True), tools=[sleep_long], hooks=[Sessions(store)])
    with pytest.raises(StoreError) as caught:
        await worker.run("go", thread="th_1")
    assert caught.value.code == "fenced"
    assert [row["kind"] for row in await list_rows(store, "th_1")][-1] == "intent", "what came later is not written"


async def test_a_lease_is_renewed_during_a_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[str] = []
    renewed: list[Any] = []
    gate, renew = asyncio.Event(), store.renew_all

    async def noted(*args: Any) -> Any:
        renewed.append(await renew(*args))
        return renewed[-1]

    monkeypatch.setattr(store, "renew_all", noted)
    run = asyncio.create_task(
        Agent(slow_agent(began, gate), hooks=[Sessions(store, lease=1.5)]).run("one", thread="th_1")
    )
    while len(renewed) < 4:  # three of them take as long as the lease
        await asyncio.sleep(0.01)
    with pytest.raises(StoreError):
        await store.lease("local", "th_1", "another", 1)
    gate.set()
    await run
    await store.lease("local", "th_1", "another", 1)


async def test_a_child_cannot_have_the_thread_of_the_run_above(store: Store) -> None:
    inner = (
        agent(store, "never", spare=True) if False else Agent(Scripted("never", spare=True), hooks=[Sessions(store)])
    )

    @tool
    async def delegate() -> str:
        """Run another agent on the same thread."""
        return (await inner.run("x", thread="th_1")).text

    outer = Agent(Scripted(assistant("", call("delegate")), "ok"), tools=[delegate], hooks=[Sessions(store)])
    result = await outer.run("go", thread="th_1")
    assert "that of the run above" in result.messages.tool_messages()[0].text


# -- messages to a thread ---------------------------------------------------------------------------------------------


async def test_a_message_during_a_run_steers_it(store: Store) -> None:
    sessions = Sessions(store)

    @tool
    async def work() -> str:
        """Work."""
        await sessions.send("th_1", "and quickly")
        return "worked"

    model = Scripted(assistant("", call("work")), "quickly done")
    await Agent(model, tools=[work], hooks=[sessions]).run("go", thread="th_1")
    assert model.requests[1].messages[-1].text == "and quickly"
    assert await store.inbox("local", "th_1") == []


async def test_a_message_at_the_last_moment_is_answered(store: Store) -> None:
    sessions = Sessions(store)

    async def reply(request: Any) -> Any:
        if request.messages[-1].text == "go":
            await sessions.send("th_1", "wait!")
        return assistant(f"re: {request.messages[-1].text}")

    result = await Agent(FunctionModel(reply), hooks=[sessions]).run("go", thread="th_1")
    assert [message.text for message in result.messages] == ["go", "re: go", "wait!", "re: wait!"]


async def test_a_message_to_an_idle_thread_waits_for_the_next_run(store: Store) -> None:
    sessions = Sessions(store)
    await agent(store, "1").run("one", thread="th_1")
    await sessions.send("th_1", "two")
    assert (await store.head("local", "th_1")).queued == 1
    model = Scripted("2", "3")
    assert (await Agent(model, hooks=[sessions]).run(thread="th_1")).text == "2"
    await sessions.send("th_1", "and")
    result = await Agent(model, hooks=[sessions]).run("three", thread="th_1")
    assert [message.text for message in result.messages] == ["and", "three", "3"]


async def test_only_user_messages_are_delivered(store: Store) -> None:
    await store.create("local", "th_1")
    with pytest.raises(ConfigError, match="only a message of the user"):
        await Sessions(store).send("th_1", assistant("I am the model"))
    with pytest.raises(StoreError):
        await Sessions(store).send("th_9", "anybody?")


# -- going back -------------------------------------------------------------------------------------------------------


async def test_a_thread_forks_and_rewinds(store: Store) -> None:
    sessions = Sessions(store)
    talker = agent(store, "1", "2", "3", "4")
    await talker.run("one", thread="th_1")
    await talker.run("two", thread="th_1")
    at = next(entry.seq for entry in (await sessions.load("th_1")).entries if entry.kind == "run_end")
    copy = await sessions.fork("th_1", at)
    assert (await talker.run("three", thread=copy.id)).thread.messages[-3].text == "1"  # type: ignore[union-attr]
    back = await sessions.rewind("th_1", at)
    assert [message.text for message in back.messages] == ["one", "1"]
    result = await talker.run("four", thread="th_1")
    assert [message.text for message in result.thread.messages] == ["one", "1", "four", "4"]  # type: ignore[union-attr]
    for bad in (99, -1):
        with pytest.raises(StoreError):
            await sessions.rewind("th_1", bad)
    with pytest.raises(StoreError):
        await sessions.rewind("th_9", 1)


# -- input ------------------------------------------------------------------------------------------------------------


async def test_a_store_that_fails_fails_the_run(store: Store) -> None:
    @tool
    async def break_it() -> str:
        """Take the thread away."""
        await store.delete("local", "th_1")
        return "gone"

    events = []
    worker = Agent(Scripted(assistant("", call("break_it")), spare=True), tools=[break_it], hooks=[Sessions(store)])
    stream = worker.stream("go", thread="th_1")
    async for event in stream:
        events.append(event.event)
    assert events[-1] == "error" and events.count("error") + events.count("done") == 1
    assert stream.result is not None and isinstance(stream.result.error, StoreError)
