"""The full request and reply of a model call, from the trace of its run and the logs of its threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from wick._internal.frozen import thaw
from wick.api.types import CallContent, CallMessage
from wick.threads import Thread

Span = Mapping[str, Any]


def find_span(spans: Sequence[Span], path: str) -> Span | None:
    """Return the span at a path such as `0.2.1`: the second child of the third child of the first span."""
    found: Span | None = None
    for part in path.split("."):
        children = spans if found is None else found.get("children", ())
        if int(part) >= len(children):
            return None
        found = children[int(part)]
    return found


def build_call_content(span: Span, spans: Sequence[Span], texts: Mapping[str, str], thread: Thread) -> CallContent:
    """Return the content of a model call. `thread` is that of its run, or of its child run."""
    request = span["request"]
    before = _find_call_before(span, spans)
    earlier = before["request"] if before is not None else {"messages": ()}
    shared = _count_shared(earlier["messages"], request["messages"])
    rows = {entry.seq: entry for entry in thread.entries if entry.kind == "message"}
    messages = []
    for place, given in enumerate(request["messages"]):
        seq = given if isinstance(given, int) else 0
        entry = rows.get(seq)
        data = thaw(given) if not seq else entry.to_json()["data"] if entry is not None else {"role": "user"}
        messages.append(CallMessage.model_validate({**data, "seq": seq, "is_new": place >= shared}))
    reply = CallMessage.model_validate(thaw(request["reply"])) if "reply" in request else None
    return CallContent(
        system=texts.get(request["system"], ""),
        system_changed=before is None or earlier["system"] != request["system"],
        settings=thaw(request["settings"]),
        tools=[*request["tools"]],
        messages=messages,
        reply=reply,
        thread_id=thread.id,
    )


def _find_call_before(span: Span, spans: Sequence[Span]) -> Span | None:
    """Return the model call before this one in the same run, for the same purpose."""
    before: Span | None = None
    for one in walk_spans(spans):
        if one is span:
            return before
        is_alike = all(one["attributes"].get(key) == span["attributes"].get(key) for key in ("run_id", "purpose"))
        if "request" in one and is_alike:
            before = one
    return None


def _count_shared(before: Sequence[Any], now: Sequence[Any]) -> int:
    """Return the number of messages at the beginning that the request before had, too."""
    count = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        count += 1
    return count


def walk_spans(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield spans with all that are nested in them."""
    for span in spans:
        yield span
        yield from walk_spans(span.get("children", ()))
