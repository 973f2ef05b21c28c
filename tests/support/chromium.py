"""The browser of the tests."""

from __future__ import annotations

import shutil

import pytest

# The headless shell opens a page with a third of the processor time that the desktop browser needs.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser")


def find_chromium() -> str:
    """Return the path of an installed Chromium; skip the test if there is none."""
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return found
    pytest.skip("no browser: apt-get install chromium-headless-shell")
