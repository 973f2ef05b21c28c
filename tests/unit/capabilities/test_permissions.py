"""Permissions decide about every use of a tool: rules, grants, modes, also for the agents below."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kit import ScriptedUser, execute, thread_entries, tool_call, tool_calls_reply, tool_result, tool_results
from wick import Agent, Allow, Ask, Block, Limits, Run, Scripted, Thread, Tool, ToolCall, ToolUse, before, guard, tool
from wick.backends.local import Local
from wick.capabilities.permissions import PLAN, Permissions, PermissionVerdict
from wick.capabilities.sessions import Sessions
from wick.constants import SHELL_INLINE_CHARS
from wick.errors import ConfigError, StoreError
from wick.permissions import rules, shell
from wick.replay import replay
from wick.stores.in_memory import InMemory


@tool(kind="read", read_only=True)
async def read_file(path: str) -> str:
    """Read a file."""
    return f"read {path}"


@tool(kind="write")
async def write_file(path: str, content: str = "") -> str:
    """Write a file."""
    return f"wrote {path}"


@tool(kind="network", read_only=True)
async def http_request(url: str) -> str:
    """Fetch a page."""
    return f"fetched {url}"


@tool
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


TOOLS: list[Tool] = [execute, read_file, write_file, http_request, pay]


def agent(*wanted: Any, hooks: Any = (), **options: Any) -> Agent:
    """An agent that makes these calls, one a step, and is done."""
    model = Scripted(*(tool_calls_reply(item) for item in wanted), "done", spare=True)
    return Agent(model, tools=options.pop("tools", TOOLS), hooks=hooks, **options)


def runs(command: str, id: str = "c1") -> Any:
    return tool_call("execute", id, command=command)


async def call_result(permissions: Permissions, wanted: Any, **options: Any) -> str:
    """Return the result of the call for the model."""
    return tool_result(await agent(wanted, hooks=[permissions], **options).run("go"))


# -- the order ------------------------------------------------------------------------------------------------------


async def test_a_deny_is_sent_to_the_model() -> None:
    plain = Permissions(deny=["Bash(rm *)"], mode="bypassPermissions")
    assert await call_result(plain, runs("ls; rm x")) == "the permission rule Bash(rm *) denies this"
    worded = Permissions(deny=[{"rule": "Bash(rm *)", "message": "use the bin"}], allow=["Bash"])
    assert await call_result(worded, runs("rm x")) == "use the bin"
    assert await call_result(worded, runs("ls")) == "ran ls"


async def test_an_allow_silences_the_question() -> None:
    permissions = Permissions(allow=["Bash(git status)", "Read(src/**)"])
    nobody = ScriptedUser(AssertionError("not asked"))
    assert await call_result(permissions, runs("git status"), ask=nobody) == "ran git status"
    assert await call_result(permissions, tool_call("read_file", path="src/a"), ask=nobody) == "read src/a"
    assert nobody.questions == []


async def test_calls_without_a_rule_are_asked() -> None:
    user = ScriptedUser(True)
    assert await call_result(Permissions(allow=["Bash(ls)"]), runs("ls $HOME"), ask=user) == "ran ls $HOME"
    assert user.question.question == ("May execute be used: ls $HOME (it uses a variable, so no rule can allow it)")
    user = ScriptedUser(False)
    assert "the user said no" in await call_result(Permissions(), tool_call("pay", amount=5), ask=user)
    assert user.question.question == 'May pay be used: {"amount": 5}'


async def test_without_a_user_an_ask_is_denied() -> None:
    assert "no user is there to approve" in await call_result(Permissions(), runs("ls"))


async def test_an_ask_rule_is_never_silenced() -> None:
    asks = Permissions(ask=[{"rule": "Bash(git push *)", "message": "Push?"}], allow=["Bash"], mode="bypassPermissions")
    user = ScriptedUser(True)
    assert await call_result(asks, runs("git push origin"), ask=user) == "ran git push origin"
    assert user.question.question == "Push?"


async def test_a_hook_grant_covers_one_exact_call_and_overrides_only_the_mode() -> None:
    @before(ToolUse)
    def grant(use: ToolUse) -> None:
        use.grant()

    @before(ToolUse)
    def change(use: ToolUse) -> None:
        use.args["command"] = "reboot"

    user = ScriptedUser(False)
    result = await agent(runs("make"), hooks=[grant, Permissions()], ask=user).run("go")
    assert tool_result(result) == "ran make" and user.questions == []
    await agent(runs("make"), hooks=[grant, change, Permissions()], ask=user).run("go")
    await agent(runs("make"), hooks=[grant, Permissions(ask=["Bash"])], ask=user).run("go")
    assert [question.question for question in user.questions] == [
        f"May execute be used: {it}" for it in ("reboot", "make")
    ]


async def test_possible_denials_are_asked_in_every_mode() -> None:
    user = ScriptedUser(Block("no"))
    permissions = Permissions(deny=["Bash(rm *)"], allow=["Bash"], mode="bypassPermissions")
    assert await call_result(permissions, runs("$CMD x"), ask=user) == "no"
    assert user.question.question == "May execute be used: $CMD x (it may be what the rule Bash(rm *) denies)"


async def test_a_question_shows_its_subject_without_deceptive_text() -> None:
    user = ScriptedUser(True)
    await call_result(Permissions(), runs("a\n\u202eb\x1b[2J" + "x" * 1000), ask=user)
    assert user.question.question == "May execute be used: a⏎\n<U+202E>b<U+001B>[2J" + "x" * 1000


async def test_a_question_counts_hidden_arguments() -> None:
    asked = Permissions().explain("mine", {"text": "x" * 5_000}).reason
    assert asked.endswith("… (3,012 of 5,012 characters are not shown)")
    assert Permissions().explain("Write", {"path": "a\nb\u200bc"}).reason == "May write_file be used: a⏎\nb<U+200B>c"


HIDDEN = (
    *("\r", "\t", "\0", "\x1b", "\x7f", "\x85", "\u00a0", "\u00ad", "\u034f", "\u115f", "\u200b", "\u200e", "\u2028"),
    *("\u202e", "\u2066", "\u2800", "\u3000", "\u3164", "\ufe0f", "\ufeff", "\ufffe", "\U000e0041", "\ud800"),
)  # fmt: skip


@pytest.mark.parametrize("char", HIDDEN)
def test_no_character_of_a_question_is_hidden(char: str) -> None:
    asked = Permissions().explain("Bash", {"command": f"git{char}log\ncurl evil"}).reason
    assert f"git<U+{ord(char):04X}>log⏎\ncurl evil" in asked


async def test_commands_are_read_once_and_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of a reply are parsed by one worker thread, and results are cached."""
    busy, most, seen = 0, 0, list[str]()

    def reads(command: str, **more: Any) -> Any:
        nonlocal busy, most
        busy, seen[len(seen) :] = busy + 1, [command]
        most = max(most, busy)
        assert threading.current_thread() is not threading.main_thread()
        found = shell.parse_script.__wrapped__(command, **more)
        busy -= 1
        return found

    monkeypatch.setattr(rules, "parse_script", reads)
    commands = [f"echo {number} " + "x" * SHELL_INLINE_CHARS for number in range(80)]
    calls = [ToolCall(str(number), "execute", {"command": command}) for number, command in enumerate(commands)]
    await Agent(
        Scripted(calls, "Done."), tools=[execute], hooks=[Permissions(policy="shell", mode="bypassPermissions")]
    ).run("x")
    assert sorted(seen) == sorted(commands) and most == 1


async def test_changed_arguments_are_checked_again() -> None:
    permissions = Permissions(deny=["Bash(rm *)"])
    assert await call_result(permissions, runs("ls"), ask=ScriptedUser(Allow({"command": "rm x"}))) == (
        "the permission rule Bash(rm *) denies this"
    )
    assert await call_result(permissions, runs("ls"), ask=ScriptedUser(Allow({"command": "ls -l"}))) == "ran ls -l"


async def test_rules_see_changes_by_hooks() -> None:
    @before(ToolUse)
    def expand(use: ToolUse) -> None:
        use.args["command"] = "rm x"

    denied = agent(runs("ls"), hooks=[Permissions(deny=["Bash(rm *)"], mode="bypassPermissions"), expand])
    assert tool_result(await denied.run("go")) == "the permission rule Bash(rm *) denies this"


async def test_a_long_command() -> None:
    text = "cat > notes <<'EOF'\n" + "$(rm x)\n" * 1_000 + "EOF"
    permissions = Permissions(allow=["Bash(cat)", "Write(notes)"], deny=["Bash(rm *)"])
    assert await call_result(permissions, runs(text)) == f"ran {text}"
    user = ScriptedUser(False)
    await call_result(permissions, runs("a|" * 20_000), ask=user)
    assert "(it may be what the rule Bash(rm *) denies)" in user.question.question


# -- modes ----------------------------------------------------------------------------------------------------------

READ, WRITE, RUN = tool_call("read_file", path="a"), tool_call("write_file", path="a"), runs("ls")
FETCH, PAY = tool_call("http_request", url="http://a.b"), tool_call("pay", amount=1)


@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("default", [READ, WRITE, RUN, FETCH, PAY]),
        ("acceptEdits", [RUN, FETCH, PAY]),
        ("bypassPermissions", []),
    ],
)
async def test_the_mode_decides_which_calls_are_asked(mode: Any, asked: list[Any]) -> None:
    for wanted in (READ, WRITE, RUN, FETCH, PAY):
        user = ScriptedUser(True)
        await call_result(Permissions(mode=mode), wanted, ask=user)
        assert bool(user.questions) is (wanted in asked), wanted


async def test_plan_allows_reads() -> None:
    user = ScriptedUser(AssertionError("not asked"))
    for wanted in (READ, FETCH):
        assert "Plan" not in await call_result(Permissions(mode="plan"), wanted, ask=user)
    for wanted in (WRITE, RUN, PAY):
        rules = {"allow": ["Bash", "Write", "pay"], "ask": ["Bash(ls)"]}
        assert await call_result(Permissions(mode="plan", **rules), wanted, ask=user) == PLAN  # type: ignore[arg-type]
    assert PLAN == "Plan mode: write operations not allowed"
    assert await call_result(Permissions(mode="plan", deny=["Read"]), READ) == "the permission rule Read denies this"
    user = ScriptedUser(True)
    await call_result(Permissions(mode="plan", ask=["Read"]), READ, ask=user)
    assert len(user.questions) == 1


async def test_dont_ask_denies_instead_of_asking() -> None:
    user = ScriptedUser(True)
    permissions = Permissions(mode="dontAsk", allow=["Bash(ls)", "Read"], ask=["Read"], deny=["Bash(rm *)"])
    assert await call_result(permissions, runs("ls"), ask=user) == "ran ls"
    for wanted in (runs("ls x"), runs("$x"), READ, PAY):
        assert (await call_result(permissions, wanted, ask=user)).startswith(
            "questions are not asked in this mode, so this is denied:"
        )
    assert await call_result(permissions, runs("rm x")) == "the permission rule Bash(rm *) denies this"
    assert user.questions == []


# -- grants ---------------------------------------------------------------------------------------------------------


async def answer_question(
    store: InMemory, permissions: Permissions, choice: Any, *wanted: Any, **answer: Any
) -> Sessions:
    """A session in which the first question was answered so; the thread is called t."""
    sessions = Sessions(store)
    asking = agent(*wanted, hooks=[sessions, permissions])
    assert (await asking.run("go", thread="t")).outcome == "interrupted"
    (question,) = await sessions.questions("t")
    await sessions.answer("t", question["id"], choice, **answer)
    assert (await asking.run(thread="t")).outcome in ("completed", "interrupted")
    return sessions


async def again(store: InMemory, permissions: Permissions, wanted: Any, thread: str = "t") -> str:
    """Return True if the same use is asked about in another run."""
    result = await agent(wanted, hooks=[Sessions(store), permissions]).run("once more", thread=thread)
    return result.outcome


@pytest.mark.parametrize("choice", ["allow_session", "allow_always"])
async def test_a_grant_counts_for_the_thread(choice: Any) -> None:
    store, permissions = InMemory(), Permissions()
    await answer_question(store, permissions, choice, PAY)
    assert await again(store, permissions, tool_call("pay", "c2", amount=1)) == "completed"
    assert await again(store, permissions, tool_call("pay", "c3", amount=1), thread="another") == "interrupted"
    assert await again(store, permissions, tool_call("pay", "c4", amount=2)) == "interrupted"


async def test_a_grant_counts_in_the_same_run() -> None:
    store = InMemory()
    sessions = await answer_question(store, Permissions(), "allow_session", PAY, tool_call("pay", "c2", amount=1))
    assert [said["allowed"] for said in thread_entries(await sessions.load("t"), "answered")] == [True]


@pytest.mark.parametrize("choice", ["allow", "deny"])
async def test_an_answer_for_once_is_no_grant(choice: Any) -> None:
    store, permissions = InMemory(), Permissions()
    await answer_question(store, permissions, choice, PAY)
    assert await again(store, permissions, tool_call("pay", "c2", amount=1)) == "interrupted"


async def test_a_grant_of_rules_covers_similar_commands_in_its_thread() -> None:
    store, permissions = InMemory(), Permissions(deny=["Bash(cp * secret)"], ask=["Bash(cp * shared)"])
    rules = ["execute(cp *)"]
    sessions = await answer_question(store, permissions, "allow_session", runs("cp a b"), rules=rules)
    assert await again(store, permissions, runs("cp c d", "c2")) == "completed"
    assert await again(store, permissions, runs("cp c d && rm c", "c3")) == "interrupted"
    assert await again(store, permissions, runs("cp c d", "c4"), thread="another") == "interrupted"
    thread = await sessions.load("t")
    assert permissions.explain("Bash", {"command": "cp c d"}, thread=thread) == PermissionVerdict(
        "allow", "grant", "execute(cp *)"
    )
    assert permissions.explain("Bash", {"command": "cp c secret"}, thread=thread).decision == "deny"
    assert permissions.explain("Bash", {"command": "cp c shared"}, thread=thread).decision == "ask"


@pytest.mark.parametrize(
    ("choice", "answer"),
    [
        ("allow_session", {"rules": ["execute(*)"]}),
        ("allow_session", {"rules": ["execute(cp *)", "execute"]}),
        ("allow_session", {"rules": ["execute(cp *)"], "args": {"command": "cp a c"}}),
        ("allow_always", {"rules": ["execute(cp *)"]}),
        ("allow", {"rules": ["execute(cp *)"]}),
    ],
)
async def test_rules_that_a_question_does_not_propose_are_refused(choice: Any, answer: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="rule") as caught:
        await answer_question(InMemory(), Permissions(), choice, runs("cp a b"), **answer)
    assert caught.value.code == "invalid"


async def test_a_grant_covers_the_approved_call() -> None:
    store, permissions = InMemory(), Permissions()
    await answer_question(store, permissions, "allow_session", tool_call("pay", amount=500), args={"amount": 5})
    assert await again(store, permissions, tool_call("pay", "c2", amount=5)) == "completed"
    assert await again(store, permissions, tool_call("pay", "c3", amount=500)) == "interrupted"


@pytest.mark.parametrize(("given", "lasts"), [({}, True), ({"ask": ["Bash(ls)"]}, False)])
async def test_a_question_states_if_a_grant_is_possible(given: Any, lasts: bool) -> None:
    """Only then is it worth offering one."""
    sessions = Sessions(InMemory())
    await agent(RUN, hooks=[sessions, Permissions(**given)]).run("go", thread="t")
    (question,) = await sessions.questions("t")
    assert question.get("lasting", False) is lasts


async def test_a_grant_silences_no_rule() -> None:
    store = InMemory()
    await answer_question(store, Permissions(), "allow_session", RUN)
    assert await again(store, Permissions(ask=["Bash(ls)"]), runs("ls", "c2")) == "interrupted"
    denied = agent(runs("ls", "c3"), hooks=[Sessions(InMemory()), Permissions(deny=["Bash(ls)"], grants=[GRANT])])
    assert tool_result(await denied.run("go", thread="u")) == "the permission rule Bash(ls) denies this"


async def test_a_rewound_grant_is_void() -> None:
    store, permissions = InMemory(), Permissions()
    sessions = await answer_question(store, permissions, "allow_session", PAY)
    await sessions.rewind("t", 0)
    assert await again(store, permissions, tool_call("pay", "c2", amount=1)) == "interrupted"


GRANT = {"operation": "tool_use", "tool": "execute", "args": {"command": "ls"}}


async def test_grants_persisted_by_an_operator() -> None:
    permissions = Permissions(grants=[GRANT])
    assert await call_result(permissions, RUN) == "ran ls"
    assert "no user is there" in await call_result(permissions, runs("ls "))
    assert permissions.explain(execute, {"command": "ls"}) == PermissionVerdict("allow", "grant")


async def test_an_external_permanent_grant_can_be_revoked() -> None:
    store, kept = InMemory(), {"operation": "tool_use", "tool": "pay", "args": {"amount": 1}}
    sessions = await answer_question(
        store, Permissions(grants=[]), "allow_always", PAY, tool_call("pay", "c2", amount=1)
    )
    assert [said["allowed"] for said in thread_entries(await sessions.load("t"), "answered")] == [True], (
        "one run asks once"
    )
    assert await again(store, Permissions(grants=[kept]), tool_call("pay", "c3", amount=1)) == "completed"
    assert await again(store, Permissions(grants=[]), tool_call("pay", "c4", amount=1)) == "interrupted"
    thread = await sessions.load("t")
    assert Permissions(grants=[]).explain("pay", {"amount": 1}, thread=thread).by == "mode"
    assert Permissions().explain("pay", {"amount": 1}, thread=thread).by == "grant"


# -- children -------------------------------------------------------------------------------------------------------


def boss(child: Agent, hooks: Any = (), **options: Any) -> Agent:
    """An agent that hands its work to another."""

    @tool
    async def task(prompt: str, run: Run) -> str:
        """Hand over."""
        result = await child.run(prompt, parent=run)
        return "; ".join(tool_results(result)) or result.text

    model = Scripted(tool_calls_reply(tool_call("task", prompt="work")), "done", spare=True)
    return Agent(model, tools=[task], hooks=hooks, **options)


async def test_rules_hold_in_children_and_grandchildren() -> None:
    permissions = Permissions(deny=["Bash(rm *)"], mode="bypassPermissions")

    def child() -> Agent:
        return agent(runs("rm x"), hooks=[Permissions(allow=["Bash"], mode="bypassPermissions")])

    for family in (boss(child(), [permissions]), boss(boss(child()), [permissions])):
        assert tool_result(await family.run("go")) == "the permission rule Bash(rm *) denies this"


async def test_rules_hold_in_a_task_in_the_background() -> None:
    started: list[asyncio.Task[Any]] = []

    @tool
    async def start_task() -> str:
        """Start another agent, and do not wait for it."""
        started.append(asyncio.create_task(agent(runs("rm x")).run("go")))
        return "started"

    permissions = Permissions(deny=["Bash(rm *)"], mode="bypassPermissions")
    above = agent(ToolCall("c1", "start_task", {}), tools=[start_task], hooks=[permissions])
    assert tool_result(await above.run("go")) == "started"
    assert tool_result(await started[0]) == "the permission rule Bash(rm *) denies this"


async def test_a_question_of_a_grandchild_reaches_the_user_at_the_top() -> None:
    user, other = ScriptedUser(True), ScriptedUser(AssertionError("not this one"))
    child = agent(RUN, ask=other)
    assert tool_result(await boss(boss(child), [Permissions(allow=["Task"])], ask=user).run("go")) == "ran ls"
    assert user.question.question == "May execute be used: ls"


async def test_plan_mode_holds_in_children() -> None:
    assert tool_result(await boss(agent(WRITE), [Permissions(mode="plan")]).run("go")) == PLAN


# -- together with others -------------------------------------------------------------------------------------------


async def test_with_other_guards_the_strictest_wins() -> None:
    @guard(ToolUse)
    def never(use: ToolUse) -> Block:
        return Block("never")

    @guard(ToolUse)
    def careful(use: ToolUse) -> Ask:
        return Ask("Really?")

    user = ScriptedUser(True)
    hooks = [Permissions(), careful, Limits(steps=3)]
    assert tool_result(await agent(RUN, hooks=hooks, ask=user).run("go")) == "ran ls"
    assert user.question.question == "May execute be used: ls\nReally?"
    assert tool_result(await agent(RUN, hooks=[*hooks, never], ask=user).run("go")) == "never"


async def test_rules_can_be_tried_on_the_past() -> None:
    thread = Thread()
    await agent(RUN).run("go", thread=thread)
    report = await replay(agent(hooks=[Permissions(deny=["Bash(ls)"])]), [thread])
    assert [str(change) for change in report.changes] == [
        f"{thread.id} entry {report.changes[0].seq}: execute was allowed, now it is blocked: "
        "the permission rule Bash(ls) denies this"
    ]


async def test_links_in_a_workspace_are_asked_about(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "src" / "plain").write_text("x")
    (tmp_path / "src" / "link").symlink_to("../secret")
    backend = Local(str(tmp_path))
    permissions = Permissions(allow=["Read(src/**)", "Bash(cat)"], deny=["Read(other/**)"], backend=backend)
    try:
        user = ScriptedUser(True)
        for path in ("src/plain", "src/new", f"{backend.workdir}/src/plain"):
            assert await call_result(permissions, tool_call("read_file", path=path), ask=user) == f"read {path}"
        assert await call_result(permissions, runs("cat < src/plain"), ask=user) == "ran cat < src/plain"
        assert user.questions == []
        for path in ("src/link/key", "src/link", "/etc/passwd"):
            await call_result(permissions, tool_call("read_file", path=path), ask=user)
        await call_result(permissions, runs("cat < src/link/key"), ask=user)
        assert len(user.questions) == 4
    finally:
        await backend.stop()


async def test_files_outside_of_the_workspace(tmp_path: Path) -> None:
    backend = Local(str(tmp_path))
    permissions = Permissions(deny=[f"Read({backend.workdir}/a)"], mode="bypassPermissions", backend=backend)
    assert "denies this" in await call_result(permissions, tool_call("read_file", path="a"))
    assert await call_result(permissions, tool_call("read_file", path="b")) == "read b"
    await backend.stop()


# -- the policy -----------------------------------------------------------------------------------------------------


async def test_the_policy() -> None:
    permissions = Permissions(policy="shell", mode="bypassPermissions")
    assert await call_result(permissions, runs("ls && sudo rm x")) == "Command blocked by policy"
    assert await call_result(permissions, runs("ls && rm x")) == "ran ls && rm x"
    assert "no user is there to approve" in await call_result(permissions, runs("curl x | sh"))
    assert Permissions(policy=["shell"]).rules == Permissions(policy="shell").rules


# -- explain --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool_", "args", "verdict"),
    [
        ("Bash", {"command": "ls; rm x"}, PermissionVerdict("deny", "deny", "Bash(rm *)", "no rm")),
        ("execute", {"command": "ls | cat"}, PermissionVerdict("allow", "allow", "Bash(ls *), Bash(cat)")),
        (
            execute,
            {"command": "git push"},
            PermissionVerdict("ask", "ask", "Bash(git push *)", "May execute be used: git push"),
        ),
        ("Edit", {"file_path": "src/a"}, PermissionVerdict("allow", "allow", "Edit(src/**)")),
        ("Edit", {"path": "b"}, PermissionVerdict("ask", "mode", "", "May edit_file be used: b")),
        ("mine", {"x": 1}, PermissionVerdict("ask", "mode", "", 'May mine be used: {"x": 1}')),
    ],
)
def test_explain(tool_: Tool | str, args: dict[str, Any], verdict: PermissionVerdict) -> None:
    permissions = Permissions(
        deny=[{"rule": "Bash(rm *)", "message": "no rm"}],
        ask=["Bash(git push *)"],
        allow=["Bash(ls *)", "Bash(cat)", "Edit(src/**)"],
    )
    assert permissions.explain(tool_, args) == verdict


async def test_explain_includes_grants_of_a_thread() -> None:
    permissions = Permissions()
    sessions = await answer_question(InMemory(), permissions, "allow_session", RUN)
    thread = await sessions.load("t")
    assert permissions.explain("Bash", {"command": "ls"}, thread=thread).by == "grant"
    assert permissions.explain("Bash", {"command": "ls"}).by == "mode"


def test_explain_in_plan_mode() -> None:
    permissions = Permissions(mode="plan")
    assert permissions.explain("Read", {"path": "a"}) == PermissionVerdict("allow", "mode")
    assert permissions.explain("Write", {"path": "a"}) == PermissionVerdict("deny", "mode", "", PLAN)


# -- invalid options ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "yolo"}, "there is no permission mode 'yolo'; the modes are default, plan, acceptEdits"),
        ({"mode": None}, "there is no permission mode None"),
        ({"deny": "Bash"}, r"Permissions\(deny=…\) takes a list, also of one: deny=\['Bash'\]"),
        ({"ask": {"rule": "Bash"}}, "takes a list"),
        ({"allow": 7}, "takes a list"),
        ({"allow": ["Bash(ls"]}, "the rule 'Bash\\(ls' cannot be read"),
        ({"deny": [""]}, "the rule '' cannot be read"),
        ({"deny": [None]}, "a rule is a text"),
        ({"policy": "none"}, "there is no policy 'none'; there is shell"),
        ({"policy": 7}, "takes a list"),
        ({"grants": ["Bash"]}, "a grant is {tool: …, args: {…}}"),
        ({"grants": [{"tool": "x"}]}, "a grant is"),
        ({"grants": [{"tool": "x", "args": {}, "operation": "run"}]}, "a grant is"),
    ],
)
def test_options_that_are_wrong(options: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Permissions(**options)


@pytest.mark.parametrize("type_", ["deny", "ask", "allow"])
def test_a_rule_for_an_unknown_tool(type_: str) -> None:
    options: Any = {type_: ["Bsh(rm *)"]}
    with pytest.raises(ConfigError, match=r"'permissions.Bsh\(rm \*\)' is for 'Bsh', but there is no such tool"):
        agent(hooks=[Permissions(**options)])


def test_rules_about_tools_that_only_some_agents_have() -> None:
    permissions = Permissions(deny=["WebFetch", "pay", "mcp__*", "kind:shell", "TodoWrite"], allow=["pay"])
    names = [hook.name for hook in agent(hooks=[permissions]).hooks if hook.owner is permissions]
    assert names == ["permissions.check", "permissions.pay"]


async def test_a_rule_that_cannot_be_compared_refuses() -> None:
    permissions = Permissions(deny=["pay(5)"], mode="bypassPermissions")
    assert "the rule 'pay(5)' cannot be compared with the input of pay" in await call_result(permissions, PAY)
    assert await call_result(permissions, RUN) == "ran ls"
