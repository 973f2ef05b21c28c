"""Paths generated from a grammar: valid ones, escaping ones, and ones that only look escaping."""

from __future__ import annotations

import random
from collections.abc import Iterator
from urllib.parse import quote

from faults.path_model import FILES, FOLDERS, GUARDED, LINKS, ODD, ODDITIES, OUTSIDE, Ground

BEGINNINGS = (
    *("../", "../../", "/", "//", "{root}/", "{root}//", "{root}/../", "{root}/./", "{root}x/", "{out}/", "{out}/../"),
    *("/proc/self/root{out}/", "/proc/self/cwd/", "/proc/self/root/", "/proc/1/root/", "/proc/thread-self/cwd/"),
    *("/dev/fd/", "/proc/self/fd/0/", "~/", "file://{out}/", "file:{out}/", "\\\\?\\", "C:\\", "/etc/../{root}/", "./"),
)
ALONE = (
    *("", ".", "..", "/", "//", "./", "../", "{root}", "{root}/", "{root}x", "{out}", "~", "\0", "/etc/passwd"),
    *(
        "/proc/self/environ",
        "/proc/self/mem",
        "/dev/zero",
        "/dev/null",
        "/proc/self/fd/0",
        "d/../..",
        "in/../../outside",
    ),
    *("..\\outside\\secret.txt", "%2e%2e/outside/secret.txt", "..%2foutside%2fsecret.txt", "..;/outside/secret.txt"),
    *("．．/outside/secret.txt", "․․/outside/secret.txt", "..／outside／secret.txt", "..∕outside∕secret.txt", "....//"),
    *("../outside/secret.txt\0.txt", "\n../outside/secret.txt", " ../outside/secret.txt", "../outside/secret.txt\n"),
)
NEW = ("new", "new.txt", "n..w", ".new", "new ", "..new", "neu é", "new\n", "-new", "new\\")
LOOKS_ALIKE = {".": "․．。", "/": "∕／⁄⧸", "e": "е", "o": "о", "d": "ԁ"}
BETWEEN = ("/", "/", "/", "/", "/", "//", "/./", "/../", "///", "/.//")


class Paths:
    """Chooses paths for a ground, by chance."""

    def __init__(self, ground: Ground, chance: random.Random) -> None:
        self._ground, self._chance = ground, chance
        self._all = [*FILES, *FOLDERS, *LINKS, *ODDITIES, *GUARDED]
        self._ways = [self._honest] * 10 + [self._links] * 4 + [self._walk] * 4 + [self._begun] * 3
        self._ways += [self._new, self._new, self._changed, self._changed, self._long, self._alone]

    def __iter__(self) -> Iterator[str]:
        while True:
            yield self._ground.filled(self._chance.choice(self._ways)())

    def _honest(self) -> str:
        """Return an existing path in a roundabout spelling."""
        path = self._chance.choice(self._all)
        turns = (
            "",
            "",
            "",
            "./",
            "d/../",
            "d/e/../../",
            "in/up/",
            "in-own/../",
            "{root}/",
            "with space/../",
            "..foo/../",
        )
        end = self._chance.choice(("", "", "", "", "", "/", "/.", "/..", "//"))
        return self._chance.choice(turns) + path.replace("/", self._chance.choice(BETWEEN[:8])) + end

    def _links(self) -> str:
        """Through a link or two."""
        ways = [name for name in LINKS if not name.startswith("hop")] + ["hop0", "hop2", "hop3", "hop30", "hop42"]
        some = [self._chance.choice(ways) for _ in range(self._chance.choice((1, 1, 1, 2, 3)))]
        ends = ("", "", "file.txt", "secret.txt", "e/file.txt", "..", "../file.txt", "new/x", "d/file.txt", "outside")
        return "/".join([*some, self._chance.choice(ends)]).rstrip("/" if self._chance.random() < 0.7 else "")

    def _walk(self) -> str:
        """Names in any order."""
        names = ["d", "e", "up", "over", "in", "out", "out-up", "..", "..", ".", "", "file.txt", "outside", "workspace"]
        some = [self._chance.choice(names) for _ in range(self._chance.randint(1, 7))]
        return self._chance.choice(BETWEEN[:6]).join(some)

    def _begun(self) -> str:
        """With a beginning that is meant to lead elsewhere."""
        ends = (*OUTSIDE, "etc/passwd", "d/file.txt", "file.txt", "new", "", "outside/secret.txt", "workspace/file.txt")
        return self._chance.choice(BEGINNINGS) + self._chance.choice(ends)

    def _new(self) -> str:
        """Something that is not there, and may be made."""
        folder = self._chance.choice(
            ("", "", "d/", "d/e/", "in/", "..foo/", "new folder/", "a/b/c/", "chain/", "{root}/")
        )
        return folder + self._chance.choice((*NEW, *ODD)) + self._chance.choice(("", "", "", "-2", "..", ".."))

    def _changed(self) -> str:
        """A path with something done to it that a careless check falls for."""
        path = self._chance.choice((self._walk, self._begun, self._links, self._honest))()
        at = self._chance.randint(0, len(path))
        way = self._chance.randrange(8)
        if way == 0:
            return path[:at] + self._chance.choice("\0\n\r\t \\%") + path[at:]
        if way == 1:
            return quote(path, safe="/" if at % 2 else "", errors="replace")
        if way == 2:
            return path.replace("/", "\\")
        if way == 3:
            return "".join(self._chance.choice(LOOKS_ALIKE[char]) if char in LOOKS_ALIKE else char for char in path)
        if way == 4:
            return path.swapcase()
        if way == 5:
            return path + self._chance.choice((".", "..", " ", "/..", "\u200b", "\ud800", "\udc80", "::$DATA"))
        if way == 6:
            return path.replace("..", self._chance.choice(("...", ".. ", " ..", ". .", "....", ".\u200b.")))
        return path.replace("..", "%2e%2e")

    def _long(self) -> str:
        """As long as it may be, and longer."""
        path = self._chance.choice(("file.txt", "d/file.txt", "../outside/secret.txt", "in/file.txt"))
        way = self._chance.randrange(6)
        if way == 0:
            return "./" * self._chance.choice((100, 1_000, 2_040, 2_048, 5_000)) + path
        if way == 1:
            return "d/../" * self._chance.choice((10, 100, 800, 900)) + path
        if way == 2:
            return "../" * self._chance.choice((3, 30, 300)) + path
        if way == 3:
            return "d/e/over/up/" * self._chance.choice((5, 10, 11, 20, 200)) + path
        return "y" * self._chance.choice((254, 255, 256, 4_095, 4_096, 70_000))

    def _alone(self) -> str:
        return self._chance.choice(ALONE)
