"""Select a model: by name, the first available one, or your own. Without a key this uses the demo model."""

from collections.abc import AsyncIterator

from wick import Agent, tool
from wick.errors import ConfigError
from wick.models import resolve
from wick.protocols import Delta, Model, Request, TextDelta


@tool
def ls(path: str = ".") -> str:
    """List a folder."""
    return "notes.txt\nplan.md"


def first_of(*names: str) -> Model:
    """The first that can be had: a wrong name, a missing key and a missing package are said at once, in a sentence."""
    for name in names:
        try:
            return resolve(name)
        except ConfigError as error:
            print(f"{name}: {str(error).partition(',')[0]}")
    return resolve("auto")  # an Ollama that answers, else the demo model


class Shouting:
    """A model is anything with a name and a stream of deltas; this one changes what another says."""

    def __init__(self, inner: Model) -> None:
        self.inner, self.name = inner, f"{inner.name}, shouting"

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        async for delta in self.inner.stream(request):
            yield TextDelta(delta.text.upper()) if isinstance(delta, TextDelta) else delta


model = first_of("anthropic:claude-sonnet-4-5", "openai:gpt-4o")
for chosen in (model, Shouting(model)):
    result = Agent(chosen, tools=[ls], settings={"max_tokens": 500}).run_sync("Please list the files.")
    print(f"\n{chosen.name}, {len(result.messages)} messages:\n{result.text}")

# prints:
# anthropic:claude-sonnet-4-5: Anthropic needs a key: set ANTHROPIC_API_KEY
# openai:gpt-4o: OpenAI needs a key: set OPENAI_API_KEY
#
# offline demo model, 4 messages:
# In `.` there are 2 entries:
#
# - `notes.txt`
# - `plan.md`
#
# offline demo model, shouting, 4 messages:
# IN `.` THERE ARE 2 ENTRIES:
#
# - `NOTES.TXT`
# - `PLAN.MD`
