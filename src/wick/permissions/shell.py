"""Static analysis of shell commands: the programs they run and the files they write.

    script = parse_script("timeout 60 make test > log")
    script.commands      timeout 60 make test · make test
    script.redirects     log, which is written
    script.opaque        reasons why the analysis is incomplete; none here

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
from wick.permissions.shell_grammar import UNKNOWN, scan_text
from wick.permissions.shell_lexer import Redirect, UnclearCommand, Word, Words, is_assignment, lex
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
    can_tar_run,
    explain_git,
    find_interpreter,
    is_opener,
    is_shell,
    names_program,
)
from wick.permissions.shell_syntax import ParseBudget, ParsedScript, SimpleCommand, parse


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A simple command, or a command inside of another. `needs_rule` says that it must be allowed by itself.

    A `foreign` command runs an unknown program, which may run any program named in its `mentions`.
    """

    words: Words
    needs_rule: bool = True
    foreign: bool = False
    mentions: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()  # its fixed words, also as paths
    loose: Words = ()  # words that may expand or resolve to something else

    def __str__(self) -> str:
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Script:
    """The analysis of a command. Entries in `opaque` are reasons why it may do more than was found."""

    commands: tuple[ShellCommand, ...]
    redirects: tuple[Redirect, ...] = ()
    opaque: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # absolute folders that it changes to
    lost: bool = False  # it changes to an unknown folder
    names: frozenset[str] = frozenset()  # of its programs, with and without their folders
    unnamed: tuple[ShellCommand, ...] = ()  # commands whose program is unknown
    mentions: frozenset[str] = frozenset()  # names in the arguments of unknown programs


@lru_cache(maxsize=64)
def parse_script(command: str, moved: bool = False, folder: str = "") -> Script:
    """Parse and analyse a command. Unparsable parts are not errors, but `opaque`.

    `moved` says that it starts outside of the workspace; `folder` is its working directory then, if known.
    """
    reader = _Reader()
    try:
        reader.read_text(command)
        reader.check_written_files()
    except RecursionError:
        reader.hide("it is too long or too deep to be read")
    if moved:
        reader.check_relative_paths()
        reader.enter_folder(Word(folder) if folder else None)
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


LOOSE = "…"  # among mentions: unknown words
_SETS = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^\]]*\])?\+?=")
_COUNTS = re.compile(r"%[^%A-Za-z]*n")  # printf sets a variable
_TOKENS = re.compile(r"[\w.+-]+")
_CODED = re.compile(r"[;&|`$<>()'\"\\\n]")  # characters that a shell or make interprets
_SQLITE_FLAG = re.compile(
    r"--?(?:no)?(?:headers?|csv|json|line|column|batch|bail|readonly|box|table|markdown|html|list|ascii|quote|echo|version)"
)
_QUOTES = re.compile(r"['\"\\]")
PLAIN_CHARS = 200
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_SHELL_WORDS = KEYWORDS | NAMED
_IMPLICIT = {  # files that programs run without naming them
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


def split_plain(text: str) -> Words | None:
    """Return the words of a short command without anything that a shell interprets; None for any other text.

    All parsers agree about such a text, so that none of them is needed.
    """
    if len(text) > PLAIN_CHARS or not _PLAIN.fullmatch(text):
        return None
    words = text.split(" ")
    return None if _SHELL_WORDS.intersection(words) else tuple(map(Word, words))


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
    if parts[:2] == ["", "proc"] and "root" in parts[2:]:  # /proc/<pid>/root is the root of a file system
        parts = ["", *parts[len(parts) - parts[::-1].index("root") :]]
    return "/".join(parts) or "/"


@dataclass(slots=True)
class _Reader:
    """Collects the commands of a text and of the texts nested in it."""

    commands: list[ShellCommand] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    opaque: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)  # texts on the stdin of commands
    folders: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # files that are run
    lost: bool = False
    fed: bool = False  # a shell reads its stdin
    coded: bool = False  # a variable has a value with shell syntax
    depth: int = 0  # nesting of commands
    nested: int = 0  # nesting of texts
    texts: int = 0
    words: int = 0
    loose: int = 0
    budget: ParseBudget = field(default_factory=ParseBudget)

    def read_text(self, text: str) -> None:
        """Analyse a text with all parsers."""
        self.texts += 1
        if len(text) > SHELL_CHARS or self.nested >= SHELL_NESTING or self.texts > SHELL_TEXTS:
            return self.hide("it is too long or too deep to be read")
        self.nested += 1
        words = split_plain(text) if self.texts == 1 else None
        parsed = parse(text, self.budget) if words is None else ParsedScript([SimpleCommand(0, words=[*words])])
        moved = self._changes_folder()
        self._add_parsed(parsed)
        if words is not None:
            pass  # all parsers read it in the same way
        elif parsed.problem:
            self.opaque.append(parsed.problem)
            self.hide(parsed.problem)
        else:
            self._compare(text, parsed)
        if any(redirect.target.text.startswith(("/dev/tcp/", "/dev/udp/")) for redirect in self.redirects):
            self.opaque.append("it opens a connection")
        if self.fed:
            inputs, self.inputs, self.fed = self.inputs, [], False
            for stdin in inputs:
                self.read_text(stdin)
        if self._changes_folder() and not moved:
            self.check_relative_paths()
        self.nested -= 1

    def _add_parsed(self, parsed: ParsedScript) -> None:
        for row in parsed.commands:
            self.redirects += row.redirects
            self.inputs += [word.text for word in row.inputs]
            for name, value in row.assigned:
                self.opaque.append("it sets a variable")
                self._check_assignment(name, value)
            self.add_simple_command(tuple(row.words), row)
        for name in parsed.loops:
            self._check_assignment(name, None)
        for reason in parsed.hidden:
            self.hide(reason)
        if parsed.functions:
            self.opaque.append("it defines a function")
        if parsed.arithmetic and parsed.literal_code:
            self.hide("it calculates with a text")

    def _compare(self, text: str, parsed: ParsedScript) -> None:
        """Compare the parser's commands with those of the tree-sitter grammar and of the lexer."""
        seen = scan_text(text)
        self.opaque += seen.opaque
        self.redirects += seen.redirects
        for reason, shown in seen.hidden:
            self.hide(reason, shown)
        mine, others = _comparable_words(parsed.simple), _comparable_words(seen.commands)
        try:
            lexed = lex(text).commands
        except UnclearCommand as unclear:
            self.opaque.append(str(unclear))
        else:
            if _comparable_words(lexed) != mine:
                others = _comparable_words(lexed)
        if mine != others and not seen.hidden:
            self.hide("it can be read in two ways")
        if mine != others:
            for words in seen.commands:
                self.add_simple_command(words)

    def _changes_folder(self) -> bool:
        return (
            self.lost
            or bool(self.folders)
            or any(_program_name(command.words[0]) in MOVES for command in self.commands)
        )

    def check_relative_paths(self) -> None:
        """Mark the script as opaque if it uses relative paths after a `cd`."""
        paths = [redirect.target.text for redirect in self.redirects if redirect.is_file]
        paths += [command.words[0].text for command in self.commands if "/" in command.words[0].text]
        if any(not path.startswith("/") for path in paths):
            self.opaque.append("it names a path after going to another folder")

    def check_written_files(self) -> None:
        """Hide a script that runs a file which it may write itself."""
        written = {
            _program_name(redirect.target) for redirect in self.redirects if redirect.writes and redirect.is_file
        }
        loose = any(
            not row.target.fixed and not row.target.tail for row in self.redirects if row.writes and row.is_file
        )
        fetched, named, created = set[str](), set[str](), {*written}
        for command in self.commands:
            name = _program_name(command.words[0])
            others = {_program_name(word) for word in command.words[1:]} if name not in LOOKS else set[str]()
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
        names = {_program_name(command.words[0]) for command in self.commands}
        paths = {_program_name(command.words[0]) for command in self.commands if "/" in command.words[0].text}
        ran = {_program_name(Word(file)) for file in self.files}
        if (names | ran) & (written | fetched) or (paths | ran) & named:
            self.hide("it runs a file that it may write")
        for name in names:
            language = find_interpreter(name)
            pattern = _IMPLICIT.get(language[0] if language else name)
            if pattern is not None and any(map(pattern.fullmatch, created)):
                self.hide("it writes a file that one of its programs may run")

    def hide(self, reason: str, shown: str = "…") -> None:
        """Add a command with an unknown name, for something that cannot be analysed."""
        self.opaque.append(reason)
        self.commands.append(ShellCommand((Word(shown, fixed=False),)))

    def _add(self, command: ShellCommand) -> bool:
        """Record a command; return False if there are too many."""
        self.words += len(command.words)
        unsure = sum(not word.fixed for word in command.words)
        many = len(self.commands) >= SHELL_COMMANDS or len(command.words) > SHELL_WORDS or unsure > SHELL_LOOSE_WORDS
        if many or self.words > SHELL_ALL_WORDS:
            self.hide("it has too many commands or words")
            return False
        self.commands.append(command)
        return True

    def examine(self, command: ShellCommand) -> ShellCommand:
        """Return the command with its words indexed for rules, so that rules need no pass over the words."""
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

    def add_simple_command(self, words: Words, row: SimpleCommand | None = None) -> None:
        """Add a simple command and the commands that it runs in turn."""
        if not words:
            return
        if self.depth > SHELL_WRAPPED:
            return self.hide("it is too long or too deep to be read")
        place, name = len(self.commands), _program_name(words[0])
        foreign = name not in INERT
        if not self._add(
            ShellCommand(words, foreign=foreign, mentions=_mentioned_names(name, words) if foreign else frozenset())
        ):
            return
        if not words[0].fixed:
            self.opaque.append("the name of a command is not plain")
            if not words[0].tail:
                return
        self.depth += 1
        only_wraps = self._add_inner(name, words, row)
        self.depth -= 1
        if only_wraps and words[0].text == name:
            self.commands[place] = replace(self.commands[place], needs_rule=False)

    def _add_inner(self, name: str, words: Words, row: SimpleCommand | None) -> bool:
        """Add the commands that a command runs; return True if it does nothing else."""
        interpreter = find_interpreter(name)
        if name in WRAPPERS:
            return self._add_wrapped(name, WRAPPERS[name], words, row) and not WRAPPERS[name].own
        if is_shell(name):
            return self._add_shell(words)
        if is_opener(name):
            self._add_candidates(words, f"{name} runs another command")
        elif interpreter is not None:
            self._check_interpreter(*interpreter, words, row)
        elif name in _SPECIAL:
            _SPECIAL[name](self, words)
        elif name in COMMANDED:
            self.hide(f"{name} may run programs that are not visible here")
        elif name in DATABASES:
            self._check_database(name, words)
        else:
            self._check_builtin(name, words)
            installs = name in VERBS and any(word.text in _INSTALLS for word in words[1:3])
            if name not in INERT and not installs:  # an unknown program may run a shell or interpreter that it names
                at = next((at for at in range(1, len(words)) if _runs_code(words[at])), None)
                if at is not None and not words[at - 1].text.startswith("--"):
                    self.add_simple_command(words[at:])
        self._check_options(name, words)
        return False

    def _check_options(self, name: str, words: Words) -> None:
        if name == "crontab" and [word.text for word in words[1:]] == ["-l"]:
            return
        if any(names_program(name, word.text) for word in words[1:]):
            self._add_candidates(words, f"an option of {name} runs a program")
            self.hide(f"an option of {name} runs a program")
        if name in ("make", "gmake") and (
            self.coded or any(_CODED.search(word.text.partition("=")[2]) for word in words[1:] if word.fixed)
        ):
            self.hide("a variable of make may run a program")
        if name in ("make", "gmake") and any(
            _is_stream(word) for word in _option_values(words, "f", "--file", "--makefile")
        ):
            self.hide("make reads its commands from elsewhere")

    def _add_wrapped(self, name: str, wrapper: Wrapper, words: Words, row: SimpleCommand | None) -> bool:
        """Add the wrapped command; return True if a rule for it covers the wrapper."""
        if name == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
            return False  # only prints the path of a command
        at = wrapper.find_inner(words)
        if name == "env" and at is not None and at < len(words) and words[at].text == "-":
            at += 1
        while at is not None and wrapper.sets and at < len(words) and _SETS.match(words[at].text):
            self.opaque.append("it sets a variable")
            self._check_assignment(
                words[at].text.partition("=")[0], Word(words[at].text.partition("=")[2], words[at].fixed)
            )
            at += 1
        if at is None or (name == "time" and at < len(words) and words[at].text in KEYWORDS):
            self._add_candidates(words, f"the options of {name} are not plain")
            self.hide(f"the options of {name} are not plain")
            return False
        if at >= len(words):
            return name == "xargs"  # then it only prints its arguments
        inner = _xargs_command(words[1:at], words[at:]) if name == "xargs" else words[at:]
        self.add_simple_command(inner, None if name == "xargs" else row)
        return True

    def _add_candidates(self, words: Words, reason: str) -> None:
        """Add a command for each word, as any of them may start or contain one."""
        self.opaque.append(reason)
        for at in range(1, len(words)):
            if not self._add(ShellCommand(words[at:])):
                return
            if _runs_code(words[at]):
                self.add_simple_command(words[at:])
                continue
            text = words[at].text
            if words[at].fixed and re.search(r"[\s'\"\\]", text):  # su -c, watch
                self.read_text(re.sub(r"^(-\w|--[\w-]+=)", "", text))
            elif words[at].fixed and re.match(r"-\w[\w./]|--[\w-]+=", text):  # env -Sevil, --exec=evil
                self._add(ShellCommand((Word(re.sub(r"^(-\w|--[\w-]+=)", "", text)), *words[at + 1 :])))

    def check_find(self, words: Words) -> None:
        if any(not word.fixed and (not word.glob or word.text[0] in "*?[-") for word in words[1:]):
            self.hide("the arguments of find are not plain")  # a file may be named -exec
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
            ends = (end for end in range(at + 1, len(words)) if words[end].text in (";", "+"))
            # A plus ends the command only after `{}`.
            end = next((end for end in ends if words[end].text == ";" or words[end - 1].text == "{}"), None)
            if end is None:
                return self._add_candidates(words, "the command of find has no end")
            if words[at].text.endswith("dir"):
                self.lost = self.lost or not inside
            plain = inside and words[at + 1 : at + 2] and "{}" not in words[at + 1].text
            file = Word("./*", fixed=False, glob=True)  # below the start folder
            inner = [
                file if plain and word.text == "{}" else _mark_replaced(word, "{}") for word in words[at + 1 : end]
            ]
            self.add_simple_command(tuple(inner))
            at = end + 1

    # -- shells and interpreters ------------------------------------------------------------------------------------

    def _add_shell(self, words: Words) -> bool:
        """Add the commands that another shell runs; return True if it runs nothing else."""
        at, letters = 1, ""
        while at < len(words) and re.match(r"[-+].", words[at].text):
            if not re.fullmatch(r"-[a-np-rt-z]+", words[at].text):  # -o and -O take a word, -s reads, others are long
                if words[at].text in ("--version", "--help"):
                    return False
                self._add_candidates(words, "a shell is started with options of its own")
                self.hide("a shell is started with options of its own")
                self.fed = True
                return False
            letters += words[at].text[1:]
            at += 1
        if "c" in letters:
            plain = words[0].text in PLAIN_SHELLS and set(letters) <= set("ceux")
            if not plain:
                self.opaque.append("it starts another kind of shell")
                if _program_name(words[0]) not in PLAIN_SHELLS or not set(letters) <= set("celux"):
                    self.hide("it starts another kind of shell")
            return self._add_code(words[at : at + 1]) and plain
        if at >= len(words) or not all(word.fixed for word in words[: at + 1]) or _is_stream(words[at]):
            self.hide("a shell reads its commands from elsewhere")
            self.fed = True
        else:
            self.files.append(words[at].text)
            self._add(ShellCommand(words[at:], needs_rule=False))  # the file is a program as well
        return False

    def _add_code(self, words: Words) -> bool:
        if not words or not all(word.fixed for word in words):
            self.hide("it runs a text that is not plain")
            return False
        self.read_text(" ".join(word.text for word in words))
        return True

    def _check_interpreter(self, language: str, how: Interpreter, words: Words, row: SimpleCommand | None) -> None:
        """Check the code, the script file or the stdin that an interpreter runs."""
        at, silent, reason = 1, False, f"{language} may run programs that are not visible here"
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
            self._add(ShellCommand(words[at:], needs_rule=False))
            return None if not _is_stream(words[at]) else self.hide(reason)
        if silent and len(words) == 2:
            return None
        texts = row.inputs if row is not None else []
        plain = len(texts) == 1 and texts[0].fixed and how.plain(texts[0].text)
        return None if plain else self.hide(reason)

    def check_awk(self, words: Words) -> None:
        at = 1
        while at < len(words) and words[at].text.startswith("-") and len(words[at].text) > 1:
            text = words[at].text
            if not re.match(r"-[Fv]|--version$|--csv$", text):
                return self.hide("awk may run programs that are not visible here")
            at += 2 if text in ("-F", "-v") else 1
        if at < len(words) and not (words[at].fixed and is_plain_awk(words[at].text)):
            self.hide("awk may run programs that are not visible here")

    def check_sed(self, words: Words) -> None:
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
                return self.hide("sed may run programs that are not visible here")
            else:
                rest.append(words[at])
            at += 1
        scripts = scripts or rest[:1]
        if not all(word.fixed and is_plain_sed(word.text) for word in scripts):
            self.hide("sed may run programs that are not visible here")

    def check_git(self, words: Words) -> None:
        if reason := explain_git(words):
            self.hide(reason)
            unwrapped: list[Word] = []
            for word in words:  # `alias.x=!evil push` runs `evil push`
                _, sign, value = word.text.partition("=")
                command = (value.lstrip("!") or word.text) if sign else word.text.lstrip("!")
                unwrapped.append(replace(word, text=command))
            self._add_candidates(tuple(unwrapped), reason)

    def check_tar(self, words: Words) -> None:
        if can_tar_run(words):
            self._add_candidates(words, "an option of tar runs a program")
            self.hide("an option of tar runs a program")

    def note_link(self, words: Words) -> None:
        self.lost = True  # the target of a path through a new link is unknown

    def note_folder_change(self, words: Words) -> None:
        """Record the new working directory."""
        targets = [word for word in words[1:] if not (word.fixed and re.fullmatch(r"-[LPe@]*|--", word.text))]
        self.enter_folder(targets[0] if targets else None)

    def enter_folder(self, target: Word | None) -> None:
        if target is None or not target.fixed or target.text == "-":
            self.lost = True
        elif target.text.startswith("/"):
            self.folders.append(target.text)
        elif ".." in target.text.split("/") or target.text[:1] in ("+", "-", ""):
            self.lost = True

    def _check_database(self, name: str, words: Words) -> None:
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
            self.hide(f"{name} may run programs that are not visible here")

    # -- builtins and variables -------------------------------------------------------------------------------------

    def _check_assignment(self, name: str, value: Word | None) -> None:
        self.coded = self.coded or (value is not None and value.fixed and _CODED.search(value.text) is not None)
        if can_run(name, value):
            self.hide(f"it sets {name}, which programs run")
            if value is not None and value.fixed and value.text.strip():
                self.read_text(value.text)

    def _check_builtin(self, name: str, words: Words) -> None:
        texts = [word.text for word in words[1:]]
        if name in SETS:
            for word in words[1:]:
                if is_assignment(word.text):
                    self._check_assignment(word.text.partition("=")[0], Word(word.text.partition("=")[2], word.fixed))
                elif name not in ("export", "readonly") and re.fullmatch(r"[A-Z_][A-Z0-9_]*", word.text):
                    self._check_assignment(word.text, None)
        if name in (".", "source") and len(words) == 2 and words[1].fixed and words[1].text.endswith("/bin/activate"):
            self.opaque.append(f"{name} may run programs that are not visible here")
            self.files.append(words[1].text)
        elif name in CODE:
            self.opaque.append(f"{name} may run programs that are not visible here")
            if name in ("eval", "mapfile", "readarray", "alias"):
                self._add_code(words[1:])
            if name != "eval":
                self.hide(f"{name} may run programs that are not visible here")
            self.fed = self.fed or name in (".", "source")
        elif name in CHANGES:
            self.opaque.append(f"{name} changes the meaning of commands")
            if name == "trap":
                for word in words[1:]:
                    self._add_code((word,))
            if name == "set" and any(re.match(r"-\w*H|\+|histexpand|history", text) for text in texts):
                self.hide("set changes the meaning of commands")
        elif (
            (name == "test" and any(text in ("-v", "-R") or "[" in text for text in texts))
            or (name == "printf" and any(text.startswith("-v") or _COUNTS.search(text) for text in texts))
            or (name == "wait" and any(text.startswith("-") for text in texts))
        ):
            self.opaque.append(f"{name} may set a variable or calculate")
        if name in CALCULATE and any("$(" in text or "`" in text for text in texts) and _calculates(name, texts):
            self.hide(f"{name} may calculate with a text")
        if "/" in words[0].text and words[0].fixed:
            self.files.append(words[0].text)


_SPECIAL: dict[str, Callable[[_Reader, Words], None]] = {
    "find": _Reader.check_find,
    "sed": _Reader.check_sed,
    "gsed": _Reader.check_sed,
    "git": _Reader.check_git,
    "tar": _Reader.check_tar,
    "gtar": _Reader.check_tar,
    "bsdtar": _Reader.check_tar,
    "ln": _Reader.note_link,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk", "original-awk"), _Reader.check_awk),
    **dict.fromkeys(MOVES, _Reader.note_folder_change),
}


def _comparable_words(commands: Sequence[Words]) -> list[list[str | None]]:
    """Return the words that two parsers must agree on; None marks a word that is not fixed."""
    lone = ("-", "==", "=~")  # the grammar sometimes omits these
    rows = [[word.text if word.fixed else None for word in words if word.text not in lone] for words in commands]
    return [row for row in rows if row[:1] and row[0] not in NAMED]


def _program_name(word: Word) -> str:
    """Return the name of a program without its folder, in lower case."""
    return (word.tail or word.text.rstrip("/").rsplit("/", 1)[-1]).casefold()


def _mentioned_names(name: str, words: Words) -> frozenset[str]:
    """Return the names in the words of a command, except for its subcommand."""
    first = 2 if name in VERBS and words[1:2] and re.fullmatch(r"\w[\w:.-]*", words[1].text) else 1
    texts = [LOOSE] * any(not word.fixed and not word.glob for word in words[1:])
    texts += [word.text.casefold() for word in words[first:]]
    texts += [_QUOTES.sub("", text) for text in texts if _QUOTES.search(text)]  # a shell removes quotes
    return frozenset(token for text in texts for token in (_TOKENS.findall(text) if text != LOOSE else (text,)))


_INSTALLS = frozenset("install add i remove uninstall upgrade update search info pull build create list".split())


def _runs_code(word: Word) -> bool:
    """Return True if a word is the name of a shell, an interpreter or a program such as `env`."""
    name = _program_name(word)
    plain = word.fixed and re.fullmatch(r"[\w./+-]+", word.text) is not None and not word.text.startswith("-")
    others = ("env", "xargs", "awk", "busybox")
    return plain and (is_shell(name) or find_interpreter(name) is not None or name in others)


def _name_parts(word: Word, name: str) -> set[str]:
    """Return the names of files in a word that is not a plain path: `of=x`, `-ox`, `--output=x`, or code."""
    text = word.text.casefold()
    if re.match(r"--?[\w-]+=|\w+=", text) and not find_interpreter(name):
        return {_program_name(Word(text.partition("=")[2]))}
    if re.match(r"-\w[\w./]", text) and not text.startswith("--") and not find_interpreter(name):
        return {_program_name(Word(text[2:]))}
    if re.search(r"[\s'\"(]", text):
        return set(_TOKENS.findall(text))
    return set()


def _calculates(name: str, texts: Sequence[str]) -> bool:
    """Return True unless a builtin uses the result of a substitution as plain text."""
    if name in ("printf", "test", "wait", "["):
        return any(text in ("-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge") or "[$" in text for text in texts)
    if name in ("export", "readonly", "local", "declare", "typeset"):
        return any("[" in text or re.match(r"[-+]\w*[ianA]", text) for text in texts)
    return True


def _is_stream(word: Word) -> bool:
    """Return True if a path names stdin, a file descriptor or a device instead of a file."""
    parts = [part for part in word.text.casefold().split("/") if part not in ("", ".")]
    return (
        word.text == "-"
        or word.text.startswith(("<(", ">("))
        or "dev" in parts[:-1]
        or "proc" in parts[:-1]
        or parts[-1:] == ["stdin"]
    )


def _option_values(words: Words, letter: str, *names: str) -> list[Word]:
    """Return the values of an option."""
    values = list[Word]()
    for at, word in enumerate(words[1:], 1):
        name, equals, value = word.text.partition("=")
        if word.text.startswith("--"):
            if any(long.startswith(name) for long in names):
                values += [Word(value, word.fixed)] if equals else words[at + 1 : at + 2]
        elif word.text.startswith("-") and letter in word.text[1:]:
            rest = word.text[1:].partition(letter)[2]
            values += [Word(rest, word.fixed)] if rest else words[at + 1 : at + 2]
    return values


def _mark_replaced(word: Word, sign: str) -> Word:
    """Return the word as not fixed if it contains the placeholder."""
    return replace(word, fixed=False, glob=False) if sign in word.text else word


def _xargs_command(options: Sequence[Word], words: Words) -> Words:
    """Return the command that xargs runs, with its input appended or in place of the placeholder."""
    for at, option in enumerate(options):
        if option.text.startswith("-I"):
            sign = option.text[2:] or options[at + 1].text
            words = tuple(_mark_replaced(word, sign) for word in words)
        elif option.text.startswith("-") and "I" in option.text:
            return (UNKNOWN,)  # it may have a placeholder
    return (*words, UNKNOWN)
