"""One server and one browser per test file; each test is a new user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from browser_pages import ApiClient, launch_chromium, open_api_client, open_page, run_story_server
from server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_story_server(tmp_path_factory.mktemp("stories")) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch_chromium() as found:
        yield found


@pytest.fixture
def ada(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    with open_page(browser, server) as page:
        yield page


@pytest.fixture
def api(server: ServerProcess) -> ApiClient:
    """Ada, without a browser."""
    return open_api_client(server)
