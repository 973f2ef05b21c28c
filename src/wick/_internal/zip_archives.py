"""Safe unpacking of untrusted zip archives: in memory, within limits, without path traversal.

files = unpack(data)      {"SKILL.md": b"…", "scripts/run.py": b"…"}
"""

from __future__ import annotations

import stat
import zlib
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from wick.constants import ARCHIVE_BYTES, ARCHIVE_ENTRIES, ARCHIVE_UNPACKED_BYTES
from wick.errors import ConfigError

NAME_CHARS = 500
_DIRECTORY_BYTES = 1_000_000  # of the list of entries at the end; it is read whole
_END, _END_BYTES, _LOCATOR = b"PK\x05\x06", 22, b"PK\x06\x07"
_PIECE_BYTES = 1_000_000  # unpacked at once
_NOISE = ("__MACOSX/", ".DS_Store")  # added by file managers


def unpack(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip archive by name; raise ConfigError if the archive is invalid or too large."""
    if len(data) > ARCHIVE_BYTES:
        raise ConfigError(f"the archive has {len(data):,} bytes; the most is {ARCHIVE_BYTES:,}")
    # Refuse a large central directory before ZipFile reads it into memory.
    last = data[-_END_BYTES:]
    plain = last.startswith(_END) and last.endswith(b"\0\0")
    start = len(data) - _END_BYTES if plain else data.rfind(_END, max(0, len(data) - _END_BYTES - 65_536))
    if start < 0 or len(data) < start + _END_BYTES:
        raise ConfigError("this is not a zip archive")
    size = int.from_bytes(data[start + 12 : start + 16], "little")
    if size > _DIRECTORY_BYTES or data[max(0, start - 20) :].startswith(_LOCATOR):
        raise ConfigError(f"the archive has too many entries; the most is {ARCHIVE_ENTRIES:,}")
    try:
        with ZipFile(BytesIO(data)) as archive:
            return _unpack_entries(archive)
    except (BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ConfigError(f"the archive cannot be unpacked: {error}") from None


def _unpack_entries(archive: ZipFile) -> dict[str, bytes]:
    entries = archive.infolist()
    if len(entries) > ARCHIVE_ENTRIES:
        raise ConfigError(f"the archive has {len(entries):,} entries; the most is {ARCHIVE_ENTRIES:,}")
    files: dict[str, bytes] = {}
    seen, room = set[str](), ARCHIVE_UNPACKED_BYTES
    for entry in entries:
        name = _check_entry(entry)
        if entry.is_dir() or name.startswith(_NOISE) or name.endswith(_NOISE):
            continue
        if name.casefold() in seen:
            raise ConfigError(f"the archive has {name!r} twice")
        seen.add(name.casefold())
        if entry.file_size > room:
            raise ConfigError(f"the archive would have more than {ARCHIVE_UNPACKED_BYTES:,} bytes when it is unpacked")
        data = BytesIO()  # `getvalue` returns its bytes without a copy
        with archive.open(entry) as file:  # reads up to the declared size; the checksum detects a false one
            while piece := file.read(_PIECE_BYTES):
                data.write(piece)
        files[name] = data.getvalue()
        room -= len(files[name])
    return files


def _check_entry(entry: ZipInfo) -> str:
    """Return the name of an entry; raise ConfigError unless it is a plain relative path to a file or folder."""
    name, kind = entry.orig_filename, stat.S_IFMT(entry.external_attr >> 16)
    parts = name.removesuffix("/").split("/")
    odd = "\\" in name or ":" in name or any(ord(c) < 32 or ord(c) == 127 for c in name) or len(name) > NAME_CHARS
    if odd or any(part in ("", ".", "..") for part in parts):
        raise ConfigError(f"the archive has an entry {name[:100]!r}, which is not a plain path inside it")
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise ConfigError(f"{name} in the archive is a link or a device; pack plain files only")
    if entry.flag_bits & 0x1:
        raise ConfigError(f"{name} in the archive is encrypted; pack it without a password")
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # Python decompresses other methods without a size limit
        raise ConfigError(f"{name} in the archive is packed in an uncommon way; pack it as plain zip does (deflate)")
    return name
