"""Undo of file changes, for the routes of the server and the local host of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from wick.agent import Agent
from wick.api.types import FileDiff, OutsideToolUse, UndoPreview, UndoReport
from wick.capabilities.snapshots import Snapshots
from wick.errors import BackendError
from wick.threads import Thread


def find_snapshots(agent: Agent) -> Snapshots:
    """Return the snapshots of an agent; raise a BackendError if it takes none."""
    for part in agent.capabilities:
        if isinstance(part, Snapshots):
            return part
    raise BackendError("the agent takes no snapshots; switch them on with `snapshots: true`", "conflict")


async def preview_undo(
    agent: Agent, thread: Thread, seq: int | None = None, paths: Sequence[str] | None = None
) -> UndoPreview:
    """Return the changes of an undo to the moment after an entry; before the last turn by default."""
    snapshots = find_snapshots(agent)
    seq = snapshots.find_last_turn(thread) if seq is None else seq
    entry, _ = snapshots.find_snapshot(thread, seq)
    changes = await snapshots.diff(thread, seq, paths or None)
    outside = snapshots.list_outside_uses(thread, seq, agent.tools)
    return UndoPreview(
        seq=seq,
        at=entry.at,
        changes=[
            FileDiff(path=_make_valid(change.path), kind=change.kind, diff=_make_valid(text))
            for change, text in changes
        ],
        not_undone=[OutsideToolUse(seq=use.seq, tool=use.tool, reason=use.reason) for use in outside],
    )


async def undo_files(
    agent: Agent, thread: Thread, seq: int | None = None, paths: Sequence[str] | None = None
) -> UndoReport:
    """Restore the files of the moment after an entry, and log it in the thread."""
    snapshots = find_snapshots(agent)
    seq = snapshots.find_last_turn(thread) if seq is None else seq
    report = await snapshots.restore(thread, seq, paths or None)
    left = {_make_valid(path): reason for path, reason in report.left.items()}
    restored = [_make_valid(path) for path in report.restored]
    return UndoReport(seq=seq, entry=thread.entries[-1].seq, restored=restored, left=left)


def _make_valid(text: str) -> str:
    """Return a text without bytes of file names that are not UTF-8, which JSON cannot have."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
