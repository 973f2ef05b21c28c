"""Static analysis of shell commands: the programs they run and the files they write.

    script = read("timeout 60 make test > log")
    script.commands      timeout 60 make test · make test
    script.redirects     log, which is written
    script.opaque        why it cannot be known in full; nothing here

Two parsers read a command: `shell_syntax`, which is linear and knows where bash and dash differ, and `shell_grammar`,
which uses tree-sitter. Where they do not agree word for word, the script has a command with an unknown name. A command
without expansions must be the same to `shell_lexer` as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from wick.constants import (
    SHELL_ALL_WORDS,
    SHELL_CHARS,
    SHELL_COMMANDS,
    SHELL_LOOSE_WORDS,
    SHELL_NESTING,
    SHELL_TEXTS,
    SHELL_WORDS,
    SHELL_WRAPPED,
)
from wick.permissions.inline_code import is_plain_awk, is_plain_sed
from wick.permissions.shell_grammar import UNKNOWN, look
from wick.permissions.shell_lexer import Redirect, Unclear, Word, Words, is_assignment, lex
from wick.permissions.shell_programs import (
    CALCULATE,
    CHANGES,
    CODE,
    CODE_MODULES,
    CODE_RUNNERS,
    COMMANDED,
    DATABASES,
    FETCHES,
    FINDS,
    INERT,
    INTERACTIVE,
    KEYWORDS,
    LOOKS,
    MOVES,
    NAMED,
    PLAIN_SHELLS,
    SETS,
    VERBS,
    WRAPPERS,
    Interpreter,
    Wrapper,
    can_run,
    explain_git,
    find_interpreter,
    is_opener,
    is_shell,
    names_program,
    runs_from_tar,
)
from wick.permissions.shell_syntax import Budget, Parsed, SimpleCommand, parse


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, or the command inside of another. `needs` says that it must be allowed by itself.

    A `foreign` command is that of a program about which nothing is known: it may run what its words, from `mentions`
    on, speak of.
    """

    words: Words
    needs: bool = True
    foreign: bool = False
    mentions: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()  # its fixed words, also as paths
    loose: Words = ()  # its words that may become, or lead to, something else

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Script:
    """What was read of a command. Anything in `opaque` means that more may happen than can be seen."""

    commands: tuple[Command, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # absolute folders that it changes to
    lost: bool = False  # it changes to a folder that is not known
    names: frozenset[str] = frozenset()  # of its programs, with and without their folders
    unnamed: tuple[Command, ...] = ()  # commands whose program is not certain
    mentions: frozenset[str] = frozenset()  # names in the words of programs about which nothing is known


@lru_cache(maxsize=64)
def read(command: str, moved: bool = False, folder: str = "") -> Script:
    """Read a command; what cannot be read is not an error, but opaque. `moved`: it does not start in the workspace.

    `folder` is where it starts then, if that is known.
    """
    reader = _Reader()
    try:
        reader.text(command)
        reader.check_written()
    except RecursionError:
        reader.hide("it is too long or too deep to be read")
    if moved:
        reader.check_places()
        reader.move(Word(folder) if folder else None)
    commands = tuple(reader.examine(command) for command in dict.fromkeys(reader.commands))
    fixed = [command.words[0].text.casefold() for command in commands if command.words[0].fixed]
    return Script(
        commands,
        tuple(dict.fromkeys(reader.redirects)),
        tuple(dict.fromkeys(reader.opaque)),
        tuple(dict.fromkeys(reader.folders)),
        reader.lost,
        names=frozenset(name for text in fixed for name in (text, text.rsplit("/", 1)[-1])),
        unnamed=tuple(command for command in commands if not command.words[0].fixed),
        mentions=frozenset().union(*(command.mentions for command in commands)),
    )


LOOSE = "…"  # among mentions: words that are not known
_SETS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_COUNTS = re.compile(r"%[^%A-Za-z]*n")  # printf sets a variable
_TOKENS = re.compile(r"[\w.+-]+")
_CODED = re.compile(r"[;&|`$<>()'\"\\\n]")  # signs that a shell, or make, acts on
_SQLITE_FLAG = re.compile(
    r"--?(?:no)?(?:headers?|csv|json|line|column|batch|bail|readonly|box|table|markdown|html|list|ascii|quote|echo|version)"
)
_QUOTES = re.compile(r"['\"\\]")
_IMPLICIT = {  # files that programs run without being told their names
    "python": re.compile(r".*\.(?:py|pth|zip|so)"),
    "node": re.compile(r".*\.(?:js|mjs|cjs|ts|node)|package\.json"),
    "ruby": re.compile(r".*\.rb|gemfile|rakefile"),
    "perl": re.compile(r".*\.p[lm]"),
    **dict.fromkeys(("make", "gmake"), re.compile(r"(?:gnu)?makefile|.*\.mk|.*\.mak")),
    **dict.fromkeys(("npm", "npx", "pnpm", "yarn", "bun"), re.compile(r"package\.json|.*\.[mc]?[jt]s|\.npmrc")),
    **dict.fromkeys(("pytest", "tox", "nox"), re.compile(r".*\.(?:py|ini|toml|cfg)")),
    **dict.fromkeys(("just", "rake", "task"), re.compile(r"\.?justfile|rakefile|taskfile\.ya?ml")),
    "cargo": re.compile(r".*\.rs|cargo\.toml|config\.toml"),
    "go": re.compile(r".*\.go"),
    "git": re.compile(r"\.?gitconfig|config|(?:pre|post|prepare|commit)-[\w-]+"),
}


def simplify(path: str) -> str:
    """Return a path without double slashes, `.` and, as far as the text tells, `..`."""
    head, *rest = path.split("/")
    parts = [head]
    for part in rest:
        if part == ".." and len(parts) > 1 and parts[-1] != "..":
            parts.pop()
        elif part == ".." and parts == [""]:
            continue
        elif part not in ("", "."):
            parts.append(part)
    if parts[0] == "." and len(parts) > 1:
        parts = parts[1:]
    if parts[:2] == ["", "proc"] and "root" in parts[2:]:  # the root of a process is a root
        parts = ["", *parts[len(parts) - parts[::-1].index("root") :]]
    return "/".join(parts) or "/"


@dataclass(slots=True)
class _Reader:
    """Collects what a text, and the texts inside of it, would run."""

    commands: list[Command] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # texts that commands are fed with
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # that are run
    lost: bool = False
    fed: bool = False  # a shell among them reads such a text
    coded: bool = False  # a variable has a value with signs of a shell
    depth: int = 0  # of commands in commands
    nested: int = 0  # of texts in texts
    texts: int = 0
    words: int = 0
    loose: int = 0
    budget: Budget = field(default_factory=Budget)

    def text(self, text: str) -> None:
        """Take in a text, by what all readers see in it."""
        self.texts += 1
        if len(text) > SHELL_CHARS or self.nested >= SHELL_NESTING or self.texts > SHELL_TEXTS:
            return self.hide("it is too long or too deep to be read")
        self.nested += 1
        moved, parsed = self._moves(), parse(text, self.budget)
        self._take(parsed)
        if parsed.problem:
            self.opaque.append(parsed.problem)
            self.hide(parsed.problem)
        else:
            self._compare(text, parsed)
        self._finish(moved)
        self.nested -= 1

    def _take(self, parsed: Parsed) -> None:
        for row in parsed.commands:
            self.redirects += row.redirects
            self.inputs += [word.text for word in row.inputs]
            for name, value in row.assigned:
                self.opaque.append("it sets a variable")
                self._assigned(name, value)
            self.simple(tuple(row.words), row)
        for name in parsed.loops:
            self._assigned(name, None)
        for reason in parsed.hidden:
            self.hide(reason)
        if parsed.functions:
            self.opaque.append("it defines a function")
        if parsed.arithmetic and parsed.literal_code:
            self.hide("it calculates with a text")

    def _compare(self, text: str, parsed: Parsed) -> None:
        """Compare what was parsed with what the grammar sees, and with the reader of plain commands."""
        seen = look(text)
        self.opaque += seen.opaque
        self.redirects += seen.redirects
        for reason, shown in seen.hidden:
            self.hide(reason, shown)
        mine, others = _known(parsed.simple), _known(seen.commands)
        try:
            lexed = lex(text).commands
        except Unclear as unclear:
            self.opaque.append(str(unclear))
        else:
            if _known(lexed) != mine:
                others = _known(lexed)
        if mine != others and not seen.hidden:
            self.hide("it can be read in two ways")
        if mine != others:
            for words in seen.commands:
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
        return self.lost or bool(self.folders) or any(_base(command.words[0]) in MOVES for command in self.commands)

    def check_places(self) -> None:
        """After a `cd`, a path that does not begin at the root is another one."""
        paths = [redirect.target.text for redirect in self.redirects if redirect.file]
        paths += [command.words[0].text for command in self.commands if "/" in command.words[0].text]
        if any(not path.startswith("/") for path in paths):
            self.opaque.append("it names a path after going to another folder")

    def check_written(self) -> None:
        """A file that is run and, in the same command, written, may contain anything."""
        written = {_base(redirect.target) for redirect in self.redirects if redirect.writes and redirect.file}
        loose = any(not row.target.fixed and not row.target.tail for row in self.redirects if row.writes and row.file)
        fetched, named, created = set[str](), set[str](), {*written}
        for command in self.commands:
            name = _base(command.words[0])
            others = {_base(word) for word in command.words[1:]} if name not in LOOKS else set[str]()
            fetched |= others if name in FETCHES else set()
            runs = (
                is_shell(name)
                or name in WRAPPERS
                or name in (".", "source")
                or is_opener(name)
                or find_interpreter(name) is not None
                or any(map(_runs_code, command.words[1:]))
            )
            named |= set() if runs else others
            if name in ("tee", "dd", "sort", "curl", "wget"):
                created |= others | {part for word in command.words[1:] for part in _name_parts(word, name)}
            if name not in LOOKS:
                named |= {part for word in command.words[1:] for part in _name_parts(word, name)}
        if self.files and loose:
            return self.hide("it runs a file, and writes one that is not known")
        names = {_base(command.words[0]) for command in self.commands}
        paths = {_base(command.words[0]) for command in self.commands if "/" in command.words[0].text}
        ran = {_base(Word(file)) for file in self.files}
        if (names | ran) & (written | fetched) or (paths | ran) & named:
            self.hide("it runs a file that it may write")
        for name in names:
            language = find_interpreter(name)
            pattern = _IMPLICIT.get(language[0] if language else name)
            if pattern is not None and any(map(pattern.fullmatch, created)):
                self.hide("it writes a file that one of its programs may run")

    def hide(self, reason: str, shown: str = "…") -> None:
        """Something may be run that cannot be seen."""
        self.opaque.append(reason)
        self.commands.append(Command((Word(shown, fixed=False),)))

    def _add(self, command: Command) -> bool:
        """Record a command; return False if there are too many."""
        self.words += len(command.words)
        unsure = sum(not word.fixed for word in command.words)
        many = len(self.commands) >= SHELL_COMMANDS or len(command.words) > SHELL_WORDS or unsure > SHELL_LOOSE_WORDS
        if many or self.words > SHELL_ALL_WORDS:
            self.hide("it has too many commands or words")
            return False
        self.commands.append(command)
        return True

    def examine(self, command: Command) -> Command:
        """Return the command with what rules compare it by, so that each rule needs no pass over its words."""
        texts = {word.text for word in command.words[1:] if word.fixed}
        texts |= {simplify(text.casefold()) for text in texts if "/" in text}
        strays = self.lost or bool(self.folders)
        loose = [
            word
            for word in command.words[1:]
            if not word.fixed or (strays and not word.text.startswith("/")) or ".." in word.text or "/proc" in word.text
        ]
        self.loose += len(loose)
        if self.loose > SHELL_LOOSE_WORDS:
            loose = loose[:1] and [UNKNOWN]
        return replace(command, texts=frozenset(texts), loose=tuple(dict.fromkeys(loose)))

    # -- simple commands --------------------------------------------------------------------------------------------

    def simple(self, words: Words, row: SimpleCommand | None = None) -> None:
        """Take in a simple command, and what it runs in turn."""
        if not words:
            return
        if self.depth > SHELL_WRAPPED:
            return self.hide("it is too long or too deep to be read")
        place, name = len(self.commands), _base(words[0])
        foreign = name not in INERT
        if not self._add(Command(words, foreign=foreign, mentions=_mentioned(name, words) if foreign else frozenset())):
            return
        if not words[0].fixed and not words[0].tail:
            self.opaque.append("the name of a command is not plain")
            return
        if not words[0].fixed:
            self.opaque.append("the name of a command is not plain")
        self.depth += 1
        stands = self._within(name, words, row)
        self.depth -= 1
        if stands and words[0].text == name:
            self.commands[place] = replace(self.commands[place], needs=False)

    def _within(self, name: str, words: Words, row: SimpleCommand | None) -> bool:
        """Take in what a command runs in turn; return True if that is all it does."""
        interpreter = find_interpreter(name)
        if name in WRAPPERS:
            return self._wrapped(name, WRAPPERS[name], words, row) and not WRAPPERS[name].own
        if is_shell(name):
            return self._shell(words)
        if is_opener(name):
            self._somewhere(words, f"{name} runs another command")
        elif interpreter is not None:
            self._interpreter(*interpreter, words, row)
        elif name in _SPECIAL:
            _SPECIAL[name](self, words)
        elif name in COMMANDED:
            self.hide(f"{name} may run what is not seen here")
        elif name in DATABASES:
            self._database(name, words)
        else:
            self._builtin(name, words)
            self._look_inside(name, words)
        self._options(name, words)
        return False

    def _look_inside(self, name: str, words: Words) -> None:
        """Take in the shell or the interpreter that a program about which nothing is known is given."""
        texts = {word.text for word in words[1:3]}
        if name in INERT or (name in VERBS and texts & _INSTALLS):
            return
        at = next((at for at in range(1, len(words)) if _runs_code(words[at])), None)
        if at is not None and not words[at - 1].text.startswith("--"):
            self.simple(words[at:])

    def _options(self, name: str, words: Words) -> None:
        if name == "crontab" and [word.text for word in words[1:]] == ["-l"]:
            return
        if any(names_program(name, word.text) for word in words[1:]):
            self._somewhere(words, f"an option of {name} runs a program")
            self.hide(f"an option of {name} runs a program")
        if name in ("make", "gmake") and (
            self.coded or any(_CODED.search(word.text.partition("=")[2]) for word in words[1:] if word.fixed)
        ):
            self.hide("a variable of make may run a program")
        if name in ("make", "gmake") and any(_is_stream(word) for word in _values(words, "f", "--file", "--makefile")):
            self.hide("make reads its commands from elsewhere")

    def _wrapped(self, name: str, wrapper: Wrapper, words: Words, row: SimpleCommand | None) -> bool:
        """Take in the command inside; whether it stands for the whole."""
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return False  # only says where a command is
        at = wrapper.inner(words)
        if name == "env" and at is not None and at < len(words) and words[at].text == "-":
            at += 1
        while at is not None and wrapper.sets and at < len(words) and _SETS.match(words[at].text):
            self.opaque.append("it sets a variable")
            self._assigned(words[at].text.partition("=")[0], Word(words[at].text.partition("=")[2], words[at].fixed))
            at += 1
        if at is None or (name == "time" and at < len(words) and words[at].text in KEYWORDS):
            self._somewhere(words, f"the options of {name} are not plain")
            self.hide(f"the options of {name} are not plain")
            return False
        if at >= len(words):
            return name == "xargs"  # which then only says what it was given
        inner = _fed(words[1:at], words[at:]) if name == "xargs" else words[at:]
        self.simple(inner, None if name == "xargs" else row)
        return True

    def _somewhere(self, words: Words, reason: str) -> None:
        """A command begins with one of these words, or is in one of them."""
        self.opaque.append(reason)
        for at in range(1, len(words)):
            if not self._add(Command(words[at:])):
                return
            if _runs_code(words[at]):
                self.simple(words[at:])
                continue
            text = words[at].text
            if words[at].fixed and re.search(r"[\s'\"\\]", text):  # su -c, watch
                self.text(re.sub(r"^(-\w|--[\w-]+=)", "", text))
            elif words[at].fixed and re.match(r"-\w[\w./]|--[\w-]+=", text):  # env -Sevil, --exec=evil
                self._add(Command((Word(re.sub(r"^(-\w|--[\w-]+=)", "", text)), *words[at + 1 :])))

    def find(self, words: Words) -> None:
        if any(not word.fixed and (not word.glob or word.text[0] in "*?[-") for word in words[1:]):
            self.hide("what find is told is not plain")  # a file may be named -exec
        starts = list[str]()
        for word in words[1:]:
            if word.text.startswith(("-", "(", "!")):
                break
            starts.append(word.text)
        inside = all(not start.startswith("/") and ".." not in start for start in starts)
        at = 1
        while at < len(words):
            if words[at].text not in FINDS:
                at += 1
                continue
            end = next((end for end in range(at + 1, len(words)) if _ends(words, end)), None)
            if end is None:
                return self._somewhere(words, "what find runs has no end")
            if words[at].text.endswith("dir"):
                self.lost = self.lost or not inside
            plain = inside and words[at + 1 : at + 2] and "{}" not in words[at + 1].text
            inner = [
                _found(word) if plain and word.text == "{}" else _loose(word, "{}") for word in words[at + 1 : end]
            ]
            self.simple(tuple(inner))
            at = end + 1

    # -- shells and interpreters ------------------------------------------------------------------------------------

    def _shell(self, words: Words) -> bool:
        """Take in what another shell is told to run; whether that is the whole of it."""
        at, letters = 1, ""
        while at < len(words) and re.match(r"[-+].", words[at].text):
            if not re.fullmatch(r"-[a-np-rt-z]+", words[at].text):  # -o and -O take a word, -s reads, others are long
                if words[at].text in ("--version", "--help"):
                    return False
                self._somewhere(words, "a shell is started with options of its own")
                self.hide("a shell is started with options of its own")
                self.fed = True
                return False
            letters += words[at].text[1:]
            at += 1
        if "c" in letters:
            plain = words[0].text in PLAIN_SHELLS and set(letters) <= set("ceux")
            if not plain:
                self.opaque.append("it starts another kind of shell")
                if _base(words[0]) not in PLAIN_SHELLS or not set(letters) <= set("celux"):
                    self.hide("it starts another kind of shell")
            return self._code(words[at : at + 1]) and plain
        if at >= len(words) or not all(word.fixed for word in words[: at + 1]) or _is_stream(words[at]):
            self.hide("a shell reads its commands from elsewhere")
            self.fed = True
        else:
            self.files.append(words[at].text)
            self._add(Command(words[at:], needs=False))  # the file is a program as well
        return False

    def _read_inputs(self) -> None:
        inputs, self.inputs, self.fed = self.inputs, [], False
        for text in inputs:
            self.text(text)

    def _code(self, words: Words) -> bool:
        if not words or not all(word.fixed for word in words):
            self.hide("it runs a text that is not plain")
            return False
        self.text(" ".join(word.text for word in words))
        return True

    def _interpreter(self, language: str, how: Interpreter, words: Words, row: SimpleCommand | None) -> None:
        """Take in the code that an interpreter is given, the file that it runs, or that it reads its input."""
        at, silent, reason = 1, False, f"{language} may run what is not seen here"
        if language == "perl" and any("|" in word.text for word in words[1:]):  # it runs files of such names
            return self.hide(reason)
        while at < len(words) and words[at].text.startswith("-") and words[at].text != "-":
            text = words[at].text
            at += 1
            if not words[at - 1].fixed:
                return self.hide(reason)
            if text.startswith("--"):
                if not text.startswith(how.long_flags):
                    return self.hide(reason)
                silent = silent or text in ("--version", "--help", "--test")
                continue
            for place, letter in enumerate(text[1:], 2):
                if letter in INTERACTIVE.get(language, ""):
                    return self.hide(reason)
                if letter in how.code:
                    code = [Word(text[place:])] if text[place:] and language != "node" else list(words[at : at + 1])
                    if language == "perl" and text[place:]:
                        code = [Word("?")]
                    return None if code and code[0].fixed and how.plain(code[0].text) else self.hide(reason)
                if language == "python" and letter == "m":
                    module = text[place:] or (words[at].text if at < len(words) else "")
                    streams = any(_is_stream(word) for word in words[at:] if "/" in word.text)
                    main = module.partition(".")[0].casefold()
                    risky = main in CODE_MODULES or not module or streams
                    risky = risky or any(names_program(main, word.text) for word in words[at:])
                    if main in CODE_RUNNERS:
                        modules = {word.text.casefold().removeprefix("-m") for word in words[at:]}
                        risky = risky or bool(modules & CODE_MODULES)
                    return self.hide(reason) if risky else None
                if language == "perl" and letter == "i":
                    break  # the rest is a suffix
                if letter in how.valued:
                    at += not text[place:]
                    break
                if letter not in how.flags:
                    return self.hide(reason)
                silent = silent or letter in "vVh"
        if at < len(words) and (not words[at].fixed or _is_stream(words[at])):
            at = len(words) if words[at].text == "-" else at
            if at < len(words) and not (words[at].tail or words[at].glob):
                return self.hide(reason)
        if at < len(words):
            self.files.append(words[at].text)
            self._add(Command(words[at:], needs=False))
            return None if not _is_stream(words[at]) else self.hide(reason)
        if silent and len(words) == 2:
            return None
        texts = row.inputs if row is not None else []
        plain = len(texts) == 1 and texts[0].fixed and how.plain(texts[0].text)
        return None if plain else self.hide(reason)

    def awk(self, words: Words) -> None:
        at = 1
        while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
            text = words[at].text
            if not re.match(r"-[Fv]|--version$|--csv$", text):
                return self.hide("awk may run what is not seen here")
            at += 2 if text in ("-F", "-v") else 1
        if at < len(words) and not (words[at].fixed and is_plain_awk(words[at].text)):
            self.hide("awk may run what is not seen here")

    def sed(self, words: Words) -> None:
        scripts, rest, at = list[Word](), list[Word](), 1
        while at < len(words):
            text = words[at].text
            if text in ("-e", "--expression", "-ne", "-ie", "-Ee", "-re", "-nEe", "-nre"):
                scripts += words[at + 1 : at + 2]
                at += 1
            elif text.startswith("--expression="):
                scripts.append(Word(text.partition("=")[2], words[at].fixed))
            elif re.fullmatch(
                r"-[nErsuz]*(?:i[\w.~-]*)?|--(?:quiet|silent|in-place(?:=\S*)?|posix|null-data)", text
            ) and (len(text) > 1):
                pass
            elif text.startswith("-") and len(text) > 1:
                return self.hide("sed may run what is not seen here")
            else:
                rest.append(words[at])
            at += 1
        scripts = scripts or rest[:1]
        if not all(word.fixed and is_plain_sed(word.text) for word in scripts):
            self.hide("sed may run what is not seen here")

    def git(self, words: Words) -> None:
        if reason := explain_git(words):
            self.hide(reason)
            self._somewhere(tuple(_bare(word) for word in words), reason)

    def tar(self, words: Words) -> None:
        if runs_from_tar(words):
            self._somewhere(words, "an option of tar runs a program")
            self.hide("an option of tar runs a program")

    def link(self, words: Words) -> None:
        self.lost = True  # what a path behind a new link leads to is not known

    def change(self, words: Words) -> None:
        """Note the folder that relative paths are seen from."""
        targets = [word for word in words[1:] if not (word.fixed and re.fullmatch(r"-[LPe@]*|--", word.text))]
        self.move(targets[0] if targets else None)

    def move(self, target: Word | None) -> None:
        if target is None or not target.fixed or target.text == "-":
            self.lost = True
        elif target.text.startswith("/"):
            self.folders.append(target.text)
        elif ".." in target.text.split("/") or target.text[:1] in ("+", "-", ""):
            self.lost = True

    def _database(self, name: str, words: Words) -> None:
        text = " ".join(word.text for word in words[1:])
        tokens = set(_TOKENS.findall(text.casefold()))
        risky = tokens & {
            "system",
            "program",
            "edit",
            "load_extension",
            "source",
            ".shell",
            ".system",
            ".read",
            "pager",
        }
        dotted = any(
            word.text.lstrip().startswith(".") and len(word.text.lstrip()) > 1 and " " in word.text for word in words
        )
        plain = [word for word in words[1:] if not word.text.startswith("-")]
        flags = all(_SQLITE_FLAG.fullmatch(word.text) for word in words[1:] if word.text.startswith("-"))
        given = (
            any(word.text.startswith(DATABASES[name]) for word in words[1:])
            if DATABASES[name]
            else len(plain) > 1 and flags
        )
        risky |= tokens & {"-cmd", "-init", "--init", "--cmd"}
        if risky or dotted or "\\" in text or not given or any(not word.fixed for word in words[2:]):
            self.hide(f"{name} may run what is not seen here")

    # -- builtins and variables -------------------------------------------------------------------------------------

    def _assigned(self, name: str, value: Word | None) -> None:
        self.coded = self.coded or (value is not None and value.fixed and _CODED.search(value.text) is not None)
        if can_run(name, value):
            self.hide(f"it sets {name}, which programs run")
            if value is not None and value.fixed and value.text.strip():
                self.text(value.text)

    def _builtin(self, name: str, words: Words) -> None:
        texts = [word.text for word in words[1:]]
        if name in SETS:
            for word in words[1:]:
                if is_assignment(word.text):
                    self._assigned(word.text.partition("=")[0], Word(word.text.partition("=")[2], word.fixed))
                elif name not in ("export", "readonly") and re.fullmatch(r"[A-Z_][A-Z0-9_]*", word.text):
                    self._assigned(word.text, None)
        if name in (".", "source") and len(words) == 2 and words[1].fixed and words[1].text.endswith("/bin/activate"):
            self.opaque.append(f"{name} may run what is not seen here")
            self.files.append(words[1].text)
        elif name in CODE:
            self.opaque.append(f"{name} may run what is not seen here")
            if name in ("eval", "mapfile", "readarray", "alias"):
                self._code(words[1:])
            if name != "eval":
                self.hide(f"{name} may run what is not seen here")
            self.fed = self.fed or name in (".", "source")
        elif name in CHANGES:
            self.opaque.append(f"{name} changes what commands mean")
            if name == "trap":
                for word in words[1:]:
                    self._code((word,))
            if name == "set" and any(re.match(r"-\w*H|\+|histexpand|history", text) for text in texts):
                self.hide("set changes what commands mean")
        elif (
            (name == "test" and any(text in ("-v", "-R") or "[" in text for text in texts))
            or (name == "printf" and any(text.startswith("-v") or _COUNTS.search(text) for text in texts))
            or (name == "wait" and any(text.startswith("-") for text in texts))
        ):
            self.opaque.append(f"{name} may set a variable or calculate")
        if name in CALCULATE and any(_is_code(word) for word in words[1:]) and _calculates(name, texts):
            self.hide(f"{name} may calculate with a text")
        if "/" in words[0].text and words[0].fixed:
            self.files.append(words[0].text)


_SPECIAL: dict[str, Callable[[_Reader, Words], None]] = {
    "find": _Reader.find,
    "sed": _Reader.sed,
    "gsed": _Reader.sed,
    "git": _Reader.git,
    "tar": _Reader.tar,
    "gtar": _Reader.tar,
    "bsdtar": _Reader.tar,
    "ln": _Reader.link,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _Reader.awk),
    **dict.fromkeys(MOVES, _Reader.change),
}


def _known(commands: Sequence[Words]) -> list[list[str | None]]:
    """Return what two readers must agree on: each command with its words, and which of them are not fixed."""
    lone = ("-", "==", "=~")  # which the grammar sometimes leaves out
    rows = [[word.text if word.fixed else None for word in words if word.text not in lone] for words in commands]
    return [row for row in rows if row[:1] and row[0] not in NAMED]


def _base(word: Word) -> str:
    """The name of a program, wherever it lies, and as a file system sees it that does not mind capitals."""
    return (word.tail or word.text.rstrip("/").rsplit("/", 1)[-1]).casefold()


def _mentioned(name: str, words: Words) -> frozenset[str]:
    """Return the names that the words of a command contain, but for the verb of a program with verbs."""
    first = 2 if name in VERBS and words[1:2] and re.fullmatch(r"\w[\w:.-]*", words[1].text) else 1
    texts = [LOOSE] * any(not word.fixed and not word.glob for word in words[1:])
    texts += [word.text.casefold() for word in words[first:]]
    texts += [_QUOTES.sub("", text) for text in texts if _QUOTES.search(text)]  # a shell takes quotes away
    return frozenset(token for text in texts for token in (_TOKENS.findall(text) if text != LOOSE else (text,)))


_INSTALLS = frozenset("install add i remove uninstall upgrade update search info pull build create list".split())


def _runs_code(word: Word) -> bool:
    """Return True if a word is the name of a shell, an interpreter or `env`, as it is spelled to run one."""
    name = _base(word)
    plain = word.fixed and re.fullmatch(r"[\w./+-]+", word.text) is not None and not word.text.startswith("-")
    others = ("env", "xargs", "awk", "busybox")
    return plain and (is_shell(name) or find_interpreter(name) is not None or name in others)


def _name_parts(word: Word, name: str) -> set[str]:
    """Return the names of files in a word that is not a plain path: `of=x`, `-ox`, `--output=x`, or code."""
    text = word.text.casefold()
    if re.match(r"--?[\w-]+=|\w+=", text) and not find_interpreter(name):
        return {_base(Word(text.partition("=")[2]))}
    if re.match(r"-\w[\w./]", text) and not text.startswith("--") and not find_interpreter(name):
        return {_base(Word(text[2:]))}
    if re.search(r"[\s'\"(]", text):
        return set(_TOKENS.findall(text))
    return set()


def _is_code(word: Word) -> bool:
    return "$(" in word.text or "`" in word.text


def _calculates(name: str, texts: Sequence[str]) -> bool:
    """Return True unless a builtin only takes the result of a substitution as text."""
    if name in ("printf", "test", "wait", "["):
        return any(text in ("-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge") or "[$" in text for text in texts)
    if name in ("export", "readonly", "local", "declare", "typeset"):
        return any("[" in text or re.match(r"[-+]\w*[ianA]", text) for text in texts)
    return True


def _is_stream(word: Word) -> bool:
    """Return True if a file is not a file: the input, a descriptor or a terminal, by whichever path."""
    parts = [part for part in word.text.casefold().split("/") if part not in ("", ".")]
    return (
        word.text == "-"
        or word.text.startswith(("<(", ">("))
        or "dev" in parts[:-1]
        or "proc" in parts[:-1]
        or parts[-1:] == ["stdin"]
    )


def _values(words: Words, letter: str, *names: str) -> list[Word]:
    """Return the values of an option."""
    found = list[Word]()
    for at, word in enumerate(words[1:], 1):
        name, equals, value = word.text.partition("=")
        if word.text.startswith("--"):
            if any(long.startswith(name) for long in names):
                found += [Word(value, word.fixed)] if equals else words[at + 1 : at + 2]
        elif word.text.startswith("-") and letter in word.text[1:]:
            rest = word.text[1:].partition(letter)[2]
            found += [Word(rest, word.fixed)] if rest else words[at + 1 : at + 2]
    return found


def _bare(word: Word) -> Word:
    """Return a setting of git as the command that it may be: `alias.x=!evil push` is `evil push`."""
    _, sign, value = word.text.partition("=")
    return replace(word, text=value.lstrip("!") or word.text) if sign else replace(word, text=word.text.lstrip("!"))


def _found(word: Word) -> Word:
    """Return a file that find finds below the folder of the command."""
    return Word("./*", fixed=False, glob=True)


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
