"""Deceptive shell commands, and real shells in which harmless stubs record executions."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st

STUBS = ("ok", "good", "bad", "evil")
TOOLS = ("env", "nohup", "timeout", "nice", "stdbuf", "setsid", "xargs", "find", "bash", "sh", "cat")
LOG = """#!/bin/sh
row=${{0##*/}}
for arg; do row="$row{sep}$arg"; done
printf '%s\\036' "$row" >> {log}
"""

FILES = ("1", "bad", "-exec", "evil", "one", "two")  # for patterns to find

Ran = tuple[str, ...]


class Stubs:
    """A folder with stubs and a few real programs, and nothing else on the path."""

    def __init__(self, folder: Path) -> None:
        self.log, self.bin, self.cwd = folder / "log", folder / "bin", folder / "cwd"
        self.bin.mkdir()
        self.cwd.mkdir()
        for name in STUBS:
            (self.bin / name).write_text(LOG.format(log=self.log, sep="\037"))
            (self.bin / name).chmod(0o755)
        for name in TOOLS:
            found = shutil.which(name)
            if found:
                (self.bin / name).symlink_to(found)

    def _tidy(self) -> None:
        self.log.write_bytes(b"")
        for path in self.cwd.iterdir():
            if path.name not in FILES:
                path.unlink()
        for name in FILES:
            (self.cwd / name).touch()

    def run(self, command: str, shell: str) -> list[Ran]:
        """Return the executed stubs with their arguments."""
        if not (self.bin / shell).exists():
            pytest.skip(f"install {shell}")
        self._tidy()
        argv = [str(self.bin / shell), "-c", command]
        with suppress(subprocess.TimeoutExpired, ValueError):  # it waits for itself, or has a NUL in it
            subprocess.run(
                argv,
                cwd=self.cwd,
                env={"PATH": str(self.bin)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=5,
                check=False,
            )
        rows = self.log.read_text("utf-8", "replace").split("\036")
        return [tuple(row.split("\037")) for row in rows if row]


ALLOWED = ("ok", "ok a 'b c'", "good one two", "echo hi", "true", "cat", "ok --x=1 *")
OTHERS = ("bad", "bad x", "evil -x", "good one", "good one two three", "good two one")

_WORDS = (
    *("{0}", "{0}", "'{0}'", '"{0}"', "\\{0}", "{1}''{2}", '{1}"{2}"', "{1}\\\n{2}", "$'{0}'", "{1}\\{2}"),
    *("$(echo {0})", "`echo {0}`", "${{x:-{0}}}", "{{{0},}}", "{1}*", "{1}?*", "$X{0}", '"$(echo {0})"', "~{0}"),
    *("{0}\\\n", "\\\n{0}", "'{1}'$'{2}'", "{0}#", "./{0}", "=({0})"),
)
_AROUND = (
    *("env {}", "nohup {}", "timeout 5 {}", "timeout -s KILL 5 {}", "nice -n 1 {}", "time {}", "command {}", "exec {}"),
    *("stdbuf -o L {}", "setsid -w {}", "builtin {}", "env - {}", "env -u A {}", "env A=1 {}", "time -p {}"),
    *("xargs {}", "echo x | xargs {}", "echo bad | xargs -I% {}", "echo evil | xargs -I ok {}", "xargs -n 1 {}"),
    *("find . -maxdepth 0 -exec {} \\;", "find . -maxdepth 0 -exec {} {{}} +", "find . -maxdepth 0 -ok {} ';'"),
    *("echo evil | xargs -0I ok {}", "echo evil | xargs -rIok {}", "nice -n [1b]* {}", "timeout [1b]* {}"),
    *("find . -maxdepth 0 -exec {} + three \\;", "xargs -d I {}", "echo bad | xargs -I a -I ok {}"),
    *("{} > out", "{} 2>&1", "{} >/dev/null", "> out {}", "{} <<EOF\nbad\nEOF", "{} <<'E F'\nbad\nE F", "{} <<< bad"),
    *("{} <<EOF\nx\nEOF\nbad\nEOF", "{} <<-EOF\n\tEOF\nbad\nEOF", "{} <<\\EOF\nbad\nEOF", "{} <<EO\\\nF\nbad\nEOF"),
    *("{} <<EOF\nEO\\\nF\nbad\nEOF", "cat <<EOF | {}\nx\nEOF", "{} <<A <<B\nbad\nA\nbad\nB"),
    *("! {}", "({})", "{{ {}; }}", "if {}; then ok; fi", "while {}; do break; done", "until {}; do break; done"),
    *("for i in 1; do {}; done", "f() {{ {}; }}; f", "function f {{ {}; }}; f", "case a in a) {};; esac"),
    *("cat <({})", "echo $({})", "echo `{}`", 'echo "$({})"', "A=$({}) ok", "ok # {}"),
    *("{} <<'EOF' # <<X\nbad\nEOF", "ok #\\\n{}", "ok\\\n#{}", "ok \\\n#{}"),
    *("ok;#{}", "ok '#' {}", "ok a#b; {}", "ok \\# {}", "ok '\n' {}", "#\n{}", "ok <(#\n{})"),
    *("ok ${{#}} {}", "ok $((2#1)) {}"),
    *("cat <<EOF\n$({})\nEOF", "cat <<'EOF'\n$({})\nEOF", "cat <<EOF\n\\$({})\nEOF", "cat <<EOF\n`{}`\nEOF"),
    *("ok() {{ {}; }}; ok", "alias ok='{}'\nok", "PATH=.:$PATH {}", "X=bad; {}", "[[ 'a[$({})]' -eq 0 ]]", "coproc {}"),
    *("test -v 'a[$({})]'", "printf -v 'a[$({})]' 1", "read 'a[$({})]'", "echo $((a[$({})]))"),
    *("ok $'\\'' {}", "ok '\\' {}"),
    *("ok \"\\\" {}\"", "ok \"'\" {}", "ok '\"' {}", "ok \\\\\n{}", "ok \\\\\\\n{}", "ok {{{},}}"),
    *("ok {{ {}; }}", "{} &>out"),
    *("{} &\nok", "{} |& cat", "ok && {}", "true || {}", "(ok) && ({})", "time ({})", "time {{ {}; }}", "! ! {}"),
    *("ok\u00a0{}", "ok\r{}", "ok\f{}", "ok\v{}", "ok\r\n{}", "{}\u2028bad", "ok \u3000; {}", "ok \x00{}", "ok \x1b{}"),
    *("eval {}", "eval ok \\; {}", "trap {} EXIT", "exec > out; {}", "set -- {}; $@", "$0 -c {}"),
    *(": $({})", "let x=$({})"),
)  # fmt: skip
_QUOTED = (
    *("bash -c {}", "sh -c {}", "bash -ec {}", "env bash -c {}", "xargs bash -c {}", "bash -c ok {}", "sh -c {} a b"),
    *("eval {}", "trap {} EXIT", "env -S {}", "X={}; eval $X", "echo {} | sh", "sh <<< {}"),
    *("bash -lc {}", "bash +c {}"),
    *("bash -O extglob -c {}", "bash -co pipefail {}", "timeout 5 bash -c {}", "source <(echo {})", "echo {}", "ok {}"),
    *("find . -maxdepth 0 -exec sh -c {} \\;", "command eval {}", "builtin eval {}", "mapfile -C {} -c 1 a <<< x"),
)  # fmt: skip
_JOINS = ("; ", ";", " && ", " || ", " | ", "\n", " & ", "&", " |& ", ";\n", " \\\n; ", "\\\n&& ", " # x\n", " & # x\n")


@st.composite
def _simple_commands(draw: st.DrawFn) -> str:
    words = draw(st.sampled_from(ALLOWED + ALLOWED + OTHERS)).split(" ")
    place = draw(st.integers(0, len(words) - 1))
    word, form = words[place], draw(st.sampled_from(_WORDS))
    if "'" not in word:
        words[place] = form.format(word, word[:1], word[1:])
    return " ".join(words)


def _nested_commands(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    around = st.tuples(st.sampled_from(_AROUND), inner).map(lambda row: row[0].format(row[1]))
    quoted = st.tuples(st.sampled_from(_QUOTED), inner).map(lambda row: row[0].format(shlex.quote(row[1])))
    joined = st.tuples(inner, st.sampled_from(_JOINS), inner).map("".join)
    return around | quoted | joined


@st.composite
def _mutated_commands(draw: st.DrawFn, commands: st.SearchStrategy[str]) -> str:
    command = draw(commands)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(command)))
        sign = draw(st.sampled_from([*"'\"\\\n\t ;&|<>(){}#$`!*?[]~=-+,.:@%^", "\\\n", "<<", "bad", " bad ", "ok", ""]))
        command = command[:at] + sign + command[at + draw(st.integers(0, 1)) :]
    return command


PLAIN = st.recursive(_simple_commands(), _nested_commands, max_leaves=4)
COMMANDS = PLAIN | PLAIN | _mutated_commands(PLAIN)
