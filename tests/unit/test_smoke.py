"""One test each of a real server, a real sandbox and a real hook program; tests/integration has the rest."""

from __future__ import annotations

from pathlib import Path

from kit import tool_call, tool_calls_reply, tool_results
from local_sandbox import Make, folder, local, needs_bubblewrap
from programs import Programs
from server_process import open_client, run_server
from wick import Agent, Scripted, tool

__all__ = ["folder", "local"]


async def test_a_server_runs_its_default_agent(tmp_path: Path) -> None:
    with run_server(tmp_path / "server") as server:
        async with open_client(server) as client:
            body = {"messages": [{"role": "user", "content": "hello"}], "thread_id": "smoke"}
            async with client.post("/agents/default/invoke", json=body) as response:
                outcome = await response.json()
            assert response.status == 200, outcome
            assert outcome["response"] and outcome["messages"][-1]["role"] == "assistant"
            async with client.get("/threads/smoke") as response:
                thread = await response.json()
    assert [message["role"] for message in thread["messages"]][:1] == ["user"]


@needs_bubblewrap
async def test_a_sandboxed_command_writes_its_workspace_only(local: Make, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    result = await local().execute(f"echo in > here.txt; echo out > {outside}/there.txt; id -u")
    assert (folder / "here.txt").read_text() == "in\n"
    assert not (outside / "there.txt").exists() and "there.txt" in result["stderr"]


async def test_a_hook_program_denies_a_tool_call(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    programs.replying("warden", "before_tool_call", {"blocked": True, "reason": "no notes today"})
    written: list[str] = []

    @tool
    def note(text: str) -> str:
        """Write a note."""
        written.append(text)
        return "written"

    agent = Agent(
        Scripted(tool_calls_reply(tool_call("note", text="x")), "I could not."),
        tools=[note],
        hooks=[programs.executables()],
    )
    run = await agent.run("write it down")
    assert run.text == "I could not." and written == []
    assert tool_results(run) == ["no notes today"]
    assert programs.remaining() == []
