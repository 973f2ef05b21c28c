"""Short soak test: some users, some seconds, a fault of every kind; planted faults are detected.

The short form itself is one of the long tests (WICK_FULL); what judges it is tried each time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import pytest

from faults.tally import FULL
from soak_test.chart import picture
from soak_test.clients import Person, _check_calls
from soak_test.ledger import Ledger, Turn
from soak_test.report import BAD, text, violated
from soak_test.server_metrics import slope
from soak_test.soak import Plan, Soak

SHORT = Plan(seconds=20.0, users=3, talks=1, terminals=1, words=8, pace=0.2, think=0.3, turns=3, every=1.9, chance=4)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(mkdtemp(prefix="soak-"))
    yield made
    rmtree(made, ignore_errors=True)


if FULL:

    @pytest.mark.timeout(300)
    async def test_no_data_is_lost_duplicated_or_leaked(folder: Path) -> None:
        report = await Soak(SHORT, folder).run()
        print(text(report))
        assert violated(report) == 0, text(report)
        assert report["turns"] >= 5 and set(report["untouched"]) <= {"completed"}, text(report)
        assert {"kill", "provider", "cut", "tool", "slow", "cancel", "input"} <= set(report["faults"])
        assert report["checked_threads"] and report["checked_runs"]
        assert ET.fromstring(picture(report)).tag.endswith("svg")
        json.dumps(report)


# -- planted faults are detected ------------------------------------------------------------------------------------


class Told:
    """A response with given content."""

    def __init__(self, body: Any) -> None:
        self.body, self.status = body, 200
        self.content = self._lines()

    async def _lines(self) -> Any:
        for line in self.body if isinstance(self.body, list) else ():
            yield line.encode()

    async def json(self) -> Any:
        return self.body

    async def __aenter__(self) -> Told:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


@pytest.fixture
async def person() -> Any:
    made = Person("a-token", "http://127.0.0.1:9", Ledger(), lambda: True, 1)
    yield made
    await made.close()


def frame(id: str, event: str, **data: Any) -> dict[str, Any]:
    return {"id": id, "event": event, "data": {"data": data}}


async def test_a_duplicate_frame_is_detected(person: Person) -> None:
    turn = Turn("talker", "talk 1 0")
    for id in ("4", "5.1", "5", "5.1"):
        await person._hear(turn, frame(id, "on_chat_model_end"))
    assert person.ledger.counts["duplicated"] == 1


async def test_a_missing_frame_is_detected(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn("talker", "talk 1 0", run="run_1")
    for id, name in (("4", "on_chat_model_end"), ("7", "done")):
        await person._hear(turn, frame(id, name, outcome="completed"))
    whole = [
        "id: 4\n",
        "event: on_chat_model_end\n",
        "data: {}\n",
        "\n",
        "id: 6\n",
        "event: done\n",
        "data: {}\n",
        "\n",
    ]
    monkeypatch.setattr(person.client, "get", lambda path: Told(whole))
    await person._check_run(turn)
    assert person.ledger.counts["lost"] == 2  # 6 was never sent, and 7 is missing


async def test_a_message_that_is_lost_or_there_twice_is_found(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [Turn("talker", "talk 1 0", thread="th_1", outcome="completed") for _ in range(2)]
    there = [{"role": "user", "content": said[0].text}] * 2
    log: list[Any] = []
    told = {"/threads/th_1": {"thread_id": "th_1", "messages": there}, "/threads/th_1/export": {"entries": log}}
    monkeypatch.setattr(person.client, "get", lambda path: Told(told[path]))
    await person._check_thread(said)
    assert (person.ledger.counts["lost"], person.ledger.counts["duplicated"]) == (1, 1)
    about = {"name": "message_unheard", "data": {"message": {"role": "user", "content": said[1].text}}}
    log.append({"kind": "event", "data": about})
    await person._check_thread(said)
    assert person.ledger.counts["lost"] == 2  # it was not cancelled
    said[1].outcome = "cancelled"
    await person._check_thread(said)
    assert person.ledger.counts["lost"] == 2


def test_a_call_without_its_result_is_found() -> None:
    ledger, call = Ledger(), {"role": "assistant", "tool_calls": [{"id": "c1"}]}
    _check_calls({"thread_id": "th_1", "messages": [call, {"role": "user"}, call]}, ledger)
    _check_calls({"thread_id": "th_1", "messages": [{"role": "tool", "tool_call_id": "c1"}]}, ledger)
    assert ledger.counts["invalid"] == 3


def test_duplicate_missing_or_leftover_effects_are_detected(folder: Path) -> None:
    soak = Soak(SHORT, folder)
    (folder / "data").mkdir()
    (folder / "tmp").mkdir()
    (folder / "tmp" / "left").touch()
    (folder / "data" / "effects.log").write_text("turn-1.0\nturn-1.1\nturn-1.0\n")
    person = object.__new__(Person)
    person.told = ["turn-1.1", "turn-1.2"]
    soak.people = [person]
    soak._effects()
    soak._leaks()
    assert {kind: soak.ledger.counts[kind] for kind in BAD if soak.ledger.counts[kind]} == {
        "lost": 1,
        "duplicated": 1,
        "leaked": 1,
    }


async def test_a_process_that_is_left_is_found(folder: Path) -> None:
    (folder / "tmp").mkdir()
    left = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(60)", str(folder))
    soak = Soak(SHORT, folder)
    try:
        soak._leaks()
    finally:
        left.kill()
        await left.wait()
    assert soak.ledger.counts["leaked"] == 1


def test_memory_that_grows_is_seen() -> None:
    noise = random.Random(1)
    assert slope([(minute / 10, 100 + 3 * minute / 10 + noise.random()) for minute in range(100)]) == pytest.approx(
        3, abs=0.2
    )
    assert slope([(0.0, 1.0)]) is None
