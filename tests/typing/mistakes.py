"""Mistakes that type checkers find. Each is on a line with the code of mypy's error, and must be found there.

Pyright finds them on the same lines, except those marked "not pyright".
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from wick import (
    Agent,
    Ask,
    Block,
    Capability,
    Continue,
    Deps,
    Limits,
    Message,
    ModelCall,
    Run,
    Scripted,
    Step,
    Stop,
    ToolCall,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)
from wick.decisions import Question
from wick.hooks import Next


@dataclass
class Database:
    url: str


class Trip(BaseModel):
    city: str


# -- tools --------------------------------------------------------------------------------------------------------


@tool
def weather(city: str, days: int = 1) -> str:
    """The weather of a city."""
    return city * days


@tool(timeout=3)
async def forecast(city: str) -> str:
    """The weather of tomorrow."""
    return city


@tool
def lookup(name: str, db: Deps[Database], run: Run) -> str:
    """Look up a name."""
    return db.url + name + db.password  # type: ignore[attr-defined, no-any-return]


@tool(timout=3)  # type: ignore[call-overload, untyped-decorator]
def misspelt(text: str) -> str:
    return text


weather(5)  # type: ignore[arg-type]
weather()  # type: ignore[call-arg]
weather("Paris", day=2)  # type: ignore[call-arg]
weather("Paris").uper()  # type: ignore[attr-defined]
weather("Paris") + 1  # type: ignore[operator]
forecast("Paris").upper()  # type: ignore[attr-defined]
ToolCall("1", "add", args=[2, 3])  # type: ignore[arg-type]


async def use_tools(run: Run[Database]) -> None:
    lookup("Ada", "postgres://", run)  # type: ignore[arg-type]
    lookup("Ada", run.deps)  # type: ignore[call-arg]
    print((await forecast("Paris")).sunny)  # type: ignore[attr-defined]
    print(run.deps.password)  # type: ignore[attr-defined]


# -- hooks --------------------------------------------------------------------------------------------------------


@before(ModelCall)  # type: ignore[arg-type]
def for_another_operation(use: ToolUse) -> None: ...


@before(Step)  # type: ignore[arg-type]
def a_step_is_no_tool_use(use: ToolUse) -> None: ...


@before("tool_use")  # type: ignore[call-overload, untyped-decorator]
def at_a_name(use: ToolUse) -> None: ...


@before(ToolUse)  # type: ignore[arg-type]
def says_a_text(use: ToolUse) -> str:
    return "no"


@before(ToolUse)  # type: ignore[arg-type]
def says_a_bool(use: ToolUse) -> bool:
    return True


@before(ToolUse)  # type: ignore[arg-type]
def continues_before(use: ToolUse) -> Continue | None:
    return None


@before(ToolUse, on_error="ignore")  # type: ignore[call-overload, untyped-decorator]
def has_an_unknown_option(use: ToolUse) -> None: ...


@before(ToolUse, priority="high")  # type: ignore[call-overload, untyped-decorator]
def has_a_wrong_option(use: ToolUse) -> None: ...


@before(ToolUse)  # type: ignore[arg-type]
def takes_nothing() -> None: ...


@wrap(ToolUse)  # type: ignore[arg-type]
async def without_next(use: ToolUse) -> ToolResult:
    return ToolResult("done")


@wrap(ToolUse)  # type: ignore[arg-type]
def not_async(use: ToolUse, next: Next[ToolResult]) -> ToolResult:
    return ToolResult("done")


@wrap(ModelCall)  # type: ignore[arg-type]
async def has_another_result(call: ModelCall, next: Next[Message]) -> ToolResult:
    return ToolResult("done")


@wrap(ToolUse)  # type: ignore[arg-type]
async def has_the_next_of_another(use: ToolUse, next: Next[Message]) -> ToolResult:
    return ToolResult("done")


@wrap(ToolUse)
async def forgets_to_await(use: ToolUse, next: Next[ToolResult]) -> ToolResult:
    return next(use)  # type: ignore[return-value]


@wrap(ToolUse)
async def passes_on_the_arguments(use: ToolUse, next: Next[ToolResult]) -> ToolResult:
    return await next(use.args)  # type: ignore[arg-type]


@wrap(ToolUse)  # type: ignore[arg-type]
async def forgets_the_result(use: ToolUse, next: Next[ToolResult]) -> None:
    await next(use)


@after(Run)  # type: ignore[arg-type]
def stops_what_has_ended(run: Run) -> Stop | None:
    return None


@after(ToolUse)  # type: ignore[arg-type]
def asks_too_late(use: ToolUse) -> Ask | None:
    return None


@after(ModelCall)  # type: ignore[arg-type]
def continues_a_model_call(call: ModelCall) -> Continue | None:
    return None


@after(ToolUse)
def gives_a_text(use: ToolUse) -> None:
    use.result = "done"  # type: ignore[assignment]


@guard(ToolUse)  # type: ignore[arg-type]
async def continues_at_the_gate(use: ToolUse) -> Continue | None:
    return None


@guard(ToolUse, timeout=None)  # type: ignore[call-overload, untyped-decorator]
def without_a_time_limit(use: ToolUse) -> None: ...


@guard(ToolUse)
def forgets_an_end(use: ToolUse) -> Block | None:  # type: ignore[return]  # not pyright
    if use.args:
        return Block("no")


@guard(ToolUse)
def reads_what_is_not_there(use: ToolUse) -> Block | None:
    return Block("no") if use.arguments else None  # type: ignore[attr-defined]


@guard  # type: ignore[arg-type]
def continues_without_parentheses(use: ToolUse) -> Continue | None:
    return None


@guard(ToolUse)
def returns_the_class(use: ToolUse) -> Block | None:
    return Block  # type: ignore[return-value]


class Notes(Capability):
    @before(ModelCall)  # type: ignore[arg-type]  # not pyright
    def for_another_operation(self, use: ToolUse) -> None: ...

    @guard(ToolUse)  # type: ignore[arg-type]
    def continues(self, use: ToolUse) -> Continue | None:
        return None

    @tool
    def remember(self, text: str) -> str:
        """Remember a text."""
        return text


Notes().remember(5)  # type: ignore[arg-type]
Block()  # type: ignore[call-arg]


# -- agents -------------------------------------------------------------------------------------------------------


async def answers_a_text(question: Question) -> str:
    return "yes"


async def forgets_to_answer(question: Question) -> None:
    print(question.question)


Agent(42)  # type: ignore[arg-type]
Agent(Scripted(), tools=weather)  # type: ignore[arg-type]
Agent(Scripted(), tools=["weather"])  # type: ignore[list-item]
Agent(Scripted(), hooks=[len])  # type: ignore[list-item]
Agent(Scripted(), hooks=[Limits])  # type: ignore[list-item]
Agent(Scripted(), ask=answers_a_text)  # type: ignore[arg-type]
Agent(Scripted(), ask=forgets_to_answer)  # type: ignore[arg-type]
Agent(Scripted(), output_type=Trip(city="Bern"))  # type: ignore[arg-type]
Agent(Scripted(), system_prompt="Be brief.")  # type: ignore[call-arg]
Agent(Scripted(), instructions="Be brief.")  # type: ignore[call-arg]
Agent(Scripted(), middleware=[])  # type: ignore[call-arg]
Agent(Scripted())("hello")  # type: ignore[operator]
Agent(Scripted()).invoke("hello")  # type: ignore[attr-defined]
Agent(Scripted()).run_sync("hello", message_history=[])  # type: ignore[call-arg]
print(Agent(Scripted()).run_sync("hello").final_output)  # type: ignore[attr-defined]
Agent(Scripted()).run_sync("hello")["messages"]  # type: ignore[index]
Agent(Scripted()).run_sync(42)  # type: ignore[arg-type]
Agent(Scripted()).run_sync("hello", usr="ada")  # type: ignore[call-arg]
print(Agent(Scripted()).run_sync("hello").txt)  # type: ignore[attr-defined]
print(Agent(Scripted(), output_type=Trip).run_sync("hello").output.town)  # type: ignore[attr-defined]
Agent(Scripted(), deps_type=Database).run_sync("hello", deps="postgres://")  # type: ignore[arg-type]
Agent(Scripted(), deps_factory=lambda run: Database("")).run_sync("hello", deps=5)  # type: ignore[arg-type]


async def run_agents(agent: Agent[Database, Trip]) -> str:
    print(agent.run("hello").text)  # type: ignore[attr-defined]
    for event in agent.stream("hello"):  # type: ignore[attr-defined]
        print(event)
    result = await agent.run("hello")
    result.output["city"]  # type: ignore[index]
    agent = Agent(Scripted(), output_type=Message)  # type: ignore[arg-type]
    return result  # type: ignore[return-value]
