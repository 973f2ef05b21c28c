"""Search in one thread: the messages, tool calls and results that contain a text."""

from __future__ import annotations

from wick._internal.frozen import canonical_json
from wick.api.types import ThreadMatch
from wick.server.runs.history import ThreadHistory
from wick.stores.rows import fold_text, make_excerpt
from wick.threads import Thread

MAX_MATCHES = 1_000


def search_thread(thread: Thread, text: str) -> tuple[list[ThreadMatch], bool]:
    """Return the messages that contain a text, ignoring case, in their order; and True if there are more.

    A tool result counts for the message with its call, which shows it.
    """
    wanted, history = fold_text(text), ThreadHistory.from_thread(thread)
    matches, callers = dict[int, ThreadMatch](), dict[str, int]()
    for message in thread.messages:
        fact = history.facts.get(id(message))
        seq = 0 if fact is None else fact.seq
        callers.update((call.id, seq) for call in message.tool_calls)
        shown = callers.get(message.tool_call_id, seq) if message.role == "tool" else seq
        texts = [message.text, *(part.text for part in message.reasoning if part.text)]
        texts += [f"{call.name} {canonical_json(call.args).decode()}" for call in message.tool_calls]
        found = next((part for part in texts if wanted in fold_text(part)), None)
        if found is None or not shown or shown in matches:
            continue
        if len(matches) == MAX_MATCHES:
            return [*matches.values()], True
        matches[shown] = ThreadMatch(seq=shown, role=message.role, text=make_excerpt(found, wanted))
    return [*matches.values()], False
