"""Reproducible zipapp of wickd for containers: `python3 wickd.pyz`."""

from __future__ import annotations

import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
SHIPPED = ("errors.py", "constants.py", "workspace/*.py", "wickd/*.py")  # standard library only, Python 3.8
_MAIN = b"from wick.wickd.__main__ import main\n\nmain()\n"


def read_sources() -> dict[str, bytes]:
    """Return the packed files by their names in the archive."""
    paths = [path for pattern in SHIPPED for path in PACKAGE.glob(pattern) if path != Path(__file__)]
    sources = {f"wick/{path.relative_to(PACKAGE).as_posix()}": path.read_bytes() for path in paths}
    return {**sources, "__main__.py": _MAIN, "wick/__init__.py": b""}


@cache
def build_zipapp() -> bytes:
    """Return the bytes of wickd.pyz, uncompressed: zlib may be missing, and its output differs between versions."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(read_sources().items()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.create_system = 0o100444 << 16, 3
            archive.writestr(entry, data)
    return buffer.getvalue()


@cache
def compute_digest() -> str:
    """Return the SHA-256 of `build_zipapp()`."""
    return hashlib.sha256(build_zipapp()).hexdigest()
