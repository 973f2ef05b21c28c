"""Moves of workspaces between servers: one restoration at a place, and no restoration over new files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postgres import shared_server
from wick.backends.local import Local
from wick.capabilities.snapshots import Snapshots
from wick.server.agents import locality
from wick.server.agents.locality import Locality
from wick.server.agents.workspaces import Workspaces
from wick.server.records.sqlite import SqliteRecords
from wick.stores.postgres import Postgres
from wick.stores.sqlite import Sqlite
from wick.workspace.snapshots.restore import RestoreReport


class HeldSnapshots(Snapshots):
    """Snapshots whose restoration starts when `ready` is set."""

    ready: asyncio.Event

    async def adopt(self, id: str) -> RestoreReport:
        await self.ready.wait()
        return await super().adopt(id)


@pytest.fixture
async def stores(schema: str) -> AsyncIterator[list[Postgres]]:
    """Three stores; their servers have one folder of workspaces, except for the first, which has died."""
    opened = [Postgres(shared_server().conninfo, schema=schema, connections=2) for _ in range(3)]
    for store, place in zip(opened, ("there", "here", "here"), strict=True):
        await store.join("1.0", 0, lambda: 0, lambda: False, place=place, address=f"http://{place}")
    yield opened
    for store in opened:
        await store.leave()
        await store.close()


def open_locality(store: Postgres, data: Path) -> Locality:
    opened = Locality(store, Workspaces(data, SqliteRecords(Sqlite(data / "threads.db"))))
    opened.place = "here"
    return opened


def open_snapshots(folder: Path, shared: Path) -> HeldSnapshots:
    snapshots = HeldSnapshots(Local(folder, sandbox="none"), folder=shared)
    snapshots.ready = asyncio.Event()
    return snapshots


async def test_a_second_move_at_a_place_does_not_revert_new_files(stores: list[Postgres], tmp_path: Path) -> None:
    gone = open_snapshots(tmp_path / "gone", tmp_path / "shared")
    (tmp_path / "gone" / "a.txt").write_text("one")
    await stores[0].find_workspace("ada", "a")
    taken = await gone.take()
    await stores[0].record_change("ada", "a", taken.id, taken.at)
    await stores[0].leave()

    localities = [open_locality(store, tmp_path / "data") for store in stores[1:]]
    folder = localities[0].workspaces.folder("ada", "a")
    snapshots = [open_snapshots(folder, tmp_path / "shared") for _ in range(2)]
    moves = [asyncio.create_task(one.bring_here("ada", "a", of)) for one, of in zip(localities, snapshots, strict=True)]
    await asyncio.sleep(0.2)  # both have found the workspace of the dead server
    for of in snapshots:
        of.ready.set()
        if not (folder / "new.txt").exists() and (await asyncio.wait(moves, timeout=1.0))[0]:
            (folder / "new.txt").write_text("two")  # the first server serves its request
    for moved in await asyncio.gather(*moves):
        assert moved.home.place == "here" and not moved.problem
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "new.txt"]


async def test_a_move_with_the_last_attempt_is_reported_as_done(
    stores: list[Postgres], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locality, "MOVES", 1)
    await stores[0].find_workspace("ada", "a")
    await stores[0].leave()
    moved = await open_locality(stores[1], tmp_path / "data").bring_here("ada", "a", None)
    assert (moved.home.place, moved.problem) == ("here", "")


async def test_a_second_run_that_starts_afresh_keeps_the_files_of_the_first(
    stores: list[Postgres], tmp_path: Path
) -> None:
    await stores[0].find_workspace("ada", "a")
    await stores[0].record_change("ada", "a")
    await stores[0].leave()
    first, second = (open_locality(store, tmp_path / "data") for store in stores[1:])
    assert "have no snapshot" in (await first.bring_here("ada", "a", None)).problem
    folder = first.workspaces.folder("ada", "a")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "old.txt").write_text("an older copy")
    await first.start_afresh("ada", "a", None)
    assert not [*folder.iterdir()] and [*folder.parent.glob("a.*/old.txt")]
    (folder / "new.txt").write_text("of the first run")
    await second.start_afresh("ada", "a", None)
    assert [path.name for path in folder.iterdir()] == ["new.txt"]
