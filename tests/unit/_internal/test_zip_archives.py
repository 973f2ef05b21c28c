"""Foreign archives: their content, and refused entries."""

from __future__ import annotations

import stat
from io import BytesIO
from typing import Any
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZIP_LZMA, ZipFile, ZipInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick._internal import zip_archives
from wick._internal.zip_archives import unpack
from wick.errors import ConfigError


def packed(*entries: tuple[str | ZipInfo, bytes | str], how: int = ZIP_DEFLATED) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", how) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return file.getvalue()


def entry(name: str, mode: int = 0) -> ZipInfo:
    info = ZipInfo("x")
    info.filename, info.external_attr = name, mode << 16
    return info


def refusal(data: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        unpack(data)
    return str(caught.value)


@pytest.mark.parametrize("how", [0, ZIP_DEFLATED])
def test_files_are_listed_by_name(how: int) -> None:
    data = packed(("a/", ""), ("a/SKILL.md", "hi"), ("a/b c/..x.py", b"\0"), ("ü.md", "ü"), how=how)
    assert unpack(data) == {"a/SKILL.md": b"hi", "a/b c/..x.py": b"\0", "ü.md": "ü".encode()}


def test_file_manager_metadata_is_ignored() -> None:
    assert unpack(packed(("__MACOSX/._a", "x"), ("a/.DS_Store", "x"), ("a/b", "y"))) == {"a/b": b"y"}


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/.",
        "..",
        "C:/x",
        "C:x",
        "a\\..\\b",
        "a\nb",
        "a\x7f",
        "x" * 501,
    ],
)
def test_escaping_names_are_refused(name: str) -> None:
    assert "which is not a plain path inside it" in refusal(packed((entry(name), "x")))


def test_a_name_with_a_nul_is_refused() -> None:
    data = packed(("ab.md", "x")).replace(b"ab.md", b"a\0.md")
    assert "which is not a plain path inside it" in refusal(data)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices(kind: int) -> None:
    assert "is a link or a device" in refusal(packed((entry("a", kind | 0o777), "/etc/passwd")))


def test_an_encrypted_entry() -> None:
    data = bytearray(packed(("a", "x"), how=0))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "is encrypted" in refusal(bytes(data))


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("straße", "STRASSE")])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_of_the_same_name(names: tuple[str, str]) -> None:
    assert "twice" in refusal(packed(*[(name, "x") for name in names]))


def test_an_archive_that_is_too_large() -> None:
    assert refusal(b"PK" + bytes(10_000_000)) == "the archive has 10,000,002 bytes; the most is 10,000,000"


@pytest.mark.parametrize("how", [ZIP_BZIP2, ZIP_LZMA])
def test_archives_that_cannot_be_streamed_are_refused(how: int) -> None:
    assert "pack it as plain zip does" in refusal(packed(("a.txt", "x"), how=how))


def test_a_bomb() -> None:
    data = packed(("a", bytes(30_000_000)), ("b", bytes(30_000_000)))
    assert len(data) < 100_000
    assert "more than 50,000,000 bytes when it is unpacked" in refusal(data)


def test_an_entry_that_lies_about_its_size() -> None:
    data = bytearray(packed(("a", bytes(1_000_000))))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = (10).to_bytes(4, "little")
    try:
        assert len(unpack(bytes(data))["a"]) <= 1_000_000
    except ConfigError as error:
        assert "cannot be unpacked" in str(error)


def test_too_many_entries() -> None:
    assert "2,001 entries; the most is 2,000" in refusal(packed(*[(str(n), "") for n in range(2_001)], how=0))


def test_a_list_of_entries_that_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> Any:
        raise AssertionError("it was read")

    data = packed(*[(str(n), "") for n in range(22_000)], how=0)
    monkeypatch.setattr(zip_archives, "ZipFile", never)
    assert "too many entries" in refusal(data)


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"PK\x05\x06", b"hello", bytes(100), packed(("a", "x"))[:-30]],
    ids=["empty", "two letters", "a mark", "a word", "zeros", "cut off"],
)
def test_invalid_archives_are_refused(data: bytes) -> None:
    assert refusal(data)


@given(st.data())
def test_a_broken_archive_is_refused_or_read(data: st.DataObject) -> None:
    whole = bytearray(packed(("a/SKILL.md", "hello " * 20), ("a/x", "y")))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = unpack(bytes(whole))
    except ConfigError:
        return
    assert all(not name.startswith("/") and ".." not in name.split("/") for name in files)
