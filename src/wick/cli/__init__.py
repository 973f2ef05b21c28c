"""The command `wick`. It needs the extra `cli`; each of its commands is a file here, loaded when it is named."""

from __future__ import annotations

import sys

from wick.errors import MissingExtra


def main() -> None:
    """What the command `wick` does."""
    try:
        from wick.cli.frame import wick
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(MissingExtra("cli", error.name, "the command `wick`"), file=sys.stderr)
        sys.exit(2)
    wick(prog_name="wick")
