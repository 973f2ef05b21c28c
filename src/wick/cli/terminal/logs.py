"""Logs of the commands that run an agent in the terminal: warnings on one line, everything with `--verbose`."""

from __future__ import annotations

import logging
from copy import copy

import click

VERBOSE = click.option("--verbose", is_flag=True, help="Log at level INFO, with tracebacks of tools that crash.")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class BriefFormatter(logging.Formatter):
    """A log formatter without tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        brief = copy(record)
        brief.exc_info = brief.exc_text = brief.stack_info = None
        return super().format(brief)


def log_to_stderr(verbose: bool) -> None:
    """Send logs to stderr; tracebacks only if `verbose`."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORMAT) if verbose else BriefFormatter("%(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
