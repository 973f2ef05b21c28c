"""Typical user code with the client: all of it passes mypy --strict."""

from __future__ import annotations

from typing import assert_type

from wick import user
from wick.client import Client, ServerError, SyncClient
from wick.client.types import Approval, Choice, InvokeResult, ThreadPage, UsageReport
from wick.events import ChatModelStream, Event


async def ask(url: str, token: str) -> str:
    async with Client(url, token, timeout=60) as client:
        assert_type(await client.invoke("default", "hello"), InvokeResult)
        assert_type(await client.invoke("default", [user("hello")], thread_id="th_1"), InvokeResult)
        stream = client.stream("default", {"role": "user", "content": "hello"})
        async for event in stream:
            assert_type(event, Event)
            if isinstance(event, ChatModelStream):
                assert_type(event.delta, str)
        assert_type(await client.approvals(), list[Approval])
        choice: Choice = "allow_always"
        await client.answer("ask_1", choice)
        async with client.terminal("default") as shell:
            assert_type(await shell.read(), bytes)
        return stream.run_id


def wait(url: str) -> float | None:
    with SyncClient(url) as client:
        try:
            answer = client.invoke("default", "hello", recipe="review")
        except ServerError as error:
            return error.retry_after
        assert_type(answer, InvokeResult)
        assert_type(client.threads(limit=5), ThreadPage)
        assert_type(client.usage(agent="default"), UsageReport)
        for event in client.follow(answer.run_id, after="12"):
            assert_type(event, Event)
        return answer.cost
