"""The threads of this machine's data folder: those of the local owner, including threads of a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from wick._internal.frozen import thaw
from wick.api.conversions import make_approval, make_thread_info
from wick.api.types import Approval, Choice, ThreadDetail, ThreadInfo, ThreadMessage, TokenUsage
from wick.capabilities.sessions import LOCAL, Sessions
from wick.errors import StoreError
from wick.protocols import Store
from wick.resume import end_abandoned_run
from wick.stores.held_thread import hold, iter_threads
from wick.stores.markdown_export import export_markdown
from wick.threads import Thread

PAGE = 200


class LocalThreads:
    """Threads in a store, and their pending questions."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions

    @property
    def store(self) -> Store:
        return self.sessions.store

    # -- threads ------------------------------------------------------------------------------------------------------

    async def list_threads(self, *, limit: int = 50, folder: str = "", asking: bool | None = None) -> list[ThreadInfo]:
        """Return the latest threads, of all folders or of one, without those of subagents."""
        threads = list[ThreadInfo]()
        async for head in iter_threads(self.store, LOCAL, asking=asking):
            if "parent" not in head.meta and folder in ("", head.meta.get("folder")):
                threads.append(make_thread_info(head))
            if len(threads) >= limit:
                break
        return threads

    async def list_thread_ids(self, prefix: str) -> list[str]:
        """Return the ids that begin with a prefix, up to one page."""
        return [head.id for head in (await self.store.list(LOCAL, prefix=prefix, limit=PAGE)).threads]

    async def get_thread(self, id: str) -> ThreadDetail:
        head, thread = await self.store.head(LOCAL, id), await self.sessions.load(id)
        places = {object_id(entry.data): (entry.seq, entry.at) for entry in thread.entries if entry.kind == "message"}
        rows = [(message, *places.get(object_id(message), (None, 0.0))) for message in thread.messages]
        return ThreadDetail(
            **make_thread_info(head).model_dump(),
            messages=[
                ThreadMessage.model_validate(message.to_json() | {"seq": seq, "at": at}) for message, seq, at in rows
            ],
            todos=thaw(thread.values.get("todos", [])),
            files=thaw(thread.values.get("files", {})),
            usage=TokenUsage.model_validate(thread.usage),
        )

    async def fork_thread(self, id: str, at: int | None = None, *, title: str = "") -> ThreadInfo:
        """Copy a thread up to the entry `at`. A run that is open there ends as cancelled in the copy."""
        head = await self.store.head(LOCAL, id)
        position = head.last if at is None else at
        about = {key: value for key, value in head.meta.items() if key != "agent"}  # else a server would resume its run
        about |= {"forked_from": id, "forked_at": position}
        forked = await self.store.fork(LOCAL, id, position, Thread().id, title=title, meta=about)
        if forked.run:
            thread = Thread(forked.id)
            async with hold(self.store, LOCAL, thread, wait=False):
                end_abandoned_run(thread, forked.run, [], "cancelled", "the thread was forked")
                await thread.saved()
        owner = {"agent": head.meta["agent"]} if "agent" in head.meta else {}
        return make_thread_info(await self.store.describe(LOCAL, forked.id, meta={**forked.meta, **owner}))

    async def rename_thread(self, id: str, title: str) -> ThreadInfo:
        return make_thread_info(await self.store.describe(LOCAL, id, title=title))

    async def export_thread(self, id: str, format: Literal["json", "markdown"] = "json") -> str:
        """Return the log of a thread as JSON, or its messages as Markdown."""
        head, thread = await self.store.head(LOCAL, id), await self.sessions.load(id)
        return json.dumps(thread.to_json()) if format == "json" else export_markdown(head.title or id, thread)

    async def delete_thread(self, id: str) -> None:
        """Delete a thread and those of its subagents."""
        if (await self.store.head(LOCAL, id)).leased:
            raise StoreError(f"thread {id} has a running run; stop it first", "conflict")
        for head in [
            head
            async for head in iter_threads(self.store, LOCAL)
            if "parent" in head.meta and head.id.startswith(f"{id}.")
        ]:
            with suppress(StoreError):
                await self.store.delete(LOCAL, head.id)
        await self.store.delete(LOCAL, id)

    # -- questions ----------------------------------------------------------------------------------------------------

    async def list_approvals(self, thread: str = "") -> list[Approval]:
        """Return the pending questions of one thread or of all."""
        named = [thread] if thread else None
        heads = [head async for head in iter_threads(self.store, LOCAL, named, asking=True)]
        return [
            make_approval(head, thaw(question), make_thread_info(head).agent)
            for head in heads
            for question in await self.sessions.questions(head.id)
        ]

    async def count_hidden_approvals(self) -> int:
        """Return the number of pending questions of other owners: of programs that run agents with `user=`."""
        return sum([head.asking async for head in self.sessions.iter_unfinished() if head.owner != LOCAL])

    async def answer_approval(
        self, id: str, choice: Choice, *, words: str = "", args: Mapping[str, Any] | None = None, thread: str = ""
    ) -> str:
        question = await self.find_approval(id, thread)
        await self.sessions.answer(question.thread_id, id, choice, words=words, args=args, by=LOCAL)
        return question.thread_id

    async def find_approval(self, id: str, thread: str = "") -> Approval:
        """Return a pending question."""
        for approval in await self.list_approvals(thread):
            if approval.id == id:
                return approval
        raise StoreError(f"there is no pending question {id!r}; list them with: wick approvals", "not_found")


object_id = id  # in this module `id` is a parameter
