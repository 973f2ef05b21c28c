#!/usr/bin/env python3
"""Write ui/openapi.json anew, as the server describes itself, and the types that the web interface makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from wick.server.app import create_api
from wick.server.openapi import build_document
from wick.server.service import Service
from wick.server.settings import Settings

UI = Path(__file__).parent.parent / "ui"


def described() -> str:
    """The description of the API, the same on every machine."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(Settings(data=Path(folder)))
        return json.dumps(build_document(create_api(service)), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    (UI / "openapi.json").write_text(described(), encoding="utf-8")
    if "--json" not in sys.argv:
        subprocess.run(["npm", "run", "--silent", "types"], cwd=UI, check=True, timeout=120)
    print("wrote ui/openapi.json")
