"""Text drawings of the rings around each operation, from the outside in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from wick.api.types import OperationRings
from wick.cli.terminal.output import strip_controls

MAX_DEPTH = 20  # levels of indentation


def draw_rings(operations: Iterable[OperationRings]) -> Iterator[str]:
    """Yield the lines of a drawing: each ring one level deeper, all guards on the last level."""
    for operation in operations:
        if not operation.rings and not operation.guards:
            continue
        yield click.style(operation.operation, bold=True)
        depth = 1
        for ring in (*operation.rings, *operation.guards):
            remark = "  (fail: open)" if ring.fail == "open" else ""
            yield f"{'  ' * min(depth, MAX_DEPTH)}{ring.position:<7}{strip_controls(ring.hook)}{remark}"
            depth += ring.position != "guard"
        yield f"{'  ' * min(depth, MAX_DEPTH)}● operation\n"
