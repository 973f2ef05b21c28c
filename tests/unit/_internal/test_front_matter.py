"""YAML front matter of Markdown files, and refused content."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from wick._internal.front_matter import split
from wick.constants import FRONT_MATTER_BYTES
from wick.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "data", "body"),
    [
        ("---\nname: a\n---\nbody\n", {"name": "a"}, "body\n"),
        ("---\r\nname: a\r\n---\r\nbody\r\n", {"name": "a"}, "body\r\n"),
        ("\ufeff---\nname: a\n---", {"name": "a"}, ""),
        ("---  \nname: a\n...\nx\n---\n", {"name": "a"}, "x\n---\n"),
        ("---\nname: 'a: b'\ntools: [x]\nmore:\n  k: 1\n---\n", {"name": "a: b", "tools": ["x"], "more": {"k": 1}}, ""),
        ("---\ndescription: >\n  two\n  lines\n---\n", {"description": "two lines\n"}, ""),
        ("---\non: 2024-99-02\n1: .inf\nno: null\n---\n", {"on": "2024-99-02", "1": ".inf", "no": None}, ""),
        ("---\na: [yes, true, False, 1.5, 0x10]\n---\n", {"a": ["yes", True, False, 1.5, 16]}, ""),
    ],
)  # fmt: skip
def test_front_matter(text: str, data: dict[str, Any], body: str) -> None:
    assert split(text) == (data, body)
    json.dumps(data, allow_nan=False)


# a plain scalar and its value in YAML 1.2; version 1.1 reads most of these differently
CORE = {
    "1:30": "1:30", "10:20:30": "10:20:30", "010": 10, "0o10": 8, "0x1f": 31, "0b11": "0b11", "1_000": "1_000",
    "yes": "yes", "No": "No", "on": "on", "OFF": "OFF", "y": "y", "true": True, "FALSE": False, "~": None, "Null": None,
    "": None, "nUll": "nUll", "2020-01-01": "2020-01-01", "2020-01-01 10:00:00": "2020-01-01 10:00:00", ".inf": ".inf",
    "-.INF": "-.INF", ".nan": ".nan", "1e3": 1000.0, "1.5e-2": 0.015, ".5": 0.5, "+7": 7, "-0": 0, "1.": 1.0, "=": "=",
    "0o8": "0o8", "-0x1": "-0x1", "1__0": "1__0", "1,000": "1,000", "'010'": "010", '"yes"': "yes",
}  # fmt: skip


@pytest.mark.parametrize("text", CORE)
def test_scalars_follow_yaml_1_2(text: str) -> None:
    found = split(f"---\na: {text}\n---\n")[0]["a"]
    assert found == CORE[text] and type(found) is type(CORE[text])


def test_duplicate_and_special_keys() -> None:
    assert split("---\n<<: {a: 1}\n---\n") == ({"<<": {"a": 1}}, "")
    for text, line in (("a: 1\na: 2\n", 3), ("x: {a: 1, a: 2}\n", 2), ("x:\n- {a: 1, 'a': 2}\n", 3)):
        with pytest.raises(ConfigError, match=f"its front matter, line {line}: the key 'a' is repeated; it is in line"):
            split(f"---\n{text}---\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "does not begin with a line of three dashes"),
        ("# Title\n---\nname: a\n---\n", "does not begin with a line of three dashes"),
        ("---\nname: a\n", "does not end with a line of three dashes"),
        ("---\n- a\n---\n", "is not a map of names and values"),
        ("---\n---\n", "is not a map of names and values"),
        ("---\nname: a: b\n---\n", ", line 2: not valid YAML: mapping values are not allowed"),
        ("---\na: [1\nb: 2\n---\n", ", line 3: not valid YAML: while parsing a flow sequence, "),
        ("---\na: &x 1\nb: *x\n---\n", ", line 2: anchors (&) and aliases (*) are not used here; write out the value"),
        ("---\na: &x 1\n---\n", ", line 2: anchors"),
        ("---\na: *x\n---\n", ", line 2: anchors"),
        ("---\na: !!python/object/apply:os.system [ls]\n---\n", ", line 2: tags such as 'tag:yaml.org,2002:python"),
        ("---\n? {a: 1}\n: 2\n---\n", "a key is a text here, not a list or a map"),
        (f"---\na: {'[' * 30}{']' * 30}\n---\n", "nested more than 20 levels deep"),
        (f"---\na: {'[' * 20_000}\n---\n", "nested more than 20 levels deep"),
        (f"---\na: {'9' * 5_000}\n---\n", ", line 2: this number cannot be read"),
        (f"---\na: {'x' * FRONT_MATTER_BYTES}\n---\n", "is longer than 64,000 bytes"),
        ("---\na: \x00\n---\n", ", line 2: not valid YAML: the character U+0000 is not allowed (column 4)"),
    ],
)
def test_invalid_front_matter_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split(text)
    assert sentence in str(caught.value)


@given(st.text(st.characters(codec="utf-8"), max_size=60) | st.text("-:[]{}&*!|>?'\"#%@ \nab1.,<", max_size=40))
def test_any_text_gives_data_or_an_error(text: str) -> None:
    try:
        data, _ = split(f"---\n{text}\n---\n")
    except ConfigError as error:
        assert str(error).startswith("its front matter")
    else:
        json.dumps(data, allow_nan=False)


def test_without_libyaml_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"---\na: {text}\nb: [{{c: {text}}}]\n---\n" for text in CORE if "," not in text]
    expected = [split(text) for text in texts]
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert [split(text) for text in texts] == expected
    with pytest.raises(ConfigError, match=r"its front matter, line 2: not valid YAML: .* \(column 8\)"):
        split("---\nname: a: b\n---\n")
