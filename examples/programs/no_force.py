#!/usr/bin/env python3
"""Refuses to force a push, and asks before anything else is pushed."""

from wick.program import program

hook = program()


@hook.guard_tool_use(match="execute")
def no_force(call):
    words = call["args"]["command"].split()
    if "push" in words and {"--force", "-f"} & set(words):
        return hook.block("force is not allowed; push to a branch of your own")
    if "push" in words:
        return hook.ask("Push?")


hook.main()
