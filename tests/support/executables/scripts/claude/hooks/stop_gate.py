"""Does not let the agent stop before the tests pass; once, so that it cannot go round forever."""

import json
import os
import subprocess
import sys

stop = json.load(sys.stdin)
done = subprocess.run(["sh", "./run_tests"], cwd=os.environ["CLAUDE_PROJECT_DIR"], capture_output=True)
if done.returncode and not stop["stop_hook_active"]:
    reason = "The tests fail. Mend what is broken, then say that you are done."
    print(json.dumps({"decision": "block", "reason": reason}))
