"""wick: agents made of hooks.

    from wick import Agent, Block, ToolUse, guard, tool

An agent is a loop around a language model that uses tools. Hooks observe, change, refuse, ask
and stop at every point of the loop.
"""

from typing import TYPE_CHECKING

from wick._internal.familiar_words import PACKAGE_NAMES
from wick._internal.lazy_names import suggest_names
from wick.agent import Agent, Stream
from wick.capabilities.limits import Limits
from wick.capability import Capability
from wick.decisions import Allow, Ask, Block, Continue, Question, Stop
from wick.errors import Paused, ToolError, WickError
from wick.hooks import Hook, Next, after, before, guard, wrap
from wick.messages import Message, Messages, ToolCall, ToolResult, assistant, system, tool_message, user
from wick.models.scripted import FunctionModel, Scripted
from wick.operations import ModelCall, Operation, Result, Run, Step, ToolUse
from wick.threads import Thread
from wick.tools import Deps, HttpTool, Tool, tool

__version__ = "0.1.0"

__all__ = [
    "Agent", "Allow", "Ask", "Block", "Capability", "Continue", "Deps", "FunctionModel", "Hook", "HttpTool", "Limits",
    "Message", "Messages", "ModelCall", "Next", "Operation", "Paused", "Question", "Result", "Run", "Scripted",
    "Step", "Stop", "Stream", "Thread", "Tool", "ToolCall", "ToolError", "ToolResult", "ToolUse", "WickError", "after",
    "assistant", "before", "guard", "system", "tool", "tool_message", "user", "wrap",
]  # fmt: skip

if not TYPE_CHECKING:
    _SEARCHED = (
        "capabilities",
        "models",
        "stores",
        "backends",
        "errors",
        "events",
        "messages",
        "protocols",
        "testing",
        "evals",
        "client",
    )
    __getattr__ = suggest_names(__name__, __all__, PACKAGE_NAMES, _SEARCHED)
