"""Files and commands as tools: results, stored files, and large output."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import (
    ScriptedUser,
    collect_events,
    execute,
    text_deltas,
    thread_entries,
    tool_calls_reply,
    tool_result,
    tool_results,
)
from wick import (
    Agent,
    Allow,
    Block,
    FunctionModel,
    Limits,
    Scripted,
    Thread,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    guard,
    tool,
)
from wick.backends.local import Local
from wick.backends.state import State
from wick.capabilities.filesystem import FILE_TOOLS, Filesystem
from wick.capabilities.permissions import Permissions
from wick.capabilities.sessions import Sessions
from wick.constants import RESULT_CHARS, STATE_BYTES, STATE_FILE_BYTES
from wick.errors import BackendError, ConfigError, StoreError
from wick.protocols import Backend, Protection
from wick.stores.in_memory import InMemory
from wick.workspace.results import Listing, WriteResult

SEVEN = ["ls", "read_file", "write_file", "edit_file", "glob", "grep", "execute"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


@pytest.fixture
async def local(folder: Path) -> AsyncIterator[Local]:
    backend = Local(folder)
    if backend.protection.asks:
        pytest.skip("nothing confines commands here: apt-get install bubblewrap")
    yield backend
    await backend.stop()


@pytest.fixture(params=["local", "state"])
async def backend(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Backend]:
    backend = Local(folder) if request.param == "local" else State()
    yield backend
    await backend.stop()


@tool
async def talk(size: int) -> str:
    """Say a lot."""
    return "".join(f"line {number}\n" for number in range(size))[:size]


def call(name: str, id: str = "c1", **args: Any) -> ToolCall:
    return ToolCall(id, name, args)


def agent(
    backend: Backend, *wanted: Any, hooks: Any = (), tools: Any = (talk,), ask: Any = None, **options: Any
) -> Agent:
    """An agent that makes these calls one after the other."""
    model = Scripted(*(tool_calls_reply(one) for one in wanted), "done")
    return Agent(model, tools=tools, hooks=[Limits(50), *hooks, Filesystem(backend, **options)], ask=ask)


async def use(backend: Backend, name: str, *, thread: Thread | None = None, **args: Any) -> str:
    """Return the result of one use for the model."""
    result = await agent(backend, call(name, **args)).run("go", thread=thread or Thread())
    return tool_result(result)


async def use_json(backend: Backend, name: str, **args: Any) -> Any:
    return json.loads(await use(backend, name, **args))


# -- the tools --------------------------------------------------------------------------------------------------------


def names(capability: Filesystem) -> list[str]:
    return [tool.name for tool in capability.tools()]


def test_there_are_seven_tools(folder: Path) -> None:
    assert names(Filesystem(Local(folder))) == SEVEN
    assert names(Filesystem(Local(folder), execute=False)) == SEVEN[:-1]
    assert names(Filesystem(Local(folder), read_only=True)) == ["ls", "read_file", "glob", "grep"]
    assert names(Filesystem(State())) == SEVEN[:-1]  # which has no commands


def test_tool_descriptions(folder: Path) -> None:
    tools = {tool.name: tool for tool in Filesystem(Local(folder)).tools()}
    assert {name: tool.kind for name, tool in tools.items()} == {
        **dict.fromkeys(("ls", "read_file", "glob", "grep"), "read"),
        **dict.fromkeys(("write_file", "edit_file"), "write"),
        "execute": "shell",
    }
    assert {name for name, tool in tools.items() if tool.read_only} == {"ls", "read_file", "glob", "grep"}
    assert {name for name, tool in tools.items() if tool.idempotent} == {"write_file"}
    assert "Bash" in tools["execute"].aliases and "Read" in tools["read_file"].aliases
    assert all(tool.description and tool.schema for tool in tools.values())


async def test_files(backend: Backend) -> None:
    thread = Thread()

    async def say(name: str, **args: Any) -> Any:
        return json.loads(await use(backend, name, thread=thread, **args))

    assert await say("write_file", path="src/a.py", content="x = 1\ny = 2\n") == {
        "path": "src/a.py",
        "bytes_written": 12,
    }
    assert await say("ls") == [{"name": "src", "type": "dir", "size": 0}]
    assert await say("ls", path="src") == [{"name": "a.py", "type": "file", "size": 12}]
    edited = await say("edit_file", path="src/a.py", old_text="x = 1", new_text="x = 10")
    assert edited == {"path": "src/a.py", "replacements": 1, "bytes_written": 13}
    assert await use(backend, "read_file", thread=thread, path="src/a.py") == "x = 10\ny = 2\n"
    assert await say("glob", pattern="*.py") == {"files": ["src/a.py"], "truncated": False}
    match = {"file": "src/a.py", "line": 2, "text": "y = 2"}
    assert await say("grep", pattern="^y", glob="*.py") == {"matches": [match], "truncated": False}
    assert await say("grep", pattern="^Y", ignore_case=True, path="src") == {"matches": [match], "truncated": False}
    assert await say("grep", pattern="^Y") == {"matches": [], "truncated": False}


async def test_results_are_written_without_spaces(backend: Backend) -> None:
    assert await use(backend, "write_file", path="ä.txt", content="ü") == '{"path":"ä.txt","bytes_written":2}'


async def test_arguments_accept_common_aliases(backend: Backend) -> None:
    thread = Thread()
    await use(backend, "write_file", thread=thread, file_path="a.txt", content="one two")
    await use(backend, "edit_file", thread=thread, file_path="a.txt", old_string="two", new_string="three")
    assert await use(backend, "read_file", thread=thread, file_path="a.txt") == "one three"
    assert json.loads(await use(backend, "ls", thread=thread, directory=".")) == [
        {"name": "a.txt", "type": "file", "size": 9}
    ]


@pytest.mark.parametrize(
    ("range_", "text"),
    [
        ({}, "0\n1\n2\n3"),
        ({"offset": 2}, "2\n3"),
        ({"limit": 2}, "0\n1\n"),
        ({"offset": 1, "limit": 2}, "1\n2\n"),
        ({"offset": 3, "limit": 9}, "3"),
        ({"limit": 0}, ""),
    ],
)
async def test_some_lines_of_a_file(backend: Backend, range_: dict[str, int], text: str) -> None:
    thread = Thread()
    await use(backend, "write_file", thread=thread, path="a.txt", content="0\n1\n2\n3")
    assert await use(backend, "read_file", thread=thread, path="a.txt", **range_) == text


async def test_a_long_file_is_cut_with_the_next_offset(local: Local, folder: Path) -> None:
    (folder / "long.txt").write_text("".join(f"{number:09}\n" for number in range(150_000)))
    first = await use(local, "read_file", path="long.txt")
    start, _, note = first.rpartition("\n... (the file continues; read it from offset ")
    assert start.splitlines()[-1] == "000099899" and note == "99900) ..."
    rest = await use(local, "read_file", path="long.txt", offset=99_900)
    assert rest.startswith("000099900\n") and rest.endswith("000149999\n")


@pytest.mark.parametrize(
    ("name", "args", "sentence"),
    [
        ("read_file", {"path": "nowhere.txt"}, "there is no nowhere.txt"),
        ("read_file", {"path": "../x"}, "../x leads out of the workspace; give a path inside it"),
        ("read_file", {"path": "a.txt", "offset": 2}, "a.txt has no more than 2 lines; read it from a smaller offset"),
        ("read_file", {"path": "a.txt", "offset": -1}, "offset and limit are numbers from 0 on"),
        ("read_file", {"path": "folder"}, "folder is a folder"),
        ("read_file", {}, "read_file: path is missing"),
        ("read_file", {"path": 7}, "read_file: path"),
        ("read_file", {"path": "a\0b"}, "NUL"),
        ("read_file", {"path": "a.txt", "file_path": "a.txt"}, "the same argument; give it once, as path"),
        ("write_file", {"path": "folder", "content": ""}, "folder is a folder"),
        ("write_file", {"path": ".git/hooks/x", "content": ""}, ".git/hooks/x is protected"),
        ("write_file", {"path": "/etc/x", "content": ""}, "of the workspace"),
        ("write_file", {"path": "a.txt"}, "write_file: content is missing"),
        ("edit_file", {"path": "a.txt", "old_text": "two", "new_text": ""}, "old_text not found in file"),
        ("edit_file", {"path": "a.txt", "old_text": "one", "new_text": ""}, "old_text occurs 2 times in a.txt"),
        ("edit_file", {"path": "a.txt", "old_text": "", "new_text": ""}, "the old text is empty"),
        (
            "edit_file",
            {"path": "a.txt", "old_text": "a", "new_text": "", "occurrence": "last"},
            "edit_file: occurrence",
        ),
        ("ls", {"path": "a.txt"}, "a.txt is"),
        ("glob", {"pattern": ""}, "pattern"),
        ("grep", {"pattern": "("}, "the regular expression '(' is not one that RE2 knows"),
        ("grep", {"pattern": "x", "path": "nowhere"}, "there is no nowhere"),
    ],
)
async def test_failures_are_error_messages(backend: Backend, name: str, args: dict[str, Any], sentence: str) -> None:
    thread = Thread()
    await use(backend, "write_file", thread=thread, path="a.txt", content="one one\n")
    await use(backend, "write_file", thread=thread, path="folder/b.txt", content="")
    said = await use(backend, name, thread=thread, **args)
    assert sentence in said and "Error" not in said and "\n" not in said


async def test_the_first_or_every_occurrence_is_replaced_on_request(backend: Backend) -> None:
    thread = Thread()
    await use(backend, "write_file", thread=thread, path="a.txt", content="one one one")
    await use(backend, "edit_file", thread=thread, path="a.txt", old_text="one", new_text="1", occurrence="first")
    assert await use(backend, "read_file", thread=thread, path="a.txt") == "1 one one"
    await use(backend, "edit_file", thread=thread, path="a.txt", old_text="one", new_text="2", replace_all=True)
    assert await use(backend, "read_file", thread=thread, path="a.txt") == "1 2 2"


async def test_edits_of_one_step_are_all_made(backend: Backend) -> None:
    thread, count = Thread(), 12
    await use(backend, "write_file", thread=thread, path="a.txt", content=" ".join(f"<{n}>" for n in range(count)))
    edits = [call("edit_file", f"e{n}", path="a.txt", old_text=f"<{n}>", new_text=f"[{n}]") for n in range(count)]
    await Agent(Scripted(tool_calls_reply(*edits), "done"), hooks=[Filesystem(backend)]).run("go", thread=thread)
    assert await use(backend, "read_file", thread=thread, path="a.txt") == " ".join(f"[{n}]" for n in range(count))
    assert thread.values["files"]["a.txt"] == " ".join(f"[{n}]" for n in range(count))


async def test_secrets_are_not_read(local: Local, folder: Path) -> None:
    (folder / ".env").write_text("KEY=secret")
    said = await use(local, "read_file", path=".env")
    assert said == ".env is protected: it may hold secrets, so file tools do not read it"


async def test_names_that_are_no_text_are_listed(local: Local, folder: Path) -> None:
    with open(os.fsencode(folder) + b"/a\xff.txt", "w") as file:  # noqa: ASYNC230
        file.write("here\n")
    assert await use_json(local, "ls") == [{"name": "a\ufffd.txt", "type": "file", "size": 5}]
    assert await use_json(local, "glob", pattern="*") == {"files": ["a\ufffd.txt"], "truncated": False}
    assert (await use_json(local, "grep", pattern="here"))["matches"][0]["file"] == "a\ufffd.txt"


async def test_a_folder_with_too_many_entries_is_cut() -> None:
    class Crowded(State):
        async def ls(self, path: str = ".") -> Listing:
            return {"path": path, "entries": [{"name": "a", "type": "file", "size": 1}], "truncated": True}

    assert [one["name"] for one in await use_json(Crowded({}), "ls")] == ["a", "... (there are more entries) ..."]


ARGS = st.dictionaries(
    st.sampled_from(["path", "content", "old_text", "new_text", "pattern", "offset", "limit", "glob", "everything"]),
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=6)
    | st.sampled_from([".", "..", "a.txt", "**", "/"]),
    max_size=4,
)


@given(name=st.sampled_from(sorted(FILE_TOOLS)), args=ARGS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
async def test_any_model_request_gets_a_result(name: str, args: dict[str, Any]) -> None:
    backend = State({"a.txt": "one\n"})
    result = await agent(backend, call(name, **(args or {"path": "."}))).run("go")
    assert result.outcome == "completed" and "Error:" not in tool_result(result)


# -- commands ---------------------------------------------------------------------------------------------------------


async def test_a_command(local: Local) -> None:
    done = await use_json(local, "execute", command="echo out; echo err >&2; exit 3")
    assert done == {"stdout": "out\n", "stderr": "err\n", "exit_code": 3}
    assert await use_json(local, "execute", cmd="mkdir a; cd a; pwd") == {
        "stdout": f"{local.workdir}/a\n",
        "stderr": "",
        "exit_code": 0,
    }
    assert (await use_json(local, "execute", command="pwd", workdir="a"))["stdout"] == f"{local.workdir}/a\n"


async def test_a_command_that_takes_too_long(local: Local) -> None:
    done = await use_json(local, "execute", command="echo begun; sleep 60", timeout=4)
    assert done["exit_code"] == 124 and done["stdout"] == "begun\n" and "time limit" in done["error"]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"command": ""}, "a command is a text that is not empty"),
        ({"command": "a\0b"}, "has no NUL"),
        ({"command": "ls", "timeout": 601}, "timeout is a number of seconds above 0, at most 600"),
        ({"command": "ls", "timeout": 0}, "timeout is a number of seconds above 0"),
        ({"command": "ls", "workdir": "../.."}, "outside of the workspace"),
        ({"command": "ls", "workdir": "nowhere"}, "nowhere"),
        ({"command": ["ls"]}, "execute: command"),
    ],
)
async def test_a_command_that_makes_no_sense(local: Local, args: dict[str, Any], sentence: str) -> None:
    assert sentence in await use(local, "execute", **args)


async def test_output_is_shown_while_a_command_runs(local: Local) -> None:
    wanted = call(
        "execute", command=r"printf '\303'; sleep 0.2; printf '\244 out'; sleep 1.5; printf err >&2; printf '\303'"
    )
    shown = await collect_events(agent(local, wanted))
    assert text_deltas(shown, "on_tool_stream") == "ä outerr\ufffd"


async def test_large_output_is_sampled_while_running(local: Local) -> None:
    shown = text_deltas(
        await collect_events(agent(local, call("execute", command="yes | head -c 3000000"))), "on_tool_stream"
    )
    assert shown.endswith("\n... (no more of it is shown while it runs) ...\n")
    assert shown.startswith("y\ny\n") and len(shown) < 1_000_100


async def test_a_run_that_is_cancelled_ends_its_command(local: Local, folder: Path) -> None:
    model = Scripted(
        tool_calls_reply(call("execute", command="touch begun; sleep 60; touch ended")), "done", spare=True
    )
    running = asyncio.ensure_future(Agent(model, hooks=[Filesystem(local)]).run("go"))
    while not (folder / "begun").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.sleep(0.1)
    assert not (folder / "ended").exists()


class Asking(Local):
    """A folder of a machine where nothing confines commands."""

    @property
    def protection(self) -> Protection:
        return Protection("none", "nothing", "nothing confines commands", asks=True)


@pytest.fixture
async def asking(folder: Path) -> AsyncIterator[Asking]:
    backend = Asking(folder)
    yield backend
    await backend.stop()


async def test_where_nothing_confines_commands_the_user_is_asked_about_each(asking: Asking, folder: Path) -> None:
    user = ScriptedUser(Allow(), Block("not that"))
    wanted = (call("execute", "c1", command="touch a"), call("execute", "c2", command="touch b\n\x1b[2Jrm"))
    result = await agent(asking, *wanted, call("ls", "c3"), ask=user).run("go")
    assert [question.question for question in user.questions] == [
        "Nothing confines commands here. Run this one? touch a",
        "Nothing confines commands here. Run this one? touch b⏎\n<U+001B>[2Jrm",
    ]
    assert json.loads(tool_results(result)[0])["exit_code"] == 0
    assert "not that" in tool_results(result)[1]
    assert os.listdir(folder) == ["a"]


async def test_without_a_user_an_ask_is_denied(asking: Asking, folder: Path) -> None:
    await agent(asking, call("execute", command="touch a")).run("go")
    assert os.listdir(folder) == []


async def test_a_tool_that_was_taken_out_of_its_capability_runs_nothing_unasked(asking: Asking, folder: Path) -> None:
    capability = Filesystem(asking)
    bare = Agent(Scripted(tool_calls_reply(call("execute", command="touch a")), "done"), tools=capability.tools())
    assert "the user is asked about: touch a" in tool_result(await bare.run("go"))

    @tool
    async def sh(command: str, use: ToolUse) -> ToolResult:
        """Run it another way."""
        return await capability.tools()[-1].fn(use.run, use, command)  # type: ignore[no-any-return]

    around = Agent(Scripted(tool_calls_reply(call("sh", command="touch a")), "done"), tools=[sh], hooks=[capability])
    assert "the user is asked about: touch a" in tool_result(await around.run("go"))
    assert os.listdir(folder) == []


async def test_a_tool_of_another_name_is_asked_about_as_well(asking: Asking, folder: Path) -> None:
    capability, user = Filesystem(asking), ScriptedUser(Block("no"))
    renamed = capability.tools()[-1].renamed("sh")
    around = Agent(
        Scripted(tool_calls_reply(call("sh", command="touch a")), "done"), tools=[renamed], hooks=[capability], ask=user
    )
    assert "no" in tool_result(await around.run("go"))
    assert len(user.questions) == 1 and os.listdir(folder) == []


async def test_a_child_asks_the_same_user_once(asking: Asking, folder: Path) -> None:
    capability, user = Filesystem(asking), ScriptedUser(Allow(), Block("no"))
    commands = (call("execute", "c1", command="touch a"), call("execute", "c2", command="touch b"))
    with_hooks = Agent(Scripted(tool_calls_reply(commands[0]), "done"), name="with_hooks", hooks=[capability])
    with_tools = Agent(Scripted(tool_calls_reply(commands[1]), "done"), name="with_tools", tools=capability.tools())

    @tool
    async def delegate() -> str:
        """Let others do it."""
        return "".join([(await child.run("go")).text for child in (with_hooks, with_tools)])

    parent = Agent(Scripted(tool_calls_reply(call("delegate")), "done"), tools=[delegate], hooks=[capability], ask=user)
    await parent.run("go")
    assert len(user.questions) == 2 and os.listdir(folder) == ["a"]


async def test_commands_of_other_tools_are_ignored(asking: Asking, folder: Path) -> None:
    hooks = [Filesystem(asking, execute=False)]
    assert (
        tool_result(
            await Agent(
                Scripted(tool_calls_reply(call("execute", command="ls")), "done"), tools=[execute], hooks=hooks
            ).run("go")
        )
        == "ran ls"
    )


async def test_a_guard_may_name_a_tool_that_is_left_out(folder: Path) -> None:
    @guard(ToolUse, match="execute")
    async def never(use: ToolUse) -> Block:
        return Block("never")

    for capability in (Filesystem(State()), Filesystem(Local(folder), read_only=True)):
        there = Agent(FunctionModel(lambda request: "x"), hooks=[never, capability]).tools
        assert "execute" not in [tool.name for tool in there]


# -- stored files -----------------------------------------------------------------------------------------------------


async def test_written_files_are_stored_with_the_thread(local: Local, folder: Path) -> None:
    thread = Thread()
    await use(local, "write_file", thread=thread, path="./a//b.txt", content="one")
    await use(local, "edit_file", thread=thread, path=f"{local.workdir}/a/b.txt", old_text="one", new_text="two")
    await use(local, "execute", thread=thread, command="echo x > by_command.txt")
    await use(local, "read_file", thread=thread, path="by_command.txt")
    assert thread.values["files"] == {"a/b.txt": "two"}
    values = [entry for entry in thread_entries(thread, "value") if entry["key"] == "files"]
    assert values == [
        {"key": "files", "item": "a/b.txt", "value": "one"},
        {"key": "files", "item": "a/b.txt", "value": "two"},
    ]


async def test_unchanged_files_are_not_stored_again(local: Local) -> None:
    thread = Thread()
    for _ in range(3):
        await use(local, "write_file", thread=thread, path="a.txt", content="one")
    assert len(thread_entries(thread, "value")) == 1


async def test_a_failed_write_is_not_stored(local: Local) -> None:
    thread = Thread()
    await use(local, "write_file", thread=thread, path="../a.txt", content="one")
    await use(local, "write_file", thread=thread, path=".env", content="KEY=1")
    await use(local, "edit_file", thread=thread, path="a.txt", old_text="a", new_text="b")
    assert "files" not in thread.values


async def test_a_protected_file_is_never_stored_even_if_writable(folder: Path) -> None:
    backend, thread = Local(folder, protect=()), Thread()
    await use(backend, "write_file", thread=thread, path="a/.env", content="KEY=secret")
    await use(backend, "write_file", thread=thread, path="b.txt", content="one")
    assert thread.values["files"] == {"b.txt": "one"}
    await backend.stop()


async def test_of_a_large_file_only_the_size_is_stored(local: Local) -> None:
    thread = Thread()
    await use(local, "write_file", thread=thread, path="a.txt", content="ü" * (STATE_FILE_BYTES // 2))
    await use(local, "write_file", thread=thread, path="b.txt", content="x" * (STATE_FILE_BYTES + 1))
    await use(
        local, "edit_file", thread=thread, path="a.txt", old_text="ü" * 1_000, new_text="ü" * 1_001, occurrence="first"
    )
    assert thread.values["files"] == {"a.txt": {"size": STATE_FILE_BYTES + 2}, "b.txt": {"size": STATE_FILE_BYTES + 1}}


async def test_stored_files_of_a_thread_are_bounded(local: Local) -> None:
    thread, count = Thread(), STATE_BYTES // STATE_FILE_BYTES
    for number in range(count + 1):
        await use(
            local, "write_file", thread=thread, path="a.txt", content=f"{number:2}" + "x" * (STATE_FILE_BYTES - 2)
        )
    assert thread.values["files"] == {"a.txt": {"size": STATE_FILE_BYTES}}
    again = Thread.from_json(thread.to_json())
    await use(local, "write_file", thread=again, path="b.txt", content="small")
    assert again.values["files"]["b.txt"] == {"size": 5}


async def test_a_non_utf8_file_is_stored_verbatim(local: Local, folder: Path) -> None:
    (folder / "latin.txt").write_bytes("größe = 1\n".encode("latin-1"))
    thread = Thread()
    await use(local, "edit_file", thread=thread, path="latin.txt", old_text="1", new_text="2")
    assert thread.values["files"]["latin.txt"] == {"content": "Z3L232UgPSAyCg==", "encoding": "base64"}


async def test_file_tracking_can_be_disabled(local: Local) -> None:
    thread = Thread()
    wanted = (
        call("write_file", "c1", path="a.txt", content="x"),
        call("edit_file", "c2", path="a.txt", old_text="x", new_text="y"),
    )
    await agent(local, *wanted, track=False).run("go", thread=thread)
    assert "files" not in thread.values


async def test_each_thread_has_its_own_files_in_a_state() -> None:
    capability, one, other = Filesystem(State()), Thread(), Thread()

    async def run(thread: Thread, *wanted: Any) -> list[str]:
        agent = Agent(Scripted(*(tool_calls_reply(one) for one in wanted), "done"), hooks=[capability])
        return tool_results(await agent.run("go", thread=thread))

    write = call("write_file", path="notes/a.txt", content="one")
    await asyncio.gather(run(one, write), run(other, call("write_file", path="b.txt", content="two")))
    assert one.values["files"] == {"notes/a.txt": "one"} and other.values["files"] == {"b.txt": "two"}
    again = Thread.from_json(json.loads(json.dumps(one.to_json())))
    assert await run(again, call("read_file", path="notes/a.txt")) == ["one"]
    assert await run(Thread(), call("ls", path=".")) == ["[]"]
    assert len(thread_entries(one, "value")) == 1


async def test_a_state_backend_keeps_its_own_files() -> None:
    files: dict[str, Any] = {"a.txt": "one"}
    thread = Thread()
    assert await use(State(files), "read_file", thread=thread, path="a.txt") == "one"
    await use(State(files), "write_file", thread=thread, path="b.txt", content="two")
    assert files == {"a.txt": "one", "b.txt": "two"} and thread.values["files"] == {"b.txt": "two"}


async def test_changed_files_are_announced(backend: Backend) -> None:
    seen = await collect_events(agent(backend, call("write_file", path="a.txt", content="one")))
    assert [event.data() for event in seen if event.event == "on_state"] == [{"files": {"a.txt": "one"}}]


# -- results that are too large ---------------------------------------------------------------------------------------


def cut(text: str) -> str:
    return f"{text[:2000]}\n\n... (truncated {len(text) - 4000} characters) ...\n\n{text[-2000:]}"


async def test_a_large_result_of_any_tool_is_written_to_the_workspace(local: Local, folder: Path) -> None:
    result = await agent(
        local, call("talk", "call_1", size=RESULT_CHARS), call("talk", "call_2", size=RESULT_CHARS + 1)
    ).run("go")
    whole = await talk.fn(RESULT_CHARS + 1)
    note = (
        "(the whole result is in .results/call_2.txt; read it with read_file, offset and limit, or search it with grep)"
    )
    assert tool_results(result) == [whole[:-1], f"{cut(whole)}\n\n{note}"]
    assert (folder / ".results/call_2.txt").read_text() == whole
    assert os.listdir(folder / ".results") == ["call_2.txt"]


async def test_the_whole_result_can_be_read_and_searched(local: Local) -> None:
    wanted = (
        call("talk", "c1", size=100_000),
        call("read_file", "c2", path=".results/c1.txt", offset=7, limit=2),
        call("grep", "c3", pattern="^line 9000$", path=".results/c1.txt"),
        call("grep", "c4", pattern="line 9000"),
        call("glob", "c5", pattern="**"),
    )
    _, read, found, nothing, files = tool_results(await agent(local, *wanted).run("go"))
    assert read == "line 7\nline 8\n"
    assert json.loads(found)["matches"] == [{"file": ".results/c1.txt", "line": 9001, "text": "line 9000"}]
    assert json.loads(nothing)["matches"] == [] and json.loads(files)["files"] == []


async def test_large_command_output_is_written_verbatim_and_stays_json(local: Local, folder: Path) -> None:
    said = json.loads(await use(local, "execute", command="seq 1 30000; echo oops >&2; exit 3"))
    lines = "".join(f"{number}\n" for number in range(1, 30_001))
    assert said["stdout"] == cut(lines)
    assert (said["stderr"], said["exit_code"]) == ("oops\n", 3)
    assert said["note"].startswith("the whole result is in .results/c1.txt;")
    assert (folder / ".results/c1.txt").read_text() == f"{lines}\n--- stderr ---\noops\n"


async def test_file_tools_return_large_results_unchanged(backend: Backend) -> None:
    thread, text = Thread(), "x" * 99 + "\n"
    await use(backend, "write_file", thread=thread, path="a.txt", content=text * 1_000)
    assert await use(backend, "read_file", thread=thread, path="a.txt") == text * 1_000
    found = json.loads(await use(backend, "grep", thread=thread, pattern="x"))
    assert len(found["matches"]) == 1_000


async def test_renamed_and_foreign_file_tools_return_large_results_unchanged(local: Local) -> None:
    read = tool(talk.fn, name="Read").renamed("fetch")
    result = await agent(local, call("fetch", size=100_000), tools=[read]).run("go")
    assert len(tool_result(result)) == 100_000


async def test_the_large_result_limit_is_configurable(local: Local) -> None:
    result = await agent(local, call("talk", size=5_000), result_chars=4_500).run("go")
    assert "... (truncated 1000 characters) ..." in tool_result(result)
    result = await agent(local, call("talk", size=200_000), result_chars=None).run("go")
    assert len(tool_result(result)) == 200_000


async def test_a_tool_that_is_not_there_may_have_a_large_result(local: Local) -> None:
    many = [tool(talk.fn, name=f"tool_{number}") for number in range(1_000)]
    result = await agent(local, call("nothing", size=1), tools=many, result_chars=4_000).run("go")
    assert tool_result(result).startswith("there is no tool named 'nothing'; the tools are tool_0, tool_1,")
    assert "the whole result is in .results/c1.txt" in tool_result(result)


async def test_a_subclass_may_add_tools_and_hooks(local: Local) -> None:
    class Counting(Filesystem):
        @tool(kind="read", read_only=True)
        async def count(self) -> str:
            """Count."""
            return "one"

        @after(ToolUse)
        async def shout(self, use: ToolUse) -> None:
            use.result.output += "!"

    hooks = [Counting(local, read_only=True)]
    result = await Agent(Scripted(tool_calls_reply(call("count")), "done"), hooks=hooks).run("go")
    assert tool_result(result) == "one!" and names(hooks[0]) == ["ls", "read_file", "glob", "grep", "count"]


async def test_a_large_error_is_written_too(local: Local, folder: Path) -> None:
    @tool
    async def fail() -> ToolResult:
        """Fail at length."""
        return ToolResult(error="no " * 40_000)

    watched: list[ToolResult] = []

    @after(ToolUse)
    async def watch(use: ToolUse) -> None:
        watched.append(use.result)

    result = await agent(local, call("fail", "c2"), tools=[fail], hooks=[watch]).run("go")
    assert "... (truncated 116000 characters) ..." in tool_result(result)
    assert watched[0].error and not watched[0].output
    assert (folder / ".results/c2.txt").read_text() == "no " * 40_000


@pytest.mark.parametrize(
    ("id", "file"),
    [
        ("../../etc/passwd", "______etc_passwd"),
        ("a b\nc", "a_b_c"),
        ("ü" * 100, "_" * 80),
        ("..", "__"),
        (".env", "_env"),
    ],
)
async def test_the_id_of_a_call_is_made_safe(local: Local, folder: Path, id: str, file: str) -> None:
    await agent(local, call("talk", id, size=100_000)).run("go")
    assert os.listdir(folder / ".results") == [f"{file}.txt"]


async def test_the_same_id_again_takes_nothing_from_the_first(local: Local, folder: Path) -> None:
    for size in (100_000, 200_000):
        said = tool_results(await agent(local, call("talk", "c1", size=size)).run("go"))[0]
        path = folder / said.rpartition("the whole result is in ")[2].partition(";")[0]
        assert len(path.read_text()) == size
    assert len(os.listdir(folder / ".results")) == 2


async def test_without_a_workspace_a_large_result_is_stored_in_the_thread() -> None:
    thread = Thread()
    await agent(State(), call("talk", "c1", size=100_000)).run("go", thread=thread)
    note = thread.messages[-2].text.rpartition("\n\n(")[2]
    assert note.startswith("the whole result is kept as .results/c1-") and "files" not in thread.values
    path = note.partition(" kept as ")[2].partition(";")[0]
    again = Thread.from_json(thread.to_json())
    assert await use(State(), "read_file", thread=again, path=path, offset=3, limit=1) == "line 3\n"
    assert await use(State(), "read_file", thread=again, path=f"./{path}", offset=3, limit=1) == "line 3\n"
    assert await use(State(), "read_file", thread=Thread(), path=path) == f"there is no {path}"


async def test_a_workspace_that_is_only_read_is_not_written(local: Local, folder: Path) -> None:
    result = await agent(local, call("talk", size=100_000), read_only=True).run("go")
    assert "is kept as .results/c1-" in tool_result(result) and not folder.joinpath(".results").exists()


async def test_in_a_stored_thread_a_large_result_is_a_blob() -> None:
    store = InMemory()
    sessions, backend = Sessions(store), State()
    large = Agent(
        Scripted(tool_calls_reply(call("talk", size=500_000)), "done"),
        tools=[talk],
        hooks=[sessions, Filesystem(backend)],
    )
    result = await large.run("go", thread="t1")
    assert result.thread is not None
    (kept,) = [entry["data"] for entry in thread_entries(result.thread, "event") if entry["name"] == "large_result"]
    assert await store.get_blob("local", "t1", kept["blobs"][0]) == (await talk.fn(500_000)).encode()
    read = call("read_file", "r1", path=kept["path"], offset=30_000, limit=1)
    reader = Agent(Scripted(tool_calls_reply(read), "done"), hooks=[sessions, Filesystem(backend)])
    assert tool_results(await reader.run("go", thread="t1")) == ["line 30000\n"]
    assert max(len(json.dumps(entry.to_json())) for entry in result.thread.entries) < 20_000
    await store.close()


class Full(State):
    """A workspace without room."""

    async def write(self, path: str, content: str | bytes, *, links: bool = True) -> WriteResult:
        raise BackendError("there is no space left", "no_space")


class Broken(InMemory):
    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        raise StoreError("the disk is full")


async def test_a_large_result_that_cannot_be_stored_is_truncated() -> None:
    result = await agent(Full({}), call("talk", size=100_000)).run("go")
    assert "is kept as .results/c1-" in tool_result(result)
    huge = tool(talk.fn, name="huge", max_output=10_000_000)
    result = await agent(Full({}), call("huge", size=2_000_000), tools=[huge]).run("go")
    assert tool_result(result).endswith("\n\n(the rest could not be kept; ask for less)")
    store = Broken()
    result = await agent(Full({}), call("talk", size=100_000), hooks=[Sessions(store)]).run("go", thread="t1")
    assert tool_result(result) == f"{cut(await talk.fn(100_000))}\n\n(the rest could not be kept; ask for less)"
    await store.close()


async def test_output_removed_by_an_inner_hook_is_not_stored(local: Local, folder: Path) -> None:
    @after(ToolUse)
    async def redact(use: ToolUse) -> None:
        use.result.output = use.result.output.replace("secret", "******")

    model = Scripted(tool_calls_reply(call("execute", command="yes secret | head -20000")), "done")
    said = tool_result(await Agent(model, hooks=[Filesystem(local), redact]).run("go"))
    assert "secret" not in said and "******" in said
    assert "secret" not in (folder / ".results/c1.txt").read_text()


# -- with others ------------------------------------------------------------------------------------------------------


async def test_with_permissions(local: Local, folder: Path) -> None:
    rules = Permissions(deny=["Write(secret/**)"], allow=["execute(ls:*)", "write_file"], mode="dontAsk", backend=local)
    wanted = (
        call("write_file", "c1", path="secret/a.txt", content="x"),
        call("write_file", "c2", path="a.txt", content="x"),
        call("execute", "c3", command="ls"),
        call("execute", "c4", command="rm a.txt"),
    )
    first, second, third, fourth = tool_results(await agent(local, *wanted, hooks=[rules]).run("go"))
    assert json.loads(second)["bytes_written"] == 1 and json.loads(third)["stdout"] == "a.txt\n"
    assert "secret" in first and not (folder / "secret").exists()
    assert (folder / "a.txt").exists() and "exit_code" not in fourth


async def test_in_plan_mode_files_are_read_and_not_written(local: Local, folder: Path) -> None:
    wanted = (call("write_file", "c1", path="a.txt", content="x"), call("ls", "c2", path="."))
    first, second = tool_results(await agent(local, *wanted, hooks=[Permissions(mode="plan")]).run("go"))
    assert first == "Plan mode: write operations not allowed" and second == "[]"


# -- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: Filesystem("./workspace"),  # type: ignore[arg-type]
        lambda: Filesystem(None),  # type: ignore[arg-type]
        lambda: Filesystem(State),  # type: ignore[arg-type]
        lambda: Filesystem(State(), execute="yes"),  # type: ignore[arg-type]
        lambda: Filesystem(State(), read_only=1),  # type: ignore[arg-type]
        lambda: Filesystem(State(), track=None),  # type: ignore[arg-type]
        lambda: Filesystem(State(), result_chars=0),
        lambda: Filesystem(State(), result_chars=3_999),
        lambda: Filesystem(State(), result_chars="80"),  # type: ignore[arg-type]
        lambda: Filesystem(State(), longest=-1),
        lambda: Filesystem(State(), longest=float("inf")),
        lambda: Filesystem(State(), longest=True),
    ],
)
def test_options_that_make_no_sense(make: Callable[[], Filesystem]) -> None:
    with pytest.raises(ConfigError, match=r"^Filesystem.*[a-z]"):
        make()
