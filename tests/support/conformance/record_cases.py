"""Conformance cases for the records of the server, in SQLite and in Postgres."""

from __future__ import annotations

import asyncio
import time

from wick.server.records import Records, RecordSum


async def test_a_row_is_stored_replaced_and_deleted(records: Records) -> None:
    assert await records.get("k", "ada", "1") is None
    assert await records.put("k", "ada", "1", {"a": [1, "ü", None]})
    assert await records.get("k", "ada", "1") == {"a": [1, "ü", None]}
    await records.put("k", "ada", "1", {"b": 2})
    assert await records.get("k", "ada", "1") == {"b": 2}
    assert await records.delete("k", "ada", "1")
    assert not await records.delete("k", "ada", "1")
    assert await records.get("k", "ada", "1") is None


async def test_rows_of_other_owners_are_not_found(records: Records) -> None:
    await records.put("k", "ada", "1", {"a": 1})
    assert await records.get("k", "bob", "1") is None
    assert await records.get("other", "ada", "1") is None
    assert not await records.delete("k", "bob", "1")
    assert await records.list("k", "bob") == []
    assert await records.find("k", "1") == ("ada", {"a": 1})
    assert await records.find("k", "2") is None


async def test_a_new_row_does_not_replace_one(records: Records) -> None:
    many = await asyncio.gather(*(records.put("k", "ada", "1", {"n": n}, new=True) for n in range(20)))
    assert many.count(True) == 1
    assert await records.get("k", "ada", "1") == {"n": many.index(True)}


async def test_a_row_is_over_at_its_time(records: Records) -> None:
    await records.put("k", "ada", "over", {"a": 1}, until=time.time() - 1)
    await records.put("k", "ada", "there", {"a": 1}, until=time.time() + 600)
    assert await records.get("k", "ada", "over") is None
    assert await records.find("k", "over") is None
    assert await records.take("k", "over") is None
    assert [row.id for row in await records.list("k")] == ["there"]
    assert await records.put("k", "ada", "over", {"a": 2}, new=True)  # in place of an expired row
    assert await records.get("k", "ada", "over") == {"a": 2}


async def test_rows_are_listed_page_by_page(records: Records) -> None:
    for owner in ("ada", "bob"):
        for id in ("1", "2", "a/b"):
            await records.put("k", owner, id, {"of": owner})
    assert [row.id for row in await records.list("k", "ada")] == ["1", "2", "a/b"]
    assert [row.id for row in await records.list("k", "ada", after="1", limit=1)] == ["2"]
    seen, after = [], ""
    while page := await records.list("k", after=after, limit=2):
        seen += [(row.owner, row.id, row.data["of"]) for row in page]
        after = page[-1].cursor
    assert seen == [(owner, id, owner) for owner in ("ada", "bob") for id in ("1", "2", "a/b")]


async def test_concurrent_increments_add_up(records: Records) -> None:
    more = {"tokens": 3, "cost": 0.25}
    await asyncio.gather(*(records.add("use", "ada", "today", more, {"agent": "coder"}) for _ in range(40)))
    assert await records.get("use", "ada", "today") == {"agent": "coder", "tokens": 120, "cost": 10.0}


async def test_a_record_is_replaced_unless_it_has_changed(records: Records) -> None:
    before = {"text": "ü\0", "at": 1763.25, "start:a": [1.5, 0]}
    await records.put("run", "ada", "1", before)
    replaced = await asyncio.gather(*(records.replace("run", "ada", "1", before, {"n": n}) for n in range(10)))
    assert replaced.count(True) == 1
    assert await records.get("run", "ada", "1") == {"n": replaced.index(True)}
    assert not await records.replace("run", "ada", "2", before, {})
    await records.put("run", "ada", "1", before, until=1.0)
    assert not await records.replace("run", "ada", "1", before, {}), "it has expired"


async def test_a_row_is_taken_once(records: Records) -> None:
    await records.put("ticket", "ada", "t", {"a": 1})
    taken = await asyncio.gather(*(records.take("ticket", "t") for _ in range(20)))
    assert [found for found in taken if found] == [("ada", {"a": 1})]


async def test_a_closed_store_can_be_reopened(records: Records) -> None:
    await records.put("k", "ada", "1", {"a": 1})
    await records.close()
    assert await records.get("k", "ada", "1") == {"a": 1}


async def test_the_version_changes_with_the_records_that_agents_are_built_from(records: Records) -> None:
    seen = [await records.version()]
    await records.put("agent", "ada", "1", {})
    seen.append(await records.version())
    await records.put("agent", "ada", "1", {}, new=True)
    seen.append(await records.version())
    await records.add("tool", "ada", "1", {"n": 1})
    seen.append(await records.version())
    await records.delete("override", "ada", "1")
    seen.append(await records.version())
    await records.take("grant", "1")
    seen.append(await records.version())
    assert len({*seen}) >= 5 and len({*seen[:2], *seen[3:]}) == 5, "every write changes it; one that did nothing may"
    for change in (records.put("run", "ada", "1", {}), records.add("usage", "ada", "1", {}), records.take("k", "1")):
        await change
        assert await records.version() == seen[-1], "others do not"
    assert await records.list("agent", "") == [] and await records.find("version", "1") is None


async def test_sums_are_added_with_a_record_once(records: Records) -> None:
    sums = [RecordSum("usage", "ada", "day", {"n": 2}, {"model": "m"})]
    await records.put("run", "ada", "1", {"begin": 0})
    for _ in range(2):  # a write whose reply was lost is repeated
        assert await records.put("run", "ada", "1", {"ended": 5.5}, sums=sums)
    assert await records.get("run", "ada", "1") == {"ended": 5.5}
    assert await records.get("usage", "ada", "day") == {"n": 2, "model": "m"}
    await records.put("run", "ada", "2", {"ended": 6.5}, sums=sums)
    assert await records.get("usage", "ada", "day") == {"n": 4, "model": "m"}


async def test_concurrent_draws_never_pass_the_limit(records: Records) -> None:
    drawn = await asyncio.gather(*(records.draw("counter", "", "tokens", 7, 70, 1_000) for _ in range(200)))
    used = (await records.get("counter", "", "tokens") or {})["used"]
    assert sum(drawn) == used and 1_000 - 7 < used <= 1_000
    assert max(drawn) == 62 and min(amount for amount in drawn if amount) == 7 and 0 in drawn
    await records.add("counter", "", "tokens", {"used": -20})
    assert await records.draw("counter", "", "tokens", 7, 7, 1_000) == 7
    assert await records.draw("counter", "", "small", 8, 8, 7) == 0
    assert await records.get("counter", "", "small") is None
