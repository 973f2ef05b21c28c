"""The base of the test cases for stores, and leased threads with entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from wick.errors import StoreError
from wick.protocols import Lease, Store
from wick.testing.async_cases import AsyncCases


def make_entry(seq: int, kind: str = "message", data: Any = None, **more: Any) -> dict[str, Any]:
    if kind == "message" and data is None:
        data = {"role": "user", "content": f"message {seq}"}
    return {"seq": seq, "kind": kind, "at": time.time(), "data": more if data is None else data}


def text_entry(seq: int, role: str, text: str) -> dict[str, Any]:
    return make_entry(seq, data={"role": role, "content": text})


def make_entries(first: int, last: int) -> list[dict[str, Any]]:
    return [make_entry(seq) for seq in range(first, last + 1)]


@dataclass
class HeldLease:
    """A leased thread, and its writer: each append continues at the last entry."""

    store: Store
    lease: Lease
    id: str = "t"
    owner: str = "ada"
    last: int = 0

    async def append(self, *rows: dict[str, Any], **options: Any) -> int:
        given = {"expect": self.last, "fence": self.lease.fence} | options
        self.last = await self.store.append(self.owner, self.id, rows, **given)
        return self.last

    async def log(self, kind: str, **data: Any) -> int:
        return await self.append(make_entry(self.last + 1, kind, data))

    async def say(self, role: str, text: str) -> int:
        return await self.append(text_entry(self.last + 1, role, text))


async def hold_thread(
    store: Store, id: str = "t", owner: str = "ada", seconds: float = 600, **options: Any
) -> HeldLease:
    """A new thread, and the lease of it."""
    await store.create(owner, id, **options)
    return HeldLease(store, await store.lease(owner, id, "me", seconds), id, owner)


async def read_entries(store: Store, id: str = "t", owner: str = "ada", **options: Any) -> list[dict[str, Any]]:
    return [row async for batch in store.read(owner, id, **options) for row in batch]


async def append_outcome(work: Callable[[], Any]) -> str:
    """Return "ok" or the error code of the store."""
    try:
        await work()
    except StoreError as error:
        return error.code
    return "ok"


def entry_numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


class LeasedThreadCases(AsyncCases):
    """Test cases that compare errors of a store by their code, and with `checks_sentences` by their sentences."""

    checks_sentences: ClassVar[bool] = False

    @contextmanager
    def assert_refused(self, code: str, sentence: str = "") -> Iterator[None]:
        """Assert that the store refuses with a code and a sentence."""
        with pytest.raises(StoreError, match=(self.checks_sentences and sentence) or None) as caught:
            yield
        text = str(caught.value)
        assert caught.value.code == code, f"the code is {caught.value.code!r}, not {code!r}: {text}"
        is_sentence = len(text.split()) > 3 and not text[-1].isspace()
        assert is_sentence, f"a message has at least four words, and no space at its end: {text!r}"
