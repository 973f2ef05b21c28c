"""Templates of hook programs for `wick hooks new`."""

from __future__ import annotations

from wick.errors import ConfigError
from wick.hook_programs.kodelet import EVENTS as EVENTS

LANGUAGES = ("python", "sh", "node")

_ANSWERS = {
    "before_tool_call": '{"blocked": false}',
    "after_tool_call": "{}",
    "user_message_send": '{"blocked": false}',
    "agent_stop": '{"follow_up_messages": []}',
    "turn_end": "{}",
}
_HINTS = {
    "before_tool_call": 'tool_name and tool_input; {"blocked": true, "reason": "…"} refuses, {"input": {…}} changes it',
    "after_tool_call": 'tool_name, tool_input and tool_output; {"output": {…}} replaces it',
    "user_message_send": 'message; {"blocked": true, "reason": "…"} refuses it',
    "agent_stop": 'messages; {"follow_up_messages": ["…"]} sends the agent back to work',
    "turn_end": "response and turn_number; the answer is ignored",
}

_PYTHON = '''\
#!/usr/bin/env python3
"""Hook for {event}. Input: {hint}."""

import json
import sys

if sys.argv[1:] == ["hook"]:
    print("{event}")
elif sys.argv[1:] == ["run"]:
    event = json.load(sys.stdin)
    print('{answer}')
else:
    sys.exit("usage: hook | run")
'''
_SH = """\
#!/bin/sh
# Hook for {event}. Input: {hint}.
case "$1" in
hook) echo {event} ;;
run)
    event=$(cat)
    printf '%s\\n' '{answer}' ;;
*) echo "usage: hook | run" >&2; exit 1 ;;
esac
"""
_NODE = """\
#!/usr/bin/env node
// Hook for {event}. Input: {hint}.
const command = process.argv[2];
if (command === "hook") {{
  console.log("{event}");
}} else if (command === "run") {{
  let text = "";
  process.stdin.on("data", (chunk) => (text += chunk));
  process.stdin.on("end", () => {{
    const event = JSON.parse(text);
    console.log(JSON.stringify({answer}));
  }});
}} else {{
  console.error("usage: hook | run");
  process.exit(1);
}}
"""
_TEXTS = {"python": _PYTHON, "sh": _SH, "node": _NODE}


def render_program(language: str, event: str) -> str:
    """Return the source of a program that allows everything, with a comment on other answers."""
    if language not in _TEXTS or event not in _ANSWERS:
        raise ConfigError(f"no template in {language} for {event}")
    return _TEXTS[language].format(event=event, hint=_HINTS[event], answer=_ANSWERS[event])
