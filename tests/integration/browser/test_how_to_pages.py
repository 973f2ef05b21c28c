"""HTML pages of the docs in a browser, each with the FastAPI app of the same docs page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from browser_pages import PATIENCE_MS
from doc_pages import ROOT, run_uvicorn, write_app

HOW_TO = ROOT / "docs" / "how-to"

# The app of a page with two more models: one stops in the middle of its text until there is a file, one fails.
GATED = """
import asyncio
import os

import app as page
from app import app
from wick.errors import ModelError
from wick.protocols import Finish, TextDelta

own = page.agent.model


class Gated:
    name = "gated"

    async def stream(self, request):
        text = next(message.text for message in reversed(request.messages) if message.role == "user")
        if text == "fail":
            raise ModelError("the model is not available")
        if text != "wait":
            async for delta in own.stream(request):
                yield delta
            return
        yield TextDelta("The first half")
        while not os.path.exists("open"):
            await asyncio.sleep(0.02)
        yield TextDelta(" and the second.")
        yield Finish()


page.agent = page.agent.with_options(model=Gated())
"""


# The app of the same page with its typed agent; "native" streams the JSON as text, "json" is an untyped reply.
TYPED = """
import app as page
from app import Agent, Delivery, FunctionModel, app

plain, typed = page.send_events, page.send_typed_events
by_tool = page.typed_agent
native = Agent(FunctionModel(lambda request: '{"number": 7, "state": "packed"}'), output_type=Delivery)
page.agent = Agent(FunctionModel(lambda request: '{"a": 1}'))


def send_events(text):
    page.typed_agent = native if text == "native" else by_tool
    return plain(text) if text == "json" else typed(text)


page.send_events = send_events
"""

# The app of the same page with an agent that asks, and a route that streams the resumed run.
ASKING = """
from typing import Annotated, Literal

import app as page
from app import Agent, FunctionModel, ToolCall, app, assistant, tool
from fastapi import Body, Depends
from wick import Ask, ToolUse, guard
from wick.capabilities.sessions import Sessions


@tool
async def refund(order: int) -> str:
    "Refund an order."
    return f"refunded order {order}"


@guard(ToolUse, match="refund")
def confirm(use: ToolUse) -> Ask:
    return Ask("Refund it?")


def reply(request):
    last = request.messages[-1]
    return f"I {last.text}." if last.role == "tool" else assistant("", ToolCall("1", "refund", {"order": 7}))


sessions = Sessions("./data")
asking = Agent(FunctionModel(reply), tools=[refund], hooks=[sessions, confirm])


class InThread:
    def stream(self, text):
        return asking.stream(text, thread="support")


page.agent = InThread()


async def answer(question: str, choice: Annotated[Literal["allow", "deny"], Body(embed=True)]) -> None:
    await sessions.answer("support", question, choice)


@app.post("/questions/{question}", dependencies=[Depends(answer)])
async def resume():
    return page.stream_answer("")
"""


@contextmanager
def open_app(browser: Browser, url: str) -> Iterator[Page]:
    """Open a page; an error in its script fails the test."""
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    page, errors = context.new_page(), list[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    try:
        page.goto(url)
        yield page
        assert errors == []
    finally:
        context.close()


def test_the_plain_page_streams_stops_and_shows_errors(browser: Browser, tmp_path: Path) -> None:
    write_app(HOW_TO / "stream-to-browser.md", tmp_path, blocks=1)
    (tmp_path / "gated.py").write_text(GATED)
    with run_uvicorn(tmp_path, "gated:app") as (url, _), open_app(browser, url) as page:
        answer, status = page.locator("#answer"), page.get_by_role("status")

        def ask(text: str = "") -> None:
            page.get_by_label("Question").fill(text) if text else None
            page.get_by_role("button", name="Ask").click()

        ask()
        expect(answer).to_have_text("Your order 7 was shipped yesterday.")
        ask("wait")
        expect(answer).to_have_text("The first half")  # while the model waits
        page.get_by_role("button", name="Stop").click()
        expect(status).to_contain_text("AbortError")
        ask()
        expect(answer).to_have_text("The first half")
        (tmp_path / "open").touch()
        expect(answer).to_have_text("The first half and the second.")
        ask("fail")
        expect(status).to_have_text("the model is not available")


def test_the_plain_page_shows_a_typed_answer_in_words(browser: Browser, tmp_path: Path) -> None:
    write_app(HOW_TO / "stream-to-browser.md", tmp_path, blocks=3)
    (tmp_path / "typed.py").write_text(TYPED)
    with run_uvicorn(tmp_path, "typed:app") as (url, _), open_app(browser, url) as page:
        answer = page.locator("#answer")
        for text, shown in (
            ("Where is order 7?", ["I look it up.", "Order 7 is shipped."]),
            ("native", ["Order 7 is packed."]),
            ("json", ['{"a": 1}']),  # the reply of an agent without output_type
        ):
            page.get_by_label("Question").fill(text)
            page.get_by_role("button", name="Ask").click()
            expect(answer.locator("p")).to_have_text(shown)
            expect(page.get_by_role("status")).to_have_text("")


def test_a_question_in_the_plain_page_is_replaced_and_answered(browser: Browser, tmp_path: Path) -> None:
    write_app(HOW_TO / "stream-to-browser.md", tmp_path, blocks=1)
    (tmp_path / "asking.py").write_text(ASKING)
    with run_uvicorn(tmp_path, "asking:app") as (url, _), open_app(browser, url) as page:
        page.get_by_role("button", name="Ask").click()
        card = page.locator("#answer p").filter(has_text="Refund it?")
        expect(card).to_have_count(1)
        page.get_by_role("button", name="allow").click()
        expect(page.locator("#answer")).to_have_text("I refunded order 7.")
        expect(card).to_have_count(0)


def test_a_chat_streams_asks_and_survives_a_reload(browser: Browser, tmp_path: Path) -> None:
    write_app(HOW_TO / "chat-backend.md", tmp_path, blocks=1)
    with run_uvicorn(tmp_path) as (url, _), open_app(browser, url) as page:
        page.get_by_label("Message").fill("Refund order 7.")
        page.get_by_role("button", name="Send").click()
        question = page.locator("#questions p")
        expect(question).to_contain_text("Refund 80 euros for order 7?")
        page.reload()
        expect(question).to_have_count(1)
        page.get_by_role("button", name="allow").click()
        expect(page.locator("#messages")).to_contain_text("assistant: I refunded 80 euros to ada.")
        expect(question).to_have_count(0)
        page.get_by_label("Message").fill("Refund order 7.")
        page.get_by_role("button", name="Send").click()
        expect(question).to_contain_text("Refund 80 euros for order 7?")
        page.get_by_role("button", name="Stop").click()
        expect(question).to_have_count(0)
