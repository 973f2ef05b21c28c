"""The client of a wick server.

async with Client("http://127.0.0.1:8000", token) as wick:
    async for event in wick.stream("default", "What is 2 + 3?"):
        print(event.event)
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal, Self
from urllib.parse import quote
from uuid import uuid4

from wick.client.connection import ServerConnection
from wick.client.errors import ServerError
from wick.client.run_stream import CHUNK_BYTES, RunStream
from wick.client.terminal import TerminalLink
from wick.client.types import (
    AgentDetail,
    AgentInfo,
    Approval,
    CallReasons,
    CurrentUser,
    FileEntry,
    HookInfo,
    InvokeResult,
    LimitsInfo,
    OperationRings,
    PermissionsInfo,
    QueuedMessage,
    ReplayReport,
    RunState,
    RunTrace,
    SearchHit,
    SkillInfo,
    ThreadDetail,
    ThreadInfo,
    ThreadPage,
    ThreadRun,
    UsageReport,
)
from wick.messages import Message

Words = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]
Choice = Literal["allow", "deny", "allow_session", "allow_always"]


class Client:
    """Talks to a wick server. What it refuses is a `ServerError`, with its code and a sentence.

    Without a token that of the environment is used, `WICK_TOKEN`. `timeout` is the most seconds that one request may
    take; without one it waits for as long as it takes. A stream that breaks off is taken up for `patience` seconds.
    """

    def __init__(self, url: str, token: str = "", *, timeout: float | None = None, patience: float = 60.0) -> None:
        self._http = ServerConnection(url, token or os.environ.get("WICK_TOKEN", ""), timeout=timeout)
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections; what is asked later opens them again."""
        await self._http.close()

    # -- asking -------------------------------------------------------------------------------------------------------

    async def invoke(
        self, agent: str, words: Words, *, thread_id: str | None = None, recipe: str = "", key: str = ""
    ) -> InvokeResult:
        """Ask an agent and wait for its whole answer, in a new thread or in that one.

        The same `key` is the same request: to ask again after a connection broke does not run it twice.
        """
        headers = {"Idempotency-Key": key or uuid4().hex}
        path = f"/agents/{_quote_part(agent)}/invoke"
        said = await self._http.call("POST", path, json=_run_body(words, thread_id, recipe), headers=headers)
        return InvokeResult.model_validate(said)

    def stream(
        self, agent: str, words: Words, *, thread_id: str | None = None, recipe: str = "", key: str = ""
    ) -> RunStream:
        """Ask an agent and see each event of the run: `async for event in …`. A broken connection is taken up again."""
        path, body = f"/agents/{_quote_part(agent)}/stream", _run_body(words, thread_id, recipe)
        return RunStream(self._http, path, body, patience=self._patience, key=key or uuid4().hex)

    def follow(self, run_id: str, *, after: str = "") -> RunStream:
        """See each event of a run that was begun before, from the start or after the one with that id."""
        return RunStream(self._http, run_id=run_id, last_id=after, patience=self._patience)

    async def send(self, thread_id: str, words: Words, *, key: str = "") -> QueuedMessage:
        """Say something to a thread: a run that goes on hears it at its next step, else one begins."""
        path, headers = f"/threads/{_quote_part(thread_id)}/messages", {"Idempotency-Key": key or uuid4().hex}
        said = await self._http.call("POST", path, json={"messages": _message_list(words)}, headers=headers)
        return QueuedMessage.model_validate(said)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, run_id: str) -> RunState:
        """How a run is."""
        return RunState.model_validate(await self._http.call("GET", f"/runs/{_quote_part(run_id)}"))

    async def cancel(self, run_id: str) -> RunState:
        """End a run."""
        return RunState.model_validate(await self._http.call("POST", f"/runs/{_quote_part(run_id)}/cancel"))

    async def trace(self, run_id: str) -> RunTrace:
        """What a run did, span by span."""
        return RunTrace.model_validate(await self._http.call("GET", f"/runs/{_quote_part(run_id)}/trace"))

    # -- threads ------------------------------------------------------------------------------------------------------

    async def threads(
        self, *, cursor: str = "", limit: int = 50, running: bool | None = None, asking: bool | None = None
    ) -> ThreadPage:
        """Your threads, the latest first."""
        query = {"cursor": cursor or None, "limit": limit, "running": running, "asking": asking}
        return ThreadPage.model_validate(await self._http.call("GET", "/threads", query=query))

    async def search(self, text: str, *, limit: int = 20) -> list[SearchHit]:
        """The messages that have all of these words in them."""
        found = await self._http.call("GET", "/threads/search", query={"q": text, "limit": limit})
        return [SearchHit.model_validate(hit) for hit in found["hits"]]

    async def thread(self, thread_id: str) -> ThreadDetail:
        """A thread, and what was said in it."""
        return ThreadDetail.model_validate(await self._http.call("GET", f"/threads/{_quote_part(thread_id)}"))

    async def describe_thread(
        self, thread_id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> ThreadInfo:
        """Give a thread another title, or note something about it."""
        change = {"title": title} if title is not None else {}
        changes: dict[str, Any] = {**change, **({"meta": dict(meta)} if meta is not None else {})}
        return ThreadInfo.model_validate(
            await self._http.call("PATCH", f"/threads/{_quote_part(thread_id)}", json=changes)
        )

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread; a run of it is cancelled."""
        await self._http.call("DELETE", f"/threads/{_quote_part(thread_id)}")

    async def fork(self, thread_id: str, at: int | None = None, *, title: str = "") -> ThreadInfo:
        """Another thread that begins as this one was after the entry `at`; now, if none is given."""
        body = {"at": at, "title": title}
        return ThreadInfo.model_validate(
            await self._http.call("POST", f"/threads/{_quote_part(thread_id)}/fork", json=body)
        )

    async def rewind(self, thread_id: str, to: int) -> ThreadDetail:
        """Go back to how a thread was after the entry `to`."""
        found = await self._http.call("POST", f"/threads/{_quote_part(thread_id)}/rewind", json={"to": to})
        return ThreadDetail.model_validate(found)

    async def export(self, thread_id: str, format: Literal["json", "markdown"] = "json") -> str:
        """All of a thread: its log as JSON, or what was said as Markdown."""
        path, query = f"/threads/{_quote_part(thread_id)}/export", {"format": format}
        async with self._http.open_response("GET", path, query=query) as response:
            return await response.text("utf-8")

    async def thread_runs(self, thread_id: str) -> list[ThreadRun]:
        """The runs of a thread, the earliest first."""
        found = await self._http.call("GET", f"/threads/{_quote_part(thread_id)}/runs")
        return [ThreadRun.model_validate(run) for run in found["runs"]]

    async def replay(
        self,
        agent: str,
        thread_ids: Sequence[str] | None = None,
        *,
        hooks: Mapping[str, Any] | None = None,
        rules: Mapping[str, Sequence[str]] | None = None,
    ) -> ReplayReport:
        """Put what was done in your threads before an agent's guards, with other hooks or more rules; nothing is run.

        `rules` are texts under `deny`, `ask` and `allow`. Without `thread_ids` it is all threads with this agent.
        """
        body: dict[str, Any] = {"agent_id": agent, "hooks": dict(hooks or {})}
        body |= {"rules": {type: [*texts] for type, texts in (rules or {}).items()}}
        body |= {"thread_ids": [*thread_ids]} if thread_ids is not None else {}
        return ReplayReport.model_validate(await self._http.call("POST", "/replay", json=body))

    async def why(self, thread_id: str, call_id: str, *, seq: int | None = None) -> CallReasons:
        """All that decided about one tool call."""
        path = f"/threads/{_quote_part(thread_id)}/calls/{_quote_part(call_id)}/why"
        return CallReasons.model_validate(await self._http.call("GET", path, query={"seq": seq}))

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def approvals(self, thread_id: str = "") -> list[Approval]:
        """The questions that wait for an answer, of one thread or of all."""
        found = await self._http.call("GET", "/approvals", query={"thread_id": thread_id or None})
        return [Approval.model_validate(approval) for approval in found["approvals"]]

    async def answer(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread_id: str = ""
    ) -> None:
        """Answer a question; the run goes on. `allow` may change the arguments, `deny` says why in `words`."""
        body: dict[str, Any] = {"choice": choice, "words": words, "thread_id": thread_id}
        body |= {"args": dict(args)} if args is not None else {}
        await self._http.call("POST", f"/approvals/{_quote_part(id)}", json=body)

    # -- agents -------------------------------------------------------------------------------------------------------

    async def agents(self) -> list[AgentInfo]:
        """Your agents."""
        return [AgentInfo.model_validate(agent) for agent in (await self._http.call("GET", "/agents/"))["agents"]]

    async def agent(self, id: str) -> AgentDetail:
        """One of your agents."""
        return AgentDetail.model_validate(await self._http.call("GET", f"/agents/{_quote_part(id)}"))

    async def create_agent(self, id: str, options: Mapping[str, Any], *, shared: bool = False) -> AgentDetail:
        """Make an agent, with options as in agents.yaml."""
        body = {"agent_id": id, "shared": shared, **options}
        return AgentDetail.model_validate(await self._http.call("POST", "/agents/", json=body))

    async def delete_agent(self, id: str, *, files: bool = False) -> None:
        """Delete an agent that was made over HTTP; with `files`, those of your workspace, too."""
        await self._http.call("DELETE", f"/agents/{_quote_part(id)}", query={"files": files})

    async def onion(self, agent: str) -> list[OperationRings]:
        """What stands around each operation of an agent, outermost first, and the guards at its gate."""
        found = await self._http.call("GET", f"/agents/{_quote_part(agent)}/onion")
        return [OperationRings.model_validate(operation) for operation in found["operations"]]

    async def hooks(self, agent: str) -> list[HookInfo]:
        """The capabilities of an agent, outermost first."""
        found = await self._http.call("GET", f"/agents/{_quote_part(agent)}/hooks")
        return [HookInfo.model_validate(hook) for hook in found["hooks"]]

    async def change_hooks(
        self, agent: str, hooks: Mapping[str, Any], *, order: Sequence[str] | None = None, everyone: bool = False
    ) -> list[HookInfo]:
        """Switch capabilities on (`True`, or options) and off (`False`), or back (`None`); from the next run on."""
        body: dict[str, Any] = {"hooks": dict(hooks), **({"order": [*order]} if order is not None else {})}
        path, query = f"/agents/{_quote_part(agent)}/hooks", {"everyone": everyone}
        found = await self._http.call("PATCH", path, json=body, query=query)
        return [HookInfo.model_validate(hook) for hook in found["hooks"]]

    async def permissions(self, agent: str) -> PermissionsInfo:
        """What an agent may do by itself, must ask for, and may never do; and what you have granted it for good."""
        return PermissionsInfo.model_validate(await self._http.call("GET", f"/agents/{_quote_part(agent)}/permissions"))

    async def revoke_grant(self, agent: str, grant: str) -> None:
        """Take back what you have granted; from the next run on the agent asks again."""
        await self._http.call("DELETE", f"/agents/{_quote_part(agent)}/permissions/grants/{_quote_part(grant)}")

    async def limits(self, agent: str) -> LimitsInfo:
        """What a run of an agent may take, and what is left of its budgets."""
        return LimitsInfo.model_validate(await self._http.call("GET", f"/agents/{_quote_part(agent)}/limits"))

    async def skills(self, agent: str) -> list[SkillInfo]:
        """The skills of an agent."""
        return _parse_skills(await self._http.call("GET", f"/agents/{_quote_part(agent)}/skills"))

    async def switch_skills(
        self, agent: str, *, enable: Sequence[str] = (), disable: Sequence[str] = ()
    ) -> list[SkillInfo]:
        """Switch skills of an agent on and off, from its next run on."""
        body = {"enable": [*enable], "disable": [*disable]}
        return _parse_skills(await self._http.call("PATCH", f"/agents/{_quote_part(agent)}/skills", json=body))

    async def upload_skill(self, agent: str, content: str | bytes, *, overwrite: bool = False) -> SkillInfo:
        """Give an agent another skill: the text of a SKILL.md, or the bytes of a zip archive that has one."""
        data = content.encode() if isinstance(content, str) else content
        path, headers = f"/agents/{_quote_part(agent)}/skills", {"Content-Type": "application/octet-stream"}
        said = await self._http.call("POST", path, query={"overwrite": overwrite}, body=data, headers=headers)
        return SkillInfo.model_validate(said)

    # -- files --------------------------------------------------------------------------------------------------------

    async def list_files(self, agent: str, path: str = ".") -> list[FileEntry]:
        """What is in a folder of the agent's workspace."""
        found = await self._http.call("GET", f"/agents/{_quote_part(agent)}/files/list", query={"path": path})
        return [FileEntry.model_validate(entry) for entry in found["entries"]]

    async def read_file(self, agent: str, path: str) -> bytes:
        """A file of the workspace, as it is."""
        return b"".join([chunk async for chunk in self.download(agent, path)])

    async def download(self, agent: str, path: str) -> AsyncIterator[bytes]:
        """The same piece by piece, for what is large."""
        place, query = f"/agents/{_quote_part(agent)}/files/download", {"path": path}
        async with self._http.open_response("GET", place, query=query) as response:
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                yield chunk

    async def write_file(self, agent: str, path: str, content: str | bytes) -> int:
        """Put a file into the workspace, in place of what is there; returns its size."""
        data = content.encode() if isinstance(content, str) else content
        place, headers = f"/agents/{_quote_part(agent)}/files/upload", {"Content-Type": "application/octet-stream"}
        said = await self._http.call("POST", place, query={"path": path}, body=data, headers=headers)
        return int(said["bytes_written"])

    async def move_file(self, agent: str, source: str, target: str) -> None:
        """Give a file or a folder of the workspace another name, or another place; what is there already stays."""
        body = {"source": source, "target": target}
        await self._http.call("POST", f"/agents/{_quote_part(agent)}/files/move", json=body)

    async def delete_file(self, agent: str, path: str, *, recursive: bool = False) -> None:
        """Delete a file of the workspace, or a folder."""
        query = {"path": path, "recursive": recursive}
        await self._http.call("DELETE", f"/agents/{_quote_part(agent)}/files", query=query)

    async def export_slides(self, agent: str, path: str = "", *, content: str = "") -> bytes:
        """A slides document of the workspace, or this one, as a PowerPoint file."""
        body = {"path": path, "content": content}
        async with self._http.open_response(
            "POST", f"/agents/{_quote_part(agent)}/slides/export", json=body
        ) as response:
            return await response.read()

    def terminal(self, agent: str, *, rows: int = 24, columns: int = 80) -> TerminalLink:
        """A shell in the agent's workspace: `async with client.terminal(…) as shell`."""
        return TerminalLink(self._http, f"/agents/{_quote_part(agent)}/terminal", rows, columns)

    # -- the server ---------------------------------------------------------------------------------------------------

    async def health(self) -> dict[str, Any]:
        """Whether the server answers."""
        return dict(await self._http.call("GET", "/health"))

    async def me(self) -> CurrentUser:
        """Who you are to the server."""
        return CurrentUser.model_validate(await self._http.call("GET", "/auth/me"))

    async def usage(
        self, *, since: date | None = None, until: date | None = None, agent: str = "", user: str = ""
    ) -> UsageReport:
        """What was used, by you; an admin may ask for another `user`, or for all with `*`."""
        query = {"since": since, "until": until, "agent": agent or None, "user": user or None}
        return UsageReport.model_validate(await self._http.call("GET", "/usage", query=query))

    async def request(self, method: str, path: str, *, json: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Whatever else the server offers, as JSON: see its /docs."""
        return await self._http.call(method, path, json=json, query=query)


def _quote_part(name: str) -> str:
    """A name as one part of a path."""
    if name in ("", ".", ".."):
        raise ServerError(f"{name!r} is no name", "invalid")
    return quote(name, safe="")


def _parse_skills(found: Any) -> list[SkillInfo]:
    return [SkillInfo.model_validate(skill) for skill in found["skills"]]


def _run_body(words: Words, thread_id: str | None, recipe: str) -> dict[str, Any]:
    more = {"thread_id": thread_id} if thread_id else {}
    return {"messages": _message_list(words), **more, **({"recipe": recipe} if recipe else {})}


def _message_list(words: Words) -> list[dict[str, Any]]:
    if isinstance(words, str):
        return [{"role": "user", "content": words}]
    if isinstance(words, Message | Mapping):
        words = [words]
    return [word.to_json() if isinstance(word, Message) else dict(word) for word in words]
