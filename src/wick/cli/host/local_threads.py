"""The threads of this machine's data folder: those of the local owner, including threads of a server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Literal

from wick import run_log
from wick._internal.frozen import thaw
from wick.capabilities.sessions import LOCAL, Sessions
from wick.cli.host.protocol import Choice, PendingApproval, ThreadRow, ThreadTranscript
from wick.errors import StoreError
from wick.protocols import Store, Summary
from wick.stores.held_thread import hold
from wick.stores.markdown_export import export_markdown
from wick.threads import Thread

PAGE = 200
QUESTION_KEYS = ("id", "question", "run", "operation", "tool", "call_id", "args", "hash", "expires")


class LocalThreads:
    """Threads in a store, and their pending questions."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    @property
    def store(self) -> Store:
        return self.sessions.store

    # -- threads ------------------------------------------------------------------------------------------------------

    async def list_threads(self, *, limit: int = 50, folder: str = "", asking: bool | None = None) -> list[ThreadRow]:
        """Return the latest threads, of all folders or of one, without those of subagents."""
        found = list[ThreadRow]()
        async for head in self._iter_heads(asking):
            if "parent" not in head.meta and folder in ("", head.meta.get("folder")):
                found.append(thread_row(head))
            if len(found) >= limit:
                break
        return found

    async def _iter_heads(self, asking: bool | None = None) -> AsyncIterator[Summary]:
        cursor = None
        while cursor != "":
            page = await self.store.list(LOCAL, asking=asking, cursor=cursor or "", limit=PAGE)
            for head in page.threads:
                yield head
            cursor = page.next

    async def get_thread(self, id: str) -> ThreadTranscript:
        head, thread = await self.store.head(LOCAL, id), await self.sessions.load(id)
        places = {object_id(entry.data): (entry.seq, entry.at) for entry in thread.entries if entry.kind == "message"}
        rows = [(message, *places.get(object_id(message), (None, 0.0))) for message in thread.messages]
        return ThreadTranscript(
            **_thread_fields(head),
            messages=[message.to_json() | {"seq": seq, "at": at} for message, seq, at in rows],
            todos=thaw(thread.values.get("todos", [])),
            files=thaw(thread.values.get("files", {})),
            usage=thread.usage,
        )

    async def fork_thread(self, id: str, at: int | None = None, *, title: str = "") -> ThreadRow:
        """Copy a thread up to the entry `at`. A run that is open there ends as cancelled in the copy."""
        head = await self.store.head(LOCAL, id)
        position = head.last if at is None else at
        about = {key: value for key, value in head.meta.items() if key != "agent"}  # else a server would resume its run
        about |= {"forked_from": id, "forked_at": position}
        forked = await self.store.fork(LOCAL, id, position, Thread().id, title=title, meta=about)
        if forked.run:
            await self._end_open_run(forked)
        owner = {"agent": head.meta["agent"]} if "agent" in head.meta else {}
        return thread_row(await self.store.describe(LOCAL, forked.id, meta={**forked.meta, **owner}))

    async def _end_open_run(self, forked: Summary) -> None:
        thread = Thread(forked.id)
        async with hold(self.store, LOCAL, thread, wait=False):
            run_log.end_abandoned_run(thread, forked.run, [], "cancelled", "the thread was forked")
            await thread.saved()

    async def rename_thread(self, id: str, title: str) -> ThreadRow:
        return thread_row(await self.store.describe(LOCAL, id, title=title))

    async def export_thread(self, id: str, format: Literal["json", "markdown"] = "json") -> str:
        """Return the log of a thread as JSON, or its messages as Markdown."""
        head, thread = await self.store.head(LOCAL, id), await self.sessions.load(id)
        return json.dumps(thread.to_json()) if format == "json" else export_markdown(head.title or id, thread)

    async def delete_thread(self, id: str) -> None:
        """Delete a thread and those of its subagents."""
        if (await self.store.head(LOCAL, id)).leased:
            raise StoreError(f"thread {id} has a running run; stop it first", "conflict")
        for head in [
            head async for head in self._iter_heads() if "parent" in head.meta and head.id.startswith(f"{id}.")
        ]:
            with suppress(StoreError):
                await self.store.delete(LOCAL, head.id)
        await self.store.delete(LOCAL, id)

    # -- questions ----------------------------------------------------------------------------------------------------

    async def list_approvals(self, thread: str = "") -> list[PendingApproval]:
        """Return the pending questions of one thread or of all."""
        heads = [await self.store.head(LOCAL, thread)] if thread else [head async for head in self._iter_heads(True)]
        return [
            _pending_approval(head, thaw(question))
            for head in heads
            for question in await self.sessions.questions(head.id)
        ]

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        question = await self.find_approval(id, thread)
        await self.sessions.answer(question.thread, id, choice, words=words, args=args, by=LOCAL)
        return question.thread

    async def find_approval(self, id: str, thread: str = "") -> PendingApproval:
        """Return a pending question."""
        for found in await self.list_approvals(thread):
            if found.id == id:
                return found
        raise StoreError(f"there is no pending question {id!r}; list them with: wick approvals", "not_found")


def thread_row(head: Summary) -> ThreadRow:
    return ThreadRow(**_thread_fields(head))


def _thread_fields(head: Summary) -> dict[str, Any]:
    agent = str(head.meta.get("agent") or head.meta.get("agent_name", ""))
    fields = {name: getattr(head, name) for name in ("id", "title", "created", "updated", "last", "run")}
    state = {"running": head.leased, "asking": head.asking, "queued": head.queued}
    return {**fields, **state, "agent": agent, "folder": str(head.meta.get("folder", ""))}


def _pending_approval(head: Summary, question: Mapping[str, Any]) -> PendingApproval:
    info = thread_row(head)
    known = {key: question[key] for key in QUESTION_KEYS if key in question and key not in ("run", "hash")}
    about = {key: value for key, value in question.items() if key not in QUESTION_KEYS}
    run = str(question.get("run", ""))
    return PendingApproval(**known, thread=head.id, agent=info.agent, title=head.title, run=run, about=about)


object_id = id  # in this module `id` is a parameter
