"""Line search with RE2, and the commands and output parsers for ripgrep and GNU grep.

    LineSearch("def \\w+").find_lines(blocks)        the lines that match a regular expression (RE2)
    RipgrepParser().feed(output)                    the output of `ripgrep_command("def \\w+")`

This module also runs inside containers: the standard library only, Python 3.8; there, ripgrep or grep searches
instead of RE2.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import Any, Callable, Iterable, Iterator

from wick.constants import (
    GREP_BUFFER_BYTES,
    GREP_LINE_CHARS,
    GREP_MATCHES,
    GREP_MEMORY_BYTES,
    GREP_OVERLAP_BYTES,
    GREP_PATTERN_CHARS,
)
from wick.errors import BackendError, MissingExtra
from wick.workspace.globs import HEAVY, SECRET
from wick.workspace.results import GrepMatch, GrepResult
from wick.workspace.text import decode_line


def excerpt_line(line: bytes, start: int, end: int) -> str:
    """Return the text of a matching line without its line ending; truncate a long line around the match."""
    line = line.rstrip(b"\r\n")
    text = decode_line(line)
    if len(text) <= GREP_LINE_CHARS:
        return text
    room = GREP_LINE_CHARS - min(GREP_LINE_CHARS, end - start)
    begin = len(decode_line(line[:start])) - room // 2
    begin = max(0, min(begin, len(text) - GREP_LINE_CHARS))
    cut = text[begin : begin + GREP_LINE_CHARS]
    return ("…" if begin else "") + cut + ("…" if begin + GREP_LINE_CHARS < len(text) else "")


class LineSearch:
    """A line search with RE2, which runs in linear time for every pattern."""

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        try:
            import re2  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise MissingExtra("files", "google-re2", "searching in files") from None
        check_pattern(pattern)
        options = re2.Options()
        options.max_mem, options.log_errors, options.never_nl = GREP_MEMORY_BYTES, False, True
        options.case_sensitive, options.never_capture = not ignore_case, True
        try:
            re2.compile(pattern.encode(), options)  # alone first, so that an unbalanced bracket is an error
            self._regex: Any = re2.compile(b"(?m:" + pattern.encode() + b")", options)
        except re2.error as error:
            text = error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else str(error)
            message = f"the regular expression {pattern!r} is not one that RE2 knows: {text}"
            raise BackendError(message, "invalid") from None

    def find_lines(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, str]]:
        """Yield number (from 1) and text of each matching line in the blocks of a file."""
        number, matched = 1, False  # matched: the line that continues from the last piece was already yielded
        for piece in _split_pieces(blocks):
            for line, text in self._find_matches(piece):
                if line or not matched:
                    yield number + line, text
                matched = True
            number += piece.count(b"\n")
            matched = matched and not piece.endswith(b"\n")

    def _find_matches(self, data: bytes) -> Iterator[tuple[int, str]]:
        if b"\r\n" in data:
            data = data.replace(b"\r\n", b"\n")  # so that $ matches before both line endings
        at = line = 0
        while at < len(data):
            found = self._regex.search(data, at)
            if found is None or (found.start() == len(data) and data.endswith(b"\n")):
                return
            start = data.rfind(b"\n", at, found.start()) + 1 or at
            end = data.find(b"\n", found.end())
            end = len(data) if end < 0 else end
            line += data.count(b"\n", at, start)
            yield line, excerpt_line(data[start:end], found.start() - start, found.end() - start)
            at, line = end + 1, line + 1


def verify_matches(blocks: Iterable[bytes], matches: Iterable[GrepMatch]) -> Iterator[GrepMatch]:
    """Yield the matches with a text that is really in their line of the file."""
    wanted, number = {match["line"]: match for match in matches}, 1
    for piece in _split_pieces(blocks):
        if not wanted:
            return
        last = number + piece.count(b"\n")
        if any(number <= line <= last for line in wanted):
            for line, text in enumerate(piece.split(b"\n"), number):
                if line in wanted and wanted[line]["text"].strip("…") in decode_line(text):
                    yield wanted.pop(line)
        number = last


def _split_pieces(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line too long for memory is yielded in overlapping pieces."""
    rest = b""
    for block in blocks:
        rest += block
        cut = rest.rfind(b"\n") + 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        elif len(rest) > GREP_BUFFER_BYTES:
            yield rest
            rest = rest[-GREP_OVERLAP_BYTES:]
    if rest:
        yield rest


def check_pattern(pattern: str) -> None:
    """Raise BackendError unless a regular expression can be passed to a program."""
    if len(pattern) > GREP_PATTERN_CHARS or "\0" in pattern:
        raise BackendError(f"a regular expression has at most {GREP_PATTERN_CHARS} characters, and no NUL", "invalid")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise BackendError("the regular expression has half characters in it", "invalid") from None


# -- ripgrep and grep -----------------------------------------------------------------------------------------------


def ripgrep_command(
    pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
) -> list[str]:
    """Return the ripgrep command for a search in the workspace's folder; `RipgrepParser` parses its output.

    The path must not contain links. ripgrep never excludes more files than the search should.
    """
    command = ["rg", "--no-config", "--json", "--no-messages", "--hidden", "--sort=path", "--crlf", "--encoding=none"]
    command += ["--no-mmap", "--no-follow", "--no-require-git", f"--max-count={GREP_MATCHES + 1}"]
    command += ["--no-ignore-parent", "--no-ignore-global", "--no-ignore-exclude", "--no-ignore-dot"]
    command += [f"--iglob=!{name}" for name in SECRET]
    command += ["--no-ignore"] if everything else [f"--glob=!{name}/" for name in sorted(HEAVY)]
    command += ["--ignore-case"] if ignore_case else ["--case-sensitive"]
    if _is_portable_glob(glob):
        command += [f"--type-add=wick:{glob}", "--type=wick"]
    return [*command, "-e", _translate_pattern(pattern, r"(?-u:\b)", r"(?-u:\B)"), "--", _relative_path(path)]


_COLOR = "1;9;31;9;1"  # the color by which grep marks the match in a line
_BEGIN, _END = f"\x1b[{_COLOR}m".encode(), b"\x1b[m"


def grep_command(
    pattern: str, path: str = ".", *, glob: str = "", ignore_case: bool = False, everything: bool = False
) -> list[str]:
    """Return the GNU grep command for a search in the workspace's folder; `GrepParser` parses its output.

    grep does not support ignore files, so the parser filters ignored files.
    """
    colors = f"GREP_COLORS=ne:fn=:ln=:bn=:se=:mt={_COLOR}"  # only matches are colored
    command = ["env", "LC_ALL=C.UTF-8", colors, "grep", "-rPanHsZ", "--color=always", "--devices=skip"]
    command += [f"--max-count={GREP_MATCHES + 1}", *(f"--exclude={name}" for name in SECRET)]
    heavy = HEAVY - {os.path.basename(path)}  # the search root is never excluded
    command += [] if everything else [f"--exclude-dir={name}" for name in sorted(heavy)]
    command += ["-i"] if ignore_case else []
    if _is_portable_glob(glob) and "{" not in glob:
        command += [f"--include={glob}"]
    word = "[0-9A-Za-z_]"
    edge = f"(?:(?<!{word})(?={word})|(?<={word})(?!{word}))"
    inner = f"(?:(?<!{word})(?!{word})|(?<={word})(?={word}))"
    return [*command, "-e", _translate_pattern(pattern, edge, inner, r"(?=\r?$)"), "--", _relative_path(path)]


def _relative_path(path: str) -> str:
    """Return a path that cannot be parsed as an option."""
    return path if path == "." else f"./{path}"


def _is_portable_glob(glob: str) -> bool:
    """Return True if all programs interpret a glob in the same way."""
    return bool(glob) and all((char.isalnum() and char.isascii()) or char in "*._-{," or char == "}" for char in glob)


_OUTSIDE = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\t\n\f\r ]",
    "S": r"[^\t\n\f\r ]",
    "v": r"\x0B",
}
_COUNT = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")
_WITHIN = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r ", "v": r"\x0B"}


def _translate_pattern(pattern: str, edge: str, inner: str, end: str = "$") -> str:
    """Translate an RE2 pattern for programs with Unicode \\w, \\d, \\s and \\b and nested brackets."""
    check_pattern(pattern)
    outside = {**_OUTSIDE, "b": edge, "B": inner}
    done: list[str] = []
    at, within = 0, False
    while at < len(pattern):
        char, after = pattern[at], pattern[at + 1 : at + 2]
        taken = char
        if char == "\\" and after == "Q" and not within:
            quoted, _, _ = pattern[at + 2 :].partition("\\E")
            done.append("".join(f"\\{sign}" if sign in "\\.+*?()|[]{}^$" else sign for sign in quoted))
            at += len(quoted) + 4
            continue
        if char == "\\":
            taken = char + after
            done.append((_WITHIN if within else outside).get(after, taken))
        elif within and char == "[" and after == ":" and ":]" in pattern[at:]:
            taken = pattern[at : pattern.index(":]", at) + 2]
            done.append(taken)
        elif within:
            within = char != "]"
            done.append(f"\\{char}" if char in "[&~" else char)
        elif char == "[":
            within = True
            taken += "^" if after == "^" else ""
            taken += "]" if pattern[at + len(taken) :].startswith("]") else ""
            done.append(taken.replace("]", "\\]"))
        else:
            literal = char == "{" and not _COUNT.match(pattern, at)
            done.append("\\{" if literal else end if char == "$" else char)
        at += len(taken)
    return "".join(done)


class _OutputParser:
    """Incremental parser of a search program's output. `keep` returns True for files of the search."""

    def __init__(self, keep: Callable[[str], bool] = bool) -> None:
        self._keep, self._last_kept = keep, ("", False)  # the last file, and True if it is kept
        self._rest = b""
        self._matches: list[GrepMatch] = []
        self._cut = False

    def feed(self, data: bytes) -> bool:
        """Parse the next bytes; return False if no more are needed."""
        self._rest += data
        self._rest = self._rest[self._parse(self._rest) :]
        if len(self._rest) > 2 * GREP_BUFFER_BYTES:  # a line without end, or nothing that a search prints
            self._rest, self._cut = b"", True
        return not self._cut

    def result(self, exit_code: int = 0, stderr: str = "") -> GrepResult:
        """Return the sorted matches. Raise BackendError if the program failed; unreadable files are ignored."""
        if not self._matches and not self._cut and (exit_code > 2 or (exit_code == 2 and stderr.strip())):
            message = stderr.strip()[:500] or f"exit code {exit_code}"
            code = "invalid" if exit_code == 2 else "failed"
            raise BackendError(f"the search failed; check the regular expression: {message}", code)
        matches = sorted(self._matches, key=lambda match: (match["file"], match["line"]))
        return {"matches": matches, "truncated": self._cut}

    def _parse(self, data: bytes) -> int:
        """Parse all complete records and return the number of consumed bytes."""
        raise NotImplementedError

    def _add_match(self, name: bytes, line: int, text: bytes, start: int, end: int) -> None:
        file = name.decode("utf-8", "surrogateescape")
        file = file[2:] if file.startswith("./") else file
        if file != self._last_kept[0]:
            self._last_kept = file, self._keep(file)
        if not self._last_kept[1] or self._cut:
            return
        if len(self._matches) == GREP_MATCHES:
            self._cut = True
        else:
            self._matches.append({"file": file, "line": line, "text": excerpt_line(text, start, end)})


class RipgrepParser(_OutputParser):
    """Parser of ripgrep's JSON output."""

    def _parse(self, data: bytes) -> int:
        at = 0
        while not self._cut:
            end = data.find(b"\n", at)
            if end < 0:
                break
            line, at = data[at:end], end + 1
            if not line.startswith(b'{"type":"match"'):
                continue
            try:
                match = json.loads(line)["data"]
                spot = match["submatches"][0] if match["submatches"] else {"start": 0, "end": 0}
                text, name = _decode_text(match["lines"]), _decode_text(match["path"])
                self._add_match(name, int(match["line_number"]), text, int(spot["start"]), int(spot["end"]))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                self._cut = True  # not ripgrep output
        return at


def _decode_text(field: dict[str, str]) -> bytes:
    """Return the bytes of a text field; ripgrep encodes non-UTF-8 text as base64."""
    return field["text"].encode() if "text" in field else base64.b64decode(field["bytes"], validate=True)


class GrepParser(_OutputParser):
    """Parser of GNU grep's output: name, NUL, line number, colon, line."""

    def _parse(self, data: bytes) -> int:
        at = 0
        while not self._cut:
            name_end = data.find(b"\0", at)
            colon = data.find(b":", name_end + 1)
            end = data.find(b"\n", colon + 1)
            if min(name_end, colon, end) < 0:
                break
            number = data[name_end + 1 : colon]
            if not number.isdigit() or len(number) > 18:  # not grep output
                self._cut = True
                break
            before, *colored = data[colon + 1 : end].split(_BEGIN)  # each match is colored
            line = before + b"".join(piece.replace(_END, b"", 1) for piece in colored)
            start = len(before) if colored else 0
            stop = start + max(colored[0].find(_END), 0) if colored else 0
            self._add_match(data[at:name_end], int(number), line, start, stop)
            at = end + 1
        return at
