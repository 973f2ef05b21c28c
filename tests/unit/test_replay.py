"""Recorded threads before other guards."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from kit import tool_call
from wick import Agent, Ask, Block, Run, Scripted, Thread, ToolUse, assistant, before, guard, tool
from wick.capabilities.permissions import Permissions
from wick.replay import Report, replay

ran: list[str] = []


@tool(kind="shell")
def execute(command: str, timeout: int = 120) -> str:
    """Run a command."""
    ran.append(command)
    return "ok"


@guard(ToolUse, match="execute")
def no_force(use: ToolUse) -> Block | None:
    return Block("force is not allowed") if "--force" in use.args["command"] else None


@guard(ToolUse, match="execute")
def confirm(use: ToolUse) -> Ask | None:
    return Ask("push?") if "push" in use.args["command"] else None


async def record(*commands: str, hooks: object = (), id: str = "") -> Thread:
    """A thread with one command after the other, as it would be loaded."""
    replies = [assistant("", tool_call("execute", command=command)) for command in commands]
    agent = Agent(Scripted(*replies, "done"), tools=[execute], hooks=[*hooks], ask=lambda question: True)  # type: ignore[misc]
    result = await agent.run("go", thread=Thread(id))
    assert result.thread is not None
    return Thread.from_json(json.loads(json.dumps(result.thread.to_json())))


def look(*hooks: object) -> Agent:
    return Agent(Scripted(), tools=[execute], hooks=[*hooks])  # type: ignore[list-item]


async def again(agent: Agent, *threads: Thread) -> Report:
    return await replay(agent, threads)


async def test_a_guard_that_would_have_refused_shows() -> None:
    thread = await record("ls", "git push --force", "rm --force x", id="th_1")
    ran.clear()
    report = await again(look(no_force), thread)
    (change,) = report.changes
    assert (change.tool, change.recorded, change.now) == ("execute", "allow", "block")
    assert change.args == {"command": "git push --force", "timeout": 120}
    assert str(change) == (f"th_1 entry {change.seq}: execute was allowed, now it is blocked: force is not allowed")
    assert thread.entries[change.seq - 1].kind == "intent"
    assert (report.threads, report.uses, ran) == (1, 2, []), "the rest would have gone another way; nothing runs"


async def test_permission_rules_are_tried_on_the_past() -> None:
    thread = await record("ls", "git push", "ls -l")
    report = await again(look(Permissions(allow=["Bash(ls *)"], deny=["Bash(git push *)"])), thread)
    (change,) = report.changes
    assert (change.args["command"], change.recorded, change.now) == ("git push", "allow", "block")
    assert report.uses == 2


async def test_unchanged_guards_give_the_same_decisions() -> None:
    threads = [await record("ls", "git push", "x --force", hooks=[no_force, confirm]) for _ in range(2)]
    report = await again(look(no_force, confirm), *threads)
    assert report.changes == [] and report.skipped == []
    assert (report.threads, report.uses) == (2, 6)


async def test_a_removed_guard_is_reported() -> None:
    thread = await record("git push", "x --force", hooks=[no_force, confirm])
    asked = (await again(look(no_force), thread)).changes[0]
    assert (asked.recorded, asked.now, asked.args["command"]) == ("ask", "allow", "git push")
    blocked = (await again(look(confirm), thread)).changes[0]
    assert (blocked.recorded, blocked.now, blocked.args["command"]) == ("block", "allow", "x --force")


async def test_sealed_arguments_count_not_requested_ones() -> None:
    @before(ToolUse)
    def add_force(use: ToolUse) -> None:
        use.args["command"] += " --force"
        del use.args["timeout"]

    thread = await record("git push", hooks=[add_force])
    (change,) = (await again(look(no_force), thread)).changes
    assert change.args["command"] == "git push --force"


async def test_a_guard_sees_the_past_thread_and_writes_nothing() -> None:
    seen: list[tuple[int, str]] = []

    @guard(ToolUse)
    def count(use: ToolUse) -> Block | None:
        thread = use.run.thread
        seen.append((len(thread.messages), thread.pending[0].args["command"]))
        use.run.record("looked")
        return Block("no") if "two" in use.args["command"] else None

    thread = await record("one", "two", "three")
    entries = [*thread.entries]
    report = await again(look(count), thread)
    assert seen == [(2, "one"), (4, "two")]
    assert len(report.changes) == 1 and thread.entries == entries


async def test_a_guard_that_fails_has_not_agreed() -> None:
    @guard(ToolUse)
    def broken(use: ToolUse) -> None:
        raise RuntimeError("oops")

    (change,) = (await again(look(broken), await record("ls"))).changes
    assert change.now == "block" and "oops" in change.reason


async def test_a_shadow_guard_changes_nothing_and_was_nothing() -> None:
    @guard(ToolUse, shadow=True)
    def shy(use: ToolUse) -> Block:
        return Block("I would not")

    thread = await record("ls", hooks=[shy])
    assert ran and (await again(look(), thread)).changes == []
    assert (await again(look(shy), thread)).changes == []


async def test_unreplayable_calls_are_named() -> None:
    @tool(name="execute")
    def other(path: str) -> str:
        """Takes something else."""
        return path

    thread = await record("ls", id="th_1")
    gone = await again(Agent(Scripted()), thread)
    assert gone.uses == 0 and "no tool named 'execute'" in gone.skipped[0]
    changed = await again(Agent(Scripted(), tools=[other]), thread)
    assert changed.uses == 0 and "takes other arguments now" in changed.skipped[0]


async def test_a_call_that_never_reached_the_gate_is_skipped() -> None:
    @before(ToolUse)
    def stop(use: ToolUse) -> Block:
        return Block("not today")

    report = await again(look(no_force), await record("x --force", hooks=[stop]))
    assert (report.uses, report.changes) == (0, [])


async def test_threads_may_be_streamed() -> None:
    async def load() -> AsyncIterator[Thread]:
        for number in range(3):
            thread = Thread(f"th_{number}")
            await Agent(
                Scripted(assistant("", tool_call("execute", command="x --force")), "done"), tools=[execute]
            ).run("go", thread=thread)
            yield thread

    report = await replay(look(no_force), load())
    assert [change.thread for change in report.changes] == ["th_0", "th_1", "th_2"]


async def test_a_guard_of_the_run_itself_is_not_asked() -> None:
    @guard(Run)
    def never(run: Run) -> Block:
        return Block("no runs")

    assert (await again(look(never), await record("ls"))).changes == []
