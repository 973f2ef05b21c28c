"""Run AgentDojo against wick, with a scripted model that obeys every injection: the program of bench/dojo/.

    python bench/dojo.py            # about two minutes; the first time it creates an environment with uv

See bench/README.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent / "dojo"
ENVIRONMENT, PINS = HERE / ".env", HERE / "pins.txt"
SECONDS = 900  # time limit of the installation


def prepare() -> str:
    """Create the environment, unless it exists with the current pins. Return an error, or an empty string."""
    ready = ENVIRONMENT / "ready"
    if ready.exists() and ready.read_text() == PINS.read_text():
        return ""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        return "uv is missing; install it with pip install uv"
    print("creating an environment for AgentDojo …", flush=True)
    python = str(ENVIRONMENT / "bin" / "python")
    commands = [
        [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(ENVIRONMENT)],
        [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, "--requirement", str(PINS)],
        [uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(HERE.parent.parent)],
    ]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        if done.returncode:
            return f"the environment cannot be installed: {done.stderr.strip()}"
    ready.write_text(PINS.read_text())
    return ""


if __name__ == "__main__":
    if problem := prepare():
        sys.exit(problem)
    sys.exit(subprocess.run([ENVIRONMENT / "bin" / "python", HERE / "measure.py", *sys.argv[1:]]).returncode)
