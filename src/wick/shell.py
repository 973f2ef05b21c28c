"""What a shell command would run, as far as that can be read without running it.

    script = read("timeout 60 make test > log")
    script.commands      timeout 60 make test · make test
    script.redirects     log, which is written
    script.opaque        why it cannot be known in full; nothing here

Two readers look at a command: `wick.grammar`, which sees into everything, and `wick.lexing`, which knows plain commands
only and nothing of grammars. Where they do not agree word for word, the command is opaque: no mistake in one of them
makes a command look like another.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from wick.caps import SHELL_CHARS, SHELL_COMMANDS, SHELL_NESTING, SHELL_SIGNS, SHELL_WORDS
from wick.grammar import UNKNOWN, look
from wick.lexing import Lexed, Redirect, Unclear, Word, Words, lex


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, or the command inside of another. `needs` says that it must be allowed by itself."""

    words: Words
    needs: bool = True

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Script:
    """What was read of a command. Anything in `opaque` means that more may happen than can be seen."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: tuple[str, ...] = ()


@lru_cache(maxsize=64)
def read(command: str, moved: bool = False) -> Script:
    """Read a command; what cannot be read is not an error, but opaque. `moved`: it does not start in the workspace."""
    reader = _Reader()
    reader.text(command)
    if moved:
        reader.check_places()
    return Script(tuple(dict.fromkeys(reader.commands)), tuple(reader.redirects), tuple(dict.fromkeys(reader.opaque)))


# -- what stands before a command, and which part of it is the command inside ---------------------------------------


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command that runs the one it is given: its options, and how many words stand before that command."""

    flags: str = ""
    valued: str = ""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    skip: int = 0
    sets: bool = False  # takes NAME=value
    own: bool = False  # must be allowed by itself, too

    def inner(self, words: Words) -> int | None:
        """Where the command inside begins; None if that is not plain."""
        at = 1
        while at < len(words) and words[at].fixed and words[at].text.startswith("-") and words[at].text != "-":
            text = words[at].text
            if text == "--":
                at += 1
                break
            step = self._option(text)
            if step is None:
                return None
            at += step
        at += self.skip
        return at if all(word.fixed for word in words[:at]) else None  # a pattern may become several words

    def _option(self, text: str) -> int | None:
        """How many words an option takes; None if it is not known."""
        if text.startswith("--"):
            name, equals, _ = text[2:].partition("=")
            if name in (self.long_valued if equals else self.long_flags):
                return 1
            return 2 if name in self.long_valued else None
        for place, letter in enumerate(text[1:], 2):
            if letter in self.valued:
                return 1 if text[place:] else 2
            if letter not in self.flags:
                return None
        return 1


WRAPPERS = {
    "builtin": Wrapper(),
    "busybox": Wrapper(own=True),
    "command": Wrapper(),
    "doas": Wrapper("n", "uC", own=True),
    "env": Wrapper("i", "u", frozenset({"ignore-environment"}), frozenset({"unset"}), sets=True),
    "exec": Wrapper(),
    "ionice": Wrapper("t", "cn"),
    "nice": Wrapper("", "n", frozenset(), frozenset({"adjustment"})),
    "nohup": Wrapper(),
    "setsid": Wrapper("cfw"),
    "stdbuf": Wrapper("", "ioe", frozenset(), frozenset({"input", "output", "error"})),
    "sudo": Wrapper("EHnkSPb", "ugpCrtTh", sets=True, own=True),
    "time": Wrapper("p"),
    "timeout": Wrapper(
        "v",
        "sk",
        frozenset({"foreground", "preserve-status", "verbose"}),
        frozenset({"signal", "kill-after"}),
        skip=1,
    ),
    "toybox": Wrapper(own=True),
    "xargs": Wrapper("0rtx", "nLPsdEI", frozenset({"null", "no-run-if-empty", "verbose"})),
}
# They run a command, too, but which of their words it begins with is for them alone to say.
OPENERS = frozenset(
    "chroot chrt coproc entr fakeroot flock gdb ltrace nsenter parallel pkexec runuser script setpriv setarch strace su"
    " systemd-run taskset unbuffer unshare watch".split()
)
SHELLS = frozenset("sh bash dash ash ksh mksh zsh".split())
PLAIN_SHELLS = frozenset("sh bash dash".split())
# Builtins that change what later words mean, or run what is in a text, a file or a variable.
CHANGES = frozenset(
    "[ [[ declare export getopts let local read readonly set shift shopt trap typeset unalias unset".split()
)
CODE = frozenset(". alias bind compgen complete compopt enable eval fc hash history mapfile readarray source".split())
CALCULATE = CHANGES | {"printf", "test", "wait"}
MOVES = frozenset("cd popd pushd".split())
KEYWORDS = frozenset(
    "! { } ( [[ if then elif else fi for while until do done case esac select function in time coproc".split()
)
FINDS = frozenset("-exec -execdir -ok -okdir".split())

SIGNS = "|&;<>(){}$`=["
_SETS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[.*\])?\+?=")
_COUNTS = re.compile(r"%[^%A-Za-z]*n")  # printf sets a variable


@dataclass(slots=True)
class _Reader:
    """Collects what a text, and the texts inside of it, would run."""

    commands: list[Command] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # texts that commands are fed with
    fed: bool = False  # a shell among them reads such a text
    depth: int = 0

    def text(self, text: str) -> None:
        """Take in a text, by what both readers see in it."""
        if len(text) > SHELL_CHARS or self.depth > SHELL_NESTING:
            return self._hide("it is too long or too deep to be read")
        lexed = _lexed(text)
        if _too_much(text, lexed):
            return self._hide("it has too many commands")
        self.depth += 1
        moved, commands = self._moves(), self._seen(text)
        if isinstance(lexed, Unclear):
            self._unclear(text, lexed)
        else:
            self.redirects += [redirect for redirect in lexed.redirects if redirect not in self.redirects]
            if lexed.commands != commands:
                self.opaque.append("it can be read in two ways")
                self._each(lexed.commands)
        self._finish(moved)
        self.depth -= 1

    def _unclear(self, text: str, unclear: Unclear) -> None:
        self.opaque.append(str(unclear))
        if re.search(r"[^\s\\]\\\n[^\s]", text):
            self._hide("it has a word that goes on in the next line")  # of which the grammar makes two

    def _seen(self, text: str) -> list[Words]:
        seen = look(text)
        self.opaque += seen.opaque
        self.redirects += seen.redirects
        self.inputs += seen.inputs
        self.commands += map(Command, seen.named)
        self._each(seen.commands)
        for reason, shown in seen.hidden:
            self._hide(reason, shown)
        return seen.commands

    def _each(self, commands: Sequence[Words]) -> None:
        for words in commands:
            self.simple(words)

    def _finish(self, moved: bool) -> None:
        """See to what can only be said of a text as a whole."""
        if any(redirect.target.text.startswith(("/dev/tcp/", "/dev/udp/")) for redirect in self.redirects):
            self.opaque.append("it opens a connection")
        if self.fed:
            self._read_inputs()
        if self._moves() and not moved:
            self.check_places()

    def _moves(self) -> bool:
        return any(_base(command.words[0]) in MOVES for command in self.commands)

    def check_places(self) -> None:
        """After a `cd`, a path that does not begin at the root is another one."""
        paths = [redirect.target.text for redirect in self.redirects if redirect.file]
        paths += [command.words[0].text for command in self.commands if "/" in command.words[0].text]
        if any(not path.startswith("/") for path in paths):
            self.opaque.append("it names a path after going to another folder")

    def _hide(self, reason: str, shown: str = "…") -> None:
        """Something may be run that cannot be seen."""
        self.opaque.append(reason)
        self.commands.append(Command((Word(shown, fixed=False),)))

    def simple(self, words: Words) -> None:
        """Take in a simple command, and what it runs in turn."""
        if not words:
            return
        if len(self.commands) >= SHELL_COMMANDS or len(words) > SHELL_WORDS:
            return self._hide("it has too many commands or words")
        place = len(self.commands)
        self.commands.append(Command(words))
        name = _base(words[0])
        plain = words[0].text == name
        if not words[0].fixed:
            self.opaque.append("the name of a command is not plain")
        elif name in WRAPPERS:
            within = self._wrapped(name, WRAPPERS[name], words) and plain and not WRAPPERS[name].own
            self.commands[place] = Command(words, needs=not within)
        elif name in SHELLS:
            within = self._shell(words) and plain
            self.commands[place] = Command(words, needs=not within)
        elif name == "find":
            self._find(words)
        elif name in OPENERS:
            self._somewhere(words, f"{name} runs another command")
        else:
            self._builtin(name, words)

    def _wrapped(self, name: str, wrapper: Wrapper, words: Words) -> bool:
        """Take in the command inside; whether it stands for the whole."""
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return False  # only says where a command is
        at = wrapper.inner(words)
        if name == "env" and at is not None and at < len(words) and words[at].text == "-":
            at += 1
        while at is not None and wrapper.sets and at < len(words) and _SETS.match(words[at].text):
            self.opaque.append("it sets a variable")
            at += 1
        if at is None or (name == "time" and at < len(words) and words[at].text in KEYWORDS):
            self._somewhere(words, f"the options of {name} are not plain")
            return False
        if at >= len(words):
            return name == "xargs"  # which then only says what it was given
        inner = _fed(words[1:at], words[at:]) if name == "xargs" else words[at:]
        self.simple(inner)
        return True

    def _somewhere(self, words: Words, reason: str) -> None:
        """A command begins with one of these words."""
        self.opaque.append(reason)
        for at in range(1, len(words)):
            if len(self.commands) >= SHELL_COMMANDS:
                return self._hide("it has too many commands or words")
            self.commands.append(Command(words[at:]))
            if words[at].fixed and re.search(r"[\s'\"\\]", words[at].text):  # env -S, su -c, watch
                self.text(re.sub(r"^(-\w|--[\w-]+=)", "", words[at].text))

    def _find(self, words: Words) -> None:
        if any(not word.fixed and (not word.glob or word.text[0] in "*?[-") for word in words):
            self._hide("what find is told is not plain")  # a file may be named -exec
        at = 1
        while at < len(words):
            if words[at].text not in FINDS:
                at += 1
                continue
            end = next((end for end in range(at + 1, len(words)) if _ends(words, end)), None)
            if end is None:
                return self._somewhere(words, "what find runs has no end")
            self.simple(tuple(_loose(word, "{}") for word in words[at + 1 : end]))
            at = end + 1

    def _shell(self, words: Words) -> bool:
        """Take in what another shell is told to run; whether that is the whole of it."""
        at, letters = 1, ""
        while at < len(words) and re.match(r"[-+].", words[at].text):
            if not re.fullmatch(r"-[a-np-rt-z]+", words[at].text):  # -o and -O take a word, -s reads, others are long
                self._somewhere(words, "a shell is started with options of its own")
                self._hide("a shell is started with options of its own")
                return False
            letters += words[at].text[1:]
            at += 1
        if "c" in letters:
            plain = words[0].text in PLAIN_SHELLS and set(letters) <= set("ceux")
            if not plain:
                self.opaque.append("it starts another kind of shell")
            return self._code(words[at : at + 1]) and plain
        if at >= len(words) or not all(word.fixed for word in words[: at + 1]):
            self._hide("a shell reads its commands from elsewhere")
            self.fed = True
        return False

    def _read_inputs(self) -> None:
        inputs, self.inputs, self.fed = self.inputs, [], False
        for text in inputs:
            self.text(text)

    def _code(self, words: Words) -> bool:
        if not words or not all(word.fixed for word in words):
            self._hide("it runs a text that is not plain")
            return False
        self.text(" ".join(word.text for word in words))
        return True

    def _builtin(self, name: str, words: Words) -> None:
        texts = [word.text for word in words[1:]]
        if name in CODE:
            self.opaque.append(f"{name} may run what is not seen here")
            self._code(words[1:]) if name == "eval" else self._hide(f"{name} may run what is not seen here")
        elif name in CHANGES:
            self.opaque.append(f"{name} changes what commands mean")
            if name == "trap":
                self._code(words[1:2])
        elif (
            (name == "test" and any(text in ("-v", "-R") or "[" in text for text in texts))
            or (name == "printf" and any(text.startswith("-v") or _COUNTS.search(text) for text in texts))
            or (name == "wait" and any(text.startswith("-") for text in texts))
        ):
            self.opaque.append(f"{name} may set a variable or calculate")
        if name in CALCULATE and any("$(" in text or "`" in text for text in texts):
            self._hide(f"{name} may calculate with a text")


def _lexed(text: str) -> Lexed | Unclear:
    try:
        return lex(text)
    except Unclear as unclear:
        return unclear


def _too_much(text: str, lexed: Lexed | Unclear) -> bool:
    """Whether the grammar would take too long; its time grows with the square of the signs."""
    if isinstance(lexed, Unclear):
        return sum(map(text.count, SIGNS)) > SHELL_SIGNS
    return len(lexed.commands) + len(lexed.redirects) > SHELL_COMMANDS


def _base(word: Word) -> str:
    """The name of a program, wherever it lies, and as a file system sees it that does not mind capitals."""
    return word.text.rsplit("/", 1)[-1].casefold()


def _loose(word: Word, sign: str) -> Word:
    """A word in which something is put in place of a sign."""
    return replace(word, fixed=False, glob=False) if sign in word.text else word


def _ends(words: Words, at: int) -> bool:
    """Whether this is where the command ends that find runs; a plus does so only behind the files."""
    return words[at].text == ";" or (words[at].text == "+" and words[at - 1].text == "{}")


def _fed(options: Sequence[Word], words: Words) -> Words:
    """What xargs runs: the words it was given and those it reads, at the end or in place of a sign."""
    for at, option in enumerate(options):
        if option.text.startswith("-I"):
            sign = option.text[2:] or options[at + 1].text
            words = tuple(_loose(word, sign) for word in words)
        elif option.text.startswith("-") and "I" in option.text:
            return (UNKNOWN,)  # perhaps it has a sign
    return (*words, UNKNOWN)
