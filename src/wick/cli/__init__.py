"""The command `wick`. It needs the extra `cli`; each of its commands is a file here, loaded when it is named."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from wick.errors import MissingExtra


def main() -> None:
    """What the command `wick` does."""
    try:
        from wick.cli.root_command import wick
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        print(MissingExtra("cli", error.name, "the command `wick`"), file=sys.stderr)
        sys.exit(2)
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter shows another
    wick(prog_name="wick")


def _open_closed_streams() -> None:
    """A stream that was closed is as one that nobody reads; else the next file that is opened would be it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
