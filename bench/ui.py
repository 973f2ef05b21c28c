"""Measure the first load of the web interface, the frames of a long reply, and scrolling, in this machine's Chromium.

    make bench-ui                 # builds the interface first
    python bench/ui.py --quick    # with 200 entries

The sizes are those of the files that the browser requested, each compressed by gzip -9. See bench/README.md.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

from measure import Rows, groups, main, pick, table
from playwright.sync_api import Page, sync_playwright
from served import TOKEN
from server import served

BUILT = Path(__file__).parent.parent / "src" / "wick" / "server" / "ui"
PANELS = ("Canvas", "Files", "Terminal", "Agent", "Trace", "Usage", "Approvals", "Replay")
FIRST_LOAD_KB, SMOOTH_MS, USABLE_MS = 250.0, 33.0, 1_000.0  # goals; 33 ms are two frames at 60 per second
OPENINGS = 7  # of the page, without a cache
SETTLED_MS = 1_200  # wait until everything is loaded
A_RUN = 100  # entries that one run of the agent adds
LEAST_PIXELS = 100  # minimal height of an entry
LEAST_FRAMES = 25  # also in a short thread

SCROLL = """async ([frames, pixels]) => {
  const box = document.querySelector('.chat-items')
  const took = []
  let last = await new Promise(requestAnimationFrame)
  for (let count = 0; count < frames; count++) {
    box.scrollTop -= pixels
    const now = await new Promise(requestAnimationFrame)
    took.push(now - last)
    last = now
  }
  return {took, drawn: document.querySelectorAll('.chat-item').length, height: box.scrollHeight}
}"""

STEP = """pixels => {
  document.querySelector('.chat-items').scrollTop -= pixels
  return new Promise(done => requestAnimationFrame(() => done()))
}"""

REPLIES = (("100 kB of text", "text 100000"), ("a table of 500 rows", "table 500"), ("40 kB of code", "code 40000"))

OPEN = "article[aria-busy=true]"
IS_OPEN = f"() => new Promise(requestAnimationFrame).then(() => Boolean(document.querySelector('{OPEN}')))"
STREAM = """async () => {
  const isOpen = () => document.querySelector('article[aria-busy=true]')
  while (!isOpen()) await new Promise(requestAnimationFrame)
  const took = []
  let last = await new Promise(requestAnimationFrame)
  while (isOpen()) {
    const now = await new Promise(requestAnimationFrame)
    took.push(now - last)
    last = now
  }
  for (let count = 0; count < 20; count++) { // the frames that end the reply
    const now = await new Promise(requestAnimationFrame)
    took.push(now - last)
    last = now
  }
  return took
}"""


def run(quick: bool) -> Rows:
    if not (BUILT / "index.html").is_file():
        raise SystemExit("the web interface is not built: run `make ui` first")
    with tempfile.TemporaryDirectory() as folder, served("wick", Path(folder)) as server:
        url = f"http://127.0.0.1:{server.port}"
        thread, entries = talk(url, 2 if quick else 20)
        with browser() as page:
            replies = [(case, words.replace("100000", "20000")) for case, words in REPLIES] if quick else REPLIES
            loaded = [*loading(page, url), opening(page, url)]
            streamed = [streaming(page, url, case, words) for case, words in replies]
            return [*loaded, *streamed, *scrolling(page, url, thread, entries)]


# -- a conversation ---------------------------------------------------------------------------------------------------


def talk(url: str, runs: int) -> tuple[str, int]:
    """Create a long thread, and return its id and the number of its visible entries."""
    asked = {"thread_id": "long", "messages": [{"role": "user", "content": str(A_RUN - 2)}]}
    for _ in range(runs):
        _ask(f"{url}/agents/noting/invoke", asked)
    said = [message["role"] for message in _ask(f"{url}/threads/long")["messages"]]
    return "long", said.count("user") + said.count("assistant")


def _ask(url: str, body: Any = None) -> Any:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


# -- a browser --------------------------------------------------------------------------------------------------------


@contextmanager
def browser() -> Iterator[Page]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed; run apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started.new_page(viewport={"width": 1280, "height": 800})
        started.close()


def loading(page: Page, url: str) -> Rows:
    """Measure the bytes of the first load, and of each panel that is opened."""
    asked: list[str] = []
    page.on("response", lambda answer: asked.append(urlsplit(answer.url).path))
    page.goto(url)
    page.fill("#token", TOKEN)
    page.press("#token", "Enter")
    page.wait_for_selector("#message")
    page.wait_for_timeout(SETTLED_MS)
    rows = [_measure_files("first load", "sign in and chat", asked)]
    for number, panel in enumerate(PANELS, 1):
        asked.clear()
        page.keyboard.press(f"Alt+{number}")
        page.wait_for_selector(f"aside[aria-label='{panel}']")
        page.wait_for_timeout(SETTLED_MS)
        rows.append(_measure_files("panel", panel.lower(), asked))
    whole = [f"/{path.relative_to(BUILT)}" for path in BUILT.rglob("*") if path.is_file()]
    return [*rows, _measure_files("everything", "all files", whole)]


def opening(page: Page, url: str) -> dict[str, Any]:
    """Measure how long a signed-in user waits for the message field, without a cache."""
    page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    took = list[float]()
    for _ in range(OPENINGS):
        page.goto("about:blank")
        page.goto(url, wait_until="commit")
        page.wait_for_selector("#message:focus")
        took.append(page.evaluate("performance.now()"))
    return {
        "group": "opening",
        "case": "message field",
        "ms": median(took),
        "slowest_ms": max(took),
        "goal_ms": USABLE_MS,
    }


def _measure_files(group: str, case: str, paths: list[str]) -> dict[str, Any]:
    files = {BUILT / (path.strip("/") or "index.html") for path in paths}
    sizes = [file.read_bytes() for file in files if file.is_file()]
    zipped = sum(len(gzip.compress(data, 9)) for data in sizes)
    goal = FIRST_LOAD_KB if group == "first load" else None
    return {
        "group": group,
        "case": case,
        "files": len(sizes),
        "kb": round(sum(map(len, sizes)) / 1e3, 1),
        "gzip_kb": round(zipped / 1e3, 1),
        "goal_kb": goal,
    }


def streaming(page: Page, url: str, case: str, words: str) -> dict[str, Any]:
    """Measure frames while a long reply is streamed; the CPU is that of the same reply once more."""
    _ask_writer(page, url, words)
    took = page.evaluate(STREAM)
    _ask_writer(page, url, words)
    page.wait_for_selector(OPEN)
    spent = processor_clock(page)
    times = [spent()]
    while page.evaluate(IS_OPEN):
        times.append(spent())
    return {"group": "stream", "case": case, **_summarize(took, times)}


def _ask_writer(page: Page, url: str, words: str) -> None:
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_selector("#message")
    page.wait_for_timeout(SETTLED_MS)
    page.select_option("#agent", "writer")
    page.fill("#message", words)
    page.press("#message", "Enter")


def scrolling(page: Page, url: str, thread: str, entries: int) -> Rows:
    """Measure frames while the page scrolls up, slowly and fast, without reaching the first entry."""
    page.goto("about:blank")
    page.goto(f"{url}/#thread={thread}")
    page.wait_for_selector(".chat-item")
    page.wait_for_timeout(SETTLED_MS)
    far = entries * LEAST_PIXELS
    ways = (("slow", 120, far // 4), ("fast", 1_200, far // 2))
    return [
        _measure_scroll(page, case, pixels, max(distance // pixels // 2, LEAST_FRAMES), entries)
        for case, pixels, distance in ways
    ]


def _measure_scroll(page: Page, case: str, pixels: int, frames: int, entries: int) -> dict[str, Any]:
    found = page.evaluate(SCROLL, [frames, pixels])
    spent = processor_clock(page)
    times = [spent()]
    for _ in range(frames):
        page.evaluate(STEP, pixels)
        times.append(spent())
    shown = {"case": f"{case}, {pixels} px a frame", "entries": entries, "drawn": found["drawn"]}
    return {"group": "scroll", **shown, **_summarize(found["took"], times)}


def _summarize(took: list[float], times: list[float]) -> dict[str, Any]:
    took = took[5:]  # without the first frames of the movement
    cpu = [after - before for before, after in pairwise(times)]
    return {
        "frames": len(took),
        "median_ms": round(median(took), 1),
        "p95_ms": round(quantiles(took, n=20)[-1], 1),
        "slowest_ms": round(max(took), 1),
        "cpu_median_ms": round(median(cpu), 1),
        "cpu_p95_ms": round(quantiles(cpu, n=20)[-1], 1),
        "goal_ms": SMOOTH_MS,
    }


def processor_clock(page: Page) -> Callable[[], float]:
    """Return a clock of the CPU time of the page's main thread, in ms."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration")) * 1_000

    return spent


def tell(rows: Rows) -> None:
    by = groups(rows)
    sizes = [row for group in ("first load", "panel", "everything") for row in by[group]]
    table("Loaded, kB", ("", "files", "plain", "gzip", "goal"), pick(sizes, "files", "kb", "gzip_kb", "goal_kb"))
    opened = pick(by["opening"], "ms", "slowest_ms", "goal_ms")
    table("From an empty page to a usable message field, ms", ("", "median", "slowest", "goal"), opened)
    heads = ("frames", "median", "95 %", "slowest", "CPU", "CPU, 95 %", "goal, 95 %")
    keys = ("frames", "median_ms", "p95_ms", "slowest_ms", "cpu_median_ms", "cpu_p95_ms", "goal_ms")
    table("Frames while a reply arrives, ms", ("", *heads), pick(by["stream"], *keys))
    scrolled = pick(by["scroll"], "entries", "drawn", *keys)
    table("Frames while scrolling, ms", ("", "entries", "drawn", *heads), scrolled)


if __name__ == "__main__":
    main(__doc__, "ui", run, tell)
