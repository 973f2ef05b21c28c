"""wickd as one file, for a container: `python3 wickd.pyz`. The same sources give the same bytes, whoever packs them."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent
# What runs inside containers: the standard library only, Python 3.8.
MODULES = (
    *("errors", "constants", "shapes", "beneath", "namespaces", "processes", "disk_usage"),
    *("patterns", "walking", "texts", "searching", "pinning", "protecting", "refusals", "descriptors", "workspace"),
    *("git_settings", "plants"),
)
_MAIN = b"from wick.backends.wickd.__main__ import main\n\nmain()\n"


def sources() -> dict[str, bytes]:
    """What is packed: names within the archive, and their contents."""
    wickd = [path for path in (PACKAGE / "backends" / "wickd").glob("*.py") if path.name != "bundle.py"]
    paths = [*wickd, *(PACKAGE / f"{name}.py" for name in MODULES)]
    found = {f"wick/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in paths}
    return {**found, "__main__.py": _MAIN, "wick/__init__.py": b"", "wick/backends/__init__.py": b""}


@cache
def zipapp() -> bytes:
    """The bytes of wickd.pyz. They are not compressed: not every Python has zlib, and not every zlib the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(sources().items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.create_system = 0o100444 << 16, 3
            archive.writestr(entry, data)
    return buffer.getvalue()


@cache
def digest() -> str:
    """The SHA-256 of `zipapp()`."""
    return hashlib.sha256(zipapp()).hexdigest()
