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
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # do not fail on characters that the terminal cannot encode
    wick(prog_name="wick")


def _open_closed_streams() -> None:
    """Open the null device for closed standard streams, so that no other file gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
