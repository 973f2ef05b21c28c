"""A recipe: a file defines the task of a run, and a built-in handler replaces the context."""

import tempfile
from pathlib import Path
from typing import Any

from wick import Agent, Run, Scripted, Thread
from wick.capabilities.recipes import Recipes

RECIPE = """\
---
description: Finds out what a module is for
arguments: {module: the whole program}
hooks:
  turn_end: {handler: swap_context, once: true}
  agent_stop: {handler: sources}
---
Read {{module}} and say in one sentence what it is for.
"""


def sources(payload: dict[str, Any], run: Run) -> dict[str, Any]:
    """Sends an answer back that names no source."""
    answer = payload["messages"][-1]["content"]
    return {} if ".py" in answer else {"follow_up_messages": ["Say which file you have read."]}


model = Scripted("It counts words.", "It counts words: see count.py.", "Because of count.py.")
thread = Thread()

with tempfile.TemporaryDirectory() as folder:
    Path(folder, "explain.md").write_text(RECIPE)
    agent = Agent(model, hooks=[Recipes(folder, handlers={"sources": sources})])
    print(agent.run_sync("module=count.py", recipe="explain", thread=thread).text)
    agent.run_sync("Why?", thread=thread)

for request in model.requests:
    print([message.text.splitlines()[-1] for message in request.messages])

# prints:
# It counts words: see count.py.
# ['Read count.py and say in one sentence what it is for.']
# ['It counts words.', 'Say which file you have read.']
# ['It counts words.', 'Say which file you have read.', 'It counts words: see count.py.', 'Why?']
