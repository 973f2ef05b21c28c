"""Snapshots in a bucket of a real object store: requests, errors, the cache, deletion, and a moved workspace."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any

import aiohttp
import pytest
import yaml

from object_store import ENVIRONMENT, create_bucket, run_object_store
from postgres import shared_server as postgres_server
from server_agents import get_json, send_answer, user_message
from server_process import host_server, open_client
from wick.errors import BackendError
from wick.stores import s3, snapshot_bucket
from wick.stores.s3 import BucketAddress, S3Bucket
from wick.stores.snapshot_bucket import BucketStorage
from wick.workspace.snapshots.history import SnapshotHistory
from wick.workspace.snapshots.storage import DAY

AGENT = {
    "model": "demo",
    "backend": {"type": "local"},
    "snapshots": True,
    "permissions": {"mode": "bypassPermissions"},
}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_object_store(tmp_path_factory.mktemp("objects")) as found:
        yield found


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    yield
    s3.close_connections()


@pytest.fixture
def address(endpoint: str) -> str:
    """The address of a prefix of its own."""
    create_bucket(endpoint, "snapshots")
    return f"s3://snapshots/{token_hex(4)}?endpoint={endpoint}"


def open_bucket(address: str, *names: str) -> S3Bucket:
    return S3Bucket(BucketAddress.parse(address).join(*names))


def open_history(address: str, cache: Path, root: Path) -> SnapshotHistory:
    root.mkdir(parents=True, exist_ok=True)
    return SnapshotHistory(cache, root, storage=BucketStorage(cache, open_bucket(address, "team")))


# -- requests -------------------------------------------------------------------------------------------------------


def test_objects_are_stored_listed_and_deleted(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = open_bucket(address, "a b", "ü+&=%")
    names = [f"x/{number:04d} ~'()*" for number in range(30)]
    bucket.put_all((name, name.encode) for name in names)
    open_bucket(address).put("other", b"content of another prefix")
    assert bucket.get(names[3]) == names[3].encode()
    assert (bucket.get("missing"), bucket.has("missing"), bucket.has(names[0])) == (None, False, True)
    assert [found.name for found in bucket.list("x/")] == names
    received = dict[str, bytes]()
    bucket.get_all([*names, "missing"], received.__setitem__)
    assert received == {name: name.encode() for name in names}
    assert abs(next(bucket.list()).modified - time.time()) < 600
    bucket.delete_all([*names[5:], "missing"])
    assert [found.name for found in bucket.list()] == names[:5]
    assert [found.name for found in open_bucket(address).list("other")] == ["other"]


def test_a_long_list_has_several_pages(address: str) -> None:
    bucket = open_bucket(address)
    bucket.put_all((f"{number:04d}", bytes) for number in range(1_050))
    assert [found.name for found in bucket.list()] == [f"{number:04d}" for number in range(1_050)]


def test_a_bucket_can_be_part_of_the_host_name(address: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", endpoint)  # the name bucket.localhost need not be known here
    monkeypatch.setenv("no_proxy", "")
    bucket = open_bucket(f"{address}&style=host")
    bucket.put("a b", b"content")
    assert [found.name for found in bucket.list()] == ["a b"]
    monkeypatch.delenv("http_proxy")
    assert open_bucket(address).get("a b") == b"content"


def test_errors_of_the_bucket_say_what_to_do(address: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BackendError, match=r"there is no bucket nothing-here at http://.*; create it or correct"):
        open_bucket(f"s3://nothing-here?endpoint={endpoint}").check()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(UTC) + timedelta(hours=2)

    with monkeypatch.context() as patch:
        patch.setattr(s3, "datetime", Clock)
        with pytest.raises(BackendError, match="the clock of this machine is wrong by 1.. minutes; set it"):
            open_bucket(address).check()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BackendError, match="SignatureDoesNotMatch .* check AWS_ACCESS_KEY_ID, AWS_SECRET") as caught:
        open_bucket(address).put("a", b"")
    assert caught.value.code == "unavailable" and "wrong" not in str(caught.value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "unknown")
    with pytest.raises(BackendError, match="InvalidAccessKeyId .* check AWS_ACCESS_KEY_ID"):
        open_bucket(address).get("a")


# -- snapshots ------------------------------------------------------------------------------------------------------


def test_a_workspace_is_restored_on_a_machine_without_a_cache(address: str, tmp_path: Path) -> None:
    first = open_history(address, tmp_path / "cache-1", tmp_path / "one")
    (tmp_path / "one" / "folder").mkdir()
    for number in range(40):
        (tmp_path / "one" / "folder" / f"{number}.txt").write_text(f"{number}\n" * 50)
    (tmp_path / "one" / "run.sh").write_text("true\n")
    (tmp_path / "one" / "run.sh").chmod(0o755)
    os.symlink("run.sh", tmp_path / "one" / "link")
    taken = first.take()
    second = open_history(address, tmp_path / "cache-2", tmp_path / "two")
    assert second.find_missing() == second.last() == taken.id
    second.restore_missing(taken.id)
    assert second.take().id == taken.id
    assert os.readlink(tmp_path / "two" / "link") == "run.sh"
    assert (tmp_path / "two" / "run.sh").stat().st_mode & 0o777 == 0o755
    # changes here are compared with and undone to a snapshot of the other machine
    (tmp_path / "two" / "run.sh").write_text("false\n")
    assert [change.path for change, _ in second.compare(taken.id)] == ["run.sh"]
    second.restore(taken.id)
    assert (tmp_path / "two" / "run.sh").read_text() == "true\n"


def test_deleted_blobs_are_sent_again(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_history(address, tmp_path / "cache-1", tmp_path / "one")
    (tmp_path / "one" / "a.txt").write_text("first")
    first.take()
    first.save_index()
    first.delete_old_daily()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    second = open_history(address, tmp_path / "cache-2", tmp_path / "two")
    (tmp_path / "two" / "a.txt").write_text("second")
    kept = second.take()
    assert second.delete_old(days=0) == 0  # blobs are young
    monkeypatch.setattr(snapshot_bucket, "YOUNG_SECONDS", -60.0)
    assert second.delete_old(days=0) == 3  # a file, its folder and the manifest
    assert [row["id"] for row in second.blobs.read_rows()] == [kept.id]
    # the first machine still has the deleted blobs in its cache, and must not rely on them
    again = first.take()
    fresh = open_history(address, tmp_path / "cache-3", tmp_path / "three")
    fresh.restore_missing(again.id)
    assert (tmp_path / "three" / "a.txt").read_text() == "first"


def test_old_snapshots_are_deleted_once_a_day(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = open_history(address, tmp_path / "cache", tmp_path / "one")
    history.take()
    for text in ("a", "b"):
        (tmp_path / "one" / "a.txt").write_text(text)
        history.take()
        history.delete_old_daily()
    assert len(history.blobs.read_rows()) == 3
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 31 * DAY)
    history.delete_old_daily()
    assert len(history.blobs.read_rows()) == 1
    assert len([*open_bucket(address, "team").list("blobs/")]) == 3


def test_a_snapshot_that_was_not_sent_is_sent_by_the_next(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = open_history(address, tmp_path / "cache", tmp_path / "one")
    (tmp_path / "one" / "a.txt").write_text("content")
    with monkeypatch.context() as patch:
        patch.setattr(S3Bucket, "put_all", lambda *_: (_ for _ in ()).throw(BackendError("away", "unavailable")))
        with pytest.raises(BackendError, match="away"):
            history.take()
    assert history.last() == ""
    taken = history.take()
    fresh = open_history(address, tmp_path / "cache-2", tmp_path / "two")
    fresh.restore_missing(taken.id)
    assert (tmp_path / "two" / "a.txt").read_text() == "content"


# -- servers --------------------------------------------------------------------------------------------------------


async def read_names(client: aiohttp.ClientSession) -> list[str]:
    return [entry["name"] for entry in (await get_json(client, "/agents/coder/files/list"))["entries"]]


async def test_a_workspace_moves_to_a_server_with_the_same_bucket(address: str, tmp_path: Path) -> None:
    config = tmp_path / "agents.yaml"
    config.write_text(yaml.safe_dump({"agents": {"coder": AGENT}}))
    shared: dict[str, Any] = {
        "store": "postgres",
        "store_schema": postgres_server().schema(),
        "snapshots": address,
        "config": config,
        "grace": 0,
    }
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with host_server(tmp_path / "a", **shared) as first, open_client(first) as ada:
        await send_answer(ada, "coder", user_message("Write 'milk' to one.txt", "th_1"))
    async with host_server(tmp_path / "b", **shared) as second, open_client(second) as ada:
        await send_answer(ada, "coder", user_message("Write 'eggs' to two.txt", "th_1"))
        assert await read_names(ada) == ["one.txt", "two.txt"]
        async with ada.post("/threads/th_1/files/restore", json={"seq": 0}) as response:
            assert (await response.json())["left"] == {}
        assert await read_names(ada) == []
