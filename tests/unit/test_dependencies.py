"""Dependencies of a run: injected into tools and hooks, inherited by children, never shown to the model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypedDict

import pytest
from pydantic import BaseModel

from wick import (
    Agent,
    Ask,
    Block,
    Capability,
    Deps,
    Message,
    ModelCall,
    Next,
    Paused,
    Result,
    Run,
    Scripted,
    Thread,
    Tool,
    ToolCall,
    ToolError,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.capabilities.sessions import Sessions
from wick.capabilities.structured_output import StructuredOutput
from wick.capabilities.subagents import Subagents
from wick.errors import ConfigError, HookError, MissingOutput, WickError
from wick.events import Event
from wick.replay import replay
from wick.server.agents.templates import template_from_code

SECRET = "postgres://ada:tulip@db"


@dataclass
class Database:
    url: str = SECRET

    def read(self, name: str) -> str:
        return f"{name} of {len(self.url)}"


@dataclass
class Cache:
    size: int = 3


class Plain:
    """A class that has no JSON Schema."""


class Reads(Protocol):
    def read(self, name: str) -> str: ...


class Settings(TypedDict):
    region: str


class Account(BaseModel):
    admin: bool = False


@tool
def lookup(name: str, db: Deps[Database]) -> str:
    """Look up a name."""
    return db.read(name)


@tool
def read_run(name: str, run: Run[Database]) -> str:
    """Look up a name."""
    return run.deps.read(name)


def calling(name: str, /, **args: Any) -> Scripted:
    return Scripted(ToolCall("1", name, args), "Done.", spare=True)


def first_tool_text(result: Result) -> str:
    return result.messages.tool_messages()[0].text


# -- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [lookup, read_run])
async def test_a_tool_receives_the_deps_of_the_run(given: Tool) -> None:
    agent = Agent(calling(given.name, name="Ada"), tools=[given])
    assert first_tool_text(await agent.run("Go.", deps=Database("xy"))) == "Ada of 2"


def test_run_sync_and_streams_take_deps() -> None:
    agent = Agent(calling("lookup", name="Ada"), tools=[lookup])
    assert first_tool_text(agent.run_sync("Go.", deps=Database("xy"))) == "Ada of 2"


async def test_a_stream_takes_deps() -> None:
    stream = Agent(calling("lookup", name="Ada"), tools=[lookup]).stream("Go.", deps=Database("xy"))
    assert stream.run.deps == Database("xy")
    assert first_tool_text(await stream.finish()) == "Ada of 2"


async def test_deps_are_in_no_schema_log_event_or_representation() -> None:
    model, events = calling("lookup", name="Ada"), list[Event]()

    @guard(ToolUse)
    def check(use: ToolUse, db: Deps[Database]) -> Block | None:
        return None if db.url == SECRET else Block("not this one")

    agent = Agent(model, tools=[lookup], hooks=[check])
    result = await agent.run("Go.", deps=Database(), emit=events.append)
    assert list(lookup.parameters["properties"]) == ["name"]
    shown = [tool.schema for request in model.requests for tool in request.tools]
    assert "db" not in json.dumps(shown, default=dict)
    for text in (json.dumps(result.thread.to_json()), repr([event.to_json() for event in events]), repr(result)):
        assert SECRET not in text and "Database" not in text
    assert SECRET not in repr(agent.stream("Go.", deps=Database()).run)


@pytest.mark.parametrize("name", ["db", "run"])
async def test_the_model_cannot_fill_in_the_deps(name: str) -> None:
    given = {"db": lookup, "run": read_run}[name]
    agent = Agent(Scripted(ToolCall("1", given.name, {"name": "Ada", name: {"url": "evil"}}), "Done."), tools=[given])
    assert f"{name} is not an argument" in first_tool_text(await agent.run("Go.", deps=Database()))


async def test_extra_arguments_cannot_replace_the_deps() -> None:
    def look(db: Deps[Database], **more: Any) -> str:
        return f"{db.url} {more}"

    look.__annotations__["db"] = Deps[Database]
    agent = Agent(calling("look", db="evil"), tools=[look])
    assert "db is not an argument" in first_tool_text(await agent.run("Go.", deps=Database("own")))


async def test_a_foreign_schema_cannot_fill_in_the_deps() -> None:
    pytest.importorskip("jsonschema")

    def look(db: Deps[Database | None] = None, **more: Any) -> str:
        return str(db)

    look.__annotations__["db"] = Deps[Database | None]
    given = tool(look, parameters={"type": "object", "properties": {"db": {"type": "string"}}})
    assert first_tool_text(await Agent(calling("look", db="evil"), tools=[given]).run("Go.")) == "None"
    ran = await Agent(calling("look", db="evil"), tools=[given]).run("Go.", deps=Database("own"))
    assert first_tool_text(ran) == "Database(url='own')"


def _optional(db: Deps[Database | None]) -> str:
    return "none" if db is None else db.url


def _defaulted(db: Deps[Database] = Database("default")) -> str:  # noqa: B008
    return db.url


@pytest.mark.parametrize(("given", "without"), [(_optional, "none"), (_defaulted, "default")])
async def test_deps_may_be_optional(given: Callable[..., str], without: str) -> None:
    agent = Agent(Scripted(ToolCall("1", given.__name__, {}), "Done."), tools=[given])
    assert first_tool_text(await agent.run("Go.")) == without
    agent = Agent(Scripted(ToolCall("1", given.__name__, {}), "Done."), tools=[given])
    assert first_tool_text(await agent.run("Go.", deps=Database("own"))) == "own"


def _by_protocol(db: Deps[Reads]) -> str:
    return db.read("Ada")


def _by_typed_dict(settings: Deps[Settings]) -> str:
    return settings["region"]


def _by_union(db: Deps[Database | Cache]) -> str:
    return type(db).__name__


@pytest.mark.parametrize(
    ("given", "deps", "answer"),
    [
        (_by_protocol, Database("xy"), "Ada of 2"),
        (_by_typed_dict, {"region": "eu"}, "eu"),
        (_by_union, Cache(), "Cache"),
    ],
)
async def test_deps_may_be_protocols_typed_dicts_and_unions(given: Any, deps: Any, answer: str) -> None:
    agent = Agent(Scripted(ToolCall("1", given.__name__, {}), "Done."), tools=[given])
    assert first_tool_text(await agent.run("Go.", deps=deps)) == answer


async def test_a_tool_is_still_the_function_it_was() -> None:
    assert lookup("Ada", Database("xy")) == "Ada of 2"


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_type_that_is_neither_injected_nor_json_is_refused_when_it_is_registered() -> None:
    def look(name: str, db: Plain) -> str:
        return name

    with pytest.raises(ConfigError) as refused:
        Agent(Scripted(), tools=[look])
    sentence = str(refused.value)
    assert sentence.startswith("the parameter 'db' of the tool look is a Plain, which a model cannot fill in.")
    for words in ("pydantic model", "db: Deps[Plain]", "agent.run(…, deps=…)", "Run or ToolUse"):
        assert words in sentence


@pytest.mark.parametrize(
    ("deps", "given"), [(None, "and the run has none"), (Cache(), "and the run has a Cache")], ids=["none", "another"]
)
async def test_a_run_without_the_deps_that_a_tool_needs_is_refused_before_anything_is_stored(
    deps: Any, given: str
) -> None:
    thread, events = Thread(), list[Event]()
    agent = Agent(Scripted("Hi.", spare=True), tools=[lookup])
    with pytest.raises(ConfigError, match=r"the tool lookup needs deps of type Database \(parameter db\)") as refused:
        await agent.run("Go.", thread=thread, deps=deps, emit=events.append)
    assert given in str(refused.value) and "pass deps=… to the run" in str(refused.value)
    assert not thread.entries and not events
    with pytest.raises(ConfigError):
        agent.stream("Go.", thread=thread, deps=deps)


async def test_a_refused_run_is_not_in_the_store(tmp_path: Any) -> None:
    sessions = Sessions(str(tmp_path))
    agent = Agent(Scripted("Hi.", spare=True), tools=[lookup], hooks=[sessions])
    with pytest.raises(ConfigError, match="needs deps of type Database"):
        await agent.run("Go.", thread="th_1")
    assert not [*tmp_path.iterdir()]


async def test_the_type_of_the_deps_can_be_declared() -> None:
    agent = Agent(Scripted("Hi.", spare=True), deps_type=Database)
    assert (await agent.run("Go.", deps=Database())).text == "Hi."
    with pytest.raises(ConfigError, match="^the agent needs deps of type Database, and the run has none"):
        await agent.run("Go.")
    with pytest.raises(ConfigError, match="^the agent shop needs deps of type Database"):
        await agent.with_options(name="shop").run("Go.")
    with pytest.raises(ConfigError, match="the tool lookup needs deps of type Database .*, but the deps are a Cache"):
        Agent(Scripted(), tools=[lookup], deps_type=Cache)
    with pytest.raises(ConfigError, match="deps_type= takes a class, not"):
        Agent(Scripted(), deps_type=Database())  # type: ignore[arg-type]


async def test_a_model_must_not_fill_in_what_has_the_type_of_the_deps() -> None:
    def delete(account: Account) -> str:
        return "deleted" if account.admin else "no"

    agent, words = Agent(Scripted("Hi.", spare=True), tools=[delete]), r"write account: Deps\[Account\]"
    with pytest.raises(ConfigError, match=words):
        await agent.run("Go.", deps=Account())
    with pytest.raises(ConfigError, match=words):
        Agent(Scripted(), tools=[delete], deps_type=Account)


async def test_deps_of_a_builtin_type_are_no_reason_to_refuse_parameters() -> None:
    def count(words: dict) -> int:  # type: ignore[type-arg]
        return len(words)

    agent = Agent(Scripted("Hi."), tools=[count])
    assert (await agent.run("Go.", deps={"a": 1})).text == "Hi."


async def test_a_tool_that_a_hook_adds_says_what_it_needs() -> None:
    @before(Run, tools="lookup")
    def add(run: Run) -> None:
        run.tools["lookup"] = lookup

    result = await Agent(calling("lookup", name="Ada"), hooks=[add]).run("Go.")
    assert first_tool_text(result) == "lookup needs a Database (deps of the run), and is used where there is none"


# -- hooks ------------------------------------------------------------------------------------------------------------


async def test_hooks_receive_deps_at_every_position() -> None:
    seen = list[str]()

    @before(ModelCall)
    def prompt(call: ModelCall, db: Deps[Database]) -> None:
        seen.append(f"before {db.url}")

    @wrap(ToolUse)
    async def around(use: ToolUse, next: Next[ToolResult], db: Deps[Database]) -> ToolResult:
        seen.append(f"wrap {db.url}")
        return await next(use)

    @after(Run)
    async def end(run: Run[Database]) -> None:
        seen.append(f"after {run.deps.url}")

    class Checks(Capability):
        @guard(ToolUse)
        async def check(self, use: ToolUse, *, db: Deps[Database]) -> Block | None:
            seen.append(f"guard {db.url} {self.name}")
            return None

        @wrap(ModelCall)
        async def ask(self, call: ModelCall, next: Next[Message], db: Deps[Database]) -> Message:
            return await next(call)

    agent = Agent(calling("lookup", name="Ada"), tools=[lookup], hooks=[prompt, around, end, Checks()])
    await agent.run("Go.", deps=Database("xy"))
    assert seen == ["before xy", "wrap xy", "guard xy checks", "before xy", "after xy"]
    with pytest.raises(ConfigError, match=r"the hook prompt needs deps of type Database \(parameter db\)"):
        await Agent(Scripted(), hooks=[prompt]).run("Go.")
    with pytest.raises(ConfigError, match=r"the hook checks.check needs deps of type Database"):
        await Agent(Scripted(), tools=[], hooks=[Checks()]).run("Go.")


async def test_a_guard_without_its_deps_has_not_agreed() -> None:
    @guard(ToolUse)
    def check(use: ToolUse, db: Deps[Database]) -> Block | None:
        return None

    @before(Run)
    def add(run: Run) -> None:
        run.add_guard(check)

    @tool
    def wipe() -> str:
        return "wiped"

    result = await Agent(calling("wipe"), tools=[wipe], hooks=[add]).run("Go.")
    assert "the hook 'check' needs deps of type Database; pass deps=… to the run" in first_tool_text(result)


async def test_no_hook_can_replace_the_deps() -> None:
    @before(ToolUse)
    def swap(use: ToolUse) -> None:
        use.run.deps = Database("evil")

    with pytest.raises(HookError, match="the deps of a run cannot be changed"):
        await Agent(calling("lookup", name="Ada"), tools=[lookup], hooks=[swap]).run("Go.", deps=Database())

    @wrap(Run)
    async def pass_others(run: Run, next: Next[Result]) -> Result:
        return await next(replace(run, deps=Database("evil")))

    with pytest.raises(HookError, match="the deps of a run cannot be changed"):
        await Agent(calling("lookup", name="Ada"), tools=[lookup], hooks=[pass_others]).run("Go.", deps=Database())


class Odd:
    """An object that cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = object.__hash__


async def test_deps_are_never_compared_or_copied() -> None:
    seen = list[object]()

    @guard(Run)
    def check(run: Run) -> Block | None:
        seen.append(run.deps)
        return None

    deps = Odd()
    assert (await Agent(Scripted("Hi."), hooks=[check]).run("Go.", deps=deps)).outcome == "completed"
    assert seen[0] is deps


# -- children ---------------------------------------------------------------------------------------------------------


async def test_an_agent_that_a_tool_starts_has_the_deps_of_its_parent() -> None:
    child = Agent(calling("lookup", name="Ada"), name="child", tools=[lookup])

    @tool
    async def delegate(own: bool) -> str:
        """Ask another agent."""
        return first_tool_text(await (child.run("Go.", deps=Database("own")) if own else child.run("Go.")))

    for own, answer in ((False, "Ada of 6"), (True, "Ada of 3")):
        child = Agent(calling("lookup", name="Ada"), name="child", tools=[lookup])
        agent = Agent(calling("delegate", own=own), tools=[delegate])
        assert first_tool_text(await agent.run("Go.", deps=Database("parent"))) == answer


async def test_a_child_can_be_given_no_deps() -> None:
    @tool
    async def delegate() -> str:
        """Ask another agent."""
        try:
            await Agent(Scripted(), tools=[lookup]).run("Go.", deps=None)
        except WickError as error:
            raise ToolError(str(error)) from None
        return ""

    result = await Agent(calling("delegate"), tools=[delegate]).run("Go.", deps=Database())
    assert "the run has none" in first_tool_text(result)


async def test_subagents_have_the_deps_of_their_parent() -> None:
    class Helper(Capability):
        @tool
        def look(self, name: str, db: Deps[Database]) -> str:
            """Look up a name."""
            return db.read(name)

    definition = {"name": "clerk", "description": "Looks up names.", "prompt": "Look it up."}
    call = ToolCall("1", "task", {"agent": "clerk", "prompt": "Ada?"})
    model = Scripted(call, ToolCall("2", "look", {"name": "Ada"}), "Found.", "Done.")
    await Agent(model, hooks=[Helper(), Subagents([definition])]).run("Go.", deps=Database("xy"))
    assert [request.messages[-1].text for request in model.requests] == ["Go.", "Ada?", "Ada of 2", "Found."]


async def test_a_guard_of_the_parent_keeps_the_deps_of_the_parent() -> None:
    seen = list[str]()

    @guard(ToolUse)
    def check(use: ToolUse, db: Deps[Database]) -> Block | None:
        seen.append(db.url)
        return None

    @tool
    async def delegate() -> str:
        """Ask another agent, with more rights."""
        child = Agent(calling("lookup", name="Ada"), tools=[lookup])
        return first_tool_text(await child.run("Go.", deps=Database("child")))

    agent = Agent(calling("delegate"), tools=[delegate], hooks=[check])
    assert first_tool_text(await agent.run("Go.", deps=Database("parent"))) == "Ada of 5"
    assert seen == ["parent", "parent"]


# -- factories, servers, resuming -------------------------------------------------------------------------------------


async def test_a_factory_makes_the_deps_of_a_run_without_deps() -> None:
    def make() -> Agent[Database]:
        return Agent(
            calling("lookup", name="Ada"), tools=[lookup], deps_factory=lambda run: Database(f"made for {run.user}")
        )

    assert first_tool_text(await make().run("Go.", user="ada")) == "Ada of 12"
    assert first_tool_text(await make().with_hooks().run("Go.", user="ada", deps=Database("xy"))) == "Ada of 2"

    @tool
    async def delegate() -> str:
        """Ask another agent."""
        return first_tool_text(await make().run("Go."))

    parent = Agent(calling("delegate"), tools=[delegate])
    assert first_tool_text(await parent.run("Go.", deps=Database("parent"))) == "Ada of 6", (
        "a child has the deps of its parent"
    )
    parent = Agent(calling("delegate"), tools=[delegate])
    assert first_tool_text(await parent.run("Go.", deps=Cache(), user="ada")) == "Ada of 12", "unless they do not fit"


async def test_an_async_factory_is_refused() -> None:
    async def make(run: Run) -> Database:
        return Database()

    with pytest.raises(ConfigError, match="a deps_factory is not async; open async resources before the run"):
        await Agent(Scripted(), tools=[lookup], deps_factory=make).run("Go.")


class Pool:
    """A pool that can be awaited, to wait until it is open, as those of some drivers."""

    def __await__(self) -> Any:
        yield


async def test_deps_may_be_awaitable() -> None:
    pool = Pool()
    assert Agent(Scripted()).stream("Go.", deps=pool).run.deps is pool
    assert Agent(Scripted(), deps_factory=lambda run: pool).stream("Go.").run.deps is pool


def test_a_server_refuses_an_agent_without_its_deps(tmp_path: Any) -> None:
    agent = Agent(Scripted(), tools=[lookup])
    with pytest.raises(ConfigError, match=r"the agent 'clerk' cannot run in a server.*the tool lookup needs deps"):
        template_from_code("clerk", agent, tmp_path)
    made = Agent(Scripted(), tools=[lookup], deps_factory=lambda run: Database())
    assert template_from_code("clerk", made, tmp_path).factory is not None


async def test_a_resumed_run_is_given_its_deps_again() -> None:
    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("Sure?")

    async def later(question: Any) -> bool:
        raise Paused("tomorrow")

    async def yes(question: Any) -> bool:
        return True

    model, thread = calling("lookup", name="Ada"), Thread()
    paused = await Agent(model, tools=[lookup], hooks=[confirm], ask=later).run("Go.", thread=thread, deps=Database())
    assert paused.outcome == "interrupted"
    agent, entries = Agent(model, tools=[lookup], hooks=[confirm], ask=yes), len(thread.entries)
    with pytest.raises(ConfigError, match="also to resume it"):
        await agent.run(thread=thread)
    assert len(thread.entries) == entries
    result = await agent.run(thread=thread, deps=Database("xy"))
    assert [message.text for message in thread.messages if message.role == "tool"] == ["Ada of 2"]
    assert result.outcome == "completed"


async def test_a_replay_gives_deps_to_guards() -> None:
    @guard(ToolUse)
    def check(use: ToolUse, db: Deps[Database]) -> Block | None:
        return Block("closed") if db.url == "closed" else None

    agent = Agent(calling("lookup", name="Ada"), tools=[lookup], hooks=[check])
    thread = (await agent.run("Go.", deps=Database("open"))).thread
    assert not (await replay(agent, [thread], deps=Database("open"))).changes
    assert [change.reason for change in (await replay(agent, [thread], deps=Database("closed"))).changes] == ["closed"]
    made = Agent(Scripted(), tools=[lookup], hooks=[check], deps_factory=lambda run: Database("closed"))
    assert [change.reason for change in (await replay(made, [thread])).changes] == ["closed"]


# -- typed outputs ----------------------------------------------------------------------------------------------------


async def test_an_output_type_is_a_structured_output() -> None:
    answer = ToolCall("1", "final_answer", {"admin": True})
    result = await Agent(Scripted(answer), output_type=Account).run("Go.")
    assert result.output == Account(admin=True)
    options = StructuredOutput(Account, retries=0)
    agent = Agent(Scripted(answer, spare=True), output_type=options).with_tools(lookup)
    stream = agent.stream("Go.", deps=Database())
    assert (await stream.finish()).output == stream.result.output == Account(admin=True)
    with pytest.raises(ConfigError, match="two hooks are named 'structured_output'"):
        Agent(Scripted(), output_type=Account, hooks=[StructuredOutput(Account)])
    with pytest.raises(ConfigError, match="StructuredOutput takes a type, such as a pydantic model"):
        Agent(Scripted(), output_type=7)  # type: ignore[arg-type]


async def test_a_missing_output_says_why_it_is_missing() -> None:
    stubborn = Agent(Scripted("No."), output_type=StructuredOutput(Account, retries=0))
    result = await stubborn.run("Go.")
    with pytest.raises(MissingOutput, match=r"ended as stopped \(retry limit.*check result.outcome before you read"):
        result.output  # noqa: B018
    assert "value=None" in repr(result) and result.value is None


async def test_the_output_of_an_agent_without_a_type_is_its_text() -> None:
    assert (await Agent(Scripted("Hi.")).run("Go.")).output == "Hi."
    assert (await Agent(Scripted("Hi."), output_type=str).with_hooks().run("Go.")).output == "Hi."
    stream = Agent(Scripted("Hi.")).stream("Go.")
    assert [event async for event in stream] and stream.result.output == "Hi."
