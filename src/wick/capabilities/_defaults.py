"""The default capabilities of agents. A capability with the same name replaces the default."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from wick import capabilities
from wick._internal.tool_flow import FOREIGN
from wick.capabilities.limits import Limits
from wick.capabilities.retry import Retry
from wick.capabilities.tracing import Tracing
from wick.capability import Capability
from wick.tools import Tool

DEFAULTS: tuple[Capability, ...] = (Tracing(), Limits(), Retry())
INFORMATION_FLOW = "information_flow"
DEFAULT_NAMES = frozenset((*(part.name for part in DEFAULTS), INFORMATION_FLOW))


def choose_defaults(tools: Iterable[Tool]) -> tuple[Capability, ...]:
    """Return the default capabilities of an agent with these tools.

    `InformationFlow` is one of them if a tool declares that it returns untrusted data, and a tool can change something.
    wick's own tools that read the workspace or the thread do not count. A child agent with the tools of its parent is
    under the guard of the parent.
    """
    reads, changes = False, False
    for tool in tools:
        flow, owner = tool.flow, getattr(tool.fn, "__self__", None)
        if isinstance(owner, Capability) and owner.name == INFORMATION_FLOW:
            return DEFAULTS
        if flow is not None and not FOREIGN.isdisjoint(flow.authors.values()):
            reads = reads or tool.kind == "network" or not _is_own(tool)
        changes = changes or (tool.effect not in ("read", "write", "fetch") and tool.kind != "shell")
    return (*DEFAULTS, _load_information_flow()) if reads and changes else DEFAULTS


@cache  # one for all agents, so that a child agent and its parent have the same guard
def _load_information_flow() -> Capability:
    """Return the default `InformationFlow`, which is imported on first use."""
    return capabilities.InformationFlow()


def _is_own(tool: Tool) -> bool:
    return getattr(tool.fn, "__module__", "").startswith("wick.")
