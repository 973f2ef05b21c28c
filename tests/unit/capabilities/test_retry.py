"""Retry and fallback: which errors are retried, the delay, and the events for the user."""

from __future__ import annotations

import asyncio

import pytest

from kit import thread_entries
from wick import Agent, Block, Capability, FunctionModel, ModelCall, Run, Scripted, Thread, before, guard, user
from wick.capabilities.critique import Critique
from wick.capabilities.fallback import Fallback
from wick.capabilities.retry import Retry
from wick.capabilities.summarization import Summarization
from wick.errors import ConfigError, HookError, ModelError
from wick.messages import Message
from wick.protocols import Finish, Request, TextDelta

QUICK = {"base": 0.001, "longest": 0.002}


def stumble(times: int, **how: object) -> list[ModelError]:
    return [ModelError("the server stumbled", retryable=True, **how) for _ in range(times)]  # type: ignore[arg-type]


async def test_a_stumbling_server_is_asked_again() -> None:
    model = Scripted(*stumble(2), "well")
    result = await Agent(model, hooks=[Retry(**QUICK)]).run("hi")
    assert result.text == "well"
    assert [entry.data["name"] for entry in result.thread.entries if entry.kind == "event"] == ["retry", "retry"]


async def test_permanent_errors_are_not_retried() -> None:
    for status in (400, 401, 403, 404):
        model = Scripted(ModelError("no", status=status), "never", spare=True)
        with pytest.raises(ModelError, match="no"):
            await Agent(model, hooks=[Retry(**QUICK)]).run("hi")
        assert len(model.requests) == 1


async def test_the_last_attempt_fails_with_its_own_error() -> None:
    model = Scripted(*stumble(3))
    with pytest.raises(ModelError, match="stumbled"):
        await Agent(model, hooks=[Retry(3, **QUICK)]).run("hi")
    assert len(model.requests) == 3


async def test_retry_after_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("wick.capabilities.retry.asyncio.sleep", sleep)
    await Agent(Scripted(*stumble(1, retry_after=7.0), *stumble(2), "well"), hooks=[Retry()]).run("hi")
    assert waits[0] == 7.0
    assert 0.25 <= waits[1] <= 1.0 and 0.5 <= waits[2] <= 2.0


async def test_the_wait_is_bounded() -> None:
    model = Scripted(*stumble(1, retry_after=3600.0), "never", spare=True)
    with pytest.raises(ModelError):
        await Agent(model, hooks=[Retry(patience=60)]).run("hi")


async def test_a_wait_can_be_cancelled() -> None:
    model = Scripted(*stumble(1, retry_after=60.0), "never", spare=True)
    task = asyncio.create_task(Agent(model, hooks=[Retry()]).run("hi"))
    while not model.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Breaks:
    """Breaks off in the middle of its first reply."""

    name = "breaks"
    asked = 0

    async def stream(self, request: Request):  # type: ignore[no-untyped-def]
        self.asked += 1
        yield TextDelta("half a ")
        if self.asked == 1:
            raise ModelError("the connection broke off", retryable=True)
        yield TextDelta("sentence")
        yield Finish()


async def test_the_partial_reply_of_a_failed_attempt_is_retracted() -> None:
    events = [event async for event in Agent(Breaks(), hooks=[Retry(**QUICK)]).stream("hi")]
    names = [event.event for event in events]
    assert names == [
        "on_chat_model_start",
        "on_chat_model_stream",
        "on_chat_model_restart",
        "on_chat_model_stream",
        "on_chat_model_stream",
        "on_chat_model_end",
        "done",
    ]


async def test_without_retraction_there_is_no_retry() -> None:
    model = Breaks()
    events = [event async for event in Agent(model, hooks=[Retry(visible=False, **QUICK)]).stream("hi")]
    assert events[-1].event == "error" and model.asked == 1


def test_a_retry_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one attempt"):
        Retry(0)


async def test_another_model_is_asked() -> None:
    spare = Scripted("from the other", name="other")
    result = await Agent(Scripted(ModelError("down")), hooks=[Fallback(spare), Retry(**QUICK)]).run("hi")
    assert result.text == "from the other"


async def test_each_model_is_retried_before_the_next() -> None:
    first, second = Scripted(*stumble(2)), Scripted(*stumble(1), "well")
    result = await Agent(first, hooks=[Retry(2, **QUICK), Fallback(second)]).run("hi")
    assert result.text == "well"


async def test_a_bad_question_is_not_put_to_another() -> None:
    spare = Scripted("never", spare=True)
    with pytest.raises(ModelError):
        await Agent(Scripted(ModelError("bad", status=400)), hooks=[Fallback(spare)]).run("hi")
    assert not spare.requests


async def test_when_none_answers_the_last_error_is_raised() -> None:
    with pytest.raises(ModelError, match="second"):
        await Agent(Scripted(ModelError("first")), hooks=[Fallback(Scripted(ModelError("second")))]).run("hi")


async def test_a_guard_sees_the_model_that_is_really_asked() -> None:
    seen = []

    @guard(ModelCall)
    async def only_ours(call: ModelCall) -> Block | None:
        seen.append(call.model.name)
        return Block("not that one") if call.model.name == "elsewhere" else None

    spare = FunctionModel(lambda request: Message("assistant", "leaked"), name="elsewhere")
    result = await Agent(Scripted(ModelError("down"), name="ours"), hooks=[only_ours, Fallback(spare)]).run("hi")
    assert seen == ["ours", "elsewhere"]
    assert result.reason == "blocked: not that one" and not spare.requests


def test_a_fallback_needs_models() -> None:
    with pytest.raises(ConfigError, match="takes models"):
        Fallback()
    for given in ("", " ", {}, 3, None, Scripted):
        with pytest.raises(ConfigError, match="takes a model"):
            Fallback(given)  # type: ignore[arg-type]


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_keys")
async def test_another_model_is_asked_by_its_name() -> None:
    thread = Thread()
    gateway = {"provider": "gateway", "model": "m", "api_key": "sk-x"}  # it has no address
    hooks = [Fallback("haiku", gateway, "demo", Scripted("never", spare=True))]
    result = await Agent(Scripted(ModelError("down"), name="ours"), hooks=hooks).run("Hello", thread=thread)
    assert result.text.startswith("Offline demo model")
    told = [row["data"]["model"] for row in thread_entries(thread, "event") if row["name"] == "fallback"]
    assert told == ["ours", "haiku", "gateway:m"] and "sk-x" not in str(thread.to_json())


@pytest.mark.usefixtures("no_keys")
async def test_where_no_model_has_a_key_the_first_error_stays() -> None:
    with pytest.raises(ModelError, match="down"):
        await Agent(Scripted(ModelError("down")), hooks=[Fallback("haiku")]).run("hi")


@pytest.mark.parametrize(
    "capability", [Fallback("demo", "antropic:x"), Critique("antropic:x"), Summarization(model="antropic:x")]
)
def test_an_unknown_name_is_refused_when_the_agent_is_made(capability: Capability) -> None:
    with pytest.raises(ConfigError, match="did you mean anthropic:x"):
        Agent(Scripted(), hooks=[capability])


async def test_a_hook_calls_a_model_by_its_name() -> None:
    @before(Run)
    async def ask_twice(run: Run) -> None:
        replies = [await run.call_model([user("Hello")], purpose="test", model="demo") for _ in range(2)]
        assert all(reply.text.startswith("Offline demo model") for reply in replies)
        assert await run.find_model("demo") is await run.find_model("demo")

    await Agent(Scripted("Hi."), hooks=[ask_twice]).run("hi")


async def test_a_name_in_place_of_a_model_is_refused_with_a_sentence() -> None:
    @before(ModelCall)
    def choose(call: ModelCall) -> None:
        call.model = "haiku"  # type: ignore[assignment]

    with pytest.raises(HookError, match=r"set the model to 'haiku', .* set `await run\.find_model"):
        await Agent(Scripted(spare=True), hooks=[choose]).run("hi")
