"""The hooks every agent has. One that you give under the same name takes its place."""

from __future__ import annotations

from wick.capabilities.limits import Limits
from wick.capabilities.retry import Retry
from wick.capabilities.tracing import Tracing
from wick.capability import Capability

DEFAULTS: tuple[Capability, ...] = (Tracing(), Limits(), Retry())
