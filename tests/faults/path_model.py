"""A tree to try paths in, and a model that resolves paths independently.

    ground = Ground(folder)             a workspace of every kind of thing, beside things that are none of its business
    found = ground.model.find("d/../in/file.txt")
    ground.touched()                    what has changed outside, or was protected; nothing, one hopes
    ground.restore()

The model is a table and a walk over it: it asks neither the disk nor wick. Where the tree is mounted elsewhere (in a
container), `seen` is the folder's path there.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

Names = tuple[str, ...]

TOKEN = "outside-5f1d7a"  # in every file outside, and in the name of one
HIDDEN = "hidden-93c04b"  # in the dot-env file
NEEDLE = "needle"
SECRET_BYTES = 7_331  # a size that no inside file has
LONGEST = "x" * 255
MOST_LINKS, NAME_BYTES, PATH_BYTES = 40, 255, 4_095  # as the kernel has it

FOLDERS = ("d", "d/e", "d/e/empty", "..foo", "with space", "% folder", ".. ", "．．", "․․", "-rf", "DIR", "dir", "a\nb")
ODD = (  # names that are legal, each of a file at the top and of one in a folder
    *("...", "..bar", "a..b", "a..", " lead", "tail ", "tail.", "-r", "--", "*", "?", "[a]", "{a,b}", "~", "$HOME"),
    *(
        "`id`",
        "a;b",
        "a'b",
        'a"b',
        "new\nline",
        "\n",
        "\t",
        "\x7f",
        "back\\slash",
        "..\\up",
        "d\\file.txt",
        "C:",
        "con",
    ),
    *(
        "%2e%2e",
        "%2e%2e%2ffile.txt",
        "%00",
        "\u00e9",
        "e\u0301",
        "a∕b",
        "a／b",
        "．．",
        "․․",
        "Case",
        "case",
        "x (deleted)",
    ),
    *("\udcff", "a\udc80b", LONGEST, "é" * 127, "nul\u2400", "\u202egnp", "\u200b", "🦉", "file.txt ", "file.txt."),
)
FILES = (
    *("file.txt", "movable.txt", "d/file.txt", "d/e/file.txt", "..foo/file.txt", "with space/file.txt"),
    *("% folder/a b.txt", ".. /file.txt", "．．/file.txt", "-rf/file.txt", "DIR/one", "dir/two", "a\nb/file.txt"),
    *(name for name in ODD if name not in FOLDERS),
    *(f"d/{name}" for name in ODD),
)
LINKS = {
    "in": "d",
    "in-file": "d/file.txt",
    "in-dots": "./d/../d//e/.",
    "in-own": "{root}/d",
    "in-own-file": "{root}/d/e/file.txt",
    "d/up": "..",
    "d/e/over": "../../d",
    "chain": "d/e/over/up/in-own",
    "nothing": "missing",
    "to-new": "d/e/made",
    "round": "round",
    "ping": "d/../pong",
    "pong": "ping/d",
    "out": "../outside",
    "out-slash": "../outside/",
    "out-file": "../outside/secret.txt",
    "out-new": "../outside/new",
    "out-own": "{out}",
    "out-own-file": "{out}/secret.txt",
    "out-up": "..",
    "out-root": "/",
    "out-back": "../workspace/d",
    "out-own-up": "{root}/../outside",
    "out-twin": "{root}x",
    "out-twin-file": "{root}x/secret.txt",
    "out-chain": "in/up/d/e/over/out-too/d",
    "out-proc": "/proc/self/root{out}",
    "out-cwd": "/proc/self/cwd",
    "out-fd": "/proc/self/fd/0",
    "out-zero": "/dev/zero",
    "out-passwd": "/etc/passwd",
    "d/out-too": "../../outside",
    "env-link": ".env",
    **{f"hop{number}": f"hop{number + 1}" for number in range(42)},
    "hop42": "d",
}
ODDITIES = ("fifo", "socket", "device", "d/fifo")
GUARDED = {
    ".env": HIDDEN,
    "d/.env.local": HIDDEN,
    ".git/config": "[core]\n",
    ".git/hooks/pre-commit": "#!/bin/sh\n",
    ".wick/agents.yaml": "agents: {}\n",
}
OUTSIDE = ("secret.txt", "file.txt", "d/file.txt", "d/e/file.txt", f"{TOKEN}.txt")
PLACES = ("outside", "workspacex", "")  # beside the workspace: a sibling with its name as prefix, and its parent


def content(path: str) -> str:
    return f"{NEEDLE} of {path.encode(errors='surrogateescape').hex()}\n"


# -- the model ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """The target of a path: `out`, `there`, `missing` or an error, and the names of the target without links."""

    where: str
    names: Names = ()
    kind: str = ""
    plain: bool = True  # True if only names are missing, so that they can be created without following a link


@dataclass(eq=False)
class Model:
    """A tree as a table: a kind (and where a link leads to) for each of its names."""

    root: str
    kinds: dict[Names, str] = field(default_factory=lambda: {(): "dir"})
    links: dict[Names, str] = field(default_factory=dict)

    def add(self, path: str, kind: str, link: str = "") -> None:
        names = tuple(path.split("/"))
        for depth in range(1, len(names)):
            self.kinds.setdefault(names[:depth], "dir")
        self.kinds[names] = kind
        if link:
            self.links[names] = link

    @cache  # noqa: B019  (there are few models)
    def inside(self, folder: Names) -> set[str]:
        return {names[-1] for names in self.kinds if len(names) == len(folder) + 1 and names[:-1] == folder}

    @cache  # noqa: B019
    def beneath(self, folder: Names, kind: str) -> set[str]:
        return {
            "/".join(names) for names, this in self.kinds.items() if this == kind and names[: len(folder)] == folder
        }

    def find(self, path: str, follow: bool = True) -> Found:
        """Walk; the last name, if it is a link, only `follow`ed if that is asked for."""
        if not is_path(path):
            return Found("invalid")
        rest = self._from_root(path)
        if rest is None:
            return Found("out")
        todo, at, hops = _backwards(rest), (), 0
        own = len(todo)  # so many of the names to do are the path's own; those above come from a link
        while todo:
            name = todo.pop()
            if self.kinds[at] != "dir":
                return Found("no folder", at)
            if name in ("", "."):
                continue
            if name == "..":
                if not at:
                    return Found("out")
                at = at[:-1]
                continue
            here = (*at, name)
            kind = self.kinds.get(here)
            if kind is None:
                return self._missing(here, todo, linked=len(todo) >= own)
            if kind != "link" or (not follow and not any(part not in ("", ".") for part in todo)):
                at = here
                if kind == "link":
                    break
                continue
            hops += 1
            if hops > MOST_LINKS:
                return Found("loop")
            target = self._from_root(self.links[here])
            if target is None:
                return Found("out")
            at, own = () if self.links[here].startswith("/") else at, min(own, len(todo))
            todo += _backwards(target)
        return Found("there", at, self.kinds[at])

    def _from_root(self, path: str) -> str | None:
        """A path from where it begins, or None for an absolute one that does not begin with the root's."""
        if not path.startswith("/"):
            return path
        rest = path.removeprefix(self.root)
        return rest.lstrip("/") if rest != path and rest[:1] in ("", "/") else None

    def _missing(self, here: Names, todo: list[str], *, linked: bool) -> Found:
        more = todo[::-1]
        plain = not linked and ".." not in more and not (more and more[-1] in ("", "."))
        return Found("missing", (*here, *(name for name in more if name not in ("", "."))), plain=plain)


def _backwards(path: str) -> list[str]:
    return path.split("/")[::-1]


def is_path(path: str) -> bool:
    """Return True if a file system accepts it."""
    try:
        data = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    names = data.split(b"/")
    return bool(data) and b"\0" not in data and len(data) <= PATH_BYTES and max(map(len, names)) <= NAME_BYTES


def guarded(*names: str) -> bool:
    """Return True if one of these names may be protected; the model makes no prediction, `touched` checks it."""
    return any(name.casefold().startswith((".env", ".git", ".wick", ".claude")) for name in names)


# -- on disk --------------------------------------------------------------------------------------------------------

Inventory = dict[str, int]


class Ground:
    """The tree on disk, in a folder of `place`; nothing beside it may be read or changed."""

    def __init__(
        self,
        place: Path,
        name: str = "workspace",
        *,
        seen: str = "",
        owner: int = -1,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.place, self.root, self.owner = place, place / name, owner
        self.seen = seen or str(place)
        self.model = Model(f"{self.seen}/{name}")
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in PLACES:
            for name in OUTSIDE:
                self._outside(place / folder / name)
        (place / "outside/hard.txt").write_text(content("hard"))
        self._describe(more or {})
        self._make_all("/".join(names) for names in self.model.kinds if names)
        self._own(self.root)
        self._guarded = [str(self.root / path) for path in GUARDED]
        self._hard = str(place / "outside/hard.txt")
        self._files = [str(place / folder / name) for folder in PLACES for name in OUTSIDE]
        self._folders = sorted({str(place), *(os.path.dirname(path) for path in self._files)})
        self._inner = [self.path(names) for names, kind in self.model.kinds.items() if kind == "dir"]
        self.known, self.names, self.kept, self.beside = self.inventory(), self.listed(), self._kept(), self._beside()

    def filled(self, text: str) -> str:
        """Replace the placeholders of the workspace path and of the outside path."""
        return text.replace("{root}", self.model.root).replace("{out}", f"{self.seen}/outside")

    def _outside(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{NEEDLE} {TOKEN}\n".ljust(SECRET_BYTES))
        path.chmod(0o666)
        path.parent.chmod(0o777)

    def _describe(self, more: Mapping[str, str]) -> None:
        for path in FOLDERS:
            self.model.add(path, "dir")
        for path in (*FILES, "hard", *GUARDED):
            self.model.add(path, "file")
        for path in ODDITIES:
            self.model.add(path, "other")
        for path, target in {**LINKS, **more}.items():
            self.model.add(path, "link", self.filled(target))

    def _make_all(self, paths: Iterable[str]) -> None:
        for path in sorted(paths, key=_depth):
            place, names = os.path.join(self.root, path), tuple(path.split("/"))
            if not os.path.lexists(place):
                self._make(names, self.model.kinds[names], place)
                if self.owner >= 0:
                    os.lchown(place, self.owner, self.owner)

    def path(self, names: Names) -> str:
        return os.path.join(self.root, *names)

    def _make(self, names: Names, kind: str, path: str) -> None:
        name = "/".join(names)
        if kind == "dir":
            os.mkdir(path)
        elif kind == "link":
            os.symlink(self.model.links[names], path)
        elif name == "hard":
            os.link(self.place / "outside/hard.txt", path)
        elif kind == "file":
            Path(path).write_bytes(GUARDED.get(name, content(name)).encode())
        elif names[-1] == "fifo":
            os.mkfifo(path)
        elif names[-1] == "socket":
            self._bind(path)
        else:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero

    def _bind(self, path: str) -> None:
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            with socket.socket(socket.AF_UNIX) as made:  # its address must be short
                made.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
        finally:
            os.close(folder)

    def _own(self, path: Path) -> None:
        if self.owner >= 0:
            os.chown(path, self.owner, self.owner)

    # -- looking --

    def inventory(self) -> Inventory:
        """Return everything in the workspace by inode: a replaced file has another."""
        found: Inventory = {}
        todo = [(str(self.root), "")]
        for folder, prefix in todo:  # grows while it is walked
            with os.scandir(folder) as entries:
                for entry in entries:
                    found[prefix + entry.name] = entry.inode()
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((entry.path, f"{prefix}{entry.name}/"))
        return found

    def listed(self) -> list[list[str]] | None:
        """Return the names in each folder, which is faster; None if one is missing."""
        try:
            return [os.listdir(folder) for folder in self._inner]
        except OSError:
            return None

    def _beside(self) -> list[Any]:
        """Return the state outside: names and file attributes; fewer for the hard-linked file."""
        found: list[Any] = []
        for folder in self._folders:
            found.append(os.listdir(folder))
        for path in self._files:
            state = os.stat(path)
            found.append((state.st_ino, state.st_mtime_ns, state.st_ctime_ns, state.st_size))
        state = os.stat(self._hard)
        return [*found, (state.st_ino, state.st_mtime_ns, state.st_size, state.st_mode)]

    def _kept(self) -> list[Any]:
        states = [os.lstat(path) for path in self._guarded]
        return [(state.st_ino, state.st_mtime_ns, state.st_size) for state in states]

    def touched(self) -> str:
        """Return forbidden changes: outside, or of protected files."""
        try:
            return self.outside() or ("" if self._kept() == self.kept else "what is protected changed")
        except FileNotFoundError as error:
            return f"it is gone: {error.filename}"

    def outside(self) -> str:
        """Return changes outside."""
        beside = self._beside()
        return (
            "" if beside == self.beside else f"outside changed: {[new for new in beside if new not in self.beside][:3]}"
        )

    def restore(self, *, refused: bool = False) -> bool:
        """Restore the workspace; return True if needed. Refused operations may have created names."""
        if refused and self.listed() == self.names:
            return False
        there, known = self.inventory(), self.known
        if there == known:
            return False
        for name in sorted((name for name in there if there[name] != known.get(name)), key=_depth, reverse=True):
            path = os.path.join(self.root, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        self._make_all(name for name in known if there.get(name) != known[name])
        self.known, self.names, self.kept = self.inventory(), self.listed(), self._kept()
        return True


def _depth(path: str) -> int:
    return path.count("/")
