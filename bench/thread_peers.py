"""A conversation stored by other libraries with their documented calls; threads.py runs this in their environment.

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


def count_written_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def measure(case: str, work: Callable[[], object]) -> dict[str, Any]:
    before, start = count_written_bytes(), perf_counter()
    work()
    return {"case": case, "seconds": perf_counter() - start, "size": count_written_bytes() - before}


def langgraph(folder: Path, turns: int, text: str) -> dict[str, Any]:
    """Measure a graph with one node, which saves its state with SqliteSaver after each step."""
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

    return measure("LangGraph, SqliteSaver", talk)


def openai_agents(folder: Path, turns: int, text: str) -> dict[str, Any]:
    """Measure a session with two new messages per turn."""
    from agents import SQLiteSession

    session = SQLiteSession("talk", folder / "agents.db")

    async def talk() -> None:
        for turn in range(turns):
            said = {"role": "user", "content": f"{2 * turn + 1}: {text}"}
            await session.add_items([said, {"role": "assistant", "content": f"{2 * turn + 2}: {text}"}])

    found = measure("OpenAI Agents, SQLiteSession", lambda: asyncio.run(talk()))
    session.close()
    return found


if __name__ == "__main__":
    where, count, words = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(json.dumps([peer(where, count, words) for peer in (langgraph, openai_agents)]))
