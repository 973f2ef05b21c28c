#!/usr/bin/env python3
"""A hook for Claude Code: written files end with one line break, and the model is informed of the fix."""

import json
import sys
from pathlib import Path

told = json.load(sys.stdin)
file = Path(told["tool_response"]["filePath"])
assert str(file) == told["tool_input"]["file_path"] and file.is_absolute()
text = file.read_text()
tidy = "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())
if tidy != text:
    file.write_text(tidy)
    said = {"hookEventName": "PostToolUse", "additionalContext": f"{file.name} was formatted"}
    print(json.dumps({"hookSpecificOutput": said, "suppressOutput": True}))
