"""`wick doctor`: what is here, what is not, and what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby

import click

from wick.cli.checks.doctor import Check, iter_checks
from wick.cli.root_command import DONE, FAILED
from wick.cli.terminal.output import JSON, print_json, show_status, strip_controls

SIGNS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "wrong": ("✗", "red")}


@click.command("doctor")
@click.option("--ask", is_flag=True, help="Ask each model that is there a short question; that may cost something.")
@click.option("--model", default="", metavar="NAME", help="Ask this model, and no other.")
@click.option("--data", metavar="FOLDER", help="The data folder, in place of the usual one.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port that `wick serve` would have.")
@JSON
def command(ask: bool, model: str, data: str | None, port: int | None, as_json: bool) -> None:
    """Look at what is installed, what confines commands, which models answer, and where threads are kept.

    The exit code is 1 if wick cannot work here. What is merely missing is said, with how to get it.
    """
    found: list[Check] = []
    for what, look in iter_checks(ask=ask, model=model, data=data, port=port):
        with show_status(f"looking at {what}"):
            found += look()
    if as_json:
        print_json({"works": _is_usable(found), "checks": [asdict(check) for check in found]})
    else:
        _print_checks(found)
    sys.exit(DONE if _is_usable(found) else FAILED)


def _is_usable(found: Iterable[Check]) -> bool:
    return all(check.state != "wrong" for check in found)


def _print_checks(found: list[Check]) -> None:
    width = max(len(check.name) for check in found)
    for group, members in groupby(
        sorted(found, key=lambda check: _ORDER.index(check.group)), lambda check: check.group
    ):
        click.secho(group, bold=True)
        for check in members:
            sign, colour = SIGNS[check.state]
            click.echo(f"  {click.style(sign, fg=colour)} {check.name:<{width}}  {strip_controls(check.says)}")
            if check.do:
                click.secho(f"    {'':<{width}}  → {strip_controls(check.do)}", dim=True)
    click.echo()
    wrong = [check.name for check in found if check.state == "wrong"]
    click.echo(f"wick cannot work here: see {', '.join(wrong)}" if wrong else "wick works here")


_ORDER = ("installed", "programs", "sandbox", "models", "server")
