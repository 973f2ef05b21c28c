"""A conversation kept by other libraries, as their users would; run by threads.py in an environment that has them.

python thread_peers.py FOLDER TURNS TEXT
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any


def written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def measured(case: str, work: Callable[[], object]) -> dict[str, Any]:
    before, start = written(), perf_counter()
    work()
    return {"case": case, "seconds": perf_counter() - start, "size": written() - before}


def langgraph(folder: Path, turns: int, text: str) -> dict[str, Any]:
    """A graph with one node, which saves its state with SqliteSaver after each step."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state['messages']) + 1}: {text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    saver = SqliteSaver(sqlite3.connect(folder / "langgraph.db", check_same_thread=False))
    saver.setup()
    app, config = graph.compile(checkpointer=saver), {"configurable": {"thread_id": "talk"}}

    def talk() -> None:
        for turn in range(turns):
            app.invoke({"messages": [HumanMessage(f"{2 * turn + 1}: {text}")]}, config)

    return measured("LangGraph, SqliteSaver", talk)


def openai_agents(folder: Path, turns: int, text: str) -> dict[str, Any]:
    """A session to which the two messages of each turn are added."""
    from agents import SQLiteSession

    session = SQLiteSession("talk", folder / "agents.db")

    async def talk() -> None:
        for turn in range(turns):
            said = {"role": "user", "content": f"{2 * turn + 1}: {text}"}
            await session.add_items([said, {"role": "assistant", "content": f"{2 * turn + 2}: {text}"}])

    found = measured("OpenAI Agents, SQLiteSession", lambda: asyncio.run(talk()))
    session.close()
    return found


if __name__ == "__main__":
    where, count, words = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(json.dumps([peer(where, count, words) for peer in (langgraph, openai_agents)]))
