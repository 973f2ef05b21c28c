"""Ignore files as git has them, and lines found by three programs alike."""

from __future__ import annotations

import builtins
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wick import constants
from wick.errors import BackendError, MissingExtra
from wick.workspace import grep
from wick.workspace.globs import Glob
from wick.workspace.grep import GrepParser, LineSearch, RipgrepParser, grep_command, ripgrep_command
from wick.workspace.results import GrepResult
from wick.workspace.rooted_folder import RootedFolder
from wick.workspace.walk import DiskWalk, IgnoreLookup, WalkBudget
from wick.workspace.workspace import Workspace


def needs(program: str) -> str:
    found = shutil.which(program)
    if not found:
        pytest.skip(f"needs {program}; install it to test what is found with it")
    return found


# -- ignore files, beside git ---------------------------------------------------------------------------------------

pieces = st.sampled_from(["a", "b", "c.x", "*", "**", "?", "*.x", "[ab]", "[!a]", "a*", "\\a", "a b", "[", "éé"])
rule = st.tuples(
    st.sampled_from(["", "!", "#", "\\!", "\\#"]),
    st.sampled_from(["", "/"]),
    st.lists(pieces, min_size=1, max_size=3).map("/".join),
    st.sampled_from(["", "/", " ", "\\ ", "\r", "/ ", "\t"]),
).map("".join)
ignore_file = st.lists(rule, max_size=5).map("\n".join)
FOLDERS = ["", "a", "b", "a/b", "a/a b"]
PATHS = sorted(
    f"{folder}/{name}".lstrip("/")
    for folder in FOLDERS
    for name in ["a", "b", "c.x", "d", "#a", "!b", "a b", "éé", "c.x "]
)


@pytest.fixture(scope="module")
def repository() -> Iterator[Path]:
    needs("git")
    with tempfile.TemporaryDirectory() as folder:
        quiet = {"env": {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}, "check": True, "capture_output": True}
        subprocess.run(["git", "init", folder], **quiet)  # type: ignore[call-overload]
        root = Path(folder)
        for path in PATHS:
            place = root / path
            if place.is_dir() or path in FOLDERS:
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text("x")
        yield root


def ignored_by_git(root: Path, paths: list[str]) -> set[str]:
    command = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"]
    asked = "\0".join(paths).encode()
    done = subprocess.run(command, cwd=root, input=asked, capture_output=True, check=False, timeout=30)
    assert done.returncode in (0, 1), done.stderr
    return {path for path in done.stdout.decode().split("\0") if path}


@settings(max_examples=int((os.environ.get("WICK_FULL") and 3_000) or 120))
@given(texts=st.fixed_dictionaries({"": ignore_file}, optional={"a": ignore_file, "a/b": ignore_file}))
@example(texts={"": "/a/*\n!/a/b\n"})
@example(texts={"": "a/**/c.x\n", "a": "!b/c.x\n"})
@example(texts={"": "**\n!a\n"})
@example(texts={"": "a/**\n!a/b/\n"})
@example(texts={"": "*.x\n!c.x \n"})
@example(texts={"": "\ufeffa\n"})
@example(texts={"": "[/[ab]\n"})
def test_git_ignored_files_are_omitted(repository: Path, texts: dict[str, str]) -> None:
    for folder in FOLDERS:
        (repository / folder / ".gitignore").unlink(missing_ok=True)
        if folder in texts:
            (repository / folder / ".gitignore").write_bytes(texts[folder].encode())
    files = [path for path in PATHS if (repository / path).is_file()]
    rules = IgnoreLookup(lambda folder: texts.get(folder, ""))
    found = {path for path in files if rules.is_ignored(path)}
    assert found == ignored_by_git(repository, files)
    tree = RootedFolder(str(repository))
    try:
        walked = {path for path, _ in DiskWalk(tree, WalkBudget()).files("", Glob("**"))}
    finally:
        tree.close()
    assert walked == {*files, *(f"{folder}/.gitignore".lstrip("/") for folder in texts)} - found - {
        path for path in (f"{folder}/.gitignore".lstrip("/") for folder in texts) if rules.is_ignored(path)
    }


@settings(max_examples=int((os.environ.get("WICK_FULL") and 1_000) or 40))
@given(texts=st.fixed_dictionaries({"": ignore_file}, optional={"a": ignore_file, "a/b": ignore_file}))
def test_ripgrep_leaves_out_no_more_than_that(repository: Path, texts: dict[str, str]) -> None:
    """Files it ignores by its own rules are ignored anyway; it only strips trailing tabs."""
    texts = {folder: text.replace("\t", "") for folder, text in texts.items()}
    for folder in FOLDERS:
        (repository / folder / ".gitignore").unlink(missing_ok=True)
        if folder in texts:
            (repository / folder / ".gitignore").write_bytes(texts[folder].encode())
    files = Workspace(str(repository))
    try:
        for path in (".", "a"):
            assert by_ripgrep(files, "x", path) == files.grep("x", path)
    finally:
        files.close()


# -- lines ----------------------------------------------------------------------------------------------------------


def lines(pattern: str, *blocks: bytes, **options: bool) -> list[tuple[int, str]]:
    return list(LineSearch(pattern, **options).find_lines(blocks))


@pytest.mark.parametrize(
    ("pattern", "data", "found"),
    [
        ("b", b"a\nb\nab", [(2, "b"), (3, "ab")]),
        ("^b$", b"b\r\nab\r\nb", [(1, "b"), (3, "b")]),
        ("", b"a\n\nb\n", [(1, "a"), (2, ""), (3, "b")]),
        ("x*", b"\n", [(1, "")]),
        ("$", b"a\n", [(1, "a")]),
        ("a\\nb", b"a\nb\n", []),
        ("a\\sb|[^x]z", b"a\nb\nyz\n", [(3, "yz")]),
        ("é", "é\n".encode(), [(1, "é")]),
        ("caf.", b"caf\xe9 x\ncaf\xc3\xa9\n", [(2, "café")]),
        ("caf", b"caf\xe9\n", [(1, "café")]),
        ("(?i)A", b"a\n", [(1, "a")]),
        ("nothing", b"a\n", []),
        ("a", b"", []),
    ],
)
def test_lines_that_match(pattern: str, data: bytes, found: list[tuple[int, str]]) -> None:
    assert lines(pattern, data) == found
    assert lines(pattern, *(data[at : at + 1] for at in range(len(data)))) == found


@given(st.text("ab\n\r", max_size=30), st.integers(1, 5), st.sampled_from(["a", "^b", "a$", "ab?", "^$", "b*a"]))
def test_lines_match_one_by_one(text: str, size: int, pattern: str) -> None:
    """As the standard library finds them, line by line."""
    expected = []
    parts = text.split("\n")
    for number, line in enumerate(parts[:-1] if parts[-1] == "" else parts, 1):
        shown = line[:-1] if line.endswith("\r") and number < len(parts) else line
        if re.search(pattern.replace("$", "\\Z"), shown):
            expected.append((number, line.rstrip("\r")))
    data = text.encode()
    assert lines(pattern, *(data[at : at + size] for at in range(0, len(data), size))) == expected


def test_upper_and_lower_case() -> None:
    assert lines("É", "é\n".encode(), ignore_case=True) == [(1, "é")]
    assert lines("É", "é\n".encode()) == []


def test_a_long_line_is_shown_around_the_match() -> None:
    line = b"x" * 5_000 + b"needle" + b"y" * 5_000
    ((number, text),) = lines("needle", line)
    assert number == 1
    assert text.startswith("…xxx") and text.endswith("yyy…") and "needle" in text
    assert len(text) == constants.GREP_LINE_CHARS + 2
    ((_, text),) = lines("^x", line)
    assert text.startswith("xxx") and text.endswith("x…")
    ((_, text),) = lines("y$", line)
    assert text.endswith("yyy") and text.startswith("…")
    ((_, text),) = lines("x+needle", line)
    assert len(text) <= constants.GREP_LINE_CHARS + 2


def test_a_line_longer_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "GREP_BUFFER_BYTES", 1_000)
    monkeypatch.setattr(grep, "GREP_OVERLAP_BYTES", 100)
    blocks = [b"first\n", *[b"x" * 100] * 50, b"needle" + b"x" * 97, *[b"needle"] * 50, b"\nneedle\n"]
    found = lines("needle", *blocks)
    assert [number for number, _ in found] == [2, 3]


@pytest.mark.parametrize("pattern", ["(", "a{2000}", "(?=a)", r"(a)\1", "a)(b", "*", "[", "x" * 20_000, "\ud800", "\0"])
def test_invalid_regular_expressions_are_refused(pattern: str) -> None:
    with pytest.raises(BackendError) as caught:
        LineSearch(pattern)
    assert caught.value.code == "invalid"


@pytest.mark.parametrize("command", [ripgrep_command, grep_command])
@pytest.mark.parametrize("pattern", ["x" * 20_000, "\ud800", "a\0b"])
def test_unpassable_arguments_are_refused(command: Callable[[str], list[str]], pattern: str) -> None:
    with pytest.raises(BackendError) as caught:
        command(pattern)
    assert caught.value.code == "invalid"


def test_no_regular_expression_takes_long() -> None:
    assert lines("(a*)*(a|b)*(a?){50}c", b"a" * 100_000) == []


def test_without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "re2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"pip install 'wick-agent\[files\]'"):
        LineSearch("a")


# -- ripgrep and grep find the same ---------------------------------------------------------------------------------

TEXTS = {
    "a.py": "def one():\n    return 'naïve café'\n\n\nx = 1\n",
    "src/b.py": "import os\nclass B:\n    def two(self): pass\n",
    "src/deep/c.md": "# One\r\nsome text\r\nfoo;\r\n",
    "src/deep/d.txt": "[brackets] {braces} a.b a+b $5 \\ back|slash ~ & -- x_1\n",
    "odd 'name\"\nline.txt": "one odd line\n",
    "-dash.txt": "one more\n",
    "long.txt": "x" * 3_000 + " one " + "y" * 3_000 + "\nshort one\n",
    "ignored.log": "one\n",
    "keep/kept.log": "one\n",
    "node_modules/m.js": "one\n",
    "sub/node_modules/m.js": "one\n",
    ".env": "SECRET=one\n",
    "sub/.env.local": "SECRET=one\n",
    ".github/flow.yml": "one: two\n",
    ".gitignore": "*.log\n!/keep/\n/gen/\n",
    "gen/g.py": "one\n",
    "keep/.gitignore": "!kept.log\n",
    "sub/gen/g.py": "one = 'ünï'\n",
    "empty.txt": "",
    "no_end.txt": "one without end",
    "colors.txt": "\x1b[31mone\x1b[m two one\n",
    "digits.txt": "٣ arabic\n3 latin\n\u00a0nbsp\nélan_vital\n",
}
BYTES = {
    "binary.bin": b"one\0one\n",
    "latin.txt": b"caf\xe9 one\n",
    b"bad\xff.txt": b"one bad name\n",
    "utf16.txt": "one\n".encode("utf-16"),
}


@pytest.fixture(scope="module")
def forest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    root = tmp_path_factory.mktemp("forest")
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    for odd, data in BYTES.items():
        with open(os.path.join(os.fsencode(root), os.fsencode(odd)), "wb") as file:
            file.write(data)
    os.symlink("a.py", root / "link.py")
    os.symlink("src", root / "srclink")
    os.symlink("/etc", root / "out")
    os.mkfifo(root / "fifo")
    workspace = Workspace(str(root))
    yield workspace
    workspace.close()


def by_ripgrep(forest: Workspace, pattern: str, path: str, **options: Any) -> GrepResult:
    return by_program(forest, ripgrep_command, RipgrepParser, pattern, path, **options)


def by_grep(forest: Workspace, pattern: str, path: str, **options: Any) -> GrepResult:
    return by_program(forest, grep_command, GrepParser, pattern, path, **options)


def by_program(
    forest: Workspace, command: Callable[..., list[str]], reader: Any, pattern: str, path: str, **options: Any
) -> GrepResult:
    keep = forest.build_search_filter(path, **{key: value for key, value in options.items() if key != "ignore_case"})
    argv = command(pattern, forest.resolve(path), **options)
    needs("rg" if command is ripgrep_command else "grep")
    done = subprocess.run(argv, cwd=forest.root, capture_output=True, check=False, timeout=30)
    reading = reader(keep)
    for at in range(0, len(done.stdout), 1_000):
        reading.feed(done.stdout[at : at + 1_000])
    found: GrepResult = reading.result(done.returncode, done.stderr.decode())
    return found


SEARCHES: list[tuple[str, str, dict[str, Any]]] = [
    ("one", ".", {}),
    ("ONE", ".", {"ignore_case": True}),
    ("one", ".", {"everything": True}),
    ("one", "src", {}),
    ("one|two", "srclink", {}),
    ("one", "sub", {"glob": "*.py"}),
    ("one", "node_modules", {}),
    ("one", "a.py", {}),
    ("one", "link.py", {}),
    ("one", "ignored.log", {}),
    ("one", ".", {"glob": "*.{py,md}"}),
    ("one|text", ".", {"glob": "src/**/*.md"}),
    ("one", ".", {"glob": "odd*"}),
    ("one", "keep", {}),
    ("foo;$", ".", {}),
    ("^$", ".", {}),
    ("", "src", {}),
    (r"^\w+$", ".", {}),
    (r"\bone\b", ".", {}),
    (r"\Bne", ".", {}),
    (r"\d", "digits.txt", {}),
    (r"^\s", "digits.txt", {}),
    (r"^\S", "digits.txt", {}),
    (r"\b[[:alpha:]]+_", "digits.txt", {}),
    (r"^[\d]", "digits.txt", {}),
    (r"[^\x00-\x7F]", ".", {}),
    (r"na.ve caf.'", ".", {}),
    (r"NAÏVE", ".", {"ignore_case": True}),
    (r"\Qa.b a+b $5\E", ".", {}),
    (r"[[a]brackets", ".", {}),
    (r"[]]", ".", {}),
    (r"[^]a-z]b", ".", {}),
    (r"[&&~~] ", ".", {}),
    (r"{braces}", ".", {}),
    (r"o{1}ne|a{1,2}\.b", ".", {}),
    (r"(?i)ONE", ".", {}),
    (r"(?P<name>one)", ".", {}),
    (r"\pL+ï", ".", {}),
    (r"-dash|--", ".", {}),
    ("nothing at all", ".", {}),
]


@pytest.mark.parametrize(("pattern", "path", "options"), SEARCHES, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("program", [by_ripgrep, by_grep], ids=["ripgrep", "grep"])
def test_the_same_lines(
    forest: Workspace, program: Callable[..., GrepResult], pattern: str, path: str, options: dict[str, Any]
) -> None:
    expected = forest.grep(pattern, path, **options)
    found = program(forest, pattern, path, **options)
    assert found == expected


@pytest.mark.parametrize(("path", "code"), [(".env", "protected"), ("fifo", "not_a_file"), ("out/passwd", "escapes")])
def test_special_files_are_not_searched(forest: Workspace, path: str, code: str) -> None:
    for search in (forest.grep, lambda pattern, path: by_ripgrep(forest, pattern, path)):
        with pytest.raises(BackendError) as caught:
            search("one", path)
        assert caught.value.code == code


def test_the_forest_is_searched(forest: Workspace) -> None:
    files = {match["file"] for match in forest.grep("one")["matches"]}
    assert files >= {"a.py", "odd 'name\"\nline.txt", "-dash.txt", "latin.txt", "bad\udcff.txt", "sub/gen/g.py"}
    left_out = {"ignored.log", "node_modules/m.js", ".env", "sub/.env.local", "gen/g.py", "binary.bin", "link.py"}
    assert not files & left_out
    assert forest.grep("SECRET", everything=True) == {"matches": [], "truncated": False}


@pytest.mark.parametrize("reader", [RipgrepParser, GrepParser])
@given(data=st.binary(max_size=200))
@example(data=b'{"type":"match","data":{}}\n')
@example(data=b'{"type":"match","data":[]}\n')
@example(data=b'{"type":"match","data":{"submatches":[{}],"lines":{"text":1},"path":{},"line_number":[]}}\n')
@example(data=b"a\x00x:b\n")
@example(data=b"a\x00" + b"9" * 5_000 + b":b\n")
def test_a_reader_takes_any_bytes(reader: Any, data: bytes) -> None:
    reading = reader(lambda file: True)
    reading.feed(data)
    reading.feed(data)
    for match in reading.result()["matches"]:
        assert isinstance(match["line"], int) and isinstance(match["text"], str)


@pytest.mark.parametrize(
    ("reader", "record"),
    [
        (GrepParser, b"./f\x00%d:x\n"),
        (
            RipgrepParser,
            b'{"type":"match","data":{"path":{"text":"./f"},"lines":{"text":"x\\n"},"line_number":%d,"submatches":[]}}\n',
        ),
    ],
)
def test_a_reader_has_enough(reader: Any, record: bytes) -> None:
    reading = reader(lambda file: True)
    assert reading.feed(b"".join(record % number for number in range(constants.GREP_MATCHES)))
    assert not reading.feed(record % 5_000)
    assert not reading.feed(record % 5_001)
    found = reading.result()
    assert (len(found["matches"]), found["truncated"]) == (constants.GREP_MATCHES, True)


@pytest.mark.parametrize("reader", [RipgrepParser, GrepParser])
def test_a_reader_holds_no_line_without_end(reader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep, "GREP_BUFFER_BYTES", 1_000)
    reading = reader(lambda file: True)
    assert reading.feed(b"x" * 1_500)
    assert not reading.feed(b"x" * 1_500)
    assert reading.result()["truncated"]


def test_a_program_that_failed_is_an_error(forest: Workspace) -> None:
    with pytest.raises(BackendError) as caught:
        by_ripgrep(forest, "(", ".")
    assert caught.value.code == "invalid"
    with pytest.raises(BackendError):
        GrepParser().result(2, "grep: missing )")
    with pytest.raises(BackendError):
        RipgrepParser().result(127)
    nothing = {"matches": [], "truncated": False}
    assert (
        GrepParser().result(1) == GrepParser().result(2) == nothing
    )  # 2 without a word: there was a file that may not be read
