"""The chat backend of the docs as a process: reconnects, refusals, a kill, a restart and a shutdown."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from doc_pages import ROOT, run_uvicorn, stories, write_app

PAGE = ROOT / "docs" / "how-to" / "chat-backend.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_app(PAGE, tmp_path, blocks=1)
    return tmp_path


class ChatClient:
    """One connection of one user."""

    def __init__(self, url: str, user: str = "ada") -> None:
        self.connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.headers = {"Cookie": f"user={user}", "Content-Type": "application/json"}

    def __enter__(self) -> ChatClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> HTTPResponse:
        sent = None if body is None else json.dumps(body)
        self.connection.request(method, path, sent, {**self.headers, **headers})
        return self.connection.getresponse()

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        response = self.request("POST", path, body)
        return response.status, json.loads(response.read())

    def read_events(self, last: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the id and the JSON of each event; the request is sent before the first one is read."""
        headers = {"Last-Event-ID": last} if last else {}
        response = self.request("GET", "/events", **headers)
        assert response.status == 200 and response.getheader("Content-Type", "").startswith("text/event-stream")
        return self._parse(response)

    def _parse(self, response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
        fields = dict[str, str]()
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:  # an empty line ends an event
                yield fields["id"], json.loads(fields["data"])
                fields.clear()


def read_until(events: Iterator[tuple[str, dict[str, Any]]], name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the events up to the first one of this name."""
    found = list[tuple[str, dict[str, Any]]]()
    for number, event in events:
        found.append((number, event))
        if event["event"] == name:
            return found
    raise AssertionError(f"no {name}: {found}")


def test_a_question_is_answered_and_a_reader_reconnects(folder: Path) -> None:
    with run_uvicorn(folder) as (url, _), ChatClient(url) as page, ChatClient(url) as ada:
        events = page.read_events()
        assert ada.post("/messages", {"text": "Refund order 7."}) == (202, None)
        seen = read_until(events, "done")
        asked = next(event["data"] for _, event in seen if event["event"] == "on_approval_request")
        assert (asked["question"], asked["args"]) == ("Refund 80 euros for order 7?", {"order": 7})
        assert seen[-1][1]["data"]["outcome"] == "interrupted"

        path = f"/questions/{asked['id']}"
        with ChatClient(url, "eve") as eve:
            assert eve.post(path, {"choice": "allow"})[0] == 404
        assert ada.post(path, {"choice": "perhaps"})[0] == 422
        assert ada.post(path, {"choice": "allow"}) == (202, None)
        rest = read_until(events, "done")
        assert rest[-1][1]["data"]["text"] == "I refunded 80 euros to ada."
        history = json.loads(ada.request("GET", "/messages").read())["messages"]
        assert [message["role"] for message in history] == ["user", "assistant"]
        status, body = ada.post(path, {"choice": "allow"})
        assert status == 404 and "no open question" in body["detail"]

        with ChatClient(url) as again:
            assert read_until(again.read_events(seen[2][0]), "done") == seen[3:]
        with ChatClient(url) as again:
            assert read_until(again.read_events(seen[-1][0]), "done") == rest


def test_a_killed_process_resumes_and_a_stopped_one_ends(folder: Path) -> None:
    with run_uvicorn(folder) as (url, process), ChatClient(url) as page, ChatClient(url) as ada:
        events = page.read_events()
        ada.post("/messages", {"text": "Refund order 7."})
        seen = read_until(events, "done")
        process.kill()
    with run_uvicorn(folder) as (url, process), ChatClient(url) as page, ChatClient(url) as ada:
        repeated = read_until(page.read_events(seen[-1][0]), "on_approval_request")[-1][1]
        assert repeated in [event for _, event in seen]
        ada.post(f"/questions/{repeated['data']['id']}", {"choice": "deny"})
        answers = json.loads(ada.request("GET", "/messages").read())["messages"]
        while answers[-1]["role"] != "assistant":
            answers = json.loads(ada.request("GET", "/messages").read())["messages"]
        assert answers[-1]["text"] == "I the user said no to: Refund 80 euros for order 7?."
        process.send_signal(signal.SIGTERM)  # while the stream of a page is open
        assert process.wait(60) in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in (folder / "uvicorn.log").read_text()


FAILING = """
from app import create_app
from wick import FunctionModel
from wick.errors import ModelError


def fail(request):
    busy = request.messages[-1].text == "busy"
    raise ModelError("db7.internal is not reachable", retryable=busy, retry_after=1e6 if busy else None)


app = create_app(FunctionModel(fail), "./data")
"""

CRASHING = """
import app as backend
from wick import FunctionModel, ToolCall, assistant, tool


@tool
def refund(order: int) -> str:
    '''Refund an order of the customer.'''
    raise RuntimeError("db7.internal is not reachable")


def reply(request):
    last = request.messages[-1]
    if last.role == "tool":
        return f"I read: {last.text}"
    return assistant("", ToolCall("1", "refund", {"order": int(last.text)}))


backend.refund = refund
app = backend.create_app(FunctionModel(reply), "./data")
"""


def test_a_customer_reads_sentences_instead_of_errors(folder: Path) -> None:
    (folder / "failing.py").write_text(FAILING)
    with run_uvicorn(folder, "failing:app") as (url, _), ChatClient(url) as page, ChatClient(url) as ada:
        events = page.read_events()
        for text, sentence in (("hello", "That did not work. Our team"), ("busy", "The assistant is busy. Please")):
            ada.post("/messages", {"text": text})
            error = read_until(events, "error")[-1][1]["data"]["error"]
            assert error["code"] == "model_error" and error["message"].startswith(sentence)
    assert "db7.internal" in (folder / "uvicorn.log").read_text()


SLOW = """
import asyncio

from pathlib import Path

from app import create_app
from wick.protocols import Finish, TextDelta


class Slow:
    name = "slow"

    async def stream(self, request):
        yield TextDelta("Your order ")
        if not Path("restarted").exists():
            await asyncio.Event().wait()
        yield TextDelta("was shipped.")
        yield Finish("stop")


app = create_app(Slow(), "./data")
"""


def test_a_run_that_an_orderly_stop_interrupts_is_resumed(folder: Path) -> None:
    text = (folder / "app.py").read_text()
    assert text.count("release(grace=10)") == 1
    (folder / "app.py").write_text(text.replace("release(grace=10)", "release(grace=0.1)"))
    (folder / "slow.py").write_text(SLOW)
    with run_uvicorn(folder, "slow:app") as (url, process), ChatClient(url) as page, ChatClient(url) as ada:
        events = page.read_events()
        ada.post("/messages", {"text": "Where is my order?"})
        first = read_until(events, "on_chat_model_stream")[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    (folder / "restarted").touch()
    with run_uvicorn(folder, "slow:app") as (url, _), ChatClient(url) as page, ChatClient(url) as ada:
        page.read_events(first[0])
        history: list[dict[str, str]] = []
        while len(history) < 2:
            history = json.loads(ada.request("GET", "/messages").read())["messages"]
        assert [message["text"] for message in history] == ["Where is my order?", "Your order was shipped."]


def test_a_customer_reads_no_texts_of_exceptions(folder: Path) -> None:
    (folder / "crashing.py").write_text(CRASHING)
    with run_uvicorn(folder, "crashing:app") as (url, _), ChatClient(url) as page, ChatClient(url) as ada:
        events = page.read_events()
        ada.post("/messages", {"text": "7"})
        seen = read_until(events, "done")
        asked = next(event["data"] for _, event in seen if event["event"] == "on_approval_request")
        ada.post(f"/questions/{asked['id']}", {"choice": "allow"})
        seen += read_until(events, "done")
        assert seen[-1][1]["data"]["text"] == "I read: refund does not work at the moment."
        ada.post("/messages", {"text": "404"})  # the guard raises a KeyError
        seen += read_until(events, "done")
        ends = [event["data"] for _, event in seen if event["event"] == "on_tool_end"]
        assert [(end["error"], end.get("why")) for end in ends] == [("failed", None)] * 2
        assert "db7.internal" not in str(seen) and "KeyError" not in str(ends)
    assert "db7.internal" in (folder / "uvicorn.log").read_text(), "the log has the exception"


def test_the_program_is_short() -> None:
    lines = [line for line in stories(PAGE)[0].blocks[0].code.splitlines() if line.strip()]
    assert len(lines) <= 140
