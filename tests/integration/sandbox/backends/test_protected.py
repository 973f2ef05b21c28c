"""Protected paths: found, covered, and neutralised when they are new."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from wick import constants
from wick.backends.sandbox.protected_paths import COPIES, Cover, plan_covers
from wick.errors import BackendError
from wick.workspace import auto_executed
from wick.workspace.auto_executed import ProtectedEntry, ProtectedIndex, WatchedFolder
from wick.workspace.git_config import filter_git_config, find_trusted_paths
from wick.workspace.protected import PROTECTED
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.workspace import Workspace

CONFIG = "[core]\n\tbare = false\n"


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[RootedFolder]:
    (tmp_path / "workspace").mkdir()
    held = RootedFolder(str(tmp_path / "workspace"))
    yield held
    held.close()


def fill(tree: RootedFolder, *paths: str, text: str = "") -> None:
    for path in paths:
        place = Path(tree.path, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def walked(tree: RootedFolder, patterns: tuple[str, ...] = PROTECTED) -> ProtectedIndex:
    """An index without kernel support: it walks."""

    def watch(folder: WatchedFolder, fd: int) -> None:
        assert os.fstat(fd).st_ino

    index = ProtectedIndex(tree, patterns, watch)
    index.walk()
    return index


def scan(tree: RootedFolder, patterns: tuple[str, ...]) -> dict[str, ProtectedEntry]:
    return walked(tree, patterns).list_entries()


def scan_protected(tree: RootedFolder) -> dict[str, str]:
    return {path: entry.type for path, entry in scan(tree, PROTECTED).items() if not entry.leads}


def test_protected_paths_are_found_at_any_depth(tree: RootedFolder) -> None:
    fill(tree, ".env", "a/.env.local", "a/b/.envrc", "a/b/c/d/.env", ".git/config", "a/b/.git/hooks/x", "env", "x.env")
    fill(tree, ".wick/deep/.env", "node_modules/a/.env", "node_modules/a/.git/config", "plain/file", ".git/x/.env")
    fill(tree, "bare/HEAD", "bare/config", "bare/objects/x", "bare/refs/x", "no/HEAD", "no/config", "no/objects/x")
    assert scan_protected(tree) == {
        ".env": "file",
        ".git/config": "file",
        ".wick": "dir",
        ".wick/deep/.env": "file",
        "a/.env.local": "file",
        "a/b/.envrc": "file",
        "a/b/c/d/.env": "file",
        "a/b/.git/hooks": "dir",
        "node_modules/a/.git/config": "file",
        "bare/config": "file",
    }


def test_only_dot_env_files_are_secret(tree: RootedFolder) -> None:
    fill(tree, ".env", ".env.x", ".envrc", ".wick/a", ".git/config", ".env.example", ".env.sample")
    Path(tree.path, ".env.d").mkdir()
    assert {path for path, entry in scan(tree, PROTECTED).items() if entry.secret} == {".env", ".env.x", ".envrc"}
    assert ".env.d" not in scan_protected(tree) and ".env.example" not in scan_protected(tree)


def test_a_git_that_is_no_folder_counts_itself(tree: RootedFolder) -> None:
    fill(tree, "a/.git", text="gitdir: /elsewhere\n")
    Path(tree.path, ".git").symlink_to("/elsewhere")
    assert scan_protected(tree) == {".git": "link", "a/.git": "file"}


def test_links_to_protected_paths_are_protected(tree: RootedFolder) -> None:
    fill(tree, "plain", "deep/plain")
    Path(tree.path, ".env").symlink_to("plain")
    Path(tree.path, ".wick").symlink_to("deep")
    Path(tree.path, ".envrc").symlink_to("/etc/passwd")
    Path(tree.path, ".env.loop").symlink_to(".env.loop")
    Path(tree.path, ".env.gone").symlink_to("nowhere")
    Path(tree.path, ".claude").symlink_to(".")
    links = {path for path, kind in scan_protected(tree).items() if kind == "link"}
    assert links == {".env", ".wick", ".envrc", ".env.loop", ".env.gone", ".claude"}
    entries = scan(tree, PROTECTED)
    assert entries["plain"].secret and entries["plain"].linked and entries["deep"].linked and not entries["deep"].secret
    assert "/etc/passwd" not in entries and len(entries) == 8


@pytest.mark.parametrize("patterns", [(), ("[",), ("*",), ("a/b/c",), ("/",), ("a//b",), ("**/x",)])
def test_odd_patterns_do_no_harm(tree: RootedFolder, patterns: tuple[str, ...]) -> None:
    fill(tree, "a/b/c", "x", "[")
    for entry in scan(tree, patterns).values():
        assert os.path.lexists(os.path.join(tree.path, entry.path))


# -- covers ---------------------------------------------------------------------------------------------------------


def planned(tree: RootedFolder, firm: bool = True) -> dict[str, str]:
    entries = scan(tree, PROTECTED)
    identities = {entry.identity for entry in entries.values()} if firm else set()
    return {cover.path: cover.how for cover in plan_covers(tree, entries, identities)}


def test_firm_paths_are_mounted_and_others_hidden_or_copied(tree: RootedFolder) -> None:
    fill(tree, ".git/config", "a/.git/config", text=CONFIG)
    fill(tree, ".git/hooks/x", ".wick/x", ".env", "a/.git/hooks/x", "a/.claude/x", "a/.env")
    below = {"a/.git": "leave", "a/.git/config": "copy", "a/.git/hooks": "hide", "a/.claude": "hide", "a/.env": "hide"}
    assert planned(tree) == below | {
        ".git": "keep",
        ".git/config": "show",
        ".git/hooks": "show",
        ".wick": "show",
        ".env": "hide",
    }
    assert planned(tree, firm=False) == below | {
        ".git": "leave",
        ".git/config": "copy",
        ".git/hooks": "hide",
        ".wick": "hide",
        ".env": "hide",
    }


def test_paths_in_a_hidden_folder_are_hidden(tree: RootedFolder) -> None:
    fill(tree, "a/.claude/.env", "a/.claude/.git/config", ".wick/.env")
    assert planned(tree) == {"a/.claude": "hide", ".wick": "show", ".wick/.env": "hide"}
    assert planned(tree, firm=False) == {"a/.claude": "hide", ".wick": "hide"}


def test_a_copy_has_the_content_of_a_small_file(tree: RootedFolder) -> None:
    fill(tree, "a/.git/config", text=CONFIG)
    fill(tree, "b/.git/config", text="x" * 100_000)
    made = {cover.path: cover for cover in plan_covers(tree, scan(tree, PROTECTED), set())}
    assert made["a/.git/config"] == Cover("a/.git/config", "copy", content=CONFIG.encode())
    assert made["b/.git/config"] == Cover("b/.git/config", "hide")


def test_more_than_a_command_can_have_is_refused(tree: RootedFolder) -> None:
    fill(tree, *(f"{number}/.git/config" for number in range(COPIES + 10)))
    made = plan_covers(tree, scan(tree, PROTECTED), set())
    assert sum(cover.how == "copy" for cover in made) == COPIES
    assert sum(cover.how == "hide" for cover in made) == 10
    fill(tree, *(f"{number}/.env" for number in range(constants.PROTECTED_MOUNTS)))
    with pytest.raises(BackendError, match=f"has {constants.PROTECTED_MOUNTS + COPIES + 10} protected paths"):
        plan_covers(tree, scan(tree, PROTECTED), set())


def test_links_are_not_covered_but_put_back(tree: RootedFolder) -> None:
    fill(tree, "plain")
    Path(tree.path, ".env").symlink_to("plain")
    assert planned(tree) == {"plain": "hide"}
    index = walked(tree)
    index.arm()
    Path(tree.path, ".env").unlink()
    index.restore_links()
    assert os.readlink(f"{tree.path}/.env") == "plain"


# -- new paths ------------------------------------------------------------------------------------------------------


def planted(tree: RootedFolder, index: ProtectedIndex) -> list[str]:
    index.walk()
    return sorted(index.moved)


def armed(tree: RootedFolder) -> ProtectedIndex:
    index = walked(tree)
    index.arm()
    return index


def test_existing_paths_are_not_new(tree: RootedFolder) -> None:
    fill(tree, ".env", ".wick/a", ".git/hooks/pre-commit")
    index = armed(tree)
    assert planted(tree, index) == []
    os.rename(f"{tree.path}/.git", f"{tree.path}/old")
    fill(tree, ".git/hooks/pre-commit")
    assert planted(tree, index) == [".git/hooks"]


def test_new_protected_paths_are_renamed(tree: RootedFolder) -> None:
    index = armed(tree)
    fill(tree, ".env", "env.moved-1", "a/.wick/x")
    assert planted(tree, index) == [".env", "a/.wick"]
    assert os.path.exists(f"{tree.path}/env.moved-2") and os.path.exists(f"{tree.path}/a/.wick.moved-1/x")


@pytest.mark.parametrize("patterns", [("*",), (".env*",), ("a*", "moved*"), ("*.moved-*",)])
def test_a_new_name_is_not_protected_again(tree: RootedFolder, patterns: tuple[str, ...]) -> None:
    index = walked(tree, patterns)
    index.arm()
    fill(tree, ".env", "abc")
    for _ in range(5):
        index.walk()
    names = os.listdir(tree.path)
    assert len(names) == 2 and all(len(name) < 60 for name in names)


PLAIN = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[remote "origin"]
\turl = git@example.com:ada/engine.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[user]
\tname = Ada Lovelace
\temail = ada@example.com
"""


@pytest.mark.parametrize(
    "line",
    [
        "[alias]\n\tst = !touch x",
        "[core]\n\tfsmonitor = touch x",
        "\tsshCommand = touch x",
        "[core] fsmonitor = x",
        "[core]\n\tbare = false\\\n\tfsmonitor = x",
        "[include]\n\tpath = ../evil",
        '[includeIf "gitdir:."]\n\tpath = ../evil',
        '[filter "x"]\n\tclean = touch x',
        '[remote "origin"]\n\turl = ext::sh -c x',
        '[remote "origin"]\n\turl = -oProxyCommand=x',
        '[remote "origin"]\n\tuploadpack = touch x',
        "[CORE]\n\tfsmonitor = x",
        "[core]\r\n\tfsmonitor = x",
        "[core]\n\tworktree = /",
        "[core]\n\thooksPath = x",
        "bare = false",
        "\x00",
        "\x0b[core]\n\tfsmonitor = x",
        "[core]\x0c\tfsmonitor = x",
    ],
)
def test_a_config_that_names_a_program_is_not_plain(tree: RootedFolder, line: str) -> None:
    index = armed(tree)
    fill(tree, ".git/config", text=PLAIN)
    assert planted(tree, index) == []
    Path(tree.path, ".git/config").write_text(PLAIN + line + "\n", newline="")
    assert planted(tree, index) == [".git/config"]
    assert Path(tree.path, ".git/config").read_text().startswith(PLAIN.rpartition("[user]")[0])


SETTINGS = st.sampled_from(["fsmonitor", "bare", "url", "path", "sshCommand", "name", "pager", "hooksPath"])
LINES = st.one_of(
    st.builds("[{}]".format, st.sampled_from(["core", "alias", "include", "user", 'remote "o"', "CORE", "core.x"])),
    st.builds(
        "\t{} = {}".format, SETTINGS, st.sampled_from(["x", "true", "!x", "https://a/b", "ext::x", '"x"', "a\\"])
    ),
    st.builds("{} = {}".format, SETTINGS, st.just("x")),
    st.text(alphabet='[]=\t core\\"#;\r\x0b', max_size=12),
)
RUNS = ("fsmonitor", "sshcommand", "pager", "hookspath", "path")


@given(lines=st.lists(LINES, max_size=6))
@example(lines=["[core]", "\tfsmonitor = x"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_git_finds_no_program_in_a_config_that_is_plain(tree: RootedFolder, lines: list[str]) -> None:
    """Git reads the accepted config: it contains no setting that runs a program."""
    place = Path(tree.path, "config")
    place.write_text(filter_git_config("\n".join(lines)), newline="")
    listed = subprocess.run(["git", "config", "--file", place, "--list", "--name-only"], capture_output=True, text=True)
    names = listed.stdout.lower().split()
    assert not [name for name in names if name.startswith("alias.") or name.endswith(RUNS)], (lines, names)


# -- paths that a git config names ----------------------------------------------------------------------------------

NAMING = [
    ("[core]\n\thooksPath = tools/hooks\n", "tools/hooks"),
    ('[core]\n\thookspath = "tools/hooks" ; comment\n', "tools/hooks"),
    ("[CORE] hooksPath=./tools//hooks\n", "tools/hooks"),
    ("[include]\n\tpath = ../tools/git.inc\n", "tools/git.inc"),
    ('[includeIf "gitdir:/"]\n\tpath = ../tools/git.inc\n', "tools/git.inc"),
    ("[core]\n\tfsmonitor = tools/program.sh\n", "tools/program.sh"),
    ('[filter "x"]\n\tclean = "sh tools/program.sh --clean"\n', "tools/program.sh"),
    ('[alias]\n\tz = "!tools/program.sh"\n', "tools/program.sh"),
]


@pytest.mark.parametrize("above", [".", "sub"])
@pytest.mark.parametrize(("config", "path"), NAMING)
def test_a_path_that_a_git_config_names_is_protected(tree: RootedFolder, config: str, path: str, above: str) -> None:
    place = os.path.normpath(os.path.join(above, path))
    fill(tree, f"{above}/.git/config", text=CONFIG + config)
    fill(tree, f"{above}/tools/program.sh", f"{above}/tools/other.sh")
    index = armed(tree)
    files = Workspace(tree.path)
    with pytest.raises(BackendError, match="the git config trusts"):
        files.write(place, "evil")
    files.write(f"{above}/tools/other.sh", "harmless")
    if path.endswith(".sh"):
        assert place in index.list_entries()
    else:
        fill(tree, place)
        assert planted(tree, index) == [place]
    files.mkdir("apart")
    with pytest.raises(BackendError, match="the git config trusts"):
        files.move("apart", os.path.normpath(os.path.join(above, "tools")))
    files.close()


def test_an_included_config_is_read_too(tree: RootedFolder) -> None:
    fill(tree, ".git/config", text="[include]\n\tpath = ../a/first\n")
    fill(tree, "a/first", text="[include]\n\tpath = second\n\tpath = first\n")
    fill(tree, "a/second", text="[core]\n\thooksPath = hooks\n")
    assert find_trusted_paths(tree, ".") == {"a/first", "a/second", "hooks"}


def test_data_in_a_git_config_is_not_protected(tree: RootedFolder) -> None:
    fill(tree, ".git/config", text='[remote "origin"]\n\turl = data\n[user]\n\tname = data\n[core]\n\thooksPath = .\n')
    fill(tree, "data")
    assert find_trusted_paths(tree, ".") == set()


def test_an_unread_config_is_detected(tree: RootedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_executed, "find_trusted_paths", lambda tree, folder: set())
    fill(tree, ".git/config", text=CONFIG + "\thooksPath = hooks\n")
    index = armed(tree)
    fill(tree, "hooks/pre-commit")
    assert planted(tree, index) == []


@pytest.mark.parametrize("beside", [("HEAD",), ("HEAD", "refs/y", "objects/y")])
@pytest.mark.parametrize("name", ["objects", "refs", "logs", "lfs"])
def test_a_folder_named_like_data_of_git_is_walked(tree: RootedFolder, name: str, beside: tuple[str, ...]) -> None:
    fill(tree, *(f"w/{one}" for one in beside), f"w/{name}/x/.git/config")
    assert f"w/{name}/x/.git/config" in walked(tree).list_entries()


def test_a_git_file_may_precede_its_git_directory(tree: RootedFolder) -> None:
    """As `git worktree add` creates them."""
    fill(tree, ".git/config", text=CONFIG)
    index = armed(tree)
    fill(tree, ".git/worktrees/w/gitdir")
    fill(tree, "w/.git", text="gitdir: ../.git/worktrees/w\n")
    assert planted(tree, index) == []
    fill(tree, ".git/worktrees/w/commondir", text="../../../evil\n")
    fill(tree, ".git/worktrees/w/HEAD", text="ref: refs/heads/main\n")
    assert planted(tree, index) == [".git/worktrees/w/commondir"]


def test_a_git_file_is_moved_if_its_folder_becomes_a_link(tree: RootedFolder) -> None:
    index = armed(tree)
    fill(tree, "g/file", "h/file")
    fill(tree, "s/.git", text="gitdir: ../g\n")
    assert planted(tree, index) == []
    os.rename(f"{tree.path}/g", f"{tree.path}/old")
    os.symlink("h", f"{tree.path}/g")
    index.check_gitlinks()
    assert index.moved == ["s/.git"]
