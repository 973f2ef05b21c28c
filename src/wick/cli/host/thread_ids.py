"""Thread ids on the command line: whole ids, unique beginnings of ids, and `last`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from wick.cli.host.protocol import AgentHost
from wick.errors import ConfigError

LAST = "last"
SHOWN_IDS = 5  # candidates in an error message
_WHOLE_ID = re.compile(r"th_[0-9a-f]{12}(\..+)?")


async def find_thread_id(host: AgentHost, text: str, folder: str) -> str:
    """Return the id of the thread that `text` names; an empty text stays empty.

    `last` is the latest thread of the folder. Otherwise `text` is an id, or the beginning of exactly one.
    """
    if not text or _WHOLE_ID.fullmatch(text):
        return text
    if text == LAST:
        return await find_last_thread(host, folder)
    return choose_id(text, await host.list_thread_ids(text), "thread", f"wick threads list{host.hint_options}")


async def find_thread_ids(host: AgentHost, texts: Iterable[str], folder: str) -> tuple[str, ...]:
    """Return the ids of several threads, each once."""
    return tuple(dict.fromkeys([await find_thread_id(host, text, folder) for text in texts]))


async def find_last_thread(host: AgentHost, folder: str) -> str:
    """Return the id of the latest thread of a folder."""
    latest = await host.list_threads(limit=1, folder=folder)
    if not latest:
        raise ConfigError(f"{folder} has no threads yet; start one with: wick chat{host.hint_options}")
    return latest[0].id


def choose_id(text: str, ids: Iterable[str], noun: str, list_command: str) -> str:
    """Return the id that is `text`, or that alone begins with it; raise a ConfigError with the candidates."""
    found = [id for id in ids if id.startswith(text)]
    if text in found:
        return text
    found = [id for id in found if not any(id.startswith(f"{other}.") for other in found)]  # without subagents' threads
    if not found:
        raise ConfigError(f"there is no {noun} {text!r}; list them with: {list_command}")
    if len(found) > 1:
        more = f" and {len(found) - SHOWN_IDS} more" if len(found) > SHOWN_IDS else ""
        raise ConfigError(
            f"{text!r} is the beginning of {len(found)} {noun}s: {', '.join(found[:SHOWN_IDS])}{more}; "
            "give more characters"
        )
    return found[0]
