"""`wick doctor`: check the installation, and print remedies."""

from __future__ import annotations

import sys
from dataclasses import asdict
from itertools import groupby

import click

from wick.cli.checks.doctor import Check, iter_checks
from wick.cli.root_command import DONE, FAILED
from wick.cli.terminal.output import JSON, print_json, show_status, strip_controls

SIGNS = {"ok": ("✓", "green"), "missing": ("–", "yellow"), "wrong": ("✗", "red")}
GROUPS = ("installed", "plugins", "programs", "sandbox", "models", "server")  # in this order


@click.command("doctor")
@click.option("--ask", is_flag=True, help="Send a short prompt to each available model; this may cost money.")
@click.option("--model", "-m", default="", metavar="NAME", help="Send a short prompt to this model only.")
@click.option("--data", metavar="FOLDER", help="Use this data folder instead of the default.")
@click.option("--port", type=click.IntRange(0, 65_535), help="The port of `wick serve`.")
@JSON
def command(ask: bool, model: str, data: str | None, port: int | None, as_json: bool) -> None:
    """Check packages, programs, sandboxes, models, the data folder and the port.

    The exit code is 1 if wick cannot work here. Missing optional parts are listed with the command that installs them.
    """
    checks: list[Check] = []
    for group, check in iter_checks(ask=ask, model=model, data=data, port=port):
        with show_status(f"checking {group}"):
            checks += check()
    wrong = [check.name for check in checks if check.state == "wrong"]
    if as_json:
        print_json({"works": not wrong, "checks": [asdict(check) for check in checks]})
    else:
        _print_checks(checks)
        click.echo(f"\nwick is not ready; fix {', '.join(wrong)}" if wrong else "\nwick is ready")
    sys.exit(FAILED if wrong else DONE)


def _print_checks(checks: list[Check]) -> None:
    width = max(len(check.name) for check in checks)
    ordered = sorted(checks, key=lambda check: GROUPS.index(check.group))
    for group, members in groupby(ordered, lambda check: check.group):
        click.secho(group, bold=True)
        for check in members:
            sign, colour = SIGNS[check.state]
            click.echo(f"  {click.style(sign, fg=colour)} {check.name:<{width}}  {strip_controls(check.says)}")
            if check.do:
                click.secho(f"    {'':<{width}}  → {strip_controls(check.do)}", dim=True)
