"""The live table of a soak; lines, where there is no terminal."""

from __future__ import annotations

import sys
from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.table import Table

from soak_test.report import BAD
from soak_test.soak import Soak

LINE_SECONDS = 10.0


class Showing:
    """A live display of a soak, as a context manager."""

    def __init__(self, seconds: float, quiet: bool = False) -> None:
        self.seconds, self.quiet, self._said = seconds, quiet, 0.0
        self._live = None if quiet or not sys.stdout.isatty() else Live(console=Console(), refresh_per_second=2)

    def __enter__(self) -> Showing:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, soak: Soak) -> None:
        if self._live is not None:
            self._live.update(_table(soak, self.seconds))
        elif not self.quiet and monotonic() - self._said >= LINE_SECONDS:
            self._said = monotonic()
            print("  ".join(f"{name} {value}" for name, value in _rows(soak, self.seconds)), flush=True)


def _rows(soak: Soak, seconds: float) -> list[tuple[str, str]]:
    ledger, samples = soak.ledger, soak.vitals.samples
    last = samples[-1] if samples else None
    return [
        ("time", f"{seconds - soak.seconds_left:.0f}/{seconds:.0f} s"),
        ("turns", f"{sum(ledger.ended.values())} ({len(ledger.live)} live)"),
        ("completed", f"{ledger.share:.2%} of the untouched"),
        ("streams", str(ledger.open_streams)),
        ("tools", str(ledger.counts["tool_calls"])),
        *((kind, str(ledger.counts[kind])) for kind in BAD),
        ("faults", " ".join(f"{name}:{count}" for name, count in sorted(ledger.faults.items()))),
        ("server", f"{last.megabytes:.0f} MB, {last.files} files" if last is not None else "starts"),
        ("last", ledger.recent[-1] if ledger.recent else ""),
    ]


def _table(soak: Soak, seconds: float) -> Table:
    table = Table(show_header=False, title="soak")
    for name, value in _rows(soak, seconds):
        table.add_row(name, value)
    return table
