"""The forms of secrets: cases of evals and cassettes redact the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from wick import Scripted, user
from wick._internal.redaction import KEY_FORMS
from wick.protocols import Request
from wick.testing import Cassette
from wick.testing.redaction import RecordingRedactor

FORMS = {
    "a model provider": "sk-ant-api03-abcdefghijklmnop",
    "Stripe": "rk-0123456789abcdefghij",
    "Hugging Face": "hf_abcdefghijklmnopqrstuv",
    "GitHub": "ghp_abcdefghijklmnopqrstuvwxyz",
    "Slack": "xoxe-123456789012-abc",
    "AWS": "AKIAABCDEFGHIJKLMNOP",
    "Google": "AIza" + "b" * 35,
    "a JSON Web Token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "a private key": "-----BEGIN PRIVATE KEY-----\nabc\ndef\n-----END PRIVATE KEY-----",
}


@pytest.mark.parametrize("kind", FORMS)
async def test_evals_and_cassettes_redact_the_same_forms(kind: str, tmp_path: Path) -> None:
    secret, path = FORMS[kind], tmp_path / "cassette.yaml"
    assert RecordingRedactor(environment={}).redact_text(f"x {secret} y") == "x [secret] y"
    model = Cassette(path, Scripted(f"I saw {secret}."), record=True)
    async for _ in model.stream(Request((user(f"x {secret} y"),))):
        pass
    recorded = path.read_text()
    assert "x [secret] y" in recorded and secret.splitlines()[-1] not in recorded


def test_credentials_of_headers_and_urls_are_secrets() -> None:
    for text, redacted in {
        "authorization: basic YWRhOmh1bnRlcjIxMjM0NQ==": "authorization: basic [key]",
        "Authorization: Bearer abcdefghijklmnop123": "Authorization: Bearer [key]",
        "postgresql://ada:hunter2@db/x": "postgresql://[key]@db/x",
    }.items():
        assert KEY_FORMS.sub("[key]", text) == redacted


def test_words_that_end_like_a_prefix_are_not_secrets() -> None:
    for text in (
        "the risk-assessment-of-this-year",
        "a task-with-a-long-descriptive-name",
        "https://example.com:80/a@b",
    ):
        assert not KEY_FORMS.search(text)
