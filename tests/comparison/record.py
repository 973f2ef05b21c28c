"""Run all programs of this folder, print a line for each, and store them in bench/results/comparison.json.

python tests/comparison/record.py                          # all, in the environments of bench/peers
python tests/comparison/record.py --only wick,agno --leaks rewrite,shell
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "bench")]

from judge import LEAKS, Verdict, judge  # noqa: E402
from peers import PEERS, Peer, prepare  # noqa: E402

RECORD = ROOT / "bench" / "results" / "comparison.json"
OTHERS = "openai-agents pydantic-ai langchain deepagents strands-agents agno google-adk smolagents"
FRAMEWORKS = ["wick", *OTHERS.split()]


def verdicts(frameworks: list[str], leaks: list[str]) -> Iterator[Verdict]:
    for name in frameworks:
        peer = PEERS[name]
        if wrong := "" if name == "wick" else prepare(peer) or extras(peer):
            yield from (Verdict(name, "", leak, "failed", wrong) for leak in leaks)
        else:
            yield from (_judged(peer, leak) for leak in leaks)


def extras(peer: Peer) -> str:
    """Install the documented extras of a framework. Return an error, or an empty string."""
    pins = HERE / "extras" / f"{peer.program}.txt"
    folder = _extras(peer)
    if not pins.exists() or (folder / "ready").exists():
        return ""
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    install = [uv or "uv", "pip", "install", "--quiet", "--no-deps", "--python", str(peer.home / "bin" / "python")]
    command = [*install, "--target", str(folder), "--requirement", str(pins)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        return f"the installation failed: {done.stderr.strip()[-200:]}"
    (folder / "ready").touch()
    return ""


def _extras(peer: Peer) -> Path:
    return peer.home.parent / f"extras-{peer.program}"


def _judged(peer: Peer, leak: str) -> Verdict:
    python = sys.executable if peer.name == "wick" else str(peer.home / "bin" / "python")
    return judge(peer.name, leak, [python], HERE / f"with_{peer.program}.py", path=_extras(peer))


def keep(found: list[Verdict]) -> None:
    """Store verdicts in the record, in place of older ones. A lock protects it from other processes."""
    RECORD.parent.mkdir(exist_ok=True)
    with open(RECORD.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _put(found)


def _put(found: list[Verdict]) -> None:
    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    frameworks = record.setdefault("frameworks", {})
    date = datetime.now(UTC).date().isoformat()
    for one in found:
        told = frameworks.setdefault(one.framework, {"version": "", "leaks": {}})
        told["version"] = one.version or told["version"]
        told["leaks"][one.leak] = {"verdict": one.verdict, "evidence": one.evidence, "date": date}
    record["date"] = date
    record["frameworks"] = {name: frameworks[name] for name in FRAMEWORKS if name in frameworks}
    for told in record["frameworks"].values():
        told["leaks"] = {leak: told["leaks"][leak] for leak in LEAKS if leak in told["leaks"]}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FRAMEWORKS), help="frameworks, separated by commas")
    parser.add_argument("--leaks", default=",".join(LEAKS), help="leaks, separated by commas")
    parser.add_argument("--dry", action="store_true", help="print, and store nothing")
    options = parser.parse_args()
    for one in verdicts(options.only.split(","), options.leaks.split(",")):
        print(one.line(), flush=True)
        if not options.dry:
            keep([one])


if __name__ == "__main__":
    main()
