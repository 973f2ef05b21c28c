"""Words of other frameworks: each is answered by a sentence, and a sentence names only what wick has."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import wick
import wick.capabilities
from wick import (
    Agent,
    Block,
    Capability,
    Limits,
    ModelCall,
    Operation,
    Result,
    Run,
    Scripted,
    Step,
    ToolResult,
    ToolUse,
    after,
    before,
    guard,
    tool,
    wrap,
)  # fmt: skip
from wick._internal import familiar_words as words
from wick.agent import RunOptions, Stream
from wick.capabilities.budget import Budget
from wick.capabilities.sessions import Sessions
from wick.capabilities.subagents import Subagent
from wick.errors import ConfigError, HookError
from wick.events import ChatModelStart
from wick.hooks import Hook
from wick.protocols import Request, Usage

LooseAgent: Any = Agent
loose_tool: Any = tool
loose_budget: Any = Budget
loose_sessions: Any = Sessions
PACKAGES = {
    "wick": words.PACKAGE_NAMES,
    "wick.backends": words.BACKEND_NAMES,
    "wick.capabilities": words.CAPABILITY_NAMES,
    "wick.models": words.MODEL_NAMES,
    "wick.stores": words.STORE_NAMES,
    "wick.testing": words.TESTING_NAMES,
}
ALL = [
    words.AGENT_OPTIONS, words.RUN_OPTIONS, words.AGENT_ATTRIBUTES, words.RESULT_ATTRIBUTES, words.STREAM_ATTRIBUTES,
    words.TOOL_RESULT_ATTRIBUTES, words.REQUEST_ATTRIBUTES, words.TOOL_OPTIONS, words.ANSWER_OPTIONS,
    words.USAGE_ATTRIBUTES, words.EVENT_ATTRIBUTES, words.MESSAGE_ATTRIBUTES, words.HOOK_OPTIONS,
    words.SUBAGENT_OPTIONS, words.SESSIONS_ATTRIBUTES, *words.CAPABILITY_OPTIONS.values(),
    *words.OPERATION_ATTRIBUTES.values(),
    *PACKAGES.values(),
]  # fmt: skip


@pytest.mark.parametrize("name", words.AGENT_OPTIONS)
def test_an_option_of_another_framework_is_answered(name: str) -> None:
    assert name not in signature(Agent.__init__).parameters
    with pytest.raises(TypeError) as refused:
        LooseAgent(Scripted(), **{name: "x"})
    assert str(refused.value) == f"Agent() has no option {name}=; {words.AGENT_OPTIONS[name]}"


def test_a_misspelt_option_is_answered() -> None:
    with pytest.raises(TypeError, match="Agent\\(\\) has no option sytem=; did you mean system=\\?"):
        LooseAgent(Scripted(), sytem="x")
    with pytest.raises(TypeError, match="has no option colour=; the options are model, name, system, tools"):
        LooseAgent(Scripted(), colour="red")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'model'"):
        LooseAgent()


def test_a_subclass_may_have_an_option_of_this_name() -> None:
    class MyAgent(Agent):
        def __init__(self, model: Scripted, instructions: str) -> None:
            super().__init__(model, system=instructions)

    assert MyAgent(Scripted(), instructions="Be brief.").system == "Be brief."


@pytest.mark.parametrize("name", words.RUN_OPTIONS)
def test_an_option_of_a_run_is_answered(name: str) -> None:
    assert name not in RunOptions.__annotations__
    with pytest.raises(TypeError) as refused:
        LooseAgent(Scripted()).run_sync("hi", **{name: "x"})
    assert str(refused.value) == f"a run has no option {name}=; {words.RUN_OPTIONS[name]}"


@pytest.mark.parametrize(
    ("call", "owner", "table"),
    [
        (tool, "tool()", words.TOOL_OPTIONS),
        (guard, "@guard()", words.HOOK_OPTIONS),
        (Sessions.answer, "Sessions.answer()", words.ANSWER_OPTIONS),
        (Subagent, "Subagent()", words.SUBAGENT_OPTIONS),
        (Budget, "Budget()", words.CAPABILITY_OPTIONS["Budget"]),
        (Limits, "Limits()", words.CAPABILITY_OPTIONS["Limits"]),
        (Sessions, "Sessions()", words.CAPABILITY_OPTIONS["Sessions"]),
        (Block, "Block()", {name: words.DECISION_OPTIONS[name] for name in ("timeout", "expires")}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_of_other_functions_are_answered(call: Any, owner: str, table: dict[str, str]) -> None:
    for name, sentence in table.items():
        with pytest.raises(TypeError) as refused:
            call(**{name: "x"})
        assert str(refused.value) == f"{owner} has no option {name}=; {sentence}"
    with pytest.raises(TypeError, match="Budget\\(\\) has no option max_cost=; the options are tokens, dollars"):
        loose_budget(max_cost=3)
    with pytest.raises(TypeError, match="tool\\(\\) has no option timout=; did you mean timeout=\\?"):
        loose_tool(timout=3)


@pytest.mark.parametrize(
    ("owner", "table"),
    [
        (Agent(Scripted()), words.AGENT_ATTRIBUTES),
        (Result("Hi."), words.RESULT_ATTRIBUTES),
        (Agent(Scripted()).stream("hi"), words.STREAM_ATTRIBUTES),
        (ToolResult("Hi."), words.TOOL_RESULT_ATTRIBUTES),
        (Request(()), words.REQUEST_ATTRIBUTES),
        (Usage(), words.USAGE_ATTRIBUTES),
        (ChatModelStart(), words.EVENT_ATTRIBUTES),
        (wick.user("Hi."), words.MESSAGE_ATTRIBUTES),
        (ToolUse(Run(), wick.ToolCall("1", "add"), None, {}), words.OPERATION_ATTRIBUTES["tool_use"]),
        (Run(), words.OPERATION_ATTRIBUTES["run"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_attributes_of_other_frameworks_are_answered(owner: object, table: dict[str, str]) -> None:
    for name, sentence in table.items():
        with pytest.raises(AttributeError) as refused:
            getattr(owner, name)
        assert str(refused.value) == f"'{type(owner).__name__}' object has no attribute '{name}'; {sentence}"
        assert (refused.value.name, refused.value.obj) == (name, owner)
    assert not hasattr(owner, "something")
    with pytest.raises(AttributeError, match=r"has no attribute 'something'$"):
        owner.something  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_of_other_frameworks_are_answered(package: str) -> None:
    module = importlib.import_module(package)
    for name, sentence in PACKAGES[package].items():
        assert name not in module.__all__
        with pytest.raises(ImportError) as refused:
            getattr(module, name)
        assert str(refused.value) == f"there is no {name} in {package}; {sentence}"
    assert not hasattr(module, "something")


def test_a_name_of_another_package_is_answered() -> None:
    with pytest.raises(ImportError, match=r"write `from wick\.capabilities import Sessions`"):
        wick.Sessions  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match=r"did you mean `from wick import Agent`"):
        from wick import Agnet  # type: ignore[attr-defined]  # noqa: F401


def test_sentences_name_only_what_wick_has() -> None:
    known = {*wick.__all__, *wick.capabilities.__all__}
    sentences = {sentence for table in ALL for sentence in table.values()}
    for sentence in sentences:
        for call in re.findall(r"(?<![\w.])([A-Z]\w+)\(", sentence):
            assert call in known | {"Agent"}, sentence
        for package, names in re.findall(r"`from (wick[\w.]*) import ([\w, ]+)`", sentence):
            assert {*names.split(", ")} <= {*importlib.import_module(package).__all__}, sentence
        for attribute in re.findall(r"\bagent\.(\w+)", sentence):
            assert hasattr(Agent, attribute) or attribute == "system", sentence
        for attribute in re.findall(r"\bresult\.(\w+)", sentence):
            assert attribute in (*Result.__slots__, "output", "price", *ToolResult.__slots__), sentence
        for attribute in re.findall(r"\brequest\.(\w+)", sentence):
            assert hasattr(Request, attribute), sentence
        for attribute in re.findall(r"\bstream\.(\w+)", sentence):
            assert hasattr(Stream, attribute), sentence


def test_to_import_the_capabilities_imports_none_of_them() -> None:
    program = (
        "import sys, wick; old = {*sys.modules}; import wick.capabilities, wick.stores, wick.backends, wick.models"
    )
    program += "\nprint(*({*sys.modules} - old))\nfrom wick.capabilities import Budget\nprint(*({*sys.modules} - old))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = ({name for name in line.split() if name.startswith("wick")} for line in done.stdout.splitlines())
    assert first <= {"wick.stores", "wick.backends"}
    assert second - first == {"wick.capabilities.budget"}


# -- decorators without parentheses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [Run, Step, ModelCall, ToolUse, Operation])
@pytest.mark.parametrize("decorator", [before, after, guard, wrap])
def test_the_annotation_names_the_operation(decorator: Any, operation: Any) -> None:
    def plain(op: Any) -> None: ...

    async def around(op: Any, next: Any) -> Any: ...

    fn = around if decorator is wrap else plain
    fn.__annotations__["op"] = operation
    hooks = [decorator(fn), decorator()(fn), decorator(operation)(fn), decorator(priority=2)(fn)]
    assert [hook.operation for hook in hooks] == [operation] * 4
    assert {hook.position for hook in hooks} == {decorator.__name__}
    assert hooks[3].priority == 2
    assert all(isinstance(hook, Hook) for hook in hooks)


def test_a_guard_without_parentheses_decides() -> None:
    @tool
    def search(query: str) -> str:
        """Search."""
        return query

    class Careful(Capability):
        @guard
        def refuse(self, use: ToolUse) -> Block | None:
            return Block("not now")

    @before
    def shorten(run: Run[Any]) -> None:
        run.system = "Be brief."

    model = Scripted(wick.ToolCall("1", "search", {"query": "tea"}), "Done.")
    result = Agent(model, tools=[search], hooks=[Careful(), shorten]).run_sync("hi")
    assert result.messages.tool_messages()[0].text == "not now"
    assert model.requests[0].system == "Be brief."


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda op: None, r"@guard needs to know the operation of <lambda>: write @guard\(ToolUse\), or annotate"),
        ("execute", r"tools are matched with @guard\(ToolUse, match='execute'\)"),
        (5, r"@guard takes an operation, as in @guard\(ToolUse\), not 5"),
        (Scripted, "a hook is for Run, Step, ModelCall, ToolUse or Operation"),
    ],
)
def test_a_decorator_without_an_operation_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(HookError, match=sentence):
        guard(given)(lambda use: None)


# -- reserved names of capabilities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["name", "hooks", "tools", "foreign_tools", "instruction_paths", "session"])
def test_a_hook_or_tool_with_a_reserved_name_is_refused(name: str) -> None:
    hook = before(ToolUse, name=name)(lambda self, use: None)
    with pytest.raises(ConfigError, match=f"Audit.{name} is a hook, but '{name}' is reserved in a Capability; give it"):
        type("Audit", (Capability,), {name: hook})

    @tool
    def helper(self: Any) -> str:
        """Help."""
        return ""

    with pytest.raises(ConfigError, match=f"Audit.{name} is a tool, but '{name}' is reserved"):
        type("Audit", (Capability,), {name: helper})


def test_data_with_a_reserved_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Audit.tools is \[\], but 'tools' is reserved for a method of Capability"):
        type("Audit", (Capability,), {"tools": []})
    with pytest.raises(
        ConfigError, match="Audit.name is 5, but 'name' is reserved for the name of a Capability, a text"
    ):
        type("Audit", (Capability,), {"name": 5})

    class Audit(Capability):
        def __init__(self) -> None:
            self.hooks = []  # type: ignore[method-assign, assignment]

    with pytest.raises(ConfigError, match=r"self.hooks of Audit is \[\], but 'hooks' is reserved"):
        Agent(Scripted(), hooks=[Audit()])


def test_reserved_methods_may_be_overridden() -> None:
    class Audit(Capability):
        name = "audit"

        def tools(self) -> list[wick.Tool]:
            return []

    assert Agent(Scripted(), hooks=[Audit()]).tools == ()


# -- parts in the wrong list ------------------------------------------------------------------------------------------


def test_hooks_and_agents_are_not_tools() -> None:
    with pytest.raises(ConfigError, match=r"an agent is not a tool; other agents are hooks=\[Subagents"):
        Agent(Scripted(), tools=[LooseAgent(Scripted())])
    with pytest.raises(ConfigError, match=r"limits is not a tool; hooks and capabilities are hooks=\["):
        LooseAgent(Scripted(), tools=[wick.Limits()])


def test_the_name_of_a_tool_is_a_keyword() -> None:
    with pytest.raises(ConfigError, match=r"not 'search'; to name one, write @tool\(name='search'\) above it"):
        tool("search")  # type: ignore[call-overload]


def test_a_tool_that_describes_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def roll(sides, *, run: Run):  # type: ignore[no-untyped-def]
        return 4

    tool(len, name="count", parameters={"type": "object"})  # its schema describes it
    assert [record.getMessage() for record in caplog.records] == [
        "the tool roll has no docstring: write one, so that the model knows when to use it",
        "the parameter sides of the tool roll has no type: annotate it, as in `sides: str`, so that the model knows "
        "which values it takes",
    ]


FOUND = {
    "Sqlite": "`from wick.stores import Sqlite`",
    "Local": "`from wick.models import Local` or `from wick.backends import Local`",
    "ConfigError": "`from wick.errors import ConfigError`",  # protocols import it, too
    "Done": "`from wick.events import Done`",
    "Delta": "`from wick.protocols import Delta`",
    "ImagePart": "`from wick.messages import ImagePart`",
    "Cassette": "`from wick.testing import Cassette`",
    "NewCassette": "`from wick.testing import NewCassette`",
    "Memory": "`from wick.capabilities import Memory`",  # a familiar word for stores, too
}


@pytest.mark.parametrize("name", FOUND)
def test_a_name_of_another_module_is_answered_with_its_import(name: str) -> None:
    with pytest.raises(ImportError) as refused:
        getattr(wick, name)
    assert str(refused.value) == f"there is no {name} in wick; write {FOUND[name]}"


@pytest.mark.parametrize("package", [name for name in PACKAGES if name != "wick"])
def test_every_package_answers_names_of_other_frameworks(package: str) -> None:
    with pytest.raises(ImportError, match=rf"^there is no AbstractCapability in {package}; write a Capability"):
        importlib.import_module(package).AbstractCapability  # noqa: B018


def test_the_server_is_not_imported_to_answer_its_name() -> None:
    program = """
import sys
try:
    from wick import Server
except ImportError as error:
    print(error, "wick.server" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "there is no Server in wick; write `from wick.server import Server` False\n"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: loose_sessions(), 'Sessions() needs store; Sessions("./sessions") stores threads in a folder'),
        (lambda: loose_sessions(busy="wait"), "Sessions() needs store; "),
        (
            lambda: loose_sessions("./a", "wait"),
            "Sessions() takes 1 positional argument, not 2; Sessions(",
        ),
        (
            lambda: LooseAgent(Scripted()).run_sync("hi", {}),
            'agent.run_sync() takes 1 positional argument, not 2; deps are deps=…: agent.run_sync("…", deps=…)',
        ),
        (lambda: loose_sessions("./a").questions(), "Sessions.questions() needs id; questions are `await sessions.qu"),
        (
            lambda: loose_sessions("./a").threads("ada"),
            "Sessions.threads() takes 0 positional arguments, not 1; the owner is owner=…",
        ),
        (
            lambda: loose_sessions("./a").answer("t", "ask_1", "deny", "no"),
            "Sessions.answer() takes 3 positional arguments, not 4; an answer is `await sessions.answer(id, ",
        ),
        (
            lambda: loose_sessions("./a").iter_questions(owner="ada"),
            "Sessions.iter_questions() has no option owner=; it iterates over the threads of all owners",
        ),
        (lambda: LooseAgent(Scripted()).run("hi", {}), 'deps are deps=…: agent.run("…", deps=…)'),
        (lambda: LooseAgent(Scripted()).stream("hi", {}), 'deps are deps=…: agent.stream("…", deps=…)'),
    ],
)
def test_missing_and_surplus_arguments_are_answered(call: Any, sentence: str) -> None:
    with pytest.raises(TypeError, match=re.escape(sentence)):
        call()


# -- the migration guides ---------------------------------------------------------------------------------------------

COMING_FROM = Path(__file__).parents[2] / "docs" / "coming-from"
PAGES_OF_PYTHON = sorted({*COMING_FROM.glob("*.md")} - {COMING_FROM / "claude-code.md", COMING_FROM / "kodelet.md"})
LOWER_CASE = {  # methods, parameters and builtins in the tables, which are not imported
    *("f", "handler", "str", "raise_exception", "reject_content", "tool_context"),
    "agent",  # called as a function, which Agent.__call__ answers
}


def list_words_of_tables(page: Path) -> list[str]:
    """Return the code in the first column of the tables, except for lines of wick's own code."""
    found = list[str]()
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        head, _, *rows = table.splitlines()
        if not head.startswith("| You write"):
            found += [word for row in rows for word in re.findall(r"`([^`]+)`", row.split("|")[1])]
    return found


@pytest.mark.parametrize("page", PAGES_OF_PYTHON, ids=lambda page: page.stem)
def test_words_of_the_migration_guides_are_accepted_or_answered(page: Path) -> None:
    """A class, decorator or function is answered when it is imported, an option or attribute where it is used."""
    answered = {name for table in ALL for name in table}
    used = {*signature(Agent.__init__).parameters, *RunOptions.__annotations__, *vars(Agent)}
    missing = list[str]()
    for word in list_words_of_tables(page):
        found = re.fullmatch(r"@?(\w+)(?:[\[(.=].*)?", word)
        if found is None or re.match(r"@?[a-z]\w*\.", word):  # an expression, or an attribute of an object
            continue
        name = found[1]
        if name in wick.__all__ or name in LOWER_CASE:
            continue
        if name[0].islower() and not word.startswith("@") and name in answered | used | {"input"}:
            continue
        try:
            getattr(wick, name)
        except ImportError as error:
            missing += [name] if "did you mean" in str(error) else []
        except AttributeError:
            missing.append(name)
    assert missing == [], "add these words to familiar_words.py"


@pytest.mark.parametrize("page", PAGES_OF_PYTHON, ids=lambda page: page.stem)
def test_the_migration_guides_promise_answers(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(list_words_of_tables(page)) > 10
    assert page.stem == "index" or "familiar\nwords](index.md#familiar-words)" in text
