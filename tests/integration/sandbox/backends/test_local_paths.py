"""Protected paths are protected from commands, and search in the sandbox finds the same as outside."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from local_sandbox import (
    PROJECT,
    PYTHON,
    Make,
    assert_refused,
    control_groups,
    fill_folder,
    folder,
    is_running,
    local,
    needs_bubblewrap,
    read_tree,
    run_successfully,
)
from wick import constants

pytestmark = needs_bubblewrap
__all__ = ["folder", "local"]  # fixtures


async def test_a_command_does_not_change_the_workspace_layout(local: Make, folder: Path) -> None:
    fill_folder(folder, PROJECT)
    (folder / "linked").mkdir()
    (folder / "linked" / ".env").symlink_to("../.env")
    (folder / ".git" / "link").symlink_to("/etc")
    before = read_tree(folder)
    backend = local()
    assert await run_successfully(backend, "true") == ""
    assert (await backend.execute("ls -A; git status; find . > /dev/null"))["moved"] == []
    assert read_tree(folder) == before


async def test_an_empty_workspace_stays_empty(local: Make, folder: Path) -> None:
    assert (await local().execute("true"))["moved"] == []
    assert read_tree(folder) == {}


async def test_dot_env_files_cannot_be_read(local: Make, folder: Path) -> None:
    fill_folder(folder, PROJECT)
    (folder / "plain").write_text("KEY=secret\n")
    (folder / ".env.linked").symlink_to("plain")
    for path in (".env", ".env.local", ".envrc", "packages/one/.env", ".env.linked", "plain"):
        result = await local().execute(f"cat {path}")
        assert result["exit_code"] == 1 and "denied" in result["stderr"] and not result["stdout"], path
    everything = await local().execute("grep -r secret . ; rg -uu secret; cat .env*")
    assert "secret" not in everything["stdout"]
    assert await run_successfully(local(), "cat .env.example") == "KEY=\n"


async def test_a_link_to_secrets_cannot_be_taken_away(local: Make, folder: Path) -> None:
    fill_folder(folder, {"plain": "KEY=secret\n", "other": ""})
    (folder / ".env").symlink_to("plain")
    for command in ("rm .env", "ln -sf other .env", "mv .env x"):
        await local().execute(command)
        assert os.readlink(folder / ".env") == "plain"
        assert "secret" not in (await local().execute("cat plain"))["stdout"]


@pytest.mark.parametrize(
    "command",
    [
        "echo x >> .git/config",
        "git config core.fsmonitor x",
        "echo x > .git/hooks/post-commit",
        "rm .git/hooks/pre-commit",
        "mv .git/hooks .git/old",
        "mv .git old",
        "rm -rf .wick",
        "echo x > .wick/agents.yaml",
        "mv .claude x",
        "rm .env",
        "mv main.py .env",
        "echo x >> packages/one/.git/config",
        "echo x > packages/one/.git/hooks/post-commit",
        "echo x > packages/one/.claude/settings.json",
        "rm -rf packages/one/.claude",
    ],
)
async def test_protected_files_are_unchanged(local: Make, folder: Path, command: str) -> None:
    fill_folder(folder, PROJECT)
    before = read_tree(folder)
    result = await local().execute(command)
    assert result["exit_code"] != 0, result
    assert {path: text for path, text in read_tree(folder).items() if ".git/" not in path or path in before} == before


async def test_protected_files_are_readable_unless_secret(local: Make, folder: Path) -> None:
    fill_folder(folder, PROJECT)
    paths = ".git/config .git/hooks/pre-commit .wick/agents.yaml .claude/settings.json packages/one/.git/config"
    assert await run_successfully(local(), f"cat {paths}") == "".join(PROJECT[path] for path in paths.split())
    assert await run_successfully(local(), "ls -A packages/one/.git/hooks packages/one/.claude") == (
        "packages/one/.claude:\n\npackages/one/.git/hooks:\n"
    )


@pytest.mark.parametrize(
    "command, moved",
    [
        ("echo KEY=1 > .env", [".env"]),
        ("echo KEY=1 > .env.production", [".env.production"]),
        ("echo KEY=1 > .env.example", []),
        ("echo x > .envrc; mkdir .wick", [".envrc", ".wick"]),
        ("mkdir -p a/b; touch a/b/.env a/.env", ["a/.env", "a/b/.env"]),
        ("mkdir -p .claude", [".claude"]),
        ("ln -s main.py .env", [".env"]),
        ("ln -s /etc .wick", [".wick"]),
        ("mkfifo .env", [".env"]),
        ("touch .env.local; ln -s .env.local .env; ln -s .env.local .envrc", [".env", ".env.local", ".envrc"]),
        ("ln -s . .wick", [".wick"]),
        ("git init -q", []),
        ("git init -q sub", []),
        ("git init -q && echo 'exit 1' > .git/hooks/pre-commit", [".git/hooks"]),
        ("git init -q && git config core.fsmonitor 'touch x'", [".git/config"]),
        ("git init -q && git config alias.st '!touch x'", [".git/config"]),
        ("git init -q && git remote add origin https://example.com/a.git", []),
        ("git init -q && git config remote.origin.url 'ext::sh -c x'", [".git/config"]),
        ("git init -q && git config user.name Ada && git config user.email ada@example.com", []),
        ("git init -q && printf '[core]\\n\\tfsmonitor = x' >> .git/config", [".git/config"]),
        ("git init -q && ln -s ../x .git/hooks/pre-commit.sample2", [".git/hooks"]),
        ("git init -q && mv .git g && ln -s g .git", [".git"]),
        ("git init -q g && mv g/.git x && echo 'gitdir: x' > .git", []),  # it is a git directory, and harmless
        ("git init -q g && mv g/.git x && echo 'gitdir: ../x' > .git", [".git"]),
        ("python3 -m venv --without-pip .env", []),
        ("mkdir .ENV.d && touch .Env", [".Env"]),
    ],
)
async def test_new_protected_files_are_moved_aside_and_named(
    local: Make, folder: Path, command: str, moved: list[str]
) -> None:
    fill_folder(folder, {"main.py": ""})
    backend = local()
    result = await backend.execute(command)
    assert result["exit_code"] == 0 and result["error"] == "", result
    assert sorted(result["moved"]) == moved
    for path in moved:
        name = path.rpartition("/")[2]
        assert is_running(folder / path).__bool__() is (name == "config")
        dot_env = name.lower() == ".env" or name.lower().startswith(".env.")  # `.env.moved-1` is protected again
        bare = name.lstrip(".") if dot_env else name
        assert is_running((folder / path).parent / f"{bare}.moved-1")
    if (folder / ".git/config").exists():
        assert not {"fsmonitor", "ext::", "alias"} & set(re.findall(r"[\w:]+", (folder / ".git/config").read_text()))
    assert (await backend.execute("true"))["moved"] == []


async def test_a_repository_can_be_worked_with(local: Make, folder: Path) -> None:
    fill_folder(folder, PROJECT)
    shutil.rmtree(folder / ".git")
    backend = local(env={f"GIT_{who}_{what}": "ada@x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")})
    assert (await backend.execute("git init -q -b main"))["moved"] == []
    assert "main.py" in await run_successfully(backend, "git add main.py && git commit -qm one && git ls-files")
    command = "git checkout -qb more && echo x > b && git add b && git commit -qm two && git log --oneline | wc -l"
    assert await run_successfully(backend, command) == "2\n"
    assert (await backend.execute("git stash -q; git gc -q; git status"))["moved"] == []


async def test_unmovable_protected_files_are_made_movable(local: Make, folder: Path) -> None:
    result = await local().execute("mkdir a; touch a/.env; chmod 555 a")
    assert result["moved"] == ["a/.env"] and (folder / "a").stat().st_mode & 0o777 == 0o555


async def test_moving_aside_never_overwrites(local: Make, folder: Path) -> None:
    fill_folder(folder, {".wick.moved-1": "there"})
    backend = local()
    for number in (2, 3):
        assert (await backend.execute("mkdir .wick"))["moved"] == [".wick"]
        assert (folder / f".wick.moved-{number}").is_dir()
    assert (folder / ".wick.moved-1").read_text() == "there"


async def test_moving_the_repository_does_not_bypass_protection(local: Make, folder: Path) -> None:
    """Without a mount that holds it in place, its replacement is new."""
    fill_folder(folder, PROJECT)
    command = "mv packages/one/.git x; mkdir -p packages/one/.git/hooks; echo evil > packages/one/.git/hooks/pre-commit"
    assert (await local().execute(command))["moved"] == ["packages/one/.git/hooks"]
    assert not (folder / "packages/one/.git/hooks").exists()


async def test_protected_files_moved_with_their_folder_are_not_new(local: Make, folder: Path) -> None:
    fill_folder(folder, PROJECT)
    result = await local().execute("mv packages/one packages/two && cat packages/two/.env")
    assert "denied" in result["stderr"] and result["moved"] == []
    assert (folder / "packages/two/.env").read_text() == PROJECT[".env"]


async def test_files_of_a_running_command_are_hidden(local: Make, folder: Path) -> None:
    """A mount is looked up by path, which a running command could redirect."""
    backend = local()
    fill_folder(folder, {".wick/old": "old"})
    job = await backend.background("git init -q; mkdir -p sub/.claude; echo x > sub/.claude/f; touch made; sleep 37.7")
    while not (folder / "made").exists():
        await asyncio.sleep(0.01)
    assert (
        await run_successfully(backend, "cat .wick/old; ls .git/hooks; ls -A sub/.claude; cat .git/config | head -1")
        == "old[core]\n"
    )
    await backend.end_job(job["id"])
    assert "pre-commit.sample" in await run_successfully(backend, "ls .git/hooks")


SWAPPING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.makedirs("a/.claude", exist_ok=True)
os.symlink(sys.argv[1], "b")
os.symlink(sys.argv[1] + "/.wick", "w")
os.makedirs(".wick", exist_ok=True)
open("ready", "w").close()
while True:
    libc.renameat2(-100, b"a", -100, b"b", 2)
    libc.renameat2(-100, b".wick", -100, b"w", 2)
"""


async def test_a_path_that_is_swapped_for_a_link_shows_nothing_of_the_host(
    local: Make, folder: Path, tmp_path: Path
) -> None:
    """A job exchanges folders with links to the outside, as fast as it can, while other commands start."""
    fill_folder(
        tmp_path / "outside", {".claude/secret": "planted", ".wick/secret": "planted", ".git/hooks/secret": "planted"}
    )
    backend = local()
    fill_folder(folder, {"swap.py": SWAPPING})
    job = await backend.background(f"{PYTHON} swap.py {tmp_path}/outside")
    while not (folder / "ready").exists():
        await asyncio.sleep(0.01)
    for _ in range(300 if os.environ.get("WICK_FULL") else 30):
        result = await backend.execute("cat a/.claude/* b/.claude/* .wick/* w/* a/.git/hooks/*")
        assert "planted" not in result["stdout"]
    assert (await backend.end_job(job["id"]))["running"] is False
    assert sorted(os.listdir(tmp_path / "outside")) == [".claude", ".git", ".wick"]


@pytest.mark.parametrize("sandbox", ["landlock", "none"])
async def test_new_protected_files_are_moved_aside_without_mounts(local: Make, folder: Path, sandbox: str) -> None:
    result = await local(sandbox=sandbox).execute("echo x > .env; mkdir .wick")
    assert sorted(result["moved"]) == [".env", ".wick"]
    assert sorted(read_tree(folder)) == [".wick.moved-1", "env.moved-1"]


async def test_protected_patterns_are_configurable(local: Make, folder: Path) -> None:
    fill_folder(folder, {"deploy.key": "k", ".wick/a": "a"})
    backend = local(protect=["*.key", "deploy"])
    assert (await backend.execute("echo x > deploy.key"))["exit_code"] != 0
    assert (await backend.execute("echo x > .wick/a; mkdir deploy; touch new.key"))["moved"] == ["deploy", "new.key"]


async def test_a_large_workspace_is_no_problem(local: Make, folder: Path) -> None:
    for number in range(60):
        fill_folder(folder, {f"d{number}/e{inner}/file": "" for inner in range(50)})
    fill_folder(folder, {f"d{number}/e1/.env": "KEY=secret" for number in range(60)})
    backend = local()
    result = await backend.execute("touch .env; cat d1/e1/.env")
    assert result["moved"] == [".env"] and "secret" not in result["stdout"]


async def test_more_secrets_than_can_be_hidden_and_nothing_runs(local: Make, folder: Path) -> None:
    fill_folder(folder, {f"d{number}/.env": "KEY=secret" for number in range(constants.PROTECTED_MOUNTS + 1)})
    backend = local()
    assert f"{constants.PROTECTED_MOUNTS + 1} protected paths" in await assert_refused(
        "protected", backend.execute("cat d*/.env")
    )
    (folder / "d0/.env").unlink()
    assert "secret" not in (await backend.execute("cat d*/.env"))["stdout"]


# -- searching ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern, options",
    [
        ("secret", {}),
        ("secret", {"everything": True}),
        ("SECRET", {"ignore_case": True}),
        ("def \\w+", {"glob": "*.py"}),
        ("x", {"path": "src"}),
        ("x", {"path": "src/a.py"}),
        ("ü", {}),
        ("^$", {}),
        ("(?i)KEY", {}),
        ("\\pN", {}),
        ("nothing like this", {}),
    ],
)
async def test_ripgrep_in_the_sandbox_matches_re2(
    local: Make, folder: Path, pattern: str, options: dict[str, Any]
) -> None:
    if not shutil.which("rg", path="/usr/bin:/usr/local/bin"):
        pytest.skip("ripgrep is not installed: apt-get install ripgrep")
    fill_folder(folder, PROJECT)
    fill_folder(folder, {"src/a.py": "def f():\n  x = 1 # secret\n", "src/b.txt": "x\n\nüx\n", ".gitignore": "*.log\n"})
    fill_folder(folder, {"x.log": "secret\n", "node_modules/m.js": "secret\n", "src/.claude/notes": "a secret\n"})
    (folder / "binary").write_bytes(b"secret\0secret")
    (folder / os.fsdecode(b"odd\xff\nname")).write_text("secret x\n")
    (folder / "link").symlink_to("/etc")
    (folder / "unreadable").write_text("secret")
    confined, free = local(), local(sandbox="none")
    assert confined._has_ripgrep and not free._has_ripgrep
    found = await confined.grep(pattern, **options)
    assert found == await free.grep(pattern, **options)
    assert "KEY=secret" not in str(found)
    assert not control_groups()


async def test_a_search_is_bounded_and_refused_in_the_same_words(local: Make, folder: Path) -> None:
    fill_folder(folder, {"many.txt": "line\n" * 5_000, "deep/.env": "line\n"})
    confined, free = local(), local(sandbox="none")
    for backend in (confined, free):
        found = await backend.grep("line")
        assert found["truncated"] and len(found["matches"]) == 1_000
        assert "RE2" in await assert_refused("invalid", backend.grep("(?=x)"))
        await assert_refused("escapes", backend.grep("x", "../.."))
        await assert_refused("not_found", backend.grep("x", "gone"))
        await assert_refused("protected", backend.grep("x", "deep/.env"))
