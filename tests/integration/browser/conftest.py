"""One server and one browser for each file of tests; each test is somebody who has never been here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser_pages import Asking, asking, chromium, stories, visit
from server_process import Served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stories(tmp_path_factory.mktemp("stories")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def ada(browser: Browser, server: Served) -> Iterator[Page]:
    with visit(browser, server) as page:
        yield page


@pytest.fixture
def api(server: Served) -> Asking:
    """Ada, without a browser."""
    return asking(server)
