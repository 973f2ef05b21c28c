"""Prices, as far as they are known."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kit import ScriptedUser, echo, thread_entries
from wick import Agent, Ask, ModelCall, Run, Scripted, Stop, Thread, ToolUse, after, before, tool, user
from wick.capabilities.fallback import Fallback
from wick.capabilities.retry import Retry
from wick.errors import ModelError, Paused, StoreError
from wick.models.registry import ALIASES
from wick.prices import Charge, price, total_price
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage
from wick.resume import end_abandoned_run

MILLION = 1_000_000
SONNET, GPT = "anthropic:claude-sonnet-4-5", "openai:gpt-4o"


def test_input_output_and_cache_have_separate_prices() -> None:
    assert price("anthropic:claude-sonnet-4-5", Usage(1_000, 0)) == Decimal("0.003")
    assert price("anthropic:claude-sonnet-4-5", Usage(0, 1_000)) == Decimal("0.015")
    assert price("anthropic:claude-sonnet-4-5", Usage(1_000, 0, cached_tokens=1_000)) == Decimal("0.0003")
    assert price("anthropic:claude-sonnet-4-5", Usage(1_000, 0, cache_write_tokens=1_000)) == Decimal("0.00375")


def test_cached_tokens_are_bounded_by_the_input() -> None:
    cached = Usage(1_000, 0, cached_tokens=800, cache_write_tokens=800)
    assert price(SONNET, cached) == price(SONNET, Usage(1_000, 0, cached_tokens=800, cache_write_tokens=200))
    assert price(SONNET, Usage(0, 1_000, 5, 0, 5)) == Decimal("0.015")


@pytest.mark.parametrize("name", ["haiku", "sonnet", "opus"])
def test_aliases_have_a_price(name: str) -> None:
    assert price(ALIASES[name], Usage(MILLION, 0))


def test_reasoning_is_part_of_the_output() -> None:
    assert price("openai:gpt-5", Usage(0, 1_000, 0, 900)) == price("openai:gpt-5", Usage(0, 1_000))


@pytest.mark.parametrize(
    "name", ["gpt-4o", "openai:gpt-4o", "openai-responses:gpt-4o", "openai/gpt-4o", "openai:gpt-4o-2024-08-06"]
)
def test_a_model_has_one_price_under_any_name(name: str) -> None:
    assert price(name, Usage(MILLION, MILLION)) == Decimal("12.5")


@pytest.mark.parametrize(
    "name",
    [
        "google:gemini-2.5-flash",
        "vertex:gemini-2.5-flash",
        "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "xai:grok-4",
        "groq:llama-3.3-70b-versatile",
        "mistral:mistral-large-latest",
        "deepseek:deepseek-chat",
        "openrouter:anthropic/claude-sonnet-4.5",
        "cerebras:llama-3.3-70b",
    ],
)
def test_providers_have_prices_under_their_names(name: str) -> None:
    assert price(name, Usage(MILLION, MILLION))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "demo",
        "scripted",
        "local:smollm2",
        "ollama:llama3.1:8b",
        "ollama:gpt-oss:20b",
        "gateway:gpt-4o",
        "mistral-small",  # the operator is unknown
        "openai:no-such-model",
        "nobody:gpt-4o",
        "azure:gpt-4o",  # the deployment may be of another model
        "gpt-no-such",
    ],
)
def test_an_unknown_model_has_no_price(name: str) -> None:
    assert price(name, Usage(MILLION, MILLION)) is None


def test_without_the_package_nothing_has_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert price("openai:gpt-4o", Usage(10, 10)) is None


TOKENS = st.integers(0, 10 * MILLION)


@given(st.text() | st.sampled_from(["openai:gpt-4o", "sonnet", "claude-opus-4-5"]), TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_price_is_none_or_not_negative(name: str, entered: int, left: int, cached: int, written: int) -> None:
    found = price(name, Usage(entered, left, cached, 0, written))
    assert found is None or found >= 0


USAGES = st.builds(Usage, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
CHARGES = st.builds(Charge, st.sampled_from([SONNET, GPT, "scripted", ""]), USAGES)


@given(CHARGES)
def test_a_charge_survives_json(charge: Charge) -> None:
    assert Charge.from_json(json.loads(json.dumps(charge.to_json()))) == charge


@given(st.lists(CHARGES, max_size=5))
def test_a_total_is_complete_or_unknown(charges: list[Charge]) -> None:
    prices = [charge.price for charge in charges]
    known = [price for price in prices if price is not None]
    assert total_price(charges) == (sum(known, Decimal(0)) if len(known) == len(prices) else None)


def test_uncounted_tokens_are_not_free() -> None:
    assert Charge(GPT, Usage()).price is None
    assert total_price([]) == 0


# -- the price of a run ---------------------------------------------------------------------------------------------


class Metered:
    """A model with given usage: each reply calls a tool, talks or fails."""

    def __init__(self, *replies: tuple[str | ModelError, Usage | None], name: str = SONNET) -> None:
        self.name, self.replies = name, [*replies]

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        said, usage = self.replies.pop(0)
        if usage is not None:
            yield usage
        if isinstance(said, ModelError):
            raise said
        if tool := said.removeprefix("use ") if said.startswith("use ") else "":
            yield CallStart(0, "c1", tool)
            yield CallArgs(0, '{"text": "hi"}')
        else:
            yield TextDelta(said)
        yield Finish("tool_calls" if tool else "stop")


DOWN = ModelError("overloaded", status=529, retryable=True)
CHEAP, DEAR = Usage(150_000, 0), Usage(300_000, 0)  # more than 200,000 tokens cost twice as much each
AGAIN = Retry(2, base=0)


async def test_each_question_is_priced_by_itself() -> None:
    """Two questions of 150,000 tokens are not one of 300,000."""
    result = await Agent(Metered(("use echo", CHEAP), ("done", CHEAP)), tools=[echo]).run("go")
    assert result.charges == (Charge(SONNET, CHEAP), Charge(SONNET, CHEAP))
    assert result.usage == CHEAP + CHEAP
    assert result.price == Decimal("0.9")
    assert price(SONNET, result.usage) == price(SONNET, DEAR) == Decimal("1.8")


async def test_children_and_questions_with_a_purpose_are_part_of_the_price() -> None:
    child = Agent(Metered(("below", Usage(1_000, 0)), name=GPT))
    prices: list[Decimal | None] = []

    @tool
    async def delegate(text: str, run: Run) -> str:
        """Let another do it."""
        await run.call_model([user("think")], purpose="plan")
        prices.append((await child.run(text, parent=run)).price)
        prices.append(run.price)
        return "done"

    model = Metered(("use delegate", Usage(1_000, 0)), ("a plan", Usage(2_000, 0)), ("done", Usage(3_000, 0)))
    result = await Agent(model, tools=[delegate]).run("go")
    assert prices == [Decimal("0.0025"), Decimal("0.0115")]
    assert result.price == Decimal("0.0025") + Decimal("0.003") * 6
    assert [charge.model for charge in result.charges] == [SONNET, SONNET, GPT, SONNET]


async def test_counted_failed_attempts_are_part_of_the_price() -> None:
    seen: list[list[Charge]] = []

    @after(ModelCall)
    def look(call: ModelCall) -> None:
        seen.append(call.charges)

    model = Metered((DOWN, Usage(1_000, 0)), ("done", Usage(1_000, 0)))
    result = await Agent(model, hooks=[look, AGAIN]).run("go")
    assert result.price == Decimal("0.006")
    assert seen == [[Charge(SONNET, Usage(1_000, 0))] * 2]
    result = await Agent(Metered((DOWN, None), ("done", Usage(1_000, 0))), hooks=[AGAIN]).run("go")
    assert result.price == Decimal("0.003")  # a server that turns a question down does not charge for it


async def test_each_model_has_its_own_price() -> None:
    model = Metered((ModelError("gone", status=404), Usage(1_000, 0)))
    result = await Agent(model, hooks=[Fallback(Metered(("done", Usage(1_000, 0)), name=GPT))]).run("go")
    assert [charge.model for charge in result.charges] == [SONNET, GPT]
    assert result.price == Decimal("0.0055")


async def test_a_partly_unpriced_run_has_no_price() -> None:
    agent = Agent(Metered(("use echo", Usage(1_000, 0)), ("use echo", None), ("done", Usage(1_000, 0))), tools=[echo])
    result = await agent.run("go")  # its second reply has no usage
    assert result.price is None
    assert [charge.price for charge in result.charges] == [Decimal("0.003"), None, Decimal("0.003")]
    assert (await Agent(Scripted("hi")).run("go")).price is None  # an unlisted model


async def test_a_run_without_a_question_costs_nothing() -> None:
    @before(Run)
    def refuse(run: Run) -> Stop:
        return Stop("not now")

    result = await Agent(Scripted(), hooks=[refuse]).run("go")
    assert (result.charges, result.price) == ((), 0)


async def test_a_run_that_failed_has_cost_something() -> None:
    seen: list[Decimal | None] = []

    @after(Run)
    def look(run: Run) -> None:
        seen.append(run.price)

    stream = Agent(Metered((DOWN, Usage(1_000, 0))), hooks=[look, Retry(1)]).stream("go")
    assert [event.event async for event in stream][-1] == "error"
    assert [stream.result.price] == seen == [Decimal("0.003")]


async def test_a_cancelled_run_costs_counted_tokens() -> None:
    began = asyncio.Event()

    class Slow:
        name = SONNET

        async def stream(self, request: Request) -> AsyncIterator[Delta]:
            yield Usage(1_000, 0)
            began.set()
            await asyncio.Event().wait()

    stream = Agent(Slow()).stream("go")

    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stream.result.outcome, stream.result.price) == ("cancelled", Decimal("0.003"))


@before(ToolUse)
def may_i(use: ToolUse) -> Ask:
    return Ask("May I?")


def stored(thread: Thread) -> Thread:
    return Thread.from_json(json.loads(json.dumps(thread.to_json())))


def asking(*replies: tuple[str | ModelError, Usage | None], answers: tuple[Any, ...] = (True,)) -> Agent:
    return Agent(Metered(*replies), tools=[echo], hooks=[may_i], ask=ScriptedUser(*answers))


LATER = Paused("later")


async def interrupted() -> Thread:
    """Return a thread whose run waits for the user after one model call."""
    thread = Thread()
    first = await asking(("use echo", CHEAP), answers=(LATER,)).run("go", thread=thread)
    assert (first.outcome, first.price) == ("interrupted", Decimal("0.45"))
    return stored(thread)


async def test_the_price_of_a_resumed_run_is_that_of_all_its_parts() -> None:
    thread = await interrupted()
    second = await asking(("use echo", CHEAP), answers=(True, LATER)).run(thread=thread)
    assert (second.outcome, second.price) == ("interrupted", Decimal("0.9"))
    thread = stored(thread)
    third = await asking(("done", CHEAP)).run(thread=thread)
    assert third.charges == (Charge(SONNET, CHEAP),) * 3
    assert (third.usage, third.price) == (CHEAP + CHEAP + CHEAP, Decimal("1.35"))
    written = [len(end.get("charges", ())) for end in thread_entries(thread, "run_end")]
    assert written == [1, 1, 0]  # each once, however often the run is interrupted


async def test_the_price_of_a_killed_run_is_unknown() -> None:
    thread = await interrupted()
    await asking(("use echo", CHEAP), answers=(True, LATER)).run(thread=thread)
    rows = thread.to_json()
    assert rows["entries"].pop()["kind"] == "run_end"  # so far it got
    thread = stored(Thread.from_json(rows))
    result = await asking(("use echo", CHEAP), answers=(True, LATER)).run(thread=thread)
    assert result.usage == CHEAP + CHEAP + CHEAP  # that of the interruption, of the last logged reply, and since then
    assert result.price is None
    result = await asking(("done", CHEAP)).run(thread=stored(thread))
    assert result.usage == CHEAP + CHEAP + CHEAP + CHEAP
    assert result.price is None


async def test_the_logged_replies_of_a_killed_run_count() -> None:
    thread = Thread()
    await asking(("use echo", CHEAP), answers=(LATER,)).run("go", thread=thread)
    rows = thread.to_json()
    while rows["entries"][-1]["kind"] != "message":
        rows["entries"].pop()  # killed after the first reply was logged
    thread = Thread.from_json(rows)
    assert thread.usage == CHEAP.to_json()
    result = await asking(("done", CHEAP)).run(thread=thread)
    assert (result.usage, result.price) == (CHEAP + CHEAP, None)
    assert [charge for charge in result.charges if charge.model] == [Charge(SONNET, CHEAP)] * 2
    assert thread.usage == (CHEAP + CHEAP).to_json(), "each reply once"


async def test_a_killed_run_that_is_ended_has_the_usage_of_its_logged_replies() -> None:
    rows = (await interrupted()).to_json()
    assert rows["entries"].pop()["kind"] == "run_end"
    thread = Thread.from_json(rows)
    assert thread.open_run is not None
    end_abandoned_run(thread, thread.open_run["run"], (), "cancelled", "by the user")
    assert thread.usage == CHEAP.to_json()


async def test_a_log_without_charges_is_readable() -> None:
    rows = (await interrupted()).to_json()
    end = rows["entries"][-1]["data"]
    del end["charges"], end["usage"]["cache_write_tokens"]
    result = await asking(("done", CHEAP)).run(thread=Thread.from_json(rows))
    assert result.usage == CHEAP + CHEAP
    assert result.price is None


async def test_a_rewound_run_costs_its_effective_entries() -> None:
    thread = await interrupted()
    place = len(thread.entries)
    await asking(("use echo", CHEAP), answers=(True, LATER)).run(thread=thread)
    thread.rewind(place)
    result = await asking(("done", CHEAP)).run(thread=stored(thread))
    assert (result.usage, result.price) == (CHEAP + CHEAP, Decimal("0.9"))


@pytest.mark.parametrize(
    "charges", [5, [5], [{}], [{"model": "m", "input_tokens": "many"}], [{"model": "m", "output_tokens": None}]]
)
async def test_a_log_with_invalid_charges_is_an_error(charges: Any) -> None:
    rows = (await interrupted()).to_json()
    rows["entries"][-1]["data"]["charges"] = charges
    with pytest.raises(StoreError, match="the usage of run .* cannot be read"):
        await asking(("done", CHEAP)).run(thread=Thread.from_json(rows))


async def test_unknown_counters_are_omitted() -> None:
    rows = (await interrupted()).to_json()
    end = rows["entries"][-1]["data"]
    end["charges"][0]["dream_tokens"] = end["usage"]["dream_tokens"] = 7
    result = await asking(("done", CHEAP)).run(thread=Thread.from_json(rows))
    assert (result.usage, result.price) == (CHEAP + CHEAP, Decimal("0.9"))


def test_prices_are_loaded_lazily() -> None:
    code = (
        "import sys; from wick import Agent, Scripted\n"
        "result = Agent(Scripted('hi', name='openai:gpt-4o')).run_sync('What does that cost?')\n"
        "assert 'genai_prices' not in sys.modules\n"
        "assert result.price > 0 and 'genai_prices' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# -- in traces ------------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # the API lets it be set only once
    return exporter


def counted(exporter: InMemorySpanExporter, name: str) -> tuple[Any, Any]:
    """The tokens, in and out, of the one span of that name."""
    (span,) = (span for span in exporter.get_finished_spans() if span.name == name)
    assert span.attributes is not None
    return span.attributes["gen_ai.usage.input_tokens"], span.attributes["gen_ai.usage.output_tokens"]


async def test_a_span_counts_the_tokens_of_all_attempts(traced: InMemorySpanExporter) -> None:
    ended: list[dict[str, Any]] = []
    agent = Agent(Metered((DOWN, Usage(10, 1)), ("done", Usage(10, 2))), hooks=[AGAIN])
    await agent.run("go", emit=lambda event: ended.append(event.data()) if event.event.endswith("model_end") else None)
    assert (
        counted(traced, f"chat {SONNET.partition(':')[2] or SONNET}")
        == counted(traced, "invoke_agent agent")
        == (20, 3)
    )
    (end,) = ended
    assert Usage(**end["usage"]) == Usage(10, 2)  # the event is about the reply alone


async def test_a_span_of_a_question_that_failed_counts_its_tokens(traced: InMemorySpanExporter) -> None:
    with pytest.raises(ModelError):
        await Agent(Metered((DOWN, Usage(10, 1))), hooks=[Retry(1)]).run("go")
    assert counted(traced, f"chat {SONNET.partition(':')[2] or SONNET}") == (10, 1)
