#!/usr/bin/env python3
"""Refuses commands that delete without asking."""

import json
import sys

call = json.load(sys.stdin)
if call["tool_name"] == "Bash" and "rm -rf" in call["tool_input"]["command"]:
    reason = "rm -rf is not allowed here; name the files one by one"
    verdict = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    print(json.dumps({"hookSpecificOutput": verdict}))
