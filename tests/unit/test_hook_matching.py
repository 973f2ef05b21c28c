"""The `match` of a hook."""

from __future__ import annotations

from typing import Any

import pytest

from kit import OperationLog, agent_for, echo, execute, tool_agent, tool_call, tool_calls_reply, tool_result
from wick import (  # fmt: skip
    Agent,
    Block,
    Capability,
    ModelCall,
    Operation,
    Run,
    Scripted,
    Step,
    Thread,
    Tool,
    ToolCall,
    ToolUse,
    after,
    assistant,
    before,
    guard,
    tool,
    user,
    wrap,
)
from wick.errors import ConfigError, HookError
from wick.hooks import Match, Next, compile_match, is_plain_name, parse_patterns


def use(of: Tool = echo, name: str = "", **args: Any) -> ToolUse:
    return ToolUse(Run(), tool_call(name or of.name, **args), of, args)


# rule 11: names, patterns and predicates


@pytest.mark.parametrize(
    ("match", "names"),
    [
        (None, ()),
        ("execute", ("execute",)),
        ("read_*| ls ", ("read_*", "ls")),
        (["a|b", "c"], ("a", "b", "c")),
        (("kind:shell",), ("kind:shell",)),
        (len, ()),
    ],
)
def test_the_patterns_of_a_match(match: Match, names: tuple[str, ...]) -> None:
    assert parse_patterns(match) == names


@pytest.mark.parametrize("match", ["", "|", [], [""], [" | "]])
def test_a_match_that_names_nothing_is_refused(match: Match) -> None:
    with pytest.raises(HookError, match="names nothing; leave it out to match everything"):
        guard(ToolUse, match=match)(lambda use: None)


@pytest.mark.parametrize(
    ("pattern", "plain"), [("execute", True), ("read_*", False), ("r?m", False), ("[ab]", False), ("kind:shell", False)]
)
def test_a_literal_is_the_plain_name_of_one_tool(pattern: str, plain: bool) -> None:
    assert is_plain_name(pattern) is plain


@pytest.mark.parametrize(
    ("match", "found"),
    [
        (None, True),
        ("echo", True),
        ("ECHO", False),
        ("ech", False),
        ("e*", True),
        ("?cho", True),
        ("[de]cho", True),
        ("x|echo", True),
        (["x", "y*", "ec*"], True),
        ("x|y*", False),
        ("*", True),
    ],
)
def test_patterns_are_compared_with_the_tools_name(match: Match, found: bool) -> None:
    assert compile_match(match)(use()) is found


@pytest.mark.parametrize("match", ["execute", "exe*", "bash", "Bash", "B?sh", "run_it", "run_*"])
def test_a_renamed_tool_is_matched_by_its_name_its_origin_and_its_aliases(match: str) -> None:
    renamed = tool(execute.fn, name="execute").renamed("run_it")
    assert compile_match(match)(use(renamed, command="ls"))
    assert not compile_match(match)(use(echo))


def test_a_tool_can_have_aliases_of_its_own() -> None:
    mine = tool(echo.fn, name="say", aliases=("speak",))
    assert compile_match("speak")(use(mine))
    assert compile_match("speak")(use(mine.renamed("x_say").renamed("y_say")))


@pytest.mark.parametrize(
    ("match", "found"),
    [("kind:shell", True), ("kind:read", False), ("kind:sh*", True), ("kind:*", True), ("x|kind:shell", True)],
)
def test_a_kind_is_matched(match: str, found: bool) -> None:
    assert compile_match(match)(use(execute, command="ls")) is found


def test_a_tool_without_a_kind_has_none_and_a_kind_is_not_a_name() -> None:
    assert not compile_match("kind:shell")(use(echo))
    assert not compile_match("k*")(use(execute, command="ls"))
    assert not compile_match("shell")(use(execute, command="ls"))


def test_the_name_that_the_model_used_is_matched_even_if_a_hook_took_another_tool() -> None:
    swapped = use(execute, name="echo", command="ls")
    assert compile_match("echo")(swapped) and compile_match("execute")(swapped)


def test_a_predicate_sees_the_operation() -> None:
    loud = compile_match(lambda use: use.args.get("text", "").isupper())
    assert loud(use(text="HI")) and not loud(use(text="hi"))
    assert compile_match(lambda use: use.args)(use(text="hi")) is True  # its return value is a truth value


def test_other_operations_are_matched_by_agent_model_and_kind() -> None:
    run = Run(agent="helper", model=Scripted(name="small", spare=True))
    assert compile_match("help*")(run) and not compile_match("other")(run)
    assert compile_match("small")(ModelCall(run, run.model, "", [], [], {}))
    assert compile_match("step")(Step(run, 1))


@pytest.mark.parametrize("position", [before, after, guard])
async def test_a_hook_is_called_only_where_it_matches(position: Any) -> None:
    here, there = OperationLog(), OperationLog()
    hooks = [
        position(ToolUse, match="echo", name="here")(here),
        position(ToolUse, match="kind:shell", name="there")(there),
    ]
    await agent_for(ToolUse, *hooks).run("go")
    assert here.op.call.name == "echo"
    assert there.ops == []


async def test_a_wrap_is_called_only_where_it_matches() -> None:
    @wrap(ToolUse, match="other*")
    async def refuse(use: ToolUse, next: Next[Any]) -> Block:
        return Block("no")

    assert tool_result(await agent_for(ToolUse, refuse).run("go")) == "hi"


async def test_a_match_sees_changes_of_outer_hooks() -> None:
    @before(ToolUse)
    async def louder(use: ToolUse) -> None:
        use.args["text"] = "HI"

    quiet = guard(ToolUse, match=lambda use: use.args["text"].isupper(), name="quiet")(lambda use: Block("hush"))
    assert tool_result(await agent_for(ToolUse, quiet, louder).run("go")) == "hush"


# rule 9: a guard whose match fails denies


async def test_a_guard_with_a_failing_predicate_blocks() -> None:
    deny = guard(ToolUse, match=lambda use: use.args["nothing"], name="deny")(lambda use: None)
    text = tool_result(await agent_for(ToolUse, deny).run("go"))
    assert text == "the guard 'deny' failed, so it has not agreed: KeyError: 'nothing'"


@pytest.mark.parametrize("position", ["before", "wrap"])
async def test_a_before_or_wrap_with_a_failing_predicate_fails_the_operation(position: str) -> None:
    async def around(use: ToolUse, next: Next[Any]) -> Any:
        return await next(use)

    def broken(use: ToolUse) -> bool:
        raise LookupError("which?")

    for on_error in ("fail", "log"):
        options: Any = {"match": broken, "on_error": on_error, "name": "h"}
        hook = wrap(ToolUse, **options)(around) if position == "wrap" else before(ToolUse, **options)(lambda use: None)
        agent = agent_for(ToolUse, hook)
        if on_error == "log":
            assert tool_result(await agent.run("go")) == "hi"
            continue
        with pytest.raises(LookupError, match=r"which\?"):
            await agent.run("go")


@pytest.mark.parametrize("hold", [False, True])
async def test_an_after_with_a_failing_predicate_withholds_the_result(hold: bool) -> None:
    hook = after(ToolUse, match=lambda use: use.args["nothing"], name="redact", hold=hold)(lambda use: None)
    text = tool_result(await agent_for(ToolUse, hook).run("go"))
    assert text == "the result was withheld: the hook 'redact' failed: KeyError"


# rule 11: a guard whose literal match names nothing is an error at construction


def deny(match: Match, operation: Any = ToolUse) -> Any:
    return guard(operation, match=match, name="deny")(lambda use: Block("no"))


@pytest.mark.parametrize("match", ["exceute", ["exceute", "ecko"], "exceute|ecko", "Execute"])
def test_a_guard_for_an_unknown_tool_is_an_error(match: Match) -> None:
    with pytest.raises(ConfigError, match="the guard 'deny' is for 'E?e?x?c?e") as error:
        Agent(Scripted(spare=True), tools=[echo, execute], hooks=[deny(match)])
    said = "but there is no such tool; the tools are echo, execute; did you mean 'execute'?"
    assert str(error.value).endswith(said)


WRONG = {
    "execute|ecko": "is for 'ecko', but there is no such tool; the tools are echo, execute; did you mean 'echo'?",
    "echo|exec_*": "is for 'exec_*', but no tool of this agent fits it",
    "nothing_*": "is for 'nothing_*', but no tool of this agent fits it",
    "kind:shel": "is for 'kind:shel', but there is no such kind of tools; .* did you mean 'kind:shell'?",
    "execute|kind:nothing": "is for 'kind:nothing', but there is no such kind of tools; the kinds are agent, ",
    "kind:x*": "is for 'kind:x*', but there is no such kind",
    "execute|Execute|ls": "is for 'Execute', but there is no such tool",
}


def silent(match: Match) -> bool:
    """Return True if a guard with a wrong match is taken."""
    try:
        Agent(Scripted(spare=True), tools=[echo, execute], hooks=[deny(match)])
    except ConfigError as error:
        words = WRONG["|".join([match] if isinstance(match, str) else match)]
        assert all(part in str(error) for part in words.split(" .* ")), str(error)
        return False
    return True


@pytest.mark.parametrize("match", WRONG)
def test_each_part_of_a_match_is_checked(match: str) -> None:
    assert not silent(match)
    assert not silent(match.split("|"))


def test_an_unchecked_match_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.agent._check_matches", lambda *given: None)
    assert silent("execute|ecko")


@pytest.mark.parametrize("position", [before, after])
def test_a_misspelled_match_is_detected_at_other_positions(position: Any) -> None:
    with pytest.raises(ConfigError, match="hook 'typo' is for 'exceute', but .* did you mean 'execute'"):
        Agent(
            Scripted(spare=True),
            tools=[execute],
            hooks=[position(ToolUse, match="exceute", name="typo")(OperationLog())],
        )


def test_a_guard_at_all_four_is_checked_too_and_an_agent_may_have_no_tools() -> None:
    with pytest.raises(ConfigError, match=r"the tools are \(none\)"):
        Agent(Scripted(spare=True), hooks=[deny("execute", Operation)])


@pytest.mark.parametrize(
    "match", ["execute", "bash", "exec*", "kind:shell", "kind:*", None, "execute|ls", "execute|read_*"]
)
def test_a_guard_for_a_tool_an_alias_or_a_pattern_is_fine(match: Match) -> None:
    Agent(Scripted(spare=True), tools=[execute], hooks=[deny(match)])


def test_a_guard_may_name_the_origin_of_a_renamed_tool() -> None:
    Agent(Scripted(spare=True), tools=[execute.renamed("run_it")], hooks=[deny("execute")])


def test_other_hooks_may_match_unknown_tools() -> None:
    hooks = [
        before(ToolUse, match="exceute", name="a")(lambda use: None),
        guard(ModelCall, match="some-model", name="b")(lambda call: None),
        guard(Run, match="some-agent", name="c")(lambda run: None),
    ]
    Agent(Scripted(spare=True), hooks=hooks)


@pytest.mark.parametrize("tools", ["late", "lat*", ["other", "late"]])
async def test_a_guard_may_name_a_tool_added_at_run_start(tools: Any) -> None:
    @before(Run, tools=tools)
    async def bring(run: Run) -> None:
        run.tools["late"] = echo.renamed("late")

    model = Scripted(tool_calls_reply(tool_call("late")), "done")
    assert tool_result(await Agent(model, hooks=[deny("late"), bring]).run("go")) == "no"


def test_a_guard_may_name_a_tool_that_a_capability_declares_foreign() -> None:
    class Remote(Capability):
        def foreign_tools(self) -> list[str]:
            return ["remote_*", "sub_tool"]

    for match in ("remote_search", "sub_tool"):
        Agent(Scripted(spare=True), hooks=[Remote(), deny(match)])
    with pytest.raises(ConfigError, match="no such tool"):
        Agent(Scripted(spare=True), hooks=[Remote(), deny("sub_toll")])


def test_a_guard_may_name_a_capability_tool() -> None:
    class Brings(Capability):
        @tool
        async def fetch(self, url: str) -> str:
            return url

        @before(Run, tools="dynamic")
        async def bring(self, run: Run) -> None: ...

    for match in ("fetch", "dynamic"):
        Agent(Scripted(spare=True), hooks=[Brings(), deny(match)])


async def test_a_guard_for_the_canonical_name_guards_the_tool_under_every_name() -> None:
    renamed = execute.renamed("mcp_execute")
    for match in ("execute", "bash", "mcp_*", "kind:shell"):
        assert tool_result(await tool_agent(renamed, deny(match), args={"command": "ls"}).run("go")) == "no"


async def test_a_call_of_a_removed_tool_is_answered() -> None:
    thread = Thread()
    thread.add(user("go"), tool_calls_reply(tool_call("gone")))
    result = await Agent(Scripted("done"), tools=[echo]).run(thread=thread)
    assert thread.messages[2].text == "there is no tool named 'gone'; the tools are echo"
    assert result.text == "done"


@tool(effect="pay", targets=["to"])
def pay(to: str) -> str:
    """Pay a bill."""
    return f"paid {to}"


@tool(effect="read", private="mail")
def read_mail() -> str:
    """Read the mail."""
    return "mail"


@tool
def undeclared() -> str:
    """Change something."""
    return "changed"


@pytest.mark.parametrize(
    ("match", "refused"),
    [
        ("effect:pay", ["pay"]),
        ("effect:change", ["undeclared"]),
        ("effect:[pr]*", ["pay", "read_mail"]),
        ("private:mail", ["read_mail"]),
        ("private:*", ["read_mail"]),
        ("private:calendar|effect:send", []),
        (["private:mail", "pay"], ["pay", "read_mail"]),
    ],
)
def test_a_guard_matches_tools_by_what_they_declare(match: str | list[str], refused: list[str]) -> None:
    @guard(ToolUse, match=match)
    def refuse(use: ToolUse) -> Block:
        return Block("no")

    calls = (ToolCall("1", "pay", {"to": "x"}), ToolCall("2", "read_mail", {}), ToolCall("3", "undeclared", {}))
    agent = Agent(Scripted(assistant("", *calls), "Done."), tools=[pay, read_mail, undeclared], hooks=[refuse])
    results = [message for message in agent.run_sync("Go.").messages if message.role == "tool"]
    assert [message.name for message in results if message.failed] == refused


def test_an_effect_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HookError, match="there is no such effect; use account, change"):
        guard(ToolUse, match="effect:sned")(lambda use: None)
