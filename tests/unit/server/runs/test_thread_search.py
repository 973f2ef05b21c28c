"""Search in one thread: in messages, calls and results, in their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wick import ToolCall, assistant, user
from wick.messages import Message
from wick.server.runs import thread_search
from wick.server.runs.thread_search import search_thread
from wick.threads import Thread


def sample_thread(*messages: Message) -> Thread:
    thread = Thread("t")
    for message in messages:
        thread.append("message", message)
    return thread


def seqs(thread: Thread, text: str) -> list[int]:
    return [match.seq for match in search_thread(thread, text)[0]]


def test_messages_calls_and_results_are_found() -> None:
    thread = sample_thread(
        user("Where do OTTERS live?"),
        assistant("I look.", ToolCall("c1", "grep", {"pattern": "beaver"})),
        Message("tool", "otters: rivers", tool_call_id="c1", name="grep"),
        assistant("In rivers."),
        user("50% of them?"),
    )
    assert seqs(thread, "otters") == [1, 2]  # the result is shown by the message with its call
    assert seqs(thread, "beaver") == [2] and seqs(thread, "rivers") == [2, 4]
    assert seqs(thread, "50%") == [5] and seqs(thread, "nothing") == []
    assert search_thread(thread, "otters")[0][0].text == "Where do OTTERS live?"


def test_matches_are_limited() -> None:
    thread = sample_thread(*(user(f"{number} otters") for number in range(thread_search.MAX_MATCHES + 1)))
    matches, more = search_thread(thread, "otters")
    assert len(matches) == thread_search.MAX_MATCHES and more


@given(st.lists(st.text(max_size=20), max_size=8), st.text(min_size=1, max_size=3))
def test_exactly_the_messages_with_the_text_are_found(texts: list[str], wanted: str) -> None:
    thread = sample_thread(*(user(text) for text in texts))
    expected = [at for at, text in enumerate(texts, 1)
                if wanted.replace("\0", " ").casefold() in text.replace("\0", " ").casefold()]  # fmt: skip
    assert seqs(thread, wanted) == expected
