"""Snapshots of a workspace: taken, compared, restored, and deleted; with hostile and changing files."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.shell_changes import count_violations, read_state

from wick import constants
from wick.errors import BackendError
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.snapshots import history as history_module
from wick.workspace.snapshots import scan
from wick.workspace.snapshots.blobs import FolderBlobs
from wick.workspace.snapshots.compare import compare_snapshots
from wick.workspace.snapshots.history import SnapshotHistory
from wick.workspace.snapshots.restore import restore_changes
from wick.workspace.snapshots.scan import ScanIndex, scan_folder
from wick.workspace.snapshots.trees import load_manifest, load_tree, store_manifest, store_tree

FULL = bool(os.environ.get("WICK_FULL"))
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def history(tmp_path: Path, root: Path) -> SnapshotHistory:
    return SnapshotHistory(tmp_path / "snapshots", root)


# -- promises ---------------------------------------------------------------------------------------------------------


def test_rewinds_after_generated_shell_commands_restore_every_byte(tmp_path: Path) -> None:
    tried, violations = count_violations(tmp_path, 10_000 if FULL else 200, number=int(time.time()) if FULL else 3)
    print(f"tried {tried}, violated {len(violations)}")
    assert not violations


@pytest.mark.skipif(not IS_ROOT, reason="the test above runs as this user already")
def test_rewinds_of_a_user_whom_modes_restrict_restore_every_byte() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 65_534, 65_534)
        script = [sys.executable, "-m", "tests.support.shell_changes", folder, "2000" if FULL else "60", "5"]
        done = subprocess.run([*script, "65534"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "violated 0" in done.stdout


def test_the_check_of_rewinds_finds_a_scan_that_trusts_modification_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan._Scan, "_update_file", lambda *args: False)
    assert count_violations(tmp_path, 20, number=3)[1]


# -- taking -----------------------------------------------------------------------------------------------------------


def test_an_unchanged_workspace_has_the_same_id_and_no_file_is_read(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("1")
    first = history.take()
    time.sleep(constants.SNAPSHOT_RACE_SECONDS * 2)
    second, third = history.take(), history.take()
    assert first.id == second.id == third.id
    assert (first.read > 0, third.read) == (True, 0)


def test_a_change_of_the_same_size_and_modification_time_is_found(history: SnapshotHistory, root: Path) -> None:
    file = root / "a"
    ids = set()
    for text in "123456":  # each within the granularity of timestamps
        file.write_text(text)
        os.utime(file, ns=(10**18, 10**18))
        ids.add(history.take().id)
    assert len(ids) == 6


def test_another_process_continues_with_the_stored_index(tmp_path: Path, root: Path, history: SnapshotHistory) -> None:
    (root / "a").write_text("1")
    time.sleep(constants.SNAPSHOT_RACE_SECONDS * 2)
    first = history.take()
    history.save_index()
    second = SnapshotHistory(tmp_path / "snapshots", root).take()
    assert (second.id, second.read) == (first.id, 0)


def test_a_damaged_index_is_ignored(tmp_path: Path, root: Path, history: SnapshotHistory) -> None:
    (root / "a").write_text("1")
    first = history.take()
    for data in (b"", b"\n", b"\n{", b"\n[[1,2],[],[1]]", b"\n" + b"[" * 100_000):
        (tmp_path / "snapshots" / "index.json").write_bytes(data)
        assert SnapshotHistory(tmp_path / "snapshots", root).take().id == first.id


def test_special_large_and_excluded_files_are_listed_or_left_out(tmp_path: Path, root: Path) -> None:
    history = SnapshotHistory(tmp_path / "snapshots", root, most_file_bytes=1_000)
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
        (root / "large").write_bytes(b"0" * 1_001)
        (root / "node_modules").mkdir()
        (root / "node_modules" / "x").write_text("1")
        (root / ".env").write_text("KEY=1")
        (root / "small").write_text("1")
        first = history.take()
        assert dict(first.skipped) == {
            "pipe": "it is a named pipe",
            "socket": "it is a socket",
            "large": "it is larger than 0.001 MB",
        }
        (root / "small").unlink()
        (root / "node_modules" / "y").write_text("2")
        (root / "large").write_bytes(b"1" * 2_000)
        _, report = history.restore(first.id)
    assert (root / "small").read_text() == "1"
    assert (root / "large").stat().st_size == 2_000
    assert sorted(os.listdir(root / "node_modules")) == ["x", "y"]
    assert report.restored == ["small"]


def test_a_new_file_that_is_too_large_is_left_and_reported(tmp_path: Path, root: Path) -> None:
    history = SnapshotHistory(tmp_path / "snapshots", root, most_file_bytes=1_000)
    first = history.take()
    (root / "large").write_bytes(b"0" * 1_001)
    _, report = history.restore(first.id)
    assert "no snapshot has its content: it is larger" in report.left["large"]
    assert (root / "large").exists()


def test_a_workspace_that_is_too_large_has_no_snapshot(tmp_path: Path, root: Path) -> None:
    for index in range(20):
        (root / f"{index}").write_bytes(b"%04d" % index * 100)
    with pytest.raises(BackendError, match=r"too large for snapshots, .* exclude folders with `exclude`"):
        SnapshotHistory(tmp_path / "snapshots", root, most_bytes=5_000).take()
    tree, blobs = RootedFolder(str(root)), FolderBlobs(tmp_path / "blobs")
    try:
        with pytest.raises(BackendError, match="too large"):
            scan_folder(tree, blobs, ScanIndex(), most_entries=10)
    finally:
        tree.close()


def test_snapshots_are_not_stored_inside_the_workspace(root: Path) -> None:
    with pytest.raises(BackendError, match="cannot be stored inside it"):
        SnapshotHistory(root / "snapshots", root)


def test_folders_that_are_nested_too_deep_are_listed(history: SnapshotHistory, root: Path) -> None:
    path = root
    for _ in range(constants.SNAPSHOT_DEPTH + 2):
        path /= "d"
        path.mkdir()
    ((skipped, reason),) = history.take().skipped
    assert skipped.count("d") == constants.SNAPSHOT_DEPTH + 1
    assert "nested deeper" in reason


def test_files_that_change_meanwhile_are_listed_as_unstable(history: SnapshotHistory, root: Path) -> None:
    (root / "still").write_text("1")
    file, stop = root / "log", threading.Event()
    file.write_text("")

    def append() -> None:
        with open(file, "a") as target:
            while not stop.is_set():
                target.write("x" * 1_000)
                target.flush()

    writer = threading.Thread(target=append)
    writer.start()
    try:
        taken = history.take()
    finally:
        stop.set()
        writer.join()
    assert set(taken.unstable) <= {"log"}
    (root / "still").unlink()
    history.restore(taken.id, ["still"])
    assert (root / "still").read_text() == "1"


@pytest.mark.long
def test_a_workspace_of_many_files_is_restored(tmp_path: Path, root: Path, history: SnapshotHistory) -> None:
    for folder in range(100):
        (root / f"{folder}").mkdir()
        for index in range(1_000):
            (root / f"{folder}" / f"{index}").write_text(f"{folder} {index}")
    first = history.take()
    subprocess.run(["sh", "-c", "rm -rf 1 2; mv 3 4; echo 1 > 5/5"], cwd=root, check=True)
    _, report = history.restore(first.id)
    assert not report.left
    assert history.take().id == first.id


# -- restoring --------------------------------------------------------------------------------------------------------


def test_a_restore_can_be_undone_and_unchanged_files_are_not_touched(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("1")
    (root / "same").write_text("1")
    inode = (root / "same").stat().st_ino
    first = history.take()
    (root / "a").write_text("2")
    (root / "new").write_text("3")
    state = read_state(root)
    before, report = history.restore(first.id)
    assert sorted(report.restored) == ["a", "new"]
    assert ((root / "a").read_text(), (root / "new").exists()) == ("1", False)
    history.restore(before.id)
    assert read_state(root) == state
    assert (root / "same").stat().st_ino == inode


def test_single_paths_are_restored(history: SnapshotHistory, root: Path) -> None:
    (root / "src" / "lib").mkdir(parents=True)
    for name in ("src/lib/a", "src/b", "c"):
        (root / name).write_text("1")
    first = history.take()
    subprocess.run(["sh", "-c", "rm -rf src; echo 2 > src; echo 2 > c; echo 2 > new"], cwd=root, check=True)
    history.restore(first.id, ["src/lib/a"])
    assert (root / "src/lib/a").read_text() == "1"
    assert not (root / "src/b").exists()
    assert ((root / "c").read_text(), (root / "new").read_text()) == ("2\n", "2\n")
    history.restore(first.id, ["new", "c"])
    assert ((root / "c").read_text(), (root / "new").exists()) == ("1", False)


def test_one_of_two_linked_files_is_restored_alone(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("1")
    os.link(root / "a", root / "b")
    first = history.take()
    (root / "b").unlink()
    history.restore(first.id, ["b"])
    assert (root / "a").stat().st_ino == (root / "b").stat().st_ino
    (root / "b").unlink()
    (root / "a").write_text("2")
    history.restore(first.id, ["b"])
    assert ((root / "a").read_text(), (root / "b").read_text()) == ("2", "1")


@pytest.mark.parametrize("command", ["echo new > other; mv -f other a", "ln -sfn gone a", "rm a; mkdir a", "rm a"])
def test_a_file_whose_hard_link_was_replaced_keeps_its_content(
    history: SnapshotHistory, root: Path, command: str
) -> None:
    (root / "folder").mkdir()
    (root / "a").write_text("1")
    os.link(root / "a", root / "folder" / "b")
    history.take()
    subprocess.run(["sh", "-c", command], cwd=root, check=True)
    replaced = history.take()
    state = read_state(root)
    shutil.rmtree(root / "folder")
    _, report = history.restore(replaced.id)
    assert (read_state(root), report.left) == (state, {})


def test_a_snapshot_with_an_outdated_group_of_links_is_restored(history: SnapshotHistory, root: Path) -> None:
    """Earlier versions stored the group of a file whose hard link had been replaced."""
    (root / "a").write_text("another")
    (root / "b").write_text("1")
    taken = history.take()
    blobs = history.blobs
    manifest = load_manifest(blobs, taken.id)
    tree = {**load_tree(blobs, manifest.root.blobs[0])}
    tree["b"] = tree["b"]._replace(group="a")
    outdated = manifest.root._replace(blobs=(store_tree(blobs, tree),))
    id = store_manifest(blobs, replace(manifest, root=outdated))
    (root / "b").unlink()
    current = load_manifest(blobs, history.take().id)
    folder = RootedFolder(str(root))
    restore_changes(folder, blobs, compare_snapshots(blobs, current, load_manifest(blobs, id)))
    folder.close()
    assert ((root / "a").read_text(), (root / "b").read_text()) == ("another", "1")


def test_the_comparison_shows_changed_lines(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("one\ntwo\n")
    (root / "run").write_text("x")
    (root / "data").write_bytes(b"\0\1")
    first = history.take()
    (root / "a").write_text("one\n2\n")
    (root / "run").chmod(0o755)
    (root / "data").unlink()
    (root / "new").mkdir()
    changes = {change.path: (change.kind, text) for change, text in history.compare(first.id)}
    assert changes["a"][0] == "changed"
    assert "-2\n+two\n" in changes["a"][1]
    assert changes["run"] == ("mode", "mode 755 becomes 644\n")
    assert changes["data"] == ("created", "nothing become 2 bytes\n")
    assert changes["new"] == ("deleted", "")


def test_a_folder_that_is_replaced_by_a_link_does_not_lead_out(history: SnapshotHistory, root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (root / "src").mkdir()
    (root / "src" / "a").write_text("inside")
    first = history.take()
    (root / "src" / "a").unlink()
    real = history_module.restore_changes

    def swap(*args: object) -> object:
        (root / "src").rmdir()
        (root / "src").symlink_to(outside)
        return real(*args)  # type: ignore[arg-type]

    history_module.restore_changes = swap  # type: ignore[assignment]
    try:
        _, report = history.restore(first.id)
    finally:
        history_module.restore_changes = real
    assert os.listdir(outside) == []
    assert "src/a" in report.left
    history.restore(first.id)
    assert (root / "src" / "a").read_text() == "inside"


def test_a_link_out_of_the_workspace_is_stored_as_a_link(history: SnapshotHistory, root: Path) -> None:
    secret = root.parent / "secret"
    secret.write_text("secret")
    (root / "out").symlink_to(secret)
    (root / "up").symlink_to("..")
    first = history.take()
    assert first.files == 2
    (root / "out").unlink()
    (root / "out").write_text("mine")
    history.restore(first.id)
    assert os.readlink(root / "out") == str(secret)
    assert secret.read_text() == "secret"


def test_a_folder_with_excluded_files_is_not_deleted(history: SnapshotHistory, root: Path) -> None:
    first = history.take()
    (root / "package" / "node_modules").mkdir(parents=True)
    (root / "package" / "a").write_text("1")
    _, report = history.restore(first.id)
    assert list(report.left) == ["package"]
    assert "is not empty" in report.left["package"]
    assert os.listdir(root / "package") == ["node_modules"]


@pytest.mark.parametrize("paths", [None, ["a/b/f"]])
@pytest.mark.parametrize("is_wanted", [True, False])
def test_nothing_changes_below_a_folder_that_a_snapshot_does_not_cover(
    history: SnapshotHistory, root: Path, monkeypatch: pytest.MonkeyPatch, is_wanted: bool, paths: list[str] | None
) -> None:
    depths = [1, constants.SNAPSHOT_DEPTH] if is_wanted else [constants.SNAPSHOT_DEPTH, 1]
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "f").write_text("1")
    os.link(root / "a" / "b" / "f", root / "link")
    monkeypatch.setattr(constants, "SNAPSHOT_DEPTH", depths[0])
    wanted = history.take()
    (root / "link").unlink()
    (root / "a" / "b" / "f").write_text("2")
    (root / "a" / "b" / "g").write_text("3")
    (root / "a" / "b").chmod(0o500)
    monkeypatch.setattr(constants, "SNAPSHOT_DEPTH", depths[1])
    _, report = history.restore(wanted.id, paths)
    assert list(report.left) == ["a/b"] and "nested deeper" in report.left["a/b"]
    assert [(root / "a" / "b" / name).read_text() for name in ("f", "g")] == ["2", "3"]
    assert (root / "a" / "b").stat().st_mode & 0o777 == 0o500
    if paths is None:
        assert (root / "link").read_text() == "1" and report.restored == ["link"]


def test_a_folder_replaces_a_pipe(history: SnapshotHistory, root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "f").write_text("1")
    wanted = history.take()
    (root / "a" / "f").unlink()
    (root / "a").rmdir()
    os.mkfifo(root / "a")
    _, report = history.restore(wanted.id)
    assert (root / "a" / "f").read_text() == "1" and not report.left


# -- crashes ----------------------------------------------------------------------------------------------------------

CRASH = """
import os, sys, threading, time
from wick.workspace.snapshots.history import SnapshotHistory
history = SnapshotHistory(sys.argv[1], sys.argv[2])
threading.Timer(float(sys.argv[4]), lambda: os.kill(os.getpid(), 9)).start()
print("ready", flush=True)
history.take() if sys.argv[3] == "take" else history.restore(sys.argv[3])
os._exit(0)
"""


@pytest.mark.parametrize("end", [b'{"id": "0', b'{"id": "\xc3', b"{", b""])
def test_a_snapshot_after_a_line_that_was_cut_off_is_in_the_list(
    tmp_path: Path, root: Path, history: SnapshotHistory, end: bytes
) -> None:
    first = history.take()
    with open(tmp_path / "snapshots" / "snapshots.jsonl", "ab") as file:
        file.write(end)
    (root / "a").write_text("1")
    last = history.take()
    assert [row["id"] for row in history.blobs.read_rows()] == [first.id, last.id]
    history.delete_old()
    (root / "a").unlink()
    history.restore(last.id)
    assert (root / "a").read_text() == "1"


@pytest.mark.parametrize("delay", [0.0, 0.001, 0.004, 0.015, 0.03] if FULL else [0.003, 0.02])
def test_a_kill_during_a_snapshot_or_a_restore_is_repaired_by_the_next(
    tmp_path: Path, root: Path, history: SnapshotHistory, delay: float
) -> None:
    for index in range(80):
        (root / f"{index}").write_text(f"{index}" * 50)
    state = read_state(root)
    first = history.take()
    (root / "more").mkdir()
    for index in range(80):
        (root / f"{index}").write_text("changed" * index)
        (root / "more" / f"{index}").write_text(f"{index}" * 500)
    changed = read_state(root)

    def crash(what: str) -> int:
        command = [sys.executable, "-c", CRASH, str(tmp_path / "snapshots"), str(root), what, str(delay)]
        return subprocess.run(command, capture_output=True).returncode

    assert crash("take") in (0, -signal.SIGKILL)
    fresh = SnapshotHistory(tmp_path / "snapshots", root)
    second = fresh.take()
    assert crash(first.id) in (0, -signal.SIGKILL)
    fresh.restore(first.id)
    assert read_state(root) == state
    fresh.restore(second.id)
    assert read_state(root) == changed


def test_a_damaged_or_missing_blob_is_an_error_and_never_content(
    tmp_path: Path, root: Path, history: SnapshotHistory
) -> None:
    (root / "a").write_text("1" * 100)
    first = history.take()
    (root / "a").write_text("2")
    history.take()
    name = history.manifest(first.id).root.blobs[0]
    content = history.compare_two(history.last(), first.id).changes[0].after
    assert content is not None
    path = tmp_path / "snapshots" / "objects" / content.blobs[0][:2] / content.blobs[0][2:]
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    _, report = history.restore(first.id)
    assert "damaged" in report.left["a"]
    assert (root / "a").read_text() == "2"
    (tmp_path / "snapshots" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(BackendError, match="has lost the blob"):
        history.restore(first.id)


# -- deleting ---------------------------------------------------------------------------------------------------------


def test_blobs_that_no_snapshot_has_are_deleted(tmp_path: Path, root: Path, history: SnapshotHistory) -> None:
    for text in ("1", "2", "3"):
        (root / "a").write_text(text * 1_000)
        last = history.take()
    assert history.delete_old(most=1) > 0
    assert history.blobs.size() > 0
    (root / "a").write_text("1" * 1_000)  # content whose blob was deleted
    again = history.take()
    (root / "a").unlink()
    history.restore(again.id)
    assert (root / "a").read_text() == "1" * 1_000
    history.restore(last.id)
    assert (root / "a").read_text() == "3" * 1_000


def test_old_snapshots_are_deleted_except_the_last(root: Path, history: SnapshotHistory) -> None:
    (root / "a").write_text("1")
    first = history.take()
    (root / "a").write_text("2")
    last = history.take()
    history.delete_old(days=-1)
    assert not history.has(first.id)
    assert history.has(last.id)


def test_a_missing_workspace_is_restored_and_a_used_one_is_not(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("1")
    first = history.take()
    with pytest.raises(BackendError, match="is not empty"):
        history.restore_missing(first.id)
    (root / "a").unlink()
    root.rmdir()
    assert not history.restore_missing(first.id).left
    assert (root / "a").read_text() == "1"


def test_an_older_copy_is_brought_to_a_snapshot_and_stays_in_the_history(history: SnapshotHistory, root: Path) -> None:
    (root / "a").write_text("1")
    (root / "gone").write_text("")
    older = history.take()
    (root / "gone").unlink()
    (root / "a").write_text("2")
    (root / "a").chmod(0o600)
    os.symlink("a", root / "link")
    last = history.take()
    with pytest.raises(BackendError, match="is not on this server"):
        history.adopt("0" * 64)
    history.restore(older.id)
    assert not history.adopt(last.id).left
    assert sorted(os.listdir(root)) == ["a", "link"] and (root / "link").read_text() == "2"
    assert (root / "a").stat().st_mode & 0o777 == 0o600
    assert history.last() == last.id and history.has(older.id)
