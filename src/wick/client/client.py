"""The async client of a wick server.

async with Client("http://127.0.0.1:8000", token) as wick:
    async for event in wick.stream("default", "What is 2 + 3?"):
        print(event.event)
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import date
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode
from uuid import uuid4

from wick.api.types import (
    AgentDetail,
    AgentInfo,
    Approval,
    CallReasons,
    Choice,
    ClusterStatus,
    CurrentUser,
    DrainStatus,
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
    UndoPreview,
    UndoReport,
    UsageReport,
)
from wick.client.connection import ServerConnection
from wick.client.errors import ServerError
from wick.client.run_stream import CHUNK_BYTES, RunStream
from wick.client.terminal import TerminalLink
from wick.messages import Message

Words = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]]


class Client:
    """An async client of a wick server. Error responses are raised as `ServerError`.

    The token defaults to `WICK_TOKEN` of the environment. `timeout` limits each request, in seconds; the default is no
    limit. A broken stream is retried for `patience` seconds.
    """

    def __init__(self, url: str, token: str = "", *, timeout: float | None = None, patience: float = 60.0) -> None:
        self._http = ServerConnection(url, token or os.environ.get("WICK_TOKEN", ""), timeout=timeout)
        self._patience = patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; later requests open new ones."""
        await self._http.close()

    # -- prompts ------------------------------------------------------------------------------------------------------

    async def invoke(
        self,
        agent: str,
        words: Words,
        *,
        thread_id: str | None = None,
        recipe: str = "",
        key: str = "",
        model: str = "",
    ) -> InvokeResult:
        """Run an agent in a new or an existing thread, and return the complete result.

        `key` is the idempotency key: a retry with the same key does not start a second run. `model` answers in place of
        the agent's own; `GET /models` lists those that the server allows.
        """
        headers = {"Idempotency-Key": key or uuid4().hex}
        path = f"/agents/{_quote_part(agent)}/invoke"
        result = await self._http.call("POST", path, json=_run_body(words, thread_id, recipe, model), headers=headers)
        return InvokeResult.model_validate(result)

    def stream(
        self,
        agent: str,
        words: Words,
        *,
        thread_id: str | None = None,
        recipe: str = "",
        key: str = "",
        model: str = "",
    ) -> RunStream:
        """Start a run, and iterate over its events: `async for event in …`. The stream reconnects by itself."""
        path, body = f"/agents/{_quote_part(agent)}/stream", _run_body(words, thread_id, recipe, model)
        return RunStream(self._http, path, body, patience=self._patience, key=key or uuid4().hex)

    def follow(self, run_id: str, *, after: str = "") -> RunStream:
        """Iterate over the events of an existing run, from its start or after the event id `after`."""
        return RunStream(self._http, run_id=run_id, last_id=after, patience=self._patience)

    async def send(self, thread_id: str, words: Words, *, key: str = "") -> QueuedMessage:
        """Queue a message: the current run of the thread reads it before its next step; otherwise a run starts."""
        path, headers = f"/threads/{_quote_part(thread_id)}/messages", {"Idempotency-Key": key or uuid4().hex}
        queued = await self._http.call("POST", path, json={"messages": _message_list(words)}, headers=headers)
        return QueuedMessage.model_validate(queued)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def run(self, run_id: str) -> RunState:
        """Return the state of a run."""
        return RunState.model_validate(await self._http.call("GET", f"/runs/{_quote_part(run_id)}"))

    async def cancel(self, run_id: str) -> RunState:
        """Cancel a run."""
        return RunState.model_validate(await self._http.call("POST", f"/runs/{_quote_part(run_id)}/cancel"))

    async def trace(self, run_id: str) -> RunTrace:
        """Return the trace of a run."""
        return RunTrace.model_validate(await self._http.call("GET", f"/runs/{_quote_part(run_id)}/trace"))

    # -- threads ------------------------------------------------------------------------------------------------------

    async def threads(
        self, *, cursor: str = "", limit: int = 50, running: bool | None = None, asking: bool | None = None
    ) -> ThreadPage:
        """Return a page of your threads, the latest first."""
        query = {"cursor": cursor or None, "limit": limit, "running": running, "asking": asking}
        return ThreadPage.model_validate(await self._http.call("GET", "/threads", query=query))

    async def search(self, text: str, *, limit: int = 20) -> list[SearchHit]:
        """Return the messages that contain all of these words."""
        reply = await self._http.call("GET", "/threads/search", query={"q": text, "limit": limit})
        return [SearchHit.model_validate(hit) for hit in reply["hits"]]

    async def thread(self, thread_id: str) -> ThreadDetail:
        """Return a thread with its messages."""
        return ThreadDetail.model_validate(await self._http.call("GET", f"/threads/{_quote_part(thread_id)}"))

    async def describe_thread(
        self, thread_id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> ThreadInfo:
        """Change the title or the metadata of a thread."""
        change = {"title": title} if title is not None else {}
        changes: dict[str, Any] = {**change, **({"meta": dict(meta)} if meta is not None else {})}
        return ThreadInfo.model_validate(
            await self._http.call("PATCH", f"/threads/{_quote_part(thread_id)}", json=changes)
        )

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread; its current run is cancelled."""
        await self._http.call("DELETE", f"/threads/{_quote_part(thread_id)}")

    async def fork(self, thread_id: str, at: int | None = None, *, title: str = "") -> ThreadInfo:
        """Copy a thread up to the entry `at`, by default the last."""
        body = {"at": at, "title": title}
        return ThreadInfo.model_validate(
            await self._http.call("POST", f"/threads/{_quote_part(thread_id)}/fork", json=body)
        )

    async def rewind(self, thread_id: str, to: int) -> ThreadDetail:
        """Reset a thread to its state after the entry `to`."""
        reply = await self._http.call("POST", f"/threads/{_quote_part(thread_id)}/rewind", json={"to": to})
        return ThreadDetail.model_validate(reply)

    async def switch_branch(self, thread_id: str, to: int) -> ThreadDetail:
        """Switch a thread to the branch of a message; `to` is an entry in the `branches` of a message."""
        reply = await self._http.call("POST", f"/threads/{_quote_part(thread_id)}/switch", json={"to": to})
        return ThreadDetail.model_validate(reply)

    async def file_changes(self, thread_id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoPreview:
        """Return the changes that restoring the files of the moment after an entry would make."""
        query = urlencode([*([("seq", str(seq))] if seq is not None else []), *(("path", path) for path in paths)])
        reply = await self._http.call("GET", f"/threads/{_quote_part(thread_id)}/files?{query}")
        return UndoPreview.model_validate(reply)

    async def restore_files(self, thread_id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoReport:
        """Restore the files of the moment after an entry, by default before the last turn."""
        body = {"seq": seq, "paths": [*paths]}
        path = f"/threads/{_quote_part(thread_id)}/files/restore"
        return UndoReport.model_validate(await self._http.call("POST", path, json=body))

    async def export(self, thread_id: str, format: Literal["json", "markdown"] = "json") -> str:
        """Return the log of a thread as JSON, or its messages as Markdown."""
        path, query = f"/threads/{_quote_part(thread_id)}/export", {"format": format}
        async with self._http.open_response("GET", path, query=query) as response:
            return await response.text("utf-8")

    async def thread_runs(self, thread_id: str) -> list[ThreadRun]:
        """Return the runs of a thread, the earliest first."""
        reply = await self._http.call("GET", f"/threads/{_quote_part(thread_id)}/runs")
        return [ThreadRun.model_validate(run) for run in reply["runs"]]

    async def replay(
        self,
        agent: str,
        thread_ids: Sequence[str] | None = None,
        *,
        hooks: Mapping[str, Any] | None = None,
        rules: Mapping[str, Sequence[str]] | None = None,
    ) -> ReplayReport:
        """Evaluate recorded tool uses with an agent's guards, other hooks or additional rules; no tool is run.

        `rules` are lists of rules by `deny`, `ask` and `allow`. The default are all threads of this agent.
        """
        body: dict[str, Any] = {"agent_id": agent, "hooks": dict(hooks or {})}
        body |= {"rules": {type: [*texts] for type, texts in (rules or {}).items()}}
        body |= {"thread_ids": [*thread_ids]} if thread_ids is not None else {}
        return ReplayReport.model_validate(await self._http.call("POST", "/replay", json=body))

    async def why(self, thread_id: str, call_id: str, *, seq: int | None = None) -> CallReasons:
        """Return the verdicts and questions that decided one tool call."""
        path = f"/threads/{_quote_part(thread_id)}/calls/{_quote_part(call_id)}/why"
        return CallReasons.model_validate(await self._http.call("GET", path, query={"seq": seq}))

    # -- approvals ----------------------------------------------------------------------------------------------------

    async def approvals(self, thread_id: str = "") -> list[Approval]:
        """Return the pending questions of one thread or of all."""
        reply = await self._http.call("GET", "/approvals", query={"thread_id": thread_id or None})
        return [Approval.model_validate(approval) for approval in reply["approvals"]]

    async def answer(
        self,
        id: str,
        choice: Choice,
        *,
        words: str = "",
        args: Mapping[str, Any] | None = None,
        rules: Sequence[str] = (),
        thread_id: str = "",
    ) -> None:
        """Answer a question; the run continues. `allow` may replace the arguments; `words` are the reason of `deny`.

        `rules` of the question extend `allow_session` to all commands that they allow.
        """
        body: dict[str, Any] = {"choice": choice, "words": words, "rules": [*rules], "thread_id": thread_id}
        body |= {"args": dict(args)} if args is not None else {}
        await self._http.call("POST", f"/approvals/{_quote_part(id)}", json=body)

    # -- agents -------------------------------------------------------------------------------------------------------

    async def agents(self) -> list[AgentInfo]:
        """Return your agents."""
        return [AgentInfo.model_validate(agent) for agent in (await self._http.call("GET", "/agents/"))["agents"]]

    async def agent(self, id: str) -> AgentDetail:
        """Return one of your agents."""
        return AgentDetail.model_validate(await self._http.call("GET", f"/agents/{_quote_part(id)}"))

    async def create_agent(self, id: str, options: Mapping[str, Any], *, shared: bool = False) -> AgentDetail:
        """Create an agent, with options as in agents.yaml."""
        body = {"agent_id": id, "shared": shared, **options}
        return AgentDetail.model_validate(await self._http.call("POST", "/agents/", json=body))

    async def delete_agent(self, id: str, *, files: bool = False) -> None:
        """Delete an agent that was created over HTTP; with `files`, also your files in its workspace."""
        await self._http.call("DELETE", f"/agents/{_quote_part(id)}", query={"files": files})

    async def onion(self, agent: str) -> list[OperationRings]:
        """Return the rings around each operation of an agent, outermost first, and its guards."""
        reply = await self._http.call("GET", f"/agents/{_quote_part(agent)}/onion")
        return [OperationRings.model_validate(operation) for operation in reply["operations"]]

    async def hooks(self, agent: str) -> list[HookInfo]:
        """Return the capabilities of an agent, outermost first."""
        reply = await self._http.call("GET", f"/agents/{_quote_part(agent)}/hooks")
        return [HookInfo.model_validate(hook) for hook in reply["hooks"]]

    async def change_hooks(
        self, agent: str, hooks: Mapping[str, Any], *, order: Sequence[str] | None = None, everyone: bool = False
    ) -> list[HookInfo]:
        """Enable (`True` or options), disable (`False`) or reset (`None`) capabilities, from the next run on."""
        body: dict[str, Any] = {"hooks": dict(hooks), **({"order": [*order]} if order is not None else {})}
        path, query = f"/agents/{_quote_part(agent)}/hooks", {"everyone": everyone}
        reply = await self._http.call("PATCH", path, json=body, query=query)
        return [HookInfo.model_validate(hook) for hook in reply["hooks"]]

    async def permissions(self, agent: str) -> PermissionsInfo:
        """Return the permission rules of an agent, and your permanent grants."""
        return PermissionsInfo.model_validate(await self._http.call("GET", f"/agents/{_quote_part(agent)}/permissions"))

    async def revoke_grant(self, agent: str, grant: str) -> None:
        """Revoke a permanent grant; the agent asks again from the next run on."""
        await self._http.call("DELETE", f"/agents/{_quote_part(agent)}/permissions/grants/{_quote_part(grant)}")

    async def limits(self, agent: str) -> LimitsInfo:
        """Return the limits of an agent's runs, and the state of its budgets."""
        return LimitsInfo.model_validate(await self._http.call("GET", f"/agents/{_quote_part(agent)}/limits"))

    async def skills(self, agent: str) -> list[SkillInfo]:
        """Return the skills of an agent."""
        return _parse_skills(await self._http.call("GET", f"/agents/{_quote_part(agent)}/skills"))

    async def switch_skills(
        self, agent: str, *, enable: Sequence[str] = (), disable: Sequence[str] = ()
    ) -> list[SkillInfo]:
        """Enable and disable skills of an agent, from its next run on."""
        body = {"enable": [*enable], "disable": [*disable]}
        return _parse_skills(await self._http.call("PATCH", f"/agents/{_quote_part(agent)}/skills", json=body))

    async def upload_skill(self, agent: str, content: str | bytes, *, overwrite: bool = False) -> SkillInfo:
        """Add a skill to an agent: the text of a SKILL.md, or the bytes of a zip archive with one."""
        data = content.encode() if isinstance(content, str) else content
        path, headers = f"/agents/{_quote_part(agent)}/skills", {"Content-Type": "application/octet-stream"}
        skill = await self._http.call("POST", path, query={"overwrite": overwrite}, body=data, headers=headers)
        return SkillInfo.model_validate(skill)

    # -- files --------------------------------------------------------------------------------------------------------

    async def list_files(self, agent: str, path: str = ".") -> list[FileEntry]:
        """Return the entries of a folder in the agent's workspace."""
        reply = await self._http.call("GET", f"/agents/{_quote_part(agent)}/files/list", query={"path": path})
        return [FileEntry.model_validate(entry) for entry in reply["entries"]]

    async def read_file(self, agent: str, path: str) -> bytes:
        """Return the content of a workspace file."""
        return b"".join([chunk async for chunk in self.download(agent, path)])

    async def download(self, agent: str, path: str) -> AsyncIterator[bytes]:
        """Yield the content of a workspace file in chunks."""
        url, query = f"/agents/{_quote_part(agent)}/files/download", {"path": path}
        async with self._http.open_response("GET", url, query=query) as response:
            async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                yield chunk

    async def write_file(self, agent: str, path: str, content: str | bytes) -> int:
        """Write or overwrite a workspace file, and return its size."""
        data = content.encode() if isinstance(content, str) else content
        url, headers = f"/agents/{_quote_part(agent)}/files/upload", {"Content-Type": "application/octet-stream"}
        written = await self._http.call("POST", url, query={"path": path}, body=data, headers=headers)
        return int(written["bytes_written"])

    async def move_file(self, agent: str, source: str, target: str) -> None:
        """Move or rename a file or a folder of the workspace, without overwriting."""
        body = {"source": source, "target": target}
        await self._http.call("POST", f"/agents/{_quote_part(agent)}/files/move", json=body)

    async def delete_file(self, agent: str, path: str, *, recursive: bool = False) -> None:
        """Delete a file or a folder of the workspace."""
        query = {"path": path, "recursive": recursive}
        await self._http.call("DELETE", f"/agents/{_quote_part(agent)}/files", query=query)

    async def export_slides(self, agent: str, path: str = "", *, content: str = "") -> bytes:
        """Return a slides document, given by path or content, as a PowerPoint file."""
        body = {"path": path, "content": content}
        async with self._http.open_response(
            "POST", f"/agents/{_quote_part(agent)}/slides/export", json=body
        ) as response:
            return await response.read()

    def terminal(self, agent: str, *, rows: int = 24, columns: int = 80) -> TerminalLink:
        """Return a shell in the agent's workspace: `async with client.terminal(…) as shell`."""
        return TerminalLink(self._http, f"/agents/{_quote_part(agent)}/terminal", rows, columns)

    # -- the server ---------------------------------------------------------------------------------------------------

    async def health(self) -> dict[str, Any]:
        """Return the health report of the server."""
        return dict(await self._http.call("GET", "/health"))

    async def drain(self) -> DrainStatus:
        """Drain the server, and return its progress. This needs an admin, and can be called repeatedly."""
        return DrainStatus.model_validate(await self._http.call("POST", "/drain"))

    async def cluster(self) -> ClusterStatus:
        """Return the servers of the cluster and the state of the live plane. This needs an admin."""
        return ClusterStatus.model_validate(await self._http.call("GET", "/cluster"))

    async def me(self) -> CurrentUser:
        """Return the current user."""
        return CurrentUser.model_validate(await self._http.call("GET", "/auth/me"))

    async def usage(
        self, *, since: date | None = None, until: date | None = None, agent: str = "", user: str = ""
    ) -> UsageReport:
        """Return your usage; an admin may request another `user`, or all with `*`."""
        query = {"since": since, "until": until, "agent": agent or None, "user": user or None}
        return UsageReport.model_validate(await self._http.call("GET", "/usage", query=query))

    async def request(self, method: str, path: str, *, json: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        """Send any other request of the HTTP API, and return its JSON: see /docs of the server."""
        return await self._http.call(method, path, json=json, query=query)


def _quote_part(name: str) -> str:
    """Return a name quoted as one part of a path."""
    if name in ("", ".", ".."):
        raise ServerError(f"invalid name {name!r}", "invalid")
    return quote(name, safe="")


def _parse_skills(reply: Any) -> list[SkillInfo]:
    return [SkillInfo.model_validate(skill) for skill in reply["skills"]]


def _run_body(words: Words, thread_id: str | None, recipe: str, model: str) -> dict[str, Any]:
    given = {"thread_id": thread_id, "recipe": recipe, "model": model}
    return {"messages": _message_list(words), **{name: value for name, value in given.items() if value}}


def _message_list(words: Words) -> list[dict[str, Any]]:
    if isinstance(words, str):
        return [{"role": "user", "content": words}]
    if isinstance(words, Message | Mapping):
        words = [words]
    return [word.to_json() if isinstance(word, Message) else dict(word) for word in words]
