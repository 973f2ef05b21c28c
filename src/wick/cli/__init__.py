"""The command-line interface `wick`. It needs the extra `cli`; each command is a module, imported on use."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from wick.errors import MissingExtra


def main() -> None:
    """Run the command `wick`."""
    try:
        from wick.cli.root_command import wick
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(MissingExtra("cli", error.name, "the command `wick`"), file=sys.stderr)
        sys.exit(2)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # a closed stream: without this, another file would get its descriptor
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on characters that the terminal cannot encode
    wick(prog_name="wick")
