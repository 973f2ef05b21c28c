"""`wick eval`: run the cases of a suite with several agents, and compare the results."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path

import click

from wick._internal.paths import data_folder
from wick._internal.visible_text import format_count
from wick.capabilities.sessions import LOCAL
from wick.cli.command_group import CommandGroup
from wick.cli.completion import complete_agent_specs
from wick.cli.root_command import DONE, FAILED, INTERRUPTED
from wick.cli.terminal.output import JSON, print_table, show_status, strip_controls
from wick.constants import EVAL_JOBS
from wick.errors import ConfigError
from wick.evals.html_report import render_html
from wick.evals.importer import ImportedCases, ImportFilter, format_suite, import_threads, open_store
from wick.evals.recording_file import read_recordings, recordings_path, write_recordings
from wick.evals.report import (
    UNKNOWN_COST,
    VERDICTS,
    EvalCaseResult,
    EvalReport,
    count_verdicts,
    describe_check,
    format_spending,
    list_unscored_variants,
    read_report,
)
from wick.evals.runner import EvalOptions, SuiteRunner
from wick.evals.storage import check_report_name, store_report
from wick.evals.suite import EvalSuite, load_suite
from wick.evals.variants import name_variants
from wick.testing.redaction import RecordingRedactor

FILE = click.Path(path_type=Path, dir_okay=False)
SHOWN_FAILURES = 20


_FAMILIAR_COMMANDS = {
    "record": "use: wick eval run SUITE --record",
    "replay": "use: wick eval run SUITE --offline",
    "compare": "a suite compares its `variants:`; to compare with a report, use: wick eval run SUITE --baseline REPORT",
}


class _EvalGroup(CommandGroup):
    """The commands of evals, with a hint for a suite in the place of a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _FAMILIAR_COMMANDS and not ctx.resilient_parsing:
            raise click.UsageError(f"there is no command {cmd_name!r}; {_FAMILIAR_COMMANDS[cmd_name]}", ctx)
        if cmd_name.endswith((".yaml", ".yml", ".jsonl")) and not ctx.resilient_parsing:  # as in completion
            raise click.UsageError(f"{cmd_name} is a suite, not a command; run it with: wick eval run {cmd_name}", ctx)
        return super().get_command(ctx, cmd_name)


@click.group("eval", cls=_EvalGroup)
def command() -> None:
    """Run the cases of a suite with several agents, and compare the results."""


@command.command("run")
@click.argument("path", metavar="SUITE", type=FILE)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="FILE[:ID]",
    help="An agent to test, instead of the variants of the suite; repeatable.",
    shell_complete=complete_agent_specs,
)
@click.option(
    "--case", "cases", multiple=True, metavar="PATTERN", help="Run only cases with a matching id; repeatable."
)
@click.option("--variant", "variants", multiple=True, metavar="NAME", help="Run only this variant; repeatable.")
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=EVAL_JOBS, show_default=True, help="The number of concurrent cases."
)
@click.option(
    "--record", is_flag=True, help="Call models and tools, and store their replies and results beside the suite."
)
@click.option("--offline", is_flag=True, help="Call no model: a case without recorded replies fails.")
@click.option("--baseline", type=FILE, help="An earlier report: ignore the failures that it contains.")
@click.option("--output", "-o", type=FILE, help="Write the report as JSON to this file.")
@click.option("--html", type=FILE, help="Write the report as one HTML file.")
@click.option("--save", metavar="NAME", default="", help="Store the report in the data folder, for the web interface.")
@JSON
def run(
    path: Path,
    agents: tuple[str, ...],
    cases: tuple[str, ...],
    variants: tuple[str, ...],
    jobs: int,
    record: bool,
    offline: bool,
    baseline: Path | None,
    output: Path | None,
    html: Path | None,
    save: str,
    as_json: bool,
) -> None:
    """Run the cases of SUITE, print a table, and exit with 1 if a case fails.

    With --baseline, only failures that are not in that report count.
    """
    if save:
        check_report_name(save)
    for report_file in filter(None, (output, html)):
        _prepare_file(report_file)
    suite = _select_parts(load_suite(path), path, agents, cases, variants)
    stored = recordings_path(path)
    options = EvalOptions(
        folder=Path() if agents else path.absolute().parent,
        jobs=jobs,
        recordings=read_recordings(stored),
        record=record,
        offline=offline,
        baseline=read_report(baseline) if baseline is not None else None,
    )
    with _show_progress(len(suite.cases) * len(suite.variants)) as advance:
        options.on_result = lambda case, variant, result: advance()
        runner = asyncio.run(_run_until_interrupt(suite, options))
    report = runner.build_report()
    if record:
        if options.recordings:
            write_recordings(stored, options.recordings, suite, options.redactor)
        click.echo(f"recorded in {stored}" if runner.recorded else "nothing was recorded", err=True)
        for case, variant in sorted(runner.results.keys() - runner.recorded):
            click.echo(f"not recorded, as the run failed: {case}, {variant}", err=True)
    if notice := _describe_shared_replies(suite, record):
        click.echo(notice, err=True)
    if output is not None:
        output.write_text(report.to_json(), encoding="utf-8")
    if html is not None:
        html.write_text(render_html(report), encoding="utf-8")
    if as_json:
        click.echo(report.to_json(), nl=False)
    else:
        print_report(report)
    if save:
        store_report(data_folder(), save, report)
    new_failures = report.failed > count_verdicts(report)["known_failure"]
    sys.exit(INTERRUPTED if report.partial else FAILED if new_failures else DONE)


def _describe_shared_replies(suite: EvalSuite, record: bool) -> str:
    """Return a notice if cases with replies were recorded, or are the same for variants that are to be compared."""
    count = sum(bool(case.replies) for case in suite.cases)
    having = f"{count:,} {'cases have' if count > 1 else 'case has'} replies of the suite"
    if count and record:
        return f"{having}: the model was not called"
    if count and any(variant.system_prompt or variant.model for variant in suite.variants.values()):
        return f"{having}, the same for every prompt and model; to compare them, remove `replies` and use --record"
    return ""


async def _run_until_interrupt(suite: EvalSuite, options: EvalOptions) -> SuiteRunner:
    """Run a suite, and return the runner. After Ctrl-C, which cancels the task, its report is partial."""
    runner = SuiteRunner(suite, options)
    with suppress(asyncio.CancelledError):
        await runner.run()
    return runner


def _prepare_file(path: Path) -> None:
    """Create the folder of a report before the run, which may be long; raise a ConfigError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}; choose another file") from None
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written; choose another file, or change the permissions")


def _select_parts(
    suite: EvalSuite, path: Path, agents: Sequence[str], cases: Sequence[str], variants: Sequence[str]
) -> EvalSuite:
    """Return a suite with the selected agents, cases and variants."""
    if agents:
        suite = suite.model_copy(update={"variants": name_variants(agents)})
    for name in variants:
        if name not in suite.variants:
            raise ConfigError(f"{path} has no variant {name!r}; its variants are {', '.join(suite.variants)}")
    if variants:
        suite = suite.model_copy(update={"variants": {name: suite.variants[name] for name in variants}})
    if cases:
        found = [case for case in suite.cases if any(fnmatchcase(case.id, pattern) for pattern in cases)]
        if not found:
            raise ConfigError(f"{path} has no case {' or '.join(map(repr, cases))}")
        suite = suite.model_copy(update={"cases": found})
    return suite


@contextmanager
def _show_progress(total: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar while the block runs, if stderr is a terminal; yield the function that advances it."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("running cases"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)


# -- import ----------------------------------------------------------------------------------------------------------

DATA_FOLDER = "the data folder"


@command.command("import")
@click.argument("misplaced", required=False, default="", metavar="")
@click.option(
    "--from-threads",
    "store",
    metavar="[STORE]",
    is_flag=False,
    flag_value=DATA_FOLDER,
    help="The folder, file or URL of a store, as postgresql://…; the data folder by default.",
)
@click.option("--output", "-o", type=FILE, required=True, help="The new suite file: .yaml or .jsonl.")
@click.option("--agent", default="", metavar="NAME", help="Import only runs of this agent.")
@click.option("--thread", "threads", multiple=True, metavar="ID", help="Import only this thread; repeatable.")
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"]),
    help="Import only runs since this day or time.",
)
@click.option("--owner", default=LOCAL, show_default=True, help="The owner of the threads: a user of a server.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=1_000,
    show_default=True,
    help="The maximum number of cases, from the latest threads.",
)
@click.option("--redact", "patterns", multiple=True, metavar="REGEX", help="Also redact texts that match; repeatable.")
@click.option("--inputs-only", is_flag=True, help="Leave out the model's replies, to call the model with each variant.")
def import_cases(
    misplaced: str,
    store: str | None,
    output: Path,
    agent: str,
    threads: tuple[str, ...],
    since: datetime | None,
    owner: str,
    limit: int,
    patterns: tuple[str, ...],
    inputs_only: bool,
) -> None:
    """Write a suite whose cases are the runs of stored threads.

    A case has the input, the model's replies, the results of tools, and expectations: the calls, their order and the
    decisions about them. Keys, tokens and passwords are redacted.
    """
    if misplaced or store is None:
        option = f"--from-threads {misplaced or './threads'}"
        raise ConfigError(f"name the store of the threads: {option}; or --from-threads alone for the data folder")
    if output.suffix not in (".yaml", ".yml", ".jsonl"):
        raise ConfigError(f"{output} is not a suite; its name must end with .yaml or .jsonl")
    if output.exists():
        raise ConfigError(f"{output} already exists; choose another name")
    wanted = ImportFilter(owner, agent, threads, since.timestamp() if since else 0.0, limit, inputs_only)
    redactor, place = RecordingRedactor(patterns), str(data_folder()) if store == DATA_FOLDER else store

    async def read_store() -> tuple[ImportedCases, int]:
        async with open_store(place) as opened:
            return await import_threads(opened, wanted, redactor), await opened.count(owner)

    with show_status("reading threads"):
        found, threads_of_owner = asyncio.run(read_store())
    for line in found.skipped:
        click.echo(f"skipped {strip_controls(line)}", err=True)
    if not found.cases:
        if threads_of_owner:
            count = format_count(threads_of_owner, "thread")
            raise ConfigError(f"no runs were found in {count} of the owner {owner!r}; check --agent, --thread, --since")
        raise ConfigError(
            f"the owner {owner!r} has no threads in this store; pass --owner NAME, the user= of the runs or the user "
            f"of a server (runs without a user belong to {LOCAL!r})"
        )
    output.write_text(format_suite(found.cases, output.suffix), encoding="utf-8")
    redacted = f", {format_count(redactor.count, 'text')} redacted" if redactor.count else ""
    click.echo(f"{format_count(len(found.cases), 'case')} in {output}{redacted}")


# -- the table -------------------------------------------------------------------------------------------------------


def print_report(report: EvalReport) -> None:
    """Print a table of cases and variants, the totals, and the reasons of failures."""
    names = [variant.name for variant in report.variants]
    rows = [(case.id, *(_format_cell(case.results.get(name)) for name in names)) for case in report.cases]
    unscored = list_unscored_variants(report)
    totals = list[str]()
    for one in report.variants:
        score = [] if one.name in unscored else [f"{one.score:.2f}"]  # as in the cells
        totals.append(", ".join([f"{one.passed}/{one.passed + one.failed} pass", *score, *format_spending(one)]))
    print_table(("case", *names), [*rows, ("total", *totals)])
    if any(one.cost is None for one in report.variants):
        click.echo(UNKNOWN_COST)
    failures = [
        f"{case.id}, {name}: {describe_check(check)}"
        for case in report.cases
        for name, result in case.results.items()
        for check in result.checks
        if not check.passed
    ]
    for line in failures[:SHOWN_FAILURES]:
        click.echo(strip_controls(line), err=True)
    if len(failures) > SHOWN_FAILURES:
        click.echo(f"… and {len(failures) - SHOWN_FAILURES:,} more; see --output or --html", err=True)
    if report.partial:
        click.echo(f"partial: {report.finished:,} of {report.planned:,} results", err=True)
        return
    counts = count_verdicts(report)
    for count, noun in ((counts["regressed"], "regression"), (counts["known_failure"], "known failure")):
        if count:
            click.echo(format_count(count, noun), err=True)
    if counts["changed"]:
        results = format_count(counts["changed"], "result")
        click.echo(f"{results} with changed requests; if the change is intended, record again: --record", err=True)


def _format_cell(result: EvalCaseResult | None) -> str:
    """Return the verdict and the figures of a result; the failed checks in place of a score that leaves them out."""
    if result is None:
        return "not run"
    score = "" if result.verdict == "changed" else f" {', '.join(result.replay_failures) or f'{result.score:.2f}'}"
    return ", ".join([f"{VERDICTS[result.verdict]}{score}", *format_spending(result)])
