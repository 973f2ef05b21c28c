"""A folder held open: paths beneath it are resolved as the kernel does, and none escapes."""

from __future__ import annotations

import errno
import gc
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wick.workspace.rooted_folder import FOLDER, MOST_LINKS, RootedFolder, file_type, supports_openat2

WAYS = ["kernel", "kernel, no /proc", "by hand"]


@pytest.fixture(params=WAYS)
def tree(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RootedFolder]:
    """The same tree, resolved in each way there is."""
    if request.param == "kernel, no /proc":
        monkeypatch.setattr(RootedFolder, "_read_names", lambda self, fd: None)
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    beneath = RootedFolder(str(root), by_hand=request.param == "by hand")
    yield beneath
    beneath.close()


def content(tree: RootedFolder, path: str) -> str:
    with tree.open_path(path, os.O_RDONLY) as (fd, names):
        assert names == ("a", "b", "file")
        return os.read(fd, 100).decode()


def refused(tree: RootedFolder, path: str) -> int:
    with pytest.raises(OSError) as caught, tree.open_path(path, os.O_RDONLY):
        pass
    assert caught.value.errno is not None
    return caught.value.errno


def link(tree: RootedFolder, name: str, target: str) -> None:
    os.symlink(target, os.path.join(tree.path, name))


def test_the_kernel_resolves_here() -> None:
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not supports_openat2(fd):
            pytest.skip(
                "needs Linux 5.6 or newer, and no filter that forbids openat2; only the walk by hand was tested"
            )
    finally:
        os.close(fd)
    assert not supports_openat2(-1)


@pytest.mark.parametrize(
    "path", ["a/b/file", "./a//b/./file", "a/../a/b/file", "a/b/../../a/b/file", "a/b/../b/../b/file"]
)
def test_paths_beneath_are_found(tree: RootedFolder, path: str) -> None:
    assert content(tree, path) == "inside"


@pytest.mark.parametrize("path", ["..", "../outside/file", "a/../../outside/file", "a/b/../../../root/a/b/file", "/a"])
def test_no_path_leads_out(tree: RootedFolder, path: str) -> None:
    assert refused(tree, path) == errno.EXDEV


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("a/b", "link/file"),
        ("a/b/file", "link"),
        ("a/../a/b/", "link/file"),
        ("{root}/a/b", "link/file"),
        ("{root}", "link/a/b/file"),
        ("a/b", "link/../b/file"),
        ("a/b", "a/../link/./file"),
    ],
)
def test_a_link_that_stays_inside_is_followed(tree: RootedFolder, target: str, path: str) -> None:
    link(tree, "link", target.format(root=tree.path))
    assert content(tree, path) == "inside"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("../outside", "link/file"),
        ("../outside/file", "link"),
        ("..", "link"),
        ("/etc", "link/passwd"),
        ("{root}/../outside/file", "link"),
        ("{root}x/file", "link"),
        ("a/b", "link/../../../outside/file"),
        ("a/../../outside/file", "link"),
        ("/proc/self/root/etc", "link/passwd"),
    ],
)
def test_a_link_that_leads_out_is_not(tree: RootedFolder, target: str, path: str) -> None:
    link(tree, "link", target.format(root=tree.path))
    assert refused(tree, path) == errno.EXDEV


def test_links_end(tree: RootedFolder) -> None:
    link(tree, "round", "round")
    link(tree, "ping", "pong")
    link(tree, "pong", "a/../ping")
    assert refused(tree, "round") == refused(tree, "ping/x") == errno.ELOOP


def test_as_many_links_as_the_kernel_follows(tree: RootedFolder) -> None:
    link(tree, "link0", "a/b/file")
    for number in range(1, MOST_LINKS + 1):
        link(tree, f"link{number}", f"link{number - 1}")
    assert content(tree, f"link{MOST_LINKS - 1}") == "inside"
    assert refused(tree, f"link{MOST_LINKS}") == errno.ELOOP


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("missing", errno.ENOENT),
        ("missing/../a/b/file", errno.ENOENT),
        ("a/b/file/", errno.ENOTDIR),
        ("a/b/file/.", errno.ENOTDIR),
        ("a/b/file/..", errno.ENOTDIR),
        ("a/b/file/x", errno.ENOTDIR),
        ("nothing", errno.ENOENT),
        ("to_file/", errno.ENOTDIR),
    ],
)
def test_a_missing_path_has_the_kernel_error(tree: RootedFolder, path: str, code: int) -> None:
    link(tree, "nothing", "missing")
    link(tree, "to_file", "a/b/file")
    assert refused(tree, path) == code


@pytest.mark.parametrize(
    ("path", "names", "name"),
    [
        ("a/b/new", ("a", "b"), "new"),
        ("new/", (), "new"),
        ("link/new", ("a", "b"), "new"),
        ("link", (), "link"),
        ("a/b/..", (), "a"),
        ("link/..", (), "a"),
        (".", (), ""),
        ("a/..", (), ""),
    ],
)
def test_the_folder_of_a_path(tree: RootedFolder, path: str, names: tuple[str, ...], name: str) -> None:
    link(tree, "link", "a/b")
    with tree.open_parent(path) as (fd, led, last):
        assert (led, last) == (names, name)
        assert os.stat(fd).st_ino == os.stat(os.path.join(tree.path, *names)).st_ino


def test_a_folder_that_was_moved_away_is_not_left_upwards(tree: RootedFolder, tmp_path: Path) -> None:
    """A process inside a folder that is moved out cannot climb to its new parent."""
    with tree.open_path("a", FOLDER) as (fd, _):
        os.rename(tmp_path / "root" / "a", tmp_path / "outside" / "a")
        inner = RootedFolder(f"/proc/self/fd/{fd}", by_hand=tree._by_hand)
        assert refused(inner, "b/../../file") == errno.EXDEV
        inner.close()


def test_a_name_may_look_like_the_remark_of_the_system(tree: RootedFolder) -> None:
    os.mkdir(os.path.join(tree.path, "x (deleted)"))
    assert tree.resolve_names("x (deleted)") == ("x (deleted)",)


def test_the_tree_may_be_moved(tree: RootedFolder, tmp_path: Path) -> None:
    os.rename(tree.path, tmp_path / "elsewhere")
    assert content(tree, "a/b/file") == "inside"


@pytest.mark.parametrize("path", ["link", "link/file", "a/link"])
def test_a_walk_follows_no_links(tree: RootedFolder, path: str) -> None:
    link(tree, "link", "a/b")
    link(tree, "a/link", "b/file")
    with pytest.raises(OSError) as caught:
        tree.open_folder(path, os.O_RDONLY)
    assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)


def test_an_absolute_path_inside_the_folder(tree: RootedFolder, tmp_path: Path) -> None:
    os.symlink(tree.path, tmp_path / "alias")
    alias = RootedFolder(str(tmp_path / "alias"))
    for own in (tree.path, str(tmp_path / "alias")):
        assert alias.relative_path(f"{own}/a/b") == "a/b"
        assert alias.relative_path(f"{own}//../x") == "../x"
        assert alias.relative_path(own) == "."
    assert alias.relative_path(f"{tree.path}x/a") is None
    assert alias.relative_path("/") is None
    alias.close()


def test_no_descriptor_is_left(tree: RootedFolder) -> None:
    link(tree, "out", "../outside/file")
    link(tree, "round", "round")
    gc.collect()  # descriptors of other tests are not closed meanwhile
    before = sorted(os.listdir("/proc/self/fd"))
    for path in ("a/b/file", "out", "round", "a/b/file/x", "../x", "missing", "a/b/.."):
        try:
            with tree.open_path(path, os.O_RDONLY):
                pass
        except OSError:
            pass
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_closed_is_closed(tree: RootedFolder) -> None:
    tree.close()
    tree.close()
    assert refused(tree, "a") == errno.EBADF


@pytest.mark.parametrize(
    ("mode", "word"), [(stat.S_IFREG, "file"), (stat.S_IFDIR, "dir"), (stat.S_IFLNK, "link"), (stat.S_IFIFO, "other")]
)
def test_file_kinds(mode: int, word: str) -> None:
    assert file_type(mode) == word


# -- the two ways agree ---------------------------------------------------------------------------------------------

NAMES = ["a", "b", "file", "l1", "l2", "l3", "new"]
targets = st.lists(st.sampled_from([*NAMES, "..", ".", ""]), min_size=1, max_size=5).map("/".join)


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("both") / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("inside")
    (root.parent / "file").write_text("outside")
    return root


@given(links=st.tuples(targets, targets, targets), path=targets, absolute=st.booleans())
@example(links=("a", "l1/b/..", "l2/"), path="l3/b/file", absolute=False)
@example(links=("a/b/file", "..", "l2"), path="l3/file", absolute=True)
def test_by_hand_is_as_by_the_kernel(playground: Path, links: tuple[str, str, str], path: str, absolute: bool) -> None:
    for number, target in enumerate(links, 1):
        place = playground / f"l{number}"
        place.unlink(missing_ok=True)
        os.symlink(f"{playground}/{target}" if absolute else target or ".", place)
    kernel, hand = RootedFolder(str(playground)), RootedFolder(str(playground), by_hand=True)
    try:
        assert outcome(kernel, path or ".") == outcome(hand, path or ".")
    finally:
        kernel.close()
        hand.close()


def outcome(tree: RootedFolder, path: str) -> object:
    try:
        with tree.open_path(path, os.O_RDONLY) as (fd, names):
            return names, os.fstat(fd).st_ino
    except OSError as error:
        return error.errno


# -- where a filter forbids openat2, as those of older container engines do -----------------------------------------

FILTERED = """
import ctypes, os, struct, sys
from wick.workspace.rooted_folder import RootedFolder, supports_openat2

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
program = b"".join(struct.pack("HBBI", *step) for step in [
    (LOAD, 0, 0, 0), (EQUAL, 0, 1, 437), (RETURN, 0, 0, FAIL | int(sys.argv[2])), (RETURN, 0, 0, ALLOW)])
held = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, struct.pack("HxxxxxxP", 4, ctypes.addressof(held)), 0, 0) == 0, ctypes.get_errno()

tree = RootedFolder(sys.argv[1])
assert not supports_openat2(tree.fd)
with tree.open_path("a/../a/b/file", os.O_RDONLY) as (fd, names):
    print(names, os.read(fd, 10))
try:
    tree.resolve_names("a/../..")
except OSError as error:
    print(error.errno)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux, for its filters of system calls")
@pytest.mark.parametrize("tree", ["kernel"], indirect=True)
@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_filter_forbids_the_system_call(tree: RootedFolder, code: int) -> None:
    command = [sys.executable, "-c", FILTERED, tree.path, str(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.splitlines() == ["('a', 'b', 'file') b'inside'", str(errno.EXDEV)], done.stderr
