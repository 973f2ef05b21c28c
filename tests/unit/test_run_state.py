"""The state of a run: its inbox, its spending, and the size of its groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from decimal import Decimal

import pytest

from kit import tool_call, tool_calls_reply
from wick import Block, Message, Run, Thread, user
from wick.prices import Charge
from wick.protocols import Usage
from wick.run_state import Extensions, Inbox, Resumption, RunProgress, Spending
from wick.stores.held_thread import hold
from wick.stores.in_memory import InMemory


@asynccontextmanager
async def stored_thread(*texts: str) -> AsyncIterator[tuple[InMemory, Thread]]:
    """A thread of a store with messages in its inbox, and held as by a run."""
    store, thread = InMemory(), Thread("th_1")
    await store.create("local", "th_1")
    await store.enqueue("local", "th_1", *(user(text).to_json() for text in texts))
    async with hold(store, "local", thread):
        yield store, thread
    await store.close()


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]


# -- the inbox --------------------------------------------------------------------------------------------------------


async def test_messages_of_the_store_are_fetched_once_and_not_while_calls_are_pending() -> None:
    async with stored_thread("One.", "Two.") as (_, thread):
        inbox = Inbox()
        thread.add(user("go"), tool_calls_reply(tool_call()))
        await inbox.fetch(thread)
        assert not inbox
        thread.add(Message("tool", "hi", tool_call_id="c1"))
        await inbox.fetch(thread)
        await inbox.fetch(thread)
        assert texts([*inbox.queue]) == ["One.", "Two."] and len(inbox) == 2


async def test_the_initial_input_leaves_the_inbox_of_the_store_whatever_hooks_made_of_it() -> None:
    async with stored_thread("One.", "Two.") as (store, thread):
        inbox = Inbox()
        one, _ = given = await inbox.fetch_initial(thread)
        assert texts(given) == ["One.", "Two."] and given is not inbox.initial and not inbox
        thread.add(one, user("TWO!"))
        inbox.release_initial(thread, [one])
        await thread.saved()
        assert inbox.initial == [] and (await store.head("local", "th_1")).queued == 0


async def test_a_thread_without_a_store_has_no_initial_input() -> None:
    inbox = Inbox()
    await inbox.fetch(Thread())
    assert await inbox.fetch_initial(Thread()) == [] and not inbox


async def test_a_message_passes_every_screen_or_is_refused_by_the_first_that_does_not_agree() -> None:
    inbox, refused, seen = Inbox(), list[tuple[str, str, str]](), list[str]()

    async def polite(message: Message) -> Block | None:
        seen.append(f"polite {message.text} {len(inbox.queue)}")  # it is still in the queue
        return Block("rude") if message.text == "no" else None

    async def broken(message: Message) -> Block | None:
        if message.text == "crash":
            raise ValueError("a secret")
        return None

    inbox.screens |= {"polite": polite, "broken": broken}
    inbox.queue.extend([user("yes"), user("no"), user("crash")])
    await inbox.screen(lambda message, name, reason: refused.append((message.text, name, reason)))
    assert texts(inbox.screened) == ["yes"] and not inbox.queue
    assert refused == [
        ("no", "polite", "rude"),
        ("crash", "broken", "broken failed, so it has not agreed: ValueError"),
    ]
    assert seen == ["polite yes 3", "polite no 2", "polite crash 1"]
    assert texts(inbox.take_screened()) == ["yes"] and not inbox


@pytest.mark.parametrize(("screened", "added", "unheard"), [(False, ["a", "b"], []), (True, ["a"], ["b"])])
def test_late_messages_that_no_screen_has_seen_are_not_added(
    screened: bool, added: list[str], unheard: list[str]
) -> None:
    async def agree(message: Message) -> Block | None:
        return None

    inbox = Inbox(screens={"agree": agree} if screened else {})
    inbox.screened.append(user("a"))
    inbox.queue.append(user("b"))
    assert tuple(map(texts, inbox.take_late())) == (added, unheard)
    assert not inbox


# -- spending ---------------------------------------------------------------------------------------------------------


def test_a_charge_counts_for_the_run_and_all_above_it() -> None:
    root = Run()
    child = Run(parent=root)
    child.spend(Charge("scripted", Usage(10, 5)))
    root.spend(Charge("scripted", Usage(1, 1)))
    assert (child.usage, root.usage) == (Usage(10, 5), Usage(11, 6))
    assert (len(child.charges), len(root.charges)) == (1, 2)


def test_restored_charges_are_not_logged_again() -> None:
    spending, old, new = Spending(), Charge("gpt-4o", Usage(10, 5)), Charge("gpt-4o", Usage(1, 1))
    spending.restore(old.usage, [old], complete=True)
    spending.add(new)
    assert (spending.charges, spending.unlogged, spending.usage) == ([old, new], [new], Usage(11, 6))
    assert isinstance(spending.price, Decimal)


def test_the_price_of_incomplete_spending_is_unknown() -> None:
    spending = Spending()
    spending.restore(Usage(10, 5), [], complete=False)
    assert spending.usage == Usage(10, 5) and spending.price is None


# -- the groups -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [RunProgress, Inbox, Spending, Resumption, Extensions])
def test_a_group_is_small(group: type) -> None:
    assert len(fields(group)) <= 10, f"{group.__name__} hides several ideas: make a group of those that belong together"


def test_the_copies_of_a_run_share_one_state() -> None:
    run = Run()
    assert run.fork().progress is run.seal().progress is run.progress
