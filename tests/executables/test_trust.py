"""Trust: a hash for each file, kept where only its owner reads it, and lost with any change."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from wick.errors import ConfigError
from wick.executables.trust import Trust, checking, hashed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "check"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "own" / "trust.json")


def test_a_file_is_trusted_when_somebody_says_so(trust: Trust, file: Path) -> None:
    assert trust.standing(file) == "untrusted" and not trust.trusted(file)
    assert trust.trust([file]) == [file] and trust.trust([str(file)]) == []
    assert trust.standing(file) == "trusted" and Trust(trust.path).trusted(file)
    assert trust.files() == {file: hashed(file)}


def test_a_changed_file_is_not_trusted_until_it_is_again(trust: Trust, file: Path) -> None:
    trust.trust([file])
    file.write_text("#!/bin/sh\necho changed\n")
    assert trust.standing(file) == "changed" and not trust.trusted(file)
    assert trust.trust([file]) == [file]
    assert trust.standing(file) == "trusted"


def test_what_was_read_is_what_counts(trust: Trust, file: Path) -> None:
    trust.trust([file])
    read = file.read_bytes()
    file.write_text("something else")
    assert trust.trusted(file, read) and not trust.trusted(file, b"something else")


def test_what_is_forgotten_is_not_trusted(trust: Trust, file: Path) -> None:
    trust.trust([file])
    assert trust.forget([file, "/no/such"]) == [file]
    assert trust.standing(file) == "untrusted" and trust.forget([file]) == []


def test_the_file_is_for_its_owner_alone(trust: Trust, file: Path) -> None:
    trust.trust([file])
    assert stat.S_IMODE(trust.path.stat().st_mode) == 0o600
    assert json.loads(trust.path.read_text())["version"] == 1


def test_a_path_is_the_same_by_every_way_that_leads_there(trust: Trust, file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(tmp_path)
    trust.trust([tmp_path / "other" / ".." / tmp_path.name / "check"])
    assert trust.standing(tmp_path / "other" / "check") == "trusted" == trust.standing(file)


def test_a_link_that_leads_elsewhere_is_changed(trust: Trust, file: Path, tmp_path: Path) -> None:
    link, evil = tmp_path / "link", tmp_path / "evil"
    evil.write_text("#!/bin/sh\nrm -rf /\n")
    link.symlink_to(file)
    trust.trust([link])
    link.unlink()
    link.symlink_to(evil)
    assert trust.standing(link) == "changed" and trust.standing(file) == "untrusted"


@pytest.mark.parametrize("what", ["gone", "a folder", "a pipe"])
def test_what_cannot_be_read_cannot_be_trusted(trust: Trust, tmp_path: Path, what: str) -> None:
    path = tmp_path / "odd"
    if what == "a folder":
        path.mkdir()
    if what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read, so it cannot be trusted"):
        trust.trust([path])
    assert trust.standing(path) == "untrusted"


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '{"version": 2, "files": {}}', '{"version": 1, "files": {"a": 1}}', "[" * 9_999]
)
def test_a_damaged_file_trusts_nothing(trust: Trust, file: Path, text: str) -> None:
    trust.trust([file])
    trust.path.write_text(text)
    with pytest.raises(ConfigError, match="which says what is trusted, is damaged"):
        trust.trusted(file)


def test_what_a_program_hooks_is_remembered_beside_its_trust(trust: Trust, file: Path) -> None:
    assert trust.type_of(file) is None
    trust.learn({file: {"points": ["turn_end"]}})
    assert trust.type_of(file) == {"points": ["turn_end"]} and trust.standing(file) == "untrusted"
    trust.trust([file])
    written = trust.path.stat().st_mtime_ns
    trust.learn({file: {"points": ["turn_end"]}})
    assert trust.path.stat().st_mtime_ns == written and trust.standing(file) == "trusted"


def test_two_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    files = [tmp_path / f"file{number}" for number in range(20)]
    for path in files:
        path.write_text(path.name)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: Trust(tmp_path / "trust.json").trust([path]), files))
    assert set(Trust(tmp_path / "trust.json").files()) == set(files)


def test_a_check_reads_a_file_again_only_when_it_looks_different(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, read = hashed(file), []
    monkeypatch.setattr("wick.executables.trust.hashed", lambda path: read.append(path) or known)
    check = checking(file, known)
    assert [check(), check(), check()] == ["", "", ""] and len(read) == 1
    os.utime(file, ns=(1, 1))
    assert check() == "" and len(read) == 2


def test_a_check_sees_a_change_that_hides_its_time(file: Path) -> None:
    check, about = checking(file, hashed(file)), file.stat()
    assert check() == ""
    file.write_text("#!/bin/no\n")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert check() == "was changed after it was trusted"


def test_a_check_without_a_hash_asks_whether_it_is_there(file: Path) -> None:
    check = checking(file)
    file.write_text("#!/bin/sh\n# changed\n")
    assert check() == ""
    file.chmod(0o600)
    assert check() == "is not executable any more"
    file.unlink()
    assert check() == "stands no longer where it was"
