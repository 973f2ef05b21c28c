"""Typical first mistakes of developers who know other agent frameworks, and the words that answer each of them.

A mistake is answered if the program works as its author meant it, or if what they see (an exception, a warning, or the
text that the program returns) names the fix: the list gives the words.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from wick import (
    Agent,
    Ask,
    Block,
    Capability,
    Continue,
    Deps,
    FunctionModel,
    Limits,
    ModelCall,
    Run,
    Scripted,
    ToolCall,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)  # fmt: skip
from wick.models import scripted


@dataclass(frozen=True, slots=True)
class Mistake:
    program: Callable[..., object]
    words: tuple[str, ...]


MISTAKES: list[Mistake] = []


def mistake(*words: str) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Register a program with the words that its answer must contain."""

    def register(program: Callable[..., object]) -> Callable[..., object]:
        MISTAKES.append(Mistake(program, words))
        return program

    return register


def loose(value: object) -> Any:
    """Return a value that a type checker does not look at: most of these mistakes are reported by one."""
    return value


LooseAgent: Any = Agent


class Trip(BaseModel):
    city: str


class Shop:
    pass


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def agent_with(*hooks: object, args: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return an agent whose model searches once and then answers."""
    model = Scripted(ToolCall("1", "search", args or {"query": "tea"}), "Done.")
    return Agent(model, tools=[search], hooks=loose(hooks), **options)


def transcript(agent: Any, *input: Any, **options: Any) -> str:
    return str(agent.run_sync(*(input or ("Hello.",)), **options).messages.pretty())


# -- words of pydantic-ai -------------------------------------------------------------------------------------------


@mistake("instructions", "system=")
def agent_with_instructions() -> None:
    LooseAgent(Scripted(), instructions="Be brief.")


@mistake("system_prompt", "system=")
def agent_with_system_prompt() -> None:
    LooseAgent(Scripted(), system_prompt="Be brief.")


@mistake("tools=[")
def tool_decorator_of_the_agent() -> None:
    @loose(Agent(Scripted())).tool
    def roll(run: Run) -> int:
        return 4


@mistake("agent.stream(")
def run_stream_of_the_agent() -> None:
    loose(Agent(Scripted())).run_stream("Hello.")


@mistake("result.output")
def data_of_the_result() -> None:
    print(loose(Agent(Scripted("Hi.")).run_sync("Hello.")).data)


@mistake("message_history", "thread=")
def run_with_message_history() -> None:
    loose(Agent(Scripted())).run_sync("Hello.", message_history=[])


@mistake("deps=", "Shop")
def run_without_deps() -> None:
    @tool
    def price(item: str, shop: Deps[Shop]) -> int:
        """Return the price of an item."""
        return 3

    Agent(Scripted(), tools=[price], deps_type=Shop).run_sync("Hello.")


@mistake("deps", "Shop", "dict")
def run_with_wrong_deps() -> None:
    loose(Agent(Scripted(), deps_type=Shop)).run_sync("Hello.", deps={"shop": 1})


# -- words of LangChain and LangGraph -------------------------------------------------------------------------------


@mistake("run_sync")
def invoke_of_the_agent() -> None:
    loose(Agent(Scripted())).invoke({"messages": [{"role": "user", "content": "Hello."}]})


@mistake("middleware", "hooks=")
def agent_with_middleware() -> None:
    LooseAgent(Scripted(), middleware=[])


@mistake("Hi.")
def message_dicts_as_input() -> str:
    return Agent(Scripted("Hi.")).run_sync(loose([{"role": "user", "content": "Hello."}])).text


@mistake("messages", "list")
def state_dict_as_input() -> None:
    Agent(Scripted()).run_sync(loose({"messages": [{"role": "user", "content": "Hello."}]}))


@mistake("result.messages")
def result_as_a_dict() -> None:
    print(loose(Agent(Scripted("Hi.")).run_sync("Hello."))["messages"])


# -- words of OpenAI Agents, Strands, ADK and agno -------------------------------------------------------------------


@mistake("agent.run")
def runner_of_the_package() -> None:
    from wick import Runner  # type: ignore[attr-defined]

    Runner.run_sync(Agent(Scripted()), "Hello.")


@mistake("handoffs", "Subagents(")
def agent_with_handoffs() -> None:
    LooseAgent(Scripted(), handoffs=[])


@mistake("input_guardrails", "guard(Run)")
def agent_with_guardrails() -> None:
    LooseAgent(Scripted(), input_guardrails=[])


@mistake("result.text", "result.output")
def final_output_of_the_result() -> None:
    print(loose(Agent(Scripted("Hi.")).run_sync("Hello.")).final_output)


@mistake("agent.run_sync(")
def call_of_the_agent() -> None:
    loose(Agent(Scripted()))("Hello.")


@mistake("before_tool_callback", "before(ToolUse)")
def agent_with_callbacks() -> None:
    LooseAgent(Scripted(), before_tool_callback=lambda tool, args: None)


@mistake("memory", "Memory(")
def agent_with_memory() -> None:
    LooseAgent(Scripted(), memory=object())


@mistake("run_sync(", ".text")
def print_response_of_the_agent() -> None:
    loose(Agent(Scripted())).print_response("Hello.", stream=True)


# -- models ---------------------------------------------------------------------------------------------------------


@mistake("anthropic:")
def misspelt_provider() -> None:
    Agent("antropic:claude-sonnet-4-5")


@mistake("ollama:llama3.1:8b")
def model_without_a_provider() -> None:
    Agent("llama3.1:8b")


@mistake("openai:gpt-4o")
def slash_after_the_provider() -> None:
    Agent("openai/gpt-4o")


@mistake("ANTHROPIC_API_KEY")
def missing_api_key() -> None:
    Agent("anthropic:claude-sonnet-4-5").run_sync("Hello.")


# -- async ----------------------------------------------------------------------------------------------------------


@mistake("Agent.run", "never awaited")
def forgotten_await() -> None:
    print(loose(Agent(Scripted()).run("Hello.")).text)


@mistake("await agent.run(")
def run_sync_in_an_event_loop() -> None:
    async def main() -> None:
        Agent(Scripted()).run_sync("Hello.")

    asyncio.run(main())


@mistake("read the stream", "finish()")
def result_before_the_end() -> None:
    print(Agent(Scripted("Hi.")).stream("Hello.").result)


@mistake("once", "another run")
def stream_read_twice() -> None:
    async def main() -> None:
        stream = Agent(Scripted("Hi.")).stream("Hello.")
        for _ in range(2):
            async for _event in stream:
                pass

    asyncio.run(main())


@mistake("async for")
def stream_in_a_plain_for() -> None:
    for _event in loose(Agent(Scripted("Hi.")).stream("Hello.")):
        pass


@mistake("slow_search", "blocked the event loop", "await asyncio.sleep", "write `def` instead of `async def`")
def blocking_async_tool() -> str:
    @tool
    async def slow_search(query: str) -> str:
        """Search slowly."""
        time.sleep(1.1)  # noqa: ASYNC251
        return "found"

    return transcript(Agent(Scripted(ToolCall("1", "slow_search", {"query": "tea"}), "Done."), tools=[slow_search]))


# -- tools ----------------------------------------------------------------------------------------------------------


@mistake("roll", "docstring")
def tool_without_docstring() -> None:
    @tool
    def roll(sides: int) -> int:
        return 4

    Agent(Scripted(), tools=[roll])


@mistake("query", "type")
def tool_without_annotations() -> None:
    @tool
    def look_up(query):  # type: ignore[no-untyped-def]
        """Look something up."""

    Agent(Scripted(), tools=[look_up])


@mistake("*queries", "list")
def tool_with_star_arguments() -> None:
    @tool
    def look_up(*queries: str) -> str:
        """Look things up."""
        return ""

    Agent(Scripted(), tools=[look_up])


@mistake("not JSON", "return text")
def unserialisable_tool_result() -> str:
    @tool
    def look_up(query: str) -> object:
        """Look something up."""
        return object()

    return transcript(Agent(Scripted(ToolCall("1", "look_up", {"query": "tea"}), "Done."), tools=[look_up]))


@mistake("two tools", "'search'", "name=")
def two_tools_of_one_name() -> None:
    Agent(Scripted(), tools=[search, search])


# -- hooks and guards -----------------------------------------------------------------------------------------------


@mistake("found tea")
def guard_without_parentheses() -> str:
    @guard
    def allow_all(use: ToolUse) -> Block | None:
        return None

    return transcript(agent_with(allow_all))


@mistake("guard(ToolUse)")
def guard_without_an_operation() -> None:
    @loose(guard)
    def allow_all(use):  # type: ignore[no-untyped-def]
        return None


@mistake("False", "Block(")
def guard_that_returns_false() -> str:
    @loose(guard(ToolUse))
    def forbid_all(use: ToolUse):  # type: ignore[no-untyped-def]
        return False

    return transcript(agent_with(forbid_all))


@mistake("sealed", "before(ToolUse)")
def guard_that_changes_arguments() -> str:
    @guard(ToolUse)
    def add_word(use: ToolUse) -> None:
        use.args["query"] = "green tea"

    return transcript(agent_with(add_word))


@mistake("ask=", "Sessions(")
def ask_without_an_approver() -> str:
    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("Search?")

    return transcript(agent_with(confirm))


@mistake("Continue", "after(Step)")
def continue_before_a_model_call() -> None:
    @loose(before(ModelCall))
    def go_on(call: ModelCall) -> Continue:
        return Continue("Go on.")


@mistake("Limits()")
def capability_class_in_hooks() -> None:
    Agent(Scripted(), hooks=[loose(Limits)])


@mistake("'name'", "reserved")
def capability_with_a_hook_named_name() -> None:
    class Audit(Capability):
        @before(ToolUse)
        def name(self, use: ToolUse) -> None:
            """Write it down."""

    Agent(Scripted(), hooks=[Audit()])


@mistake("'serch'", "did you mean", "'search'")
def guard_for_a_misspelt_tool() -> None:
    agent_with(guard(ToolUse, match="serch")(lambda use: None))


@mistake("next", "await")
def wrap_without_await() -> None:
    @loose(wrap(ToolUse))
    async def time_it(use: ToolUse, next: Any) -> Any:
        return next(use)

    return print(transcript(agent_with(time_it)))


@mistake("return None", "Block(")
def hook_that_returns_a_text() -> str:
    @loose(before(ToolUse))
    def refuse(use: ToolUse) -> str:
        return "not allowed"

    return transcript(agent_with(refuse))


# -- limits, threads, stores, files ---------------------------------------------------------------------------------


@mistake("steps=-1", "a number above 0")
def negative_step_limit() -> None:
    Agent(Scripted(), hooks=[Limits(steps=-1)])


@mistake("dollars='5$'", "number above 0")
def budget_as_a_text() -> None:
    from wick.capabilities.budget import Budget

    Agent(Scripted(), hooks=[Budget(dollars="5$")])


@mistake("give the class itself: Trip")
def output_type_that_is_an_instance() -> None:
    Agent(Scripted(), output_type=loose(Trip(city="Bern")))


@mistake("Hi.")
def thread_id_with_a_slash(folder: Path) -> str:
    from wick.capabilities.sessions import Sessions

    agent = Agent(Scripted("Hi."), hooks=[Sessions(str(folder))])
    return agent.run_sync("Hello.", thread="team/42").text


@mistake("folder", "file")
def store_path_that_is_a_folder(folder: Path) -> None:
    from wick.capabilities.sessions import Sessions
    from wick.stores.sqlite import Sqlite

    (folder / "threads.db").mkdir()
    Agent(Scripted("Hi."), hooks=[Sessions(Sqlite(folder / "threads.db"))]).run_sync("Hello.", thread="th_1")


@mistake("no-such-server", "PATH")
def mcp_command_that_is_not_installed() -> str:
    from wick.capabilities.mcp import MCP

    return transcript(Agent(Scripted("Hi."), hooks=[MCP({"files": {"command": "no-such-server"}})]))


@mistake("no-skills", "folder")
def skills_folder_that_is_missing(folder: Path) -> str:
    from wick.capabilities.skills import Skills

    return transcript(Agent(Scripted("Hi."), hooks=[Skills(host=[str(folder / "no-skills")])]))


@mistake("Hi.Again.")
def sessions_in_two_event_loops(folder: Path) -> str:
    from wick.capabilities.sessions import Sessions

    agent = Agent(Scripted("Hi.", "Again."), hooks=[Sessions(str(folder))])
    first = asyncio.run(agent.run("Hello.", thread="th_1"))
    return first.text + asyncio.run(agent.run("Hello.", thread="th_1")).text


@mistake("from wick.capabilities import StructuredOutput")
def misspelt_capability() -> None:
    from wick.capabilities import StructuredOutputs  # type: ignore[attr-defined]  # noqa: F401


@mistake("line 2", "instructions", "system_prompt")
def agents_file_with_instructions(folder: Path) -> None:
    from wick.config import load

    (folder / "agents.yaml").write_text("model: demo\ninstructions: Be brief.\n")
    load(folder / "agents.yaml")


# -- guesses of newcomers -------------------------------------------------------------------------------------------


@mistake("set result.output instead")
def after_hook_that_sets_the_text() -> str:
    @after(ToolUse)
    def redact(use: ToolUse) -> None:
        use.result.text = "hidden"  # type: ignore[misc]

    return transcript(agent_with(redact))


@mistake("to replace the result, set it: use.result = …")
def after_hook_that_returns_a_text() -> str:
    @loose(after(ToolUse))
    def redact(use: ToolUse) -> str:
        return "hidden"

    return transcript(agent_with(redact))


@mistake("a Message is immutable", "call.result =")
def after_hook_that_changes_a_reply() -> str:
    @after(ModelCall)
    def redact(call: ModelCall) -> None:
        call.result.text = "hidden"  # type: ignore[misc]

    return transcript(agent_with(redact))


@mistake("return it: `return Block(…)`")
def guard_that_raises_a_decision() -> str:
    @guard(ToolUse)
    def refuse(use: ToolUse) -> None:
        raise loose(Block("no"))

    return transcript(agent_with(refuse))


@mistake("use.name")
def hook_that_reads_the_tool_name() -> str:
    @before(ToolUse)
    def log(use: ToolUse) -> None:
        print(loose(use).tool_name)

    return transcript(agent_with(log))


@mistake("the arguments are use.args")
def guard_that_reads_the_arguments() -> str:
    @guard(ToolUse)
    def refuse(use: ToolUse) -> Block | None:
        return Block("no") if loose(use).arguments else None

    return transcript(agent_with(refuse))


@mistake("match=")
def guard_for_a_tool_by_another_option() -> None:
    loose(guard)(ToolUse, tool="search")


@mistake("Block()", "first argument")
def block_with_a_message() -> None:
    loose(Block)(message="no")


@mistake("Limits()", "did you mean steps=?")
def limits_by_another_option() -> None:
    loose(Limits)(max_steps=3)


@mistake("requires_approval", "guard(ToolUse, match=…)", "Ask(…)")
def tool_that_requires_approval() -> None:
    loose(tool)(requires_approval=True)


@mistake("Sessions.answer()", "words=")
def answer_with_a_reason(folder: Path) -> None:
    from wick.capabilities.sessions import Sessions

    asyncio.run(loose(Sessions(str(folder))).answer("th_1", "q_1", "deny", reason="too expensive"))


@mistake("names no thread", "leave thread= out")
def empty_thread_id(folder: Path) -> None:
    from wick.capabilities.sessions import Sessions

    Agent(Scripted("Hi."), hooks=[Sessions(str(folder))]).run_sync("Hello.", thread="")


@mistake("async for event in agent.stream(…)")
def awaited_stream() -> None:
    async def main() -> None:
        await loose(Agent(Scripted("Hi.")).stream("Hello."))

    asyncio.run(main())


@mistake("needs no `async with`")
def agent_as_a_context() -> None:
    async def main() -> None:
        async with loose(Agent(Scripted("Hi."))):
            pass

    asyncio.run(main())


@mistake("isinstance(event, ChatModelStream)")
def text_of_every_event() -> None:
    async def main() -> None:
        async for event in Agent(Scripted("Hi.")).stream("Hello."):
            print(loose(event).text)

    asyncio.run(main())


@mistake("Hi.")
def output_without_a_type() -> str:
    return str(Agent(Scripted("Hi.")).run_sync("Hello.").output)


@mistake("result.usage.total_tokens")
def usage_as_a_method() -> None:
    loose(Agent(Scripted("Hi.")).run_sync("Hello.").usage)()


@mistake("one argument, the request", "request.messages")
def function_model_of_messages_and_info() -> None:
    FunctionModel(loose(lambda messages, info: "Hi."))


@mistake("You said Hello.")
def text_of_a_request() -> str:
    return Agent(FunctionModel(lambda request: f"You said {request.text}")).run_sync("Hello.").text


@mistake("several replies are several arguments")
def scripted_with_a_list() -> None:
    Agent(Scripted(loose(["Hi.", "Bye."]))).run_sync("Hello.")


@mistake("ToolCall(id, name, args)")
def tool_call_without_an_id() -> None:
    ToolCall("search", loose({"query": "tea"}))


@mistake("return True, False, Allow(…) or Block(…)")
def approval_as_a_text() -> str:
    @guard(ToolUse)
    def confirm(use: ToolUse) -> Ask:
        return Ask("Search?")

    return transcript(agent_with(confirm, ask=loose(lambda question: "yes")))


@mistake("Subagent(name, description, prompt")
def agents_as_subagents() -> None:
    from wick.capabilities import Subagents

    Subagents([Agent(Scripted(), name="helper")])


@mistake("from wick.protocols import Model")
def protocol_of_the_package() -> None:
    from wick import Model, Request  # type: ignore[attr-defined]  # noqa: F401


@mistake("from wick.client import Client")
def client_of_the_package() -> None:
    from wick import Client  # type: ignore[attr-defined]  # noqa: F401


@mistake("is the name of a file", "give a folder, such as './data'", "Sqlite('chat.db')")
def sessions_in_a_file() -> None:
    from wick.capabilities.sessions import Sessions

    Sessions("chat.db")


@mistake("'th_1' of the owner 'local' has no messages", "user=")
def resume_without_the_user(folder: Path) -> None:
    from wick.capabilities.sessions import Sessions

    agent = Agent(Scripted("Hi."), hooks=[Sessions(folder)])
    agent.run_sync("Hello.", thread="th_1", user="ada")
    agent.run_sync(thread="th_1")


@mistake("agent.with_hooks(budgets[user])")
def budget_of_each_user() -> None:
    from wick.capabilities.budget import Budget

    loose(Budget)(tokens=1_000, per="user")


@mistake("an error that the model should handle is a ToolError")
def expected_failure_as_an_exception() -> None:
    @tool
    def find_order(number: int) -> str:
        """Find an order."""
        raise LookupError(f"there is no order {number}")

    Agent(Scripted(ToolCall("1", "find_order", {"number": 7}), "No."), tools=[find_order]).run_sync("Order 7?")


# -- the tests ------------------------------------------------------------------------------------------------------


def see_answer(program: Callable[..., object], folder: Path) -> str:
    """Return all that the author of a program sees: its error, its warnings and log, and the text it returns."""
    seen: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("wick").addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                seen.append(str(program(folder) if program.__code__.co_argcount else program()))
            except Exception as error:
                seen.append(str(error))
        seen += [str(warning.message) for warning in caught]
    finally:
        logging.getLogger("wick").removeHandler(handler)
    return "\n".join(seen)


def test_86_mistakes_are_listed() -> None:
    names = [entry.program.__name__ for entry in MISTAKES]
    assert len(names) == len(set(names)) == 86


@pytest.mark.parametrize("entry", MISTAKES, ids=lambda entry: entry.program.__name__)
def test_mistake_is_answered_by_the_fix(entry: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted, "watched", None)  # replies may remain: most programs end early
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    answer = see_answer(entry.program, tmp_path)
    missing = [word for word in entry.words if word not in answer]
    assert not missing, f"no {missing} in: {answer}"
