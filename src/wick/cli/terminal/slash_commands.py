"""The slash commands of `wick chat`; each skill of the agent is a command, too."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from wick.cli.host.thread_ids import choose_id
from wick.cli.terminal.chat import Chat
from wick.cli.terminal.output import format_time
from wick.cli.terminal.screen import format_usage
from wick.errors import WickError

COMMAND_PATTERN = re.compile(r"/([A-Za-z][\w.-]*)(?:\s+(.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """A slash command: its arguments, help text and function."""

    arguments: str
    help: str
    run: Callable[[Chat, str], Awaitable[None]]


async def run_slash_command(chat: Chat, text: str) -> bool:
    """Run a slash command; return False if the text is not one, but a prompt."""
    match = COMMAND_PATTERN.fullmatch(text.strip())
    if match is None:
        return False
    word, rest = match[1].lower(), (match[2] or "").strip()
    try:
        if word in COMMANDS:
            await COMMANDS[word].run(chat, rest)
        elif word in chat.skills:
            await chat.send_prompt("\n\n".join(filter(None, (f"Use the skill {chat.skills[word]!r}.", rest))))
        else:
            near = get_close_matches(word, describe_commands(chat), 1)
            hint = f"did you mean /{near[0]}?" if near else "/help lists them"
            chat.print_notice(f"there is no command /{word}; {hint}", "red")
    except (WickError, OSError) as error:
        chat.print_notice(str(error), "red")
    return True


def describe_commands(chat: Chat) -> Mapping[str, str]:
    """Return all slash commands with their help texts."""
    commands = {word: command.help for word, command in COMMANDS.items()}
    return {**commands, **dict.fromkeys(chat.skills, "a skill")}


_Run = Callable[[Chat, str], Awaitable[None]]
COMMANDS: dict[str, SlashCommand] = {}


def _register(word: str, arguments: str, help: str) -> Callable[[_Run], _Run]:
    """Return a decorator that adds a function to the slash commands."""

    def add(run: _Run) -> _Run:
        COMMANDS[word] = SlashCommand(arguments, help, run)
        return run

    return add


# -- the commands ---------------------------------------------------------------------------------------------------


@_register("help", "", "show this help")
async def show_help(chat: Chat, rest: str) -> None:
    for word, command in COMMANDS.items():
        chat.print_notice(f"  {f'/{word} {command.arguments}':<20}{command.help}", "")
    for word, name in chat.skills.items():
        chat.print_notice(f"  {f'/{word}':<20}use the skill {name}", "")
    chat.print_notice("  Alt-Enter, or \\ before Enter, inserts a newline; Tab completes a command")


@_register("model", "[NAME]", "show or change the model")
async def switch_model(chat: Chat, rest: str) -> None:
    chat.print_notice(await chat.host.use_model(rest) if rest else (await chat.host.get_agent()).model)


@_register("compact", "[WORDS]", "summarize the conversation, with optional instructions")
async def compact_thread(chat: Chat, rest: str) -> None:
    if _has_thread(chat):
        await chat.send_prompt(f"/compact {rest}".strip())  # handled by the capability Summarization


@_register("todos", "", "show the todos")
async def show_todos(chat: Chat, rest: str) -> None:
    todos = (await chat.host.get_thread(chat.thread)).todos if chat.thread else []
    chat.screen.print_todos([todo.model_dump() for todo in todos])
    if not todos:
        chat.print_notice("no todos")


@_register("hooks", "", "show the hooks of each operation, outermost first")
async def show_hooks(chat: Chat, rest: str) -> None:
    for operation in await chat.host.list_rings():
        if operation.rings or operation.guards:
            chat.print_notice(operation.operation, "bold")
        for ring in (*operation.rings, *operation.guards):
            open = "  (fail: open)" if ring.fail == "open" else ""
            chat.print_notice(f"  {ring.position:<7}{ring.hook}  [{ring.source}]{open}", "")


@_register("tools", "", "show the agent's tools")
async def show_tools(chat: Chat, rest: str) -> None:
    for tool in (await chat.host.get_agent()).tools:
        chat.print_notice(f"  {tool.name:<16} {' '.join(tool.description.split())[:100]}", "")


@_register("skills", "", "list the skills; /NAME uses one")
async def show_skills(chat: Chat, rest: str) -> None:
    skills = (await chat.host.list_skills()).skills
    for skill in skills:
        chat.print_notice(f"  {skill.name:<20} {skill.description[:100]}", "" if skill.enabled else "dim")
    if not skills:
        chat.print_notice("no skills; create one with: wick skills new NAME")


@_register("fork", "", "fork this thread, and continue in the copy")
async def fork_thread(chat: Chat, rest: str) -> None:
    if _has_thread(chat):
        forked = await chat.host.fork_thread(chat.thread)
        chat.print_notice(f"forked {chat.thread}; continuing in {forked.id}")
        chat.thread = forked.id


@_register("threads", "", "list the latest threads")
async def show_threads(chat: Chat, rest: str) -> None:
    threads = await chat.host.list_threads(limit=20)
    for info in threads:
        mark = "▸" if info.id == chat.thread else "?" if info.asking else " "
        chat.print_notice(f"{mark} {info.id}  {format_time(info.updated)}  {info.title[:60] or '(untitled)'}", "")
    chat.print_notice("switch to one with: /thread ID" if threads else "no threads")


@_register("thread", "[ID]", "show the id of this thread, or switch to another")
async def open_thread(chat: Chat, rest: str) -> None:
    if not rest:
        return chat.print_notice(chat.thread or "this thread has no messages")
    await chat.resume_thread(choose_id(rest, await chat.host.list_thread_ids(rest), "thread", "/threads"))
    return None


@_register("new", "", "start a new thread")
async def start_thread(chat: Chat, rest: str) -> None:
    chat.thread = ""
    chat.print_notice("your next message starts a new thread")


@_register("title", "WORDS", "rename this thread")
async def set_title(chat: Chat, rest: str) -> None:
    if _has_thread(chat) and rest:
        chat.print_notice((await chat.host.rename_thread(chat.thread, rest)).title)


@_register("usage", "", "show the tokens and cost of this thread")
async def show_usage(chat: Chat, rest: str) -> None:
    if _has_thread(chat):
        chat.print_notice(format_usage((await chat.host.get_thread(chat.thread)).usage.model_dump(), None))


@_register("quit", "", "quit (or Ctrl-D)")
async def end_chat(chat: Chat, rest: str) -> None:
    chat.is_over = True


def _has_thread(chat: Chat) -> bool:
    if not chat.thread:
        chat.print_notice("this thread has no messages")
    return bool(chat.thread)
