"""Ids on the command line: whole ids, unique beginnings, and `last`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wick.capabilities.sessions import LOCAL
from wick.cli.host.local import LocalHost
from wick.cli.host.thread_ids import choose_id, find_thread_id, find_thread_ids
from wick.errors import ConfigError

IDS = ["th_aaaa00000000", "th_aaab00000000", "th_aaab00000000.child", "mine"]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[LocalHost]:
    host = LocalHost(tmp_path / "data", tmp_path)
    for id in IDS:
        meta = {"folder": str(tmp_path)} | ({"parent": "x"} if "." in id else {})
        await host.store.create(LOCAL, id, meta=meta)
    yield host
    await host.close()


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("", ""),
        ("th_aaaa", IDS[0]),
        ("th_aaab", IDS[1]),  # not its subagent's thread
        (IDS[2], IDS[2]),
        ("mi", "mine"),
        ("mine", "mine"),
        ("last", "mine"),
        ("th_000000000000", "th_000000000000"),  # a whole id is not looked up
    ],
)
async def test_a_text_names_a_thread(host: LocalHost, text: str, id: str) -> None:
    assert await find_thread_id(host, text, str(host.folder)) == id


async def test_an_ambiguous_beginning_names_its_candidates(host: LocalHost) -> None:
    with pytest.raises(ConfigError, match=r"'th_' is the beginning of 2 threads: th_aaa\w+, th_aaa\w+; give more char"):
        await find_thread_id(host, "th_", str(host.folder))


async def test_an_unknown_thread_is_refused(host: LocalHost) -> None:
    with pytest.raises(ConfigError, match="there is no thread 'th_zz'; list them with: wick threads list"):
        await find_thread_id(host, "th_zz", str(host.folder))
    host.hint_options = " --server https://a.example"
    with pytest.raises(ConfigError, match="wick threads list --server https://a.example$"):
        await find_thread_id(host, "th_zz", str(host.folder))


async def test_last_is_of_the_folder(host: LocalHost) -> None:
    with pytest.raises(ConfigError, match="/elsewhere has no threads yet"):
        await find_thread_id(host, "last", "/elsewhere")


async def test_several_texts_for_one_thread_name_it_once(host: LocalHost) -> None:
    assert await find_thread_ids(host, ["mine", "last", "th_aaaa"], str(host.folder)) == ("mine", IDS[0])


def test_many_candidates_are_cut() -> None:
    with pytest.raises(ConfigError, match=r"'a' is the beginning of 9 names: a0, a1, a2, a3, a4 and 4 more"):
        choose_id("a", [f"a{number}" for number in range(9)], "name", "ls")
