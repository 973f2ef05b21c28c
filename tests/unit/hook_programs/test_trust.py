"""Trust: a hash for each file, stored privately, and void after any change."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from pathlib import Path

import pytest

from wick.capabilities.executables import Executables
from wick.errors import ConfigError
from wick.hook_programs.trust import (
    CHANGED,
    NOT_TRUSTED,
    SETTLED_SECONDS,
    Trust,
    expand_home,
    hash_file,
    list_code_files,
    make_check,
    make_folder_check,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "check"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "own" / "trust.json")


def test_a_file_is_trusted_on_request(trust: Trust, file: Path) -> None:
    assert trust.trust_state(file) == "untrusted" and not trust.is_trusted(file)
    assert trust.trust([file]) == [file] and trust.trust([str(file)]) == []
    assert trust.trust_state(file) == "trusted" and Trust(trust.path).is_trusted(file)
    assert trust.files() == {file: hash_file(file)}


def test_a_changed_file_needs_trust_again(trust: Trust, file: Path) -> None:
    trust.trust([file])
    file.write_text("#!/bin/sh\necho changed\n")
    assert trust.trust_state(file) == "changed" and not trust.is_trusted(file)
    assert trust.trust([file]) == [file]
    assert trust.trust_state(file) == "trusted"


def test_the_read_content_is_trusted(trust: Trust, file: Path) -> None:
    trust.trust([file])
    read = file.read_bytes()
    file.write_text("something else")
    assert trust.is_trusted(file, read) and not trust.is_trusted(file, b"something else")


def test_a_forgotten_file_is_not_trusted(trust: Trust, file: Path) -> None:
    trust.trust([file])
    assert trust.forget([file, "/no/such"]) == [file]
    assert trust.trust_state(file) == "untrusted" and trust.forget([file]) == []


def test_the_file_is_for_its_owner_alone(trust: Trust, file: Path) -> None:
    trust.trust([file])
    assert stat.S_IMODE(trust.path.stat().st_mode) == 0o600
    assert json.loads(trust.path.read_text())["version"] == 1


def test_a_path_is_the_same_by_every_way_that_leads_there(trust: Trust, file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path)
    trust.trust([tmp_path / "other" / ".." / tmp_path.name / "check"])
    assert trust.trust_state(tmp_path / "other" / "check") == "trusted" == trust.trust_state(file)


def test_a_retargeted_link_is_changed(trust: Trust, file: Path, tmp_path: Path) -> None:
    link, evil = tmp_path / "link", tmp_path / "evil"
    evil.write_text("#!/bin/sh\nrm -rf /\n")
    link.symlink_to(file)
    trust.trust([link])
    link.unlink()
    link.symlink_to(evil)
    assert trust.trust_state(link) == "changed" and trust.trust_state(file) == "untrusted"


@pytest.mark.parametrize("what", ["gone", "a folder", "a pipe"])
def test_an_unreadable_file_cannot_be_trusted(trust: Trust, tmp_path: Path, what: str) -> None:
    path = tmp_path / "odd"
    if what == "a folder":
        path.mkdir()
    if what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read, so it cannot be trusted"):
        trust.trust([path])
    assert trust.trust_state(path) == "untrusted"


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": 1}}', "[" * 9_999]
)
def test_a_damaged_file_trusts_nothing(trust: Trust, file: Path, text: str) -> None:
    trust.trust([file])
    trust.path.write_text(text)
    with pytest.raises(ConfigError, match="the list of trusted programs, is damaged"):
        trust.is_trusted(file)


def test_hooks_of_a_program_are_stored_with_its_trust(trust: Trust, file: Path) -> None:
    assert trust.last_type(file) is None
    trust.record_types({file: {"points": ["turn_end"]}})
    assert trust.last_type(file) == {"points": ["turn_end"]} and trust.trust_state(file) == "untrusted"
    trust.trust([file])
    written = trust.path.stat().st_mtime_ns
    trust.record_types({file: {"points": ["turn_end"]}})
    assert trust.path.stat().st_mtime_ns == written and trust.trust_state(file) == "trusted"


def test_concurrent_writes_lose_nothing(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    files = [tmp_path / f"file{number}" for number in range(20)]
    for path in files:
        path.write_text(path.name)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: Trust(tmp_path / "trust.json").trust([path]), files))
    assert set(Trust(tmp_path / "trust.json").files()) == set(files)


def test_a_check_rereads_a_file_only_if_its_stat_changed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, read = hash_file(file), []
    monkeypatch.setattr("wick.hook_programs.trust.hash_file", lambda path: read.append(path) or known)
    monkeypatch.setattr("wick.hook_programs.trust.SETTLED_SECONDS", 3600)
    check = make_check(file, known)
    assert [check(), check()] == ["", ""] and len(read) == 2  # it was written a moment ago, and may be again
    monkeypatch.setattr("wick.hook_programs.trust.SETTLED_SECONDS", SETTLED_SECONDS)
    time.sleep(2 * SETTLED_SECONDS)
    assert [check(), check(), check()] == ["", "", ""] and len(read) == 3
    os.utime(file, ns=(1, 1))
    assert check() == "" and len(read) == 4


def test_a_check_sees_a_change_that_hides_its_time(file: Path) -> None:
    check, about = make_check(file, hash_file(file)), file.stat()
    assert check() == ""
    file.write_text("#!/bin/no\n")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert check() == "was changed after it was trusted"


def test_a_check_without_hash_tests_existence(file: Path) -> None:
    check = make_check(file)
    file.write_text("#!/bin/sh\n# changed\n")
    assert check() == ""
    file.chmod(0o600)
    assert check() == "is not executable any more"
    file.unlink()
    assert check() == "no longer exists"


# -- neighbours of a program ----------------------------------------------------------------------------------------


def test_a_folder_of_programs_is_all_that_could_be_loaded_there(tmp_path: Path) -> None:
    code = ["check", "lib.py", "lib.cpython-311.pyc", "package.json", "deep/er/part.js", "__pycache__/lib.pyc"]
    for name in (*code, "notes.md", "seen.log", "state.json", "old.disable"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "deep" / "again").symlink_to(tmp_path)  # round and round
    (tmp_path / "nowhere").symlink_to(tmp_path / "no")
    os.mkfifo(tmp_path / "pipe")
    assert {str(path.relative_to(tmp_path)) for path in list_code_files(tmp_path)} == set(code)
    assert list_code_files(tmp_path / "no") == []


def test_a_folder_with_very_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.constants.HOOK_FILES", 3)
    for number in range(4):
        (tmp_path / f"file{number}").write_text("")
    with pytest.raises(ConfigError, match="has more than 3 files; give a directory of hook programs only"):
        list_code_files(tmp_path)
    assert "has more than 3 files" in make_folder_check(tmp_path, {})()


def test_neighbours_of_a_program_are_trusted_with_it(trust: Trust, tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "check").write_text("#!/bin/sh\n. ./lib\n")
    (folder / "lib").write_text("exit 0\n")
    trust.trust(list_code_files(folder))
    check = make_folder_check(folder, trust.files())
    assert check() == ""
    (folder / "lib").write_text("exit 1\n")
    assert check() == "is beside lib, which was changed after it was trusted"
    trust.trust(list_code_files(folder))
    (folder / "json.py").write_text("")
    assert make_folder_check(folder, trust.files())() == "is beside json.py, which is not trusted"


TRUSTED = """#!/usr/bin/env python3
import json, helper
from tools import *
exec(open("snippet").read())
subprocess.run(["sh", "-c", '. ./shared; source more.sh && /opt/x/run-it'])
"""
APART = ["second", "b-check.py", "b_check.py", "audit.sh", "json-check", "zz.js"]
LOADED = [
    *("json.py", "helper.py", "helper.so", "tools.py", "snippet", "shared", "more.sh", "run-it", "sitecustomize.py"),
    *("re.py", "json.cpython-311-x86_64-linux-gnu.so", "yaml.py", "package.json", "deep/part"),
]


@pytest.mark.parametrize("standing", ["new", "changed"])
@pytest.mark.parametrize("name", [*APART, *LOADED, "not-executable"])
def test_a_program_of_its_own_does_not_take_the_trust_of_its_neighbours(
    trust: Trust, tmp_path: Path, name: str, standing: str
) -> None:
    folder, other = tmp_path / "hooks", tmp_path / "hooks" / name
    other.parent.mkdir(parents=True)
    (folder / "check").write_text(TRUSTED)
    if standing == "changed":
        other.write_text("#!/bin/sh\n")
    trust.trust(list_code_files(folder))
    check = make_folder_check(folder, trust.files())
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o644 if name == "not-executable" else 0o755)
    problem = f"is beside {name}, which {CHANGED if standing == 'changed' else NOT_TRUSTED}"
    for look in (check, make_folder_check(folder, trust.files())):  # one with a cache, and one without
        assert look() == ("" if name in APART else problem)
    assert trust.trust_state(other) == ("changed" if standing == "changed" else "untrusted")  # it does not run itself


def test_a_file_that_loses_its_execute_bit_is_a_part_again(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "check").write_text("#!/bin/sh\n")
    trust.trust(list_code_files(tmp_path))
    check, other = make_folder_check(tmp_path, trust.files()), tmp_path / "second"
    other.write_text("")
    other.chmod(0o755)
    assert check() == ""
    other.chmod(0o644)
    assert check() == "is beside second, which is not trusted"


def test_trusting_every_new_file_is_detected(trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wick.hook_programs.trust.is_independent", lambda path, folder, trusted: True)
    (tmp_path / "check").write_text("#!/bin/sh\n")
    trust.trust(list_code_files(tmp_path))
    (tmp_path / "json.py").write_text("")
    (tmp_path / "json.py").chmod(0o755)
    assert make_folder_check(tmp_path, trust.files())() == ""  # which the test above would not have


# -- the file of trust, and where it is -----------------------------------------------------------------------------


def test_a_writable_trust_file_is_ignored(trust: Trust, file: Path) -> None:
    trust.trust([file])
    for mode in (0o620, 0o602, 0o666):
        trust.path.chmod(mode)
        with pytest.raises(ConfigError, match="can be written by others"):
            trust.is_trusted(file)
    trust.path.chmod(0o644)
    assert trust.is_trusted(file)


def test_a_long_wait_for_the_lock_is_reported(
    trust: Trust, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wick.hook_programs.trust.LOCK_SECONDS", 0.05)
    trust.trust([file])
    with open(f"{trust.path}.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process has locked"):
            trust.forget([file])
        trust.record_types({file: {"points": ["turn_end"]}})  # replaceable data need not be stored
    assert "cannot be stored" in caplog.text and trust.is_trusted(file) and trust.last_type(file) is None


def test_without_a_home_nothing_is_trusted_and_no_folder_of_that_name_is_one(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "./~")
    Trust(tmp_path / "~" / ".wick" / "trust.json").trust([file])
    trust = Trust()
    assert expand_home("~/.wick") is None and trust.trust_state(file) == "untrusted" and trust.files() == {}
    trust.record_types({file: {"points": ["turn_end"]}})
    with pytest.raises(ConfigError, match="set HOME to an absolute path"):
        trust.trust([file])


def test_hooks_of_a_folder_named_like_a_home_are_not_trusted_as_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "~")
    for name in ("~/.wick/hooks", "project"):
        (tmp_path / name).mkdir(parents=True)
    evil = tmp_path / "~" / ".wick" / "hooks" / "evil"
    evil.write_text("#!/bin/sh\ntouch ran\necho turn_end\n")
    evil.chmod(0o755)
    assert Executables(folder="project", claude=True).listed() == []
    assert not (tmp_path / "ran").exists()


def test_removed_files_are_forgotten_unless_trusted(trust: Trust, file: Path, tmp_path: Path) -> None:
    gone, trusted = tmp_path / "gone", tmp_path / "trusted"
    for path in (gone, trusted):
        path.write_text("")
    trust.trust([trusted])
    trust.record_types({path: {"points": ["turn_end"]} for path in (gone, trusted)})
    gone.unlink()
    trusted.unlink()
    trust.record_types({file: {"points": ["turn_end"]}})
    assert [trust.last_type(path) is not None for path in (gone, trusted, file)] == [False, True, True]
