"""`python -m wick.cli` is the command `wick`."""

from wick.cli import main

main()
