"""Shell completion of thread ids, question ids, and agents in a file, and the completion script for bash.

Completion must be fast and silent: it reads only local files, and offers nothing after an error.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import click
from click.shell_completion import BashComplete, CompletionItem, split_arg_string

from wick._internal.prompt_text import to_one_line

MAX_ITEMS = 50
TITLE_CHARS = 60
AGENTS_FILE = "agents.yaml"
LAST = CompletionItem("last", help="the latest thread of this folder")

Row = tuple[str, str]  # an id and its description


def complete_thread_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `last`, and the ids of the latest local threads with their titles."""
    return _complete_rows(ctx, incomplete, asking=False, first=[LAST])


def complete_question_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the ids of pending local questions, with their texts."""
    return _complete_rows(ctx, incomplete, asking=True)


def _complete_rows(
    ctx: click.Context, incomplete: str, *, asking: bool, first: list[CompletionItem] | None = None
) -> list[CompletionItem]:
    try:
        rows = [] if ctx.params.get("server") else asyncio.run(_read_rows(asking))
    except Exception:
        return []
    items = [*(first or []), *(CompletionItem(id, help=to_one_line(text, TITLE_CHARS)) for id, text in rows)]
    return [item for item in items if item.value.startswith(incomplete)]


async def _read_rows(asking: bool) -> list[Row]:
    """Return the latest threads with their titles, or with `asking` the pending questions."""
    from wick._internal.paths import data_folder
    from wick.capabilities.sessions import LOCAL, Sessions
    from wick.stores.sqlite import Sqlite

    path = data_folder() / "threads.db"
    if not path.exists():
        return []
    sessions = Sessions(Sqlite(path))
    try:
        threads = (await sessions.store.list(LOCAL, asking=asking or None, limit=MAX_ITEMS)).threads
        if not asking:
            return [(head.id, head.title) for head in threads]
        pending = [question for head in threads for question in await sessions.questions(head.id)]
        return [(question["id"], question["question"]) for question in pending]
    finally:
        await sessions.close()


def complete_agent_specs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete FILE:ID with the agents of the file; without a colon, files and the agents of the folder's file."""
    path, colon, id = incomplete.rpartition(":")
    if colon:
        return [CompletionItem(f"{path}:{name}") for name in list_agent_names(path) if name.startswith(id)]
    own = [CompletionItem(f"{AGENTS_FILE}:{name}") for name in list_agent_names(AGENTS_FILE)]
    return [CompletionItem(incomplete, type="file"), *(item for item in own if item.value.startswith(incomplete))]


def list_agent_names(path: str) -> list[str]:
    """Return the names under `agents:` of a file, or nothing if it cannot be read."""
    try:
        from wick._internal.safe_yaml import read

        agents = read(Path(path), os.environ).data.get("agents")
        return [*agents] if isinstance(agents, dict) else []
    except Exception:
        return []


# -- bash -----------------------------------------------------------------------------------------------------------

# Bash splits words at `:` and `=`, and replaces only the part after the last of them. So the script passes the line
# up to the cursor, and removes the part before the last `:` from the answers.
_BASH_SCRIPT = """\
%(complete_func)s() {
    local IFS=$'\\n' line="${COMP_LINE:0:$COMP_POINT}" completion type value current
    current="${line##*[[:space:]]}"
    [[ $current == --*=* ]] && current="${current#*=}"
    COMPREPLY=()
    for completion in $(env COMP_WORDS="$line" %(complete_var)s=bash_complete "$1"); do
        type="${completion%%%%,*}" value="${completion#*,}"
        if [[ $type == dir ]]; then
            compopt -o dirnames
        elif [[ $type == file ]]; then
            compopt -o default
        else
            [[ $COMP_WORDBREAKS == *:* && $current == *:* ]] && value="${value#"${current%%:*}:"}"
            COMPREPLY+=("$value")
        fi
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class BashCompletion(BashComplete):
    """Completion for bash that also completes words with a colon, such as `agents.yaml:coder`."""

    source_template = _BASH_SCRIPT

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the current one, and the current one up to the cursor."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() or not words else (words[:-1], words[-1])
