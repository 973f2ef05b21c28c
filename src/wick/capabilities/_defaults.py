"""The default capabilities of every agent. A capability with the same name replaces the default."""

from __future__ import annotations

from wick.capabilities.limits import Limits
from wick.capabilities.retry import Retry
from wick.capabilities.tracing import Tracing
from wick.capability import Capability

DEFAULTS: tuple[Capability, ...] = (Tracing(), Limits(), Retry())
