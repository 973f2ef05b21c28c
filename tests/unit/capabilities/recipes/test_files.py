"""Recipes: Markdown files with the input of a run. They are user files and only data."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wick.capabilities.recipes.files import (
    EVENTS,
    Recipe,
    RecipeHook,
    find_recipe,
    list_recipe_files,
    parse_recipe,
    read_recipe,
)
from wick.constants import RECIPE_BYTES
from wick.errors import ConfigError

REVIEW = """\
---
description: Reviews a branch
arguments: {branch: main, depth: 2}
hooks:
  turn_end: {handler: swap_context, once: true}
  agent_stop: check_links
---
Review {{branch}} to a depth of {{ depth }}.
"""


def test_a_recipe_is_its_front_matter_and_its_text() -> None:
    recipe = parse_recipe(REVIEW, "review")
    assert (recipe.name, recipe.description) == ("review", "Reviews a branch")
    assert recipe.arguments == {"branch": "main", "depth": "2"}
    assert recipe.hooks == {"turn_end": RecipeHook("swap_context", True), "agent_stop": RecipeHook("check_links")}


def test_front_matter_is_not_needed() -> None:
    assert parse_recipe("Tidy up.\n", "tidy") == Recipe("tidy", "Tidy up.")


@pytest.mark.parametrize(
    ("input", "text"),
    [
        ("", "Review main to a depth of 2."),
        ("branch=topic", "Review topic to a depth of 2."),
        ("branch='my topic' depth=3", "Review my topic to a depth of 3."),
        ("Be kind.", "Review main to a depth of 2.\n\nBe kind."),
        ("branch=topic Be kind.", "Review topic to a depth of 2.\n\nBe kind."),
        ("other=1 branch=topic", "Review main to a depth of 2.\n\nother=1 branch=topic"),
        ("branch={{depth}}", "Review {{depth}} to a depth of 2."),
    ],
)
def test_the_input_replaces_its_placeholder(input: str, text: str) -> None:
    assert parse_recipe(REVIEW, "review").render(input) == text


def test_the_input_has_a_place_of_its_own() -> None:
    assert parse_recipe("Say {{input}}, twice: {{input}}.", "say").render("hi") == "Say hi, twice: hi."
    assert parse_recipe("Say {{input}}.", "say").render("{{input}}") == "Say {{input}}."


def test_an_unknown_placeholder_is_unchanged() -> None:
    assert parse_recipe("Use {{ value }} in the template.", "t").render("") == "Use {{ value }} in the template."


@given(st.text())
def test_an_input_is_data(input: str) -> None:
    """Nothing in the input is expanded, and nothing of it is lost."""
    assert parse_recipe("<{{input}}> {{branch}}", "t").render(input) == f"<{input.strip()}> {{{{branch}}}}"


WRONG = {
    "---\nhooks: {turn_end: {handler: swap_context}}\n---\n": "it has no text",
    "---\nhooks: [turn_end]\n---\nx": "its hooks are a map of events",
    "---\nhooks: {turn_ends: {handler: h}}\n---\nx": "did you mean turn_end?",
    "---\nhooks: {zzz: {handler: h}}\n---\nx": "the events are before_tool_call, after_tool_call",
    "---\nhooks: {turn_end: {}}\n---\nx": "its hook turn_end needs the name of a handler",
    "---\nhooks: {turn_end: {handler: h, twice: true}}\n---\nx": "has the key 'twice'; it takes handler and once",
    "---\nhooks: {turn_end: {handler: h, once: 1}}\n---\nx": "is true or false, not 1",
    "---\narguments: 1\n---\nx": "its arguments are a map",
    "---\narguments: {input: x}\n---\nx": "cannot be named 'input'",
    "---\narguments: {a: [1]}\n---\nx": "the default of the argument 'a' is a text",
    "---\ndescription: [a]\n---\nx": "its description is a text",
    "---\ndescription: a": "does not end with a line of three dashes",
    "": "it has no text",
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_recipes_are_reported(text: str) -> None:
    with pytest.raises(ConfigError, match=WRONG[text].replace("?", r"\?")):
        parse_recipe(text, "t")


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_can_have_a_handler(event: str) -> None:
    assert parse_recipe(f"---\nhooks: {{{event}: {{handler: h}}}}\n---\nx", "t").hooks == {event: RecipeHook("h")}


def test_arguments_may_be_names_alone_or_described() -> None:
    text = "---\narguments: {}\n---\n{{{{a}}}}|{{{{b}}}}"
    assert parse_recipe(text.format("[a, b]"), "t").render("a=1") == "1|"
    assert parse_recipe(text.format("{a: {description: x, default: 5}, b: true}"), "t").render("") == "5|true"


# -- files ----------------------------------------------------------------------------------------------------------


def test_the_first_folder_with_the_recipe_wins(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    for folder in (near, far):
        folder.mkdir()
        (folder / "both.md").write_text(f"{folder.name} both")
    (far / "only.md").write_text("only")
    assert find_recipe("both", [near, far]).body == "near both"
    assert find_recipe("only", [near, far]).body == "only"
    assert [path.stem for path in list_recipe_files(far)] == ["both", "only"] and list_recipe_files(
        tmp_path / "gone"
    ) == []


def test_an_unknown_recipe_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "review.md").write_text("x")
    with pytest.raises(ConfigError, match="there is no recipe 'reviw' in .*; did you mean 'review'\\?"):
        find_recipe("reviw", [tmp_path])
    with pytest.raises(ConfigError, match="there are review"):
        find_recipe("zzzz", [tmp_path])


@pytest.mark.parametrize("name", ["../secret", "a/b", ".hidden", "", "x" * 200])
def test_a_name_is_not_a_path(name: str, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("x")
    with pytest.raises(ConfigError, match="a recipe's name has letters"):
        find_recipe(name, [tmp_path / "recipes"])


def test_a_link_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("my key")
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "nice.md").symlink_to(tmp_path / "key")
    with pytest.raises(ConfigError, match="leads out of its folder"):
        find_recipe("nice", [folder])


def test_a_file_that_is_too_long_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_bytes(b"x" * (RECIPE_BYTES + 1))
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is longer than 200,000 bytes"):
        read_recipe(tmp_path / "long.md")
    with pytest.raises(ConfigError, match="the recipe in .*bytes.md cannot be read"):
        read_recipe(tmp_path / "bytes.md")


def test_a_folder_named_like_a_recipe_is_not_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "tidy.md").mkdir()
    assert list_recipe_files(tmp_path) == []
    with pytest.raises(ConfigError, match="there is no recipe 'tidy' in .*; there are none"):
        find_recipe("tidy", [tmp_path])
