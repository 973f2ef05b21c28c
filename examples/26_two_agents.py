"""A server with two agents from a file: each has its tools and rules, and users see only their own threads."""

import tempfile
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from wick.client import ServerError, SyncClient
from wick.server import Server

AGENTS = """
defaults: {model: demo}
agents:
  clerk: {name: Clerk, tools: [calculate]}
  writer: {name: Writer, backend: state, permissions: {mode: acceptEdits}}
"""
TOKENS = {"ada": "the-token-of-ada-0123456789", "bob": "the-token-of-bob-0123456789"}

with tempfile.TemporaryDirectory() as folder:
    config = Path(folder, "agents.yaml")
    config.write_text(AGENTS)
    listed = [{"name": name, "sha256": sha256(token.encode()).hexdigest()} for name, token in TOKENS.items()]
    server = Server(port=0, data=folder, config=config, tokens=listed)
    said: SimpleQueue[str] = SimpleQueue()
    serving = Thread(target=lambda: server.start(tell=said.put))
    serving.start()
    url = said.get().split()[-1]

    with SyncClient(url, TOKENS["ada"]) as ada, SyncClient(url, TOKENS["bob"]) as bob:
        for agent in ada.agents():
            print(agent.agent_id)
        answer = ada.invoke("writer", "Write 'Buy tea.' to notes.txt")
        print(answer.outcome, sorted(answer.files))
        print(ada.invoke("clerk", "Write 'Buy tea.' to notes.txt").response.partition(".")[0])
        try:
            bob.thread(answer.thread_id)
        except ServerError as error:
            print("bob:", error.status, error.code)

    server.shutdown()
    serving.join()

# prints:
# clerk
# writer
# completed ['notes.txt']
# I would use write_file for that, but this agent has no such tool
# bob: 404 not_found
