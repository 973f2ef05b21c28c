"""Examples and the documentation page at the end of each `--help`."""

from __future__ import annotations

import click

DOCS_PAGE = "docs/guide/cli.md"  # in the repository of wick; replace it by an address once the pages have one

# By the words after `wick`. Tests parse each of them, and compare them with the commands.
EXAMPLES = {
    "": ["wick run 'What is in this folder?'", "wick chat --continue", "wick serve agents.yaml", "wick doctor"],
    "agents": ["wick agents check"],
    "agents check": ["wick agents check", "wick agents check team/agents.yaml --json"],
    "agents list": ["wick agents list", "wick agents list --server http://127.0.0.1:8000"],
    "approvals": ["wick approvals", "wick approvals allow", "wick approvals --watch"],
    "approvals allow": [
        "wick approvals allow",
        "wick approvals allow ask_99bb --session",
        """wick approvals allow ask_99bb --args '{"command": "git status"}'""",
        "wick approvals allow ask_99bb --start-afresh",
    ],
    "approvals deny": ["wick approvals deny ask_99bb 'use a branch'"],
    "chat": ["wick chat", "wick chat --continue", "wick chat --agent agents.yaml:coder -m sonnet"],
    "cluster": ["wick cluster --server http://127.0.0.1:8000", "wick cluster --server http://127.0.0.1:8000 --json"],
    "completion": ["wick completion bash", "wick completion fish"],
    "doctor": ["wick doctor", "wick doctor --model sonnet"],
    "drain": ["wick drain --server http://127.0.0.1:8000", "wick drain --server http://127.0.0.1:8000 --no-wait"],
    "eval": ["wick eval run suite.yaml"],
    "eval import": [
        "wick eval import --from-threads -o suite.yaml",
        "wick eval import --from-threads --inputs-only -o prompts.yaml",
    ],
    "eval run": ["wick eval run suite.yaml", "wick eval run suite.yaml --html report.html"],
    "hooks": ["wick hooks list", "wick hooks trust"],
    "hooks list": ["wick hooks list", "wick hooks list --agent agents.yaml"],
    "hooks new": ["wick hooks new no-secrets --event before_tool_call --language sh"],
    "hooks onion": ["wick hooks onion --agent agents.yaml"],
    "hooks test": ["wick hooks test no-secrets --payload event.json"],
    "hooks trust": ["wick hooks trust", "wick hooks trust --forget"],
    "mcp": ["wick mcp test", "wick mcp serve --agent agents.yaml"],
    "mcp list": ["wick mcp list --config agents.yaml"],
    "mcp serve": ["wick mcp serve --agent agents.yaml:coder"],
    "mcp test": ["wick mcp test", "wick mcp test github"],
    "mcp tools": ["wick mcp tools", "wick mcp tools github --json"],
    "new": ["wick new my-agent", "wick new --plugin acme-tools --only tools,hooks"],
    "replay": ["wick replay --rule 'deny Bash(git push *)'", "wick replay last --agent agents.yaml"],
    "run": [
        "wick run 'What is in this folder?'",
        "git diff | wick run 'Review this change.'",
        "wick run --continue 'And now the tests.'",
        "wick run -m demo --allow 'Write(notes/*)' 'Write hello to notes/one.txt'",
    ],
    "serve": [
        "wick serve",
        "wick serve agents.yaml --port 9000",
        "wick serve -m sonnet --verbose",
        "wick serve --store postgresql://db/wick --workers 4",
    ],
    "skills": ["wick skills list", "wick skills new greeting"],
    "skills list": ["wick skills list", "wick skills list --shipped"],
    "skills new": ["wick skills new greeting --description 'How to greet people.'"],
    "threads": ["wick threads list", "wick threads show last"],
    "threads delete": ["wick threads delete th_f21640f9922a"],
    "threads export": ["wick threads export last --format markdown -o thread.md"],
    "threads fork": ["wick threads fork last --at 5"],
    "threads list": ["wick threads list --here", "wick threads list --asking --json"],
    "threads show": ["wick threads show last", "wick threads show th_f21640"],
    "tools": ["wick tools labels"],
    "tools labels": ["wick tools labels", "wick tools labels coder --config agents.yaml --json"],
    "undo": ["wick undo", "wick undo --dry-run", "wick undo --to 7 --file src/main.py"],
}


def add_help(command: click.Command, name: str) -> None:
    """Set the epilog of a command and of its subcommands: examples, and their section of the documentation."""
    section = f"#wick-{name.partition(' ')[0]}" if name else ""
    examples = EXAMPLES.get(name, [])
    lines = ["\b", "Examples:", *(f"  {example}" for example in examples), ""] if examples else []
    command.epilog = "\n".join([*lines, "\b", f"Documentation: {DOCS_PAGE}{section}"])
    for word, inner in getattr(command, "commands", {}).items():
        add_help(inner, f"{name} {word}".strip())
