"""The offline demo model: it understands a handful of requests, uses the real tools, and says what came of it."""

from __future__ import annotations

import asyncio
import json
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from kit import User, deltas, events
from wick import (
    Agent,
    Ask,
    Block,
    Hook,
    Message,
    Result,
    Run,
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
from wick.constants import DEMO_VALUE_CHARS
from wick.errors import ModelError
from wick.messages import FilePart, ImagePart, tool_message
from wick.models import resolve
from wick.models.demo import Demo, reports
from wick.models.demo import instance as made_by
from wick.models.demo.decide import GREETING, MOST_ROUNDS, REFUSAL, decide
from wick.models.demo.documents import slides
from wick.models.demo.instance import LABEL, instance
from wick.models.demo.parser import MOST_JOBS, understand
from wick.protocols import CallArgs, CallStart, Delta, Finish, Model, Request, TextDelta, Usage
from wick.reply import Reply

Todo = dict[str, str]


class Workspace:
    """A folder, and tools named and shaped like wick's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.todos: list[list[Todo]] = []

    @tool(read_only=True)
    def ls(self, path: str = ".") -> list[dict[str, Any]]:
        """List a folder."""
        entries = sorted((self.folder / path).iterdir())
        return [
            {"name": entry.name, "type": "dir" if entry.is_dir() else "file", "size": entry.stat().st_size}
            for entry in entries
        ]

    @tool(read_only=True)
    def read_file(self, path: str, offset: int = 0, limit: int | None = None) -> str:
        """Read a file."""
        lines = (self.folder / path).read_text().splitlines(keepends=True)
        return "".join(lines[offset:][:limit])

    @tool
    def write_file(self, path: str, content: str) -> dict[str, Any]:
        """Write a file."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        return {"path": path, "written": file.write_text(content)}

    @tool
    def edit_file(self, path: str, old_text: str, new_text: str) -> dict[str, Any]:
        """Replace a text in a file."""
        file = self.folder / path
        text = file.read_text()
        if old_text not in text:
            raise ValueError("old_text not found in file")
        file.write_text(text.replace(old_text, new_text, 1))
        return {"path": path, "replaced": 1}

    @tool(read_only=True)
    def glob(self, pattern: str) -> list[str]:
        """Find files."""
        return sorted(file.relative_to(self.folder).as_posix() for file in self.folder.glob(pattern))

    @tool(read_only=True)
    def grep(self, pattern: str, path: str = ".") -> list[dict[str, Any]]:
        """Search files."""
        start = self.folder / path
        files = [start] if start.is_file() else sorted(file for file in start.rglob("*") if file.is_file())
        return [
            {"path": file.relative_to(self.folder).as_posix(), "line": number, "text": line}
            for file in files
            for number, line in enumerate(file.read_text().splitlines(), 1)
            if re.search(pattern, line)
        ]

    @tool(kind="shell")
    def execute(self, command: str) -> dict[str, Any]:
        """Run a command."""
        done = subprocess.run(command, shell=True, cwd=self.folder, capture_output=True, text=True, check=False)
        return {"exit_code": done.returncode, "output": done.stdout, "stderr": done.stderr}

    @tool
    def write_todos(self, todos: list[Todo]) -> dict[str, int]:
        """Write down what is to be done."""
        self.todos.append(todos)
        return {"todos": len(todos)}

    @tool
    async def task(self, agent: Literal["general", "researcher"], prompt: str, run: Run) -> str:
        """Hand a task to a subagent."""
        child = Agent(Demo(), name=agent, tools=[self.ls, self.read_file, self.write_file])
        return (await child.run(prompt, parent=run)).text

    @property
    def tools(self) -> list[Tool]:
        files = [self.ls, self.read_file, self.write_file, self.edit_file, self.glob, self.grep]
        return [*files, self.execute, self.write_todos, self.task]

    def agent(self, *hooks: Any, **options: Any) -> Agent:
        return Agent(Demo(), hooks=hooks, **{"tools": self.tools, **options})

    async def ask(self, said: str, *hooks: Hook, **options: Any) -> Result:
        result = await self.agent(*hooks, **options).run(said)
        assert result.outcome == "completed"
        return result


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    (tmp_path / "docs").mkdir()
    (tmp_path / "notes.txt").write_text("milk\nbread and butter\ncall Ada\n")
    (tmp_path / "docs" / "guide.md").write_text("# Guide\n\nMilk is in the fridge.\n")
    return Workspace(tmp_path)


def called(result: Result) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name, dict(call.args)) for message in result.messages for call in message.tool_calls]


def acts(said: str) -> list[tuple[str, dict[str, Any]]]:
    """The uses of tools that a text is understood to ask for."""
    return [(act.tool, act.args) for job in understand(said) for act in job.acts]


# -- every request in several words ---------------------------------------------------------------------------------

# The sentences of the tour, the guide, the web interface and its tests, and for each ability another shape of a
# sentence: an order, a question, a command line, a name in quotes.

LIST = """
list the files
What files are here?
What is in this folder?
would you mind listing the files?
ls -la
"""
LIST_DOCS = """
list the files in docs
what is in the docs folder?
ls docs
"""
READ = """
read notes.txt
What's in notes.txt?
Show me the contents of `notes.txt`
Show me notes.txt
cat notes.txt
"""
WRITE = """
Write 'hello world' to a.txt
write hello world to a.txt
create a file a.txt with the content hello world
write to a.txt: hello world
"""
EDIT = """
Replace 'milk' with 'tea' in notes.txt
change milk to tea in notes.txt
edit notes.txt: replace milk with tea
make notes.txt say tea instead of milk
"""
SEARCH = """
search for milk
grep milk
which files contain milk?
Where is `milk` used?
"""
SEARCH_DOCS = """
search for milk in docs
search docs for milk
"""
FIND = """
find all python files
which python files are there?
List all *.py files
"""
FIND_NAME = """
where is notes.txt?
find the file notes.txt
"""
RUN = """
run echo hi
Run the command: echo hi
Run `echo hi`
What is the output of `echo hi`?
$ echo hi
"""
SLIDES = """
make slides about cats
could you prepare some slides about cats?
Generate a 5-slide presentation about "cats"
"""
TABLE = """
make a table of cats
could you generate a CSV of cats?
"""
DOCUMENT = """
make a document about cats
Write a report on cats
"""
PLAN = """
plan a party
Make a todo list for a party
could you plan a party for me?
"""
APPROVAL = """
ask for approval
ask me for permission
let me approve a command
"""
DELEGATE = """
ask the researcher to list the files
delegate to the researcher: list the files
list the files with the researcher
@researcher list the files
"""
QUESTION = """
ask me a question
could you ask me a question?
"""
REFUSED = """
what is the weather?
2+2
write
delete notes.txt
translate this into French: hello
"""
HELLO = """
hello
Hi there!
who are you?
What can you do?
"""


def each(*table: tuple[str, str, dict[str, Any]]) -> list[Any]:
    """Every phrase, with the tool and the arguments that it means."""
    return [
        pytest.param(phrase, name, args, id=phrase)
        for phrases, name, args in table
        for phrase in phrases.strip().splitlines()
    ]


@pytest.mark.parametrize(
    ("said", "name", "args"),
    each(
        (LIST, "ls", {"path": "."}),
        (LIST_DOCS, "ls", {"path": "docs"}),
        (READ, "read_file", {"path": "notes.txt"}),
        (WRITE, "write_file", {"path": "a.txt", "content": "hello world\n"}),
        (EDIT, "edit_file", {"path": "notes.txt", "old_text": "milk", "new_text": "tea"}),
        (SEARCH, "grep", {"pattern": "milk"}),
        (SEARCH_DOCS, "grep", {"pattern": "milk", "path": "docs"}),
        (FIND, "glob", {"pattern": "**/*.py"}),
        (FIND_NAME, "glob", {"pattern": "**/notes.txt"}),
        (RUN, "execute", {"command": "echo hi"}),
        (APPROVAL, "execute", {"command": "echo approved"}),
        (QUESTION, "ask_user", {"question": "What should I do next?"}),
    ),
)
def test_a_request_is_understood_in_many_words(said: str, name: str, args: dict[str, Any]) -> None:
    assert acts(said) == [(name, args)]


@pytest.mark.parametrize(
    ("said", "path", "begins"),
    each(
        (SLIDES, "cats-slides.md", {"": "# Cats\n"}),
        (TABLE, "cats.csv", {"": "Month,Cats,"}),
        (DOCUMENT, "cats.md", {"": "# Cats\n"}),
    ),
)
def test_papers_are_asked_for_in_many_words(said: str, path: str, begins: dict[str, str]) -> None:
    ((name, args),) = acts(said)
    assert (name, args["path"]) == ("write_file", path) and args["content"].startswith(begins[""])


@pytest.mark.parametrize("said", PLAN.strip().splitlines())
def test_a_plan_is_asked_for_in_many_words(said: str) -> None:
    names = [name for name, _ in acts(said)]
    assert names == ["write_todos", "ls", "write_todos", "write_file", "write_todos", "read_file", "write_todos"]
    assert ("read_file", {"path": "plan-a-party.md"}) in acts(said)


@pytest.mark.parametrize("said", DELEGATE.strip().splitlines())
def test_a_subagent_is_asked_for_in_many_words(said: str) -> None:
    ((name, args),) = acts(said)
    assert (name, args["agent"], args["prompt"]) == ("task", "researcher", "List the files")


GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "models.md"
SENTENCE = re.compile(r"^\| [^|]* \| “(?P<said>[^”]*)” \| (?P<tools>[^|]*) \|$", re.MULTILINE)


def test_every_sentence_of_the_guide_is_understood() -> None:
    rows = SENTENCE.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(rows) > 10
    for said, tools in rows:
        assert {name for name, _ in acts(said)} == set(re.findall(r"`(\w+)`", tools)), said


@pytest.mark.parametrize("said", REFUSED.strip().splitlines())
def test_everything_else_is_refused_with_what_it_can_do(said: str) -> None:
    text = decide(Request((user(said),))).text
    assert text == REFUSAL and text.startswith("Offline demo model")
    for ability in ("list files", "run a command", "make slides", "plan with todos", "hand a task to a subagent"):
        assert ability in text


@pytest.mark.parametrize("said", HELLO.strip().splitlines())
def test_a_greeting_is_answered_with_who_it_is(said: str) -> None:
    text = decide(Request((user(said),))).text
    assert text == GREETING and text.startswith("Offline demo model")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("read a.txt and b.txt", [("read_file", {"path": "a.txt"}), ("read_file", {"path": "b.txt"})]),
        ("read the first 5 lines of a.txt", [("read_file", {"path": "a.txt", "limit": 5})]),
        ("show me src/", [("ls", {"path": "src/"})]),
        ("read the readme", [("read_file", {"path": "README.md"})]),
        ("read 'my notes.txt'", [("read_file", {"path": "my notes.txt"})]),
        ("read the file called notes", [("read_file", {"path": "notes"})]),
        ("create an empty file called a.txt", [("write_file", {"path": "a.txt", "content": ""})]),
        ("create a.txt", [("write_file", {"path": "a.txt", "content": "Written by the offline demo model.\n"})]),
        (
            "write a.txt with:\n```py\nx = 1\n\ny = 2\n```",
            [("write_file", {"path": "a.txt", "content": "x = 1\n\ny = 2\n"})],
        ),
        (
            "write to a.txt: see the readme, please: \ue000",
            [("write_file", {"path": "a.txt", "content": "see the readme, please: \ue000\n"})],
        ),
        ("write salt and pepper to a.txt", [("write_file", {"path": "a.txt", "content": "salt and pepper\n"})]),
        ("write hello to a file", [("write_file", {"path": "note.txt", "content": "hello\n"})]),
        ("search for bread and butter", [("grep", {"pattern": "bread and butter"})]),
        ("search for a.b() in src/x.py", [("grep", {"pattern": r"a\.b\(\)", "path": "src/x.py"})]),
        ("find src/*.py", [("glob", {"pattern": "src/*.py"})]),
        ("run echo 'a b' > c.txt", [("execute", {"command": "echo 'a b' > c.txt"})]),
        ("ask for approval to run `make deploy`", [("execute", {"command": "make deploy"})]),
        ("Run `echo hi`, but ask for approval first", [("execute", {"command": "echo hi"})]),
        (
            "ask me to choose between red, green and blue",
            [
                (
                    "ask_user",
                    {"question": "Which one do you choose?", "kind": "select", "options": ["red", "green", "blue"]},
                )
            ],
        ),
        ("ask me: what is your name?", [("ask_user", {"question": "What is your name?"})]),
        ("run echo ok to permission", [("execute", {"command": "echo ok to permission"})]),
        (
            "make slides on wick and save them to deck.md",
            [("write_file", {"path": "deck.md", "content": slides("wick")})],
        ),
        ("edit notes.txt", []),
        ("run the tests", []),
        ("run", []),
    ],
)
def test_details_are_heard(said: str, expected: list[Any]) -> None:
    assert understand(said) and acts(said) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("list the files and read notes.txt", ["ls .", "read_file notes.txt"]),
        ("List the files. Then read notes.txt.", ["ls .", "read_file notes.txt"]),
        ("list the files\nread notes.txt", ["ls .", "read_file notes.txt"]),
        ("Do two things: list the files and read notes.txt", ["ls .", "read_file notes.txt"]),
        ("write hello to a.txt, then read it back", ["write_file a.txt", "read_file a.txt"]),
        ("open a.txt, change foo to bar, and save it", ["read_file a.txt", "edit_file a.txt"]),
        ("list the files, ls docs, and read a.txt", ["ls .", "ls docs", "read_file a.txt"]),
        ("make slides about cats and make a table of dogs", ["write_file cats-slides.md", "write_file dogs.csv"]),
        ("list the files and write a.txt: hello and read b.txt", ["ls .", "write_file a.txt"]),
        ("make slides about how to read and write files", ["write_file how-to-read-and-write-files-slides.md"]),
        ("first list the files, then search for foo, and finally run `ls`", ["ls .", "grep ", "execute "]),
    ],
)
def test_two_requests_in_one_text(said: str, expected: list[str]) -> None:
    assert [f"{name} {args.get('path', '')}" for name, args in acts(said)] == expected


def test_a_text_holds_a_handful_of_requests_at_most() -> None:
    messages = answered("write hello to a.txt. " * 30, lambda call: "ok", *TOOLS)
    assert sum(len(message.tool_calls) for message in messages) == MOST_JOBS
    assert messages[-1].text.endswith("I do 8 things at a time at most: ask me again for the rest.")


def test_a_long_text_belongs_into_quotes_or_after_a_colon() -> None:
    long = "word " * 1_000
    assert "too long" in decide(Request((user(f"write {long} to a.txt"),))).text
    for said in (f"write to a.txt: {long}", f'write "{long}" to a.txt'):
        ((_, args),) = acts(said)
        assert args["content"].strip() == long.strip()


# -- with real tools ------------------------------------------------------------------------------------------------


async def test_files_are_listed(space: Workspace) -> None:
    result = await space.ask("What files are here?")
    assert "there are 2 entries" in result.text
    assert "- `docs/`\n- `notes.txt` (31 bytes)" in result.text


async def test_an_empty_folder_is_empty(space: Workspace) -> None:
    (space.folder / "empty").mkdir()
    assert (await space.ask("list the files in empty")).text == "There is nothing in `empty`."


async def test_a_file_is_read(space: Workspace) -> None:
    result = await space.ask("What does notes.txt say?")
    assert result.text == "`notes.txt` has 3 lines:\n\n```\nmilk\nbread and butter\ncall Ada\n```"


async def test_a_long_file_is_quoted_from_its_beginning(space: Workspace) -> None:
    (space.folder / "long.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    text = (await space.ask("read long.txt")).text
    assert text.startswith("`long.txt` has 100 lines and begins with these 10:")
    assert "line 10\n…" in text and "line 11" not in text


async def test_what_is_quoted_cannot_end_its_block(space: Workspace) -> None:
    (space.folder / "code.md").write_text("```\ncode\n```\n")
    assert "````\n```\ncode\n```\n````" in (await space.ask("read code.md")).text


async def test_a_missing_file_is_said_to_be_missing(space: Workspace) -> None:
    text = (await space.ask("read lost.txt")).text
    assert text.startswith("I could not read `lost.txt`: ") and "FileNotFoundError" in text


async def test_a_file_that_is_missing_does_not_hide_the_others(space: Workspace) -> None:
    text = (await space.ask("read lost.txt and notes.txt")).text
    assert "I could not read `lost.txt`" in text and "`notes.txt` has 3 lines" in text


async def test_a_file_is_written(space: Workspace) -> None:
    result = await space.ask("Please write 'hello world' to new/a.txt.")
    assert (space.folder / "new" / "a.txt").read_text() == "hello world\n"
    assert result.text == "I wrote `new/a.txt` (12 characters)."


async def test_a_file_is_edited(space: Workspace) -> None:
    result = await space.ask("In notes.txt, change milk to tea")
    assert (space.folder / "notes.txt").read_text().startswith("tea\n")
    assert result.text == "I replaced `milk` with `tea` in `notes.txt`."


async def test_an_edit_that_finds_nothing_says_so(space: Workspace) -> None:
    text = (await space.ask("replace rum with tea in notes.txt")).text
    assert text == "I could not edit `notes.txt`: edit_file: ValueError: old_text not found in file"


async def test_files_are_searched(space: Workspace) -> None:
    assert "there is 1 match:\n\n- `notes.txt:3: call Ada`" in (await space.ask("Where is Ada mentioned?")).text
    assert (await space.ask("search for gold")).text == "Nothing contains `gold`."


async def test_files_are_found(space: Workspace) -> None:
    assert "- `docs/guide.md`" in (await space.ask("find all markdown files")).text
    assert (await space.ask("find all python files")).text == "No file matches `**/*.py`."


async def test_a_command_is_run(space: Workspace) -> None:
    assert (await space.ask("run `echo hi`")).text == "`echo hi` ended with exit code 0 and printed:\n\n```\nhi\n```"
    assert (await space.ask("run `exit 3`")).text == "`exit 3` ended with exit code 3, with no output."


async def test_slides_a_table_and_a_document_are_made(space: Workspace) -> None:
    said = [
        "make slides about cats to c.md",
        "make a table of cats with columns name, age and 4 rows",
        "write a report on cats",
    ]
    text = (await space.ask(" and ".join(said))).text
    assert text.split("\n\n") == [
        "I made five slides about cats. They are in `c.md`.",
        "I made a table of cats. It is in `cats.csv`.",
        "The report about cats is in `cats.md`.",
    ]
    table = (space.folder / "cats.csv").read_text().splitlines()
    assert len(table) == 5 and table[0] == "name,age" and re.fullmatch(r"name 1,\d\d", table[1])


async def test_slides_are_parted_by_lines_of_dashes(space: Workspace) -> None:
    await space.ask("make slides about cats")
    slides = (space.folder / "cats-slides.md").read_text().split("\n\n---\n\n")
    assert len(slides) == 5 and all(slide.startswith(("# ", "## ")) for slide in slides) and LABEL in slides[0]


async def test_a_plan_is_carried_out(space: Workspace) -> None:
    result = await space.ask("Plan a party")
    assert [[todo["status"] for todo in todos] for todos in space.todos] == [
        ["in_progress", "pending", "pending"],
        ["done", "in_progress", "pending"],
        ["done", "done", "in_progress"],
        ["done", "done", "done"],
    ]
    assert [sorted(todo) for todo in space.todos[0]] == [["id", "status", "title"]] * 3
    assert (space.folder / "plan-a-party.md").read_text().startswith("# Plan: A party\n")
    assert result.text == "The plan for “a party” had three todos, and all are done. It is in `plan-a-party.md`."


async def test_a_subagent_does_the_work(space: Workspace) -> None:
    result = await space.ask("Ask the researcher to read notes.txt")
    assert called(result) == [("task", {"agent": "researcher", "prompt": "Read notes.txt"})]
    assert (
        result.text.startswith("The researcher agent answered:\n\n> `notes.txt` has 3 lines:")
        and "> milk" in result.text
    )


async def test_a_subagent_that_nobody_named_is_one_of_those_there_are(space: Workspace) -> None:
    result = await space.ask("delegate a task to a subagent")
    assert called(result) == [("task", {"agent": "general", "prompt": "List the files"})]
    assert "`notes.txt`" in result.text


async def test_what_is_independent_goes_side_by_side(space: Workspace) -> None:
    result = await space.ask("List the files and read notes.txt, then search for Ada")
    assert [len(message.tool_calls) for message in result.messages] == [0, 3, 0, 0, 0, 0]
    assert "`docs/`" in result.text and "bread and butter" in result.text and "call Ada" in result.text
    assert result.messages[1].text == "I will list the files in `.`, read `notes.txt` and search for `Ada`."


async def test_what_depends_on_something_waits_for_it(space: Workspace) -> None:
    result = await space.ask("Read notes.txt, change milk to tea in notes.txt and then read it again")
    assert [[call.name for call in message.tool_calls] for message in result.messages if message.tool_calls] == [
        ["read_file"],
        ["edit_file"],
        ["read_file"],
    ]
    assert "```\nmilk" in result.text and "```\ntea" in result.text


async def test_calls_come_one_by_one_if_they_must(space: Workspace) -> None:
    result = await space.ask("list the files and read notes.txt", settings={"parallel_tool_calls": False})
    assert [len(message.tool_calls) for message in result.messages] == [0, 1, 0, 1, 0, 0]


async def test_it_remembers_the_file_of_the_last_message(space: Workspace) -> None:
    thread, agent = Thread(), space.agent()
    await agent.run("write hello to a.txt", thread=thread)
    assert "hello" in (await agent.run("now read it", thread=thread)).text


async def test_the_last_words_of_the_user_count(space: Workspace) -> None:
    thread, agent = Thread(), space.agent()
    await agent.run("read notes.txt", thread=thread)
    assert (await agent.run("tell me a joke", thread=thread)).text == REFUSAL
    result = await agent.run("read notes.txt", thread=thread)
    assert len(called(result)) == 1 and "3 lines" in result.text
    ids = [call.id for message in thread.messages for call in message.tool_calls]
    assert len(set(ids)) == len(ids) == 2


def test_the_words_of_a_hook_are_not_the_users() -> None:
    asked = [user("list the files"), assistant("done"), Message("user", "read notes.txt", name="critic")]
    assert decide(Request(tuple(asked), tools=(Workspace.ls,))).tool_calls[0].name == "ls"


# -- refusals -------------------------------------------------------------------------------------------------------


def blocking(name: str, reason: str) -> Hook:
    def block(use: ToolUse) -> Block:
        return Block(reason)

    return guard(ToolUse, match=name)(block)


@pytest.mark.parametrize(
    ("said", "name", "doing"),
    [
        ("list the files", "ls", "list the files in `.`"),
        ("read notes.txt", "read_file", "read `notes.txt`"),
        ("write hi to a.txt", "write_file", "write `a.txt`"),
        ("make slides about cats", "write_file", "write `cats-slides.md`"),
        ("replace milk with tea in notes.txt", "edit_file", "edit `notes.txt`"),
        ("search for milk", "grep", "search for `milk`"),
        ("find *.py", "glob", "find files like `**/*.py`"),
        ("run `echo hi`", "execute", "run `echo hi`"),
        ("plan a party", "write_todos", "write down the todos"),
        ("ask the researcher to list the files", "task", "hand a task to a subagent"),
    ],
)
async def test_a_refusal_is_reported_with_its_reason(space: Workspace, said: str, name: str, doing: str) -> None:
    result = await space.ask(said, blocking(name, "that is not allowed here"))
    assert result.text == f"I was not allowed to {doing}: that is not allowed here"


async def test_what_is_not_clear_is_quoted_and_not_called_a_success(space: Workspace) -> None:
    @after(ToolUse, match="write_file")
    def vague(use: ToolUse) -> None:
        use.result = ToolResult("come back on Monday")

    text = (await space.ask("write hi to a.txt", vague)).text
    assert text == "I tried to write `a.txt`, and write_file answered: come back on Monday"


REASONS = [
    *("come back on Monday", "ok", "done", "wrote a.txt", "In `.` there is 1 entry:\n- `a.txt`", "[]", "{}", "hello"),
    *(
        '{"exit_code": 0, "stdout": "hi"}',
        "1 line\n2 lines",
        "a.py:1: milk",
        "I did it",
        "Accepted.",
        "saved\nand done",
    ),
]


def says_it_ran(text: str) -> bool:
    return not text.startswith(("I was not allowed to ", "I could not "))


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("list the files", "ls"),
        ("read notes.txt", "read_file"),
        ("write hi to a.txt", "write_file"),
        ("replace milk with tea in notes.txt", "edit_file"),
        ("search for milk", "grep"),
        ("find *.py", "glob"),
        ("run `echo hi`", "execute"),
        ("plan a party", "write_todos"),
        ("ask the researcher to list the files", "task"),
    ],
)
async def test_a_blocked_call_never_ran_whatever_its_reason_says(space: Workspace, said: str, name: str) -> None:
    for reason in REASONS:
        assert not says_it_ran((await space.ask(said, blocking(name, reason))).text), reason


async def test_a_call_that_is_judged_by_its_text_is_noticed(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = reports.outcome
    monkeypatch.setattr(reports, "outcome", lambda tool, text, *, failed: judged(tool, text))
    assert says_it_ran((await space.ask("run `echo hi`", blocking("execute", "hello"))).text)


async def test_a_plan_ends_where_it_is_refused(space: Workspace) -> None:
    result = await space.ask("plan a party", blocking("write_file", "writing is not allowed"))
    assert result.text == "I was not allowed to write `plan-a-party.md`: writing is not allowed"
    assert [todo["status"] for todo in space.todos[-1]] == ["done", "in_progress", "pending"]


async def test_one_refusal_does_not_hide_the_rest(space: Workspace) -> None:
    result = await space.ask("write hi to a.txt and read notes.txt", blocking("write_file", "permission denied"))
    assert "I was not allowed to write `a.txt`" in result.text and "bread and butter" in result.text


@guard(ToolUse, match="execute")
def ask_first(use: ToolUse) -> Ask:
    return Ask(f"May I run {use.args['command']}?")


async def test_an_approval_is_asked_for(space: Workspace) -> None:
    asked = User(True)
    result = await space.ask("Ask for approval, please", ask_first, ask=asked)
    assert asked.question.question == "May I run echo approved?"
    assert "exit code 0" in result.text and "approved" in result.text


@pytest.mark.parametrize("answer", [False, Block("the user said no to: that"), None])
async def test_an_approval_that_is_refused(space: Workspace, answer: Any) -> None:
    asked = None if answer is None else User(answer)
    text = (await space.ask("Ask for approval to run `touch x`", ask_first, ask=asked)).text
    assert text.startswith("I was not allowed to run `touch x`: ")
    assert not (space.folder / "x").exists()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("read notes.txt", "I would use read_file for that, but this agent has no such tool."),
        ("ask me a question", "I would use ask_user for that, but this agent has no such tool."),
        (
            "plan a party",
            "I would use write_todos, write_file and read_file for that, but this agent has no such tools.",
        ),
    ],
)
async def test_a_tool_that_is_missing_is_named(space: Workspace, said: str, sentence: str) -> None:
    assert (await space.ask(said, tools=[space.ls])).text == sentence


async def test_an_agent_without_tools_still_answers() -> None:
    agent = Agent(Demo())
    assert "no such tool" in (await agent.run("list the files")).text
    assert (await agent.run("hello")).text == GREETING


async def test_no_tools_are_used_where_none_may_be(space: Workspace) -> None:
    result = await space.ask("list the files", settings={"tool_choice": "none"})
    assert not called(result) and "I would use ls" in result.text


# -- tools of other shapes ------------------------------------------------------------------------------------------


async def test_a_renamed_tool_is_known_by_its_origin(space: Workspace) -> None:
    result = await space.ask("list the files", tools=[space.ls.renamed("fs_ls")])
    assert called(result) == [("fs_ls", {"path": "."})] and "`notes.txt`" in result.text


async def test_other_names_of_arguments_and_more_required_ones_are_filled_in() -> None:
    @tool(name="task")
    async def hand_over(subagent_type: str, instructions: str, depth: int, dry: bool = True) -> str:
        """Hand over."""
        return f"{subagent_type} {instructions} {depth}"

    result = await Agent(Demo(), tools=[hand_over]).run("ask the writer to write a poem")
    assert called(result) == [("task", {"subagent_type": "writer", "instructions": "Write a poem", "depth": 0})]
    assert result.text.endswith("> writer Write a poem 0")


async def test_a_question_is_asked_with_its_choices() -> None:
    @tool
    async def ask_user(question: str, options: list[str]) -> str:
        """Ask."""
        return options[1]

    result = await Agent(Demo(), tools=[ask_user]).run("ask me to choose between red and blue")
    assert result.text == "You answered: blue"


@pytest.mark.parametrize(
    ("name", "said", "answer", "expected"),
    [
        ("ls", "list the files", "a.txt\nb.txt\n", "- `a.txt`\n- `b.txt`"),
        ("ls", "list the files", '{"entries": ["a.txt"]}', "there is 1 entry:\n\n- `a.txt`"),
        ("ls", "list the files", json.dumps([f"{n}.txt" for n in range(30)]), "`19.txt`\n- … and 10 more"),
        ("ls", "list the files", '{"error": "no such folder"}', "I could not list the files in `.`: no such folder"),
        ("ls", "list the files", '{"error": "permission denied"}', "I was not allowed to list the files in `.`"),
        ("read_file", "read a.txt", '{"content": "x\\ny\\n", "lines": 2}', "has 2 lines:\n\n```\nx\ny\n```"),
        ("read_file", "read a.txt", '{"x": 1}', 'has 1 line:\n\n```\n{"x": 1}\n```'),
        ("read_file", "read a.txt", "", "`a.txt` is empty."),
        ("grep", "search for x", "a.txt:1:x is not allowed\n", "- `a.txt:1:x is not allowed`"),
        ("grep", "search for x", "No matches found", "Nothing contains `x`."),
        ("grep", "search for x", '[{"file": "a", "line": "x"}]', "- `a: x`"),
        ("write_file", "write x to a.txt", "", "I wrote `a.txt`"),
        ("write_file", "write x to a.txt", "Wrote 2 bytes to a.txt", "I wrote `a.txt`"),
        ("write_file", "write x to a.txt", "the disk is full", "write_file answered: the disk is full"),
        ("execute", "run `x`", "hi", "`x` ran and printed:\n\n```\nhi\n```"),
        (
            "execute",
            "run `x`",
            '{"returncode": 1, "stdout": "", "stderr": "no"}',
            "exit code 1 and printed:\n\n```\nno",
        ),
        ("task", "delegate work to an agent", "I was not allowed to read it.", "> I was not allowed to read it."),
        ("task", "delegate work to an agent", '{"answer": "42"}', "The subagent answered:\n\n> 42"),
        ("task", "delegate work to an agent", "", "The subagent had nothing to say."),
        ("ls", "list the files", "[" * 100_000, "[[["),
    ],
)
def test_results_of_many_shapes_are_read(name: str, said: str, answer: str, expected: str) -> None:
    assert expected in answered(said, lambda call: answer, _plain(name))[-1].text


def _plain(name: str) -> Tool:
    return tool(lambda: None, name=name, parameters={"type": "object"})


def answered(said: str, answer: Callable[[ToolCall], str], *tools: Tool, most: int = 100) -> list[Message]:
    """A whole conversation, in which tools answer as they are told to."""
    messages = [user(said)]
    for _ in range(most):
        reply = decide(Request(tuple(messages), tools=tools))
        messages.append(reply)
        if not reply.tool_calls:
            return messages
        messages += [tool_message(call.id, call.name, answer(call)) for call in reply.tool_calls]
    pytest.fail(f"{said!r} has no end")


# -- the stream -----------------------------------------------------------------------------------------------------


async def said(model: Model, request: Request) -> list[Delta]:
    return [delta async for delta in model.stream(request)]


async def test_it_streams_words_pieces_usage_and_an_end(space: Workspace) -> None:
    request = Request((user("write hello world to a.txt"),), tools=tuple(space.tools))
    stream = await said(Demo(), request)
    assert [delta.text for delta in stream if isinstance(delta, TextDelta)] == ["I", " will", " write", " `a.txt`."]
    (start,) = [delta for delta in stream if isinstance(delta, CallStart)]
    pieces = [delta.text for delta in stream if isinstance(delta, CallArgs)]
    assert start.name == "write_file" and re.fullmatch(r"call_[0-9a-f]{12}", start.id)
    assert len(pieces) > 2 and json.loads("".join(pieces)) == {"path": "a.txt", "content": "hello world\n"}
    assert isinstance(stream[-2], Usage) and stream[-2].input_tokens == 6 and stream[-2].output_tokens > 0
    assert stream[-1] == Finish("tool_calls")


async def test_an_agent_streams_it(space: Workspace) -> None:
    seen = await events(space.agent(), "hello")
    assert deltas(seen) == GREETING
    assert {event.name for event in seen if event.event.startswith("on_chat_model")} == {LABEL}


async def test_the_same_request_has_the_same_reply(space: Workspace) -> None:
    request = Request((user("list the files and read notes.txt"),), tools=tuple(space.tools))
    assert await said(Demo(), request) == await said(Demo(), request)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"max_tokens": 0}, "max_tokens must be a whole number from 1 up, not 0"),
        ({"max_tokens": -1}, "max_tokens must be a whole number from 1 up, not -1"),
        ({"max_tokens": "5"}, "max_tokens must be a whole number from 1 up, not '5'"),
        ({"max_tokens": True}, "max_tokens must be a whole number"),
        ({"response_format": "json"}, "the setting response_format is an object, not 'json'"),
        ({"colour": "red"}, "there is no setting 'colour'; offline demo model knows temperature"),
    ],
)
async def test_settings_that_a_server_would_refuse_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why) as caught:
        await said(Demo(), Request((user("hello"),), settings=settings))
    assert not caught.value.retryable


async def test_a_picture_alone_is_answered_in_a_sentence() -> None:
    picture = user([ImagePart(data="iVBORw0KGgo=", media_type="image/png")])
    assert (await Agent(Demo()).run(picture)).text == GREETING


async def test_a_reply_that_is_too_long_is_cut() -> None:
    stream = await said(Demo(), Request((user("hello"),), settings={"max_tokens": 5}))
    assert "".join(delta.text for delta in stream if isinstance(delta, TextDelta)) == GREETING[:20]
    assert stream[-1] == Finish("length")


def test_it_is_labelled() -> None:
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


@pytest.mark.parametrize(
    "wrap", [lambda schema: schema, lambda schema: {"type": "json_schema", "json_schema": {"schema": schema}}]
)
async def test_an_answer_has_the_format_that_is_asked_for(wrap: Callable[[Any], Any]) -> None:
    agent = Agent(Demo(), settings={"response_format": wrap(Palette.model_json_schema())})
    palette = Palette.model_validate_json((await agent.run("hello")).text)
    assert palette.title == LABEL and palette.size == 5 and len(palette.colors) == 2


async def test_any_json_or_plain_text_may_be_asked_for() -> None:
    free, text = ({"response_format": {"type": kind}} for kind in ("json_object", "text"))
    assert json.loads((await Agent(Demo(), settings=free).run("hello")).text) == {"answer": GREETING}
    assert (await Agent(Demo(), settings=text).run("hello")).text == GREETING


async def test_tools_come_before_the_formatted_answer(space: Workspace) -> None:
    result = await space.ask("list the files", settings={"response_format": {"type": "json_object"}})
    assert called(result)[0][0] == "ls" and "`notes.txt`" in json.loads(result.text)["answer"]


@pytest.mark.parametrize("choice", ["final", "required"])
async def test_a_tool_that_must_be_used_is_used_once(choice: str) -> None:
    @tool
    async def final(title: str, count: int) -> str:
        """The answer."""
        return "thanks"

    result = await Agent(Demo(), tools=[final], settings={"tool_choice": choice}).run("hello")
    assert called(result) == [("final", {"title": LABEL, "count": 0})]


SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": "null"},
    {"type": "boolean"},
    {"const": 7},
    {"enum": ["b", "a"]},
    {"type": ["integer", "null"]},
    {"type": "string", "maxLength": 3},
    {"type": "string", "format": "date-time"},
    {"type": "integer", "minimum": 7, "multipleOf": 4},
    {"type": "integer", "maximum": -3, "multipleOf": 5},
    {"type": "integer", "exclusiveMinimum": -9, "exclusiveMaximum": -7},
    {"type": "number", "minimum": 0.25, "maximum": 0.75},
    {"type": "number", "exclusiveMaximum": -0.5},
    {"type": "array", "items": {"type": "string"}, "minItems": 3},
    {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}]},
    {"type": "object", "properties": {"a": {}, "b": {"type": "integer"}}, "required": ["b", "c"]},
    {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "null"}}, "required": ["b"]}]},
    {"oneOf": [{"type": "integer"}, {"type": "string"}]},
    {"$ref": "#/$defs/x", "$defs": {"x": {"anyOf": [{"$ref": "#/$defs/y"}]}, "y": {"type": "array"}}},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=json.dumps)
def test_the_smallest_instance_is_valid(schema: dict[str, Any]) -> None:
    value = instance(schema)
    jsonschema.validate(value, schema)
    assert json.loads(json.dumps(value)) == value


LARGE: list[dict[str, Any]] = [
    {"type": "string", "minLength": 10**8},
    {"type": "string", "minLength": 1e8},
    {"type": "array", "minItems": 10**9},
    {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "minItems": 1_000}, "minItems": 1_000},
    {"type": "array", "items": {"const": "x" * 10_000}, "minItems": 1_000},
    {"type": "array", "items": {"default": ["x"] * 1_000}, "minItems": 1_000},
    {"type": "array", "items": {"enum": [{"a": "x" * 1_000}]}, "minItems": 10_000},
    {"type": "object", "required": [f"{'x' * 1_000}{n}" for n in range(1_000)]},
    {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"required": [*"abcdefghij"], "properties": {n: {"$ref": "#/$defs/a"} for n in "abcdefghij"}}},
    },
    {"allOf": [{"$ref": "#"}] * 20},
    {"type": "array", "prefixItems": [{"type": "string", "minLength": 50_000}] * 100},
    {"type": "integer", "minimum": 10**400, "multipleOf": 0.5},
    {"type": "number", "minimum": 1e308, "multipleOf": 1e-308},
    {"type": "integer", "multipleOf": 0, "minimum": 1},
]


def beyond_limit(schema: dict[str, Any]) -> bool:
    """Return True if more than the limit is written for a schema."""
    try:
        return len(json.dumps(instance(schema))) > 4 * DEMO_VALUE_CHARS
    except ModelError as error:
        return LABEL not in str(error)


@pytest.mark.parametrize("schema", LARGE, ids=lambda schema: json.dumps(schema)[:60])
def test_what_a_schema_asks_for_is_bounded(schema: dict[str, Any]) -> None:
    assert not beyond_limit(schema)


def test_a_value_without_a_bound_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_by._Maker, "spend", lambda self, **steps: None)
    assert beyond_limit({"type": "string", "minLength": 10**7})


def test_a_schema_that_contains_itself_has_an_end() -> None:
    assert instance({"type": "object", "properties": {"me": {"$ref": "#"}}, "required": ["me"]})
    assert instance({"$ref": "#"}) == LABEL


# -- any text, any results ------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    "list read write make plan ask run search find replace with in to of and then the a file files notes.txt src/ 'x'"
    " `ls` slides about table columns todos approval agent me it . , ? ! : please ``` \" ' * README \n".split(" ")
)
TEXTS = st.text() | st.lists(WORDS, max_size=25).map(" ".join)
TOOLS = tuple(
    _plain(name) for name in "ls read_file write_file edit_file glob grep execute write_todos task ask_user".split()
)


@given(TEXTS, st.sampled_from([(), TOOLS]))
def test_any_text_has_a_valid_reply(text: str, tools: tuple[Tool, ...]) -> None:
    reply = Reply()
    for delta in asyncio.run(said(Demo(), Request((user(text),), tools=tools))):
        reply.feed(delta)
    message = reply.message()
    assert message.text and all(not call.invalid for call in message.tool_calls)
    assert reply.finish == ("tool_calls" if message.tool_calls else "stop")


@given(
    TEXTS, st.lists(st.text() | st.sampled_from(["", "ok", "[]", "{}", '{"error": "no"}', "not allowed", "null", "\n"]))
)
def test_any_results_come_to_an_end(text: str, answers: list[str]) -> None:
    chance = random.Random(text)
    messages = answered(text, lambda call: chance.choice(answers) if answers else "ok", *TOOLS, most=MOST_ROUNDS + 1)
    assert messages[-1].text


def test_calls_that_never_arrive_do_not_go_on_for_ever() -> None:
    """Somebody spoils every call, so that none looks like one of its own."""
    messages = [user("list the files")]
    for number in range(MOST_ROUNDS):
        assert decide(Request(tuple(messages), tools=TOOLS)).tool_calls
        messages += [
            assistant("", ToolCall(f"c{number}", "ls", {"lost": True})),
            tool_message(f"c{number}", "ls", "[]"),
        ]
    last = decide(Request(tuple(messages), tools=TOOLS))
    assert not last.tool_calls and f"stopped after {MOST_ROUNDS} rounds" in last.text


@pytest.mark.parametrize(
    "text",
    [
        " " * 100_000,
        "." * 100_000 + "a",
        "a: " * 30_000,
        "'" * 30_000,
        "```a\n" * 10_000,
        "a/" * 50_000,
        "read a.txt and " * 9_000,
        "delegate " + "to a " * 390,
        "replace " + "a with " * 280,
        "list. " * 330,
        "find " + "the " * 480,
        "what " + "? " * 900,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_hostile_texts_are_answered_too(text: str) -> None:
    assert decide(Request((user(text),))).text


def test_messages_without_words_are_greeted() -> None:
    assert decide(Request(())).text == GREETING
    assert decide(Request((user([FilePart(data="AAAA", media_type="application/pdf")]),))).text == GREETING
