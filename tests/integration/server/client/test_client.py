"""The client against a real server: everything it offers, once."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from server_process import TOKENS, ServerProcess, wait_until
from wick import user
from wick.client import Client, ServerError, SyncClient
from wick.client.client import _quote_part
from wick.events import ApprovalRequest, ChatModelEnd, ChatModelStream, Done, Failed, ToolEnd, ToolStart
from wick.messages import TextPart


@pytest.fixture
async def ada(server: ServerProcess) -> AsyncIterator[Client]:
    async with Client(server.url, TOKENS["ada"]) as client:
        yield client


# -- asking ---------------------------------------------------------------------------------------------------------


async def test_an_answer(ada: Client) -> None:
    answer = await ada.invoke("adding", "What is 2 + 3?")
    assert (answer.response, answer.outcome, answer.reason) == ("It is 5.", "completed", "completed")
    assert [said.role for said in answer.messages] == ["user", "assistant", "tool", "assistant"]
    assert answer.usage.output_tokens > 0
    again = await ada.invoke("adding", [user([TextPart("And now?")])], thread_id=answer.thread_id)
    assert again.thread_id == answer.thread_id and len(again.messages) == 8 and again.messages[4].text == "And now?"


async def test_the_same_key_is_the_same_run(ada: Client) -> None:
    first = await ada.invoke("adding", "hello", key="a-key-of-ada")
    assert (await ada.invoke("adding", "hello", key="a-key-of-ada")).run_id == first.run_id
    with pytest.raises(ServerError) as refused:
        await ada.invoke("adding", "something else", key="a-key-of-ada")
    assert (refused.value.status, refused.value.code, refused.value.passing) == (409, "conflict", False)


async def test_events(ada: Client) -> None:
    stream = ada.stream("adding", "What is 2 + 3?")
    events = [event async for event in stream]
    kinds = [type(event) for event in events if not isinstance(event, ChatModelStream)]
    assert kinds.count(ChatModelEnd) == 2 and kinds.count(ToolStart) == kinds.count(ToolEnd) == 1
    done = events[-1]
    assert isinstance(done, Done) and done.text == "It is 5." and done.thread_id == stream.thread_id
    assert {event.run_id for event in events} == {stream.run_id}
    assert [event async for event in ada.follow(stream.run_id, after=stream.last_id)] == []
    told = [event.event async for event in ada.follow(stream.run_id)]
    assert told == [event.event for event in events if event.event in set(told)] and told[-1] == "done"


async def test_a_run_that_fails(ada: Client) -> None:
    (*_, last) = [event async for event in ada.stream("failing", "hello")]
    assert isinstance(last, Failed) and "this model fails" in last.message
    with pytest.raises(ServerError, match="this model fails") as failed:
        await ada.invoke("failing", "hello")
    assert failed.value.status == 502


async def test_sending_more_and_cancelling(ada: Client) -> None:
    stream = ada.stream("slow", "2000 0.05")
    async for event in stream:
        if isinstance(event, ChatModelStream):
            break
    assert (await ada.run(stream.run_id)).state == "running"
    queued = await ada.send(stream.thread_id, "2 0")
    assert (queued.run_id, queued.thread_id) == (stream.run_id, stream.thread_id)
    assert (await ada.cancel(stream.run_id)).outcome == "cancelled"

    async def is_idle() -> bool:
        thread = await ada.thread(stream.thread_id)
        return not thread.queued and not thread.running

    await wait_until(is_idle)  # the message is answered by the next run


# -- threads --------------------------------------------------------------------------------------------------------


async def test_threads(ada: Client) -> None:
    thread = (await ada.invoke("adding", "What about xylophones?")).thread_id
    assert (await ada.threads(limit=1)).threads[0].id == thread
    assert [hit.thread_id for hit in await ada.search("xylophones")] == [thread]
    named = await ada.describe_thread(thread, title="Xylophones", meta={"topic": "music"})
    assert (named.title, named.meta["topic"], named.agent_id) == ("Xylophones", "music", "adding")
    detail = await ada.thread(thread)
    assert [said.text for said in detail.messages][-1] == "It is 5." and detail.title == "Xylophones"
    fork = await ada.fork(thread, detail.messages[0].seq, title="Another way")
    assert [said.role for said in (await ada.thread(fork.id)).messages] == ["user"]
    assert (await ada.rewind(thread, detail.messages[1].seq or 0)).messages[-1].role == "assistant"
    assert (await ada.switch_branch(thread, detail.messages[-1].seq or 0)).messages == detail.messages
    assert json.loads(await ada.export(thread))["id"] == thread
    assert "xylophones" in await ada.export(thread, "markdown")
    await ada.delete_thread(fork.id)
    with pytest.raises(ServerError) as gone:
        await ada.thread(fork.id)
    assert (gone.value.status, gone.value.code) == (404, "not_found")


async def test_all_pages(ada: Client) -> None:
    for _ in range(3):
        await ada.invoke("adding", "hello")
    found, cursor = list[str](), None
    while cursor != "":
        page = await ada.threads(limit=2, cursor=cursor or "")
        found, cursor = [*found, *(thread.id for thread in page.threads)], page.next
    assert len(found) == len(set(found)) >= 3


# -- approvals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("choice", "said"), [("allow", "It is 5."), ("deny", "not like that")])
async def test_an_approval(ada: Client, choice: str, said: str) -> None:
    stream, text = ada.stream("asking", "What is 2 + 3?"), ""
    async for event in stream:
        if isinstance(event, ApprovalRequest):
            (asked,) = await ada.approvals(stream.thread_id)
            assert (asked.id, asked.question, asked.tool) == (event.id, "Add these?", "add")
            assert asked.args == {"a": 2, "b": 3} and asked.run_id == stream.run_id
            await ada.answer(asked.id, choice, words="not like that", thread_id=asked.thread_id)  # type: ignore[arg-type]
        if isinstance(event, Done):
            text = event.text
    assert said in text and await ada.approvals(stream.thread_id) == []
    why = await ada.why(stream.thread_id, "call_1")
    assert [row.allowed for row in why.questions] == [choice == "allow"]
    assert len(why.attempts) == (choice == "allow") and any(row.verdict == "ask" for row in why.verdicts)


async def test_an_approval_with_other_arguments(ada: Client) -> None:
    stream = ada.stream("asking", "What is 2 + 3?")
    async for event in stream:
        if isinstance(event, ApprovalRequest):
            await ada.answer(event.id, "allow", args={"a": 20, "b": 3})
    assert (await ada.thread(stream.thread_id)).messages[-1].text == "It is 23."


# -- agents and files -----------------------------------------------------------------------------------------------


async def test_agents(ada: Client) -> None:
    assert {agent.agent_id for agent in await ada.agents()} >= {"slow", "adding", "asking", "default"}
    made = await ada.create_agent("mine", {"model": "demo", "system_prompt": "Be brief."})
    assert made.system_prompt == "Be brief." and made.origin == "created" and not made.shared
    assert (await ada.agent("mine")).agent_id == "mine"
    await ada.delete_agent("mine")
    with pytest.raises(ServerError, match="there is no agent 'mine'"):
        await ada.agent("mine")


async def test_files(ada: Client) -> None:
    name, data = "a folder/ä & b.bin", bytes(range(256)) * 10_000
    assert await ada.write_file("default", name, data) == len(data)
    assert [(entry.name, entry.type, entry.size) for entry in await ada.list_files("default", "a folder")] == [
        ("ä & b.bin", "file", len(data))
    ]
    assert await ada.read_file("default", name) == data
    assert b"".join([chunk async for chunk in ada.download("default", name)]) == data
    await ada.delete_file("default", "a folder", recursive=True)
    with pytest.raises(ServerError) as gone:
        await ada.read_file("default", name)
    assert gone.value.status == 404


async def test_slides(ada: Client) -> None:
    pytest.importorskip("pptx", reason="python-pptx is not installed: pip install 'wick-agent[slides]'")
    await ada.write_file("default", "talk/deck.md", "# One\n---\n## Two\n- a\n")
    assert (await ada.export_slides("default", "talk/deck.md")).startswith(b"PK")
    assert (await ada.export_slides("default", content="# One")).startswith(b"PK")
    with pytest.raises(ServerError, match="no slides"):
        await ada.export_slides("default", content="---")


async def test_a_terminal(server: ServerProcess) -> None:
    async with Client(server.url, TOKENS["olga"]) as olga, olga.terminal("default", rows=30, columns=90) as shell:
        await shell.write(b"stty size; echo $((40+2))\n")
        seen = b""
        while b"42" not in seen.replace(b"40+2", b""):
            more = await shell.read()
            assert more, seen
            seen += more
        assert b"30 90" in seen
        await shell.resize(40, 120)
        await shell.write(b"stty size; exit\n")
        while more := await shell.read():
            seen += more
        assert b"40 120" in seen


async def test_control_a_is_typed(server: ServerProcess) -> None:
    async with Client(server.url, TOKENS["olga"]) as olga, olga.terminal("default") as shell:
        await shell.write(b"cat -v; echo\n")
        await shell.write(b"\x01")
        await shell.write(b"\n")
        seen = b""
        while b"^A" not in seen:
            more = await shell.read()
            assert more, seen
            seen += more


async def test_a_terminal_that_is_refused(ada: Client) -> None:
    with pytest.raises(ServerError) as refused:
        async with ada.terminal("nobody"):
            pass
    assert refused.value.status in (403, 404)
    with pytest.raises(ServerError, match="not open"):
        await ada.terminal("default").read()


# -- the server -----------------------------------------------------------------------------------------------------


async def test_me_and_authentication(ada: Client, server: ServerProcess) -> None:
    assert (await ada.health())["status"] == "ok"
    me = await ada.me()
    assert (me.username, me.role) == ("ada", "user") and me.id != "ada"
    assert (await ada.request("GET", "/agents/adding/onion"))["agent_id"] == "adding"
    async with Client(server.url) as nobody:
        assert (await nobody.health())["status"] == "ok"
        with pytest.raises(ServerError) as refused:
            await nobody.agents()
        assert refused.value.status == 401


async def test_usage(ada: Client, server: ServerProcess) -> None:
    await ada.invoke("slow", "2 0")
    today = datetime.now(UTC).date()

    async def counted() -> int:
        report = await ada.usage(since=today, until=today + timedelta(1), agent="slow")
        return sum(row.output_tokens for row in report.rows)

    before = await wait_until(counted)
    await ada.invoke("slow", "3 0")
    assert await wait_until(lambda: _more(counted, before + 3))
    async with Client(server.url, TOKENS["root"]) as root:
        everybody = await root.usage(user="*")
        assert "ada" in {row.user for row in everybody.rows} and everybody.total.runs > 0
    with pytest.raises(ServerError, match="requires an admin"):
        await ada.usage(user="*")


async def _more(count: object, least: int) -> bool:
    return (await count()) >= least  # type: ignore[operator, no-any-return]


async def test_a_trace(ada: Client) -> None:
    answer = await ada.invoke("default", "What is 6 * 7?")
    trace = await ada.trace(answer.run_id)
    assert trace.run == answer.run_id and trace.thread_id == answer.thread_id
    assert [span.name for span in trace.spans] == ["run"] and trace.spans[0].children[0].name == "step"
    with pytest.raises(ServerError, match="there is no run"):
        await ada.trace("run_0")
    with pytest.raises(ServerError, match="has no recorder"):
        await ada.trace((await ada.invoke("adding", "hello")).run_id)


# -- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://example.com", "http://"])
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ServerError, match="invalid server URL"):
        Client(url)


async def test_an_unreachable_server_is_reported() -> None:
    async with Client("http://127.0.0.1:1", patience=0.2) as client:
        with pytest.raises(ServerError, match="cannot be reached") as failed:
            await client.health()
        assert failed.value.status == 0 and failed.value.passing
        stream, told = client.stream("default", "hello"), list[ServerError]()
        stream.on_break = told.append
        with pytest.raises(ServerError, match="cannot be reached"):
            _ = [event async for event in stream]
        assert told and all("cannot be reached" in str(error) for error in told)


def test_a_blocking_stream_reports_its_breaks() -> None:
    with SyncClient("http://127.0.0.1:1", patience=0.2) as client:
        stream, told = client.stream("default", "hello"), list[ServerError]()
        stream.on_break = told.append
        with pytest.raises(ServerError, match="cannot be reached"):
            _ = [*stream]
        assert told and stream.on_break is not None


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_be_another_path(name: str) -> None:
    with pytest.raises(ServerError, match="invalid name"):
        _quote_part(name)


async def test_a_name_is_one_part_of_a_path(ada: Client) -> None:
    for name in ("../auth/me", "a/b", "a?b=c", "%2e%2e", "ä#"):
        with pytest.raises(ServerError) as refused:
            await ada.thread(name)
        assert refused.value.status in (400, 404, 422), name


async def test_a_stream_that_is_refused_is_not_tried_again(ada: Client) -> None:
    with pytest.raises(ServerError) as refused:
        _ = [event async for event in ada.stream("nobody", "hello")]
    assert refused.value.status == 404


# -- hooks, rules, skills -------------------------------------------------------------------------------------------


async def test_the_onion_and_its_hooks(ada: Client) -> None:
    onion = {one.operation: one for one in await ada.onion("asking")}
    assert [ring.hook for ring in onion["tool_use"].guards][-1] == "careful"
    changed = await ada.change_hooks("default", {"todos": False})
    assert {hook.name: (hook.on, hook.changed) for hook in changed}["todos"] == (False, True)
    assert [hook.name for hook in await ada.change_hooks("default", {"todos": None}) if hook.changed] == []
    assert "todos" in {hook.name for hook in await ada.hooks("default") if hook.on}
    assert (await ada.limits("default")).limits is not None


async def test_grants_can_be_revoked(ada: Client) -> None:
    options = {"model": "demo", "backend": "state", "recorder": True, "permissions": {"deny": ["Read"]}}
    await ada.create_agent("granting", options)
    stream = ada.stream("granting", "Write 'milk' to list.txt")
    async for event in stream:
        if isinstance(event, ApprovalRequest):
            await ada.answer(event.id, "allow_always")
    found = await ada.permissions("granting")
    assert [(rule.type, rule.rule) for rule in found.rules] == [("deny", "Read")] and found.mode == "default"
    (grant,) = found.grants
    assert grant.tool == "write_file"
    await ada.revoke_grant("granting", grant.id)
    assert (await ada.permissions("granting")).grants == []
    with pytest.raises(ServerError, match="there is no grant"):
        await ada.revoke_grant("granting", grant.id)
    (run,) = await ada.thread_runs(stream.thread_id)
    assert (run.run_id, run.outcome, run.traced) == (stream.run_id, "completed", True)
    report = await ada.replay("granting", [stream.thread_id], rules={"deny": ["Write"]})
    assert [(one.tool, one.recorded, one.now) for one in report.changes] == [("write_file", "ask", "block")]
    assert (report.threads, report.uses, report.more) == (1, 1, False)
    await ada.delete_agent("granting")


SKILL = "---\nname: haiku\ndescription: Write a haiku.\n---\nThree lines.\n"


async def test_skills(ada: Client) -> None:
    await ada.change_hooks("default", {"skills": True})
    assert "slides" in {skill.name for skill in await ada.skills("default")}
    assert (await ada.upload_skill("default", SKILL)).name == "haiku"
    with pytest.raises(ServerError, match="already"):
        await ada.upload_skill("default", SKILL)
    await ada.upload_skill("default", SKILL.encode(), overwrite=True)
    off = await ada.switch_skills("default", disable=["haiku"])
    assert {skill.name: skill.enabled for skill in off}["haiku"] is False


async def test_a_file_is_moved(ada: Client) -> None:
    await ada.write_file("default", "old.txt", "hello")
    await ada.move_file("default", "old.txt", "folder/new.txt")
    assert await ada.read_file("default", "folder/new.txt") == b"hello"
    with pytest.raises(ServerError):
        await ada.read_file("default", "old.txt")


# -- without async --------------------------------------------------------------------------------------------------


def test_the_sync_client(server: ServerProcess) -> None:
    with SyncClient(server.url, TOKENS["bob"]) as bob:
        answer = bob.invoke("adding", "What is 2 + 3?")
        assert answer.response == "It is 5." and bob.thread(answer.thread_id).messages[0].text == "What is 2 + 3?"
        stream = bob.stream("slow", "3 0.01")
        assert [event.delta for event in stream if isinstance(event, ChatModelStream)] == ["0 ", "1 ", "2 "]
        assert bob.run(stream.run_id).outcome == "completed"
        assert [event.event for event in bob.follow(stream.run_id)][-1] == "done"
        for event in bob.stream("slow", "100 0.1"):
            if isinstance(event, ChatModelStream):
                break  # a reader that stops leaves nothing behind
        bob.write_file("default", "a.txt", "hello")
        assert b"".join(bob.download("default", "a.txt")) == b"hello"
        with pytest.raises(ServerError, match="there is no agent"):
            bob.agent("nobody")
    with pytest.raises(ServerError, match="closed"):
        bob.health()
    bob._loop_thread.stop()  # a second time is no error


def test_a_terminal_without_async(server: ServerProcess) -> None:
    with SyncClient(server.url, TOKENS["olga"]) as olga, olga.terminal("default") as shell:
        shell.resize(24, 80)
        shell.write(b"echo $((40+2)); exit\n")
        seen = b""
        while more := shell.read():
            seen += more
        assert b"42" in seen


def test_both_clients_offer_the_same() -> None:
    def offered(kind: type) -> set[str]:
        return {name for name, value in inspect.getmembers(kind, callable) if not name.startswith("_")}

    assert offered(Client) == offered(SyncClient)
    assert all(inspect.getdoc(getattr(SyncClient, name)) for name in offered(SyncClient))


def test_a_token_from_the_environment(server: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WICK_TOKEN", TOKENS["bob"])
    with SyncClient(server.url) as bob:
        assert bob.me().username == "bob"
