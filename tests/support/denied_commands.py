"""Commands that run `evil push`, generated from carriers, spellings and contexts; and shells that run them for real."""

# ruff: noqa: E501
from __future__ import annotations

import os
import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from select import select
from time import monotonic

SPELLINGS = (
    *("evil push", "'evil' push", "ev''il push", "\\evil push", "e\"vi\"l push", "$'evil' push", "$'e\\x76il' push"),
    *("bin/evil push", "./evil push", "bin/ev[i]l push", "./ev?l push", "bin/e*l push", "ev[i]l push", "~/bin/evil push"),
    *("$E push", "${E} push", '"$E" push', "$HOME/bin/evil push", '"$HOME/bin/evil" push', '"$HOME"/bin/evil push'),
    *("$(echo evil) push", "`echo evil` push", "$(printf '\\145vil') push", "{evil,push}", "e{vi,}l push", "evil {push,x}"),
    *("evil${IFS}push", "evil\\\n push", "ev\\\nil push", "evil 'push'", "evil $P", "evil `echo push`", "evil p[u]sh"),
    *("evil >/dev/null push", "evil </dev/null push", "evil 2>&1 push", "evil 2>/dev/null push $HOME", ">/dev/null evil push"),
    *("evil push >/dev/null", "A=1 evil push", "evil push &", "evil\tpush", "bin/../bin/evil push", "bin//evil push"),
    *("${E:-x} push", "${X:-evil} push", "$E$X push", "${A}evil push", "evil \"$P\" x", "evil push $HOME", "evil push *"),
)  # fmt: skip
# {c} is a spelling, {q} its text in quotes, {w} the plain words.
CARRIERS = (
    *("{c}", "{c}", "true; {c}", "true &>/dev/null {c}", "true &>>/dev/null {c}", "true >/dev/null; {c}"),
    *("sh -c {q}", "bash -c {q}", "dash -c {q}", "rbash -c {q}", "bash -ec {q}", "bash -xc {q}", "bash -lc {q}"),
    *("bash --norc -c {q}", "bash -O extglob -c {q}", "bash -o errexit -c {q}", "sh -c '$0 push' evil", "env sh -c {q}"),
    *("sh -c '\"$@\"' _ {w}", "sh -c 'eval \"$1\"' _ {q}", "busybox sh -c {q}", "busybox ash -c {q}", "exec sh -c {q}"),
    *("echo {q} | sh", "echo {q} | sh -s", "echo {q} | sh -", "echo {q} | sh /dev/stdin", "echo {q} | bash /dev/fd/0"),
    *("echo {q} | sh /proc/self/fd/0", "echo {q} | sh //dev//stdin", "echo {q} | sh /dev/../dev/stdin", "echo {q} | rbash"),
    *("echo {q} | sh bin/../../../../../../dev/stdin", "echo {q} | . /dev/stdin", "echo {q} > x; sh x", "echo {q} > x; . ./x"),
    *("echo {q} > x && sh < x", "echo {q} | tee x >/dev/null; sh x", "printf '%s\\n' {q} >x; chmod +x x; ./x", "cp bin/evil y; ./y push"),
    *("ln -s bin/evil z; ./z push", "ln -s evil bin/z; z push", "cp bin/evil bin/z && z push", "cat bin/evil > z; sh z push"),
    *("sh <<E\n{c}\nE", "sh -s <<'E'\n{c}\nE", "sh /dev/stdin <<E\n{c}\nE", "bash <<< {q}", "bash /dev/stdin <<< {q}", "sh <<-E\n\t{c}\n\tE"),
    *("cat <<E | sh\n{c}\nE", ". /dev/stdin <<E\n{c}\nE", "cat <<E\n$({c})\nE", "cat <<E\n`{c}`\nE", "cat <<E >/dev/null && {c}\nx\nE"),
    *("python3 -c 'import os; os.system(\"{w}\")'", "python3 -c 'import os; os.system(\"ev\"+\"il push\")'"),
    *("python3 <<E\nimport os; os.system('{w}')\nE", "python3 - <<E\nimport os; os.system('e'+'vil push')\nE"),
    *("echo 'import os; os.system(\"e\"+\"vil push\")' | python3", "echo 'import os; os.system(\"e\"+\"vil push\")' | python3 /dev/stdin"),
    *("python3 -m timeit -n1 -r1 'import os; os.system(\"e\"+\"vil push\")'", "python3 -Ic 'import os; os.system(\"e\"+\"vil push\")'"),
    *("python3 -c 'import json; json.decoder.scanner.re.enum.sys.modules[\"os\"].system(\"e\"+\"vil push\")'",),
    *("perl -e 'system \"e\".\"vil push\"'", "perl -e 'exec qw(evil push)'", "echo 'system \"e\".\"vil push\"' | perl", "perl -ne '`e\\x76il push`' /etc/passwd"),
    *("perl -pe 's/a/`e\\166il push`/e' /etc/passwd", "perl -Mstrict -e 'system \"{w}\"'"),
    *("awk 'BEGIN {{ system(\"{w}\") }}'", "awk 'BEGIN {{ \"e\" \"vil push\" | getline }}'", "awk 'BEGIN {{ print | \"e\" \"vil push\" }}'"),
    *("awk 'BEGIN {{ system(\"e\" \"vil push\") }}'", "echo 'BEGIN {{ system(\"{w}\") }}' | awk -f /dev/stdin", "echo x | sed '1e {w}'"),
    *("echo {w} | sed 's/x/y/;s/^/ /e'", "echo x | sed '1{{e {w}\n}}'", "echo x | sed -e '1e e\\vil push'", "echo x | sed --expression='1e {w}'"),
    *("env {c}", "env -i PATH=$PATH {w}", "env -S {q}", "env -S{q}", "env -S'{w}'", "env --split-string={q}", "env -vS {q}", "env -Sevil push"),
    *("env -u A {c}", "env - PATH=$PATH {w}", "env A=1 {c}", "env >/dev/null {c}", "env -C . {w}", "env --chdir=. {w}", "env -iS'PATH={p} {w}'"),
    *("nohup {c}", "nice {c}", "nice -n 1 {c}", "nice -5 {w}", "timeout 5 {c}", "timeout -k 1 5 {c}", "timeout --kill-after=1 5 {w}"),
    *("stdbuf -oL {c}", "stdbuf --output=L {w}", "setsid {c}", "setsid -w {c}", "setsid --wait {w}", "ionice {c}", "ionice -c 3 {w}"),
    *("xargs -n 2 env <<E\n{w}\nE", "echo push | xargs evil", "echo push | xargs -n1 evil", "echo evil | xargs -I% % push", "echo evil push | xargs env"),
    *("echo {q} | xargs -I% sh -c %", "echo {w} | xargs -n2 nice", "echo push | xargs -i evil {{}}", "xargs -a /dev/stdin evil <<E\npush\nE"),
    *("find . -maxdepth 0 -exec {c} \\;", "find . -maxdepth 0 -exec {w} {{}} +", "find . -maxdepth 0 -execdir {c} ';'", "find bin -name evil -exec {{}} push \\;"),
    *("find . -maxdepth 0 >/dev/null -exec {c} \\;", "find . -maxdepth 0 -exec sh -c {q} \\;", "find . -maxdepth 0 -exec env {w} \\; $HOME"),
    *("yes | find . -maxdepth 0 -ok {w} \\;", "find . -maxdepth 0 -fprintf x {q} ; sh x"),
    *("eval {q}", "eval {w}", "eval \"$(echo {q})\"", "eval e''vil p''ush", "trap {q} EXIT", "trap -- {q} EXIT", "trap {q} 0"),
    *("alias z={q}\nz", "alias z='{w}'; eval z", "z() {{ {c}; }}; z", "function z {{ {c}; }}; z", "z() ({c}); z", "echo() {{ {c}; }}; echo"),
    *("command {c}", "command -p {w}", "builtin command {w}", "exec {c}", "exec -a x {w}", "exec -c bin/evil push", "coproc {c}", "coproc {{ {c}; }}; wait"),
    *("time {c}", "time -p {c}", "! {c}", "X=evil; $X push", "X='evil push'; $X", "X={q}; eval \"$X\"", "read X <<E\nevil\nE\n$X push", "set -- {w}; \"$@\""),
    *("X=evil Y=push; $X $Y", "IFS=x; Z=evilxpush; $Z", "printf -v X %s evil; $X push", "for X in evil; do $X push; done", "X=(evil push); \"${{X[@]}}\""),
    *("declare X=evil; $X push", "export X=evil; sh -c '$X push'", "local X; {c}", "PATH=bin:$PATH evil push", "PATH=bin; evil push", "hash -p bin/evil z; z push"),
    *("echo $((a[$({c})]))", "a='b[$({c})]'; echo $((a))", "[[ 'a[$({c})]' -eq 0 ]]", "test -v 'a[$({c})]'", "let 'a[$({c})]=1'", "(( a[$({c})] ))"),
    *("((1)); {c}", "(({c}))", "[[ a && {c} ]]", "[[ a || {c} ]]", "[[ -n a ]] && {c}", "[ a -a b ] && {c}", "printf -v 'a[$({c})]' x", "read 'a[$({c})]' </dev/null"),
    *("echo ${{X:=$({c})}}", "echo ${{X:-`{c}`}}", "echo \"${{X:-$({c})}}\"", "cat <({c})", "true > >({c}); sleep 0.1", "X='$({c})'; echo \"${{X@P}}\"", "X='a[$({c})]'; echo ${{Y:X}}"),
    *("PS4='$({c})'; set -x; true", "BASH_ENV=x bash -c true; {c}", "echo {q} > x; BASH_ENV=./x bash -c true", "ENV=./x sh -c true; {c}"),
    *("PROMPT_COMMAND={q} bash -i -c true; {c}", "GIT_PAGER={q} git --paginate version", "git -c alias.z='!{w}' z", "git -c alias.z='!e''vil push' z", "git -c core.pager={q} -p version"),
    *("git -c core.sshCommand={q} ls-remote ssh://x/y", "GIT_SSH_COMMAND={q} git ls-remote ssh://x/y", "git ls-remote 'ext::bin/evil push'", "git ls-remote --upload-pack={q} ."),
    *("git config --global alias.z '!{w}'; git z", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.z GIT_CONFIG_VALUE_0='!{w}' git z"),
    *("tar cf x.tar bin; tar xf x.tar --to-command={q}", "tar cf x.tar bin; tar xf x.tar --to-comm={q}", "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec={q} bin"),
    *("tar cf x.tar -I {q} bin", "tar cf x.tar --use-compress-program={q} bin", "sort -S 1k --compress-program=bin/evil /etc/services; {c}", "split --filter={q} /etc/passwd"),
    *("script -qc {q} /dev/null", "flock x {w}", "flock x -c {q}", "unshare -r {w}", "watch -g {q} & sleep 0.1; kill $!", "/lib64/ld-linux-x86-64.so.2 bin/evil push; {c}"),
    *("make -f - <<E\nall:;@{w}\nE", "make -f /dev/stdin <<E\nall:;@{w}\nE", "make --eval='all:;@{w}'", "make --eval='all:;@e$()vil push'", "printf 'all:;@{w}' | make -f-"),
    *("echo '!{w}' | ed -s", "vi -es -c '!{w}' -c q", "echo '!{w}' | ex -s", "node -e 'require(\"child_process\").execSync(\"{w}\")'", "node -p 'require(\"child_process\").execSync(\"e\"+\"vil push\")'"),
    *("echo 'require(\"child_process\").execSync(\"e\"+\"vil push\")' | node", "node - <<E\nrequire('child_process').execSync('e'+'vil push')\nE"),
    *("case a in a) {c};; esac", "if {c}; then :; fi", "while {c}; do break; done", "until {c}; do break; done", "for i in 1; do {c}; done", "for i in $({c}); do :; done", "{{ {c}; }}"),
    *("({c})", "true |& {c}", "true | {c}", "false || {c}", "true\n{c}", "true #\n{c}", "true # \\\n{c}", "true\\\n; {c}", "true &\n{c}", "true;{c}", "x=1;{c}", "echo a#b;{c}"),
    *("echo $'\\'; {c} #'", "echo $'a\\'b'; {c}", "echo \"a'b\"; {c}", "echo 'a\"b'; {c}", "echo \\'; {c}; echo \\'", "echo \"\\\"\"; {c}", "echo '\\'; {c}"),
    *("cat <<'E'\n'\nE\n{c}", "cat <<E\n\"\nE\n{c}", "cat <<\\E\n$(\nE\n{c}", "cat <<A <<B\na\nA\nb\nB\n{c}", "cat <<-'E'\n\tx\n\tE\n{c}", "cat <<E F\nx\nE\n{c}", "cat << 'E F'\nx\nE F\n{c}"),
    *("echo ${{X#'}}'}}; {c}", "echo \"${{X#'}}\"; {c}; echo \"'\"", "echo ${{X:-\"}}\"}}; {c}", "echo $(echo ')'); {c}", "echo $(case a in a) echo;; esac); {c}", "echo \"$(echo \")\")\"; {c}"),
    *("true\r\n{c}", "true\x0b{c}", "true\u00a0;{c}", "true \u2028\n{c}", "{{X}}>/dev/null {c}", "10>/dev/null {c}", "true 10>/dev/null; {c}", "10</dev/null evil push", "evil 10>/dev/null push"),
    *("if false; then :; else {c}; fi", "select i in a; do {c}; break; done <<E\n1\nE", "! ! {c}", "time ! {c}", "time ( {c} )", "time {{ {c}; }}", "f() {c}; f", "cd bin && ./evil push", "cd bin; evil push"),
    *("set -H; {c}", "set -o history; set -o histexpand; true {w}\n!:1-2", "bash -ic {q}", "bash --rcfile x -ic {q}", "bash --init-file bin/evil -c true; {c}", "su -c {q}", "sudo -u root {w}", "runuser -u root -- {w}", "doas {w}"),
    *("mapfile -C {q} -c 1 a <<E\nx\nE", "complete -C {q} z; compgen -C {q}", "enable -n echo; {c}", "shopt -s expand_aliases; alias z={q}\nz", "bind -x '\"a\": {w}'; {c}", "fc -s; {c}", "wait -p X; {c}"),
)  # fmt: skip
# Commands that once ran `evil push` past a rule: in options, settings, unknown programs, code and files.
WAYS = (
    'cp /bin/true t; install -s --strip-program=evil t push',
    'install -s --strip-p=bin/evil /bin/true push',
    "dpkg --pre-invoke='evil push' --configure -a",
    "pip config --editor 'evil push' edit",
    "apt-get -qqo APT::Update::Pre-Invoke::='evil push' update",
    "apt-get -yo APT::Update::Pre-Invoke::='evil push' update",
    "touch f; zip -qT x.zip f -qTT 'evil push #'",
    "git init -q r; git clone --no-local --u 'evil push' r y",
    "printf 'all:;@ev%s push' il > Makefile; make",
    'ssh-agent sh -c \'e""vil push\'',
    'prlimit -n sh -c \'e""vil push\'',
    'prlimit --nofile=100 sh -c \'e""vil push\'',
    'choom -n 0 -- sh -c \'e""vil push\'',
    'flock x perl -e\'system+e.vil." push"\'',
    'perl5.36-x86_64-linux-gnu -e \'exec "ev"."il","push"\'',
    'echo \'import os; os.system("e"+"vil push")\' | python3 -m asyncio',
    'echo \'import os; os.system("e"+"vil push")\' | python3 -m cProfile /dev/stdin',
    'echo \'import os; os.system("e"+"vil push")\' | python3 -m profile /dev/stdin',
    "printf 'cos\\nsystem\\n(Vevi\\\\u006c push\\ntR.' | python3 -m pickle /dev/stdin",
    'echo \'import os; os.system("e"+"vil push")\' | python3 -i -c pass',
    'echo \'import os; os.system("e"+"vil push")\' | python3 -ic pass',
    'touch x.py; echo \'import os; os.system("e"+"vil push")\' | python3 -i x.py',
    'python3 -c \'open("x","w").write("e"+"vil push")\'; sh x',
    'awk \'BEGIN{print "e" "vil push" > "x"}\'; sh x',
    "printf 'ev%s push' il | dd of=x; sh x",
    "printf 'ev%s push' il | sort -ox; sh x",
    "printf 'ev%s push' il | sort --output=x; sh x",
    'printf \'import os\\nos.system("e"+"vil push")\' > json.py; python3 -c \'import json\'',
    'printf \'import os\\nos.system("e"+"vil push")\' > zz.py; python3 -m zz',
    'perl -pe \'s/a/$h{system"e"."vil push"}/\' /etc/passwd',
    'perl -ne \'print if /$h{system"e"."vil push"}/\' /etc/passwd',
    'touch foo.c; make CC="e\'\'vil push" foo.o',
    'touch foo.c; make \'CFLAGS=; ev""il push\' foo.o',
    'touch foo.c; CFLAGS=\'; ev""il push\' make foo.o',
    'touch foo.c; make \'CFLAGS=$(shell ev""il push)\' foo.o',
    "git init -q; git send-pack --e 'evil push' .",
    'run-parts --arg=push bin',
    'run-parts -a push bin',
    'run-parts -apush bin',
    'cd bin; run-parts -a push .',
    'debconf sh -c \'e""vil push\'',
    'touch x.c; gcc-12 -wrapper sh,-c,\'e""vil push\' -c x.c',
    'touch x.c; cc -wrapper sh,-c,\'e""vil push\' -c x.c',
    'touch x.c; c99 -wrapper sh,-c,\'e""vil push\' -c x.c',
    'touch x.c; x86_64-linux-gnu-gcc -wrapper sh,-c,\'e""vil push\' -c x.c',
    'x86_64 sh -c \'e""vil push\'',
    'i386 sh -c \'e""vil push\'',
    'echo \'.sh e""vil push\' | sqlite3 x.db -bail',
    'sqlite3 -bail -batch x.db <<E\n.sh e""vil push\nE',
    'ssh-agent python3 -c \'import os; os.system("e"+"vil push")\'',
    'prlimit --nofile=100 -- perl -e \'system "e"."vil push"\'',
    "npm x -c 'e$()vil push'",
    'git init -q; cat > .git/config <<\'E\'\n[core]\nfsmonitor = "ev""il push"\nE\ngit status',
    'install --strip-program evil -s /bin/true push',
    "apt -qqo APT::Update::Pre-Invoke::='evil push' update",
    "dpkg --status-logger='evil push' --configure -a",
    "make -f <(printf 'x:;@e$()vil push')",
    "make -C . --ev 'x:;@e$()vil push'",
    "printf 'x:;@e$()vil push' > q; MAKEFILES=q make x",
    'touch foo.c; env \'COMPILE.c=e""vil push\' make foo.o',
    'touch foo.c; make CC=evil CFLAGS=push foo.o',
    'touch push.c; make CC=evil TARGET_ARCH= CFLAGS=push OUTPUT_OPTION= push.o',
    'touch foo.c; make LINK.c=evil\\ push foo',
    "touch foo.y; make YACC='e$(X)vil push' foo.c",
    'perl -pe \'s/a/$h[system"e"."vil push"]/\' /etc/passwd',
    'perl -pe \'s/a/$$h{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/$x->{system"e"."vil push"}/x/\' /etc/passwd',
    'perl -pe \'s/a/$_{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$1{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$^W{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$::h{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$,{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$;{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$+{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$-{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$+[system"e"."vil push"]/\' /etc/passwd',
    'perl -pe \'s/a/$-[system"e"."vil push"]/\' /etc/passwd',
    'perl -pe \'s/a/$!{system"e"."vil push"}/\' /etc/passwd',
    'perl -pe \'s/a/$"[system"e"."vil push"]/\' /etc/passwd',
    'perl -pe \'s/a/$h{a}{system"e"."vil push"}/\' /etc/passwd',
    "perl -ne 'print if /x/' 'e$()vil push |'",
    'perl -ne print \'|e""vil push\'',
    'perl -ne print \'sh -c "e\\vil push"|\'',
    'sqlite3 -newline \'.sh\' x.db <<< \'.sh e""vil push\'',
    'python3 -m cProfile -m code <<< \'import os; os.system("e"+"vil push")\'',
    'python3 -m cProfile -o /dev/null -m timeit -n1 -r1 \'import os; os.system("e"+"vil push")\'',
    'python3 -m pip config --editor \'ev""il push\' edit',
    "python3 -mpip config --edit 'ev$()il push' edit",
    "pip3 config --ed 'evil push' edit",
    'python3.11 -Sic \'\' <<< \'import os; os.system("e"+"vil push")\'',
    'cat > json.py <<E\nimport os; os.system("e"+"vil push")\nE\npython3 -c \'import json\'',
    'tee json.py <<E\nimport os; os.system("e"+"vil push")\nE\npython3 -c \'import json\'',
    'cat > sitecustomize.py <<E\nimport os; os.system("e"+"vil push")\nE\nPYTHONPATH=. python3 -V; PYTHONPATH=. python3 -c pass',
    'printf \'import os; os.system("e"+"vil push")\' | dd of=json.py; python3 -c \'import json\'',
    'printf \'import os; os.system("e"+"vil push")\' | dd of=q.py; mv q.py json.py; python3 -c \'import json\'',
    'X=push; sh bin/evil $X',
)  # fmt: skip
CONTEXTS = (
    *("{}", "{}", "{}; echo $HOME", "echo $HOME; {}", "true && {} && true", "( {} )", "{{ {}; }} 2>/dev/null", "{} # $x"),
    *("if true; then {}; fi", "x=$({}); echo \"$x\"", 'echo "`{}`"', "for i in $HOME; do {}; done", "f() {{ {}; }}; f"),
    *("case a in a) {};; esac", "[ -n a ] && {}", "cat <<E\n$({})\nE", 'echo "${{x:-$({})}}"', "true | {}", "true $((1+1)); {}"),
    *("echo a >/dev/null $x; {}", "sleep 0 & {}", "[[ -n $x ]]; {}", "echo {{a,b}}; {}", "echo *; {}", "a=$x; {}"),
)  # fmt: skip
LINES = ("{}", "{}", "echo $HOME; {}", "true && {}", "x=1; {}")  # for commands that end in a here-document


def generate_commands(count: int, trial: int) -> Iterator[str]:
    """Yield every carrier once, then random combinations."""
    for carrier in dict.fromkeys(CARRIERS):
        yield fill_template(carrier, "evil push")
    for spelling in SPELLINGS:
        yield spelling
    chance = random.Random(trial)
    for _ in range(count):
        carrier, spelling = chance.choice(CARRIERS), chance.choice(SPELLINGS)
        inner = fill_template(carrier, spelling)
        whole = chance.choice(LINES if "\n" in inner or "#" in inner else CONTEXTS).format(inner)
        yield whole
        yield mutate_command(whole, chance)


SIGNS = [
    *"'\"\\\n\t ;&|<>(){}#$`!*?[]~=-+,.:@%^",
    "\\\n",
    "<<",
    "&>",
    ">&",
    "<<<",
    "$'",
    '$"',
    "${",
    "$(",
    "((",
    "))",
    ">f ",
    "2>&1 ",
    "",
]


def mutate_command(command: str, chance: random.Random) -> str:
    """Return the command with a few signs put in, replaced or left out."""
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(command))
        command = command[:at] + chance.choice(SIGNS) + command[at + chance.randint(0, 1) :]
    return command


def fill_template(carrier: str, spelling: str) -> str:
    return carrier.format(c=spelling, q=shlex.quote(spelling), w="evil push", p="bin:/usr/bin:/bin")


class Shells:
    """A folder with `evil`, which writes down its arguments, and real shells that run commands there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.template = f'#!/bin/sh\necho "$@" >> {self.log}\n'

    def prepare(self) -> Path:
        home = self.folder / "home"
        subprocess.run(["rm", "-rf", str(home)], check=True)
        (home / "bin").mkdir(parents=True)
        for path in (home / "bin" / "evil", home / "evil"):
            path.write_text(self.template)
            path.chmod(0o755)
        self.log.write_bytes(b"")
        return home

    def runs(self, command: str, shell: str) -> bool:
        """Run a command; return True if evil was given the argument that is denied."""
        home = self.prepare()
        read, write = os.pipe()
        environment = {
            "PATH": f"{home}/bin:/usr/bin:/bin",
            "HOME": str(home),
            "E": "evil",
            "P": "push",
            "LC_ALL": "C.UTF-8",
        }
        try:
            process = subprocess.Popen(
                [shell, "-c", command],
                cwd=home,
                env=environment,
                pass_fds=(write,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except ValueError:  # a NUL
            os.close(read)
            return False
        finally:
            os.close(write)
        end = monotonic() + 3
        try:
            select([read], [], [], max(0.0, end - monotonic()))  # until every process has closed it
        finally:
            os.close(read)
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
        return any(line.split()[:1] == ["push"] for line in self.log.read_text("utf-8", "replace").splitlines())
