"""Previews of HTML and SVG: no request is sent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from playwright.sync_api import Browser, Page, expect

from browser_pages import ApiClient, open_page
from canvas_page import open_file
from server_process import ServerProcess

LOADED = """
<html><head>
<link rel=preconnect href="{url}/"><link rel=dns-prefetch href="{url}/"><link rel=prefetch href="{url}/1">
<link rel=prerender href="{url}/2"><link rel=stylesheet href="{url}/3"><link rel=icon href="{url}/4">
<link rel=modulepreload href="{url}/5"><link rel=preload as=image href="{url}/6"><link rel=manifest href="{url}/7">
<meta http-equiv=refresh content="0;url={url}/8"><base href="{url}/">
<style>@import url({url}/9); body {{ background: url({url}/10) }} @font-face {{ font-family: x; src: url({url}/11) }}
h1 {{ font-family: x; color: rgb(1, 2, 3) }}</style></head><body onload="fetch('{url}/12')"><h1>Hello</h1>
<img src="{url}/13" onerror="parent.postMessage('caught', '*')"><img srcset="{url}/14 1x">
<input type=image src="{url}/15"><iframe src="{url}/16"></iframe>
<iframe srcdoc="<link rel=preconnect href={url}/>"></iframe>
<object data="{url}/17"></object><embed src="{url}/18"><audio src="{url}/21" autoplay></audio>
<video src="{url}/19" poster="{url}/20" autoplay></video>
<script>fetch("{url}/22"); top.location = "{url}/23"; open("{url}/24"); parent.document.title = "caught"</script>
<template shadowrootmode=open><link rel=preconnect href="{url}/"></template>
<svg><image href="{url}/25"/><use href="{url}/26#x"/><script>fetch("{url}/27")</script></svg>
"""
CLICKED = {
    "form": '<form action="{url}/form" method=post><button id=it>send</button></form>',
    "link": '<a id=it href="{url}/link">link</a>',
    "top": '<a id=it href="{url}/top" target=_top>link</a>',
    "window": '<a id=it href="{url}/blank" target=_blank ping="{url}/ping">link</a>',
    "download": '<a id=it href="{url}/down" download>link</a>',
    "script": "<a id=it href=\"javascript:fetch('{url}/js')\">link</a>",
    "page": '<a id=it href="/auth/me">link</a>',
    "drawn": '<svg width=90 height=30><a id=it xlink:href="{url}/svg"><rect width=90 height=30 /></a></svg>',
}


class Listening:
    """A remote host that records connections."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        self.came = 0
        self.thread = threading.Thread(target=self._listen)
        self.thread.start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                self.server.accept()[0].close()
                self.came += 1

    def close(self) -> None:
        self.server.shutdown(socket.SHUT_RDWR)
        self.thread.join(10)
        self.server.close()


@pytest.fixture
def elsewhere() -> Iterator[Listening]:
    with closing(Listening()) as found:
        yield found


def test_the_test_listener_records_requests(elsewhere: Listening) -> None:
    socket.create_connection(("127.0.0.1", int(elsewhere.url.rsplit(":", 1)[1])), 10).close()
    for _ in range(1000):
        if elsewhere.came:
            break
        elsewhere.thread.join(0.01)
    assert elsewhere.came == 1


def test_a_page_is_shown_and_runs_and_reaches_nothing(
    browser: Browser, server: ServerProcess, api: ApiClient, elsewhere: Listening
) -> None:
    api.write("page.html", LOADED.format(url=elsewhere.url))
    with open_page(browser, server, hostile=True) as page:  # the browser reports blocked requests as errors
        open_file(page, "page.html")
        frame = page.locator("iframe[title='Preview of page.html']")
        head = frame.content_frame.locator("h1")
        expect(head).to_have_text("Hello")
        expect(head).to_have_css("color", "rgb(1, 2, 3)")
        assert frame.get_attribute("sandbox") == "allow-scripts", "no forms, no windows, no origin"
        page.wait_for_timeout(500)  # absence of requests has no event
        assert elsewhere.came == 0 and "caught" not in page.title()


def test_links_in_a_preview_do_not_navigate(ada: Page, api: ApiClient, elsewhere: Listening) -> None:
    for name, text in CLICKED.items():
        api.write(f"{name}.html", f"<h1>{name}</h1>{text.format(url=elsewhere.url)}")
        open_file(ada, f"{name}.html")
        frame = ada.frame_locator(f"iframe[title='Preview of {name}.html']")
        before = ada.url
        frame.locator("#it").click()
        expect(frame.locator("h1")).to_have_text(name)
        assert ada.url == before and len(ada.context.pages) == 1
    assert elsewhere.came == 0
    assert [child.url for child in ada.frames[1:]] == [f"{before.split('#')[0]}canvas/frame"]
