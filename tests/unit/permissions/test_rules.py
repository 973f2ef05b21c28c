"""Rules: syntax, scope, and no command allowed by mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from shell_stubs import COMMANDS, Ran, Stubs
from wick import Tool, tool
from wick.constants import RULE_CHARS
from wick.errors import ConfigError
from wick.permissions.rules import (
    POLICIES,
    SHELL_POLICY,
    Rule,
    RuleIndex,
    RuleSpec,
    RuleSubject,
    find_allowing_rules,
    match_rule,
    parse_rule,
)
from wick.permissions.specifiers import MatchResult


@tool(kind="shell")
def execute(command: str, workdir: str = "") -> str:
    """Run a command."""
    return command


@tool(kind="read", read_only=True)
def read_file(path: str) -> str:
    """Read."""
    return path


@tool(kind="write")
def write_file(path: str, content: str = "") -> str:
    """Write."""
    return path


@tool(kind="read", read_only=True)
def grep(pattern: str = "x", path: str = ".") -> str:
    """Search."""
    return path


@tool(kind="network")
def http_request(url: str) -> str:
    """Fetch."""
    return url


@tool
def plain(text: str = "") -> str:
    """Something else."""
    return text


def use(used: Tool, workdir: str = "", linked: Any = frozenset(), **args: Any) -> RuleSubject:
    return RuleSubject.from_use(used, args, workdir=workdir, linked=linked)


def shell(command: str, **args: Any) -> RuleSubject:
    return use(execute, command=command, **args)


def denies(text: str, subject: RuleSubject) -> MatchResult:
    return match_rule(parse_rule("deny", text), subject)


def allows(subject: RuleSubject, *texts: str) -> bool:
    return bool(find_allowing_rules([parse_rule("allow", text) for text in texts], subject))


# -- how rules are written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "tool_", "specifier", "message"),
    [
        ("Bash", "Bash", "", ""),
        (" Bash(git status) ", "Bash", "git status", ""),
        ("Bash(echo (a))", "Bash", "echo (a)", ""),
        ("mcp__*", "mcp__*", "", ""),
        ("kind:shell(rm *)", "kind:shell", "rm *", ""),
        ({"rule": "Read(a)", "message": "No."}, "Read", "a", "No."),
        ({"rule": "Read"}, "Read", "", ""),
    ],
)
def test_a_rule(given_: RuleSpec, tool_: str, specifier: str, message: str) -> None:
    found = parse_rule("deny", given_)
    assert (found.tool, found.specifier, found.message, found.type) == (tool_, specifier, message, "deny")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("", "write Tool or Tool\\(specifier\\)"),
        ("  ", "write Tool or Tool\\(specifier\\)"),
        ("Bash(", "'Bash\\(' cannot be read"),
        ("Bash(ls", "'Bash\\(ls' cannot be read"),
        ("Bash ls)", "'Bash ls\\)' cannot be read"),
        ("Bash)", "cannot be read"),
        ("(ls)", "cannot be read"),
        ("Bash (ls)", "cannot be read"),
        ("Bash()", "cannot be read"),
        ("Bash( )", "'Bash\\( \\)' has nothing in its brackets"),
        ("a|b", "cannot be read"),
        ("Bash(* x)", "must begin with the name of a command"),
        ("Bash(:*)", "must begin with the name of a command"),
        ("Read(~/x)", "~ is not expanded"),
        ("Read(../x)", "has .. in it"),
        ("Edit(/)", "names no file"),
        ("kind:write(../x)", "has .. in it"),
        ("WebFetch(example.com)", "should name a host, as in WebFetch\\(domain:example.com\\)"),
        ("WebFetch(domain:)", "should name a host"),
        ("WebFetch(domain:a b)", "should name a host"),
        ("WebFetch(domain:http://a.b/c)", "should name a host"),
        ("other(domain:a/b)", "should name a host"),
        ("x" * (RULE_CHARS + 1), "at most"),
        (7, "a rule is a text"),
        (None, "a rule is a text"),
        (["Bash"], "a rule is a text"),
        ({}, "cannot be read"),
        ({"rule": 7}, "a rule is a text"),
        ({"rule": "Bash", "because": "x"}, "a rule is a text or {rule: …, message: …}"),
        ({"rule": "Bash", "message": 7}, "a rule is a text or {rule: …, message: …}"),
    ],
)
def test_a_rule_that_cannot_be_one(wrong: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_rule("deny", wrong)


@given(st.text(max_size=30))
def test_every_text_is_a_rule_or_a_sentence(text: str) -> None:
    try:
        found = parse_rule("allow", text)
    except ConfigError as error:
        assert len(str(error)) > 20
    else:
        assert found.text == text.strip()


# -- which tools a rule is about ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["execute", "Bash", "bash", "exec*", "*", "B?sh", "kind:shell", "kind:*"])
def test_a_tool_by_any_of_its_names(name: str) -> None:
    assert denies(name, shell("ls")) == "yes"
    assert allows(shell("ls"), name)


@pytest.mark.parametrize("name", ["Read", "read_file", "EXECUTE", "kind:read", "exe", "mcp__*"])
def test_another_tool(name: str) -> None:
    assert denies(name, shell("ls")) == "no"
    assert not allows(shell("ls"), name)


def test_a_renamed_tool_is_denied_by_its_origin_and_allowed_by_its_name() -> None:
    foreign = use(read_file.renamed("mcp__files__read"), path="a")
    for name in ("read_file", "Read", "mcp__*", "mcp__files__read"):
        assert denies(name, foreign) == "yes"
    assert allows(foreign, "mcp__files__read") and allows(foreign, "mcp__files__*(a)")
    assert not allows(foreign, "Read") and not allows(foreign, "read_file")


def test_aliases_of_a_tool_are_allowed() -> None:
    own = tool(lambda: "", name="mine", aliases=["Its"])
    assert allows(use(own), "Its") and denies("Its", use(own)) == "yes"


def test_a_specifier_needs_something_to_compare_with() -> None:
    with pytest.raises(ConfigError, match="the rule 'plain\\(x\\)' cannot be compared with the input of plain"):
        denies("plain(x)", use(plain, text="x"))
    assert not allows(use(plain, text="x"), "plain(x)")
    assert denies("pl*(x)", use(plain, text="x")) == "no"
    with pytest.raises(ConfigError, match="cannot be compared"):
        denies("Bash(ls)", RuleSubject.from_use(execute, {"command": 7}))


# -- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specifier", "command", "fits"),
    [
        ("git status", "git status", True),
        ("git status", "git  'status'", True),
        ("git status", "git status -s", False),
        ("git status", "git", False),
        ("git *", "git", True),
        ("git *", "git log -p", True),
        ("git *", "gitk", False),
        ("git:*", "git log -p", True),
        ("git:*", "git", True),
        ("git:*", "github", False),
        ("npm run test:*", "npm run test", True),
        ("npm run test:*", "npm run test -- -x", True),
        ("npm run test:*", "npm run tests", False),
        ("npm run test*", "npm run test:unit", True),
        ("npm run test*", "npm run test x", False),
        ("git * main", "git push origin main", True),
        ("git * main", "git main", True),
        ("git * main", "git push main x", False),
        ("git * --*=* *", "git a --b=c d", True),
        ("cp *.py *", "cp a.py b", True),
        ("cp *.py *", "cp a.txt b", False),
        ("echo a*b*c", "echo abbc", True),
        ("echo a*b*c", "echo acb", False),
        ("echo a*a", "echo a", False),
        ("git status", "/usr/bin/git status", False),
        ("git*", "git/../../bin/evil", False),
        ("./run*", "./run/it", True),
        ("/usr/bin/git *", "/usr/bin/git x", True),
        ("Git *", "git x", False),
        ("echo *", "echo *.py ~", True),
        ("echo a", "echo ?", False),
        ("echo '*", "echo \\'x", True),
        ("*", "anything at all", True),
    ],
)
def test_allow_specifiers(specifier: str, command: str, fits: bool) -> None:
    assert allows(shell(command), f"Bash({specifier})") is fits


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("ls && cat x | cat", True),
        ("ls; rm x", False),
        ("(ls) & { cat; }", True),
        ("timeout 5 ls", True),
        ("bash -c 'ls; cat x'", True),
        ("bash -c 'ls; rm x'", False),
        ("ls | xargs cat", True),
        ("ls | xargs rm", False),
        ("sudo ls", False),
        ("/tmp/timeout 5 ls", False),
        ("Timeout 5 ls", False),
        ("find . -exec ls {} \\;", False),
        ("ls $HOME", False),
        ("ls `x`", False),
        ("A=1 ls", False),
        ("eval ls", False),
        ("ls 'a", False),
        ("", False),
        ("# nothing", False),
        ("ls 2>&1 >/dev/null", True),
        ("ls > out", False),
        ("ls < in", False),
        ("cat <<'EOF'\n$(rm x)\nEOF", True),
        ("cat <<EOF\n$(rm x)\nEOF", False),
    ],
)
def test_every_part_of_a_command_must_be_allowed(command: str, allowed: bool) -> None:
    assert allows(shell(command), "Bash(ls *)", "Bash(cat *)") is allowed


def test_the_tool_itself_allows_everything() -> None:
    assert allows(shell("eval $x > y"), "Bash") and allows(shell("eval $x"), "Bash(ls)", "kind:shell")


def test_parts_may_be_allowed_by_different_rules() -> None:
    rules = [parse_rule("allow", text) for text in ("Bash(ls *)", "Bash(cat *)", "Write(out/**)", "Bash(ls -l)")]
    assert [found.text for found in find_allowing_rules(rules, shell("ls -l | cat > out/a"))] == [
        *("Bash(ls *)", "Bash(cat *)", "Write(out/**)")
    ]


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("rm x", "yes"),
        ("ls; rm x", "yes"),
        ("/bin/rm x", "yes"),
        ("./rm x", "yes"),
        ("RM x", "yes"),
        ("Env -i Nice rm x", "yes"),
        ("\\rm x", "yes"),
        ("r''m x", "yes"),
        ("sudo -u bob rm x", "yes"),
        ("echo $(rm x)", "yes"),
        ("bash -c 'rm x'", "yes"),
        ("find . -exec rm {} +", "yes"),
        ("eval rm x", "yes"),
        ("ls $x\n\\rm y", "yes"),
        ("$CMD x", "maybe"),
        ("r? x", "maybe"),
        ("curl x | sh", "maybe"),
        ("source x", "maybe"),
        ("echo 'unclosed", "maybe"),
        ("echo rm", "no"),
        ("ls $x", "no"),
        ("git rm x", "no"),
        ("s* x", "no"),
        ("", "no"),
    ],
)
def test_deny_specifiers(command: str, answer: MatchResult) -> None:
    assert denies("Bash(rm *)", shell(command)) == answer


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("git push --force", "yes"),
        ("git push origin --force x", "yes"),
        ("git push", "no"),
        ("git push $x", "maybe"),
        ("git $x --force", "maybe"),
        ("git p* --force", "maybe"),
        ("git {push,x} --force", "maybe"),
        ("git pull $x", "no"),
        ("git log* --force", "no"),
        ("git push *", "maybe"),
    ],
)
def test_a_deny_of_certain_words(command: str, answer: MatchResult) -> None:
    assert denies("Bash(git push * --force *)", shell(command)) == answer


def test_a_star_alone_is_every_command() -> None:
    assert denies("Bash(*)", shell("eval $x")) == denies("Bash(*)", shell("")) == "yes"
    assert not allows(shell("eval $x"), "Bash(*)")


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("echo x > secret/key", "yes"),
        ("echo x >> secret/a/b", "yes"),
        ("echo x &> ./secret/key", "yes"),
        ("echo x > secret*", "maybe"),
        ("echo x > $f", "maybe"),
        ("echo x > public", "no"),
        ("cat < secret/key", "no"),
        ("echo x 2>&1 > /dev/null", "no"),
    ],
)
def test_a_redirection_is_a_use_of_a_file(command: str, answer: MatchResult) -> None:
    assert denies("Write(secret/**)", shell(command, workdir="/w")) == answer


def test_a_redirection_must_be_allowed() -> None:
    rules = ("Bash(sort *)", "Write(out/**)", "Read(data/*)")
    assert allows(shell("sort < data/x > out/y"), *rules)
    assert not allows(shell("sort < other > out/y"), *rules)
    assert not allows(shell("sort < data/x > data/x"), *rules)
    assert not allows(shell("sort < data/../x"), *rules)
    assert not allows(shell("sort < data/x", linked={"data/x"}), *rules)
    assert not allows(RuleSubject.from_use(execute, {"command": "sort < data/x", "workdir": "sub"}), *rules)
    assert not allows(shell("sort > /dev/tcp/a/1"), "Bash(sort *)", "Write")
    assert denies("Write", shell("sort > x")) == "yes"
    assert denies("kind:write", shell("sort > x")) == "yes"


# -- paths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("specifier", "path", "fits"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "./src//a.py", True),
        ("src/**", "/w/src/a.py", True),
        ("src/**", "src", False),
        ("src/**", "srcs/a", False),
        ("src/**", "src/../etc/x", False),
        ("src/**", "src/../src/a", False),
        ("src/**", "/etc/src/a", False),
        ("src/**", "../src/a", False),
        ("src/*", "src/a", True),
        ("src/*", "src/a/b", False),
        ("*.md", "a.md", True),
        ("*.md", "deep/a.md", True),
        ("./*.md", "deep/a.md", False),
        ("/w/src/**", "src/a", True),
        ("/etc/**", "/etc/a/b", True),
        ("//etc/**", "/etc/a", True),
        ("/etc/**", "etc/a", False),
        ("Src/**", "src/a", False),
        ("**", "a/b", True),
        ("{a,b}/*.py", "b/x.py", True),
    ],
)
def test_files_that_are_allowed(specifier: str, path: str, fits: bool) -> None:
    assert allows(use(read_file, workdir="/w", path=path), f"Read({specifier})") is fits


@pytest.mark.parametrize(
    ("specifier", "path", "answer"),
    [
        ("secret/**", "secret/a", "yes"),
        ("secret", "secret/a/b", "yes"),
        ("secret", "x/secret", "yes"),
        ("secret/**", "SECRET/a", "yes"),
        ("geh\u00e9im/**", "GEHE\u0301IM/a", "yes"),
        ("secret/**", "a/../secret/b", "yes"),
        ("secret/**", "/w/secret/b", "yes"),
        ("secret/**", "public/a", "no"),
        ("secret/**", "a/../public", "maybe"),
        ("secret/**", ".", "no"),
        (".env", "a/b/.env", "yes"),
        ("/etc/**", "/etc/passwd", "yes"),
        ("/etc/**", "etc/passwd", "no"),
        ("/w/a", "a", "yes"),
        ("secret/**", "/etc/secret/a", "no"),
    ],
)
def test_files_that_are_denied(specifier: str, path: str, answer: MatchResult) -> None:
    assert denies(f"Read({specifier})", use(read_file, workdir="/w", path=path)) == answer


def test_an_unknown_workspace_may_be_either() -> None:
    assert denies("Read(/etc/**)", use(read_file, path="a")) == "maybe"
    assert denies("Read(a)", use(read_file, path="/w/a")) == "maybe"
    assert not allows(use(read_file, path="a"), "Read(/**)")
    assert not allows(use(read_file, path="/a"), "Read(**)")


def test_a_path_through_a_link_is_unknown() -> None:
    linked = use(read_file, path="src/link", linked={"src/link"})
    assert not allows(linked, "Read(src/**)") and allows(linked, "Read")
    assert denies("Read(secret/**)", linked) == "maybe"


def test_a_tool_that_recurses_into_folders() -> None:
    assert allows(use(grep, path="src"), "Grep(src/**)")
    assert allows(use(grep, path="src/a"), "Grep(src/**)")
    assert allows(use(grep, path="."), "Grep(**)")
    assert not allows(use(grep, path="src"), "Grep(src/*)")
    assert not allows(use(grep, path="src/a"), "Grep(src/*)")
    assert not allows(use(grep, path="."), "Grep(src/**)")
    assert denies("Grep(secret/**)", use(grep, path=".")) == "yes"
    assert denies("Grep(a/secret/**)", use(grep, path="a")) == "yes"
    assert denies("Grep(a/secret/**)", use(grep, path="b")) == "no"
    assert denies("Grep(**/.env)", use(grep, path="b")) == "yes"


# -- hosts ----------------------------------------------------------------------------------------------------------


def test_a_host() -> None:
    page = use(http_request, url="https://docs.example.com/x")
    assert allows(page, "WebFetch(domain:example.com)") and denies("WebFetch(domain:example.com)", page) == "yes"
    assert not allows(page, "WebFetch(domain:other.com)") and denies("kind:network(domain:other.com)", page) == "no"
    assert denies("kind:network(domain:example.com)", shell("ls")) == "no"


# -- the ready set --------------------------------------------------------------------------------------------------

POLICY = [parse_rule("deny", item) for item in SHELL_POLICY]


def policy(command: str) -> MatchResult:
    answers = {match_rule(item, shell(command)) for item in POLICY}
    return "yes" if "yes" in answers else "maybe" if "maybe" in answers else "no"


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /", "rm -fr / x", "rm -r -f /etc", "rm -rf /usr/", "rm --no-preserve-root x", "sudo ls"),
        *("su", "mkfs.ext4 x"),
        *("dd if=a of=/dev/sda", "shutdown now", "bash -c 'reboot'", "chmod -R 777 /"),
        *("systemctl reboot", "echo `halt`"),
    ],
)  # fmt: skip
def test_the_policy_refuses(command: str) -> None:
    assert policy(command) == "yes"


@pytest.mark.parametrize(
    "command",
    ["ls", "rm -rf build", "rm *.pyc", "rm -rf /tmp/x", "git init", "echo $HOME", "[ -f x ] && ls", "chmod +x a"],
)
def test_the_policy_does_not_mind(command: str) -> None:
    assert policy(command) == "no"


@pytest.mark.parametrize("command", ["rm -rf /*", "rm -rf $x", "curl x | sh", "$x"])
def test_the_policy_is_not_sure(command: str) -> None:
    assert policy(command) == "maybe"


RULES = [
    *("Bash", "Bash(*)", "Bash(ok *)", "Bash(m* *)", "Bash(domain:x.org)", "kind:shell(rm * -rf *)", "mcp__*"),
    *("Bash([ *)", "Bash(git push *)", "Bash(/usr/bin/bad x)", "Read(src/**)", "Write(*.py)", "Write", "kind:*"),
]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    command=COMMANDS
    | st.lists(st.sampled_from("ok rm git push [ -rf / bad x /usr/bin/bad python mv".split())).map(" ".join),
    texts=st.lists(st.sampled_from([text for text in RULES if "domain" not in text]), max_size=6),
)
def test_the_index_finds_the_rules_that_match(command: str, texts: list[str]) -> None:
    rules = [*(parse_rule("deny", text) for text in texts), *POLICY, parse_rule("ask", "Bash(ok *)")]
    for subject in (shell(command), use(grep, path="src/a"), use(http_request, url="https://x.org")):
        answers = [(item, match_rule(item, subject)) for item in rules]
        assert RuleIndex(rules).match(subject) == [(item, answer) for item, answer in answers if answer != "no"]


def test_the_index_keeps_a_rule_that_cannot_be_compared() -> None:
    with pytest.raises(ConfigError, match="cannot be compared"):
        RuleIndex([parse_rule("deny", "Bash(domain:x.org)")]).match(shell("ls"))


def test_the_policies() -> None:
    assert set(POLICIES) == {"shell"}
    assert {item.message for item in POLICY} == {"Command blocked by policy"}


# -- no command is allowed by mistake -------------------------------------------------------------------------------

ALLOW = [
    parse_rule("allow", f"Bash({text})")
    for text in ("ok *", "good one two", "echo *", "true", "cat *", "find *", "xargs *", "bash *")
]
DENY = [parse_rule("deny", f"Bash({text})") for text in ("bad *", "evil *")]
EXAMPLES = 3_000 if os.environ.get("WICK_FULL") else 200


def fine(ran: Ran) -> bool:
    return ran[0] == "ok" or ran == ("good", "one", "two")


def missed(rules: list[Rule], command: str) -> bool:
    return all(match_rule(item, shell(command)) == "no" for item in rules)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return Stubs(tmp_path_factory.mktemp("stubs"))


@pytest.mark.parametrize("sh", ["bash", "sh"])
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(command=COMMANDS)
@example("ok\\\n#x; bad")
@example("o\\\nk; b\\\nad")
@example("cat <<EOF\nEO\\\nF\nbad\nEOF")
@example("echo ok | xargs bad")
@example("find . -maxdepth 0 -exec bad {} \\;")
@example("ok # \\\nbad")
@example("ok <(bad)")
@example("ok\u00a0; bad")
def test_an_allowed_command_runs_nothing_else(stubs: Stubs, sh: str, command: str) -> None:
    """A real shell runs every command that the rules allow, and each stub that it starts is one that they allow."""
    if find_allowing_rules(ALLOW, shell(command)):
        ran = stubs.run(command, sh)
        assert all(map(fine, ran)), ran


@pytest.mark.parametrize("sh", ["bash", "sh"])
@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(command=COMMANDS)
@example("b''ad")
@example("$'b\\x61d'")
@example("X=bad; $X")
@example("cat <<EOF\n`bad`\nEOF")
@example("find . -*exec bad \\;")
@example("bash -O extglob -c 'bad x'")
def test_a_denied_command_is_detected_or_asked(stubs: Stubs, sh: str, command: str) -> None:
    """A command that no deny rule matches runs nothing denied."""
    if missed(DENY, command):
        ran = stubs.run(command, sh)
        assert not any(row[0] in ("bad", "evil") for row in ran), ran


@pytest.mark.parametrize(
    "command",
    [
        *("ok", "o''k \\a", "ok; good 'one' \"two\"", "ok | ok & ok && ok || ok"),
        *("(ok); { ok; }", "if ok; then ok; fi"),
        *("timeout 5 nice -n 1 ok", "bash -c 'ok; sh -c \"good one two\"'"),
        *("echo x | xargs ok", "env - bash -c 'ok'; ok"),
        *("find . -maxdepth 0 -exec ok {} \\;", "ok <<'EOF'\nbad\nEOF", "ok 2>&1 >/dev/null # bad"),
        *("ok \\\n  b", "ok b *"),
    ],
)  # fmt: skip
def test_plain_commands_are_allowed_and_run(stubs: Stubs, command: str) -> None:
    """Or nothing at all would be allowed, and the tests above would be content."""
    assert find_allowing_rules(ALLOW, shell(command))
    assert missed(DENY, command)
    assert stubs.run(command, "sh") and all(map(fine, stubs.run(command, "bash")))


@pytest.mark.parametrize(
    "command",
    [
        *("bad", "ok; bad", "b''ad", "$'b\\x61d'", "X=bad; $X", "$(echo bad)", "ok $(bad)", "ok `bad`"),
        *("eval bad", "cat <(bad)"),
        *("bash -c bad", "echo bad | sh", "echo x | xargs bad", "find . -maxdepth 0 -exec bad \\;"),
        *("ok\\\n#; bad", "ba\\\nd"),
        *("cat <<EOF\n$(bad)\nEOF", "cat <<EOF\n`bad`\nEOF", "cat <<EOF\nEO\\\nF\nbad\nEOF"),
        *("f() { bad; }; f", "env -S bad"),
        *("trap bad EXIT", "{bad,x}", "b?d", "[[ 'a[$(bad)]' -eq 0 ]]"),
        *("test -v 'a[$(bad)]'", "hash -p $PATH/bad ok; ok"),
    ],
)  # fmt: skip
def test_commands_that_run_others_are_neither_allowed_nor_missed(stubs: Stubs, command: str) -> None:
    assert ("bad",) in [row[:1] for row in stubs.run(command.replace("b?d", f"{stubs.bin}/b?d"), "bash")]
    assert not find_allowing_rules(ALLOW, shell(command))
    assert not missed(DENY, command)


@pytest.mark.parametrize("sh", ["bash", "sh"])
def test_the_stubs_record_executed_commands(stubs: Stubs, sh: str) -> None:
    assert stubs.run("ok a 'b c'; bad | good one; echo x | xargs evil", sh) != []
    assert sorted(stubs.run("ok a 'b c'; bad; nohup evil x", sh)) == [("bad",), ("evil", "x"), ("ok", "a", "b c")]
    assert Path(stubs.bin / "ok").exists()
