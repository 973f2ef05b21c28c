"""`wick chat` in a real terminal: input, output and stored state, locally and with a server."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.command import WickCommand
from cli.terminal import SECONDS, Terminal, open_terminal, shell_command
from ports import own_port
from server_process import TOKENS, ServerProcess, run_server
from wickd_process import becomes_true

AGENTS = """
model: demo
backend: {type: local}
ask_user: true
skills: true
permissions: {allow: [Read, LS, ask_user, write_todos, update_todo, load_skill]}
"""
WAIT = "touch begun; until [ -e go ]; do sleep 0.1; done"  # as long as the test wants
SKILL = "---\nname: Greeting\ndescription: How to greet people.\n---\nSay hello.\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with run_server(tmp_path_factory.mktemp("served"), config=AGENTS) as made:
        yield made


@dataclass
class Chats:
    """A folder, a terminal, and the command line of `wick chat`: with its own agent or a server's."""

    wick: WickCommand
    screen: Terminal
    options: tuple[str, ...] = ("--model", "demo")
    more: dict[str, str] = field(default_factory=dict)
    workspaces: Path | None = None  # those of a server

    @property
    def environment(self) -> dict[str, str]:
        return {**self.wick.environment, "WICK_DATA": str(self.wick.home.parent / "data"), **self.more}

    @property
    def remote(self) -> bool:
        return "WICK_SERVER" in self.more

    def begin(self, *words: str) -> Terminal:
        """Begin, and wait until something can be typed."""
        self.start(*words)
        self.screen.see("Ctrl-D quits", "›")
        return self.screen

    def start(self, *words: str) -> None:
        self.screen.open(shell_command("chat", *self.options, *words), self.wick.folder, self.environment)

    def again(self, *words: str) -> Terminal:
        """Close the terminal at any point and start in another one."""
        self.start(*words)
        return self.screen

    def let_go(self) -> None:
        """Stop the waiting command once it has started."""
        assert becomes_true(lambda: self._started_files, SECONDS)
        self._started_files[0].with_name("go").touch()

    @property
    def _started_files(self) -> list[Path]:
        return [*(self.wick.folder.glob("begun") if self.workspaces is None else self.workspaces.glob("*/*/begun"))]


@pytest.fixture(params=["embedded", "server"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chats]:
    with open_terminal() as screen:
        if request.param == "embedded":
            yield Chats(WickCommand(tmp_path), screen)
            return
        server = request.getfixturevalue("server")
        there = {"WICK_SERVER": server.url, "WICK_TOKEN": TOKENS["ada"]}
        yield Chats(WickCommand(tmp_path), screen, (), there, server.folder / "data" / "workspaces")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Chats]:
    with open_terminal() as screen:
        yield Chats(WickCommand(tmp_path), screen)


def test_a_chat_is_started_left_and_continued(chats: Chats) -> None:
    screen = chats.begin()
    screen.say("Write 'The meeting is on Monday.' to notes.txt")
    screen.see("● write_file", "notes.txt", "content: The meeting is on Monday.", "e edit", "  >")
    screen.say("y")
    screen.see("allowed", "I wrote", "tokens in", after="e edit")
    screen.say("Read notes.txt")
    screen.see("● read_file notes.txt", "has 1 line", "tokens in", after="› Read notes.txt")
    screen.say("/title Our meeting")
    screen.see("Our meeting", "\n›", after="/title Our meeting\n")
    screen.press("C-d")
    left = screen.see("EXIT 0", "continue with: wick chat --thread th_")
    thread = left.split("--thread ")[1].split()[0]
    chats.again("--continue")
    screen.see(f"resuming {thread}: Our meeting", "› Read notes.txt", "has 1 line", "Ctrl-D quits")
    screen.say("/threads")
    screen.see(f"▸ {thread}", "Our meeting", after="/threads")
    screen.say("/new")
    screen.see("your next message starts a new thread", after="/new")
    screen.say(f"/thread {thread[:-2]}")
    screen.see(f"resuming {thread}", after=f"/thread {thread[:-2]}")
    screen.say("/quit")
    screen.see("EXIT 0", after="/quit")


def test_a_declined_call_is_not_executed(chats: Chats) -> None:
    screen = chats.begin()
    screen.say("Write 'x' to unwanted.txt")
    screen.see("? May write_file be used", "  >")
    screen.say("use another name instead")
    screen.see("denied: use another name instead", "tokens in")
    screen.say("Write 'x' to wanted.txt")
    screen.see("? May write_file be used: wanted.txt", "  >", after="to wanted.txt\n")
    screen.say("e")
    screen.see("arguments: {", after="  > e")
    screen.press(*["BSpace"] * 60)
    screen.say('{"path": "renamed.txt", "content": "changed"}')
    screen.see("allowed", "tokens in", after="changed")
    screen.say("Read renamed.txt")
    screen.see("changed", "tokens in", after="› Read renamed.txt")
    if not chats.remote:
        assert [path.name for path in chats.wick.folder.iterdir()] == ["renamed.txt"]


def test_ctrl_c_cancels_the_run_and_stores_the_thread(chats: Chats) -> None:
    screen = chats.begin()
    screen.say("Run `sleep 90`")
    screen.see("? May execute be used: sleep 90", "  >")
    screen.say("y")
    screen.see("allowed")
    time.sleep(0.5)  # its start has no event, and it is stopped before that just the same
    screen.press("C-c")
    screen.see("stopped; send a message", "›", after="allowed")
    screen.say("Write 'x' to file.txt")
    screen.see("? May write_file be used: file.txt", "  >", after="to file.txt\n")
    screen.press("C-c")  # while it asks
    screen.see("cancelled: user requested", after="file.txt")
    screen.say("Hello!")
    screen.see("Offline demo model: I need no key", "tokens in", "\n›", after="› Hello!")
    screen.press("C-c")
    screen.see("\n›", after="press Ctrl-C again")
    screen.press("C-c")
    screen.see("EXIT 0", "continue with: wick chat --thread th_")


def test_the_agent_asks_the_user(chats: Chats) -> None:
    screen = chats.begin()
    screen.say("Ask me whether to go on")
    screen.see("Whether to go on?\nWhether to go on?", after="● ask_user")
    screen.say("certainly")
    screen.see("certainly", "tokens in", after="? certainly")
    screen.say("Ask me to choose between tea or coffee")
    screen.see("1) tea", "2) coffee [a number]", after="choose between")
    screen.say("3")
    screen.see("the answer is one of tea, coffee, not '3'", after="[a number]")
    screen.say("2")
    screen.see("tokens in", after="not '3'")


def test_a_message_sent_during_a_run_is_delivered(chats: Chats) -> None:
    screen = chats.begin()
    screen.say(f"Run `{WAIT}`")
    screen.see("? May execute be used: touch begun", "  >")
    screen.say("y")
    screen.see("allowed")
    screen.say("/usage")
    screen.see("/usage: queued until the agent is done", after="allowed")
    screen.say("Hello!")
    screen.see("Hello!: sent; the agent reads it at its next step", after="allowed")
    chats.let_go()
    screen.see("I need no key", "tokens in", "›", after="the agent reads it at its next step")


def test_a_server_that_is_away_for_a_while(tmp_path: Path) -> None:
    with (
        own_port() as port,
        run_server(tmp_path / "served", config=AGENTS, flags=("--port", str(port))) as server,
        open_terminal() as screen,
    ):
        there = {"WICK_SERVER": server.url, "WICK_TOKEN": TOKENS["ada"]}
        chats = Chats(WickCommand(tmp_path), screen, (), there, server.folder / "data" / "workspaces")
        chats.begin()
        screen.say(f"Run `{WAIT}`")
        screen.see("  >")
        screen.say("y")
        screen.see("allowed")
        assert becomes_true(lambda: chats._started_files, SECONDS)
        server.kill()
        screen.see("connection lost, reconnecting", after="allowed")
        server.start()
        screen.see("tokens in", "›", after="allowed")
        assert "connection is lost" not in screen.screen


def test_typed_ahead_input_does_not_answer_a_question(chats: Chats) -> None:
    screen = chats.begin()
    screen.type("Write 'x' to ahead.txt\ry\r")  # all at once, as with type-ahead
    screen.see("? May write_file be used: ahead.txt", "\n  >")
    time.sleep(0.5)
    assert "allowed" not in screen.screen
    screen.say("no")
    screen.see("denied", "tokens in", after="  > no")


def test_a_killed_chat_restores_the_terminal(here: Chats) -> None:
    screen = here.begin()
    screen.say("Run `sleep 90`")
    screen.see("? May execute be used", "  >")
    screen.say("y")
    screen.see("allowed")
    screen.end("wick.cli")
    screen.see("EXIT 143")
    screen.type("this is seen")
    screen.see("this is seen", after="EXIT 143")


def test_several_lines_are_one_message(here: Chats) -> None:
    screen = here.begin()
    screen.type("List the files, \\")
    screen.press("Enter")
    screen.see("\n…")
    screen.type("then")
    screen.press("Escape", "Enter")
    screen.say("write 'x' to lines.txt")
    screen.see("? May write_file be used: lines.txt", "  >")
    screen.say("n")
    screen.see("denied", "tokens in", after="  > n")
    screen.paste("Read notes.txt\nand list the files")
    screen.see("… and list the files")
    screen.press("Enter")
    screen.see("● read_file notes.txt", "● ls", "tokens in", "\n›", after="and list the files\n")
    screen.press("C-d")
    screen.see("EXIT 0")
    kept = here.wick.home.parent / "data" / "chat_history"
    assert "+Read notes.txt\n+and list the files" in kept.read_text() and kept.stat().st_mode & 0o077 == 0
    here.again()
    screen.see("Ctrl-D quits", "›")
    screen.press("Up")
    screen.see("› Read notes.txt", "… and list the files", after="Ctrl-D quits")


def test_the_commands(here: Chats) -> None:
    here.wick.write(".wick/skills/greeting/SKILL.md", SKILL)
    screen = here.begin()
    for command in ("/todos", "/fork", "/compact", "/usage", "/title x"):
        screen.say(command)
        screen.see("no todos" if command == "/todos" else "this thread has no messages", after=command)
    screen.say("/help")
    screen.see("/model [NAME]", "/greeting", "use the skill Greeting", after="/help\n")
    screen.say("/hooks")
    screen.see("tool_use", "permissions.check  [permissions]", after="/hooks")
    screen.say("/tools")
    screen.see("execute", "read_file", after="/tools")
    screen.say("/skills")
    screen.see("How to greet people.", after="/skills")
    screen.say("/modle")
    screen.see("there is no command /modle; did you mean /model?", after="/modle")
    screen.say("/model nonsense:model")
    screen.see("nonsense", after="/model nonsense:model\n")
    screen.say("/model demo")
    screen.see("offline demo model", after="/model demo")
    screen.say("/greeting Ada")
    screen.see("tokens in", after="/greeting Ada")
    screen.say("Plan the work")
    screen.see("✔ See what is there", "? May write_file be used", "  >", after="› Plan the work")
    screen.say("n")
    screen.see("denied", "tokens in", after="  > n")
    screen.say("/todos")
    screen.see("✔ See what is there", "▸ Write the plan", "○ Read it again", after="  > n")
    screen.say("/compact what is to do")
    screen.see("tokens in", after="/compact what is to do")
    screen.say("/usage")
    screen.see("tokens in", after="› /usage\n")
    screen.say("/thr")
    screen.see("there is no command /thr", after="/thr")
    screen.type("/thread")
    screen.press("Enter")
    thread = screen.see("th_", after="/thread\n").split()[0]
    screen.say("/fork")
    screen.see(f"forked {thread}; continuing in th_", after="/fork")
    screen.type("/us")
    screen.press("Tab", "Enter")
    screen.see("tokens in", after="/usage")


def test_a_permanent_grant_is_not_asked_again(here: Chats) -> None:
    screen = here.begin()
    screen.say("Run `echo one`")
    screen.see("? May execute be used: echo one", "  >")
    screen.say("a")
    screen.see("allowed", "tokens in", after="  > a")
    screen.say("/new")
    screen.see("a new thread", after="/new")
    screen.say("Run `echo one`")
    assert "May execute" not in screen.see("└ one", "tokens in", after="a new thread")
    here.again()
    screen.see("Ctrl-D quits", "›")
    screen.say("Run `echo one`")
    assert "May execute" not in screen.see("└ one", "tokens in", after="Ctrl-D quits")
    screen.say("Run `echo two`")
    screen.see("? May execute be used: echo two", "  >")
    screen.say("s")
    screen.see("tokens in", after="  > s")
    screen.say("/new")
    screen.see("a new thread", after="  > s")
    screen.say("Run `echo two`")
    screen.see("? May execute be used: echo two", "  >", after="a new thread")  # it was for the other one
    screen.say("a Bash(echo")
    screen.see("Bash(echo", "  >", after="  > a Bash(echo\n")
    screen.say("a Bash(echo *)")
    screen.see("allowed", "tokens in", after="  > a Bash(echo *)")
    screen.say("Run `echo three`")
    assert "May execute" not in screen.see("└ three", "tokens in", after="› Run `echo three`")


def test_a_killed_chat_is_resumed(here: Chats) -> None:
    screen = here.begin()
    screen.say("Write 'hello' to new.txt")
    screen.see("? May write_file be used: new.txt", "  >")
    here.again("--continue")  # the terminal was closed while it asked
    screen.see("resuming th_", "? May write_file be used: new.txt", "  >")
    screen.say("y")
    screen.see("allowed", "tokens in", after="  > y")
    assert (here.wick.folder / "new.txt").read_text().strip() == "hello"


def test_a_thread_held_by_another_program_is_refused(here: Chats) -> None:
    screen = here.begin()
    screen.say("Write 'hello' to new.txt")
    screen.see("? May write_file be used: new.txt", "  >")
    with open_terminal() as other:
        other.open(shell_command("chat", *here.options, "--continue"), here.wick.folder, here.environment)
        other.see("another process is using this thread", "the run continues in the other process")
    screen.say("y")
    screen.see("allowed", "tokens in", after="  > y")


def test_another_program_answers_first(here: Chats) -> None:
    """Two programs share threads: a question here may be answered there."""
    screen = here.begin()
    screen.say("Write 'hello' to new.txt")
    screen.see("? May write_file be used: new.txt", "  >")
    data = here.wick.home.parent / "data"
    waiting = here.wick("approvals", "--json", WICK_DATA=str(data))
    (asked,) = json.loads(waiting.out)
    done = here.wick("approvals", "allow", asked["id"], WICK_DATA=str(data))
    assert done.code == 0, done.err
    screen.see("allowed", "I wrote", "tokens in", after="  >")
    second = here.wick("run", "Hello!", "--thread", asked["thread"], "--model", "demo", WICK_DATA=str(data))
    assert second.code == 0, second.err  # the lease is free between two runs
    with sqlite3.connect(data / "threads.db") as db:
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (1,)


def test_without_a_terminal_chat_refuses(tmp_path: Path) -> None:
    command = WickCommand(tmp_path)
    done = command("chat", "--model", "demo")
    assert done.code == 2 and "chat needs a terminal; in a pipe, use: wick run" in done.err
    assert command("chat", "--continue", "--thread", "x").code == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--continue",), "has no threads yet"),
        (("--thread", "th_gone"), "th_gone"),
        (("--server", "http://127.0.0.1:1"), "cannot be reached"),
    ],
)
def test_a_mistake_is_a_sentence(here: Chats, words: tuple[str, ...], sentence: str) -> None:
    here.options = () if words[0] == "--server" else here.options
    here.start(*words)
    seen = here.screen.see("EXIT ")
    assert sentence in seen and "Traceback" not in seen and "EXIT 0" not in seen
