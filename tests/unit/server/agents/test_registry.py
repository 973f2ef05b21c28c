"""Agents of a server: one per user, rebuilt after changes, kept while a run uses it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from wick import Agent, Run, Scripted
from wick.backends.local import Local
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.sessions import Sessions
from wick.errors import ConfigError
from wick.messages import ToolCall
from wick.server import User
from wick.server.agents import registry as registry_module
from wick.server.agents.http_policy import check_agent
from wick.server.agents.overrides import Overrides
from wick.server.agents.registry import AgentRegistry
from wick.server.errors import ApiError
from wick.server.ops.event_bus import EventBus
from wick.server.records.sqlite import SqliteRecords
from wick.server.settings import Settings
from wick.stores.sqlite import Sqlite
from wick.tools import tool

ADA, BOB = User("u_ada", "ada"), User("u_bob", "bob")
OLGA = User("u_olga", "olga", "operator")


@asynccontextmanager
async def registry(
    folder: Path, agents: dict[str, Any] | None = None, code: dict[str, Any] | None = None
) -> AsyncIterator[AgentRegistry]:
    data = folder / "data"
    data.mkdir(exist_ok=True)
    config = None
    if agents is not None:
        config = folder / "agents.yaml"
        config.write_text(yaml.safe_dump(agents))
    store = Sqlite(data / "threads.db")
    records = SqliteRecords(store)
    made = AgentRegistry(Settings(data=data, config=config), records, store, EventBus())
    for id, given in (code or {}).items():
        made.register_agent(id, given)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        await store.close()
        await records.close()


CODER = {"agents": {"coder": {"model": "demo", "backend": "local"}, "talker": {"model": "demo"}}}


async def test_every_user_has_an_own_agent_and_workspace(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        hers, his = await there.get_agent(ADA, "coder"), await there.get_agent(BOB, "coder")
        assert hers is not his and hers.agent is not his.agent
        assert hers.backend is not None and his.backend is not None
        await hers.backend.write("secret.txt", "hers")
        assert [entry["name"] for entry in (await hers.backend.ls())["entries"]] == ["secret.txt"]
        assert (await his.backend.ls())["entries"] == []
        assert hers.backend.workdir == str(tmp_path / "data" / "workspaces" / "u_ada" / "coder")
        assert await there.get_agent(ADA, "coder") is hers
        assert (await there.get_agent(ADA, "talker")).backend is None


async def test_a_change_by_another_process_counts_from_the_next_run(tmp_path: Path) -> None:
    """An instance is kept without reading its records, until any process has written one of them."""
    async with registry(tmp_path, CODER) as there:
        first = await there.get_agent(ADA, "talker")
        lists = 0
        read = there.records.list

        async def counted(*args: Any, **options: Any) -> Any:
            nonlocal lists
            lists += 1
            return await read(*args, **options)

        there.records.list = counted  # type: ignore[method-assign]
        assert await there.get_agent(ADA, "talker") is first and lists == 0
        other = SqliteRecords(Sqlite(tmp_path / "data" / "threads.db"))
        await other.put("override", ADA.id, "talker", Overrides(hooks={"todos": False}).to_json())
        changed = await there.get_agent(ADA, "talker")
        assert changed is not first and lists > 0
        assert "todos" not in [part.name for part in changed.agent.capabilities]
        await other.delete("override", ADA.id, "talker")
        assert "todos" in [part.name for part in (await there.get_agent(ADA, "talker")).agent.capabilities]
        await other.put("override", BOB.id, "talker", Overrides(hooks={"todos": False}).to_json())
        kept = await there.get_agent(ADA, "talker")
        assert await there.get_agent(ADA, "talker") is kept, "a change for another user builds nothing anew"
        await other.close()


async def test_a_configured_workdir_is_for_the_owner_of_the_server(tmp_path: Path) -> None:
    named = {"agents": {"coder": {"model": "demo", "backend": {"type": "local", "workdir": "./project"}}}}
    async with registry(tmp_path, named) as there:
        local, hers = (
            await there.get_agent(User("local", "local", "admin"), "coder"),
            await there.get_agent(ADA, "coder"),
        )
        assert local.backend is not None and local.backend.workdir == str(tmp_path / "project")
        assert hers.backend is not None and "workspaces/u_ada" in hers.backend.workdir


async def test_an_agent_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        for id in ("nobody", "", "..", "a/b", "a\0b", "tools", "x" * 100):
            with pytest.raises(ApiError) as refusal:
                await there.get_agent(ADA, id)
            assert refusal.value.status == 404


async def test_a_change_applies_from_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "RETIRED_SECONDS", 0.0)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    code = {"slow": {"model": Scripted(ToolCall("c1", "wait", {}), "Done."), "tools": [wait], "backend": "local"}}
    async with registry(tmp_path, code=code) as there:
        before = await there.get_agent(ADA, "slow")
        run = asyncio.create_task(before.agent.run("Go", user=ADA.id, thread="t1"))
        await began.wait()
        assert before.uses == 1
        await there.change_overrides(ADA, "slow", lambda said: replace(said, hooks={"todos": False}))
        after = await there.get_agent(ADA, "slow")
        assert after is not before
        assert {tool.name for tool in before.agent.tools} - {tool.name for tool in after.agent.tools} >= {"write_todos"}
        assert after.backend is before.backend  # where it works has not changed
        await there._sweep()
        assert before in there._retired
        go_on.set()
        assert (await run).text == "Done."
        await there._sweep()
        assert before not in there._retired


async def test_one_users_change_is_not_anothers_and_an_operators_may_be_everyones(tmp_path: Path) -> None:
    def names(instance: Any) -> set[str]:
        return {tool.name for tool in instance.agent.tools}

    async with registry(tmp_path, CODER) as there:
        await there.change_overrides(ADA, "talker", lambda said: replace(said, hooks={"todos": False}))
        assert "write_todos" not in names(await there.get_agent(ADA, "talker"))
        assert "write_todos" in names(await there.get_agent(BOB, "talker"))
        await there.change_overrides(OLGA, "talker", lambda said: replace(said, hooks={"todos": False}), everyone=True)
        assert "write_todos" not in names(await there.get_agent(BOB, "talker"))


async def test_an_unbuildable_change_is_not_stored(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        before = await there.get_agent(OLGA, "talker")
        for hooks in ({"limits": {"steps": -1}}, {"limits": {"step": 1}}, {"permissions": {"deny": ["Bash("]}}):
            with pytest.raises(ConfigError):
                await there.change_overrides(OLGA, "talker", lambda said, hooks=hooks: replace(said, hooks=hooks))  # type: ignore[misc]
        with pytest.raises(ApiError):
            await there.change_overrides(
                OLGA, "talker", lambda said: replace(said, hooks={"context": {"texts": ["\ud800"]}})
            )
        assert await there.get_agent(OLGA, "talker") is before


async def test_permission_rules_accumulate_so_that_denials_remain(tmp_path: Path) -> None:
    agents = {"agents": {"coder": {"model": "demo", "backend": "local", "permissions": {"deny": ["Bash(rm *)"]}}}}
    async with registry(tmp_path, agents) as there:
        await there.change_overrides(
            OLGA, "coder", lambda said: replace(said, hooks={"permissions": {"deny": ["Bash(mv *)"]}})
        )
        instance = await there.get_agent(OLGA, "coder")
        permissions: Any = next(hook.owner for hook in instance.agent.hooks if hook.name == "permissions.check")
        for command in ("rm x", "mv x y"):
            assert permissions.explain("execute", {"command": command}).decision == "deny"


async def test_threads_are_stored_by_the_server_for_any_config(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "demo", "sessions": "./other"}, "agents": {"a": {}, "b": {"sessions": False}}}
    async with registry(tmp_path, agents) as there:
        for id in ("a", "b"):
            await (await there.get_agent(ADA, id)).agent.run("Hello", user=ADA.id, thread=f"t-{id}")
            assert (await there.sessions.load(f"t-{id}", owner=ADA.id)).messages
        assert not (tmp_path / "other").exists()


async def test_rings_are_in_the_requested_order(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:

        def order(instance: Any) -> list[str]:
            return [*dict.fromkeys(hook.owner.name for hook in instance.agent.hooks)]

        before = order(await there.get_agent(OLGA, "coder"))
        await there.change_overrides(OLGA, "coder", lambda said: replace(said, order=["filesystem", "todos"]))
        after = order(await there.get_agent(OLGA, "coder"))
        assert before.index("todos") < before.index("filesystem") and after.index("filesystem") < after.index("todos")
        assert [name for name in before if name not in ("todos", "filesystem")] == [
            name for name in after if name not in ("todos", "filesystem")
        ]


async def test_a_permanent_grant_is_not_asked_again(tmp_path: Path) -> None:
    agents = {"agents": {"coder": {"model": "demo", "backend": "local", "permissions": True}}}
    async with registry(tmp_path, agents) as there:
        rule = {"operation": "tool_use", "tool": "execute", "args": {"command": "make", "timeout": None, "workdir": ""}}
        await there.grant(ADA, "coder", rule)
        await there.grant(ADA, "coder", {"operation": "run"})  # nothing that could be granted
        for user, decision in ((ADA, "allow"), (BOB, "ask")):
            instance = await there.get_agent(user, "coder")
            permissions: Any = next(hook.owner for hook in instance.agent.hooks if hook.name == "permissions.check")
            assert permissions.explain("execute", rule["args"]).decision == decision


async def test_building_an_agent_again_is_no_way_to_a_new_budget(tmp_path: Path) -> None:
    agents = {"defaults": {"model": "demo", "budget": {"tokens": 50_000}}, "agents": {"a": {}, "b": {}}}
    async with registry(tmp_path, agents) as there:

        def budget(instance: Any) -> Any:
            return next(hook.owner for hook in instance.agent.hooks if hook.owner.name == "budget")

        first = budget(await there.get_agent(ADA, "a"))
        await there.change_overrides(ADA, "a", lambda said: replace(said, hooks={"todos": False}))
        assert budget(await there.get_agent(ADA, "a")) is first
        assert budget(await there.get_agent(BOB, "b")) is first  # one for all, from `defaults`


async def test_registered_tools_are_for_agents_that_name_them(tmp_path: Path) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    agents = {"agents": {"a": {"model": "demo", "tools": ["add", "calculate", "later"]}, "b": {"model": "demo"}}}
    async with registry(tmp_path, agents) as there:
        there.register_tool(add)
        with pytest.raises(ConfigError, match="already"):
            there.register_tool(add)
        a, b = await there.get_agent(ADA, "a"), await there.get_agent(ADA, "b")
        assert {"add", "calculate"} <= {tool.name for tool in a.agent.tools} and a.missing_tools == ("later",)
        assert "add" not in {tool.name for tool in b.agent.tools}


async def test_a_program_registers_agents_as_options_as_objects_or_as_a_function(tmp_path: Path) -> None:
    async def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    code: dict[str, Any] = {
        "options": {"model": Scripted("Hello.", spare=True), "tools": [shout, "calculate"], "hooks": []},
        "object": Agent(Scripted("An object.", spare=True), name="thing"),
        "function": lambda user: Agent(Scripted(f"Made for {user.id}.", spare=True)),
    }
    async with registry(tmp_path, code=code) as there:
        assert len(there) == 3
        said = {}
        for id in code:
            instance = await there.get_agent(ADA, id)
            result = await instance.agent.run("Hi", user=ADA.id, thread=f"t-{id}")
            said[id] = result.text
            assert (await there.sessions.load(f"t-{id}", owner=ADA.id)).messages
        assert said == {"options": "Hello.", "object": "An object.", "function": "Made for u_ada."}
        assert {"shout", "calculate"} <= {tool.name for tool in (await there.get_agent(ADA, "options")).agent.tools}
        with pytest.raises(ApiError, match="made by a program"):
            await there.change_overrides(ADA, "object", lambda said: replace(said, hooks={"todos": False}))


async def test_a_factory_can_give_each_user_a_workspace(tmp_path: Path) -> None:
    def make_agent(user: User) -> Agent:
        folder = tmp_path / "files" / user.id
        folder.mkdir(parents=True, exist_ok=True)
        note = ToolCall("c1", "write_file", {"path": "note.txt", "content": f"{user.name}, {user.role}"})
        return Agent(Scripted(note, "Done."), hooks=[Filesystem(Local(folder))])

    async with registry(tmp_path, code={"notes": make_agent}) as there:
        for user in (ADA, OLGA):
            await (await there.get_agent(user, "notes")).agent.run("Make a note.", user=user.id, thread="t1")
    notes = {path.parent.name: path.read_text() for path in (tmp_path / "files").glob("*/note.txt")}
    assert notes == {"u_ada": "ada, user", "u_olga": "olga, operator"}


async def test_rules_may_name_tools_of_the_program(tmp_path: Path) -> None:
    async def shout(text: str) -> str:
        """Say it louder."""
        return text.upper()

    call = ToolCall("c1", "shout", {"text": "a"})
    options = {"model": Scripted(call, "Done."), "tools": [shout], "permissions": {"deny": ["shout"]}}
    async with registry(tmp_path, code={"quiet": options}) as there:
        result = await (await there.get_agent(ADA, "quiet")).agent.run("Shout", user=ADA.id, thread="t1")
        assert "A" not in [message.text for message in result.messages if message.role == "tool"]


def test_an_invalid_agent_is_refused_at_registration(tmp_path: Path) -> None:
    store = Sqlite(tmp_path / "threads.db")
    records = SqliteRecords(store)
    there = AgentRegistry(Settings(data=tmp_path), records, store, EventBus())
    for id in ("tools", "skills", "events", "hooks", "", "a/b", "../x", "x" * 65):
        with pytest.raises(ConfigError):
            there.register_agent(id, {"model": "demo"})
    with pytest.raises(ConfigError, match="has its own Sessions"):
        there.register_agent("x", Agent(Scripted(), hooks=[Sessions(store)]))
    with pytest.raises(ConfigError, match="did you mean"):
        there.register_agent("x", {"modle": "demo"})


async def test_a_config_with_a_reserved_id_prevents_startup(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="meaning in addresses"):
        async with registry(tmp_path, {"agents": {"tools": {"model": "demo"}}}):
            pass


async def test_agents_that_users_make_are_theirs_alone_and_those_of_operators_everyones(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        await there.create(ADA, "mine", {"model": "demo", "backend": "local"}, shared=False)
        assert "mine" in await there.list_ids(ADA) and "mine" not in await there.list_ids(BOB)
        with pytest.raises(ApiError) as refusal:
            await there.get_agent(BOB, "mine")
        assert refusal.value.status == 404
        await there.create(BOB, "mine", {"model": "demo"}, shared=False)  # another one
        assert (await there.get_agent(ADA, "mine")).backend is not None
        assert (await there.get_agent(BOB, "mine")).backend is None
        for id in ("mine", "coder"):
            with pytest.raises(ApiError) as refusal:
                await there.create(ADA, id, {"model": "demo"}, shared=False)
            assert refusal.value.status == 409
        await there.create(OLGA, "ours", {"model": "demo"}, shared=True)
        assert "ours" in await there.list_ids(BOB)
        with pytest.raises(ApiError) as refusal:
            await there.delete(BOB, "ours", files=False)
        assert refusal.value.status == 403
        await there.delete(OLGA, "ours", files=False)
        assert "ours" not in await there.list_ids(BOB)


async def test_an_agent_that_can_no_longer_be_made_spoils_no_other_and_can_be_deleted(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        await there.records.put("agent", ADA.id, "old", {"options": {"model": "demo", "gone_key": 1}})
        assert "old" in await there.list_ids(ADA)
        with pytest.raises(ConfigError, match="gone_key"):
            await there.get_agent(ADA, "old")
        await there.delete(ADA, "old", files=False)
        assert "old" not in await there.list_ids(ADA)


async def test_overrides_are_deleted_with_their_agent(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        for number in range(2):
            await there.create(ADA, "mine", {"model": "demo", "permissions": True}, shared=False)
            instance = await there.get_agent(ADA, "mine")
            assert "write_todos" in {tool.name for tool in instance.agent.tools}, number
            assert not (await there.get_overrides(ADA, "mine")).hooks and not await there.records.list("grant", ADA.id)
            await there.change_overrides(ADA, "mine", lambda said: replace(said, hooks={"todos": False}))
            await there.grant(ADA, "mine", {"operation": "tool_use", "tool": "write_todos", "args": {}})
            await there.delete(ADA, "mine", files=False)


async def test_deleting_an_agent_may_delete_its_files(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        for files in (False, True):
            await there.create(ADA, "mine", {"model": "demo", "backend": "local"}, shared=False)
            instance = await there.get_agent(ADA, "mine")
            assert instance.backend is not None
            await instance.backend.write("a.txt", "a")
            await there.delete(ADA, "mine", files=files)
            assert (tmp_path / "data" / "workspaces" / "u_ada" / "mine").exists() is not files
        with pytest.raises(ApiError) as refusal:
            await there.delete(ADA, "coder", files=True)
        assert refusal.value.status == 409


async def test_unused_agents_are_closed_and_used_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(registry_module, "RETIRED_SECONDS", 0.0)
    async with registry(tmp_path, CODER) as there:
        instance = await there.get_agent(ADA, "coder")
        assert instance.backend is not None
        job = await instance.backend.background("sleep 60")
        with instance.hold():
            await there._sweep()
            assert await there.get_agent(ADA, "coder") is instance
        await there._sweep()  # a background command is active work
        assert (await instance.backend.jobs())[0]["running"]
        await instance.backend.end_job(job["id"])
        await there._sweep()
        assert instance.backend.status.state == "idle"
        again = await there.get_agent(ADA, "coder")
        assert again is not instance and again.backend is not instance.backend


async def test_the_number_of_agents_is_bounded_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_INSTANCES", 2)
    async with registry(tmp_path, CODER) as there:
        made = [await there.get_agent(User(f"u_{number}", "somebody"), "talker") for number in range(4)]
        await there._sweep()
        assert {*there._instances.values()} == {*made[2:]}


async def test_simultaneous_requests_get_the_same_agent(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        found = await asyncio.gather(*(there.get_agent(ADA, "coder") for _ in range(5)))
        assert len({id(instance) for instance in found}) == 1
        assert found[0].workspace is not None and found[0].workspace.uses == 1


async def test_simultaneous_requests_share_the_reads_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds: list[str] = []
    list_records = SqliteRecords.list

    async def counted(records: SqliteRecords, kind: str, *args: Any, **given: Any) -> Any:
        kinds.append(kind)
        return await list_records(records, kind, *args, **given)

    async with registry(tmp_path, CODER) as there:
        monkeypatch.setattr(SqliteRecords, "list", counted)
        await there.get_agent(ADA, "talker")
        alone = len(kinds)
        await asyncio.gather(*(there.get_agent(ADA, "coder") for _ in range(20)))
        assert len(kinds) <= 2 * alone, kinds
        await there.records.put("override", "*", "other", {})  # the agent does not change, and is compared once
        kinds.clear()
        await asyncio.gather(*(there.get_agent(ADA, "coder") for _ in range(20)))
        assert 0 < len(kinds) <= alone, kinds


async def test_workspace_status_is_sent_to_its_owner(tmp_path: Path) -> None:
    async with registry(tmp_path, CODER) as there:
        instance = await there.get_agent(ADA, "coder")
        with there.bus.subscribe(ADA.id) as hers, there.bus.subscribe(BOB.id) as his:
            assert instance.backend is not None
            await instance.backend.start()
            await there._sweep()
            there.bus.publish("end", {})
            told = await hers.receive()
            assert [news.kind for news in told] == ["container_status", "end"]
            assert told[0].data == {"agent_id": "coder", "status": "launched", "reason": ""}
            assert [news.kind for news in await his.receive()] == ["end"]


async def test_an_agent_of_an_object_has_the_backend_of_its_files(tmp_path: Path) -> None:
    from wick.backends.state import State

    state = State()
    code = {"object": Agent(Scripted(), hooks=[Filesystem(state)])}
    async with registry(tmp_path, code=code) as there:
        assert (await there.get_agent(ADA, "object")).backend is state


def test_overrides_are_laid_over_each_other() -> None:
    below = Overrides({"todos": False}, ["todos"], "remote", "tcp://x", {"slides": False})
    assert Overrides().apply_over(below) == below
    own = Overrides({"memory": True}, [], "local", None, {"slides": True}, True)
    assert own.apply_over(below) == Overrides(
        {"todos": False, "memory": True}, ["todos"], "local", None, {"slides": True}, True
    )
    assert Overrides.from_json({**own.to_json(), "unknown": 1}) == own
    assert Overrides.from_json(None) == Overrides()


def test_skills_are_switched_beside_the_config() -> None:
    said = Overrides(skills={"slides": False, "research": True})
    assert said.skill_options(False, True) is False
    assert said.skill_options(True, True) == {"shipped": True, "disabled": ["slides"]}
    options = {"paths": ["x"], "enabled": ["slides"], "disabled": ["research"]}
    assert said.skill_options(options, True) == {
        "paths": ["x"], "enabled": ["slides", "research"], "disabled": ["slides"]
    }  # fmt: skip
    assert Overrides(uploads=True).skill_options(True, True)["paths"] == ["skills"]
    assert "paths" not in Overrides(uploads=True).skill_options(True, False)


async def test_a_run_waiting_for_its_thread_is_counted(tmp_path: Path) -> None:
    code = {"talker": {"model": Scripted("One.", "Two.", spare=True)}}
    async with registry(tmp_path, code=code) as there:
        instance = await there.get_agent(ADA, "talker")
        await there.sessions.store.create(ADA.id, "t1")
        lease = await there.sessions.store.lease(ADA.id, "t1", "somebody else", 60)
        run = asyncio.create_task(instance.agent.run("Hi", user=ADA.id, thread="t1"))
        while not instance.uses and not run.done():
            await asyncio.sleep(0.01)
        await there.sessions.store.release(ADA.id, "t1", lease.fence)
        assert (await run).text == "One." and not instance.uses


DEPLOY = {
    "name": "deploy",
    "description": "Deploy.",
    "parameters": {"type": "object"},
    "callback_url": "http://127.0.0.1:9",
}
RULED = {
    "defaults": {"model": "demo", "permissions": {"deny": ["deploy"]}},
    "agents": {"has": {"tools": [DEPLOY]}, "lacks": {}, "says": {"permissions": False}, "works": {"backend": "local"}},
}


async def test_an_invalid_default_rule_is_reported_at_startup(tmp_path: Path) -> None:
    async with registry(tmp_path, RULED) as there:
        problems = await there.find_problems(ADA)
        assert sorted(problems) == ["lacks", "works"]
        assert "'permissions.deploy' is for 'deploy', but there is no such tool" in problems["lacks"]
        for id in RULED["agents"]:
            if id not in problems:
                assert await there.get_agent(ADA, id)
        for id in problems:  # the documented decision is made
            with pytest.raises(ConfigError, match="no such tool"):
                await there.get_agent(ADA, id)
        assert not (tmp_path / "workspace").exists()
    async with registry(tmp_path, CODER) as there:
        assert await there.find_problems(ADA) == {}


SHOP = """
from wick import Deps, Run, tool

class Shop:
    def __init__(self, customer: str) -> None:
        self.customer = customer

@tool
def greet(shop: Deps[Shop]) -> str:
    '''Greet the customer.'''
    return f"Hello, {shop.customer}."

def open_shop(run: Run) -> Shop:
    return Shop(run.user)
"""


async def test_an_agent_of_the_file_gets_its_deps_from_a_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "registry_shop.py").write_text(SHOP)
    closed = {"model": "demo", "tools": ["registry_shop:greet"]}
    opened = {"model": "demo", "tools": ["registry_shop:greet"], "deps": "registry_shop:open_shop"}
    agents = {"agents": {"opened": opened, "closed": closed}}
    async with registry(tmp_path, agents) as there:
        problems = await there.find_problems(ADA)
        assert list(problems) == ["closed"] and "the tool greet needs deps of type Shop" in problems["closed"]
        built = (await there.get_agent(ADA, "opened")).agent
        assert built.deps_factory is not None and built.deps_factory(Run(user="ada")).customer == "ada"
        with pytest.raises(ApiError, match="deps cannot be set over HTTP by a user"):
            check_agent({"model": "demo", "deps": "registry_shop:open_shop"}, ADA, ())
