"""The offline demo model: its table of requests, its reports of real tools and guards, and its stream."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from kit import ScriptedUser, collect_events, text_deltas
from wick import (
    Agent,
    Allow,
    Ask,
    Block,
    Hook,
    Message,
    Result,
    Thread,
    Tool,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    assistant,
    guard,
    tool,
    user,
)
from wick.backends.local import Local
from wick.capabilities._child_agents.definitions import Subagent
from wick.capabilities.ask_user import AskUser
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.subagents import Subagents
from wick.capabilities.todos import Todos
from wick.constants import DEMO_VALUE_CHARS
from wick.errors import ModelError, ToolError
from wick.messages import FilePart, ImagePart, tool_message
from wick.models import resolve
from wick.models.demo import Demo, reports
from wick.models.demo import instance as instance_module
from wick.models.demo.decide import GREETING, MOST_ROUNDS, REFUSAL, decide
from wick.models.demo.instance import LABEL, instance
from wick.models.demo.intents import MOST_CHARS, MOST_JOBS, understand
from wick.models.reply import Reply
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, Request, TextDelta, Usage


class Workspace:
    """A folder, and an agent with the capabilities that work in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "docs").mkdir()
        (folder / "notes.txt").write_text("milk\nbread and butter\ncall Ada\n")
        (folder / "docs" / "guide.md").write_text("# Guide\n\nMilk is in the fridge.\n")

    def agent(self, *hooks: Any, **options: Any) -> Agent:
        files = Filesystem(Local(self.folder, sandbox="none"))
        researcher = Subagent("researcher", "Finds things.")
        inherited = [files, Todos(), AskUser(), Subagents([researcher])]
        return Agent(Demo(), hooks=[*inherited, *hooks], **{"ask": ScriptedUser(True), **options})

    async def ask(self, text: str, *hooks: Hook, **options: Any) -> Result:
        result = await self.agent(*hooks, **options).run(text)
        assert result.outcome == "completed"
        return result


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def list_calls(result: Result) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.args)) for message in result.messages for call in message.tool_calls]


def list_acts(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(act.tool, act.args) for job in understand(text) for act in job.acts]


# -- the table of requests --------------------------------------------------------------------------------------------

READ = ("read_file", {"path": "notes.txt"})
HELLO = ("write_file", {"path": "a.txt", "content": "hello\n"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Please list the files.", ("ls", {"path": "."})),
        ("What is in this folder?", ("ls", {"path": "."})),
        ("List the files in the folder src.", ("ls", {"path": "src"})),
        ("What is in the folder src?", ("ls", {"path": "src"})),
        ("show me src/", ("ls", {"path": "src/"})),
        ("Read notes.txt", READ),
        ("Show me notes.txt, please", READ),
        ("What's in `notes.txt`?", READ),
        ("Show me the first 20 lines of notes.txt", ("read_file", {"path": "notes.txt", "limit": 20})),
        ("read 'my notes.txt'", ("read_file", {"path": "my notes.txt"})),
        ("Write 'hello' to a.txt", HELLO),
        ("Write the word hello into a.txt", HELLO),
        ("Write a file a.txt that says hello", HELLO),
        (
            "write to a.txt: hello and read b.txt.",
            ("write_file", {"path": "a.txt", "content": "hello and read b.txt.\n"}),
        ),
        ("Replace 'a' with 'b' in c.txt", ("edit_file", {"path": "c.txt", "old_text": "a", "new_text": "b"})),
        ("search for bread and butter", ("grep", {"pattern": "bread and butter"})),
        ("search for a.b() in src", ("grep", {"pattern": r"a\.b\(\)", "path": "src"})),
        ("Which files mention bees?", ("grep", {"pattern": "bees"})),
        ("Find all markdown files", ("glob", {"pattern": "**/*.md"})),
        ("find src/*.py", ("glob", {"pattern": "src/*.py"})),
        ("Run `echo 'a' and read b.txt`", ("execute", {"command": "echo 'a' and read b.txt"})),
        ("Run the command: ls .. && echo hi!", ("execute", {"command": "ls .. && echo hi!"})),
        ("ask for approval", ("execute", {"command": "echo approved"})),
        ("Ask for my approval to run `rm -r build`", ("execute", {"command": "rm -r build"})),
        ("ask me a question", ("ask_user", {"question": "What should I do next?"})),
        ("Ask me which colour I like", ("ask_user", {"question": "Which colour I like?"})),
        (
            "ask me to choose between red, green and blue",
            (
                "ask_user",
                {"question": "Which one do you choose?", "kind": "select", "options": ["red", "green", "blue"]},
            ),
        ),
        (
            "Have the researcher list the files",
            ("task", {"agent": "researcher", "prompt": "List the files", "description": "list the files"}),
        ),
        ("hand a task to a subagent", ("task", {"prompt": "List the files", "description": "list the files"})),
    ],
)
def test_a_request_is_understood(text: str, expected: Any) -> None:
    assert list_acts(text) == [expected]


@pytest.mark.parametrize(
    ("text", "path", "begins"),
    [
        ("make slides about cats", "cats-slides.md", "# Cats\n"),
        ("Make a presentation about cats to c.md", "c.md", "# Cats\n"),
        ("make a table of cats", "cats.csv", "Name,Cats\n"),
        ("Create a table of cats with the columns name and age", "cats.csv", "name,age\nname 1,"),
        ("Write a document about cats to c.md", "c.md", "# Cats\n"),
    ],
)
def test_a_file_about_a_topic_is_understood(text: str, path: str, begins: str) -> None:
    ((name, args),) = list_acts(text)
    assert (name, args["path"]) == ("write_file", path) and args["content"].startswith(begins)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read notes.txt\nand list the files", ["read_file notes.txt", "ls ."]),
        ("List the files, \nthen\nwrite 'x' to a.txt", ["ls .", "write_file a.txt"]),
        ("Write hello to a.txt and read it", ["write_file a.txt", "read_file a.txt"]),
        ("read a.txt, change foo to bar in it.", ["read_file a.txt", "edit_file a.txt"]),
        ("list the files in a/, list the files in b/ and list the files in c/.", ["ls a/", "ls b/", "ls c/"]),
        ("make slides about how to read and write", ["write_file how-to-read-and-write-slides.md"]),
        ("list the files and ask the researcher to read a.txt and read b.txt", ["ls .", "task "]),
    ],
)
def test_several_requests_in_one_message(text: str, expected: list[str]) -> None:
    assert [f"{name} {args.get('path', '')}" for name, args in list_acts(text)] == expected


def test_a_message_has_a_limit_of_requests() -> None:
    messages = converse("write hello to a.txt. " * 30, lambda call: "ok", *TOOLS)
    assert sum(len(message.tool_calls) for message in messages) == MOST_JOBS
    assert messages[-1].text.endswith("I do 8 things at a time at most: ask me again for the rest.")


def test_a_message_has_a_limit_of_characters() -> None:
    assert "too long" in decide(Request((user(f"write to a.txt: {'x' * MOST_CHARS}"),))).text


@pytest.mark.parametrize(
    "text", ["what is the weather?", "2+2", "delete notes.txt", "run the tests", "read it", "ask the user to wait"]
)
def test_an_unknown_request_is_refused_with_the_abilities(text: str) -> None:
    reply = decide(Request((user(text),), tools=TOOLS))
    assert reply.text == REFUSAL and not reply.tool_calls
    assert REFUSAL.startswith("Offline demo model") and "run a command, make slides" in REFUSAL


def test_a_greeting_is_answered_with_the_abilities() -> None:
    for text in ("hello", "Hi there!", "Hello again!", "What can you do?"):
        assert decide(Request((user(text),))).text == GREETING


# -- real tools -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("list the files", "In `.` there are 2 entries:\n\n- `docs/`\n- `notes.txt` (31 bytes)"),
        ("list the files in empty", "There is nothing in `empty`."),
        ("read notes.txt", "`notes.txt` has 3 lines:\n\n```\nmilk\nbread and butter\ncall Ada\n```"),
        ("read empty.txt", "`empty.txt` is empty."),
        ("read code.md", "`code.md` has 3 lines:\n\n````\n```\ncode\n```\n````"),
        ("write 'hi' to new/a.txt", "I wrote `new/a.txt` (3 characters)."),
        ("replace milk with tea in notes.txt", "I replaced `milk` with `tea` in `notes.txt`."),
        ("search for Ada", "For `Ada` there is 1 entry:\n\n- `notes.txt:3: call Ada`"),
        ("search for gold", "Nothing contains `gold`."),
        ("find all markdown files", "For `**/*.md` there is 1 entry:\n\n- `docs/guide.md`"),
        ("find all python files", "No file matches `**/*.py`."),
        ("run `echo hi; exit 3`", "`echo hi; exit 3` ended with exit code 3 and printed:\n\n```\nhi\n```"),
        ("run `true`", "`true` ended with exit code 0, with no output."),
        ("make slides about cats", "I made five slides about cats. They are in `cats-slides.md`."),
        ("make a table of cats", "I made a table of cats. It is in `cats.csv`."),
        ("write a report about cats", "The report about cats is in `cats.md`."),
        ("ask the researcher to wait", f"The researcher agent answered:\n\n> {REFUSAL}"),
    ],
)
async def test_a_result_is_reported(space: Workspace, text: str, expected: str) -> None:
    for name, content in (("empty.txt", ""), ("code.md", "```\ncode\n```\n")):
        if name in text:
            (space.folder / name).write_text(content)
    if "empty" in text:
        (space.folder / "empty").mkdir()
    assert (await space.ask(text)).text == expected


async def test_a_long_result_is_shortened(space: Workspace) -> None:
    (space.folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    text = (await space.ask("read long.txt")).text
    assert text.startswith("`long.txt` has 100 lines and begins with these 10:")
    assert "line 10\n…" in text and "line 11" not in text
    for number in range(30):
        (space.folder / "docs" / f"{number}.txt").touch()
    assert (await space.ask("list the files in docs")).text.endswith("- … and 11 more")


async def test_a_plan_is_carried_out(space: Workspace) -> None:
    result = await space.ask("Plan a party")
    states = [[todo["status"] for todo in args["todos"]] for name, args in list_calls(result) if name == "write_todos"]
    assert states == [
        ["in_progress", "pending", "pending"],
        ["done", "in_progress", "pending"],
        ["done", "done", "in_progress"],
        ["done", "done", "done"],
    ]
    assert (space.folder / "plan-a-party.md").read_text().startswith("# Plan: A party\n")
    assert result.text == "The plan for “a party” had three todos, and all are done. It is in `plan-a-party.md`."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(Allow({"answer": "blue"}), "You answered: blue"), (Block("gone home"), "You did not answer: gone home")],
)
async def test_the_answer_of_the_user_is_reported(space: Workspace, answer: Any, expected: str) -> None:
    assert (await space.ask("ask me to choose between red and blue", ask=ScriptedUser(answer))).text == expected


async def test_reads_run_in_parallel_and_the_rest_in_order(space: Workspace) -> None:
    text = "List the files, read notes.txt, replace milk with tea in notes.txt and then read it again"
    result = await space.ask(text)
    names = [[call.name for call in message.tool_calls] for message in result.messages if message.tool_calls]
    assert names == [["ls", "read_file"], ["edit_file"], ["read_file"]]
    assert result.messages[1].text == "I will list the files in `.` and read `notes.txt`."
    assert "```\nmilk" in result.text and "```\ntea" in result.text
    result = await space.ask("list the files and read notes.txt", settings={"parallel_tool_calls": False})
    assert [len(message.tool_calls) for message in result.messages] == [0, 1, 0, 1, 0, 0]


async def test_only_the_last_user_message_counts(space: Workspace) -> None:
    thread, agent = Thread(), space.agent()
    await agent.run("read notes.txt", thread=thread)
    assert (await agent.run("tell me a joke", thread=thread)).text == REFUSAL
    result = await agent.run("read notes.txt", thread=thread)
    assert len(list_calls(result)) == 1 and "3 lines" in result.text
    ids = [call.id for message in thread.messages for call in message.tool_calls]
    assert len(set(ids)) == len(ids) == 2


def test_a_message_of_a_hook_is_not_a_request() -> None:
    messages = (user("list the files"), assistant("done"), Message("user", "read notes.txt", name="critic"))
    assert decide(Request(messages, tools=TOOLS)).tool_calls[0].name == "ls"


# -- guards and failures ----------------------------------------------------------------------------------------------

# Each tool with a request for it, and the words for its purpose.
USES = [
    ("list the files", "ls", "list the files in `.`"),
    ("read notes.txt", "read_file", "read `notes.txt`"),
    ("make slides about cats", "write_file", "write `cats-slides.md`"),
    ("replace milk with tea in notes.txt", "edit_file", "edit `notes.txt`"),
    ("search for milk", "grep", "search for `milk`"),
    ("find *.py", "glob", "find files like `**/*.py`"),
    ("run `echo hi`", "execute", "run `echo hi`"),
    ("plan a party", "write_todos", "write down the todos"),
    ("ask me a question", "ask_user", "ask you a question"),
    ("ask the researcher to list the files", "task", "hand a task to a subagent"),
]
# Reasons that read like success, and one like a refusal.
REASONS = ["ok", "done", "wrote a.txt", "[]", '{"exit_code": 0, "stdout": "hi"}', "a.py:1: milk", "Accepted.", "denied"]


def block(name: str, reason: str) -> Hook:
    def refuse(use: ToolUse) -> Block:
        return Block(reason)

    return guard(ToolUse, match=name)(refuse)


@pytest.mark.parametrize(("text", "name", "purpose"), USES)
async def test_a_blocked_call_is_not_done(space: Workspace, text: str, name: str, purpose: str) -> None:
    for reason in REASONS:
        assert (await space.ask(text, block(name, reason))).text == f"I could not {purpose}: {reason}"


@guard(ToolUse, match="execute")
def ask_first(use: ToolUse) -> Ask:
    return Ask("ok?")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (False, "the user said no to: ok?"),
        (Block("ok, done"), "ok, done"),
        (None, ""),  # without an approver
    ],
)
async def test_a_refused_approval_is_not_done(tmp_path: Path, answer: Any, reason: str) -> None:
    ran = []

    @tool
    def execute(command: str) -> str:
        """Run a command."""
        ran.append(command)
        return "ok"

    asked = None if answer is None else ScriptedUser(answer)
    result = await Agent(Demo(), tools=[execute], hooks=[ask_first], ask=asked).run("run `touch x`")
    assert result.text.startswith(f"I could not run `touch x`: {reason}") and ran == []
    granted = await Agent(Demo(), tools=[execute], hooks=[ask_first], ask=ScriptedUser(True)).run("run `touch x`")
    assert granted.text.startswith("`touch x` ran") and ran == ["touch x"]


async def test_a_failed_tool_is_not_done(space: Workspace) -> None:
    assert (await space.ask("read lost.txt")).text == "I could not read `lost.txt`: there is no lost.txt"

    @tool
    async def execute(command: str) -> str:
        """Raise an error, crash or hang."""
        if command == "error":
            raise ToolError("ok, done")
        if command == "crash":
            raise OSError("success")
        await asyncio.Event().wait()
        return "never"

    for command in ("error", "crash", "hang"):
        hasty = tool(execute.fn, name="execute", timeout=0.01)
        text = (await Agent(Demo(), tools=[hasty]).run(f"run `{command}`")).text
        assert text.startswith(f"I could not run `{command}`: "), text


@pytest.mark.parametrize(
    "output", ["permission denied", "error: not allowed", "Blocked", '{"error": "forbidden"}', "FileNotFoundError", "?"]
)
async def test_a_result_without_error_is_success_for_any_text(space: Workspace, output: str) -> None:
    @after(ToolUse, match="write_file")
    def reword(use: ToolUse) -> None:
        use.result = ToolResult(output)

    assert (await space.ask("write hi to a.txt", reword)).text == "I wrote `a.txt` (3 characters)."
    (space.folder / "b.txt").write_text(output)
    assert (await space.ask("read b.txt")).text == f"`b.txt` has 1 line:\n\n```\n{output}\n```"


async def test_a_report_by_text_would_be_detected(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    report = reports.report
    monkeypatch.setattr(reports, "report", lambda tool, args, text, *, failed: report(tool, args, text, failed=False))
    assert not (await space.ask("run `echo hi`", block("execute", "hello"))).text.startswith("I could not")


async def test_a_failure_stops_its_job_and_no_other(space: Workspace) -> None:
    result = await space.ask("plan a party and read notes.txt", block("write_file", "no writing"))
    first, *rest = result.text.split("\n\n")
    assert first == "I could not write `plan-a-party.md`: no writing" and "bread and butter" in "".join(rest)
    assert [name for name, _ in list_calls(result)].count("write_todos") == 2
    text = (await space.ask("read lost.txt and read notes.txt")).text
    assert "I could not read `lost.txt`" in text and "`notes.txt` has 3 lines" in text


def test_a_call_without_a_result_is_not_done() -> None:
    messages = [user("list the files"), decide(Request((user("list the files"),), tools=TOOLS))]
    assert decide(Request(tuple(messages), tools=TOOLS)).text == "I could not list the files in `.`: there is no result"


# -- other tools and settings -----------------------------------------------------------------------------------------


async def test_a_missing_tool_is_named() -> None:
    assert "no such tool" in (await Agent(Demo()).run("list the files")).text
    result = await Agent(Demo(), tools=[TOOLS[0]]).run("plan a party")
    expected = "I would use write_todos, write_file and read_file for that, but this agent has no such tools."
    assert result.text == expected


async def test_no_tool_is_used_with_tool_choice_none(space: Workspace) -> None:
    result = await space.ask("list the files", settings={"tool_choice": "none"})
    assert not list_calls(result) and "I would use ls" in result.text


async def test_a_renamed_tool_is_matched_by_origin() -> None:
    @tool
    def ls(path: str, depth: int) -> str:
        """List a folder."""
        return "a.txt\n\nb.txt"

    result = await Agent(Demo(), tools=[ls.renamed("fs_ls")]).run("list the files")
    assert list_calls(result) == [("fs_ls", {"path": ".", "depth": 0})]  # a required argument is filled in
    assert result.text.endswith("there are 2 entries:\n\n- `a.txt`\n- `b.txt`")


def test_deeply_nested_json_is_text() -> None:
    assert "[[[" in converse("list the files", lambda call: "[" * 100_000, *TOOLS)[-1].text


def make_tool(name: str) -> Tool:
    return tool(lambda: None, name=name, parameters={"type": "object"})


def converse(text: str, answer: Callable[[ToolCall], str], *tools: Tool, most: int = 100) -> list[Message]:
    """Return a whole conversation. Each tool call gets the answer of a function."""
    messages = [user(text)]
    for _ in range(most):
        reply = decide(Request(tuple(messages), tools=tools))
        messages.append(reply)
        if not reply.tool_calls:
            return messages
        messages += [tool_message(call.id, call.name, answer(call)) for call in reply.tool_calls]
    pytest.fail(f"{text!r} has no end")


TOOLS = tuple(
    make_tool(name) for name in "ls read_file write_file edit_file glob grep execute write_todos task ask_user".split()
)

# -- the stream -------------------------------------------------------------------------------------------------------


async def collect(model: Model, request: Request) -> list[Delta]:
    return [delta async for delta in model.stream(request)]


async def test_the_demo_streams_words_arguments_usage_and_an_end() -> None:
    request = Request((user("write hello world to a.txt"),), tools=TOOLS)
    stream = await collect(Demo(), request)
    assert stream == await collect(Demo(), request)
    assert [delta.text for delta in stream if isinstance(delta, TextDelta)] == ["I", " will", " write", " `a.txt`."]
    (start,) = [delta for delta in stream if isinstance(delta, CallStart)]
    pieces = [delta.text for delta in stream if isinstance(delta, CallArgs)]
    assert start.name == "write_file" and re.fullmatch(r"call_[0-9a-f]{12}", start.id)
    assert len(pieces) > 2 and json.loads("".join(pieces)) == {"path": "a.txt", "content": "hello world\n"}
    assert isinstance(stream[-2], Usage) and stream[-2].input_tokens == 6 and stream[-2].output_tokens > 0
    assert stream[-1] == Finish("tool_calls")


async def test_an_agent_streams_the_demo(space: Workspace) -> None:
    seen = await collect_events(space.agent(), "hello")
    assert text_deltas(seen) == GREETING
    assert {event.name for event in seen if event.event.startswith("on_chat_model")} == {LABEL}


async def test_a_wrong_setting_is_refused() -> None:
    wrong = {
        "max_tokens must be a whole number from 1 up, not 0": {"max_tokens": 0},
        "max_tokens must be a whole number from 1 up, not True": {"max_tokens": True},
        "the setting response_format is an object, not 'json'": {"response_format": "json"},
        "there is no setting 'colour'; offline demo model knows temperature": {"colour": "red"},
    }
    for reason, settings in wrong.items():
        with pytest.raises(ModelError, match=reason) as caught:
            await collect(Demo(), Request((user("hello"),), settings=settings))
        assert not caught.value.retryable


async def test_a_reply_that_is_too_long_is_cut() -> None:
    stream = await collect(Demo(), Request((user("hello"),), settings={"max_tokens": 5}))
    assert "".join(delta.text for delta in stream if isinstance(delta, TextDelta)) == GREETING[:20]
    assert stream[-1] == Finish("length")


def test_the_demo_is_labelled() -> None:
    model = resolve("demo")
    assert isinstance(model, Demo) and LABEL in repr(model)
    assert model.name == LABEL == "offline demo model"


# -- structured output ----------------------------------------------------------------------------------------------


class Color(BaseModel):
    name: str = Field(min_length=30)
    rgb: tuple[int, int, int]
    kind: Literal["warm", "cold"]


class Palette(BaseModel):
    title: str
    size: int = Field(gt=3, le=20, multiple_of=5)
    share: float = Field(gt=0, lt=1)
    colors: list[Color] = Field(min_length=2)
    parent: Palette | None
    note: str = "none"


async def test_an_answer_has_the_response_format() -> None:
    schema = Palette.model_json_schema()
    for form in (schema, {"type": "json_schema", "json_schema": {"schema": schema}}):
        palette = Palette.model_validate_json((await Agent(Demo(), settings={"response_format": form}).run("hi")).text)
        assert palette.title == LABEL and palette.size == 5 and len(palette.colors) == 2
    for kind, text in (("text", GREETING), ("json_object", json.dumps({"answer": GREETING}))):
        assert (await Agent(Demo(), settings={"response_format": {"type": kind}}).run("hi")).text == text


async def test_tools_precede_the_formatted_answer(space: Workspace) -> None:
    result = await space.ask("list the files", settings={"response_format": {"type": "json_object"}})
    assert list_calls(result)[0][0] == "ls" and "`notes.txt`" in json.loads(result.text)["answer"]


@pytest.mark.parametrize("choice", ["final", "required"])
async def test_a_tool_that_must_be_used_is_used_once(choice: str) -> None:
    @tool
    async def final(title: str, count: int) -> str:
        """The answer."""
        return "thanks"


SCHEMAS: list[dict[str, Any]] = [
    {},
    {"const": 7},
    {"enum": ["b", "a"]},
    {"type": ["integer", "null"]},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 7, "multipleOf": 4},
    {"type": "integer", "exclusiveMinimum": -9, "exclusiveMaximum": -7},
    {"type": "number", "minimum": 0.25, "maximum": 0.75},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "minItems": 3},
    {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "boolean"}}, "required": ["b"]}]},
    {"$ref": "#/$defs/x", "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/y"}]}, "y": {"type": "array"}}},
]


def test_the_smallest_instance_is_valid() -> None:
    for schema in SCHEMAS:
        jsonschema.validate(json.loads(json.dumps(instance(schema))), schema)


LARGE: list[dict[str, Any]] = [
    {"type": "string", "minLength": 1e8},
    {"type": "array", "minItems": 10**9},
    {"type": "array", "items": {"enum": [{"a": ["x" * 1_000]}]}, "minItems": 10_000},
    {"type": "object", "required": [f"{'x' * 1_000}{n}" for n in range(1_000)]},
    {"required": [*"abcdefghij"], "properties": {name: {"$ref": "#"} for name in "abcdefghij"}},
    {"allOf": [{"$ref": "#"}] * 20},
    {"type": "array", "prefixItems": [{"type": "string", "minLength": 50_000}] * 100},
    {"type": "integer", "minimum": 10**400, "multipleOf": 0.5},
    {"type": "integer", "multipleOf": 0, "minimum": 1},
]


def exceeds_limit(schema: dict[str, Any]) -> bool:
    """Return True if the value of a schema is larger than the limit."""
    try:
        return len(json.dumps(instance(schema))) > 4 * DEMO_VALUE_CHARS
    except ModelError as error:
        return LABEL not in str(error)


def test_the_value_of_a_schema_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [schema for schema in LARGE if exceeds_limit(schema)] == []
    monkeypatch.setattr(instance_module._Maker, "spend", lambda self, **steps: None)
    assert exceeds_limit({"type": "string", "minLength": 10**7})  # a missing limit would be noticed


def test_a_recursive_schema_has_an_end() -> None:
    assert instance({"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]})
    assert instance({"$ref": "#"}) == LABEL


# -- any text, any results --------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    "list read write make plan ask run search find replace with in to of and then the a file files notes.txt src/ 'x'"
    " `ls` slides about table columns approval me it . , ? ! : please ``` \" ' * \n".split(" ")
)
TEXTS = st.text() | st.lists(WORDS, max_size=25).map(" ".join)


@given(TEXTS, st.sampled_from([(), TOOLS]))
def test_any_text_has_a_valid_reply(text: str, tools: tuple[Tool, ...]) -> None:
    reply = Reply()
    for delta in asyncio.run(collect(Demo(), Request((user(text),), tools=tools))):
        reply.feed(delta)
    message = reply.message()
    assert message.text and all(not call.invalid for call in message.tool_calls)
    assert reply.finish == ("tool_calls" if message.tool_calls else "stop")


@given(
    TEXTS, st.lists(st.text() | st.sampled_from(["", "ok", "[]", "{}", '[{"line": 1}]', '{"answer": null}', "null"]))
)
def test_any_results_lead_to_an_end(text: str, answers: list[str]) -> None:
    chance = random.Random(text)
    messages = converse(text, lambda call: chance.choice(answers) if answers else "ok", *TOOLS, most=MOST_ROUNDS + 1)
    assert messages[-1].text


def test_changed_calls_do_not_repeat_for_ever() -> None:
    """A hook that changes the arguments of each call hides which acts are done."""
    messages = [user("list the files")]
    for number in range(MOST_ROUNDS):
        assert decide(Request(tuple(messages), tools=TOOLS)).tool_calls
        call = ToolCall(f"c{number}", "ls", {"lost": True})
        messages += [assistant("", call), tool_message(call.id, "ls", "[]")]
    last = decide(Request(tuple(messages), tools=TOOLS))
    assert not last.tool_calls and f"stopped after {MOST_ROUNDS} rounds" in last.text


@pytest.mark.parametrize(
    "piece",
    [" ", ".", "a: ", "'", "```a\n", "read a.txt and ", "replace a with ", "list the files. ", "make slides about , "],
    ids=repr,
)
def test_a_repetitive_text_is_answered(piece: str) -> None:
    text = (piece * MOST_CHARS)[:MOST_CHARS]
    assert decide(Request((user(text),))).text and decide(Request((user(f"write {text}"[:MOST_CHARS]),))).text


def test_a_message_without_text_is_greeted() -> None:
    assert decide(Request(())).text == GREETING
    assert decide(Request((user([ImagePart(data="iVBORw0KGgo=", media_type="image/png")]),))).text == GREETING
    assert decide(Request((user([FilePart(data="AAAA", media_type="application/pdf")]),))).text == GREETING
