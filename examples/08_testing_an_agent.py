"""Test an agent without a network and without mocks: the model is scripted, everything else is real."""

from wick import Agent, Block, FunctionModel, Scripted, ToolCall, ToolUse, assistant, guard, tool, user
from wick.protocols import Request


@tool
def transfer(to: str, amount: int) -> str:
    """Transfer money."""
    return f"{amount} to {to}"


@guard(ToolUse, match="transfer")
def no_large_sums(use: ToolUse) -> Block | None:
    return Block("more than 100 needs a person") if use.args["amount"] > 100 else None


def test_a_large_sum_is_blocked() -> None:
    model = Scripted(assistant("", ToolCall("1", "transfer", {"to": "Eve", "amount": 5000})), "I may not.")
    result = Agent(model, tools=[transfer], hooks=[no_large_sums]).run_sync("Pay Eve.")
    assert result.text == "I may not."
    assert model.requests[1].messages[-1].text == "more than 100 needs a person"  # the result that the model read
    model.check()  # every reply was used; under pytest this happens by itself


def test_a_wrong_argument_never_reaches_a_guard() -> None:
    model = Scripted(assistant("", ToolCall("1", "transfer", {"to": "Eve", "amount": "lots"})), "Sorry.")
    result = Agent(model, tools=[transfer], hooks=[no_large_sums]).run_sync("Pay Eve.")
    assert result.messages[2].text.startswith("transfer: amount should be a valid integer")


def test_the_model_sees_the_whole_conversation() -> None:
    def count(request: Request) -> str:
        return f"I see {len(request.messages)} messages and the tools {[tool.name for tool in request.tools]}."

    agent = Agent(FunctionModel(count), tools=[transfer])
    result = agent.run_sync([user("Hello."), assistant("Hi."), user("What do you see?")])
    assert result.text == "I see 3 messages and the tools ['transfer']."


if __name__ == "__main__":  # pytest examples/08_testing_an_agent.py does the same
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print("ok", name)

# prints:
# ok test_a_large_sum_is_blocked
# ok test_a_wrong_argument_never_reaches_a_guard
# ok test_the_model_sees_the_whole_conversation
