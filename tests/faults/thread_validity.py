"""Check that a thread is valid and that announced entries are stored: in order, once, without gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from wick import Message, Thread, user


def valid(thread: Thread) -> None:
    """Every tool call has exactly one result, in order, each run at most one end, and the next message works."""
    assert not thread.pending, f"{[call.id for call in thread.pending]} have no result"
    answered(thread.messages)
    numbers = [entry.seq for entry in thread.entries]
    assert numbers == [*range(1, len(numbers) + 1)], f"the entries are numbered {numbers}"
    one_end_each(thread)
    again = Thread.from_json(thread.to_json())
    again.add(user("And now?"))  # the next message works
    assert again.messages[-1].text == "And now?"


def answered(messages: Sequence[Message]) -> None:
    """Check that the results of each message follow it in the order of its calls, without other results."""
    place = 0
    while place < len(messages):
        message = messages[place]
        assert message.role != "tool", f"message {place} is a result without a call"
        results = messages[place + 1 : place + 1 + len(message.tool_calls)]
        called = [call.id for call in message.tool_calls]
        assert [result.tool_call_id for result in results] == called, f"the calls {called} of message {place}"
        place += 1 + len(called)


def one_end_each(thread: Thread) -> None:
    """Check that a run ends once; an interrupted one may be resumed and ends once, too."""
    ends: dict[str, list[str]] = {}
    for entry in thread.entries:
        if entry.kind == "run_end" and entry.data["outcome"] != "interrupted":
            ends.setdefault(entry.data["run"], []).append(entry.data["outcome"])
    twice = {run: outcomes for run, outcomes in ends.items() if len(outcomes) > 1}
    assert not twice, f"ended more than once: {twice}"


def kept(acknowledged: Sequence[Any], stored: Sequence[Any]) -> None:
    """All that was acknowledged is stored, in that order, and nothing is stored twice."""
    twice = [item for item, times in Counter(map(repr, stored)).items() if times > 1]
    assert not twice, f"stored more than once: {twice[:3]}"
    places = {repr(item): place for place, item in enumerate(stored)}
    lost = [item for item in acknowledged if repr(item) not in places]
    assert not lost, f"acknowledged and lost: {lost[:3]}"
    order = [places[repr(item)] for item in acknowledged]
    assert order == sorted(order), "what was acknowledged is stored in another order"
    assert len(order) == len(set(order)), "something was acknowledged twice"


def pieces(seen: Iterable[Mapping[str, Any]], whole: Sequence[Mapping[str, Any]]) -> None:
    """Check that streamed frames are a prefix of the stored ones, each once."""
    told = [*seen]
    assert told == [*whole[: len(told)]], "a client was told something else than what is there"
    ends = [frame["event"] for frame in whole if frame["event"] in ("done", "error")]
    assert len(ends) <= 1, f"a run ended more than once: {ends}"
