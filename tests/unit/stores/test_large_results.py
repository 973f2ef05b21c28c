"""Large results are stored whole with their thread, and can be read again."""

from __future__ import annotations

import pytest

from wick.constants import STATE_FILE_BYTES
from wick.errors import StoreError
from wick.stores.held_thread import hold
from wick.stores.in_memory import InMemory
from wick.stores.large_results import load_large_text, store_large_text, truncate_text
from wick.threads import Thread


def test_a_text_is_cut_to_its_beginning_and_its_end() -> None:
    text = "a" * 2_000 + "b" * 7 + "c" * 2_000
    assert truncate_text(text) == "a" * 2_000 + "\n\n... (truncated 7 characters) ...\n\n" + "c" * 2_000


async def test_a_thread_stores_it_in_its_log() -> None:
    thread = Thread()
    assert await store_large_text(thread, "run_1", "a.txt", "first")
    assert await store_large_text(thread, "run_1", "b.txt", "ü" * 10)
    assert await store_large_text(thread, "run_1", "a.txt", "second")
    again = Thread.from_json(thread.to_json())
    assert await load_large_text(again, "a.txt") == "second" and await load_large_text(again, "b.txt") == "ü" * 10
    assert await load_large_text(again, "c.txt") is None and not again.values


async def test_an_oversized_result_is_not_stored() -> None:
    thread = Thread()
    assert await store_large_text(thread, "run_1", "a.txt", "x" * STATE_FILE_BYTES)
    assert not await store_large_text(thread, "run_1", "b.txt", "x" * (STATE_FILE_BYTES + 1))
    assert await load_large_text(thread, "b.txt") is None and len(thread.entries) == 1


async def test_a_store_saves_it_as_blobs() -> None:
    store, thread = InMemory(), Thread("t1")
    async with hold(store, "ada", thread):
        text = "ü" * (STATE_FILE_BYTES + 1)  # in several pieces, and one of them begins within a letter
        assert await store_large_text(thread, "run_1", "a.txt", "x" + text)
        assert await load_large_text(thread, "a.txt") == "x" + text
        large = "".join(f"{number:08}" for number in range(1_000_000))  # more than a store takes
        assert not await store_large_text(thread, "run_1", "b.txt", large)
    assert len(str(thread.to_json())) < 1_000
    assert await load_large_text(thread, "a.txt") is None  # the store is free
    await store.close()


class Failing(InMemory):
    async def put_blob(self, owner: str, id: str, data: bytes) -> str:
        raise StoreError("the disk is full")


class Forgetful(InMemory):
    async def get_blob(self, owner: str, id: str, sha256: str) -> bytes:
        raise StoreError("there is no such blob", "not_found")


@pytest.mark.parametrize(("kind", "goes_in"), [(Failing, False), (Forgetful, True)])
async def test_a_store_that_fails(kind: type[InMemory], goes_in: bool) -> None:
    store, thread = kind(), Thread("t1")
    async with hold(store, "ada", thread):
        assert await store_large_text(thread, "run_1", "a.txt", "text") is goes_in
        assert await load_large_text(thread, "a.txt") is None
    await store.close()
