"""A conversation as a file: up to date at every read, and removed when unused."""

from __future__ import annotations

import gc
import json
import os
import stat
from pathlib import Path

from kit import tool_call, tool_calls_reply
from wick import Message, Thread, user
from wick.hook_programs.claude.transcript import Transcript


def transcript_texts(path: str) -> list[str]:
    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return [line["message"]["content"] for line in lines if isinstance(line["message"]["content"], str)]


async def test_the_transcript_follows_appends_and_rewinds() -> None:
    thread = Thread()
    transcript = Transcript(thread, "/srv/app")
    path = await transcript.path()
    assert transcript_texts(path) == []
    thread.add(user("one"), Message("assistant", "two"))
    mark = len(thread.entries)
    thread.add(user("three"))
    assert await transcript.path() == path and transcript_texts(path) == ["one", "three"]
    thread.rewind(mark)
    assert transcript_texts(await transcript.path()) == ["one"]
    thread.add(user("four \N{SNOWMAN}"))
    assert transcript_texts(await transcript.path()) == ["one", "four \N{SNOWMAN}"]
    await transcript.remove()
    assert not os.access(path, os.F_OK)


async def test_a_removed_transcript_is_recreated() -> None:
    thread = Thread()
    thread.add(user("one"))
    transcript = Transcript(thread, "/srv/app")
    await transcript.remove()  # nothing is there yet
    await transcript.path()
    await transcript.remove()
    assert transcript_texts(await transcript.path()) == ["one"]
    await transcript.remove()


async def test_the_transcript_is_private_and_removed_with_its_owner() -> None:
    thread = Thread()
    thread.add(user("go"), tool_calls_reply(tool_call("execute", command="ls")))
    transcript = Transcript(thread, "/srv/app")
    path = await transcript.path()
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
    del transcript
    gc.collect()
    assert not os.access(os.path.dirname(path), os.F_OK)
