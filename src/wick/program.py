"""Write a hook program as a few functions.

    #!/usr/bin/env python3
    from wick.program import program

    hook = program()

    @hook.guard_tool_use(match="execute")
    def no_force(call):
        if "--force" in call["args"]["command"]:
            return hook.block("force is not allowed")

    hook.main()

The program supports three protocols. `<file> hook` and `<file> serve` are wick's own: one process serves all events.
`<file> run` starts a process for each event. Without an argument, the program is a command hook of Claude Code.
A function always gets the same dict: `tool` and `args` with wick's names, `result` after a tool use, `prompt` for the
user's text, and all fields of the caller.

This module needs only the standard library. For a program that is started for every event, copy this file next to it
and write `from program import program`: that saves the import time of wick.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar, overload

__all__ = ["Program", "Said", "program"]

Fn = TypeVar("Fn", bound=Callable[..., Any])
Call = dict[str, Any]

POINTS = tuple(
    f"{position}_{operation}"
    for operation in ("run", "step", "model_call", "tool_use")
    for position in ("before", "wrap", "after", "guard")
)

# Equivalent events: wick's points, then events of single-event programs, then Claude Code's.
EQUIVALENT_EVENTS = (
    ("before_tool_use", "guard_tool_use", "before_tool_call", "PreToolUse"),
    ("after_tool_use", "after_tool_call", "PostToolUse"),
    ("before_run", "guard_run", "user_message_send", "UserPromptSubmit"),
    ("after_step", "agent_stop", "Stop"),
    ("after_run", "turn_end"),
)
SINGLE_EVENTS = ("before_tool_call", "after_tool_call", "user_message_send", "agent_stop", "turn_end")
CLAUDE_EVENTS = (
    "SessionStart UserPromptSubmit PreToolUse PermissionRequest PostToolUse PostToolUseFailure SubagentStart "
    "SubagentStop PreCompact PostCompact Notification Stop SessionEnd"
).split()
DECIDING_EVENTS = ("before_tool_call", "user_message_send", "PreToolUse", "UserPromptSubmit", "PermissionRequest")

TOOLS = {
    "Bash": "execute", "bash": "execute", "LS": "ls", "Read": "read_file", "file_read": "read_file",
    "Write": "write_file", "file_write": "write_file", "Edit": "edit_file", "file_edit": "edit_file",
    "Glob": "glob", "glob_tool": "glob", "Grep": "grep", "grep_tool": "grep", "Task": "task", "subagent": "task",
    "TodoWrite": "write_todos", "todo_write": "write_todos",
}  # fmt: skip
ARGUMENTS = {
    "ls": {"file_path": "path"},
    "read_file": {"file_path": "path", "line_limit": "limit"},
    "write_file": {"file_path": "path", "text": "content"},
    "edit_file": {"file_path": "path", "old_string": "old_text", "new_string": "new_text"},
    "glob": {"ignore_gitignore": "everything"},
    "grep": {"include": "glob", "-i": "ignore_case"},
    "task": {"subagent_type": "agent", "question": "prompt"},
}


KINDS = {
    "execute": "shell", "ls": "read", "read_file": "read", "glob": "read", "grep": "read", "write_file": "write",
    "edit_file": "write", "task": "agent",
}  # fmt: skip


class Said(dict[str, Any]):
    """The answer of a function in wick's format. It is translated to the caller's protocol."""


def program(*, threads: int = 1) -> Program:
    """Create a program without functions. With several `threads` it handles calls in parallel."""
    return Program(threads=threads)


class PointDecorator(Protocol):
    """The decorator of a point, with or without `match`."""

    @overload
    def __call__(self, fn: Fn, /) -> Fn: ...

    @overload
    def __call__(self, *, match: str = "") -> Callable[[Fn], Fn]: ...


class Program:
    """A hook program: functions registered for events, and tools."""

    def __init__(self, *, threads: int = 1) -> None:
        self._threads = threads
        self._functions: list[_EventFunction] = []
        self._tools: dict[str, _Tool] = {}

    # -- registration -----------------------------------------------------------------------------------------------

    def on(self, *events: str, match: str = "") -> Callable[[Fn], Fn]:
        """Register a function for events. `match` restricts it to some tools: "execute|write_*"."""
        unknown = [event for event in events if event not in (*POINTS, *SINGLE_EVENTS, *CLAUDE_EVENTS)]
        if unknown or not events:
            raise ValueError(f"there is no event {', '.join(unknown) or 'given'}; wick's are {', '.join(POINTS)}")

        def register(fn: Fn) -> Fn:
            self._functions += [_EventFunction(fn, event, match) for event in events]
            return fn

        return register

    def __getattr__(self, event: str) -> PointDecorator:
        """Return the decorator of a point, as in `@hook.guard_tool_use(match="execute")`."""
        if event not in POINTS:
            raise AttributeError(f"there is no {event!r}; the points are {', '.join(POINTS)}")

        def decorate(fn: Callable[..., Any] | None = None, *, match: str = "") -> Any:
            register = self.on(event, match=match)
            return register if fn is None else register(fn)

        return decorate

    @overload
    def tool(self, fn: Fn, /) -> Fn: ...

    @overload
    def tool(self, *, parameters: Mapping[str, Any] | None = None) -> Callable[[Fn], Fn]: ...

    def tool(self, fn: Any = None, *, parameters: Mapping[str, Any] | None = None) -> Any:
        """Register a function as a tool. Its name, docstring and type hints describe it to the model."""

        def register(fn: Fn) -> Fn:
            self._tools[fn.__name__] = _Tool(fn, dict(parameters or _describe_parameters(fn)))
            return fn

        return register if fn is None else register(fn)

    # -- answers of a function --------------------------------------------------------------------------------------

    @staticmethod
    def block(reason: str) -> Said:
        """Refuse the operation."""
        return Said(decision="block", reason=reason)

    @staticmethod
    def ask(question: str) -> Said:
        """Perform the operation only if the user agrees."""
        return Said(decision="ask", question=question)

    @staticmethod
    def stop(reason: str) -> Said:
        """End the run."""
        return Said(decision="stop", reason=reason)

    @staticmethod
    def go_on(message: str) -> Said:
        """Continue the run with a message to the model. For `after_step`, `agent_stop` and `Stop`."""
        return Said(decision="continue", message=message)

    @staticmethod
    def change(**fields: Any) -> Said:
        """Change the `args`, `result`, `input` or `system`."""
        return Said(fields)

    @staticmethod
    def context(text: str) -> Said:
        """Add text to the model's context. For events of Claude Code."""
        return Said(context=text)

    # -- execution --------------------------------------------------------------------------------------------------

    def main(self, argv: list[str] | None = None) -> None:
        """Run the program with the protocol that the arguments select."""
        words = sys.argv[1:] if argv is None else argv
        if words == ["hook"]:
            print(self.describe())
        elif words == ["serve"]:
            answers = _reserve_stdout()
            for _ in range(self._threads - 1):
                Thread(target=self._answer_lines, args=(answers,), daemon=True).start()
            self._answer_lines(answers)
        elif words in ([], ["run"]):
            sys.exit(self._answer_one())
        else:
            sys.exit(f"usage: {sys.argv[0]} hook | serve | run, or no argument and the event on the standard input")

    def describe(self) -> str:
        """Return the output of `<program> hook`: one event, or the points and tools of a persistent program."""
        names = {function.event for function in self._functions}
        if not self._tools and len(names) == 1 and names <= {*SINGLE_EVENTS}:
            return names.pop()
        points = filter(None, (_point_of(function.event) for function in self._functions))
        description: dict[str, Any] = {"points": list(dict.fromkeys(points)), "protocol": "lines"}
        matches = {function.match for function in self._functions}
        if matches and "" not in matches and all(point.endswith("_tool_use") for point in description["points"]):
            description["match"] = "|".join(sorted(matches))
        if self._tools:
            description["tools"] = [tool.describe(name) for name, tool in self._tools.items()]
        return json.dumps(description)

    def answer(self, call: Call) -> Call:
        """Return the answer to one event, in the protocol of its sender."""
        event = str(call.get("hook_event_name") or call.get("event") or "")
        if event == "tool" and "hook_event_name" not in call:
            if (tool := self._tools.get(str(call.get("tool")))) is None:
                return {"error": f"there is no tool {call.get('tool')!r}; the tools are {', '.join(self._tools)}"}
            return {"output": tool.fn(**call.get("args", {}))}
        view = _build_view(call, event)
        merged, plain, called = Said(), {}, set[Any]()
        for function in self._functions:
            if function.fn not in called and function.handles(event, view):
                called.add(function.fn)  # it may be registered for equivalent events
                answer = function.fn(view)
                if isinstance(answer, Said):
                    _merge_answer(merged, answer, view)
                elif answer is not None:
                    plain.update(answer)
            if merged.get("decision") in ("block", "stop"):
                break
        if event in POINTS or not merged:
            return {**{name: value for name, value in merged.items() if name != "context"}, **plain}
        translate = _for_claude if "hook_event_name" in call else _for_single
        return {**translate(merged, event, call), **plain}

    def _answer_one(self) -> int:
        """Answer one event from the standard input, and return the exit code."""
        answers = _reserve_stdout()
        try:
            call = dict(json.loads(sys.stdin.buffer.read()))
        except (ValueError, TypeError):
            print("the standard input is not an event: expected a JSON object", file=sys.stderr)
            return 2  # a refusal, where exit codes count
        event = str(call.get("hook_event_name") or call.get("event") or "")
        try:
            answer = self.answer(call)
        except Exception as error:  # a failed function is a refusal, also for callers that ignore errors
            sys.excepthook(type(error), error, error.__traceback__)
            if event not in DECIDING_EVENTS:
                return 1
            if event in CLAUDE_EVENTS:
                return 2
            answer = {"blocked": True, "reason": f"the hook failed: {_error_text(error)}"}
        if answer:
            _write(answers, answer)
        return 0

    def _answer_lines(self, answers: int) -> None:
        while True:
            with _READING:
                line = sys.stdin.buffer.readline()
            if not line:
                return
            call = json.loads(line)
            id = call.pop("id", None)
            try:
                answer = {**self.answer(call), "id": id}
            except Exception as error:
                answer = {"id": id, "error": _error_text(error)}
            _write(answers, answer)


class _EventFunction:
    """A function registered for one event."""

    def __init__(self, fn: Callable[..., Any], event: str, match: str) -> None:
        self.fn, self.event, self.match = fn, event, match

    def handles(self, event: str, view: Call) -> bool:
        if event in POINTS:
            result = view.get("result")
            is_last_step = isinstance(result, dict) and result.get("decision") == "stop"
            if event != _point_of(self.event) or (self.event in ("agent_stop", "Stop") and not is_last_step):
                return False
        elif event != self.event and not any(event in kin and self.event in kin for kin in EQUIVALENT_EVENTS):
            return False
        return not self.match or _matches(self.match, view)


class _Tool:
    """A function that the model can call."""

    def __init__(self, fn: Callable[..., Any], parameters: dict[str, Any]) -> None:
        self.fn, self.parameters = fn, parameters

    def describe(self, name: str) -> Call:
        return {"name": name, "description": inspect.getdoc(self.fn) or name, "parameters": self.parameters}


def _point_of(event: str) -> str:
    """Return the point of wick for an event, or an empty text for events that only Claude Code has."""
    if event in POINTS:
        return event
    return next((kin[0] for kin in EQUIVALENT_EVENTS if event in kin), "")


def _matches(match: str, view: Call) -> bool:
    names = {view.get("tool"), view.get("tool_name"), *view.get("names", ())}
    kind = view.get("kind", KINDS.get(str(view.get("tool"))))
    for pattern in (part.strip() for part in match.split("|")):
        if pattern.startswith("kind:") and kind is None:
            return True  # the caller sends no kind: call the function to be safe
        if any(fnmatchcase(str(name), pattern) for name in (*names, f"kind:{kind}")):
            return True
    return False


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}


def _describe_parameters(fn: Callable[..., Any]) -> Call:
    """Return the JSON Schema of a function's arguments, from its type hints."""
    parameters = inspect.signature(fn, eval_str=True).parameters.values()
    properties = {one.name: {"type": _TYPES.get(one.annotation, "string")} for one in parameters}
    needed = [one.name for one in parameters if one.default is inspect.Parameter.empty]
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


# -- translating events ---------------------------------------------------------------------------------------------


def _build_view(call: Call, event: str) -> Call:
    """Return an event in the common format for functions."""
    view = dict(call)
    if event in POINTS:
        if isinstance(call.get("input"), list):
            view["prompt"] = "\n".join(one["content"] for one in call["input"] if one.get("role") == "user")
        return view
    if "tool_name" in call:
        view["tool"] = TOOLS.get(call["tool_name"], call["tool_name"])
        view["args"] = _rename_args(call.get("tool_input") or {}, ARGUMENTS.get(view["tool"], {}))
        view["call_id"] = call.get("tool_use_id") or call.get("tool_user_id") or ""
    if "tool_output" in call:
        output = call["tool_output"]
        text = (output.get("metadata") or {}).get("output", "")
        view["result"] = {"output": _as_text(text), "error": output.get("error") or ""}
    elif "tool_response" in call or "error" in call:
        view["result"] = {"output": _as_text(call.get("tool_response", "")), "error": call.get("error") or ""}
    if "message" in call or "prompt" in call:
        view["prompt"] = call.get("prompt", call.get("message"))
    return view


def _rename_args(args: Mapping[str, Any], names: Mapping[str, str]) -> Call:
    return {names.get(name, name): value for name, value in args.items()}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _merge_answer(merged: Said, more: Said, view: Call) -> None:
    """Merge the answers of several functions. Messages are joined; changed `args` are visible to the next function."""
    for name in ("message", "context", "question"):
        if name in merged and name in more:
            more = Said(more, **{name: f"{merged[name]}\n{more[name]}"})
    merged.update(more)
    view.update({name: more[name] for name in ("args",) if name in more})


# -- translating answers --------------------------------------------------------------------------------------------


def _for_single(said: Said, event: str, call: Call) -> Call:
    """Translate for a caller of single-event programs. It cannot ask the user, so `ask` becomes a refusal."""
    decision, reason = said.get("decision"), said.get("reason") or said.get("question") or ""
    if event == "agent_stop":
        return {"follow_up_messages": [said["message"]]} if decision == "continue" else {}
    if event == "after_tool_call":
        if "result" not in said:
            return {}
        result = {"output": said["result"]} if isinstance(said["result"], str) else said["result"]
        error, output = result.get("error") or "", result.get("output") or ""
        changed = {"success": not error, "error": error, "metadata": {"output": output}}
        return {"output": {**call.get("tool_output", {}), **changed}}
    if decision in ("block", "stop", "ask"):
        return {"blocked": True, "reason": reason}
    return {"blocked": False, "input": _restore_arg_names(said["args"], call)} if "args" in said else {}


def _for_claude(said: Said, event: str, call: Call) -> Call:
    decision, reason = said.get("decision"), said.get("reason") or said.get("question") or ""
    specific: Call = {"additionalContext": said["context"]} if "context" in said else {}
    answer: Call = {}
    if decision == "stop":
        answer = {"continue": False, "stopReason": reason}
    elif event == "PreToolUse":
        if decision:
            word = "deny" if decision == "block" else decision
            specific |= {"permissionDecision": word, "permissionDecisionReason": reason}
        if "args" in said:
            specific["updatedInput"] = _restore_arg_names(said["args"], call)
    elif event == "PermissionRequest" and decision == "block":
        specific["decision"] = {"behavior": "deny", "message": reason}
    elif decision in ("block", "continue"):
        answer = {"decision": "block", "reason": reason or said.get("message", "")}
    if event == "PostToolUse" and "result" in said:
        result = said["result"]
        specific["updatedToolOutput"] = result if isinstance(result, str) else result.get("output", "")
    return {**answer, "hookSpecificOutput": {"hookEventName": event, **specific}} if specific else answer


def _restore_arg_names(args: Mapping[str, Any], call: Call) -> Call:
    """Return arguments with the caller's names."""
    name = str(call.get("tool_name", ""))
    tool = TOOLS.get(name, name)
    given = call.get("tool_input") or {}
    back = {ours: theirs for theirs, ours in ARGUMENTS.get(tool, {}).items() if theirs in given}
    return _rename_args(args, back)


# -- input and output -----------------------------------------------------------------------------------------------


_READING, _WRITING = Lock(), Lock()


def _reserve_stdout() -> int:
    """Return a file descriptor for answers. Redirect all other standard output to the standard error."""
    sys.stdout.flush()
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _write(answers: int, answer: Call) -> None:
    """Write one line under a lock, so that lines of several threads do not mix."""
    data = memoryview(json.dumps(answer, default=str).encode() + b"\n")
    with _WRITING, suppress(BrokenPipeError):
        while data:
            data = data[os.write(answers, data) :]


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
