"""Undo: the changes since an entry of a thread, and the restoration of the files of that moment."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from wick.api.types import UndoPreview, UndoReport
from wick.api.undo import preview_undo, undo_files
from wick.server.auth.identity import User
from wick.server.dependencies import Caller, Wick
from wick.server.errors import ApiError
from wick.server.http.json_body import JsonRoute
from wick.server.runs.threads import thread_agent
from wick.server.service import Service
from wick.server.strict_models import StrictModel
from wick.stores.held_thread import hold
from wick.threads import Thread

router = APIRouter(prefix="/threads", tags=["undo"], route_class=JsonRoute)

MAX_PATHS = 100
Path = Annotated[str, Field(min_length=1, max_length=4_096)]


class FileRestore(StrictModel):
    """The moment and the paths to restore. Without an entry, the files before the last turn."""

    seq: int | None = Field(None, ge=0, le=2**53, description="restore the files of the moment after this entry")
    paths: list[Path] = Field(
        default_factory=list, max_length=MAX_PATHS, description="files and folders to restore; empty for all"
    )


@router.get("/{id}/files")
async def preview(
    id: str,
    caller: Caller,
    wick: Wick,
    seq: Annotated[
        int | None, Query(ge=0, le=2**53, description="an entry; without one, the moment before the last turn")
    ] = None,
    path: Annotated[
        list[Path], Query(max_length=MAX_PATHS, description="a file or folder; repeat it for several")
    ] = [],  # noqa: B006
) -> UndoPreview:
    """Return the changes that restoring the files of a moment would make. No file changes."""
    head = await wick.store.head(caller.id, id)
    instance = await wick.registry.get_agent(caller, thread_agent(head))
    with instance.hold():
        return await preview_undo(instance.agent, await wick.runs.sessions.load(id, owner=caller.id), seq, path)


@router.post("/{id}/files/restore")
async def restore(id: str, body: FileRestore, caller: Caller, wick: Wick) -> UndoReport:
    """Restore the files of a moment. A snapshot is taken first, so that this can be undone."""
    return await restore_files(wick, caller, id, body.seq, body.paths)


async def restore_files(wick: Service, user: User, id: str, seq: int | None, paths: list[str]) -> UndoReport:
    """Restore the files of a thread's agent, unless one of its runs is in progress."""
    head = await wick.store.head(user.id, id)
    agent = thread_agent(head)
    running = [one.info.thread for one in wick.runs.executor.running.values()
               if (one.info.owner, one.info.agent) == (user.id, agent)]  # fmt: skip
    if running:
        raise ApiError(409, "conflict", f"thread {running[0]} has a run in this workspace; cancel it, then undo")
    instance, thread = await wick.registry.get_agent(user, agent), Thread(id)
    with instance.hold():
        async with hold(wick.store, user.id, thread, wait=False):
            report = await undo_files(instance.agent, thread, seq, paths)
    wick.file_changes.report(user.id, agent)
    return report
