#!/usr/bin/env python3
"""Write docs/reference/executable-hooks.md anew, from what the tests show."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support" / "executables"))

from conformance import PAGE, page

PAGE.parent.mkdir(exist_ok=True)
PAGE.write_text(page(), encoding="utf-8")
print(f"wrote {PAGE.name}")
