"""Generated commands that change files, the same for each run and step, and a plain folder in which they are repeated.

A command is in a sandbox or has an unprivileged user, never root's rights: generated ones may write through links.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from random import Random

FINISHED = "command finished"  # the last line of the output of each command
NOBODY = 65534
NAMES = ["a", "b", "c.txt", "long name", "-n", "ümlaut", "deep", ".hidden", "src"]
HALF = "sleep 0.15"  # so that a server can be killed when half of a change is made
COMMANDS = [
    f"rm -rf {{p}}; {HALF}; mkdir -p {{p}}; chmod {{folder_mode}} {{p}}; echo {{n}} > {{p}}/end",
    f"mkdir -p {{p}}/deep/deep; {HALF}; echo {{n}} > {{p}}/deep/deep/end",
    f"echo {{n}} > {{p}}; {HALF}; echo {{n}} >> {{p}}; chmod {{mode}} {{p}}",
    f"mv -f {{p}} {{q}}; {HALF}; echo {{n}} > {{p}}",
    f"ln -f {{p}} {{q}}; {HALF}; echo {{n}} >> {{q}}",
    f"ln -sfn {{p}} {{q}}; {HALF}; ln -sfn missing {{p}}",
    # not `cp -a {p} {q}`: the copy of a folder into itself depends on the order of its files on this disk
    f"rm -rf .copy; cp -a {{p}} .copy; {HALF}; mv -f .copy {{q}}; rm -f {{p}}",
    f"truncate -s {{n}} {{p}}; {HALF}; chmod {{mode}} {{p}}",
    f"install -m {{mode}} {{p}} {{q}}; {HALF}; truncate -s {{n}} {{q}}",
    f"touch -d 2001-01-01T00:00:00 {{p}}; {HALF}; printf %s {{n}} > {{p}}; touch -d 2001-01-01T00:00:00 {{p}}",
]


def generate_command(run: str, step: int) -> str:
    """Return the command of a step of a run."""
    random = Random(f"{run} {step}")

    def path() -> str:
        return "'./" + "/".join(random.choices(NAMES, k=random.choice([1, 1, 2]))) + "'"

    change = random.choice(COMMANDS).format(
        p=path(),
        q=path(),
        n=random.choice([0, 7, 111, 4096]),
        mode=random.choice(["644", "600", "755", "640"]),
        folder_mode=random.choice(["755", "700", "750"]),
    )
    # parts may fail; the file of steps shows that the command was run to its end
    return f"umask 022; ({change}) >/dev/null 2>&1; echo {step} >> steps; echo {FINISHED}"


def repeat_command(folder: Path, command: str) -> None:
    """Run a command in a folder of an unprivileged user, without its pause."""
    os.chown(folder, NOBODY, NOBODY)
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    subprocess.run(
        ["sh", "-c", command.replace(HALF, ":")],
        cwd=folder,
        env=environment,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
