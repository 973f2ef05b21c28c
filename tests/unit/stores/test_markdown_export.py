"""A conversation to be read by people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wick import Thread, ToolCall, assistant, tool_message, user
from wick.stores.markdown_export import export_markdown


def test_messages_and_tool_calls_are_exported() -> None:
    thread = Thread("th_1")
    thread.add(
        user("Go."), assistant("Let me.", ToolCall("c1", "echo", {"text": "x"})), tool_message("c1", "echo", "x")
    )
    text = export_markdown("A\ntitle", thread)
    assert text.startswith("# A title\n\n## User · ") and "## Assistant · " in text and "## Tool `echo` · " in text
    assert 'uses `echo`\n\n```json\n{\n  "text": "x"\n}\n```' in text and text.endswith("```\nx\n```\n")


@given(st.text(alphabet="`~x\n ", max_size=40))
def test_content_cannot_close_a_block(output: str) -> None:
    thread = Thread("th_1")
    thread.add(user("Go."), assistant("", ToolCall("c1", "echo", {})), tool_message("c1", "echo", output))
    lines = export_markdown("t", thread).removesuffix("\n").split("\n")
    fence = lines[-1]
    assert set(fence) == {"`"} and len(fence) >= 3
    inside = output.split("\n")
    assert lines[-1 - len(inside) : -1] == inside and lines[-2 - len(inside)] == fence
    assert not any(line.strip().startswith(fence) for line in inside)
