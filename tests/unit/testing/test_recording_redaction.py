"""Secrets in recorded files: one rule for requests, replies and results, and files that every machine can play."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_http_server import model_request, stream_deltas
from wick import Agent, Scripted, ToolCall, assistant, tool, user
from wick.errors import ModelError
from wick.messages import Message
from wick.protocols import CallArgs, CallStart, Delta, Finish, Request
from wick.testing import Cassette
from wick.testing.cassettes import session
from wick.testing.redaction import RecordingRedactor, find_secret_values, is_secret_name, matches_redacted

PASSWORD = "hunter2"


@pytest.fixture(autouse=True)
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests check cassettes themselves."""
    monkeypatch.setattr(session, "cassettes", None)
    monkeypatch.setattr(session, "record", False)


@tool
def sign_in(user: str, password: str) -> str:
    """Sign in."""
    return f"{user} signed in with {password}"


def sign_in_call(password: str = PASSWORD) -> ToolCall:
    return ToolCall("c1", "sign_in", {"user": "ada", "password": password})


@pytest.mark.parametrize(
    ("password", "hidden"), [(PASSWORD, "[secret]"), ("correct horse 22", "[secret] [secret] [secret]")]
)
async def test_a_secret_argument_is_redacted_everywhere_and_is_played(
    password: str, hidden: str, tmp_path: Path
) -> None:
    path, asked = tmp_path / "it.yaml", f"Sign in as ada with {password}."
    model = Scripted(sign_in_call(password), f"I signed in with {password}.")
    await Agent(Cassette(path, model, record=True), tools=[sign_in]).run(asked)
    text = path.read_text()
    assert password.split()[-1] not in text
    assert f'"password": "{hidden}"' in text and "- reply: 1" in text  # the request refers to the reply
    for _ in range(2):  # the same file twice
        played = Cassette(path)
        result = await Agent(played, tools=[sign_in]).run(asked)
        played.check()
        assert result.text == f"I signed in with {hidden}."
        assert result.messages.tool_messages()[0].text == f"ada signed in with {hidden}"
    assert path.read_text() == text


async def test_a_file_does_not_depend_on_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = tmp_path / "it.yaml", "My password is tr0ub4dor-and-3, in words correct horse."
    monkeypatch.setenv("DB_PASSWORD", "tr0ub4dor-and-3")
    monkeypatch.setenv("OTHER_SECRET", "correct horse")
    await Agent(Cassette(path, Scripted("Thanks."), record=True)).run(asked)
    assert "tr0ub4dor" not in path.read_text() and "horse" not in path.read_text()
    monkeypatch.delenv("DB_PASSWORD")
    monkeypatch.delenv("OTHER_SECRET")
    monkeypatch.setenv("PLAYING_TOKEN", "password is")  # a secret of the machine that plays
    played = Cassette(path)
    assert (await Agent(played).run(asked)).text == "Thanks."
    played.check()


async def test_a_change_beside_a_secret_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.yaml"
    monkeypatch.setenv("DB_PASSWORD", "tr0ub4dor-and-3")
    await Agent(Cassette(path, Scripted("Thanks."), record=True)).run("It is tr0ub4dor-and-3 today.")
    for changed in ("It is tr0ub4dor-and-3 tomorrow.", "It is tr0ub4dor-and-3 not today.", "It is  today."):
        played = Cassette(path)
        with pytest.raises(Exception, match="has no recorded reply"):
            await Agent(played).run(changed)


async def test_the_message_about_a_change_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.yaml"
    monkeypatch.setenv("DB_PASSWORD", "tr0ub4dor-and-3")
    await Agent(Cassette(path, Scripted("Thanks."), record=True)).run("Hello.")
    with pytest.raises(Exception, match=r"My password is \[secret\]"):
        await Agent(Cassette(path)).run("My password is tr0ub4dor-and-3.")


async def test_a_diff_leaves_out_texts_that_match(tmp_path: Path) -> None:
    path, asked = tmp_path / "it.yaml", f"Sign in as ada with {PASSWORD}."
    model = Scripted(sign_in_call(), "Done.")
    await Agent(Cassette(path, model, record=True), tools=[sign_in], system="Be kind.").run(asked)
    with pytest.raises(ModelError) as failed:
        await Agent(Cassette(path), tools=[sign_in], system="Be rude.").run(asked)
    lines = str(failed.value).splitlines()
    assert lines[3:-1] == ["-system: Be kind.", "+system: Be rude."] and PASSWORD not in str(failed.value)


async def test_arguments_in_pieces_are_redacted(tmp_path: Path) -> None:
    class Interleaved:
        name = "acme:two"

        async def stream(self, request: Request):  # type: ignore[no-untyped-def]
            for delta in (
                CallStart(0, "a", "sign_in"),
                CallStart(1, "b", "sign_in"),
                CallArgs(0, '{"user": "ada", "pass'),
                CallArgs(1, '{"user": "eve"}'),
                CallArgs(0, f'word": "{PASSWORD}"}}'),
                Finish("tool_calls"),
            ):
                yield delta

    path = tmp_path / "it.yaml"
    await stream_deltas(Cassette(path, Interleaved(), record=True), model_request(user("Hi.")))
    assert PASSWORD not in path.read_text()
    deltas: list[Delta] = await stream_deltas(Cassette(path), model_request(user("Hi.")))
    texts = {index: "".join(d.text for d in deltas if isinstance(d, CallArgs) and d.index == index) for index in (0, 1)}
    assert json.loads(texts[0]) == {"user": "ada", "password": "[secret]"}
    assert texts[1] == '{"user": "eve"}'


async def test_arguments_that_are_not_json_are_redacted(tmp_path: Path) -> None:
    class Truncated:
        name = "acme:two"

        async def stream(self, request: Request):  # type: ignore[no-untyped-def]
            for delta in (CallStart(0, "a", "sign_in"), CallArgs(0, '{"password": "hunter2-and'), Finish("length")):
                yield delta

    path = tmp_path / "it.yaml"
    await stream_deltas(Cassette(path, Truncated(), record=True), model_request(user("Hi.")))
    assert "hunter2" not in path.read_text()


async def test_a_placeholder_of_the_user_gives_a_secret_argument_back(tmp_path: Path) -> None:
    path, replace = tmp_path / "it.yaml", {'quote"d-pass': "{password}"}
    model = Scripted(sign_in_call('quote"d-pass'), "Done.")
    await Agent(Cassette(path, model, record=True, replace=replace), tools=[sign_in]).run("Sign in.")
    assert "quote" not in path.read_text()
    played = Cassette(path, replace={'other"pass': "{password}"})
    result = await Agent(played, tools=[sign_in]).run("Sign in.")
    assert result.messages.tool_messages()[0].text == 'ada signed in with other"pass'


async def test_a_file_of_an_earlier_version_is_played(tmp_path: Path) -> None:
    """Its reply has the argument in clear, and its next request does not."""
    path, asked = tmp_path / "it.yaml", f"Sign in as ada with {PASSWORD}."
    path.write_text(f"""\
version: 1
name: acme:one
replies:
- number: 1
  request:
    messages:
    - user: {asked}
  reply:
  - call: sign_in
    args: '{{"user": "ada", "password": "{PASSWORD}"}}'
  - finish: tool_calls
- number: 2
  request:
    continues: 1
    messages:
    - assistant: ''
      calls:
      - sign_in:
          user: ada
          password: '[secret]'
    - tool: sign_in
      result: ada signed in with {PASSWORD}
  reply:
  - text: Done.
  - finish: stop
""")
    played = Cassette(path)
    messages = [user(asked), assistant("", sign_in_call())]
    await stream_deltas(played, model_request(messages[0]))
    result = Message("tool", f"ada signed in with {PASSWORD}", name="sign_in", tool_call_id="c1")
    assert await stream_deltas(played, model_request(*messages, result))


def test_a_secret_as_a_key_matches() -> None:
    assert matches_redacted({"a": 1, "x [secret]": 2}, {"a": 1, "x tr0ub4dor": 2})
    assert not matches_redacted({"a": 1, "x [secret]": 2}, {"a": 1, "x tr0ub4dor": 3})
    assert not matches_redacted({"a": 1}, {"b": 1}) and not matches_redacted({"[secret]": 1}, {})


def test_names_of_secrets() -> None:
    secret = ("password", "api_key", "apiKey", "access_token", "AUTHORIZATION", "client_secret", "ssh_key", "token")
    plain = ("key", "page_token", "nextPageToken", "sort_key", "max_tokens", "keyboard", "public_key", "note")
    assert [name for name in (*secret, *plain) if is_secret_name(name)] == [*secret]


def test_short_words_are_redacted_in_their_place_only() -> None:
    data = {"args": {"password": "none", "token": "a1"}, "text": "none of a1"}
    redacted = RecordingRedactor(environment={}).redact_case(data)
    assert redacted == {"args": {"password": "[secret]", "token": "[secret]"}, "text": "none of a1"}
    assert [*find_secret_values({"password": "x7-Z", "note": "plain"})] == ["x7-Z"]


def test_a_digest_of_a_tool_is_not_a_secret() -> None:
    data = {"tools": {"create_token": "(id: integer) 94806ee2"}}
    assert RecordingRedactor(environment={}).redact_case(data) == data


TEXTS = st.text("ab [secret]\n", max_size=12) | st.sampled_from(["[secret]", "x [secret] y", "[secret][secret]"])


@given(st.lists(st.text("abc \n", max_size=5), max_size=4), st.text("abcx", min_size=1, max_size=5))
def test_a_redacted_text_matches_its_origin(parts: list[str], secret: str) -> None:
    """Any text with a word in the place of each placeholder matches."""
    assert matches_redacted("[secret]".join(parts), secret.join(parts))


@given(TEXTS, TEXTS)
def test_a_match_is_that_of_a_regular_expression(recorded: str, sent: str) -> None:
    pattern = r"\S+".join(map(re.escape, re.split(r"(?:\[secret\])+", recorded)))
    is_match = recorded in (sent, "[secret]") or bool("[secret]" in recorded and re.fullmatch(pattern, sent))
    assert matches_redacted(recorded, sent) is is_match


def test_matching_needs_no_backtracking() -> None:
    assert not matches_redacted("[secret]a" * 2_000 + " ", "a" * 20_000)
