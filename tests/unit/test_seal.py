"""Sealed data is immutable, and its hash covers exactly that data."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from kit import OperationLog, echo, echo_agent, execute, hello_agent, tool_call, tool_calls_reply
from wick import (  # fmt: skip
    Agent,
    Message,
    ModelCall,
    Operation,
    Run,
    Scripted,
    Step,
    Thread,
    ToolCall,
    ToolUse,
    assistant,
    before,
    guard,
    tool,
    user,
)
from wick import threads as threads_module
from wick._internal.frozen import FrozenDict
from wick._internal.sealed_copies import ReadOnly, copy_value, open_copy
from wick.errors import HookError, Sealed
from wick.models import OpenAI

MODEL = Scripted(spare=True)


def _run(**options: Any) -> Any:
    fields: dict[str, Any] = {"agent": "a", "input": [user("hi")], "model": MODEL, "user": "ada", "id": "run_1"}
    return Run(**fields | options)


def _step(**options: Any) -> Any:
    fields: dict[str, Any] = {"run": _run(), "number": 1, "pending": (tool_call(),)}
    return Step(**fields | options)


def _model_call(**options: Any) -> Any:
    fields: dict[str, Any] = {"run": _run(), "model": MODEL, "system": "be kind", "messages": [user("hi")]}
    fields |= {"tools": [echo], "settings": {"temperature": 0.5, "extra": {"a": [1]}}}
    return ModelCall(**fields | options)


def _tool_use(**options: Any) -> Any:
    fields: dict[str, Any] = {"run": _run(), "call": tool_call(), "tool": echo, "args": {"text": "hi", "times": 1}}
    return ToolUse(**fields | options)


EACH: list[Any] = [_run, _step, _model_call, _tool_use]

# rule 7: sealed is read-only


@pytest.mark.parametrize("make", EACH)
def test_a_sealed_operation_refuses_to_have_any_attribute_set_or_deleted(make: Any) -> None:
    sealed = make().seal()
    for name in [*(field.name for field in fields(sealed)), "hash", "new"]:
        with pytest.raises(Sealed, match=name):
            setattr(sealed, name, None)
        with pytest.raises(Sealed, match=name):
            delattr(sealed, name)


@pytest.mark.parametrize("make", EACH)
def test_a_sealed_operation_is_still_one_of_its_kind(make: Any) -> None:
    op = make()
    sealed = op.seal()
    assert issubclass(type(sealed), type(op)) and issubclass(type(sealed), ReadOnly)
    assert (sealed.operation_name, sealed.names) == (op.operation_name, op.names)
    assert type(sealed.seal()) is type(sealed)


def test_the_error_names_the_right_position() -> None:
    with pytest.raises(Sealed, match="change it in a `before` or a `wrap`"):
        _tool_use().seal().args = {}


def test_nested_data_of_a_sealed_tool_use_is_immutable() -> None:
    sealed = _tool_use(tool=deep, args={"plan": {"steps": ["a"]}}).seal()
    with pytest.raises(Sealed):
        sealed.args.update(plan={})
    with pytest.raises(Sealed):
        sealed.args["plan"].clear()
    with pytest.raises(Sealed):
        sealed.args["plan"]["steps"].append("b")


def test_nested_data_of_a_sealed_model_call_is_immutable() -> None:
    sealed = _model_call().seal()
    assert (type(sealed.messages), type(sealed.tools)) == (tuple, tuple)
    with pytest.raises(Sealed):
        sealed.settings["temperature"] = 1
    with pytest.raises(Sealed):
        sealed.settings["extra"]["a"].append(2)


def test_nested_data_of_a_sealed_run_is_immutable() -> None:
    sealed = _run(tools={"echo": echo}, settings={"temperature": 0}).seal()
    assert type(sealed.input) is tuple
    with pytest.raises((Sealed, TypeError)):
        sealed.tools["rm"] = execute
    with pytest.raises(Sealed):
        sealed.settings["temperature"] = 1


@tool
async def deep(plan: dict[str, Any]) -> str:
    return str(plan)


# rule 7: sealed is deep-copied


def test_the_open_operation_can_change_and_the_sealed_one_does_not_notice() -> None:
    use = _tool_use(tool=deep, args={"plan": {"steps": ["a"]}})
    sealed = use.seal()
    use.args["plan"]["steps"].append("b")
    use.tool = execute
    assert sealed.args == {"plan": {"steps": ["a"]}}
    assert sealed.view().bound is deep and sealed.bound.is_same(deep)


def test_a_sealed_model_call_copies_its_lists() -> None:
    call = _model_call()
    sealed = call.seal()
    call.messages.append(user("more"))
    call.tools.clear()
    call.settings["extra"]["a"].append(2)
    call.system = "be rude"
    assert (len(sealed.messages), len(sealed.tools), sealed.system) == (1, 1, "be kind")
    assert sealed.settings == {"temperature": 0.5, "extra": {"a": [1]}}


def test_a_sealed_run_copies_its_input() -> None:
    run = _run()
    sealed = run.seal()
    run.input.append(user("more"))
    run.user, run.agent = "eve", "other"
    assert (sealed.input, sealed.user, sealed.agent) == ((user("hi"),), "ada", "a")


# rule 7: sealed is validated, and the tool is bound


def test_sealing_validates_and_completes_the_arguments() -> None:
    sealed = _tool_use(args={"text": "hi"}).seal()
    assert sealed.args == {"text": "hi", "times": 1}
    assert isinstance(sealed.args, FrozenDict)


def test_the_bytes_that_run_are_the_arguments_that_were_sealed() -> None:
    assert _tool_use(args={"times": 2, "text": "hé"}).seal().data == b'{"text":"h\\u00e9","times":2}'


def test_a_use_without_a_tool_cannot_be_sealed() -> None:
    with pytest.raises(HookError, match="no tool named 'echo'"):
        _tool_use(tool=None).seal()


async def test_the_executed_tool_is_not_looked_up_again() -> None:
    used: list[str] = []

    @tool(name="echo")
    async def other(text: str) -> str:
        used.append(text)
        return "the other"

    @guard(ToolUse)
    async def swap(use: ToolUse) -> None:
        use.run.tools["echo"] = other

    model = Scripted(tool_calls_reply(tool_call()), tool_calls_reply(tool_call(id="c2")), "done")
    result = await Agent(model, tools=[echo], hooks=[swap]).run("go")
    assert [message.text for message in result.messages if message.role == "tool"] == ["hi", "the other"]
    assert used == ["hi"]


async def test_the_model_that_was_sealed_is_asked() -> None:
    other = Scripted("I am the other", name="other", spare=True)

    @guard(ModelCall)
    async def swap(call: ModelCall) -> None:
        call.run.model = other

    assert (await hello_agent(swap).run("hi")).text == "hello"
    assert other.requests == []


# rule 7: sealed fields of each operation


async def test_a_run_seals_its_input_agent_and_user() -> None:
    watch = OperationLog()
    await Agent(Scripted("ok"), name="helper", hooks=[guard(Run, name="watch")(watch)]).run("hi", user="ada")
    about = watch.op.to_json()
    assert about == {"run": watch.op.id, "agent": "helper", "user": "ada", "input": [user("hi").to_json()]}
    assert isinstance(watch.op, ReadOnly)


async def test_a_step_seals_its_number_and_pending_calls() -> None:
    thread, watch = Thread(), OperationLog()
    thread.add(user("go"), tool_calls_reply(tool_call()))
    agent = Agent(Scripted("done"), tools=[echo], hooks=[guard(Step, name="watch")(watch)])
    await agent.run(thread=thread)
    first, second = watch.ops
    assert (first.to_json()["number"], first.pending) == (1, (tool_call(),))
    assert (second.to_json()["number"], second.pending) == (2, ())
    assert isinstance(first, ReadOnly)


async def test_a_model_call_seals_model_settings_system_tools_and_messages() -> None:
    watch = OperationLog()
    model = Scripted("ok")
    hooks = [guard(ModelCall, name="watch")(watch)]
    agent = Agent(model, system="be kind", tools=[echo], settings={"temperature": 0}, hooks=hooks)
    await agent.run("hi")
    sealed = watch.op
    assert (sealed.model, sealed.system, sealed.tools) == (model, "be kind", (echo,))
    assert (sealed.messages, sealed.settings) == ((user("hi"),), {"temperature": 0})
    assert model.requests[0] == sealed.request


async def test_a_tool_use_is_executed_as_sealed() -> None:
    watch, done = OperationLog(), []

    @tool(name="echo")
    async def record(use: ToolUse, text: str, times: int = 1) -> str:
        done.append((use, text, times))
        return text

    await echo_agent(guard(ToolUse, name="watch")(watch), tools=[record]).run("go")
    ((used, text, times),) = done
    assert (text, times) == ("hi", 1) and (used.hash, used.args) == (watch.op.hash, watch.op.args)


# rules 7 and 8: the hash


@pytest.mark.parametrize("make", EACH)
def test_equal_operations_have_equal_hashes(make: Any) -> None:
    one, other = make(), make()
    assert one.seal().hash == one.seal().hash == other.seal().hash
    assert len(one.seal().hash) == 64


@pytest.mark.parametrize(
    "change",
    [{"agent": "b"}, {"user": "eve"}, {"input": [user("ho")]}, {"input": [user("hi"), user("hi")]}, {"input": []}],
)
def test_the_hash_of_a_run_covers_its_sealed_fields(change: dict[str, Any]) -> None:
    assert _run(**change).seal().hash != _run().seal().hash


@pytest.mark.parametrize(
    "change",
    [{"number": 2}, {"pending": ()}, {"pending": (tool_call(text="ho"),)}, {"run": _run(id="run_2")}],
)
def test_the_hash_of_a_step_covers_its_sealed_fields(change: dict[str, Any]) -> None:
    assert _step(**change).seal().hash != _step().seal().hash


@pytest.mark.parametrize(
    "change",
    [
        {"model": Scripted(name="other", spare=True)},
        {"system": "be rude"},
        {"messages": [user("ho")]},
        {"messages": []},
        {"messages": [user("hi"), assistant("yes")]},
        {"messages": [Message("user", "hi", name="a_hook")]},
        {"tools": []},
        {"tools": [echo, execute]},
        {"settings": {}},
        {"settings": {"temperature": 0.5, "extra": {"a": [2]}}},
        {"purpose": "summary"},
        {"run": _run(id="run_2")},
    ],
)
def test_the_hash_of_a_model_call_covers_its_sealed_fields(change: dict[str, Any]) -> None:
    assert _model_call(**change).seal().hash != _model_call().seal().hash


def test_the_hash_of_a_model_call_covers_the_address_of_its_model() -> None:
    urls = ["https://a.test/v1?key=sk-x", "https://b.test/v1?key=sk-x"]
    models = [OpenAI("gpt-4o", base_url=url, api_key="sk-x") for url in urls]
    calls = [_model_call(model=model) for model in (*models, models[0])]
    first, second, again = [call.seal().hash for call in calls]
    assert first == again != second
    assert "sk-x" not in str(calls[0].to_json()) and "a.test" not in str(calls[0].to_json())
    assert "address" not in _model_call().to_json()  # a model without one has the hash of older versions


@pytest.mark.parametrize(
    "change",
    [
        {"args": {"text": "ho", "times": 1}},
        {"args": {"text": "hi", "times": 2}},
        {"call": tool_call(id="c2")},
        {"tool": echo.renamed("say")},
        {"tool": tool(echo.fn, name="say").renamed("echo")},
        {"run": _run(id="run_2")},
    ],
)
def test_the_hash_of_a_tool_use_covers_its_sealed_fields(change: dict[str, Any]) -> None:
    assert _tool_use(**change).seal().hash != _tool_use().seal().hash


def test_the_hash_is_independent_of_argument_order_and_defaults() -> None:
    spellings = [{"text": "hi"}, {"text": "hi", "times": 1}, {"times": 1, "text": "hi"}, {"text": "hi", "times": "1"}]
    assert len({_tool_use(args=args).seal().hash for args in spellings}) == 1


def test_operations_of_different_kinds_never_share_a_hash() -> None:
    assert len({make().seal().hash for make in EACH}) == 4


# rule 7: the hash of a model call is chained, so that sealing is O(new)


class _Count:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.links = 0
        link = threads_module._hash_link

        def counted(before: bytes, message: Message) -> bytes:
            self.links += 1
            return link(before, message)

        monkeypatch.setattr(threads_module, "_hash_link", counted)

    def take(self) -> int:
        count, self.links = self.links, 0
        return count


def test_hashing_a_longer_thread_hashes_only_new_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread()
    thread.add(*[user(str(number)) for number in range(500)])
    run, count = _run(thread=thread), _Count(monkeypatch)
    assert (_hash(run), count.take()) == (_hash(run), 500)
    thread.add(assistant("one"), user("two"))
    _hash(run)
    assert count.take() == 2
    _hash(run)
    assert count.take() == 0


def test_a_message_that_a_hook_appended_is_hashed_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread()
    thread.add(*[user(str(number)) for number in range(100)])
    run, count = _run(thread=thread), _Count(monkeypatch)
    plain = _hash(run)
    count.take()
    assert _hash(run, user("remember")) != plain
    assert count.take() == 1
    assert _hash(run) == plain  # the thread's own chain is as it was


def test_the_digest_of_a_message_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    spelled: list[Message] = []
    to_json = Message.to_json

    def counted(message: Message) -> Any:
        spelled.append(message)
        return to_json(message)

    monkeypatch.setattr(Message, "to_json", counted)
    message = user("hi")
    assert message.digest == message.digest
    assert spelled == [message]


def test_the_chain_is_the_same_computed_at_once_or_incrementally() -> None:
    messages = [user("a"), tool_calls_reply(tool_call(id="1"), tool_call(id="2")), user("b")]
    results = [Message("tool", f"r{id}", tool_call_id=id, name="echo") for id in "12"]
    bit_by_bit = Thread()
    for message in (*messages[:2], results[1], results[0], messages[2]):  # results arrive in any order
        bit_by_bit.add(message)
        bit_by_bit.hash_messages(bit_by_bit.messages)
    in_order = [*messages[:2], *results, messages[2]]
    assert [*bit_by_bit.messages] == in_order
    assert bit_by_bit.hash_messages(bit_by_bit.messages) == Thread().hash_messages(in_order)


async def test_hashes_are_computed_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    count = _Count(monkeypatch)
    await hello_agent(guard(Operation, name="look")(lambda op: None)).run("hi")
    assert count.take() == 0


def _hash(run: Run, *more: Message) -> str:
    return str(_model_call(run=run, messages=[*run.thread.messages, *more]).seal().hash)


# copies


def test_an_open_copy_is_its_own_and_can_change() -> None:
    use = _tool_use()
    copy = open_copy(use, {"args": {"text": "ho"}})
    copy.args["text"] = "hey"
    assert (type(copy), copy.args, use.args["text"]) == (ToolUse, {"text": "hey"}, "hi")


def test_a_fork_shares_the_trail_and_nothing_that_can_change() -> None:
    call = _model_call()
    fork = call.fork(system="other")
    fork.messages.append(user("more"))
    fork.settings["extra"]["a"].append(2)
    assert (len(call.messages), call.settings["extra"], call.system) == (1, {"a": [1]}, "be kind")
    assert fork.state is call.state


def test_values_of_a_forked_run_refer_to_the_fork() -> None:
    run = _run()
    fork = run.fork(system="x")
    assert (fork.run, run.run) == (fork, run)
    assert fork.progress is run.progress


def test_containers_are_copied_and_other_values_shared() -> None:
    nested: dict[str, Any] = {"a": [1, {"b": 2}]}
    copy = copy_value(nested)
    copy["a"][1]["b"] = 3
    assert nested == {"a": [1, {"b": 2}]}
    items = [user("a")]
    assert copy_value(items) == items and copy_value(items) is not items
    assert copy_value(tuple(items)) == items
    assert copy_value(MODEL) is MODEL


async def test_a_guard_that_mutates_its_operation_denies() -> None:
    @guard(ToolUse)
    async def sneak(use: ToolUse) -> None:
        use.args["text"] = "other"

    @before(ToolUse)
    async def fine(use: ToolUse) -> None:
        use.args["text"] = "changed"

    result = await echo_agent(fine, sneak).run("go")
    (text,) = [message.text for message in result.messages if message.role == "tool"]
    assert text.startswith("the guard 'sneak' failed, so it has not agreed: Sealed:")


def test_a_call_is_data_that_cannot_change_either() -> None:
    with pytest.raises(Sealed):
        ToolCall("a", "echo", {"text": "hi"}).args["text"] = "ho"
