"""The vendor's SDK alone: a hand-written loop around `openai.AsyncOpenAI`."""

from __future__ import annotations

import json
from typing import Any

from contract import DESCRIPTION, PARAMETERS, SYSTEM, TOOL, Peer, forecast, main
from openai import AsyncOpenAI

TOOLS: Any = [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}]


class Sdk(Peer):
    packages = ("openai",)

    def __init__(self, url: str) -> None:
        self.client = AsyncOpenAI(base_url=url, api_key="key")

    async def run(self, agent: None, question: str) -> str:
        said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        while True:
            reply = await self.client.chat.completions.create(model="gpt-4o", messages=said, tools=TOOLS)
            message = reply.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            said.append(message)
            for call in message.tool_calls:
                result = await forecast(**json.loads(call.function.arguments))
                said.append({"role": "tool", "tool_call_id": call.id, "content": result})

    async def stream(self, agent: None, question: str) -> str:
        said: Any = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
        texts = []
        events = await self.client.chat.completions.create(model="gpt-4o", messages=said, tools=TOOLS, stream=True)
        async for chunk in events:
            texts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
        return "".join(texts)


if __name__ == "__main__":
    main(Sdk)
