"""A thread is a log: entries are permanent, and the state is folded from them."""

from __future__ import annotations

import gc
import json
import threading
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick import threads
from wick.errors import MessageError, Sealed, StoreError
from wick.messages import Message, ToolCall, assistant, system, tool_message, user
from wick.threads import SCHEMA, Thread
from wick.threads.branches import MessageTree
from wick.threads.state import ApprovalState, Entry, EntryKind, ThreadState, fold_entries

A, B, C = ToolCall("a", "add", {"x": 1}), ToolCall("b", "add", {"x": 2}), ToolCall("c", "add", {"x": 3})


OLD = Path(__file__).parents[1] / "fixtures" / "threads"


def start(run: str = "run_1", **more: Any) -> dict[str, Any]:
    return {"run": run, "agent": "agent", "guards": [], "resumed": False, "input": 0, **more}


def end(run: str = "run_1", outcome: str = "completed") -> dict[str, Any]:
    return {"run": run, "outcome": outcome, "reason": outcome, "usage": {}}


def talk() -> Thread:
    """A thread with an entry of most kinds, in the middle of a step."""
    thread = Thread("th_1")
    thread.add(system("be brief"), user("2 + 3?"))
    thread.append("run_start", start(input=2))
    thread.values["todos"] = [{"title": "add", "done": False}]
    thread.values.put("notes", "n1", "an item of a map")
    thread.append("event", {"run": "run_1", "name": "noted", "data": {"n": 1}})
    thread.add(assistant("let me see", A, B))
    thread.append("decision", {"hook": "look", "verdict": "ask"})
    thread.append("asked", {"id": "ask_1", "hash": "h", "question": "sure?"})
    thread.append("answered", {"id": "ask_1", "hash": "h", "allowed": True, "reason": ""})
    thread.append("intent", {"call": "b", "attempt": 1})
    thread.append("done", {"call": "b", "attempt": 1, "ended": "done"})
    thread.add(tool_message("b", "add", "5"))
    thread.append("intent", {"call": "a", "attempt": 1})
    return thread


def state(thread: Thread) -> tuple[str, list[Entry], ThreadState]:
    """The log, and all that is folded from it."""
    return thread.id, thread.entries, thread.current


# -- entries ----------------------------------------------------------------------------------------------------------


def test_entries_are_numbered_from_one_and_have_a_time() -> None:
    thread = talk()
    assert [entry.seq for entry in thread.entries] == list(range(1, len(thread.entries) + 1))
    assert all(entry.at > 1_700_000_000 for entry in thread.entries)


def test_a_thread_has_a_generated_or_given_id() -> None:
    assert Thread().id != Thread().id
    assert Thread().id.startswith("th_")
    assert Thread("mine").id == "mine"


def test_an_entry_is_read_only() -> None:
    thread = Thread()
    data = {"run": "r", "name": "n", "data": {"list": [1]}}
    entry = thread.append("event", data)
    data["data"]["list"].append(2)  # type: ignore[index]
    assert entry.data["data"] == {"list": [1]}
    with pytest.raises(Sealed, match="read-only"):
        entry.data["data"]["list"].append(3)
    with pytest.raises(AttributeError):
        entry.seq = 7  # type: ignore[misc]


def test_non_json_is_refused_and_not_logged() -> None:
    thread = Thread()
    with pytest.raises(TypeError, match="object is not JSON data"):
        thread.append("event", {"x": object()})
    with pytest.raises(ValueError, match="nan"):
        thread.values["x"] = float("nan")
    assert not thread.entries and not thread.values


def test_thread_repr() -> None:
    assert repr(talk()) == "Thread('th_1', 14 entries, 4 messages)"


# -- messages ---------------------------------------------------------------------------------------------------------


def test_messages_are_a_live_view_and_slices_are_not() -> None:
    thread = Thread()
    messages = thread.messages
    thread.add(user("one"))
    some = messages[:]
    thread.add(assistant("two"))
    assert [message.text for message in messages] == ["one", "two"]
    assert [message.text for message in some] == ["one"]


@pytest.mark.parametrize("order", ["abc", "cba", "bca", "cab"])
def test_results_follow_the_order_of_the_calls(order: str) -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A, B, C))
    for place, id in enumerate(order, 1):
        thread.add(tool_message(id, "add", id))
        assert [message.tool_call_id for message in thread.messages[2:]] == sorted(order[:place])
    thread.add(assistant("done"))
    assert [entry.data.tool_call_id for entry in thread.entries[2:5]] == list(order)
    assert [message.text for message in thread.messages] == ["go", "", "a", "b", "c", "done"]
    thread.messages.validate()


def test_pending_calls_are_those_without_a_result_in_the_models_order() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A, B, C))
    assert [*thread.pending] == [A, B, C]
    thread.add(tool_message("b", "add", "2"))
    assert [*thread.pending] == [A, C]


def test_no_message_is_appended_while_calls_are_pending() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A))
    for message in (user("hello?"), assistant("well"), system("be brief")):
        with pytest.raises(MessageError, match="the tool calls add wait for their results"):
            thread.add(message)
    assert len(thread.entries) == 2


@pytest.mark.parametrize("id", ["zzz", ""])
def test_an_unexpected_result_is_refused(id: str) -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A))
    with pytest.raises(MessageError, match=f"no tool call '{id}' waits"):
        thread.add(tool_message(id, "add", "1"))


def test_a_call_is_answered_once() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A), tool_message("a", "add", "1"))
    with pytest.raises(MessageError, match="no tool call 'a' waits"):
        thread.add(tool_message("a", "add", "again"))
    assert thread.messages[-1].text == "1"


def test_duplicate_call_ids_are_refused_and_the_thread_is_unchanged() -> None:
    thread = Thread()
    thread.add(user("go"))
    before = state(thread)
    with pytest.raises(MessageError, match="same id"):
        thread.add(assistant("", A, ToolCall("a", "sub")))
    assert state(thread) == before
    thread.add(user("never mind"))


def test_an_id_may_be_reused_in_a_later_reply() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A))
    thread.append("intent", {"call": "a", "attempt": 1})
    thread.append("done", {"call": "a", "attempt": 1, "ended": "done"})
    thread.append("answered", {"id": "q", "hash": "h", "allowed": True, "reason": ""})
    thread.add(tool_message("a", "add", "1"), assistant("", A))
    assert thread.attempt_status("a") == "" and not thread.answers


# -- values -----------------------------------------------------------------------------------------------------------


def test_values_are_logged_and_read_only() -> None:
    thread = Thread()
    todos = [{"title": "buy milk"}]
    thread.values["todos"] = todos
    todos[0]["title"] = "buy beer"
    assert thread.values["todos"] == [{"title": "buy milk"}]
    with pytest.raises(Sealed):
        thread.values["todos"].append("more")
    with pytest.raises(Sealed):
        thread.values["todos"][0]["title"] = "x"
    assert [entry.kind for entry in thread.entries] == ["value"]


def test_values_are_a_mapping_whose_changes_are_logged() -> None:
    thread = Thread()
    thread.values.update(a=1, b=[2])
    thread.values["a"] = 3
    assert dict(thread.values) == {"a": 3, "b": [2]} and len(thread.values) == 2
    assert thread.values.setdefault("c", 4) == 4
    assert thread.values.pop("a") == 3
    assert repr(thread.values) == "Values({'b': [2], 'c': 4})"
    assert len(thread.entries) == 5


def test_deleting_a_missing_value_is_an_error_and_not_logged() -> None:
    thread = Thread()
    with pytest.raises(KeyError):
        del thread.values["nothing"]
    assert not thread.entries


def test_a_map_item_is_logged_alone_and_folded() -> None:
    thread = Thread()
    thread.values.put("files", "a", "x" * 1_000)
    thread.values.put("files", "b", {"size": 2})
    thread.values.put("files", "b", [3])
    thread.values.drop("files", "a")
    assert thread.values["files"] == {"b": [3]}
    assert thread.entries[-2].data == {"key": "files", "item": "b", "value": [3]}
    assert thread.changed_values == {"files": {"a", "b"}}
    assert Thread.from_json(json.loads(json.dumps(thread.to_json()))).values["files"] == {"b": [3]}
    thread.values["files"] = {}
    assert thread.values["files"] == {}


def test_a_map_set_as_a_whole_is_logged_as_such() -> None:
    thread = Thread()
    thread.values["files"] = {"a": 1}
    thread.values["copy"] = thread.values["files"]
    fork = thread.fork()
    thread.values.put("files", "b", 2)
    thread.values["again"] = thread.values["files"]
    thread.values.put("files", "c", 3)
    assert thread.values["files"] == {"a": 1, "b": 2, "c": 3}
    assert thread.values["copy"] == fork.values["files"] == {"a": 1}
    assert thread.values["again"] == {"a": 1, "b": 2}
    assert thread.entries[0].data["value"] == {"a": 1}
    assert thread.fork(4).values["files"] == {"a": 1, "b": 2}
    thread.rewind(3)
    assert thread.values["files"] == {"a": 1, "b": 2}
    thread.values.put("files", "d", 4)
    assert thread.values["files"] == {"a": 1, "b": 2, "d": 4}


def test_items_are_read_only_too() -> None:
    thread = Thread()
    thread.values.put("files", "a", [1])
    with pytest.raises(Sealed):
        thread.values["files"].update(b=2)
    with pytest.raises(Sealed):
        thread.values["files"].pop("a")
    with pytest.raises(Sealed):
        thread.values["files"]["a"].append(2)
    assert thread.values["files"] == {"a": [1]}


@pytest.mark.parametrize("value", [[], "text", 7, None], ids=repr)
def test_a_non_map_has_no_items(value: Any) -> None:
    thread = Thread()
    thread.values["it"] = value
    with pytest.raises(ValueError, match="an item of 'it' cannot be set"):
        thread.values.put("it", "a", 1)
    with pytest.raises(ValueError, match="a text as its name"):
        thread.values.put("other", 7, 1)  # type: ignore[arg-type]
    assert len(thread.entries) == 1 and "other" not in thread.values
    row = {"seq": 2, "kind": "value", "at": 1.0, "data": {"key": "it", "item": "a", "value": 1}}
    with pytest.raises(StoreError, match="entry 2 cannot be read"):
        Thread.from_json({**thread.to_json(), "entries": [*thread.to_json()["entries"], row]})


def test_an_item_that_is_not_there_cannot_be_dropped() -> None:
    thread = Thread()
    thread.values.put("files", "a", 1)
    for key, item in (("files", "b"), ("nothing", "a")):
        with pytest.raises(KeyError):
            thread.values.drop(key, item)
    assert len(thread.entries) == 1


# -- states of calls and runs -----------------------------------------------------------------------------------------


def test_fates() -> None:
    thread = Thread()
    thread.add(user("go"), assistant("", A, B))
    assert thread.attempt_status("a") == ""
    thread.append("intent", {"call": "a", "attempt": 1})
    assert thread.attempt_status("a") == "unknown" and thread.attempt_status("b") == ""
    thread.append("done", {"call": "a", "attempt": 1, "ended": "failed"})
    assert thread.attempt_status("a") == "failed"
    thread.append("intent", {"call": "a", "attempt": 2})
    assert thread.attempt_status("a") == "unknown"
    thread.append("done", {"call": "a", "attempt": 2, "ended": "done"})
    assert thread.attempt_status("a") == "done"
    thread.append("intent", {"call": "a", "attempt": 3})
    thread.append("done", {"call": "a", "attempt": 3, "ended": "failed"})
    assert thread.attempt_status("a") == "done"


def test_the_first_answer_wins() -> None:
    thread = Thread()
    thread.append("answered", {"id": "q", "hash": "h", "allowed": False, "reason": "no"})
    thread.append("answered", {"id": "q", "hash": "h", "allowed": True, "reason": ""})
    assert thread.answers["h"]["allowed"] is False


def test_a_run_is_open_until_its_end() -> None:
    thread = Thread()
    thread.append("run_start", start("run_1"))
    assert thread.open_run is not None and thread.open_run["run"] == "run_1"
    thread.append("run_end", end("run_1", "interrupted"))
    assert thread.open_run is not None
    thread.append("run_start", start("run_1", resumed=True))
    thread.append("run_end", end("run_1"))
    assert thread.open_run is None


def test_messages_of_a_run_start_with_its_input() -> None:
    thread = Thread()
    thread.add(user("one"), assistant("1"), user("two"), assistant("2"), user("three"))
    thread.append("run_start", start("run_1", input=3))
    assert (thread.output_from, thread.steps) == (2, 0)
    thread.add(assistant("3"))
    assert (thread.output_from, thread.steps) == (2, 1)
    thread.append("run_end", end("run_1", "interrupted"))
    thread.append("run_start", start("run_1", resumed=True))
    assert (thread.output_from, thread.steps) == (2, 1)
    thread.append("run_start", start("run_2"))
    assert (thread.output_from, thread.steps) == (6, 0)


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_round_trips() -> None:
    thread = talk()
    data = json.loads(json.dumps(thread.to_json()))
    again = Thread.from_json(data)
    assert state(again) == state(thread)
    assert [entry.at for entry in again.entries] == [entry.at for entry in thread.entries]
    assert again.to_json() == data
    assert not again.busy


def test_every_prefix_of_a_log_is_a_thread() -> None:
    data = talk().to_json()
    for cut in range(len(data["entries"]) + 1):
        thread = Thread.from_json({**data, "entries": data["entries"][:cut]})
        assert len(thread.entries) == cut


def test_a_loaded_thread_continues() -> None:
    thread = Thread.from_json(talk().to_json())
    thread.add(tool_message("a", "add", "1"), assistant("done"))
    assert [message.text for message in thread.messages[-3:]] == ["1", "5", "done"]
    assert thread.entries[-1].seq == 16


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "thread",
        {},
        {"schema": 2, "id": "x", "entries": []},
        {"schema": 1},
        {"schema": 1, "id": "x"},
        {"schema": 1, "entries": []},
        {"schema": 1, "id": "x", "entries": {}},
        {"schema": 1, "id": "x", "entries": None},
    ],
)
def test_invalid_threads_are_refused(data: Any) -> None:
    with pytest.raises(StoreError, match="not a thread of schema 1"):
        Thread.from_json(data)


MESSAGE = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    "row",
    [
        None,
        3,
        {},
        {"seq": 1, "kind": "message", "at": 1.0},
        {"seq": 2, "kind": "message", "at": 1.0, "data": MESSAGE},
        {"seq": 0, "kind": "message", "at": 1.0, "data": MESSAGE},
        {"seq": 1, "kind": "shout", "at": 1.0, "data": MESSAGE},
        {"seq": 1, "kind": ["message"], "at": 1.0, "data": MESSAGE},
        {"seq": 1, "kind": "message", "at": "noon", "data": MESSAGE},
        {"seq": 1, "kind": "message", "at": 10**400, "data": MESSAGE},
        {"seq": 1, "kind": "message", "at": 1.0, "data": {"role": "boss", "content": "hi"}},
        {"seq": 1, "kind": "message", "at": 1.0, "data": {"role": "tool", "content": "5", "tool_call_id": "a"}},
        {"seq": 1, "kind": "intent", "at": 1.0, "data": {}},
        {"seq": 1, "kind": "intent", "at": 1.0, "data": {"call": ["a"]}},
        {"seq": 1, "kind": "done", "at": 1.0, "data": {"call": "a", "attempt": 1, "ended": "done"}},
        {"seq": 1, "kind": "answered", "at": 1.0, "data": {}},
        {"seq": 1, "kind": "value", "at": 1.0, "data": {"value": 1}},
        {"seq": 1, "kind": "value", "at": 1.0, "data": None},
        {"seq": 1, "kind": "value", "at": 1.0, "data": {"key": "x", "value": float("inf")}},
        {"seq": 1, "kind": "run_start", "at": 1.0, "data": {}},
        {"seq": 1, "kind": "run_start", "at": 1.0, "data": {"run": "r"}},
        {"seq": 1, "kind": "run_end", "at": 1.0, "data": {"run": "r"}},
        {"seq": 1, "kind": "run_end", "at": 1.0, "data": []},
    ],
    ids=str,
)
def test_a_row_that_cannot_be_read_is_refused_with_a_sentence(row: Any) -> None:
    with pytest.raises(StoreError, match="thread x: entry 1 cannot be read: "):
        Thread.from_json({"schema": 1, "id": "x", "entries": [row]})


@pytest.mark.parametrize("attempt", [0, 2, -1, "1", None])
def test_an_end_without_its_beginning_is_refused(attempt: Any) -> None:
    thread = Thread("x")
    thread.add(user("go"), assistant("", A))
    thread.append("intent", {"call": "a", "attempt": 1})
    row = {"seq": 4, "kind": "done", "at": 1.0, "data": {"call": "a", "attempt": attempt, "ended": "done"}}
    data = thread.to_json()
    with pytest.raises(StoreError, match="entry 4 cannot be read"):
        Thread.from_json({**data, "entries": [*data["entries"], row]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data())
def test_a_damaged_log_is_a_thread_or_an_error_in_a_sentence(data: st.DataObject) -> None:
    stored = talk().to_json()
    row = data.draw(st.sampled_from(stored["entries"]))
    place = row if data.draw(st.booleans()) or not isinstance(row["data"], dict) else row["data"]
    key = data.draw(st.sampled_from(sorted(place)))
    if data.draw(st.booleans()):
        del place[key]
    else:
        place[key] = data.draw(JSON | st.sampled_from(get_args(EntryKind)))
    try:
        thread = Thread.from_json(stored)
    except StoreError as error:
        assert "cannot be read" in str(error)
    else:
        assert Thread.from_json(thread.to_json()).to_json() == thread.to_json()


# -- hashes -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=3), max_size=6), st.lists(st.text(max_size=3), max_size=6))
def test_equal_messages_have_equal_chains(one: list[str], other: list[str]) -> None:
    def chain(thread: Thread, texts: list[str]) -> str:
        return thread.hash_messages([user(text) for text in texts])

    thread = Thread()
    thread.add(*(user(text) for text in one))
    assert chain(thread, one) == chain(Thread(), one)
    assert (chain(thread, one) == chain(thread, other)) is (one == other)


def test_a_chain_follows_late_results() -> None:
    thread, whole = Thread(), Thread()
    messages = [user("go"), assistant("", A, B), tool_message("a", "add", "1"), tool_message("b", "add", "2")]
    thread.add(messages[0], messages[1], messages[3])
    thread.hash_messages(thread.messages)
    thread.add(messages[2])
    whole.add(*messages)
    assert (
        thread.hash_messages(thread.messages) == whole.hash_messages(whole.messages) == Thread().hash_messages(messages)
    )


def test_a_chain_hashes_each_message_of_the_thread_once(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread()
    hashed: list[Message] = []
    link = threads._hash_link

    def counted(before: bytes, message: Message) -> bytes:
        hashed.append(message)
        return link(before, message)

    monkeypatch.setattr(threads, "_hash_link", counted)
    for number in range(20):
        thread.add(user(str(number)))
        thread.hash_messages(thread.messages)
    assert len(hashed) == 20


def test_an_entry_of_a_kind_that_could_not_be_read_again_is_refused() -> None:
    thread = Thread()
    with pytest.raises(StoreError, match="note"):
        thread.append("note", {})  # type: ignore[arg-type]
    assert thread.entries == []


# -- going back in time -----------------------------------------------------------------------------------------------


def without_answers(state: ThreadState) -> ThreadState:
    """A copy of a state. An answer counts only in the thread where it was given, and not after a rewind."""
    return replace(deepcopy(state), approvals=ApprovalState(questions=dict(state.approvals.questions)))


@pytest.mark.parametrize("at", range(len(talk().entries) + 1))
def test_a_fork_has_the_entries_up_to_its_origin(at: int) -> None:
    thread = talk()
    earlier = Thread("th_1")
    for entry in thread.entries[:at]:
        earlier.append(entry.kind, entry.data)
    other = thread.fork(at)
    assert other.current == without_answers(earlier.current), "an answer counts in the thread where it was given"
    assert other.entries == thread.entries[:at] and other.id != thread.id
    assert other.changed_values == {}
    other.values["only"] = "here"
    assert "only" not in thread.values and len(thread.entries) == len(talk().entries)


def test_a_fork_is_independent() -> None:
    thread = Thread("th_1")
    thread.add(user("one"), assistant("1"))
    other = thread.fork(id="th_2")
    thread.add(user("two"))
    other.add(user("three"))
    assert (thread.messages.last_content, other.messages.last_content, other.id) == ("two", "three", "th_2")


@pytest.mark.parametrize("to", range(len(talk().entries) + 1))
def test_to_rewind_is_to_be_as_one_was(to: int) -> None:
    thread = talk()
    messages, values = thread.messages, thread.values
    thread.rewind(to)
    assert thread.current == talk().fork(to).current
    assert messages == thread.messages and dict(values) == dict(thread.values), "existing views are updated"
    added = 1 + len(thread.questions)  # a pending question is asked again
    assert len(thread.entries) == len(talk().entries) + added, "nothing is taken out of the log"
    assert state(Thread.from_json(json.loads(json.dumps(thread.to_json())))) == state(thread)


def test_entries_after_a_rewind_follow_its_target() -> None:
    thread = Thread("th_1")
    thread.add(user("one"), assistant("1"), user("two"), assistant("2"))
    thread.rewind(2)
    thread.add(user("three"), assistant("3"))
    assert [message.text for message in thread.messages] == ["one", "1", "three", "3"]
    assert [entry.seq for entry in thread.effective_entries()] == [1, 2, 6, 7]
    thread.rewind(6)
    assert [message.text for message in thread.messages] == ["one", "1", "three"]
    thread.rewind(4)  # behind the first rewind: entries rewound then count again, as after entry 4
    assert [message.text for message in thread.messages] == ["one", "1", "two", "2"]


def test_a_switch_returns_to_where_a_branch_was_left() -> None:
    thread = Thread("th_1")
    thread.add(user("one"), assistant("1"), user("two"), assistant("2"))
    thread.rewind(2)
    thread.add(user("three"), assistant("3"))  # 6 and 7: another branch of 3
    thread.rewind(0)
    thread.add(user("four"))  # 9: another branch of 1
    tree = MessageTree(thread.entries)
    assert [tree.list_branches(seq) for seq in (1, 2, 3, 6, 9, 5)] == [[1, 9], [2], [3, 6], [3, 6], [1, 9], []]
    for message, texts in (
        (1, "one 1 three 3"),
        (3, "one 1 two 2"),
        (9, "four"),
        (1, "one 1 two 2"),
        (6, "one 1 three 3"),
    ):
        thread.switch_branch(message)
        assert " ".join(one.text for one in thread.messages) == texts
    before = len(thread.entries)
    thread.switch_branch(7)
    assert len(thread.entries) == before, "it is part of the thread already"
    for wrong in (5, 0, 99, -1):
        with pytest.raises(StoreError, match=f"entry {wrong} of thread th_1 is not a message"):
            thread.switch_branch(wrong)
    assert state(Thread.from_json(thread.to_json())) == state(thread)


def test_a_switch_asks_a_pending_question_again() -> None:
    thread = talk()
    thread.append("asked", {"id": "ask_2", "hash": "h", "question": "sure?"})
    pending, [first, *_] = dict(thread.questions), [entry.seq for entry in thread.entries if entry.kind == "message"]
    thread.rewind(0)
    thread.add(user("something else"))
    assert not thread.questions
    thread.switch_branch(first)
    assert dict(thread.questions) == pending


def test_many_rewinds_are_one_pass_over_the_log() -> None:
    """Each rewind targets the one before it: following all of them again would double the work each time."""
    thread = Thread("th_1")
    thread.add(user("one"), user("two"))
    for _ in range(100):
        thread.rewind(len(thread.entries))
    assert [entry.seq for entry in thread.effective_entries()] == [1, 2]
    assert Thread.from_json(thread.to_json()).current == thread.current == thread.fork().current


class Writing:
    """Appends generated entries, as far as they are valid."""

    def __init__(self, data: st.DataObject) -> None:
        self.thread, self.draw, self.ids = Thread("th_1"), data.draw, count()

    def step(self) -> None:
        write = self.draw(st.sampled_from([*self.KINDS]))
        with suppress(MessageError, ValueError, LookupError, TypeError):  # it is not valid here, and changes nothing
            write(self)

    def message(self) -> None:
        self.thread.add(user(f"{next(self.ids)}"))

    def reply(self) -> None:
        self.thread.add(assistant("let me see", *self.draw(st.sampled_from([(), (A,), (A, B), (C, A, B)]))))

    def result(self) -> None:
        call = self.draw(st.sampled_from(self.thread.pending or (A,)))
        self.thread.add(tool_message(call.id, call.name, f"{next(self.ids)}"))

    def intent(self) -> None:
        self.thread.append("intent", {"call": self.draw(CALLS), "attempt": 1})

    def done(self) -> None:
        ended = self.draw(st.sampled_from(["done", "failed", "unknown"]))
        attempt = self.draw(st.integers(0, 3))
        self.thread.append("done", {"call": self.draw(CALLS), "attempt": attempt, "ended": ended})

    def asked(self) -> None:
        self.thread.append("asked", {"id": self.draw(KEYS), "hash": self.draw(KEYS), "question": "sure?"})

    def answered(self) -> None:
        self.thread.append("answered", {"id": self.draw(KEYS), "hash": self.draw(KEYS), "allowed": True})

    def value(self) -> None:
        self.thread.values[self.draw(KEYS)] = self.draw(st.integers() | st.just({"x": 1}))

    def put(self) -> None:
        self.thread.values.put(self.draw(KEYS), self.draw(KEYS), next(self.ids))

    def drop(self) -> None:
        self.thread.values.drop(self.draw(KEYS), self.draw(KEYS))

    def delete(self) -> None:
        del self.thread.values[self.draw(KEYS)]

    def run_start(self) -> None:
        most = min(len(self.thread.messages), 2)
        self.thread.append("run_start", start(self.draw(KEYS), input=self.draw(st.integers(0, most))))

    def run_end(self) -> None:
        row = end(self.draw(KEYS), self.draw(st.sampled_from(["completed", "interrupted", "failed"])))
        unheard = self.draw(st.lists(st.just({"message": user("again").to_json(), "failures": 1}), max_size=1))
        self.thread.append("run_end", {**row, "usage": {"input_tokens": next(self.ids)}, "unheard": unheard})

    def compaction(self) -> None:
        self.thread.append("compaction", {"replaces": self.draw(st.integers(0, 3)), "summary": user("so").to_json()})

    def event(self) -> None:
        self.thread.append("event", {"name": "noted"})

    def rewind(self) -> None:
        self.thread.append("rewind", {"to": self.draw(st.integers(0, len(self.thread.entries) + 1))})

    KINDS = (
        *(message, reply, result, intent, done, asked, answered, value, put, drop, delete),
        *(run_start, run_end, compaction, event, rewind),
    )


CALLS, KEYS = st.sampled_from("abc"), st.sampled_from("xyz")


@given(st.data(), st.integers(1, 30))
def test_every_way_to_a_state_is_a_fold_of_its_entries(data: st.DataObject, steps: int) -> None:
    writing = Writing(data)
    thread, states = writing.thread, [ThreadState("th_1")]
    for _ in range(steps):
        writing.step()
        if len(thread.entries) == len(states):
            states.append(deepcopy(thread.current))
        assert thread.current == states[-1] and len(thread.entries) == len(states) - 1, (
            "a refused entry changes nothing"
        )

    at = data.draw(st.integers(0, len(thread.entries)))
    rows, log = thread.to_json(), thread.entries[:at]
    assert fold_entries("th_1", log, log) == states[at]
    assert Thread.from_json({**rows, "entries": rows["entries"][:at]}).current == states[at]
    other = thread.fork(at)
    assert other.current == without_answers(states[at]) and other.entries == log and other.changed_values == {}
    assert without_answers(fold_entries("th_1", thread.effective_entries(at))) == without_answers(states[at])
    messages, known = thread.messages, thread.hash_messages(states[at].messages)
    thread.rewind(at)
    assert thread.current == without_answers(states[at])
    assert messages == states[at].messages, "a view of the messages stays live"
    assert thread.hash_messages(messages) == known == Thread().hash_messages(messages)
    assert Thread.from_json(json.loads(json.dumps(thread.to_json()))).current == thread.current


@pytest.mark.parametrize("to", [-1, 99, True, 1.5, "2", None])
def test_a_rewind_needs_an_existing_entry(to: Any) -> None:
    thread = talk()
    with pytest.raises(StoreError, match="has no entry"):
        thread.rewind(to) if to is not None else thread.fork(99)
    assert thread.current == talk().current


def test_a_rewind_during_a_run_is_refused() -> None:
    thread = talk()
    thread.busy = True
    with pytest.raises(StoreError, match="cancel it"):
        thread.rewind(1)


# -- questions, tokens and summaries ----------------------------------------------------------------------------------


def test_a_question_is_open_until_an_answer() -> None:
    thread = Thread()
    thread.append("asked", {"id": "q1", "hash": "h1", "question": "sure?"})
    thread.append("asked", {"id": "q2", "hash": "h2", "question": "really?"})
    thread.append("answered", {"id": "q1", "hash": "h1", "allowed": True, "reason": ""})
    assert [*thread.questions] == ["q2"]
    thread.append("run_end", end())
    assert thread.questions == {}, "a run that is over waits for nothing"


def test_the_tokens_of_a_thread_are_those_of_its_runs() -> None:
    thread = Thread()
    thread.append("run_end", {**end("run_1", "interrupted"), "usage": {"input_tokens": 3, "output_tokens": 1}})
    thread.append("run_end", {**end("run_1"), "usage": {"input_tokens": 5, "output_tokens": 2}})
    thread.append("run_end", {**end("run_2"), "usage": {"input_tokens": 10, "output_tokens": 1}})
    assert thread.usage == {"input_tokens": 15, "output_tokens": 3}, "a resumed run counts once"


def test_a_thread_has_the_outcome_of_its_last_run() -> None:
    thread = Thread()
    assert thread.outcome == ""
    thread.append("run_start", {"run": "run_1", "input": 0, "guards": []})
    thread.append("run_end", end("run_1", "failed"))
    assert thread.outcome == Thread.from_json(thread.to_json()).outcome == "failed"
    thread.append("run_start", {"run": "run_2", "input": 0, "guards": []})
    assert thread.outcome == "", "its process may have been killed"


def test_a_summary_is_stored_beside_its_messages() -> None:
    thread = Thread()
    thread.add(user("one"), assistant("1"), user("two"))
    thread.append("compaction", {"replaces": 2, "summary": user("they counted").to_json()})
    assert len(thread.messages) == 3 and thread.compacted is not None and thread.compacted["replaces"] == 2
    for bad in (0, 4, -1):
        with pytest.raises(ValueError, match="cannot be summed up"):
            thread.append("compaction", {"replaces": bad, "summary": user("no").to_json()})
    assert len(thread.entries) == 4


# -- a keeper ---------------------------------------------------------------------------------------------------------


class Notes:
    """A writer that stores entry numbers in a list."""

    def __init__(self) -> None:
        self.kept: list[int] = []
        self.asked = 0

    def write(self, entry: Any) -> None:
        self.kept.append(entry.seq)

    async def saved(self) -> None:
        self.asked += 1

    async def fetch_messages(self) -> list[Any]:
        return []

    async def answer(self, question: str) -> Any:
        return None


async def test_appended_entries_are_passed_to_the_store_and_saved_waits() -> None:
    thread, notes = Thread(), Notes()
    await thread.saved()  # not stored: nothing to wait for
    thread.add(user("before"))
    thread.writer = notes
    thread.add(user("one"))
    thread.values["a"] = 1
    with pytest.raises(StoreError):
        thread.append("nonsense", {})  # type: ignore[arg-type]
    await thread.saved()
    assert (notes.kept, notes.asked) == ([2, 3], 1)
    assert thread.fork().writer is None


def test_python_threads_append_one_by_one() -> None:
    thread = Thread()

    def write(key: str) -> None:
        for number in range(300):
            thread.values[key] = number

    writers = [threading.Thread(target=write, args=(str(key),)) for key in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [entry.seq for entry in thread.entries] == list(range(1, 1801))
    assert dict(thread.values) == {str(key): 299 for key in range(6)}


# -- threads of earlier versions -------------------------------------------------------------------------------------


def test_there_is_a_thread_of_every_schema() -> None:
    """A new SCHEMA needs a stored thread of the version before, which is read."""
    kept = {json.loads(path.read_text(encoding="utf-8"))["schema"] for path in OLD.glob("*.json")}
    assert kept == set(range(1, SCHEMA + 1))


def test_a_thread_of_schema_1_opens() -> None:
    data = json.loads((OLD / "v1.json").read_text(encoding="utf-8"))
    thread = Thread.from_json(data)
    assert {entry.kind for entry in thread.entries} == set(get_args(EntryKind)) - {"call", "result", "suspended"}
    assert [message.role for message in thread.messages][:4] == ["system", "user", "assistant", "tool"]
    assert thread.messages[4].text == "paid 3" and thread.messages[5].text == "Paid 3."
    assert thread.values["todos"][0]["status"] == "done"
    assert thread.compacted is not None and thread.compacted["replaces"] == 2
    assert thread.open_run is not None and [call.args for call in thread.pending] == [{"amount": 7}]
    assert thread.to_json()["entries"] == data["entries"], "nothing is lost on the way"
    thread.add(tool_message(thread.pending[0].id, "pay", "no"), user("go on"))
    assert thread.messages.last_content == "go on"


def test_an_unreferenced_thread_is_released_at_once() -> None:
    """Without garbage collection: a server that rarely collects would hold thousands of them."""

    def there() -> int:
        return sum(type(each) is Thread for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before, thread = there(), Thread()
        thread.values["todos"] = [1]
        thread.add(user("hello"))
        assert there() == before + 1
        del thread
        assert there() == before
    finally:
        gc.enable()
