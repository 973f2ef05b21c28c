"""The program of Docker Compose: the plugin of the Docker client, or the one of Debian."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache


@cache
def compose_command() -> tuple[str, ...]:
    """Return the words that call it; none if it is not installed."""
    plugin = ("docker", "compose")
    if shutil.which("docker") and not subprocess.run([*plugin, "version"], capture_output=True, check=False).returncode:
        return plugin
    return ("docker-compose",) if shutil.which("docker-compose") else ()
