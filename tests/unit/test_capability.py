"""A capability is hooks and tools that belong together."""

from __future__ import annotations

from typing import Any

import pytest

from kit import hello_agent, tool_agent, tool_call, tool_calls_reply, tool_result
from wick import (
    Agent,
    Block,
    Capability,
    Continue,
    Limits,
    ModelCall,
    Run,
    Scripted,
    Step,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.errors import ConfigError
from wick.hooks import Next


class Notebook(Capability):
    """Stores notes, and counts reads in a run."""

    def __init__(self, name: str = "", motto: str = "write it down") -> None:
        self.motto = motto
        if name:
            self.name = name

    @guard(ToolUse, match="note")
    async def no_secrets(self, use: ToolUse) -> Block | None:
        return Block("that is a secret") if "secret" in use.args["text"] else None

    @tool
    async def note(self, text: str, run: Run) -> str:
        """Keep a note."""
        run.thread.values["notes"] = [*run.thread.values.get("notes", ()), text]
        return f"{self.motto}: {text}"

    @before(Run)
    async def begin(self, run: Run) -> None:
        run.scratch[self] = 0

    @before(ModelCall)
    async def count(self, call: ModelCall) -> None:
        call.run.scratch[self] += 1


# its name


@pytest.mark.parametrize(
    ("cls", "name"),
    [("Notebook", "notebook"), ("UsageLog", "usage_log"), ("MCP", "mcp"), ("Http2Client", "http2_client")],
)
def test_a_capability_is_named_after_its_class(cls: str, name: str) -> None:
    assert type(cls, (Capability,), {}).name == name  # type: ignore[attr-defined]


def test_a_capability_may_name_itself() -> None:
    class Other(Capability):
        name = "mine"

    class Below(Other): ...

    assert (Other().name, Below().name) == ("mine", "below")
    assert Notebook(name="second").name == "second"


# its hooks and tools


def test_hooks_are_bound_and_named_in_source_order() -> None:
    book = Notebook()
    assert [hook.name for hook in book.hooks()] == ["notebook.no_secrets", "notebook.begin", "notebook.count"]
    assert all(hook.owner is book for hook in book.hooks())
    first, *_ = book.hooks()
    assert (first.match, first.point) == ("note", "guard_tool_use")


def test_the_names_of_its_hooks_are_stable() -> None:
    assert [hook.name for hook in Notebook().hooks()] == [hook.name for hook in Notebook().hooks()]


def test_tools_are_bound() -> None:
    (note,) = Notebook().tools()
    assert (note.name, note.description) == ("note", "Keep a note.")
    assert [*note.parameters["properties"]] == ["text"]


async def test_an_agent_has_its_hooks_and_its_tools() -> None:
    book = Notebook(motto="noted")
    model = Scripted(
        tool_calls_reply(tool_call("note", id="a", text="milk")),
        tool_calls_reply(tool_call("note", id="b", text="a secret")),
        "done",
    )
    result = await Agent(model, hooks=[book]).run("go")
    assert [message.text for message in result.messages if message.role == "tool"] == [
        "noted: milk",
        "that is a secret",
    ]
    assert result.thread is not None and result.thread.values["notes"] == ["milk"]


def test_hooks_and_tools_are_inherited_and_overridable() -> None:
    class Strict(Notebook):
        @guard(ToolUse, match="note")
        async def no_secrets(self, use: ToolUse) -> Block | None:
            return Block("nothing at all")

        @after(Run)
        async def leave(self, run: Run) -> None: ...

    strict = Strict()
    assert [hook.name for hook in strict.hooks()] == [
        "strict.no_secrets",
        "strict.begin",
        "strict.count",
        "strict.leave",
    ]
    assert [tool.name for tool in strict.tools()] == ["note"]


def test_an_override_that_is_not_a_hook_removes_it() -> None:
    class Plain(Notebook):
        no_secrets = None  # type: ignore[assignment]

        async def count(self, call: ModelCall) -> None: ...  # type: ignore[override]

    assert [hook.name for hook in Plain().hooks()] == ["plain.begin"]


def test_a_method_of_a_capability_can_be_called_like_any_other() -> None:
    class Adds(Capability):
        @tool
        def add(self, a: int, b: int) -> int:
            return a + b

    assert Adds().add(2, 3) == 5


# rule 5: names are unique


def test_two_capabilities_with_the_same_name_are_refused() -> None:
    class Empty(Capability): ...

    with pytest.raises(ConfigError, match="two hooks are named 'empty'; give one of them another name="):
        Agent(Scripted(spare=True), hooks=[Empty(), Empty()])


def test_two_named_instances_are_allowed_if_their_tools_differ() -> None:
    class Looks(Capability):
        def __init__(self, name: str) -> None:
            self.name = name

        @before(Run)
        async def look(self, run: Run) -> None: ...

    agent = Agent(Scripted(spare=True), hooks=[Looks("one"), Looks("two")])
    assert {"one.look", "two.look"} <= {hook.name for hook in agent.hooks}
    with pytest.raises(ConfigError, match="two tools are named 'note'"):
        Agent(Scripted(spare=True), hooks=[Notebook("one"), Notebook("two")])


def test_a_hook_and_a_capability_cannot_have_the_same_name() -> None:
    hook = before(Run, name="notebook")(lambda run: None)
    with pytest.raises(ConfigError, match="two hooks are named 'notebook'"):
        Agent(Scripted(spare=True), hooks=[hook, Notebook()])


def test_a_class_instead_of_an_instance_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is not a hook: .*, or give an instance: Notebook\(\)"):
        Agent(Scripted(spare=True), hooks=[Notebook])  # type: ignore[list-item]


def test_a_default_is_replaced_by_one_of_the_same_name() -> None:
    mine = Limits(steps=3)
    agent = Agent(Scripted(spare=True), hooks=[mine])
    assert [hook.owner for hook in agent.hooks if hook.name == "limits.check"] == [mine]


# rule 20: per-run state in scratch


async def test_runs_of_one_capability_do_not_share_state() -> None:
    book = Notebook()
    counts: list[int] = []
    agent = hello_agent(book, after(Run, name="look")(lambda run: counts.append(run.scratch[book])))
    before_runs = dict(vars(book))
    await agent.run("a")
    await agent.run("b")
    assert counts == [1, 1]
    assert vars(book) == before_runs


async def test_two_instances_in_one_run_do_not_share_state() -> None:
    class Counts(Capability):
        def __init__(self, name: str, by: int) -> None:
            self.name, self.by = name, by

        @before(Step)
        async def count(self, step: Step) -> None:
            step.run.scratch[self] = step.run.scratch.get(self, 0) + self.by

    one, two, seen = Counts("one", 1), Counts("two", 10), list[Any]()
    look = after(Run, name="look")(lambda run: seen.append((run.scratch[one], run.scratch[two])))
    await hello_agent(look, one, two).run("hi")
    assert seen == [(1, 10)]


# every position, on methods


class Everywhere(Capability):
    def __init__(self) -> None:
        self.seen: list[str] = []

    @after(ToolUse)
    def leave(self, use: ToolUse) -> None:
        self.seen.append("after")

    @guard(ToolUse)
    async def gate(self, use: ToolUse) -> None:
        self.seen.append("guard")

    @before(ToolUse)
    async def enter(self, use: ToolUse) -> None:
        self.seen.append("before")

    @wrap(ToolUse)
    async def around(self, use: ToolUse, next: Next[Any]) -> Any:
        self.seen.append("wrap")
        return await next(use)

    @tool
    async def poke(self, text: str) -> str:
        self.seen.append("tool")
        return text


async def test_a_method_may_be_at_every_position() -> None:
    cap = Everywhere()
    (poke,) = cap.tools()
    assert tool_result(await tool_agent(poke, cap, tools=[]).run("go")) == "hi"
    assert cap.seen == ["wrap", "before", "guard", "tool", "after"]


async def test_the_continue_of_a_method_has_its_name() -> None:
    class Critic(Capability):
        @after(Step)
        async def review(self, step: Step) -> Continue | None:
            return Continue("check it") if step.number == 1 else None

    result = await hello_agent(Critic()).run("hi")
    assert [message.name for message in result.messages] == ["", "", "critic.review", ""]
