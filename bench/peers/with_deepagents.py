"""deepagents: `create_deep_agent` with its defaults (tools for files and a subagent among them), over `ChatOpenAI`.

It has its own system prompt and tools, so only the messages of the user, the model and the tools are compared.
"""

from __future__ import annotations

from typing import Any

from contract import SYSTEM, main
from deepagents import create_deep_agent
from with_langchain import LangChain


class DeepAgents(LangChain):
    packages = ("deepagents", "langchain", "langgraph", "langchain-openai", "openai")

    def agent(self) -> Any:
        return create_deep_agent(self.model, self.tools, system_prompt=SYSTEM)


if __name__ == "__main__":
    main(DeepAgents)
