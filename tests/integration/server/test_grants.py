"""A permanent grant is not asked again: not in another thread, and not after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from api_requests import send_request
from server_process import InProcessServer, host_server, wait_until
from wick import Scripted
from wick.messages import ToolCall


def agents() -> dict[str, Any]:
    write = ToolCall("c1", "write_file", {"path": "a.txt", "content": "hello"})
    other = ToolCall("c2", "write_file", {"path": "b.txt", "content": "hello"})
    model = Scripted(write, "Written.", write, "Written.", other, "Written.", spare=True)
    return {"writer": {"model": model, "backend": "local", "permissions": True}}


def invoke(there: InProcessServer, user: str = "ada") -> asyncio.Task[tuple[int, Any]]:
    body = {"messages": [{"role": "user", "content": "Write it."}]}
    return asyncio.create_task(send_request(there, user, "POST", "/agents/writer/invoke", json=body))


async def question(there: InProcessServer, user: str = "ada") -> dict[str, Any]:
    async def waiting() -> Any:
        return (await send_request(there, user, "GET", "/approvals"))[1]["approvals"]

    return (await wait_until(waiting))[0]  # type: ignore[no-any-return]


async def test_a_permanent_grant_is_not_asked_again(tmp_path: Path) -> None:
    async with host_server(tmp_path, agents=agents()) as there:
        run = invoke(there)
        asked = await question(there)
        assert asked["tool"] == "write_file"
        status, _ = await send_request(
            there, "ada", "POST", f"/approvals/{asked['id']}", json={"choice": "allow_always"}
        )
        assert status == 200 and (await run)[1]["response"] == "Written."
        status, answer = await invoke(there)  # another thread, the same call
        assert status == 200 and answer["outcome"] == "completed"
        run = invoke(there)  # another file was not granted
        asked = await question(there)
        assert asked["args"]["path"] == "b.txt"
        await send_request(there, "ada", "POST", f"/approvals/{asked['id']}", json={"choice": "deny"})
        await run
    async with host_server(tmp_path, agents=agents()) as again:
        assert (await invoke(again))[1]["outcome"] == "completed"
        run = invoke(again, "bob")  # a grant of ada is not one of bob
        asked = await question(again, "bob")
        await send_request(again, "bob", "POST", f"/approvals/{asked['id']}", json={"choice": "deny"})
        await run
