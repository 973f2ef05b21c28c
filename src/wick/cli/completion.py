"""Shell completion of thread ids, and of agents in a file.

Completion must be fast and silent: it reads only local files, and offers nothing after an error.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from wick._internal.prompt_text import to_one_line

MAX_ITEMS = 50
TITLE_CHARS = 60


def complete_thread_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the ids of the latest local threads, with their titles."""
    try:
        return [
            CompletionItem(head.id, help=to_one_line(head.title, TITLE_CHARS))
            for head in ([] if ctx.params.get("server") else asyncio.run(_latest_threads()))
            if head.id.startswith(incomplete)
        ]
    except Exception:
        return []


async def _latest_threads() -> list[Any]:
    from wick._internal.paths import data_folder
    from wick.capabilities.sessions import LOCAL
    from wick.stores.sqlite import Sqlite

    path = data_folder() / "threads.db"
    if not path.exists():
        return []
    store = Sqlite(path)
    try:
        return [*(await store.list(LOCAL, limit=MAX_ITEMS)).threads]
    finally:
        await store.close()


def complete_agent_specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete FILE:ID with the agents of the file; without a colon, complete files."""
    path, colon, id = incomplete.rpartition(":")
    if not colon:
        return [CompletionItem(incomplete, type="file")]
    try:
        from wick._internal.safe_yaml import read

        agents = read(Path(path), os.environ).data.get("agents")
        names = [*agents] if isinstance(agents, dict) else []
        return [CompletionItem(f"{path}:{name}") for name in names if name.startswith(id)]
    except Exception:
        return []
