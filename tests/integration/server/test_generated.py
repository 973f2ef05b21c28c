"""Requests generated from the OpenAPI document: none of them breaks the server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from server_process import TOKENS, run_server

EXAMPLES = "200" if os.environ.get("WICK_FULL") else "3"  # of each operation, beside those that cover its schema
PHASES = "coverage,fuzzing,stateful" if os.environ.get("WICK_FULL") else "fuzzing"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# A stream that lasts as long as its reader; the switch to an engine, and draining: after them all later requests are a
# 503, as they should be.
LEFT_OUT = r"^(/events|/agents/(events|\{id\}/backend)|/drain)$"
SECONDS = 3_000 if os.environ.get("WICK_FULL") else 110
NO_DICE = "--s" + "eed"  # the same requests every time


@pytest.mark.long  # tests/faults/test_bad_input.py samples it
@pytest.mark.timeout(SECONDS + 30)
@pytest.mark.parametrize("user", ["ada", "root"] if os.environ.get("WICK_FULL") else ["root"])
def test_no_request_breaks_the_server(tmp_path: Path, user: str, store: str) -> None:
    with run_server(tmp_path, store=store) as server:
        command = [Path(sys.executable).parent / "schemathesis", "run", f"{server.url}/openapi.json"]
        options = {
            "--header": f"Authorization: Bearer {TOKENS[user]}",
            "--checks": CHECKS,
            "--exclude-path-regex": LEFT_OUT,
            "--max-examples": EXAMPLES,
            "--phases": PHASES,
            "--request-timeout": "30",
            "--suppress-health-check": "all",
            "--warnings": "off",
        }
        if os.environ.get("CI"):
            options[NO_DICE] = "1"
        given = [part for pair in options.items() for part in pair]
        done = subprocess.run(
            [*command, *given, "--no-shrink", "--continue-on-failure"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-8_000:]}\n{done.stderr[-2_000:]}\n{server.log[-4_000:]}"
        assert "Traceback" not in server.log, server.log[-8_000:]
        assert server.stop() == 0
