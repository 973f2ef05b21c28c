"""Run the command `wick` with `python -m wick.cli`."""

from wick.cli import main

main()
