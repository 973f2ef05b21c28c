"""Several runs share a budget: each call is reserved first and charged afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit import ScriptedUser, echo
from wick import (
    Agent,
    Ask,
    Block,
    Limits,
    ModelCall,
    Next,
    Paused,
    Result,
    Scripted,
    Thread,
    ToolCall,
    guard,
    tool,
    user,
    wrap,
)
from wick.capabilities.budget import Amount, Budget, Remaining
from wick.capabilities.fallback import Fallback
from wick.capabilities.retry import Retry
from wick.capabilities.summarization import Summarization
from wick.errors import ConfigError, ModelError
from wick.messages import Message
from wick.prices import price
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request, TextDelta, Usage

SONNET = "anthropic:claude-sonnet-4-5"


class Metered:
    """Uses a tool until its usages run out, and reports exactly the given usage."""

    def __init__(self, usages: Iterable[Usage], name: str = "metered", watch: Callable[[], Any] = lambda: None) -> None:
        self.usages, self.name, self.watch = list(usages), name, watch
        self.took: list[Usage] = []

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        await asyncio.sleep(0)
        self.watch()
        usage = self.usages[len(self.took)]
        self.took.append(usage)
        if len(self.took) < len(self.usages):
            yield CallStart(0, f"c{len(self.took)}", "echo")
            yield CallArgs(0, '{"text": "hi"}')
        else:
            yield TextDelta("done")
        await asyncio.sleep(0)
        yield usage
        yield Finish("stop")


class Endless:
    """Streams text without an end."""

    name = "endless"

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield TextDelta("well")
        self.begun.set()
        await asyncio.Event().wait()
        yield Finish()


class Honest(Endless):
    """Reports its usage at once."""

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        yield Usage(120, 3)
        async for delta in super().stream(request):
            yield delta


def reason(result: Result) -> str:
    assert result.outcome == "stopped"
    return result.reason


async def test_used_tokens_are_charged_and_reservations_released() -> None:
    budget = Budget(tokens=50_000)
    result = await Agent(Metered([Usage(100, 20), Usage(150, 30)]), tools=[echo], hooks=[budget]).run("go")
    assert result.outcome == "completed"
    assert (budget.spent, budget.reserved) == (Amount(300), Amount())
    assert budget.remaining == Remaining(49_700, None) and Budget(dollars=2).remaining == Remaining(None, Decimal(2))


async def test_a_call_over_budget_is_not_made() -> None:
    budget, model = Budget(tokens=1_000, reserve=400), Metered([Usage(300, 300), Usage(1, 1)])
    result = await Agent(model, tools=[echo], hooks=[budget]).run("go")
    assert reason(result).startswith("budget: the next model call may take ")
    assert reason(result).endswith("of 1,000 tokens, 600 tokens are spent and 0 tokens reserved")
    assert len(model.took) == 1
    assert budget.spent == Amount(600)


async def test_the_system_prompt_the_tools_and_the_messages_are_set_aside() -> None:
    budget = Budget(tokens=100_000, reserve=0)
    seen: list[int] = []
    model = Metered([Usage(1, 1)], watch=lambda: seen.append(budget.reserved.tokens))
    await Agent(model, system="s" * 4_000, hooks=[budget]).run("m" * 8_000)
    await Agent(Metered([Usage(1, 1)], watch=model.watch), tools=[echo], hooks=[budget]).run("m" * 8_000)
    assert seen[0] == 3_000
    assert 2_010 < seen[1] < 2_200


async def test_max_tokens_is_the_remaining_output() -> None:
    budget, model = Budget(tokens=2_000), Metered([Usage(5, 5)])
    assert "may take 4,0" in reason(await Agent(Metered([Usage()]), hooks=[budget]).run("go"))
    result = await Agent(model, hooks=[budget], settings={"max_tokens": 500}).run("go")
    assert result.outcome == "completed"


async def test_dollars() -> None:
    budget, model = Budget(dollars=0.02, reserve=1_000), Metered([Usage(1_000, 500)] * 5, SONNET)
    result = await Agent(model, tools=[echo], hooks=[budget]).run("go")
    assert reason(result).startswith("budget: the next model call may take $0.015")
    assert "of $0.02, $0.0105" in reason(result)
    assert budget.spent == Amount(1_500, price(SONNET, Usage(1_000, 500)) or Decimal(0))


async def test_a_model_without_price_is_not_called_on_a_dollar_budget() -> None:
    model = Scripted("hello", spare=True)
    result = await Agent(model, hooks=[Budget(dollars="1.50")]).run("go")
    assert reason(result) == "budget: the price of scripted is not known; limit tokens= in place of dollars="
    assert not model.requests


async def test_tokens_and_dollars_both_count() -> None:
    budget = Budget(tokens=6_000, dollars=1)
    model = Metered([Usage(1_000, 1_500)] * 3, SONNET)
    assert "of 6,000 tokens" in reason(await Agent(model, tools=[echo], hooks=[budget]).run("go"))


async def test_more_than_was_set_aside_counts_and_the_next_question_is_refused() -> None:
    budget, model = Budget(tokens=1_000, reserve=100), Metered([Usage(900, 700), Usage(1, 1)])
    result = await Agent(model, tools=[echo], hooks=[budget]).run("go")
    assert reason(result).startswith("budget: ")
    assert (len(model.took), budget.spent) == (1, Amount(1_600))


async def test_without_usage_the_reservation_is_charged() -> None:
    budget = Budget(tokens=10_000, reserve=1_000)
    await Agent(Metered([Usage()]), hooks=[budget]).run("x" * 400)
    assert (budget.spent, budget.reserved) == (Amount(1_100), Amount())


# -- attempts -------------------------------------------------------------------------------------------------------


class Shaky(Metered):
    """Reports its usage and breaks off, a given number of times."""

    def __init__(self, failures: int) -> None:
        super().__init__([Usage(100, 100)], "shaky")
        self.failures, self.asked = failures, 0

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        self.asked += 1
        if self.asked > self.failures:
            async for delta in super().stream(request):
                yield delta
            return
        yield Usage(100, 0)
        raise ModelError("overloaded", status=529, retryable=True)


async def test_every_attempt_of_retry_is_set_aside_and_counted() -> None:
    budget, model = Budget(tokens=10_000), Shaky(2)
    assert (await Agent(model, hooks=[budget, Retry(base=0)]).run("go")).outcome == "completed"
    assert (budget.spent, budget.reserved) == (Amount(400), Amount())


async def test_a_retry_over_budget_is_not_made() -> None:
    budget, model = Budget(tokens=300, reserve=150), Shaky(9)
    assert reason(await Agent(model, hooks=[budget, Retry(9, base=0)]).run("go")).startswith("budget: ")
    assert (model.asked, budget.spent) == (2, Amount(200))


async def test_a_server_that_refuses_takes_nothing() -> None:
    refusing = Scripted(ModelError("no", status=401))
    budget = Budget(tokens=10_000)
    with pytest.raises(ModelError):
        await Agent(refusing, hooks=[budget]).run("go")
    assert (budget.spent, budget.reserved) == (Amount(), Amount())


async def test_a_fallback_is_reserved_with_its_own_price() -> None:
    budget = Budget(dollars=1)
    first = Scripted(ModelError("gone", status=404), name=SONNET)
    result = await Agent(first, hooks=[Fallback(Scripted("here", name="unlisted", spare=True)), budget]).run("go")
    assert reason(result) == "budget: the price of unlisted is not known; limit tokens= in place of dollars="


async def test_attempts_side_by_side_count_once_each() -> None:
    @wrap(ModelCall)
    async def twice(call: ModelCall, next: Next[Message]) -> Message:
        replies = await asyncio.gather(next(call), next(call))
        return replies[0]

    budget, model = Budget(tokens=50_000), Metered([Usage(10, 5), Usage(20, 7)])
    model.usages.append(Usage())  # never taken: both attempts want a tool, which there is not
    await Agent(model, hooks=[budget, twice, Limits(steps=1)]).run("go")
    assert (budget.spent, budget.reserved) == (Amount(42), Amount())


# -- cancelled, blocked and paused calls ----------------------------------------------------------------------------


async def test_a_cancelled_call_is_charged_as_reserved() -> None:
    budget, model = Budget(tokens=10_000, reserve=1_000), Endless()
    run = asyncio.create_task(Agent(model, hooks=[budget]).run("x" * 400))
    await model.begun.wait()
    assert (budget.spent, budget.reserved) == (Amount(), Amount(1_100))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (budget.spent, budget.reserved) == (Amount(1_100), Amount())


async def test_a_cancelled_call_is_charged_as_reported_if_known() -> None:
    budget, model = Budget(tokens=10_000), Honest()
    run = asyncio.create_task(Agent(model, hooks=[budget]).run("go"))
    await model.begun.wait()
    run.cancel()
    await asyncio.wait([run])
    assert (budget.spent, budget.reserved) == (Amount(123), Amount())


async def test_an_abandoned_attempt_is_settled_at_the_next() -> None:
    @wrap(ModelCall)
    async def impatient(call: ModelCall, next: Next[Message]) -> Message:
        try:
            async with asyncio.timeout(0.01):
                return await next(call)
        except TimeoutError:
            call.model = Metered([Usage(7, 3)])
            return await next(call)

    budget = Budget(tokens=700, reserve=500)
    assert (await Agent(Honest(), hooks=[budget, impatient]).run("go")).outcome == "completed"
    assert (budget.spent, budget.reserved) == (Amount(133), Amount())


async def test_a_question_that_was_never_put_takes_nothing() -> None:
    @guard(ModelCall)
    def sure(call: ModelCall) -> Ask:
        return Ask("really?")

    budget, thread = Budget(tokens=5_000), Thread()
    agent = Agent(Metered([Usage(9, 1)]), hooks=[budget, sure], ask=ScriptedUser(Paused("later"), True))
    assert (await agent.run("go", thread=thread)).outcome == "interrupted"
    assert (budget.spent, budget.reserved) == (Amount(), Amount())
    assert (await agent.run(thread=thread)).outcome == "completed"
    assert budget.spent == Amount(10)


async def test_a_question_that_a_guard_blocks_takes_nothing() -> None:
    @guard(ModelCall)
    def never(call: ModelCall) -> Block:
        return Block("no")

    budget = Budget(tokens=5_000)
    assert reason(await Agent(Scripted(), hooks=[budget, never]).run("go")) == "blocked: no"
    assert (budget.spent, budget.reserved) == (Amount(), Amount())


# -- children and other agents --------------------------------------------------------------------------------------


def parent_of(child: Agent, *hooks: Any, results: list[Result] | None = None) -> Agent:
    @tool
    async def delegate() -> str:
        """Delegate the task."""
        result = await child.run("do it")
        if results is not None:
            results.append(result)
        return result.text or result.reason

    return Agent(Scripted(ToolCall("c1", "delegate"), "done", spare=True), tools=[delegate], hooks=hooks)


async def test_descendants_share_the_budget() -> None:
    budget = Budget(tokens=50_000)
    child = Agent(Metered([Usage(1_000, 10)]), name="child")
    grandchild_of = parent_of(child)
    await parent_of(grandchild_of, budget).run("please go and do it")
    assert budget.spent.tokens > 1_010
    assert budget.reserved == Amount()


async def test_a_child_is_bound_by_its_parents_budget() -> None:
    ended: list[Result] = []
    child = Agent(Metered([Usage(10, 1)]), name="child", settings={"max_tokens": 9_000})
    await parent_of(child, Budget(tokens=8_000), results=ended).run("go")
    assert reason(ended[0]).startswith("budget: ")


async def test_a_childs_attempts_are_set_aside_inside_of_its_own_retry() -> None:
    budget, model = Budget(tokens=50_000), Shaky(3)
    await parent_of(Agent(model, name="child", hooks=[Retry(base=0)]), budget).run("please go and do it")
    assert model.asked == 4
    assert 500 <= budget.spent.tokens < 600


async def test_a_budget_of_parent_and_child_counts_once() -> None:
    budget = Budget(tokens=50_000)
    await parent_of(Agent(Metered([Usage(1_000, 0)]), name="child", hooks=[budget]), budget).run("please go and do it")
    assert 1_000 <= budget.spent.tokens < 1_100


async def test_named_budgets_are_independent() -> None:
    mine, team = Budget(tokens=9_000, name="mine"), Budget(tokens=100, name="team")
    assert reason(await Agent(Metered([Usage(1, 1)]), hooks=[mine, team]).run("go")).startswith(
        "budget: team: the next"
    )
    assert (mine.spent, mine.reserved, team.reserved) == (Amount(), Amount(), Amount())


async def test_the_summary_of_a_conversation_is_paid_for() -> None:
    budget = Budget(tokens=50_000)
    talk = [message for _ in range(10) for message in (user("q" * 400), Message("assistant", "a" * 400))]
    model = Scripted("in short", "done")
    await Agent(model, hooks=[Summarization(4_000, threshold=2_000), budget]).run([*talk, user("well?")])
    assert len(model.requests) == 2
    assert budget.spent.tokens > 1_500


# -- side by side ---------------------------------------------------------------------------------------------------

usages = st.builds(Usage, st.integers(1, 60), st.integers(0, 300))


@given(st.lists(st.lists(usages, min_size=1, max_size=5), min_size=5, max_size=5), st.integers(300, 4_000))
async def test_five_concurrent_runs_never_exceed_the_budget(plans: list[list[Usage]], tokens: int) -> None:
    """None takes more than is set aside for it: 300 for the answer, and at least 60 for system prompt and tool."""
    budget = Budget(tokens=tokens, reserve=300)

    def look() -> None:
        assert (budget.spent + budget.reserved).tokens <= tokens

    models = [Metered(plan, watch=look) for plan in plans]
    agents = [Agent(model, system="s" * 240, tools=[echo], hooks=[budget]) for model in models]
    ended = await asyncio.gather(*(agent.run("go") for agent in agents))
    taken = sum(usage.total_tokens for model in models for usage in model.took)
    assert budget.spent.tokens == taken <= tokens
    assert budget.reserved == Amount()
    for model, result in zip(models, ended, strict=True):
        done = len(model.took) == len(model.usages)
        assert (result.outcome == "completed") is done
        assert done or result.reason.startswith("budget: ")


def test_agents_in_five_threads_never_exceed_the_budget() -> None:
    budget, tokens = Budget(tokens=8_000, reserve=300), 8_000
    models = [Metered([Usage(50, 250)] * 20) for _ in range(5)]
    agents = [Agent(model, system="s" * 240, tools=[echo], hooks=[budget, Limits(steps=None)]) for model in models]
    together = threading.Barrier(5, timeout=30)

    def work(agent: Agent) -> None:
        together.wait()
        agent.run_sync("go")

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    taken = sum(usage.total_tokens for model in models for usage in model.took)
    assert budget.spent.tokens == taken <= tokens
    assert taken > tokens - 5 * 1_000  # and it was used up
    assert budget.reserved == Amount()


# -- options --------------------------------------------------------------------------------------------------------

WRONG = [
    ({}, "limits nothing"),
    *(({"tokens": wrong}, "tokens are a whole number above 0") for wrong in (0, -5, 1.5, True, "many")),
    *(({"dollars": wrong}, "dollars are a number above 0") for wrong in (0, -1, True, "much", float("nan"), "inf")),
    *(({"tokens": 1, "reserve": wrong}, "reserved for an answer") for wrong in (-1, 0.5, "1")),
    *(({"tokens": 1, "name": wrong}, "a name is a text") for wrong in ("", 7)),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=str)
def test_invalid_options_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Budget(**options)


@pytest.mark.parametrize("limit", ["tokens", "dollars"])
def test_a_limit_cannot_be_set_and_the_remedy_is_named(limit: str) -> None:
    budget = Budget(tokens=100)
    with pytest.raises(ConfigError, match="the limits of a Budget do not change; create another one") as refused:
        setattr(budget, limit, 5)
    assert f"agent.without_hooks('budget').with_hooks(Budget({limit}=5))" in str(refused.value)
    assert (budget.tokens, budget.dollars) == (100, None)
    budget.reserve = 10  # read before each model call
