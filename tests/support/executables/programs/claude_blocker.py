#!/usr/bin/env python3
"""A hook for Claude Code: no command that deletes everything."""

import json
import sys

told = json.load(sys.stdin)
if "rm -rf" in told["tool_input"].get("command", ""):
    print("Deleting everything is not allowed here.", file=sys.stderr)
    sys.exit(2)
