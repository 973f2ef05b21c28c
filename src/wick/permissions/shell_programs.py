"""Tables of programs that run other programs, with the position of the inner command."""

from __future__ import annotations

import re
from dataclasses import dataclass

from wick.permissions.inline_code import Check, is_never_plain, is_plain_perl, is_plain_python
from wick.permissions.shell_lexer import Word, Words


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A command that runs another one: its options, and the number of words before the inner command."""

    flags: str = ""
    valued: str = ""
    long_flags: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    skip: int = 0
    sets: bool = False  # takes NAME=value
    own: bool = False  # must be allowed by itself, too

    def find_inner(self, words: Words) -> int | None:
        """Return the index of the inner command; None if it is not certain."""
        at = 1
        while at < len(words) and words[at].fixed and words[at].text.startswith("-") and words[at].text != "-":
            text = words[at].text
            if text == "--":
                at += 1
                break
            step = self._option_width(text)
            if step is None:
                return None
            at += step
        at += self.skip
        return at if all(word.fixed for word in words[:at]) else None  # a pattern may become several words

    def _option_width(self, text: str) -> int | None:
        """Return the number of words that an option takes; None for an unknown option."""
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
# Programs that run a command from among their words; only they know where it begins.
OPENERS = frozenset(
    "capsh cgexec chroot chrt coproc dbus-run-session eatmydata entr faketime fakechroot fakeroot firejail flock"
    " gdb hyperfine linux32 linux64 lldb ltrace newgrp nsenter numactl parallel perf pkexec proot rlwrap rr"
    " runuser screen script setarch setpriv sg ssh start-stop-daemon strace su sudoedit systemd-run taskset tmux"
    " tsocks torsocks unbuffer unshare valgrind watch watchexec xterm xvfb-run bwrap batch at chpst runcon sshpass"
    " dtach prlimit choom uclampset coresched ssh-agent debconf i386 x86_64 uname26 logsave chronic ifne"
    " catchsegv direnv pipx npx bunx".split()
)
_LOADER = re.compile(r"ld(?:-[\w.-]+)?\.so(?:\.\d+)*|qemu-[\w-]+")


def is_opener(name: str) -> bool:
    return name in OPENERS or _LOADER.fullmatch(name) is not None


PLAIN_SHELLS = frozenset("sh bash dash".split())
_SHELL = re.compile(
    r"(?:r?bash|d?ash|dash|sh|r?ksh|[lmp]ksh|pdksh|oksh|loksh|r?zsh|fish|t?csh|yash|posh|hush|elvish|nu|xonsh|pwsh"
    r"|powershell|osh|ysh|static-sh|sash)(?:[-.]?\d[\d.]*|[-.](?:distrib|static|real))?"
)


def is_shell(name: str) -> bool:
    return _SHELL.fullmatch(name) is not None


# Builtins that change the meaning of later words, or run the content of a text, a file or a variable.
CHANGES = frozenset(
    "[ [[ declare export getopts let local read readonly set shift shopt trap typeset unalias unset".split()
)
CODE = frozenset(". alias bind compgen complete compopt enable eval fc hash history mapfile readarray source".split())
CALCULATE = CHANGES | {"printf", "test", "wait"}
SETS = frozenset("declare export getopts local printf read readonly typeset unset mapfile readarray".split())
MOVES = frozenset("cd popd pushd".split())
KEYWORDS = frozenset(
    "! { } ( [[ if then elif else fi for while until do done case esac select function in time coproc".split()
)
FINDS = frozenset("-exec -execdir -ok -okdir".split())
NAMED = frozenset(
    "declare export local readonly typeset unset unsetenv [ [[".split()
)  # keywords of the grammar, not commands

# Programs whose arguments are data: no argument makes them run another program.
INERT = frozenset(
    ". : [ [[ break cd continue declare dirs echo exit export false getopts hash jobs kill let local popd printf"
    " pushd pwd read readonly return set shift shopt test times trap true type typeset ulimit umask unalias unset"
    " wait arch b2sum base32 base64 basename bc cal cat chgrp chmod chown cksum clear cmp column comm cp curl cut"
    " date df diff dig dirname du egrep expand expr factor fgrep file find fmt fold free getent grep groups gunzip"
    " gzip head hexdump host hostname iconv id install join jq last ln locale logname ls lsof md5sum mkdir"
    " mkfifo mktemp mv nl nproc numfmt od paste pathchk pgrep ping pkill pr printenv ps ptx readlink realpath rev"
    " rg rm rmdir seq sha1sum sha256sum sha512sum shuf sleep sort split ss stat strings stty sum sync tac tail tee"
    " touch tr tree truncate tsort tty uname unexpand uniq unlink unzip uptime users vmstat w wc wget whatis"
    " whereis which who whoami xxd yes yq zcat zip apt apt-get dpkg git pip pip3 tar git-lfs shred wipefs"
    " chattr lsattr command".split()
)
# Programs whose first argument is a subcommand, not a program.
VERBS = frozenset(
    "brew bun bundle cargo composer conda deno docker dotnet gem go gradle helm just kubectl make mix mvn nix npm"
    " nx pipenv pnpm podman poetry rails rake rustup systemctl task terraform turbo uv wick yarn".split()
)
# Options that name a program to run: a letter, or a long name, which may be shortened. `""` matches every word.
RUNNING_OPTIONS = {
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "zip": ("T", "--unzip-command", "--test"),
    "rg": ("--pre", "--hostname-bin"),
    "wget": ("e", "--use-askpass", "--execute", "--config"),
    "install": ("--strip-program",),
    "dpkg": ("--pre-invoke", "--post-invoke", "--status-logger"),
    "pip": ("--editor", "--python"),
    "pip3": ("--editor", "--python"),
    "less": ("+", "--+", "k", "--lesskey-file", "--lesskey-src", "--lesskey-content"),
    "more": ("+",),
    "man": ("P", "--pager", "H", "--html", "C", "--config-file"),
    "make": ("--eval", "E", "=SHELL", "=.SHELL", "=MAKE"),
    "gmake": ("--eval", "E", "=SHELL", "=.SHELL", "=MAKE"),
    "fd": ("x", "X", "--exec", "--exec-batch"),
    "rsync": ("e", "--rsh", "--rsync-path", "--daemon"),
    "scp": ("S", "o"),
    "sftp": ("S", "o", "b", "D"),
    "nc": ("e", "c", "--exec", "--sh-exec", "--lua-exec"),
    "ncat": ("e", "c", "--exec", "--sh-exec", "--lua-exec"),
    "socat": ("",),
    "tcpdump": ("z",),
    "cmake": ("=-E", "=-P"),
    "go": ("=-exec", "=-toolexec", "=-vettool"),
    "apt": ("o", "c", "--option", "--config-file"),
    "apt-get": ("o", "c", "--option", "--config-file"),
    "ip": ("=exec", "=netns", "=vrf", "=-b", "=-all"),
    "gh": ("=alias", "=extension"),
    "npm": ("c", "--call", "--script-shell"),
    "prove": ("e", "--exec"),
    "rscript": ("e",),
    "bun": ("=-e", "=-p", "--eval", "--print"),
    "tsx": ("=-e", "=-p", "--eval", "--print"),
    "deno": ("=eval", "=repl"),
    "crystal": ("=eval",),
    "ghc": ("=-e",),
    "elixir": ("=-e", "--eval", "--rpc-eval"),
    "raku": ("e",),
    "nix-shell": ("--run", "--command"),
    "mail": ("=-", "=~"),
    "crontab": ("=-",),
}


def names_program(name: str, text: str) -> bool:
    """Return True if a word of a program is an option that names a program to run.

    An option that begins with `=` is compared with the start of the word as it is written.
    """
    if text.startswith("-wrapper"):  # of every compiler that is like gcc
        return True
    if not (text.startswith(("-", "+")) and len(text) > 1):
        return any(option in ("", text) or _matches_prefix(option, text) for option in RUNNING_OPTIONS.get(name, ()))
    long = text.partition("=")[0] if text.startswith("--") and len(text) > 2 else ""
    letters = text[1:] if not text.startswith("--") else ""
    for option in RUNNING_OPTIONS.get(name, ()):
        if option.startswith("--"):
            matches = bool(long) and (option.startswith(long) or long.startswith(option))
        elif option == "+":
            matches = text.startswith("+")
        else:
            matches = not option or _matches_prefix(option, text) or (option.isalpha() and option in letters)
        if matches:
            return True
    return False


def _matches_prefix(option: str, text: str) -> bool:
    return option.startswith("=") and text.startswith(option[1:])


# Programs that take commands from a file, a terminal or their input, in a language of their own.
COMMANDED = frozenset(
    "vi vim vimdiff nvim gvim view rvim rview ex ed red emacs emacsclient expect tclsh wish dc m4 irb pry gnuplot"
    " octave r guile ghci scala swift erl iex julia lftp ftp telnet groovy jshell ocaml sbcl clisp racket"
    " fennel run-parts".split()
)
# Of each program for databases: the options that give it statements. Without one it reads them from its input.
DATABASES = {
    "sqlite3": (),
    "sqlite": (),
    "psql": ("-c", "--command", "-l", "--list", "-f", "--file"),
    "mysql": ("-e", "--execute"),
    "mariadb": ("-e", "--execute"),
}
FETCHES = frozenset("cp dd install ln mv rename rsync tee".split())  # they may replace a program
LOOKS = frozenset(
    "[ cat chmod chown echo file git grep head ls md5sum rm sha256sum shellcheck stat tail test touch wc"
    " cc gcc g++ c++ clang clang++ go rustc javac tsc ghc make cmake cargo".split()
)  # and these read a file or compile it


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter: its options with code, without and with a value, and a check for its code."""

    code: str
    flags: str
    valued: str = ""
    long_flags: tuple[str, ...] = ("--version", "--help")
    plain: Check = is_never_plain


INTERPRETERS = {
    "python": Interpreter("c", "bBdEhiIOPqsSuvVx", "WX", plain=is_plain_python),
    "perl": Interpreter("eE", "acflnpstTuUvwWX0123456789", "", plain=is_plain_perl),
    "ruby": Interpreter("e", "acdlnpsSvwW0123456789", "", ("--version", "--help", "--yjit")),
    "node": Interpreter(
        "ep", "hiv", "", ("--version", "--help", "--test", "--watch", "--max-old-space-size=", "--no-", "--trace-")
    ),
    "php": Interpreter("rBREF", "aefhimnqsvw", "dczSt"),
    "lua": Interpreter("e", "iEvW", "l"),
}
_INTERPRETER = re.compile(
    r"(python|pypy|ipython|perl|ruby|nodejs|node|php|luajit|lua)(?:[-.]?\d[\d.]*)?[a-z]?(?:-[\w-]+)?"
)
_SAME = {"pypy": "python", "ipython": "python", "nodejs": "node", "luajit": "lua"}


def find_interpreter(name: str) -> tuple[str, Interpreter] | None:
    """Return the language and the options of an interpreter, ignoring its version."""
    match = _INTERPRETER.fullmatch(name)
    if match is None:
        return None
    language = _SAME.get(match[1], match[1])
    return language, INTERPRETERS[language]


# Modules of Python that run a text, or read their input as code.
CODE_MODULES = frozenset(
    "timeit pdb code runpy trace bdb asyncio pickle _pyrepl idlelib ipython bpython ptpython".split()
)
CODE_RUNNERS = frozenset("cprofile profile coverage trace".split())  # and modules that run another module
INTERACTIVE = {"python": "i", "node": "i", "php": "a", "lua": "i"}  # they read their input after the code or the file

# -- variables ------------------------------------------------------------------------------------------------------

_RUNS = re.compile(
    r"ENV|BASH_ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|PS[0-4]|IFS|LD_.*|DYLD_.*|GIT_(?!AUTHOR_|COMMITTER_)"
    r".*|.*EDITOR|VISUAL|.*PAGER|BROWSER|LESS(?:OPEN|CLOSE|KEY)?|SHELL|PYTHON(?:STARTUP|BREAKPOINT|HOME|EXECUTABLE|INSPECT|USERBASE)"
    r"|PERL5(?:OPT|DB|LIB)|PERLLIB|RUBYOPT|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|MAKEFLAGS|MAKEFILES|MAKE"
    r"|GNUMAKEFLAGS|TAR_OPTIONS|RSYNC_(?:RSH|CONNECT_PROG)|MANOPT|ZIPOPT|PIP_PYTHON|UV_PYTHON|CVS_RSH|SVN_SSH|SSH_ASKPASS|SUDO_ASKPASS|.*_ASKPASS|FCEDIT|TERMINFO|CC|CXX|LD"
    r"|CPP|RUSTC.*|CARGO_.*RUNNER|GOFLAGS|AWKPATH|AWKLIBPATH|RIPGREP_CONFIG_PATH|COMPRESS_PROGRAM|POSIXLY_CORRECT"
    r"|BASH_LOADABLES_PATH|CDPATH|GLOBIGNORE|FPATH|ZDOTDIR|PSMODULEPATH|OPENSSL_CONF|GCONV_PATH|HOSTALIASES|npm_config_.*"
)
_HARMLESS = re.compile(r"|cat|less|more|true|vi|vim|nano|gcc|g\+\+|clang|clang\+\+|cc|c\+\+|ld|lld|gold|0|1")
_FOLDER = re.compile(
    r"\$PATH|\$\{PATH\}|(?:/usr|/opt|/bin|/sbin|/home|/root|/snap|\$HOME|\$\{HOME\}|~|\$GOPATH|\$CARGO_HOME|\$JAVA_HOME)"
    r"(?:/[\w.@+-]+)*/?|\$\(npm (?:bin|prefix)[\w -]*\)(?:/bin)?"
)


def can_run(name: str, value: Word | None) -> bool:
    """Return True if an environment variable can make a program run another one."""
    text = value.text.strip("\"'") if value is not None else "?"
    if name == "PATH":
        return ".." in text or not all(map(_FOLDER.fullmatch, text.split(":")))
    if name == "IFS":
        return value is None or not value.fixed or not set(text) <= set(" \t\n\\nt,:;|$'")
    if name == "NODE_OPTIONS":
        return re.fullmatch(r"(--max[-_]old[-_]space[-_]size=\d+\s*)*", text) is None
    if _RUNS.fullmatch(name) is None:
        return False
    return value is None or not value.fixed or _HARMLESS.fullmatch(text) is None


# -- git ------------------------------------------------------------------------------------------------------------

_GIT_KEYS = re.compile(
    r"(?:user|color|advice|init|branch|push|pull|fetch|rebase\.autosquash|rebase\.autostash|merge\.conflictstyle|log"
    r"|status|commit\.gpgsign|tag\.gpgsign|core\.(?:autocrlf|quotepath|filemode|longpaths|eol|safecrlf|ignorecase)"
    r"|safe\.directory|http\.(?:version|postbuffer|sslverify)|submodule\.recurse|gc\.auto|remote\.\w+\.(?:url|fetch))"
    r"(?:\..*)?",
    re.IGNORECASE,
)
_GIT_RUNS = frozenset("bisect difftool filter-branch mergetool submodule for-each-repo send-email web--browse".split())
_GIT_OPTIONS = (
    "--exec",
    "--upload-pack",
    "--receive-pack",
    "--extcmd",
    "--open-files-in-pager",
    "--config",
    "--template",
)
_GIT_SHORT = {
    "rebase": "-x",
    "grep": "-O",
    "clone": "-cu",
    "difftool": "-x",
    "archive": "",
    "fetch": "",
    "ls-remote": "",
}
_GIT_CONFIG_FLAGS = frozenset(
    "--global --local --system --worktree --add --replace-all --unset --unset-all --get --get-all --get-regexp --list"
    " -l --bool --int --null -z --name-only --show-origin --show-scope".split()
)
_GIT_GLOBAL = frozenset("-C --git-dir --work-tree --namespace".split())
_GIT_PLAIN = frozenset(
    "--no-pager -P --paginate -p --version --help --bare --literal-pathspecs --no-optional-locks --no-replace-objects"
    " --no-lazy-fetch -h -v --exec-path --html-path --man-path --info-path".split()
)


def explain_git(words: Words) -> str:
    """Return why git may run another program because of its words; empty if it does not."""
    at = 1
    while at < len(words) and words[at].text.startswith("-"):
        text = words[at].text
        if text == "-c":
            key, _, value = words[at + 1].text.partition("=") if at + 1 < len(words) else ("", "", "")
            pager = key.casefold() == "core.pager" and value in ("", "cat", "less")
            if not pager and (not words[at + 1 : at + 2] or not words[at + 1].fixed or not _GIT_KEYS.fullmatch(key)):
                return "git is given a setting that may run a program"
            at += 2
        elif text in _GIT_GLOBAL:
            at += 2
        elif text in _GIT_PLAIN or text.partition("=")[0] in _GIT_GLOBAL:
            at += 1
        else:
            return "git is given an option that may run a program"
    if at >= len(words):
        return ""
    if not words[at].fixed and not words[at].glob:
        return "the arguments of git are not plain text"
    return _explain_git_verb(words[at].text, words[at + 1 :])


def _explain_git_verb(verb: str, words: Words) -> str:
    texts = [word.text for word in words]
    plain = verb in ("submodule", "bisect")  # without an option that names a program
    if verb in _GIT_RUNS and any(
        text in ("run", "foreach", "visualize", "view") or (text.startswith("-") and not plain) for text in texts
    ):
        return f"git {verb} runs programs"
    if verb in ("filter-branch", "for-each-repo"):
        return f"git {verb} runs programs"
    if verb == "config":
        keys = [text for text in texts if not text.startswith("-")]
        writes = len(keys) > 1 or any(text.startswith(("-e", "--edit", "--add", "--replace")) for text in texts)
        verb_words = {"set", "get", "list", "unset", "get-all", "get-regexp"}
        # the value of an unknown option may be the first key
        odd = any(text.startswith("-") and text not in _GIT_CONFIG_FLAGS for text in texts)
        if writes and (odd or not all(map(_GIT_KEYS.fullmatch, [key for key in keys if key not in verb_words][:1]))):
            return "git is given a setting that may run a program"
    short = _GIT_SHORT.get(verb, "")
    for text in texts:
        option = text.partition("=")[0]
        # git accepts abbreviated options
        long = text.startswith("--") and len(text) > 2 and any(name.startswith(option) for name in _GIT_OPTIONS)
        letter = bool(short) and re.match(rf"-\w*[{short[1:]}]", text) is not None and not text.startswith("--")
        if (long and verb not in ("log", "show", "diff", "status", "commit", "add", "branch")) or letter:
            return "git is given an option that may run a program"
        if "ext::" in text or text.startswith(("ssh://-", "fd::")):
            return "git is given an address that runs a program"
    return ""


# -- tar ------------------------------------------------------------------------------------------------------------

_TAR_LONG = frozenset(
    "--create --extract --list --gzip --gunzip --bzip2 --xz --zstd --file --verbose --directory --exclude"
    " --strip-components --no-same-owner --no-same-permissions --preserve-permissions --same-owner --overwrite"
    " --keep-old-files --wildcards --anchored --one-top-level --append --update --get --auto-compress --sort --mtime"
    " --owner --group --numeric-owner --transform --totals --version --help --exclude-vcs --files-from --null".split()
)


def can_tar_run(words: Words) -> bool:
    """Return True if an option of tar may run a program."""
    for place, word in enumerate(words[1:]):
        text = word.text
        if not word.fixed and not word.glob:
            continue
        if text.startswith("--") and text != "--" and text.partition("=")[0] not in _TAR_LONG:
            return True
        letters = (
            text[1:] if text.startswith("-") else text if place == 0 and "." not in text and "/" not in text else ""
        )
        if not text.startswith("--") and ("I" in letters.partition("f")[0] or "F" in letters.partition("f")[0]):
            return True
    return any(not word.fixed and word.text.lstrip('"')[:1] in ("$", "`", "-") for word in words[1:])
