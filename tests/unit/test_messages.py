"""Messages: data, JSON round trips, the chain and its rules."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick._internal.frozen import FrozenDict, canonical_json, digest
from wick.constants import JSON_DEPTH, MEDIA_TOKENS
from wick.errors import MessageError, Sealed
from wick.messages import (
    ROLES,
    USER_ROLES,
    FilePart,
    ImagePart,
    Message,
    Messages,
    Part,
    Reasoning,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
    result_message,
    system,
    tool_message,
    user,
)

CONVERSATION = r"""
[
{
  "role": "system",
  "content": "You are a coding assistant.\n\n<agent_memory>\n# Project notes\n- Using FastAPI\n</agent_memory>"
},
{
  "role": "user",
  "content": "Read the main.py file"
},
{
  "role": "assistant",
  "content": "",
  "tool_calls": [
    {
      "id": "call_abc123",
      "name": "read_file",
      "args": {"path": "/workspace/main.py"}
    }
  ]
},
{
  "role": "tool",
  "content": "from fastapi import FastAPI\napp = FastAPI()\n\n@app.get('/')\ndef root():\n    return {'status': 'ok'}",
  "tool_call_id": "call_abc123",
  "name": "read_file"
}
]
"""

PRETTY = """\
[System]
You are helpful.

[Human]
What is 2+2?

[AI]
  → tool_call: calculate(id=call_1, args={"expr": "2+2"})

[Tool: calculate (call_id=call_1)]
4

[AI]
2+2 = 4"""

CALCULATE = ToolCall("call_1", "calculate", {"expr": "2+2"})
SUM = (
    Messages()
    .system("You are helpful.")
    .user("What is 2+2?")
    .assistant("", CALCULATE)
    .tool("call_1", "calculate", "4")
    .assistant("2+2 = 4")
)
HALF = "\ud83d"  # half of a character

# strategies

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SOME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8)
SOURCE = st.builds(lambda key, value: {key: value}, st.sampled_from(["url", "data"]), SOME)
IMAGE = st.builds(lambda source, kind: ImagePart(**source, media_type=kind), SOURCE, TEXT)
FILE = st.builds(lambda source, kind, name: FilePart(**source, media_type=kind, name=name), SOURCE, TEXT, TEXT)
PARTS = st.lists(st.builds(TextPart, TEXT) | IMAGE | FILE, max_size=3).map(tuple)
CALL = st.builds(ToolCall, TEXT, TEXT, st.dictionaries(TEXT, JSON, max_size=3), TEXT, TEXT)
CALLS = st.lists(CALL, max_size=3).map(tuple)
THOUGHTS = st.lists(st.builds(Reasoning, TEXT, TEXT, TEXT), max_size=2).map(tuple)
MESSAGE = st.one_of(
    st.builds(Message, st.sampled_from(["system", "user", "tool"]), TEXT | PARTS, tool_call_id=TEXT, name=TEXT),
    st.builds(Message, st.just("assistant"), TEXT | PARTS, CALLS, name=TEXT, reasoning=THOUGHTS),
)
RESULT = st.builds(ToolResult, TEXT, TEXT, JSON, PARTS, TEXT, TEXT)


@given(MESSAGE)
def test_every_message_reads_back(message: Message) -> None:
    assert Message.from_json(message.to_json()) == message
    assert Message.from_json(json.loads(json.dumps(message.to_json()))).digest == message.digest


@given(MESSAGE)
def test_every_message_can_be_copied_and_pickled(message: Message) -> None:
    message.cache["wire"] = b"bytes"
    for copied in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message)), replace(message)):
        assert copied == message and hash(copied) == hash(message)
        assert copied.cache == {}
        assert [call.raw for call in copied.tool_calls] == [call.raw for call in message.tool_calls]


@given(CALL)
def test_every_call_reads_back(call: ToolCall) -> None:
    assert ToolCall.from_json(call.to_json()) == call


@given(RESULT)
def test_every_result_reads_back(result: ToolResult) -> None:
    assert ToolResult.from_json(json.loads(json.dumps(result.to_json()))) == result


@given(st.lists(MESSAGE, max_size=4))
def test_every_chain_reads_back(messages: list[Message]) -> None:
    assert Messages.from_json(Messages(messages).to_json()) == messages


@given(st.text(st.characters(categories=["Cs", "L"])))
def test_any_text_can_be_sent(text: str) -> None:
    for message in (
        user(text),
        user([TextPart(text)]),
        assistant("", ToolCall(text, text)),
        tool_message("1", text, text),
    ):
        json.dumps(message.to_json(), ensure_ascii=False).encode()
        assert Message.from_json(message.to_json()) == message


# ---- tool calls


def test_a_call_is_data_that_cannot_change() -> None:
    given_args = {"path": "/a", "lines": [1, 2]}
    call = ToolCall("1", "read", given_args)
    given_args["path"] = "/b"
    assert call.args == {"path": "/a", "lines": [1, 2]} and type(call.args) is FrozenDict
    with pytest.raises(Sealed):
        call.args["path"] = "/c"
    with pytest.raises(Sealed):
        call.args["lines"].append(3)
    with pytest.raises(FrozenInstanceError):
        call.name = "write"  # type: ignore[misc]


def test_a_deep_copy_of_a_call_cannot_change_either() -> None:
    copied = copy.deepcopy(assistant("", CALCULATE)).tool_calls[0]
    with pytest.raises(Sealed):
        copied.args["expr"] = "3"
    assert replace(copied, args={"expr": "3"}).args == {"expr": "3"}


def test_raw_arguments_are_stored_beside_parsed_ones() -> None:
    spelled = ToolCall("1", "add", {"a": 1}, '{ "a":1 }')
    assert spelled == ToolCall("1", "add", {"a": 1}) and hash(spelled) == hash(ToolCall("1", "add", {"a": 1}))
    assert spelled.raw_args == '{ "a":1 }'
    assert spelled.to_json() == {"id": "1", "name": "add", "args": {"a": 1}}
    assert ToolCall("1", "add", {"a": "é"}).raw_args == '{"a": "é"}'
    assert ToolCall("1", "now").raw_args == "{}"


def test_an_unparsable_call_is_marked() -> None:
    broken = ToolCall("1", "add", raw='{"a": ', invalid="the arguments break off")
    assert broken.to_json() == {"id": "1", "name": "add", "args": {}, "invalid": "the arguments break off"}
    assert broken != ToolCall("1", "add")


def test_the_json_of_a_call_is_free_to_change() -> None:
    CALCULATE.to_json()["args"]["expr"] = "3"
    assert CALCULATE.args == {"expr": "2+2"}


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ([1], "'add' are not a JSON object"),
        (None, "'add' are not a JSON object"),
        ({"a": float("nan")}, "'add' are not JSON: nan is not JSON data"),
        ({"a": {1}}, "'add' are not JSON: set is not JSON data"),
        ({"a": HALF}, "'add' are not JSON: text with half"),
        ({1: "a"}, "keys of a JSON object must be strings"),
        (json.loads('{"a":' * (JSON_DEPTH + 1) + "1" + "}" * (JSON_DEPTH + 1)), "levels deep"),
    ],
)
def test_arguments_that_are_not_json_are_refused(args: Any, sentence: str) -> None:
    with pytest.raises(MessageError, match=sentence):
        ToolCall("1", "add", args)


# ---- tool results


def test_the_json_of_results() -> None:
    found = {"tool_call_id": "call_grep01", "name": "grep", "output": '{"matches":[],"truncated":false}'}
    failed = {"tool_call_id": "call_edit01", "name": "edit_file", "output": "", "error": "old_text not found in file"}
    for data in (found, failed):
        assert ToolResult.from_json(data).to_json() == data
    full = ToolResult("a", data={"n": [1]}, parts=(ImagePart("http://a/b.png"),), tool_call_id="1", name="look")
    assert full.to_json() == {
        "tool_call_id": "1",
        "name": "look",
        "output": "a",
        "data": {"n": [1]},
        "parts": [{"type": "image", "url": "http://a/b.png"}],
    }
    assert ToolResult.from_json({}) == ToolResult()


def test_empty_data_is_still_data() -> None:
    empty: tuple[Any, ...] = ({}, [], "", 0, False)
    for data in empty:
        assert ToolResult.from_json(ToolResult(data=data).to_json()).data == data


def test_a_result_can_change() -> None:
    result = ToolResult("the key is 123")
    result.output = "the key is hidden"
    assert result.text == "the key is hidden"
    result.error = "it was withheld"
    assert result.text == "it was withheld"


def test_a_result_with_broken_text_can_be_written() -> None:
    result = ToolResult("a")
    result.output = result.error = f"file{HALF}"
    assert result.to_json()["output"] == result.to_json()["error"] == "file\ufffd"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ({"output": 1}, "the tool result cannot be read at output: it should be a valid string"),
        ({"outputs": ""}, "at outputs: there is no such key"),
        ({"parts": [{"type": "text", "text": 1}]}, r"at parts\[0\].text: it should be"),
        ({"parts": [{"type": "sound"}]}, r"at parts\[0\]: its type should be text, image, audio or file"),
        ("4", "cannot be read: it should be an object"),
    ],
)
def test_results_that_cannot_be_read(data: Any, sentence: str) -> None:
    with pytest.raises(MessageError, match=sentence):
        ToolResult.from_json(data)


def test_a_tool_message_has_the_result() -> None:
    picture = ImagePart(data="aGk=", media_type="image/png")
    assert result_message(CALCULATE, ToolResult("4")) == tool_message("call_1", "calculate", "4")
    assert result_message(CALCULATE, ToolResult("4", "no such tool")).content == "no such tool"
    assert result_message(CALCULATE, ToolResult("seen", parts=(picture,))).content == (TextPart("seen"), picture)
    assert result_message(CALCULATE, ToolResult(parts=(picture,))).content == (picture,)
    assert result_message(CALCULATE, ToolResult(f"a{HALF}b")).content == "a\ufffdb"


# ---- parts and reasoning


@pytest.mark.parametrize(
    ("part", "data"),
    [
        (TextPart("hi"), {"type": "text", "text": "hi"}),
        (TextPart(""), {"type": "text", "text": ""}),
        (ImagePart("http://a/b.png"), {"type": "image", "url": "http://a/b.png"}),
        (ImagePart(data="aGk=", media_type="image/png"), {"type": "image", "data": "aGk=", "media_type": "image/png"}),
        (FilePart("http://a/b.pdf", name="b.pdf"), {"type": "file", "url": "http://a/b.pdf", "name": "b.pdf"}),
    ],
)
def test_the_json_of_parts(part: Part, data: dict[str, Any]) -> None:
    message = user([part])
    assert message.to_json() == {"role": "user", "content": [data]}
    assert next(iter(message.to_json()["content"][0])) == "type"
    assert Message.from_json({"role": "user", "content": [data]}) == message


@pytest.mark.parametrize("kind", [ImagePart, FilePart])
def test_media_has_a_url_or_data(kind: Any) -> None:
    for source in ({}, {"url": "http://a/b", "data": "aGk="}):
        with pytest.raises(MessageError, match=f"{kind.__name__} needs a url or data"):
            kind(**source)


def test_the_bytes_of_media_are_not_printed() -> None:
    assert repr(ImagePart(data="aGk=" * 1000)) == "ImagePart(url='', media_type='')"


def test_reasoning_has_its_signature() -> None:
    message = assistant("4", reasoning=[Reasoning("two and two", "c2ln", "anthropic"), Reasoning(signature="x")])
    data = [{"text": "two and two", "signature": "c2ln", "provider": "anthropic"}, {"signature": "x"}]
    assert message.to_json() == {"role": "assistant", "content": "4", "reasoning": data}
    assert Message.from_json(message.to_json()) == message


# ---- messages


def test_the_builders() -> None:
    assert system("a") == Message("system", "a")
    assert user("a") == Message("user", "a")
    assert user([TextPart("a")]) == Message("user", (TextPart("a"),))
    assert assistant("a", CALCULATE) == Message("assistant", "a", (CALCULATE,))
    assert assistant() == Message("assistant")
    assert tool_message("1", "add", "4") == Message("tool", "4", tool_call_id="1", name="add")


def test_there_are_four_roles() -> None:
    assert ROLES == ("system", "user", "assistant", "tool") and set(USER_ROLES) == {"user", "system"}
    wrong: tuple[Any, ...] = ("robot", "", "User", None, [])
    for role in wrong:
        with pytest.raises(MessageError, match="the roles are system, user, assistant, tool"):
            Message(role, "hi")


def test_lists_become_tuples() -> None:
    message = Message("assistant", [TextPart("a")], [CALCULATE], reasoning=[Reasoning("b")])  # type: ignore[arg-type]
    assert message == Message("assistant", (TextPart("a"),), (CALCULATE,), reasoning=(Reasoning("b"),))
    assert {type(value) for value in (message.content, message.tool_calls, message.reasoning)} == {tuple}


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_only_the_assistant_calls_and_reasons(role: Any) -> None:
    for extra in ({"tool_calls": (CALCULATE,)}, {"reasoning": (Reasoning("a"),)}):
        with pytest.raises(MessageError, match=f"only an assistant message .* not a {role} message"):
            Message(role, "a", **extra)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"content": None}, "content"),
        ({"content": 5}, "content"),
        ({"content": b"hi"}, "content"),
        ({"content": ["hi"]}, "content"),
        ({"content": TextPart("hi")}, "content"),
        ({"tool_calls": [{"id": "1", "name": "add"}]}, "tool_calls"),
        ({"tool_calls": CALCULATE}, "tool_calls"),
        ({"reasoning": "hm"}, "reasoning"),
        ({"reasoning": ["hm"]}, "reasoning"),
    ],
)
def test_fields_of_the_wrong_kind_are_refused(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(MessageError, match=f"the {name} of a message cannot be"):
        Message("assistant", **fields)


def test_a_message_cannot_change() -> None:
    with pytest.raises(FrozenInstanceError):
        user("a").content = "b"  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        user("a").colour = "red"  # type: ignore[attr-defined]


def test_halves_of_characters_are_joined_or_replaced() -> None:
    assert user("\ud83d\ude00").content == "😀"
    assert user(f"a{HALF}b").content == "a\ufffdb"
    assert TextPart("\udc80").text == Reasoning("\udc80").text == "\ufffd"


def test_the_text_of_a_message() -> None:
    assert user("a").text == "a"
    assert user([TextPart("a"), ImagePart("http://a/b"), TextPart("b")]).text == "a\nb"
    assert user([ImagePart("http://a/b")]).text == ""


def test_the_digest_of_the_canonical_json_is_cached() -> None:
    message = assistant("a", CALCULATE)
    assert message.cache == {}
    assert message.digest == digest(canonical_json(message.to_json())) == message.cache["digest"]
    assert message.digest is message.digest
    assert message.digest != assistant("b", CALCULATE).digest
    assert message.digest == assistant("a", replace(CALCULATE, raw="{  }")).digest


def test_the_cache_is_no_part_of_the_message() -> None:
    one, other = user("a"), user("a")
    one.cache["wire"] = b"bytes"
    assert one == other and other.cache == {}
    assert one.to_json() == {"role": "user", "content": "a"}
    assert "cache" not in repr(one) and "bytes" not in repr(one)


def test_a_hook_puts_its_name_on_a_message() -> None:
    message = Message("user", "go on", name="critique")
    assert message.to_json() == {"role": "user", "content": "go on", "name": "critique"}
    Messages([message]).validate()


def test_a_conversation_in_json_both_ways() -> None:
    data = json.loads(CONVERSATION)
    chain = Messages.from_json(data)
    assert chain.to_json() == data
    assert [list(message) for message in chain.to_json()] == [list(message) for message in data]
    call = ToolCall("call_abc123", "read_file", {"path": "/workspace/main.py"})
    assert chain[2] == assistant("", call)
    assert chain[3].tool_call_id == "call_abc123" and chain[3].name == "read_file"
    assert chain.validate() is chain


CALL_JSON = {"id": "1", "name": "add", "args": {}}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "the message cannot be read: it should be an object"),
        (None, "the message cannot be read: it should be an object"),
        ({}, "at role: it is required"),
        ({"role": "robot"}, "at role: it should be 'system', 'user', 'assistant' or 'tool'"),
        ({"role": 1}, "at role: it should be"),
        ({"role": "user", "content": 5}, "at content: it should be a valid string"),
        ({"role": "user", "content": None}, "at content: it should be a valid string"),
        ({"role": "user", "content": {}}, "at content: it should be a valid string"),
        ({"role": "user", "contents": "a"}, "at contents: there is no such key"),
        ({"role": "user", "cache": {}}, "at cache: there is no such key"),
        ({"role": "user", "name": None}, "at name: it should be a valid string"),
        ({"role": "user", "content": ["a"]}, r"at content\[0\]: it should be an object"),
        ({"role": "user", "content": [{}]}, r"at content\[0\]: its type should be text, image, audio or file"),
        (
            {"role": "user", "content": [{"type": "sound"}]},
            r"at content\[0\]: its type should be text, image, audio or file",
        ),
        ({"role": "user", "content": [{"type": "text"}]}, r"at content\[0\].text: it is required"),
        ({"role": "user", "content": [{"type": "text", "text": 1}]}, r"at content\[0\].text: it should be a valid"),
        ({"role": "user", "content": [{"type": "text", "text": "", "n": 1}]}, r"at content\[0\].n: there is no such"),
        ({"role": "user", "content": [{"type": "image"}]}, r"at content\[0\]: ImagePart needs a url or data"),
        ({"role": "user", "content": [{"type": "file", "url": 1}]}, r"at content\[0\].url: it should be a valid"),
        ({"role": "user", "tool_calls": [CALL_JSON]}, "only an assistant message has tool calls"),
        ({"role": "assistant", "tool_calls": {}}, "at tool_calls: it should be"),
        ({"role": "assistant", "tool_calls": [{}]}, r"at tool_calls\[0\].id: it is required"),
        ({"role": "assistant", "tool_calls": [{**CALL_JSON, "args": []}]}, r"at tool_calls\[0\].args: it should be"),
        ({"role": "assistant", "tool_calls": [{**CALL_JSON, "raw": "{}"}]}, r"at tool_calls\[0\].raw: the raw arg"),
        ({"role": "assistant", "tool_calls": [{**CALL_JSON, "args": {"a": float("nan")}}]}, "nan is not JSON data"),
        ({"role": "assistant", "reasoning": [{"text": 1}]}, r"at reasoning\[0\].text: it should be a valid string"),
        ({"role": "assistant", "reasoning": [{"tekst": ""}]}, r"at reasoning\[0\].tekst: there is no such key"),
    ],
)
def test_messages_that_cannot_be_read(data: Any, sentence: str) -> None:
    with pytest.raises(MessageError, match=sentence) as caught:
        Message.from_json(data)
    assert "\n" not in str(caught.value)
    with pytest.raises(MessageError, match="message 1 cannot be read"):
        Messages.from_json([{"role": "user", "content": "hi"}, data])


@pytest.mark.parametrize("data", [{}, "hi", None, 5])
def test_a_chain_is_read_from_a_list(data: Any) -> None:
    with pytest.raises(MessageError, match="read from a list, not from"):
        Messages.from_json(data)


# ---- the chain


def test_a_chain_is_a_sequence() -> None:
    chain = Messages([user("a"), assistant("b"), user("c")])
    assert issubclass(Messages, Sequence) and not issubclass(Messages, list)
    assert len(chain) == 3 and bool(chain) and not Messages()
    assert chain[0] == user("a") and chain[-1] == user("c")
    assert type(chain[1:]) is Messages and chain[1:] == [assistant("b"), user("c")]
    assert [message.text for message in chain] == ["a", "b", "c"]
    assert [message.text for message in reversed(chain)] == ["c", "b", "a"]
    assert user("a") in chain and user("z") not in chain
    assert chain.index(assistant("b")) == 1 and chain.count(user("a")) == 1
    assert repr(Messages([user("a")])) == f"Messages([{user('a')!r}])"
    with pytest.raises(IndexError):
        chain[3]


def test_chains_equal_chains_lists_and_tuples() -> None:
    chain = Messages([user("a")])
    assert chain == Messages([user("a")]) and chain == [user("a")] and chain == (user("a"),)
    assert chain != Messages() and chain != [user("b")]
    assert chain != "a" and chain != 1


def test_appending_to_a_chain_returns_a_new_one() -> None:
    start = Messages([user("a")])
    assert start.add(user("b"), user("c")) == [user("a"), user("b"), user("c")]
    others: list[Message] = [user("b")]
    assert start + others == start + Messages(others) == [user("a"), user("b")]
    assert start.assistant("b", reasoning=[Reasoning("c")]).last == assistant("b", reasoning=[Reasoning("c")])
    assert start.user([TextPart("b")]).last == user([TextPart("b")])
    assert start == [user("a")]


def test_a_chain_cannot_be_changed() -> None:
    chain: Any = Messages([user("a")])
    with pytest.raises(TypeError):
        chain[0] = user("b")
    with pytest.raises(TypeError):
        del chain[0]
    with pytest.raises(AttributeError):
        chain.append(user("b"))
    with pytest.raises(AttributeError):
        chain.colour = "red"


def test_a_chain_is_independent_of_its_list() -> None:
    items = [user("a")]
    chain = Messages(items)
    items.append(user("b"))
    assert chain == [user("a")]


def test_a_view_follows_its_list() -> None:
    items = [user("a")]
    view = Messages.view(items)
    part, longer = view[:], view.user("c")
    items.append(user("b"))
    assert view == [user("a"), user("b")] and view.last == user("b")
    assert part == [user("a")] and longer == [user("a"), user("c")]
    assert items == [user("a"), user("b")]


@pytest.mark.parametrize("item", ["hi", {"role": "user", "content": "hi"}, None])
def test_a_chain_holds_messages_only(item: Any) -> None:
    with pytest.raises(MessageError, match="message 1 is not a Message but"):
        Messages([user("a"), item])
    with pytest.raises(MessageError, match="is not a Message"):
        Messages().add(item)


def test_the_filters() -> None:
    assert SUM.system_messages() == [system("You are helpful.")]
    assert SUM.user_messages() == [user("What is 2+2?")]
    assert SUM.assistant_messages() == [assistant("", CALCULATE), assistant("2+2 = 4")]
    assert SUM.tool_messages() == [tool_message("call_1", "calculate", "4")]
    assert SUM.by_role("user") == SUM.user_messages() and type(SUM.by_role("user")) is Messages
    assert SUM.by_role("robot") == []


def test_the_last_message() -> None:
    assert SUM.last == assistant("2+2 = 4") and SUM.last_content == "2+2 = 4"
    assert Messages().last is None and Messages().last_content == ""
    assert Messages().user([TextPart("a"), TextPart("b")]).last_content == "a\nb"


def test_a_readable_conversation() -> None:
    assert SUM.pretty() == PRETTY
    assert Messages().pretty() == ""
    both = Messages().assistant("I look.", CALCULATE, ToolCall("2", "now"))
    assert both.pretty().splitlines()[1:] == [
        "I look.",
        '  → tool_call: calculate(id=call_1, args={"expr": "2+2"})',
        "  → tool_call: now(id=2, args={})",
    ]


def test_tokens_are_estimated_by_characters() -> None:
    assert Messages().estimate_tokens() == 0
    assert Messages().user("a" * 9).system("b" * 3).estimate_tokens() == 2
    raw = ToolCall("1", "add", {"a": 1}, raw='{"a":    1}')
    assert Messages().assistant("four", raw).estimate_tokens() == 1 + len('{"a":    1}') // 4
    assert Messages().assistant("", CALCULATE).estimate_tokens() == len('{"expr": "2+2"}') // 4
    seen = Messages().user([TextPart("look"), ImagePart("http://a/b"), FilePart("http://a/c")])
    assert seen.estimate_tokens() == seen.estimate_tokens() == 1 + 2 * MEDIA_TOKENS


# ---- the rules

A, B = ToolCall("a", "add"), ToolCall("b", "add")


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [user("a")],
        [system("a"), user("b"), user("c")],
        [user([ImagePart("http://a/b")])],
        [assistant("", A)],
        [assistant("", A, B), tool_message("b", "add", "")],
        [assistant("", A, B), tool_message("b", "add", ""), tool_message("a", "add", ""), user("go on")],
        [assistant("", A), tool_message("a", "add", "1"), assistant("", A), tool_message("a", "add", "1")],
    ],
)
def test_valid_chains(messages: list[Message]) -> None:
    chain = Messages(messages)
    assert chain.validate() is chain


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([user("")], "message 0 is not valid: it needs content"),
        ([user("a"), system("")], "message 1 is not valid: it needs content"),
        ([user([])], "it needs content"),
        ([user([TextPart("")])], "it needs content"),
        ([assistant()], "an assistant message needs content or tool calls"),
        ([assistant(reasoning=[Reasoning("hm")])], "an assistant message needs content or tool calls"),
        ([assistant("a", ToolCall("", "add"))], "every tool call needs an id and a name"),
        ([assistant("a", ToolCall("a", ""))], "every tool call needs an id and a name"),
        ([assistant("", A), tool_message("", "add", "")], "message 1 .* needs a tool_call_id and a name"),
        ([assistant("", A), tool_message("a", "", "")], "message 1 .* needs a tool_call_id and a name"),
        ([Message("user", "a", tool_call_id="a")], "only a tool message has a tool_call_id, not a user message"),
        ([user("a"), tool_message("a", "add", "")], "message 1 is not valid: no call 'a' waits for an answer"),
        ([assistant("", A), tool_message("b", "add", "")], "message 1 is not valid: no call 'b' waits"),
        ([assistant("", A), *[tool_message("a", "add", "")] * 2], "message 2 is not valid: no call 'a' waits"),
        ([assistant("", A, B), tool_message("a", "add", ""), user("c")], "message 2 .* first answer the calls b"),
        ([assistant("", B, A), assistant("c")], "message 1 .* first answer the calls a, b"),
        ([assistant("", A, A)], "message 0 .* two of its tool calls have the same id"),
    ],
)
def test_chains_that_are_not_valid(messages: list[Message], sentence: str) -> None:
    with pytest.raises(MessageError, match=sentence):
        Messages(messages).validate()


def test_valid_user_input() -> None:
    chain = Messages([system("a"), user("b"), user([ImagePart("http://a/b")])])
    assert chain.validate_user_input() is chain


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([], "there is no message"),
        ([user("a"), assistant("b")], "message 1 is not accepted: its role is assistant; only user and system"),
        ([tool_message("a", "add", "4")], "its role is tool"),
        ([user("")], "message 0 is not accepted: it needs content"),
        ([Message("user", "go on", name="critique")], "only tools and hooks give a name"),
        ([Message("user", "a", tool_call_id="a")], "only a tool message has a tool_call_id"),
    ],
)
def test_invalid_user_input(messages: list[Message], sentence: str) -> None:
    with pytest.raises(MessageError, match=sentence):
        Messages(messages).validate_user_input()
