"""The rules for macOS, as a text: they can only be tried on a Mac."""

from __future__ import annotations

import sys

import pytest

from wick.backends.sandbox import seatbelt
from wick.backends.sandbox.base import SandboxUnavailable, SandboxView
from wick.backends.sandbox.protected_paths import Cover

VIEW = SandboxView('/Users/ada/pro"ject\\x', "/Users/ada/project", {"A": "b"}, scratch="/private/tmp/wick-1")


def test_only_named_paths_are_allowed() -> None:
    rules = seatbelt.build_profile(VIEW)
    assert rules.startswith("(version 1)\n(deny default)\n")
    assert rules.count("(") == rules.count(")")
    assert "(allow network*)" not in rules
    assert '(subpath "/Users/ada/pro\\"ject\\\\x") (subpath "/private/tmp/wick-1")' in rules
    writes = next(line for line in rules.splitlines() if line.startswith("(allow file-read* file-write* (subpath"))
    assert '"/usr"' not in writes


def test_protected_paths_are_denied_after_the_workspace_is_allowed() -> None:
    covers = [Cover(".git", "keep", True), Cover(".git/hooks", "show", True), Cover(".env", "hide"), Cover("a", "copy")]
    rules = seatbelt.build_profile(SandboxView("/w", "/w", covers=covers)).splitlines()
    assert rules[-3:] == [
        '(deny file-write* (subpath "/w/.git/hooks"))',
        '(deny file-read* file-write* (subpath "/w/.env"))',
        '(deny file-write* (subpath "/w/a"))',
    ]


def test_the_network_is_allowed_on_request() -> None:
    assert "(allow network*)" in seatbelt.build_profile(SandboxView("/w", "/w", network=True))


def test_a_command_is_wrapped() -> None:
    command = seatbelt.Seatbelt().command(["sh", "-c", "ls"], VIEW)
    assert command.argv == ["/usr/bin/sandbox-exec", "-p", seatbelt.build_profile(VIEW), "sh", "-c", "ls"]
    assert command.env["HOME"] == command.env["TMPDIR"] == "/private/tmp/wick-1" and command.env["A"] == "b"
    assert command.workdir == VIEW.workdir
    protection = seatbelt.Seatbelt().protection(False, "memory 2 GB")
    assert protection.level == "weak" and "no network" in protection.says and "memory 2 GB" in protection.says


def test_seatbelt_is_available_only_on_macos() -> None:
    if sys.platform == "darwin":
        assert seatbelt.find_sandbox_exec()
    else:
        with pytest.raises(SandboxUnavailable, match="part of macOS"):
            seatbelt.find_sandbox_exec()
