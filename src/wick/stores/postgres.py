"""The Postgres store: for several machines.

An append is one statement whose INSERT depends on the fence. All times come from the server's clock, and processes
notify each other by LISTEN and NOTIFY.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from math import inf
from typing import Any, Literal
from uuid import uuid4

from wick._internal.frozen import digest
from wick._internal.worker_threads import run_in_thread
from wick.errors import StoreError
from wick.protocols import Hit, Lease, News, NewThread, Page, Queued, ServerInfo, Summary, WorkspaceHome
from wick.stores import rows
from wick.stores.postgres_claims import claim_threads, fill_expiry
from wick.stores.postgres_members import Heartbeat, ServerMember, list_servers
from wick.stores.postgres_notifier import ThreadNotifier
from wick.stores.postgres_pool import CONNECTIONS, Connection, LoopPools, channel_name, fetch_news, pipeline
from wick.stores.postgres_queries import (
    APPEND,
    ENQUEUE,
    EXPIRE,
    FIRST_EXPIRY,
    HAS_UNLAPSED,
    HOLDER,
    INBOX,
    NOW,
    RELEASE,
    RENEW_ALL,
    START,
    SUMMARY,
    copy_thread,
    create_thread,
    explain_failed_append,
    fetch_inbox,
    fetch_rows,
    find_thread,
    hit_from_row,
    inbox_from_columns,
    read_batch,
    summary_from_row,
    update_questions,
)
from wick.stores.postgres_search import ensure_search_index, like_pattern
from wick.stores.postgres_workspaces import MOVE, RECORD_CHANGE, find_workspace
from wick.stores.process_identity import server_id
from wick.stores.watchers import ThreadKey, follow_thread

WAIT_SECONDS = 10.0  # for a connection
LEAVE_SECONDS = 5.0
MILESTONES = ("asked", "answered", "rewind")  # entries that all watches are notified of at once


class Postgres:
    """A store in a schema of a Postgres database. The schema is created if missing, the database is not.

    `conninfo` is an address such as `postgresql://user@host/database`.
    """

    def __init__(
        self, conninfo: str, *, schema: str = "wick", connections: int = CONNECTIONS, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", schema):
            raise StoreError(f"a schema is named by small letters, digits and _, not {schema!r}", "invalid")
        self._channel, self._conninfo, self._schema = channel_name(schema), conninfo, schema
        self._wait_seconds, self.server_id, self.place = wait_seconds, "", ""
        self._heartbeat: Heartbeat | None = None
        self._pools = LoopPools(conninfo, schema, connections, wait_seconds)

    def __repr__(self) -> str:
        return f"Postgres({self._channel!r})"  # the address may contain a password

    @property
    def _notifier(self) -> ThreadNotifier:
        return self._pools.get_notifier()

    async def check(self) -> None:
        """Connect, bring the schema up to date, and check that each table can be read; a StoreError if not."""
        async with self._pools.connection(writes=False) as connection:
            for table in ("threads", "entries", "questions", "inbox", "blobs", "keyed"):
                await fetch_rows(connection, f"SELECT 1 FROM {table} LIMIT 1", ())
            await fill_expiry(connection)
            await ensure_search_index(connection)

    # -- threads ----------------------------------------------------------------------------------------------------

    async def create(self, owner: str, id: str, *, title: str = "", meta: Mapping[str, Any] | None = None) -> Summary:
        rows.check_name("an owner", owner)
        about = rows.encode_meta(meta)
        async with self._pools.connection(writes=True) as connection:
            return await create_thread(connection, owner, id, rows.shorten_title(title), about)

    async def head(self, owner: str, id: str) -> Summary:
        async with self._pools.connection(writes=False) as connection:
            return summary_from_row(await find_thread(connection, owner, id, SUMMARY))

    async def list(
        self,
        owner: str,
        *,
        running: bool | None = None,
        asking: bool | None = None,
        queued: bool | None = None,
        prefix: str = "",
        order: Literal["updated", "created"] = "updated",
        oldest_first: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> Page:
        if not rows.is_valid_name(owner) or not rows.is_valid_prefix(prefix):
            return Page(())
        where, values = rows.build_list_filter(owner, prefix, running, asking, queued, "%s", (HAS_UNLAPSED, ()))
        return await self._list_page(where, values, order, oldest_first, cursor, limit)

    async def count(self, owner: str) -> int:
        if not rows.is_valid_name(owner):
            return 0
        async with self._pools.connection(writes=False) as connection:
            ((number,),) = await fetch_rows(connection, "SELECT count(*) FROM threads WHERE owner = %s", (owner,))
        return int(number)

    async def count_leases(self, owner: str) -> int:
        """Return the number of an owner's threads with a lease: those of their runs in progress, on all servers."""
        query = "SELECT count(*) FROM threads WHERE owner = %s AND holder <> ''"
        async with self._pools.connection(writes=False) as connection:
            ((number,),) = await fetch_rows(connection, query, (owner,))
        return int(number)

    async def unfinished(self, *, cursor: str = "", limit: int = 50, skip_holder: str = "") -> Page:
        where = ["(run <> '' OR queued > 0)"]
        if skip_holder:
            where.append(f"NOT (until > {NOW} AND starts_with(holder, %s))")
        return await self._list_page(where, (skip_holder,) if skip_holder else (), "created", True, cursor, limit)

    async def _list_page(
        self, where: Sequence[str], values: tuple[Any, ...], order: str, oldest_first: bool, cursor: str, limit: int
    ) -> Page:
        mark, limit = rows.decode_cursor(cursor, order, oldest_first), rows.clamp_limit(limit)
        query = rows.build_page_query(SUMMARY, where, order, oldest_first, mark, "%s")
        async with self._pools.connection(writes=False) as connection:
            found = await fetch_rows(connection, query, (*values, *(mark or ()), limit + 1))
        return rows.build_page(found, limit, order, oldest_first, summary_from_row)

    async def describe(
        self, owner: str, id: str, *, title: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> Summary:
        named = None if title is None else rows.shorten_title(title)
        about = None if meta is None else rows.encode_meta(meta)
        query = (
            "UPDATE threads SET title = coalesce(%s, title), meta = coalesce(%s, meta) WHERE owner = %s AND id = %s "
            f"RETURNING {SUMMARY}"
        )
        rows.check_names(owner, id)
        async with self._pools.connection(writes=True) as connection:
            for row in await fetch_rows(connection, query, (named, about, owner, id)):
                return summary_from_row(row)
        raise rows.not_found_error(id)

    async def delete(self, owner: str, id: str) -> None:
        rows.check_names(owner, id)
        query = "DELETE FROM threads WHERE owner = %s AND id = %s RETURNING key"
        async with self._pools.connection(writes=True) as connection:
            if not await fetch_rows(connection, query, (owner, id)):
                raise rows.not_found_error(id)
        self._notifier.report_change((owner, id), None)

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> builtins.list[tuple[str, str]]:
        given = {"idle": rows.check_idle_seconds(idle), "owner": owner, "limit": limit}
        async with self._pools.connection(writes=True) as connection:
            expired = [(row[0], row[1]) for row in await fetch_rows(connection, EXPIRE, given)]
        for key in expired:
            self._notifier.report_change(key, None)
        return expired

    async def fork(
        self, owner: str, id: str, at: int, new_id: str, *, title: str = "", meta: Mapping[str, Any] | None = None
    ) -> Summary:
        rows.check_thread_id(new_id)
        about = None if meta is None else rows.encode_meta(meta)
        source = await self.head(owner, id)
        if type(at) is not int or not 0 <= at <= source.last:
            raise rows.no_entry_error(id, at, source.last)
        history = rows.PreparedAppend()
        async for batch in self.read(owner, id, limit=at):  # the log is append-only
            for entry in batch:
                rows.note_entry(history, entry["kind"], entry["data"])
        title = rows.shorten_title(title) or source.title or history.title
        async with self._pools.connection(writes=True) as connection, connection.transaction():
            # locked against deletion
            key, kept, created = await find_thread(connection, owner, id, "key, meta, created", "FOR SHARE")
            if created != source.created:  # deleted by now, and created again
                raise rows.not_found_error(id)
            await create_thread(connection, owner, new_id, title, kept if about is None else about)
            (new_key,) = await find_thread(connection, owner, new_id, "key")
            await copy_thread(connection, key, new_key, at, history)
            return summary_from_row(await find_thread(connection, owner, new_id, SUMMARY))

    # -- the log ----------------------------------------------------------------------------------------------------

    async def append(
        self,
        owner: str,
        id: str,
        entries: Sequence[Mapping[str, Any]],
        *,
        expect: int,
        fence: int,
        took: Sequence[int] = (),
    ) -> int:
        last, _ = await self._append(owner, id, entries, expect, fence, took, release=False)
        return last

    async def _append(
        self,
        owner: str,
        id: str,
        entries: Sequence[Mapping[str, Any]],
        expect: int,
        fence: int,
        took: Sequence[int],
        *,
        release: bool,
        also: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> tuple[int, Summary | None]:
        """Append entries; with `release`, release the lease in the same transaction.

        Return the last entry, and the thread as it is then; None if that takes another query.
        """
        prepared = rows.prepare_append(id, entries, rows.check_number("the expected entry", expect))
        fence, took = rows.check_number("a fence", fence), rows.check_positions(took)
        plain = all(step == "over" for step, _ in prepared.questions)
        seqs, kinds, ats, datas, sums = zip(*prepared.rows, strict=True)
        given = {
            "owner": owner,
            "id": id,
            "fence": fence,
            "expect": expect,
            "last": prepared.last,
            "run": prepared.run,
            "title": prepared.title,
            "over": plain and bool(prepared.questions),
            "release": release,
            "took": [*took],
            "seqs": [*seqs],
            "kinds": [*kinds],
            "ats": [*ats],
            "datas": [*datas],
            "sums": [*sums],
            "texts": [  # of messages, for searches
                rows.fold_text(rows.message_text(entry["data"])) if entry["kind"] == "message" else None
                for entry in entries
            ],
        }
        rows.check_names(owner, id)
        async with self._pools.connection(writes=True) as connection:
            if plain and also is not None:
                async with pipeline(connection):  # one round trip for this statement and the first one of `also`
                    await connection.execute("BEGIN")
                    appending = await connection.execute(APPEND, given)
                    await also(connection)
                    done = await appending.fetchall()
                    await connection.execute("COMMIT" if done else "ROLLBACK")
            else:
                async with nullcontext() if plain else connection.transaction():
                    done = await fetch_rows(connection, APPEND, given)
                    if done and not plain:
                        await update_questions(connection, done[0][0], id, prepared, took)
                        if also is not None:
                            await also(connection)
            if not done:
                last = await explain_failed_append(connection, owner, id, prepared, expect, fence, took, release)
                return last, None
        is_milestone = any(
            entry["kind"] in MILESTONES or (entry["kind"] == "run_start" and entry["data"].get("resumed"))
            for entry in entries
        )
        self._notifier.report_append((owner, id), News(prepared.last, done[0][1]), is_milestone)
        return prepared.last, summary_from_row(done[0][2:]) if plain else None

    async def read(
        self, owner: str, id: str, *, after: int = 0, limit: int | None = None
    ) -> AsyncGenerator[builtins.list[dict[str, Any]], None]:
        done, left = rows.check_number("where to begin", after), limit
        key = None
        while left is None or left > 0:
            most = rows.BATCH_ROWS if left is None else min(left, rows.BATCH_ROWS)
            async with self._pools.connection(writes=False) as connection:
                key, found = await read_batch(connection, owner, id, key, done, most)
            if not found:
                return
            yield found
            done, left = done + len(found), None if left is None else left - len(found)

    async def search(self, owner: str, text: str, *, limit: int = 20) -> builtins.list[Hit]:
        wanted, limit = rows.split_words(text), rows.clamp_limit(limit)
        if not rows.is_valid_name(owner):
            return []
        query = (
            "SELECT t.id, t.title, e.seq, e.kind, e.at, e.data, e.sum FROM threads t "
            "JOIN entries e ON e.thread = t.key WHERE t.owner = %s AND e.text IS NOT NULL "
            f"{'AND e.text LIKE %s ' * len(wanted)}"
            "ORDER BY e.at DESC, e.seq DESC LIMIT %s"
        )
        async with self._pools.connection(writes=False) as connection:
            found = await fetch_rows(connection, query, (owner, *map(like_pattern, wanted), limit))
        return [hit_from_row(row, wanted[0]) for row in found]

    # -- leases -----------------------------------------------------------------------------------------------------

    async def lease(self, owner: str, id: str, holder: str, seconds: float, *, new: NewThread | None = None) -> Lease:
        rows.check_name("a holder", holder)
        seconds = rows.check_lease_seconds(seconds)
        about, bodies = rows.encode_new_thread(owner, id, new)
        query = (
            f"UPDATE threads SET fence = nextval('fences'), holder = %s, until = {NOW} + %s "
            f"WHERE owner = %s AND id = %s AND (holder = %s OR {HOLDER} = '') "
            f"RETURNING fence, until, {INBOX}, {SUMMARY}"
        )
        if new is not None:
            return await self._start_thread(owner, id, about, bodies, holder, seconds)
        async with self._pools.connection(writes=True) as connection:
            rows.check_names(owner, id)
            found, other, left = await fetch_rows(connection, query, (holder, seconds, owner, id, "")), "", 0.0
            if not found:
                other, left = await find_thread(connection, owner, id, f"holder, until - {NOW}")
                if not rows.is_live_holder(other):  # its lease can be taken over at once
                    found = await fetch_rows(connection, query, (holder, seconds, owner, id, other))
            for fence, until, *row in found:
                self._note_lease((owner, id))
                return Lease(fence, holder, until, summary_from_row(row[5:]), inbox_from_columns(id, row[:5]))
        raise rows.held_error(id, other or "another process", left)

    async def _start_thread(
        self, owner: str, id: str, meta: str, bodies: Sequence[bytes], holder: str, seconds: float
    ) -> Lease:
        """Create a thread with messages in its inbox, and acquire its lease."""
        given = {
            "owner": owner,
            "id": id,
            "meta": meta,
            "count": len(bodies),
            "holder": holder,
            "seconds": seconds,
            "datas": [*bodies],
            "sums": [rows.inbox_checksum("message", body) for body in bodies],
        }
        async with self._pools.connection(writes=True) as connection:
            for _, fence, until, *row in await fetch_rows(connection, START, given):
                self._note_lease((owner, id))
                head = summary_from_row(row)
                items = [Queued(n, "message", rows.decode_json(body), head.created) for n, body in enumerate(bodies, 1)]
                return Lease(fence, holder, until, head, items)
        raise rows.exists_error(id)

    async def claim(
        self, holder: str, capacity: int, *, seconds: float = rows.LEASE_SECONDS, skip: Sequence[Summary] = ()
    ) -> builtins.list[Lease]:
        seconds = rows.check_claim(holder, capacity, seconds)
        if not capacity or not (self._heartbeat is None or self._heartbeat.is_steady):
            return []
        async with self._pools.connection(writes=True) as connection:
            leases = await claim_threads(connection, holder, server_id(holder), self.place, capacity, seconds, skip)
        for lease in leases:
            assert lease.head is not None
            self._note_lease((lease.head.owner, lease.head.id))
        return leases

    def _note_lease(self, key: ThreadKey) -> None:
        home, _ = self._pools.get_current()
        home.listen_for_lease()
        home.notifier.add_lease(key)

    # -- the cluster ------------------------------------------------------------------------------------------------

    async def join(
        self,
        version: str,
        capacity: int,
        count_runs: Callable[[], int],
        is_draining: Callable[[], bool],
        *,
        place: str = "",
        address: str = "",
    ) -> str:
        """Add a server to the cluster of this store, and return its id. Its leases lapse soon after its process ends.

        `count_runs` and `is_draining` are called from another OS thread, with each heartbeat. `place` identifies the
        folder of its workspaces, and `address` is where other servers reach it.
        """
        async with self._pools.connection(writes=True):
            pass  # the schema is up to date
        member = ServerMember(uuid4().hex[:12], version, capacity, count_runs, is_draining, place, address)
        self._heartbeat = Heartbeat(self._conninfo, self._schema, member)
        heartbeat, seconds = self._heartbeat, self._wait_seconds
        if not await run_in_thread(lambda: heartbeat.start(seconds), "joining a cluster"):
            raise StoreError("Postgres does not answer: this server cannot join its cluster", "unavailable")
        self.server_id, self.place = member.id, place
        return member.id

    async def leave(self) -> None:
        """Remove this server from the cluster. Leases that it still holds lapse at once."""
        heartbeat, self._heartbeat, self.server_id = self._heartbeat, None, ""
        if heartbeat is not None:
            await run_in_thread(lambda: heartbeat.stop(LEAVE_SECONDS), "leaving a cluster")

    async def servers(self, *, alive_only: bool = False) -> builtins.list[ServerInfo]:
        """Return the servers of the cluster, also those that have died within a day unless `alive_only`."""
        async with self._pools.connection(writes=False) as connection:
            return await list_servers(connection, alive_only)

    async def find_workspace(self, owner: str, agent: str) -> WorkspaceHome:
        """Return where the workspace of a user's agent is. The first server to ask has it."""
        async with self._pools.connection(writes=True) as connection:
            return await find_workspace(connection, owner, agent, self.place)

    async def move_workspace(self, owner: str, agent: str, home: WorkspaceHome, snapshot: str) -> bool:
        """Record that this server has a workspace, whose files are those of a snapshot.

        Return False if `home` is no longer its record, or if it is in use there. The leases that servers of other
        places have of its threads end.
        """
        given = {"owner": owner, "agent": agent, "from": home.place, "seen": home.snapshot}
        given |= {"place": self.place, "snapshot": snapshot}
        async with self._pools.connection(writes=True) as connection:
            return bool(await fetch_rows(connection, MOVE, given))

    async def record_change(self, owner: str, agent: str, snapshot: str | None = None, at: float = 0.0) -> bool:
        """Record that the files of a workspace of this place have changed; return False if it is at another place.

        `snapshot` is their last snapshot, taken `at` a time of this machine. It is empty if the last one is too old to
        be restored, and None if it stays.
        """
        given = {"owner": owner, "agent": agent, "place": self.place, "snapshot": snapshot, "at": at}
        async with self._pools.connection(writes=True) as connection:
            return bool(await fetch_rows(connection, RECORD_CHANGE, given))

    async def forget_workspace(self, owner: str, agent: str) -> None:
        """Delete the record of a workspace."""
        async with self._pools.connection(writes=True) as connection:
            await connection.execute("DELETE FROM workspaces WHERE owner = %s AND agent = %s", (owner, agent))

    @property
    def servers_alive(self) -> int:
        """The live servers of the cluster, counted with the last heartbeat of this one; 0 before it joins."""
        return self._heartbeat.servers_alive if self._heartbeat is not None else 0

    @property
    def next_lapse(self) -> float:
        """The monotonic time at which the leases of another server lapse, unless its heartbeat is seen before."""
        return self._heartbeat.next_lapse if self._heartbeat is not None else inf

    async def renew(self, owner: str, id: str, fence: int, seconds: float) -> Lease:
        given = (rows.check_lease_seconds(seconds), owner, id, rows.check_number("a fence", fence))
        query = (
            f"UPDATE threads SET until = {NOW} + %s WHERE owner = %s AND id = %s AND fence = %s AND holder <> '' "
            "RETURNING holder, until"
        )
        rows.check_names(owner, id)
        async with self._pools.connection(writes=True) as connection:
            for holder, until in await fetch_rows(connection, query, given):
                return Lease(fence, holder, until)
            await find_thread(connection, owner, id, "key")
        raise rows.fenced_error(id)

    async def renew_all(self, leases: Sequence[tuple[str, str, int]], seconds: float) -> builtins.list[Lease | None]:
        owners, ids, fences = zip(*leases, strict=True)
        given = {
            "owners": [*owners],
            "ids": [*ids],
            "fences": [*fences],
            "seconds": rows.check_lease_seconds(seconds),
        }
        async with self._pools.connection(writes=True) as connection:
            found = await fetch_rows(connection, RENEW_ALL, given)
        renewed = {(owner, id, fence): Lease(fence, holder, until) for owner, id, fence, holder, until in found}
        return [renewed.get(lease) for lease in leases]

    async def release(
        self,
        owner: str,
        id: str,
        fence: int,
        *,
        entries: Sequence[Mapping[str, Any]] = (),
        expect: int = 0,
        took: Sequence[int] = (),
        also: Callable[[Connection], Awaitable[None]] | None = None,
    ) -> Summary:
        """Release a lease; see `Store.release`. With entries, `also` may write other tables in the transaction."""
        given = {"owner": owner, "id": id, "fence": rows.check_number("a fence", fence)}
        rows.check_names(owner, id)
        if entries:
            _, head = await self._append(owner, id, entries, expect, fence, took, release=True, also=also)
            self._notifier.remove_lease((owner, id))
            return head or await self.head(owner, id)
        async with self._pools.connection(writes=True) as connection:
            found = await fetch_rows(connection, RELEASE, given)
        self._notifier.remove_lease((owner, id))
        if not found:
            raise rows.not_found_error(id)
        return summary_from_row(found[0])

    # -- the inbox --------------------------------------------------------------------------------------------------

    async def enqueue(self, owner: str, id: str, *messages: Mapping[str, Any], key: str = "") -> int:
        bodies = rows.encode_messages(messages, key)
        async with self._pools.connection(writes=True) as connection:
            if len(bodies) == 1 and not key:
                news, has_holder = await self._enqueue_item(connection, owner, id, "message", bodies[0])
                self._notifier.report_enqueue((owner, id), news, has_holder)
                return news.inbox
            async with connection.transaction():
                (thread,) = await find_thread(connection, owner, id, "key", "FOR UPDATE")
                query = "SELECT position FROM keyed WHERE thread = %s AND key = %s"
                for (before,) in await fetch_rows(connection, query, (thread, key)) if key else ():
                    return int(before)  # enqueued earlier under this idempotency key
                added = [await self._enqueue_item(connection, owner, id, "message", body) for body in bodies]
                news, has_holder = added[-1]
                if key:
                    await connection.execute("INSERT INTO keyed VALUES (%s, %s, %s)", (thread, key, news.inbox))
        self._notifier.report_enqueue((owner, id), news, has_holder)
        return news.inbox

    async def _enqueue_item(
        self, connection: Connection, owner: str, id: str, kind: str, body: bytes
    ) -> tuple[News, bool]:
        """Add an item to an inbox; return the position of the thread, and whether it may have a lease holder."""
        rows.check_names(owner, id)
        given = {"owner": owner, "id": id, "kind": kind, "data": body, "sum": rows.inbox_checksum(kind, body)}
        for position, last, has_holder in await fetch_rows(connection, ENQUEUE, given):
            return News(last, position), has_holder
        raise rows.not_found_error(id)

    async def answer(self, owner: str, id: str, question: str, data: Mapping[str, Any]) -> int:
        body = rows.encode_inbox_item("an answer", data, id=question)
        async with self._pools.connection(writes=True) as connection, connection.transaction():
            (key,) = await find_thread(connection, owner, id, "key", "FOR UPDATE")
            query = "SELECT state FROM questions WHERE thread = %s AND id = %s"
            found = await fetch_rows(connection, query, (key, question)) if rows.is_valid_name(question) else []
            if not found:
                raise rows.no_question_error(id, question)
            if found[0][0] != "open":
                raise rows.answered_error(id, question)
            news, has_holder = await self._enqueue_item(connection, owner, id, "answer", body)
            given = (news.inbox, key, question)
            await connection.execute(
                "UPDATE questions SET state = 'answered', position = %s WHERE thread = %s AND id = %s", given
            )
            query = f"UPDATE threads SET asking = asking - 1, expires = {FIRST_EXPIRY} WHERE key = %s"
            await connection.execute(query, (key,))
        self._notifier.report_enqueue((owner, id), news, has_holder)
        return news.inbox

    async def inbox(self, owner: str, id: str) -> builtins.list[Queued]:
        async with self._pools.connection(writes=False) as connection:
            return await fetch_inbox(connection, owner, id)

    async def watch(self, owner: str, id: str) -> AsyncGenerator[News, None]:
        home, watchers = self._pools.get_current()

        async def now() -> News | None:
            rows.check_names(owner, id)
            await home.start_listening()
            if home.is_closed:
                return None
            home.notifier.request_changes([(owner, id)])
            async with self._pools.connection(writes=False) as connection:
                news = await fetch_news(connection, (owner, id))
            if news is None:
                raise rows.not_found_error(id)
            return news

        following = follow_thread(watchers, (owner, id), now)
        try:
            async for news in following:
                yield news
        finally:
            await following.aclose()
            if not watchers:
                home.stop_listening_if_idle()

    # -- blobs ------------------------------------------------------------------------------------------------------

    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        name, count = digest(data), "SELECT coalesce(sum(octet_length(data)), 0) FROM blobs WHERE thread = %s"
        async with self._pools.connection(writes=True) as connection, connection.transaction():
            (key,) = await find_thread(connection, owner, id, "key", "FOR UPDATE")
            stored = await fetch_rows(connection, "SELECT 1 FROM blobs WHERE thread = %s AND sha256 = %s", (key, name))
            if not stored:
                ((size,),) = await fetch_rows(connection, count, (key,))
                rows.check_blob_size(id, data, size)
                await connection.execute("INSERT INTO blobs VALUES (%s, %s, %s)", (key, name, bytes(data)))
        return name

    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes:
        query = "SELECT data FROM blobs WHERE thread = %s AND sha256 = %s"
        async with self._pools.connection(writes=False) as connection:
            (key,) = await find_thread(connection, owner, id, "key")
            found = await fetch_rows(connection, query, (key, sha256)) if rows.is_valid_name(sha256) else []
        if not found:
            raise rows.no_blob_error(id, sha256)
        return rows.verify_blob(id, sha256, found[0][0])

    async def close(self) -> None:
        """Close the connections of this event loop; a later call opens new ones."""
        await self._pools.close()
