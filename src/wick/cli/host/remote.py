"""The host that uses a wick server over HTTP; runs continue there after the command ends."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from wick._internal.paths import data_folder
from wick.api.types import (
    AgentDetail,
    AgentInfo,
    Approval,
    Choice,
    OperationRings,
    ReplayReport,
    SkillList,
    ThreadDetail,
    ThreadInfo,
    UndoPreview,
    UndoReport,
)
from wick.cli.host.protocol import RunOutcome
from wick.client import Client, RunStream, ServerError
from wick.errors import ConfigError
from wick.events import Done, Event, Failed
from wick.hooks import Hook

DEFAULT = "default"
PAGE = 200
SEARCHED = 2_000  # threads that are searched for the beginning of an id
QUEUE_POLLS, QUEUE_POLL_SECONDS = 50, 0.1


class RemoteHost:
    """A server, used with one user's token; `agent` is an agent id, `folder` the working folder of the command."""

    remote = True

    def __init__(self, url: str, token: str, agent: str = "", folder: str = "", *, token_place: str = "") -> None:
        self.client, self.name, self.folder = Client(url, token), url.rstrip("/"), folder
        self._named, self._default = agent, ""
        self._has_token, self._token_place = bool(token), token_place
        self.on_break: Callable[[Exception], None] | None = None
        self.hint_options = f" --server {shlex.quote(self.name)}"

    async def open(self) -> None:
        """Check that the server is reachable and accepts the token."""
        try:
            await self.client.me()
        except ServerError as error:
            if error.status == 401:
                raise ServerError(self._explain_refusal(error), error.code, 401) from None
            if error.status in (404, 405, 501):  # every wick server has /auth/me
                raise ServerError(f"{self.name} is not a wick server: {error}; check --server", "invalid") from None
            raise
        except ValueError:
            raise ServerError(f"{self.name} is not a wick server", "invalid") from None

    def _explain_refusal(self, error: ServerError) -> str:
        """Return the sentence about a token that was rejected, or that is missing, with its place."""
        place = self._token_place
        if self._has_token:
            problem = f"rejected the token of {place}" if place else "rejected the token"
        else:
            problem = f"needs a token, but {place} has none" if place else "needs a token"
        hint = "use --token-file FILE, or set WICK_TOKEN"
        if place == str(data_folder() / "token"):
            hint += "; for a server of this machine, WICK_DATA names its data folder"
        return f"{self.name} {problem}: {error}; {hint}"

    async def close(self) -> None:
        await self.client.close()

    # -- agents -------------------------------------------------------------------------------------------------------

    async def list_agents(self) -> list[AgentInfo]:
        return await self.client.agents()

    async def get_agent(self, id: str = "") -> AgentDetail:
        return await self.client.agent(id or await self.resolve_agent_id())

    async def resolve_agent_id(self) -> str:
        """Return the id of --agent; else `default`, or the only agent."""
        if not self._named and not self._default:
            ids = [agent.agent_id for agent in await self.client.agents()]
            if DEFAULT not in ids and len(ids) != 1:
                raise ConfigError(f"{self.name} has the agents {', '.join(ids) or '(none)'}; choose one with --agent")
            self._default = DEFAULT if DEFAULT in ids else ids[0]
        return self._named or self._default

    async def list_rings(self, id: str = "") -> list[OperationRings]:
        return await self.client.onion(id or await self.resolve_agent_id())

    async def list_warnings(self, thread: str = "") -> list[str]:
        return []  # the operator of the server decides about its hooks

    async def list_skills(self, id: str = "") -> SkillList:
        try:
            skills = await self.client.request("GET", f"/agents/{id or await self.resolve_agent_id()}/skills")
        except ServerError as error:
            if error.status == 409:  # the agent has no skills
                return SkillList(skills=[])
            raise
        return SkillList.model_validate(skills)

    async def use_model(self, model: str) -> str:
        raise ConfigError(f"the model cannot be changed here; {self.name} sets it in its agents.yaml")

    # -- runs ---------------------------------------------------------------------------------------------------------

    def start_run(self, words: str, *, thread: str = "", recipe: str = "") -> _RemoteRun:
        return _RemoteRun(self, words, thread, recipe)

    def resume_run(self, thread: str) -> _RemoteRun:
        return _RemoteRun(self, "", thread, "")

    async def steer(self, thread: str, words: str) -> None:
        await self.client.send(thread, words)

    async def open_stream(self, words: str, thread: str, recipe: str) -> RunStream | None:
        """Return the stream of a new or resumed run, or None if the last run of the thread is completed."""
        if words or recipe:
            # With a thread, this also fails early if the server is unreachable.
            thread_agent = (await self.client.thread(thread)).agent_id if thread else ""
            agent = self._named or thread_agent or await self.resolve_agent_id()
            return self.client.stream(agent, words or "…", thread_id=thread or None, recipe=recipe)
        info = await self.client.thread(thread)
        for _ in range(QUEUE_POLLS):
            if info.run_id or not info.queued:
                break
            await asyncio.sleep(QUEUE_POLL_SECONDS)  # the server is about to start a run for the queued message
            info = await self.client.thread(thread)
        if info.run_id:
            return self.client.follow(info.run_id)
        if not info.messages:
            raise ConfigError(f"there is nothing to answer: thread {thread} has no messages; send it a prompt")
        last = info.messages[-1]
        if last.role != "assistant" or last.tool_calls or last.cut:
            raise ServerError(
                f"the last run of thread {thread} has ended without an answer; a server continues it with a prompt: "
                f"wick run --thread {thread}{self.hint_options} 'Continue.'",
                "conflict",
            )
        return None

    async def record_folder(self, thread: str) -> None:
        """Store the folder in the metadata of a thread; ignore failures, as the run does not depend on it."""
        with suppress(ServerError):
            await self.client.describe_thread(thread, meta={"folder": self.folder})

    # -- threads ------------------------------------------------------------------------------------------------------

    async def list_threads(self, *, limit: int = 50, folder: str = "", asking: bool | None = None) -> list[ThreadInfo]:
        threads, cursor = list[ThreadInfo](), ""
        while len(threads) < limit:
            page = await self.client.threads(cursor=cursor, limit=PAGE if folder else min(limit, PAGE), asking=asking)
            threads += [info for info in page.threads if folder in ("", info.folder)]
            cursor = page.next
            if not cursor:
                break
        return threads[:limit]

    async def list_thread_ids(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix, of the latest threads, and the id itself if it exists."""
        with suppress(ServerError):
            return [(await self.client.thread(prefix)).id]
        return [info.id for info in await self.list_threads(limit=SEARCHED) if info.id.startswith(prefix)]

    async def get_thread(self, id: str) -> ThreadDetail:
        return await self.client.thread(id)

    async def fork_thread(self, id: str, at: int | None = None, *, title: str = "") -> ThreadInfo:
        return await self.client.fork(id, at, title=title)

    async def rename_thread(self, id: str, title: str) -> ThreadInfo:
        return await self.client.describe_thread(id, title=title)

    async def export_thread(self, id: str, format: Literal["json", "markdown"] = "json") -> str:
        return await self.client.export(id, format)

    async def delete_thread(self, id: str) -> None:
        await self.client.delete_thread(id)

    async def preview_undo(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoPreview:
        return await self.client.file_changes(id, seq, paths)

    async def undo_files(self, id: str, seq: int | None = None, paths: Sequence[str] = ()) -> UndoReport:
        return await self.client.restore_files(id, seq, paths)

    # -- questions ----------------------------------------------------------------------------------------------------

    async def list_approvals(self, thread: str = "") -> list[Approval]:
        return await self.client.approvals(thread)

    async def count_hidden_approvals(self) -> int:
        return 0

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        thread = thread or next(
            (approval.thread_id for approval in await self.client.approvals() if approval.id == id), ""
        )
        await self.client.answer(id, choice, words=words, args=args, thread_id=thread)
        return thread

    async def add_allow_rule(self, rule: str) -> None:
        path = f"/agents/{await self.resolve_agent_id()}/hooks"
        hooks = (await self.client.request("GET", path))["hooks"]
        current = next((hook["options"] for hook in hooks if hook["name"] == "permissions" and hook["on"]), None)
        if current is None:
            raise ConfigError(f"the agent {await self.resolve_agent_id()!r} of {self.name} has no permission rules")
        rules = current if isinstance(current, dict) else {}
        changed = {**rules, "allow": [*rules.get("allow", ()), rule]}
        await self.client.request("PATCH", path, json={"hooks": {"permissions": changed}})

    # -- replay -------------------------------------------------------------------------------------------------------

    async def replay(
        self,
        threads: Sequence[str] | None = None,
        *,
        rules: Mapping[Literal["deny", "ask", "allow"], Sequence[str]] | None = None,
        guards: Sequence[Hook] = (),
    ) -> ReplayReport:
        if guards:
            raise ConfigError("Python guards can be replayed only on local threads; remove --guard or --server")
        body = {"agent_id": await self.resolve_agent_id(), "thread_ids": None if threads is None else [*threads]}
        more = {type: [*given] for type, given in (rules or {}).items()}
        return ReplayReport.model_validate(await self.client.request("POST", "/replay", json={**body, "rules": more}))


class _RemoteRun:
    """A run on a server, followed through its event stream."""

    def __init__(self, host: RemoteHost, words: str, thread: str, recipe: str) -> None:
        self._host, self._request, self._new = host, (words, thread, recipe), not thread
        self._stream: RunStream | None = None
        self._last: Event | None = None

    @property
    def run_id(self) -> str:
        return self._stream.run_id if self._stream is not None else ""

    @property
    def thread_id(self) -> str:
        return self._request[1] or (self._stream.thread_id if self._stream is not None else "")

    async def __aiter__(self) -> AsyncIterator[Event]:
        self._stream = await self._host.open_stream(*self._request)
        if self._stream is None:
            return
        self._stream.on_break = self._host.on_break
        async for event in self._stream:
            if self._new and self.thread_id:
                self._new = False
                await self._host.record_folder(self.thread_id)
            self._last = event
            yield event

    async def stop(self) -> None:
        if self.run_id:
            await self._host.client.cancel(self.run_id)

    async def get_outcome(self) -> RunOutcome:
        if self._stream is None:  # there was nothing to resume
            return RunOutcome("", self.thread_id, "completed", "completed")
        state, last = await self._host.client.run(self.run_id), self._last
        text = {"text": last.text} if isinstance(last, Done) else {}
        failure = last if isinstance(last, Failed) else state.error
        error, code = (failure.message, failure.code) if failure is not None else ("", "")
        outcome = "failed" if error else last.outcome if isinstance(last, Done) else state.outcome or "interrupted"
        reason = last.reason if isinstance(last, Done) else state.reason or state.state
        return RunOutcome(
            self.run_id,
            self.thread_id,
            outcome,
            reason,
            usage=state.usage.model_dump(),
            cost=state.cost,
            error=error,
            code=code,
            **text,
        )
