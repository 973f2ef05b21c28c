"""The bubblewrap profile and its detection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_sandbox import needs_bubblewrap
from wick.backends.local import Local
from wick.backends.sandbox import bubblewrap, selection
from wick.backends.sandbox.base import SandboxUnavailable, SandboxView
from wick.backends.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from wick.backends.sandbox.protected_paths import Cover

pytestmark = needs_bubblewrap
VIEW = SandboxView("/srv/project", "/srv/project/src", {"COLOR": "a b"}, memory=5_000)


@pytest.fixture
def anew() -> Iterator[None]:
    find_bubblewrap.cache_clear()
    yield
    find_bubblewrap.cache_clear()


def profile(view: SandboxView = VIEW, options: tuple[str, ...] = ("--disable-userns", "--size")) -> list[str]:
    command = Bubblewrap("bwrap", options).command(["sh", "-c", "true"], view)
    assert command.argv[:3] == ["bwrap", "--args", "%fd0%"] and command.argv[-3:] == ["sh", "-c", "true"]
    assert command.env == {} and command.workdir == "/"
    return command.data[0].decode().rstrip("\0").split("\0")


def options_of(profile: list[str], option: str, count: int) -> list[list[str]]:
    return [profile[at + 1 : at + 1 + count] for at, part in enumerate(profile) if part == option]


def test_everything_that_can_be_separate_is() -> None:
    flags = profile()
    assert {"--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--disable-userns"} <= {*flags}
    assert options_of(flags, "--cap-drop", 1) == [["ALL"]]
    assert "--share-net" not in flags
    assert options_of(flags, "--chdir", 1) == [["/srv/project/src"]]
    assert ["COLOR", "a b"] in options_of(flags, "--setenv", 2)


def test_only_the_workspace_can_be_written() -> None:
    flags = profile()
    assert options_of(flags, "--bind", 2) == [["/srv/project", "/srv/project"]]
    assert {one for (one,) in options_of(flags, "--tmpfs", 1)} == {"/tmp", "/dev/shm"}
    assert {one for (one,) in options_of(flags, "--remount-ro", 1)} == {"/proc", "/dev"}
    shown = [source for source, covered in options_of(flags, "--ro-bind", 2) if covered != "/proc/keys"]
    assert not [path for path in shown if not path.startswith(("/usr", "/bin", "/sbin", "/lib", "/etc/"))]
    assert not [path for path in shown if "shadow" in path or "ssh" in path or path in ("/etc", "/etc/ssl")]


def test_network_access_mounts_its_config_files() -> None:
    flags = profile(SandboxView("/srv/project", "/srv/project", network=True))
    assert "--share-net" in flags and ["/etc/resolv.conf", "/etc/resolv.conf"] in options_of(flags, "--ro-bind", 2)


def test_a_terminal_has_its_own_session() -> None:
    assert "--new-session" not in profile(SandboxView("/srv/project", "/srv/project", terminal=True))


def test_covers_become_mounts() -> None:
    covers = [
        Cover(".git", "keep", True),
        Cover(".git/hooks", "show", True),
        Cover(".env", "hide"),
        Cover("a/.claude", "hide", True),
        Cover("a/.git", "leave", True),
        Cover("a/.git/config", "copy", content=b"[core]\n"),
    ]
    view = SandboxView("/srv/project", "/srv/project", covers=covers)
    flags = profile(view)
    assert ["/srv/project/.git", "/srv/project/.git"] in options_of(flags, "--bind", 2)
    assert ["/srv/project/.git/hooks", "/srv/project/.git/hooks"] in options_of(flags, "--ro-bind", 2)
    assert ["/dev/null", "/srv/project/.env"] in options_of(flags, "--ro-bind", 2)
    assert ["/srv/project/a/.claude"] in options_of(flags, "--tmpfs", 1)
    assert "/srv/project/a/.git" not in flags
    command = Bubblewrap("bwrap", ()).command(["true"], view)
    number = command.argv[command.argv.index("--ro-bind-data") + 1]
    assert command.data[int(number.strip("%fd"))] == b"[core]\n"


async def test_an_older_version_does_with_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {"--disable-userns", "--size"}.isdisjoint(profile(options=()))
    old = Bubblewrap(find_bubblewrap().program, ())
    monkeypatch.setitem(selection.SANDBOXES, "bubblewrap", lambda: old)
    backend = Local(tmp_path / "workspace")
    result = await backend.execute("unshare -r true; cat /proc/self/status | grep NoNewPrivs")
    assert result["stdout"] == "NoNewPrivs:\t1\n" and "not permitted" in result["stderr"]
    await backend.stop()


@pytest.mark.usefixtures("anew")
def test_capabilities_are_detected_by_probing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_bubblewrap()
    assert os.path.basename(found.program) == "bwrap" and find_bubblewrap() is found


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize(
    "script, sentence",
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions to create new namespace"),
        ("exit 3", "exit code 3"),
    ],
)
def test_a_broken_bubblewrap_reports_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, sentence: str
) -> None:
    (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(bubblewrap, "DEFAULT_PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match=sentence):
        find_bubblewrap()


@pytest.mark.usefixtures("anew")
def test_one_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setattr(bubblewrap, "DEFAULT_PATH", str(tmp_path))
    monkeypatch.setattr(bubblewrap, "TRIAL_SECONDS", 0.1)
    with pytest.raises(SandboxUnavailable, match="timed out"):
        find_bubblewrap()


@pytest.mark.usefixtures("anew")
def test_one_in_the_folder_that_we_happen_to_be_in_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\ntouch ran\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".:")
    monkeypatch.setattr(bubblewrap, "DEFAULT_PATH", "/nowhere")
    with pytest.raises(SandboxUnavailable, match="not installed"):
        find_bubblewrap()
    assert not (tmp_path / "ran").exists()


@pytest.mark.usefixtures("anew")
def test_a_missing_bubblewrap_reports_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *_, **__: None)
    with pytest.raises(SandboxUnavailable, match="apt install bubblewrap"):
        find_bubblewrap()
