"""Conformance cases for threads in a store: runs that end early, late writers, and answers to questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Generator
from typing import Any

import pytest

from wick import Agent, Ask, FunctionModel, Scripted, Thread, ToolCall, ToolUse, assistant, guard, tool, user
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.sessions import Sessions
from wick.capabilities.subagents import Subagents
from wick.errors import StoreError
from wick.protocols import Store
from wick.stores.held_thread import hold, load

ran: list[str] = []


@tool
async def pay(amount: int) -> str:
    """Pay."""
    await asyncio.sleep(0)
    ran.append(f"paid {amount}")
    return f"paid {amount}"


@guard(ToolUse, match="pay")
def confirm(use: ToolUse) -> Ask:
    return Ask(f"pay {use.args['amount']}?")


@pytest.fixture(autouse=True)
def new_thread() -> None:
    ran.clear()


def spend(*amounts: int) -> Any:
    return assistant("", *(ToolCall(f"c{amount}", "pay", {"amount": amount}) for amount in amounts))


def payment_agent(store: Store, *replies: Any, ask: Any = None, **options: Any) -> Agent:
    return Agent(Scripted(*replies, spare=True), tools=[pay], hooks=[Sessions(store, **options), confirm], ask=ask)


async def pause_run(store: Store) -> str:
    """A run that waits for an answer, and the id of its question."""
    assert (await payment_agent(store, spend(5)).run("go", thread="th_1")).outcome == "interrupted"
    (question,) = await Sessions(store).questions("th_1")
    return str(question["id"])


async def check_settled(store: Store, id: str = "th_1") -> None:
    """Check that the thread has no holder, no pending call, and is complete."""
    head = await store.head("local", id)
    assert (head.run, head.asking, head.queued, head.leased) == ("", 0, 0, False)
    thread = await Sessions(store).load(id)
    assert not thread.pending and thread.open_run is None


# -- cancelled anywhere -----------------------------------------------------------------------------------------------


class CancelledAt:
    """An awaitable that is cancelled at its n-th suspension."""

    def __init__(self, work: Awaitable[Any], n: int) -> None:
        self.steps, self.left = work.__await__(), n

    def __await__(self) -> Generator[Any, Any, Any]:
        value, error = None, None
        while True:
            try:
                waits = self.steps.send(value) if error is None else self.steps.throw(error)
            except StopIteration as end:
                return end.value
            self.left -= 1
            if not self.left:
                task = asyncio.current_task()
                assert task is not None
                asyncio.get_running_loop().call_soon(task.cancel)
            value, error = None, None
            try:
                value = yield waits
            except BaseException as raised:
                error = raised


async def cancel_at(work: Awaitable[Any], n: int) -> bool:
    async def body() -> None:
        await CancelledAt(work, n)

    try:
        await asyncio.create_task(body())
    except asyncio.CancelledError:
        return True
    return False


@pytest.mark.parametrize("patience", [0.0, 0.05])
async def test_a_run_cancelled_anywhere_leaves_a_usable_thread(store: Store, patience: float) -> None:
    """Also at the moment it gets the lease: no other holder waits for its expiry."""
    n, cancelled = 0, True
    while cancelled:
        n += 1
        thread = f"th_{n}"
        cancelled = await cancel_at(
            payment_agent(store, spend(1, 2), "ok", patience=patience).run("go", thread=thread), n
        )
        later = Agent(Scripted("here"), hooks=[Sessions(store)])
        assert (await asyncio.wait_for(later.run("next", thread=thread), 25)).text == "here"  # a lease takes 30
        await check_settled(store, thread)
    assert n > 4, "it was not cancelled anywhere"


# -- one place --------------------------------------------------------------------------------------------------------


async def test_a_thread_in_memory_has_one_holder_at_a_time(store: Store) -> None:
    gate, began, thread = asyncio.Event(), asyncio.Event(), Thread("th_1")

    async def reply(request: Any) -> Any:
        began.set()
        await gate.wait()
        return assistant("hello Ada")

    talker = Agent(FunctionModel(reply), hooks=[Sessions(store)])
    first = asyncio.create_task(talker.run("I am Ada", thread=thread, user="ada"))
    await began.wait()
    with pytest.raises(StoreError, match="held by ada") as caught:
        await talker.run("I am Bob", thread=thread, user="bob")
    gate.set()
    await first
    assert caught.value.code == "conflict"
    assert (await Sessions(store).load("th_1", owner="ada")).to_json() == thread.to_json(), "what was seen is saved"


async def test_a_thread_in_memory_is_read_only_if_its_log_has_grown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread, agent = Thread("th_1"), Agent(Scripted("one", "two", "three"), hooks=[Sessions(store)])
    reads, read = list[int](), store.read

    def count(owner: str, id: str, *, after: int = 0, limit: int | None = None) -> Any:
        reads.append(after)
        return read(owner, id, after=after, limit=limit)

    await agent.run("first", thread=thread)
    await store.create("local", "other")
    for id in ("th_1", "other"):  # leases that write nothing, such as those of a claim
        await store.release("local", id, (await store.lease("local", id, "another process", 60)).fence)
    monkeypatch.setattr(store, "read", count)
    await agent.run("second", thread=thread)
    assert reads == []
    lease = await store.lease("local", "th_1", "another process", 60)
    last = len(thread.entries)
    entry = {"seq": last + 1, "kind": "message", "at": 1.0, "data": {"role": "user", "content": "between"}}
    await store.append("local", "th_1", [entry], expect=last, fence=lease.fence)
    await store.release("local", "th_1", lease.fence)
    result = await agent.run("third", thread=thread)
    assert reads == [last - 1, last]  # the last common entry, and the new ones
    assert [message.text for message in result.thread.messages][4:] == ["between", "third", "three"]
    await check_settled(store)


async def test_a_thread_that_differs_from_its_log_is_refused_although_it_is_as_long(store: Store) -> None:
    thread = Thread("th_1")
    async with hold(store, "local", thread):
        thread.add(user("common"))
    thread.add(user("here"))
    async with hold(store, "local", await load(store, "local", "th_1")) as held:
        held.thread.add(user("there"))
    with pytest.raises(StoreError, match="another one here"):
        async with hold(store, "local", thread):
            pass


async def test_an_agent_that_a_tool_runs_in_a_python_thread_can_ask(store: Store) -> None:
    """It has its own event loop, and its question goes to the thread of the parent run."""
    child = Agent(Scripted(spend(5), "child done"), name="child", tools=[pay], hooks=[confirm])

    @tool
    def delegate() -> str:
        """Delegate the task."""
        return child.run_sync("pay").text

    root = Agent(
        Scripted(assistant("", ToolCall("d1", "delegate", {})), "all done"),
        tools=[delegate],
        hooks=[Sessions(store, patience=30)],
    )
    running = asyncio.create_task(root.run("go", thread="th_1"))
    await say_yes(store)
    assert ((await asyncio.wait_for(running, 30)).text, ran) == ("all done", ["paid 5"])
    await check_settled(store)


async def say_yes(store: Store) -> None:
    sessions = Sessions(store)
    for _ in range(3000):
        if (await store.list("local", asking=True)).threads and (questions := await sessions.questions("th_1")):
            return await sessions.answer("th_1", questions[0]["id"], "allow")
        await asyncio.sleep(0.01)
    raise AssertionError("no question was asked")


# -- answers ----------------------------------------------------------------------------------------------------------


async def test_an_answer_without_a_waiter_is_dismissed(store: Store) -> None:
    await Sessions(store).answer("th_1", await pause_run(store), "allow")
    result = await payment_agent(store, "as you like").run("never mind", thread="th_1")
    assert (result.text, ran, (await store.unfinished()).threads) == ("as you like", [], ())
    await check_settled(store)


async def test_an_answer_in_time_counts_when_read_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await Sessions(store).answer("th_1", await pause_run(store), "allow")
    monkeypatch.setattr("wick.approvals.time", lambda: 1e11)
    assert (await payment_agent(store, "paid").run(thread="th_1")).text == "paid" and ran == ["paid 5"]
    await check_settled(store)


async def test_a_late_answer_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    question = await pause_run(store)
    monkeypatch.setattr("wick.approvals.time", lambda: 1e11)
    monkeypatch.setattr("wick.capabilities.sessions.time", lambda: 1e11)
    with pytest.raises(StoreError, match="has lapsed") as caught:
        await Sessions(store).answer("th_1", question, "allow")
    assert caught.value.code == "conflict"
    assert (await payment_agent(store, "well").run(thread="th_1")).text == "well" and ran == []
    await check_settled(store)


async def test_a_question_expires_while_a_run_waits(store: Store) -> None:
    waiting = payment_agent(store, spend(5), "well", patience=600, answer_within=0.2)
    result = await asyncio.wait_for(waiting.run("go", thread="th_1"), 60)
    assert "lapsed" in result.messages.tool_messages()[0].text and ran == []
    await check_settled(store)


async def test_the_first_of_stored_and_local_answer_wins(store: Store) -> None:
    await Sessions(store).answer("th_1", await pause_run(store), "allow")
    assert (await payment_agent(store, "paid", ask=lambda question: False).run(thread="th_1")).text == "paid"
    assert ran == ["paid 5"]
    await check_settled(store)


async def test_an_answer_arrives_while_another_user_is_asked(store: Store) -> None:
    async def asker(question: Any) -> bool:
        await Sessions(store).answer("th_1", question.id, "deny", words="I was first")
        return True

    result = await payment_agent(store, spend(5), "well", ask=asker).run("go", thread="th_1")
    assert "I was first" in result.messages.tool_messages()[0].text and ran == []
    await check_settled(store)


@pytest.mark.parametrize("answered", [False, True])
async def test_a_rewound_question_is_open_again(store: Store, answered: bool) -> None:
    sessions, question = Sessions(store), await pause_run(store)
    if answered:
        await sessions.answer("th_1", question, "deny")
        await payment_agent(store, "not paid").run(thread="th_1")
    at = next(entry.seq for entry in (await sessions.load("th_1")).entries if entry.kind == "asked")
    await sessions.rewind("th_1", at)
    assert (await store.head("local", "th_1")).asking == 1
    (waits,) = await sessions.questions("th_1")
    await sessions.answer("th_1", waits["id"], "allow")
    assert (await payment_agent(store, "paid").run(thread="th_1")).text == "paid" and ran == ["paid 5"]
    await check_settled(store)


async def test_a_fork_has_a_question_of_its_own(store: Store) -> None:
    sessions, question = Sessions(store), await pause_run(store)
    await sessions.fork("th_1", (await store.head("local", "th_1")).last, new_id="th_2")
    await sessions.answer("th_2", question, "allow")
    assert (await payment_agent(store, "paid").run(thread="th_2")).text == "paid" and ran == ["paid 5"]
    await check_settled(store, "th_2")
    assert len(await sessions.questions("th_1")) == 1, "this question is unanswered"


async def test_a_background_question_waits_while_the_root_continues(store: Store) -> None:
    sessions, asked = Sessions(store, patience=30), asyncio.Event()

    @tool
    async def carry_on() -> str:
        """Continue until the question is answered."""
        await asked.wait()
        return "went on"

    async def reply(request: Any) -> Any:
        used = [message for message in request.messages if message.role == "tool"]
        if request.system == "pay":
            return assistant("it is paid") if used else spend(5)
        if not used:
            return assistant("", ToolCall("s1", "start_task", {"agent": "payer", "prompt": "pay"}))
        if len(used) == 1:
            await wait_for_question(store)
        return assistant("", ToolCall("g1", "carry_on", {})) if len(used) == 1 else assistant("done")

    payers = Subagents([Subagent(name="payer", description="Pays.", prompt="pay")])
    root = Agent(FunctionModel(reply), tools=[pay, carry_on], hooks=[sessions, payers, confirm])
    running = asyncio.create_task(root.run("go", thread="th_1"))
    while not [
        row
        async for batch in _thread_exists(store)
        for row in batch
        if row["kind"] == "intent" and _has_outcome(row, "g1")
    ]:
        await asyncio.sleep(0.01)
    await say_yes(store)  # the root has replied since it was asked
    asked.set()
    assert ((await asyncio.wait_for(running, 30)).outcome, ran) == ("completed", ["paid 5"])
    await check_settled(store)


async def wait_for_question(store: Store) -> None:
    while not (await store.list("local", asking=True)).threads:
        await asyncio.sleep(0.01)


async def _thread_exists(store: Store) -> AsyncIterator[Any]:
    if (await store.list("local")).threads:
        async for batch in store.read("local", "th_1"):
            yield batch


def _has_outcome(row: Any, call: str) -> bool:
    return bool(row["data"]["call"] == call)


# -- queued messages --------------------------------------------------------------------------------------------------


# -- a store that fails -----------------------------------------------------------------------------------------------
