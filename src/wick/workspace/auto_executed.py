"""Index of the protected paths of a workspace, which follows changes and neutralises planted code.

    index = ProtectedIndex(RootedFolder("./workspace"), PROTECTED, watch)
    index.walk()
    index.list_entries()                  the protected paths that exist, for mounts
    index.arm()                           from now on, new protected paths count as planted
    index.inspect_name(folder, "config")  a name has changed in a folder; neutralise it unless it is harmless
    index.moved                           the neutralised paths

Git runs programs that its config names, and hooks. So the parts of every git directory are inspected, wherever it is:
a folder `.git`, a submodule's or worktree's, a bare repository. A config keeps the settings that name no program.
All other protected names that appear are renamed to a name that no program trusts.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import Callable, Iterable, Iterator, NamedTuple, Tuple

from wick.workspace.git_config import CONFIG_BYTES, filter_git_config, find_trusted_paths
from wick.workspace.globs import HEAVY, SECRET
from wick.workspace.protected import GIT, GIT_HEAD, ProtectedNames, fold_name
from wick.workspace.rooted_folder import FOLDER, RootedFolder, file_type, make_listable

Identity = Tuple[int, int]

_SETLEASE = getattr(fcntl, "F_SETLEASE", 1024)

GITLINKS = 20  # more of them are checked only when a command ends
NAMES = 20_000  # size of the cache of candidate names
EXAMPLES = (".example", ".sample", ".template", ".dist")  # dot-env files that no program loads
CONFIGS = ("config", "config.worktree")
TRUSTED = frozenset((*CONFIGS, "commondir", "hooks"))  # parts of a git directory that lead to programs
PARTS = frozenset((*TRUSTED, "objects", "refs", "head"))  # folded
BULK = frozenset(("objects", "refs", "logs", "lfs"))  # data of a git directory; no program starts from there


class ProtectedEntry(NamedTuple):
    """A protected path that exists, or a folder that leads to one (`.git`)."""

    path: str  # relative to the workspace
    type: str  # dir, file, link, other
    identity: Identity  # device and inode
    secret: bool = False  # not to be read
    leads: bool = False  # only leads to something protected
    target: str = ""  # of a link
    linked: bool = False  # protected only because a link leads to it


class WatchedFolder:
    """A folder of the workspace, with the names in it that may be protected."""

    __slots__ = ("above", "below", "deep", "marked", "name", "quiet", "watch")

    def __init__(self, name: str, above: WatchedFolder | None) -> None:
        self.name, self.above = name, above
        self.below: dict[str, WatchedFolder] = {}
        self.marked: set[str] = set()
        self.watch = -1
        self.deep = False  # changes of content matter
        self.quiet = False  # opening a file there is not reported, for the index does so itself

    @property
    def names(self) -> tuple[str, ...]:
        names: list[str] = []
        at: WatchedFolder = self
        while at.above is not None:
            names.append(at.name)
            at = at.above
        return tuple(reversed(names))

    @property
    def path(self) -> str:
        return "/".join(self.names) or "."

    def join_name(self, name: str) -> str:
        """Return the path of a name in the folder."""
        return "/".join((*self.names, name))


class ProtectedIndex:
    """The folders of a workspace and their protected names. `watch` is called for each folder that is entered."""

    def __init__(
        self, tree: RootedFolder, patterns: Iterable[str], watch: Callable[[WatchedFolder, int], None]
    ) -> None:
        self._tree, self._watch = tree, watch
        texts = tuple(patterns)
        self._git = GIT in texts
        self._rules = ProtectedNames(texts)
        self._secret = ProtectedNames([text for text in texts if text in SECRET])
        self._candidates: dict[str, bool] = {}
        self.root = WatchedFolder("", None)
        self._marked: set[WatchedFolder] = set()
        self._known: set[Identity] = set()
        self._read_here: dict[Identity, tuple[WatchedFolder, str]] = {}  # files that were found harmless
        self._gitlinks: set[tuple[WatchedFolder, str]] = set()  # new `.git` files that are harmless so far
        self._named: set[str] = set()  # paths that git configs name
        self._named_lasts: set[str] = set()
        self._links: dict[str, str] = {}  # protected links at the time of arming, and their targets
        self.armed = False
        self.writing: set[tuple[WatchedFolder, str]] = set()  # open for writing: inspect again soon
        self.moved: list[str] = []
        self.stuck: list[str] = []

    # -- folders ----------------------------------------------------------------------------------------------------

    def walk(self, folder: WatchedFolder | None = None) -> bool:
        """Index a folder and all folders below it; return True if all of them still existed."""
        todo, whole = [folder or self.root], True
        while todo:
            below = self._index_folder(todo.pop())
            whole = whole and below is not None
            todo += below or ()
        return whole

    def inspect_below(self, folder: WatchedFolder) -> None:
        """Inspect a renamed folder: its new path may make names below it protected."""
        todo = [folder]
        while todo:
            one = todo.pop()
            if self.armed:
                self._inspect_marked(one)
            todo += one.below.values()

    def _index_folder(self, folder: WatchedFolder) -> list[WatchedFolder] | None:
        found: list[WatchedFolder] = []
        try:
            try:
                fd = self._tree.open_folder(folder.path)
            except PermissionError:  # a command has removed the owner's permissions
                make_listable(self._tree.open_folder(folder.path, FOLDER))
                fd = self._tree.open_folder(folder.path)
        except OSError:  # it is gone again, or a link now
            return None
        try:
            self._watch(folder, fd)
            with os.scandir(fd) as entries:
                listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError:
            return None
        finally:
            os.close(fd)
        is_data = fold_name(folder.name) == GIT or any(name == "HEAD" for name, _ in listed)
        bulk = BULK if is_data and GIT in map(fold_name, folder.names) else ()  # elsewhere it can hold a work tree
        for name, is_folder in listed:
            if self._is_candidate(name):
                self._mark(folder, name)
            if is_folder and name not in bulk:
                below = folder.below.get(name)
                if below is None:
                    below = folder.below[name] = WatchedFolder(name, folder)
                found.append(below)
        if self.armed:
            self._inspect_marked(folder)
            if fold_name(folder.name) == "hooks" and folder.above is not None:
                self._inspect_git_directory(folder.above)
        return found

    def _inspect_marked(self, folder: WatchedFolder) -> None:
        """Inspect the marked names of a folder, the parts of a git directory together."""
        for name in tuple(folder.marked):
            if fold_name(name) not in PARTS or name in self._named_lasts or self._rules.may_match_last(name):
                self.inspect_name(folder, name)
        if self._git:
            self._inspect_git_directory(folder)

    def remove_folder(self, folder: WatchedFolder) -> None:
        """Drop a folder that left the workspace."""
        if folder.above is not None:
            folder.above.below.pop(folder.name, None)
        todo = [folder]
        while todo:
            one = todo.pop()
            self._marked.discard(one)
            one.marked.clear()
            todo += one.below.values()

    def find_folder(self, names: Iterable[str]) -> WatchedFolder | None:
        """Return the indexed folder at a path of names, without following links."""
        at: WatchedFolder | None = self.root
        for name in names:
            if at is not None and name not in ("", "."):
                at = at.above if name == ".." else at.below.get(name)
        return at

    # -- protected names --------------------------------------------------------------------------------------------

    def _is_candidate(self, name: str) -> bool:
        """Return True if a path that ends in a name may be protected."""
        is_candidate = self._candidates.get(name)
        if is_candidate is None:
            is_candidate = (
                self._rules.may_match_last(name)
                or (self._git and fold_name(name) in PARTS)
                or name in self._named_lasts
            )
            if len(self._candidates) > NAMES:
                self._candidates.clear()
            self._candidates[name] = is_candidate
        return is_candidate

    def _mark(self, folder: WatchedFolder, name: str) -> None:
        folder.marked.add(name)
        folded = fold_name(name)
        is_part = self._git and folded in PARTS
        if not is_part or folded == "head" or fold_name(folder.name) == GIT:
            self._marked.add(folder)
        if (is_part or folded == GIT) and not folder.deep:  # changes of content matter there
            folder.deep = True
            with suppress(OSError), self._open_folder(folder.path) as fd:
                self._watch(folder, fd)

    def list_entries(self) -> dict[str, ProtectedEntry]:
        """Return the protected paths that exist now."""
        found: dict[str, ProtectedEntry] = {}
        for folder in tuple(self._marked):
            for entry in self._list_folder_entries(folder):
                if not (entry.linked and entry.path in found):  # protected by itself is more
                    found[entry.path] = entry
        return found

    def _list_folder_entries(self, folder: WatchedFolder) -> Iterator[ProtectedEntry]:
        names = folder.names
        for name in tuple(folder.marked):
            if self._is_generic(names, name):
                secret = self._secret.matches_last((name,))
                yield from self._build_entries(folder.join_name(name), name, secret)
        if not self._git:
            return
        for name in tuple(folder.marked):
            if fold_name(name) == GIT:
                yield from self._build_entries(folder.join_name(name), name, False, leads=True)
        if self._is_git_folder(folder):
            for name in tuple(folder.marked):
                if fold_name(name) in TRUSTED:
                    yield from self._build_entries(folder.join_name(name), name, False)

    def _is_generic(self, names: tuple[str, ...], name: str) -> bool:
        """Return True if the name is protected by a pattern other than that of git, or by a git config."""
        if name in self._named_lasts and "/".join((*names, name)) in self._named:
            return True
        if (
            not self._rules.matches_last((*names[-self._rules.longest :], name))
            or fold_name(name) == GIT
            or name == GIT_HEAD
        ):
            return False
        return not any(above in HEAVY or fold_name(above) == GIT for above in names)

    def _build_entries(self, path: str, name: str, secret: bool, leads: bool = False) -> Iterator[ProtectedEntry]:
        info = self._stat(path)
        if info is None:
            return
        what, identity = file_type(info.st_mode), (info.st_dev, info.st_ino)
        if secret and (what == "dir" or name.endswith(EXAMPLES)):  # a folder `.env` is a virtual environment
            return
        if what != "link":
            yield ProtectedEntry(path, what, identity, secret, leads=leads and what == "dir")
            return
        yield ProtectedEntry(path, what, identity, secret, target=self._read_link(path))
        flags = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
        with suppress(OSError), self._tree.open_path(path, flags) as (fd, names):
            target = os.fstat(fd)
            if names:  # the target is in the workspace, and not its root
                yield ProtectedEntry(
                    "/".join(names), file_type(target.st_mode), (target.st_dev, target.st_ino), secret, linked=True
                )

    def _stat(self, path: str) -> os.stat_result | None:
        above, _, name = path.rpartition("/")
        try:
            with self._open_folder(above or ".") as fd:
                return os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return None

    def _read_link(self, path: str) -> str:
        with suppress(OSError), self._tree.open_parent(path) as (folder, _, name):
            return os.readlink(name, dir_fd=folder)
        return ""

    # -- plants -----------------------------------------------------------------------------------------------------

    def arm(self, *, mounted: bool = True) -> None:
        """Accept all existing paths; protected paths that appear later count as planted.

        Without mounts that protect existing files (not `mounted`), harmless parts of a git directory are not
        accepted but inspected again when they change.
        """
        self._named = set()  # the hooks, configs and programs that the git configs of the workspace name
        for folder in tuple(self._marked) if self._git else ():
            if any(fold_name(name) == GIT for name in folder.marked):
                self._named |= find_trusted_paths(self._tree, folder.path)
        self._named_lasts = {path.rpartition("/")[2] for path in self._named}
        self._candidates.clear()
        for path in self._named:
            *above, name = path.split("/")
            folder_above = self.find_folder(above)
            if folder_above is not None:
                self._mark(folder_above, name)
                self._marked.add(folder_above)
        found = self.list_entries()
        self._known = {entry.identity for entry in found.values() if entry.type != "link"}
        self._links = {path: entry.target for path, entry in found.items() if entry.type == "link"}
        self.armed, self.moved, self.stuck = True, [], []
        self._read_here.clear()
        self._gitlinks.clear()
        for folder in tuple(self._marked) if self._git and not mounted else ():
            parts = self._stat_git_parts(folder)
            harmless = [info for name, info in parts if self._is_harmless_part(folder, name, info)]
            for name in tuple(folder.marked):
                gitlink = self._stat(folder.join_name(name)) if fold_name(name) == GIT else None
                if gitlink is not None and stat.S_ISREG(gitlink.st_mode) and self._is_harmless_gitlink(folder, name):
                    harmless.append(gitlink)
            self._known -= {(info.st_dev, info.st_ino) for info in harmless}

    def restore_links(self) -> None:
        """Create protected links again that are gone: a link cannot be mounted over, so a command can remove it."""
        self.check_gitlinks()
        for path, target in self._links.items():
            if self._read_link(path) == target:
                continue
            with suppress(OSError), self._tree.open_parent(path) as (folder, _, name):
                os.symlink(target, name, dir_fd=folder)

    def inspect_name(self, folder: WatchedFolder, name: str) -> None:
        """Inspect a name that appeared or changed in a folder; neutralise it if it was planted."""
        if not self._is_candidate(name):
            if self._git and fold_name(folder.name) == "hooks" and folder.above is not None and self.armed:
                self._inspect_git_directory(folder.above)
            return
        self._mark(folder, name)
        if not self.armed:
            return
        folded = fold_name(name)
        if self._is_generic(folder.names, name):
            info = self._stat_new(folder.join_name(name))
            is_secret = self._secret.matches_last((name,))
            # A folder `.env` is a virtual environment, and no program loads an example.
            if info is not None and not (is_secret and (stat.S_ISDIR(info.st_mode) or name.endswith(EXAMPLES))):
                self._move_aside(folder, name)
        if not self._git:
            return
        if folded == GIT:
            self._inspect_dot_git(folder, name)
        if folded in PARTS:
            self._inspect_git_directory(folder)

    def inspect_new_link(self, folder: WatchedFolder, name: str) -> None:
        """Inspect a new hard link. A git part that shares the file could be written through it without a notice."""
        if self.armed and self._read_here:
            info = self._stat(folder.join_name(name))
            if info is not None and info.st_nlink > 1 and (info.st_dev, info.st_ino) in self._read_here:
                self.inspect_name(*self._read_here[info.st_dev, info.st_ino])

    def inspect_open_files(self) -> None:
        """Inspect files again that were open for writing: inotify does not report writes through mmap."""
        again, self.writing = self.writing, set()
        if len(self._gitlinks) <= GITLINKS:
            self.check_gitlinks()
        for folder, name in again:
            self.inspect_name(folder, name)

    def check_gitlinks(self) -> None:
        """Inspect new `.git` files again: the target folder of one may be a link by now."""
        for folder, name in tuple(self._gitlinks) if self.armed else ():
            self._inspect_dot_git(folder, name)

    def _stat_new(self, path: str) -> os.stat_result | None:
        """Return the stat of a path, or None if it existed when the index was armed."""
        return self._filter_new(path, self._stat(path))

    def _filter_new(self, path: str, info: os.stat_result | None) -> os.stat_result | None:
        if info is None or (info.st_dev, info.st_ino) in self._known:
            return None
        if stat.S_ISLNK(info.st_mode) and self._links.get(path) == self._read_link(path):
            return None
        return info

    def _inspect_dot_git(self, folder: WatchedFolder, name: str) -> None:
        """Accept a `.git` folder, or a file that points to a git directory in the workspace; move anything else."""
        info = self._stat_new(folder.join_name(name))
        if info is None or (stat.S_ISDIR(info.st_mode)):
            return
        if info.st_nlink > 1 or not self._is_harmless_gitlink(folder, name):
            self._gitlinks.discard((folder, name))
            self._move_aside(folder, name)
        else:
            self._gitlinks.add((folder, name))

    def _is_harmless_gitlink(self, folder: WatchedFolder, name: str) -> bool:
        text = self._read_text(folder, name)
        if text == "":  # git is about to write it, which is the next notice
            return True
        if text is None or not text.startswith("gitdir: "):
            return False
        path = text[len("gitdir: ") :].rstrip("\r\n")
        inside = self._tree.relative_path(path)
        if inside is None or not path:
            return False
        target = self.find_folder([*(() if path.startswith("/") else folder.names), *inside.split("/")])
        if target is None:
            return False
        try:
            os.close(self._tree.open_folder(target.path, FOLDER))  # no link leads there
        except OSError:
            return False
        self._inspect_git_directory(target)
        return True  # `git worktree add` writes the link before the git directory, whose parts are inspected later

    def _is_git_folder(self, folder: WatchedFolder) -> bool:
        """Return True if git treats a folder as a git directory, by its name or its content."""
        if fold_name(folder.name) == GIT:
            return True
        there = {fold_name(name) for name in folder.marked}
        return "head" in there and ("commondir" in there or {"objects", "refs"} <= there)

    def _stat_git_parts(self, folder: WatchedFolder) -> list[tuple[str, os.stat_result]]:
        """Return the parts of a git directory that can name programs."""
        found: list[tuple[str, os.stat_result]] = []
        if not self._is_git_folder(folder):
            return found
        with suppress(OSError), self._open_folder(folder.path) as fd:
            for name in folder.marked:
                if fold_name(name) in TRUSTED:
                    with suppress(OSError):
                        found.append((name, os.stat(name, dir_fd=fd, follow_symlinks=False)))
        return found

    def _inspect_git_directory(self, folder: WatchedFolder) -> None:
        for name, info in self._stat_git_parts(folder):
            if self._filter_new(folder.join_name(name), info) is None:
                continue
            if fold_name(name) not in CONFIGS:
                if not self._is_harmless_part(folder, name, info):
                    self._move_aside(folder, name)
                continue
            text = self._read_text(folder, name)
            plain = filter_git_config(text or "")
            if plain == text and info.st_nlink == 1:
                continue
            self._move_aside(folder, name)
            with suppress(OSError), self._open_folder(folder.path) as fd, _ensure_writable(fd):
                config = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=fd)
                with open(config, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                    file.write(plain)

    def _is_harmless_part(self, folder: WatchedFolder, name: str, info: os.stat_result) -> bool:
        """Return True if a part of a git directory names no program."""
        if fold_name(name) == "hooks":
            with suppress(OSError), self._open_folder(folder.join_name(name)) as fd, os.scandir(fd) as entries:
                return all(one.name.endswith(".sample") and one.is_file(follow_symlinks=False) for one in entries)
            return False
        if info.st_nlink > 1:
            return False
        if fold_name(name) in CONFIGS:
            config = self._read_text(folder, name)
            return config is not None and filter_git_config(config) == config
        # Only `.git/worktrees/x/commondir` is harmless, as `git worktree add` writes it.
        above = folder.names[-3:-1]
        if len(above) < 2 or fold_name(above[0]) != GIT or above[1] != "worktrees":
            return False
        text = self._read_text(folder, name)
        return text is not None and text.strip() in ("../..", "")  # empty while git writes it

    def _read_text(self, folder: WatchedFolder, name: str) -> str | None:
        """Read a small regular file; None for everything else. One that a process has open for writing is noted.

        inotify reports each open, but not writes through mmap. So its reports are off while the file is opened here,
        and on again before a read lease is requested. The kernel grants no lease while the file is open for writing.
        """
        try:
            with self._open_folder(folder.path) as above:
                self._set_quiet(folder, above, True)
                try:
                    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=above)
                finally:
                    self._set_quiet(folder, above, False)
        except OSError:
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                return None
            self._read_here[info.st_dev, info.st_ino] = (folder, name)
            try:
                fcntl.fcntl(fd, _SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(fd, _SETLEASE, fcntl.F_UNLCK)
            except BlockingIOError:
                self.writing.add((folder, name))
            except OSError:
                pass  # the file system has no leases
            data = os.read(fd, CONFIG_BYTES + 1)
            return data.decode("utf-8", "surrogateescape") if len(data) <= CONFIG_BYTES else None
        except OSError:
            return None
        finally:
            os.close(fd)

    def _set_quiet(self, folder: WatchedFolder, fd: int, quiet: bool) -> None:
        folder.quiet = quiet
        if folder.deep:
            self._watch(folder, fd)

    @contextmanager
    def _open_folder(self, path: str) -> Iterator[int]:
        fd = self._tree.open_folder(path)
        try:
            yield fd
        finally:
            os.close(fd)

    def _move_aside(self, folder: WatchedFolder, name: str) -> None:
        """Rename a file or folder to a free name that no program trusts."""
        path = folder.join_name(name)
        try:
            with self._open_folder(folder.path) as fd, _ensure_writable(fd):
                other = self._choose_free_name(fd, folder.names, name)
                os.rename(name, other, src_dir_fd=fd, dst_dir_fd=fd)
        except FileNotFoundError:
            return
        except OSError:
            if path not in self.stuck:
                self.stuck.append(path)
            return
        folder.marked.discard(name)
        if path not in self.moved:
            self.moved.append(path)

    def _choose_free_name(self, fd: int, names: tuple[str, ...], name: str) -> str:
        forms = ("{name}.moved-{number}", "{bare}.moved-{number}", "moved-{number}.{bare}", "moved-{number}")
        bare = name.lstrip(".") or "name"
        for form in forms:
            if not self._rules.matches_last((*names, form.format(name=name, bare=bare, number=1))):
                break
        number = 1
        while True:
            other = form.format(name=name[:200], bare=bare[:200], number=number)
            try:
                os.stat(other, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                return other
            number = number + 1 if number < 8 else int.from_bytes(os.urandom(6), "big")


@contextmanager
def _ensure_writable(folder: int) -> Iterator[None]:
    """Make a folder writable for its owner, and restore its mode on exit."""
    mode = os.fstat(folder).st_mode
    if mode & 0o300 == 0o300:
        yield
        return
    os.chmod(f"/proc/self/fd/{folder}", (mode | 0o300) & 0o7777)
    try:
        yield
    finally:
        os.chmod(f"/proc/self/fd/{folder}", mode & 0o7777)
