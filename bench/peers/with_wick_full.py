"""wick with the default capabilities of an agent in `agents.yaml` (todos, files, summaries), skills and a subagent.

It has its own system prompt and tools, so only the messages of the user, the model and the tools are compared.
"""

from __future__ import annotations

from contract import MOST_STEPS, SYSTEM, main
from with_wick import Wick

from wick import Agent, Limits
from wick.backends.state import State
from wick.capabilities.filesystem import Filesystem
from wick.capabilities.skills import Skills
from wick.capabilities.subagents import Subagents
from wick.capabilities.summarization import Summarization
from wick.capabilities.todos import Todos

WORKER = {"worker": {"description": "Does a part of the work.", "system_prompt": SYSTEM}}


class WickFull(Wick):
    def agent(self) -> Agent:
        backend = State()
        hooks = [
            Limits(steps=MOST_STEPS),
            Todos(),
            Filesystem(backend),
            Skills(backend=backend, shipped=True),
            Subagents(WORKER),
            Summarization(),
        ]
        return Agent(self.model, system=SYSTEM, tools=self.tools, hooks=hooks)


if __name__ == "__main__":
    main(WickFull)
