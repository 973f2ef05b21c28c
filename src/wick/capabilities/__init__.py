"""Capabilities of agents, one per module. No capability imports another.

A name is imported when it is first used: `from wick.capabilities import Budget` imports that module alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wick._internal.familiar_words import CAPABILITY_NAMES
from wick._internal.lazy_names import lazy_names

if TYPE_CHECKING:
    from wick.capabilities.ask_user import AskUser, Inquiry, Terminal
    from wick.capabilities.budget import Budget
    from wick.capabilities.builtins import Builtins
    from wick.capabilities.code_mode import CodeMode
    from wick.capabilities.context import Context
    from wick.capabilities.critique import Critique
    from wick.capabilities.executables import Executables
    from wick.capabilities.fallback import Fallback
    from wick.capabilities.filesystem import Filesystem
    from wick.capabilities.information_flow import InformationFlow
    from wick.capabilities.limits import Limits
    from wick.capabilities.mcp import MCP
    from wick.capabilities.memory import Memory
    from wick.capabilities.metadata import Metadata
    from wick.capabilities.permissions import Permissions
    from wick.capabilities.recipes import Recipes
    from wick.capabilities.recorder import Recorder
    from wick.capabilities.retry import Retry
    from wick.capabilities.self_description import SelfDescription
    from wick.capabilities.sessions import Sessions
    from wick.capabilities.skills import Skills
    from wick.capabilities.snapshots import Snapshots
    from wick.capabilities.structured_output import StructuredOutput
    from wick.capabilities.subagents import Subagent, Subagents
    from wick.capabilities.summarization import Summarization
    from wick.capabilities.todos import Todos
    from wick.capabilities.tool_search import ToolSearch
    from wick.capabilities.tracing import Tracing
    from wick.capabilities.usage_log import UsageLog

__all__ = [
    "AskUser", "Budget", "Builtins", "CodeMode", "Context", "Critique", "Executables", "Fallback", "Filesystem",
    "InformationFlow", "Inquiry", "Limits", "MCP", "Memory", "Metadata", "Permissions", "Recipes", "Recorder", "Retry",
    "SelfDescription", "Sessions", "Skills", "Snapshots", "StructuredOutput", "Subagent", "Subagents", "Summarization",
    "Terminal", "Todos", "ToolSearch", "Tracing", "UsageLog",
]  # fmt: skip

_MODULES = {
    "AskUser": "ask_user", "Budget": "budget", "Builtins": "builtins",
    "CodeMode": "code_mode", "Context": "context",
    "Critique": "critique", "Executables": "executables", "Fallback": "fallback", "Filesystem": "filesystem",
    "InformationFlow": "information_flow",
    "Inquiry": "ask_user", "Limits": "limits", "MCP": "mcp", "Memory": "memory", "Metadata": "metadata",
    "Permissions": "permissions", "Recipes": "recipes", "Recorder": "recorder", "Retry": "retry",
    "SelfDescription": "self_description", "Sessions": "sessions", "Skills": "skills", "Snapshots": "snapshots",
    "StructuredOutput": "structured_output", "Subagent": "subagents", "Subagents": "subagents",
    "Summarization": "summarization",
    "Terminal": "ask_user", "Todos": "todos", "ToolSearch": "tool_search", "Tracing": "tracing",
    "UsageLog": "usage_log",
}  # fmt: skip

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__, __dir__ = lazy_names(__name__, _MODULES, CAPABILITY_NAMES)
