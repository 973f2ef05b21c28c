"""The test cases of `wick.testing`, on models of wick, and on a store and a backend as a user writes them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from threading import current_thread
from typing import Any

import pytest

import wick.testing
from provider import Call, Reply, Script, ScriptedServer
from provider.server import Answer
from wick import FunctionModel, ToolCall
from wick.backends.state import State
from wick.errors import StoreError
from wick.models import _http
from wick.models.anthropic import Anthropic
from wick.models.demo import Demo
from wick.models.openai import OpenAI
from wick.models.openai_responses import OpenAIResponses
from wick.protocols import Backend, Model, Page, Request, Store
from wick.stores import rows
from wick.stores.in_memory import InMemory
from wick.testing import BackendCases, Cassette, ModelCases, StoreCases

CLIENTS: dict[str, tuple[Any, str]] = {
    "openai": (OpenAI, "gpt-4o"),
    "openai-responses": (OpenAIResponses, "gpt-5"),
    "anthropic": (Anthropic, "claude-sonnet-4-5"),
}


class RepliesByRequest:
    """Replies of a scripted server: a call of the tool that a request offers, or a text."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def __next__(self) -> Answer:
        sent = json.dumps(self.script.asked[-1].body)
        results = ('"tool_result"', '"function_call_output"', '"role": "tool"')
        is_answered = any(sign in sent for sign in results)
        if '"tools"' in sent and not is_answered:
            return Answer(Reply(calls=(Call.of("call_1", "add", a=2, b=3),)))
        return Answer(Reply("It is 5." if is_answered else "Hello, and welcome."))


class TestClients(ModelCases):
    @pytest.fixture(params=CLIENTS)
    async def model(self, request: pytest.FixtureRequest) -> AsyncIterator[Model]:
        create, name = CLIENTS[request.param]
        async with ScriptedServer() as server:
            script = server.script()
            script._next = RepliesByRequest(script)  # type: ignore[assignment]
            yield create(name, base_url=script.url, api_key="k")
            await _http.close()


def reply(request: Request) -> str | ToolCall:
    if request.messages[-1].role == "tool":
        return f"It is {request.messages[-1].text}."
    return ToolCall("1", "add", {"a": 2, "b": 3}) if request.tools else "Hello, and welcome."


class TestFunctionModel(ModelCases):
    @pytest.fixture
    def model(self) -> Model:
        return FunctionModel(reply)


class TestDemo(ModelCases):
    uses_tools = False

    @pytest.fixture
    def model(self) -> Model:
        return Demo()


class TestCassette(ModelCases):
    """Each case is recorded and played back; a request that is cancelled has no reply."""

    @pytest.fixture
    async def model(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Model]:
        recording = Cassette(tmp_path / "it.yaml", FunctionModel(reply), record=True)
        await getattr(self, request.node.originalname)(recording)
        recording.check()
        played = Cassette(tmp_path / "it.yaml")
        yield played
        played.check()


class TestState(BackendCases):
    unsupported = ("execute", "background", "terminal")

    @pytest.fixture
    def backend(self) -> Backend:
        return State({})


EXAMPLE = (Path(__file__).parents[3] / "docs/how-to/custom-store-backend-provider.md").read_text(encoding="utf-8")


class TestExampleOfTheDocs(BackendCases):
    """The class `Table` of the page about backends, also under the thread that a server builds it in."""

    unsupported = ("execute", "background", "terminal")

    @pytest.fixture
    def backend(self, tmp_path: Path) -> Iterator[Backend]:
        names: dict[str, Any] = {}
        exec(
            f"import json{EXAMPLE.partition('## Backend')[2].partition('import json')[2].partition('files = ')[0]}",
            names,
        )
        table = names["Table"](str(tmp_path / "files.db"))
        yield State(table)
        table.database.close()


class CheckedOtherThread(BackendCases):
    __test__ = False


async def test_a_backend_of_one_thread_fails_its_case() -> None:
    class OfOneThread(State):
        thread = current_thread()

        async def write(self, path: str, content: str | bytes, *, links: bool = True) -> Any:
            assert current_thread() is self.thread, "created in a thread"
            return await super().write(path, content, links=links)

    sentence = "the backend cannot be used in another OS thread than the one that built it: AssertionError"
    with pytest.raises(pytest.fail.Exception, match=sentence):
        await CheckedOtherThread().test_another_thread_than_that_of_the_constructor_uses_the_backend(OfOneThread({}))


class OtherSequences(InMemory):
    """A store that returns tuples where wick's stores return lists, and the other way round."""

    async def inbox(self, owner: str, id: str) -> Any:
        return tuple(await super().inbox(owner, id))

    async def expire(self, idle: float, *, owner: str = "", limit: int = 20) -> Any:
        return tuple(await super().expire(idle, owner=owner, limit=limit))

    async def search(self, owner: str, text: str, *, limit: int = 20) -> Any:
        return tuple(await super().search(owner, text, limit=limit))

    async def renew_all(self, leases: Any, seconds: float) -> Any:
        return tuple(await super().renew_all(leases, seconds))

    async def claim(self, holder: str, capacity: int, **options: Any) -> Any:
        return tuple(await super().claim(holder, capacity, **options))

    async def list(self, owner: str, **options: Any) -> Page:
        page = await super().list(owner, **options)
        return replace(page, threads=[*page.threads])  # type: ignore[arg-type]


class TestSequences(StoreCases):
    @pytest.fixture
    def store(self) -> Store:
        return OtherSequences()


class CheckedStore(StoreCases):
    __test__ = False
    case_seconds = 0.2


async def test_a_case_that_waits_forever_fails_with_a_sentence() -> None:
    class WithoutEnd(InMemory):
        async def close(self) -> None:
            """Leave the watchers waiting."""

    sentence = "the case has not ended after 0.2 s: a call of it waits forever"
    with pytest.raises(pytest.fail.Exception, match=sentence):
        await CheckedStore().test_closing_ends_watchers(WithoutEnd())

    class Failing(InMemory):
        async def close(self) -> None:
            raise TimeoutError("of the store")

    with pytest.raises(TimeoutError, match="of the store"):
        await CheckedStore().test_closing_ends_watchers(Failing())


def test_a_refusal_without_a_sentence_is_shown() -> None:
    for text, problem in (("held", "at least four words"), ("there is no thread 't' ", "no space at its end")):
        with pytest.raises(AssertionError, match=problem), CheckedStore().assert_refused("conflict"):
            raise StoreError(text, "conflict")
    problem = "the code is 'full', not 'conflict': there is no space left"
    with pytest.raises(AssertionError, match=problem), CheckedStore().assert_refused("conflict"):
        raise StoreError("there is no space left", "full")


def test_the_page_of_stores_names_the_functions_that_check_input() -> None:
    page = (Path(__file__).parents[3] / "docs/guide/stores.md").read_text(encoding="utf-8")
    table = page.partition("### Checks of input")[2].partition("\n## ")[0]
    calls = re.findall(r"`(\w+)\(([^)]*)\)", table)
    assert len(calls) > 15
    for name, parameters in calls:
        names = [part.partition("=")[0] for part in parameters.split(", ")]
        assert [*inspect.signature(getattr(rows, name)).parameters][
            : len(names)
        ] == names or name == "encode_inbox_item"


def test_operations_that_do_not_exist_are_refused() -> None:
    for names in (("execute", "executes"), "execute"):
        with pytest.raises(TypeError, match=r"unsupported is a set or a tuple of names among execute, background"):
            type("TestWrong", (BackendCases,), {"unsupported": names})


def test_cases_are_imported_when_first_used() -> None:
    assert {*wick.testing.__all__} == {
        *("BackendCases", "Canary", "Cassette", "ModelCases", "NewCassette", "StoreCases", "lapse_questions"),
    }
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        wick.testing.Nothing  # noqa: B018
