"""Options of an agent as YAML load back to the same options."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from wick._internal.safe_yaml import load_yaml
from wick.config.yaml_text import VariableText, write_agent

UNLIKE = ["1e5", "0o17", "yes", "${HOME}", "$${A}", "a: b", "- x", "a\nb\n", " a\n\nb", "\t", "010", "~", "#x", "1:30"]
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(UNLIKE)
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
OPTIONS = st.recursive(
    PLAIN | TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(TEXT, OPTIONS, min_size=1, max_size=3))
@example(dict.fromkeys(UNLIKE, UNLIKE))
def test_options_load_back(options: dict[str, Any]) -> None:
    assert load_yaml(write_agent("a", options), "agents.yaml", {})[0] == {"agents": {"a": options}}


def test_a_variable_is_expanded_when_the_text_is_loaded() -> None:
    text = write_agent("a", {"key": VariableText("${TOKEN}"), "text": "${TOKEN}"})
    assert load_yaml(text, "agents.yaml", {"TOKEN": "x"})[0]["agents"]["a"] == {"key": "x", "text": "${TOKEN}"}
