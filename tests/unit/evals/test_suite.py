"""Suite files: their schema, and the errors of invalid files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_shop import LARGE, SMALL
from wick.errors import ConfigError
from wick.evals.suite import load_suite

YAML = """\
variants:
  base: {agent: "shop:agent"}
cases:
  - id: small
    input: Refund order 7.
"""


def write(folder: Path, text: str, name: str = "shop.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_yaml_and_a_jsonl_file_have_the_same_suite(tmp_path: Path) -> None:
    data = {"variants": {"base": "shop:agent"}, "tools": "real"}
    lines = [json.dumps(data), json.dumps(SMALL), "", json.dumps(LARGE)]
    from_lines = load_suite(write(tmp_path, "\n".join(lines), "shop.jsonl"))
    from_yaml = load_suite(write(tmp_path, json.dumps({**data, "cases": [SMALL, LARGE]})))
    assert from_lines == from_yaml and from_yaml.name == "shop"
    assert from_yaml.cases[0].replies[2].text == "Done: 20 dollars."
    assert from_yaml.cases[0].expect.text is not None and from_yaml.cases[0].expect.text.contains == ["Done"]
    assert [from_yaml.tools_of(case) for case in from_yaml.cases] == ["real", "real"]


def test_a_jsonl_file_needs_no_line_of_settings(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, json.dumps(SMALL), "shop.jsonl"))
    assert not suite.variants and [case.id for case in suite.cases] == ["small"]


def test_single_names_and_numbers_need_no_brackets_and_quotes(tmp_path: Path) -> None:
    expected = "    expect: {calls: lookup, order: lookup, blocked: refund, text: 35, "
    expected += "arguments: {tool: lookup, args: {order: 7}}, outputs: {tool: lookup, contains: x}}\n"
    expect = load_suite(write(tmp_path, YAML + expected)).cases[0].expect
    assert (expect.calls, expect.order, expect.blocked) == (["lookup"], ["lookup"], ["refund"])
    assert [expect.arguments[0].tool, expect.outputs[0].tool] == ["lookup", "lookup"]
    assert expect.text is not None and expect.text.contains == ["35"]


MISTAKES = {
    "line 5: case 'small': there is no key 'inputs'; did you mean 'input'?": YAML.replace("input:", "inputs:"),
    "line 2: there is no key 'variants.base.modl'; did you mean 'model'?": YAML.replace(
        '{agent: "shop:agent"}', "{agent: a, modl: b}"
    ),
    "line 6: case 'small': there is no key 'expect.block'; did you mean 'blocked'?": YAML
    + "    expect: {block: refund}\n",
    "line 4: case 'small': there is no input": YAML.replace("    input: Refund order 7.\n", ""),
    "line 6: case 'small': the id is used twice; case 1 has it already": YAML + "  - {id: small, input: Hi.}\n",
    "line 4: case 'a b': an id has letters": YAML.replace("id: small", "id: a b"),
    "line 6: case 'small': expect.text.matches: '(' is not a regular expression": YAML
    + '    expect: {text: {matches: "("}}\n',
    "line 6: case 'small': expect.max_steps: Input should be greater than or equal to 1": YAML
    + "    expect: {max_steps: 0}\n",
    "line 6: case 'small': expect.arguments: '(' is not a regular expression": YAML
    + '    expect: {arguments: [{tool: refund, args: {note: "("}, match: regex}]}\n',
    "line 1: there are no cases": "variants: {base: a}\n",
    "line 1: a suite is a mapping": "- 1\n",
    "line 6: not valid YAML": YAML + "  ]\n",
    "line 4: case 'small': messages: message 0 cannot be read at role": YAML
    + "    messages: [{role: robot, content: Hi.}]\n",
    "line 6: case 2: the key 'id' is missing": YAML + "  - input: Hi.\n",
}


@pytest.mark.parametrize("sentence", MISTAKES)
def test_a_mistake_is_a_sentence_with_its_line(tmp_path: Path, sentence: str) -> None:
    path = write(tmp_path, MISTAKES[sentence])
    with pytest.raises(ConfigError) as raised:
        load_suite(path)
    assert str(raised.value).startswith(f"{path}, {sentence}")


def test_a_mistake_in_a_jsonl_file_has_its_line(tmp_path: Path) -> None:
    for text, sentence in {
        f"{json.dumps(SMALL)}\n{{": "line 2: this line is not JSON",
        f"{json.dumps(SMALL)}\n{json.dumps({**LARGE, 'expct': {}})}": "line 2: case 'large': there is no key 'expct'",
        f'{{"cases": null}}\n{json.dumps(SMALL)}': "line 1: `cases` must be a list; leave it out",
        f'{{"tool": "real"}}\n{json.dumps(SMALL)}': "line 1: there is no key 'tool'; did you mean 'tools'?",
    }.items():
        path = write(tmp_path, text, "shop.jsonl")
        with pytest.raises(ConfigError) as raised:
            load_suite(path)
        assert str(raised.value).startswith(f"{path}, {sentence}")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        load_suite(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="must end with .yaml or .jsonl"):
        load_suite(tmp_path / "suite.txt")
    (tmp_path / "latin.yaml").write_bytes(b"name: a\nname: \xe4\n")
    with pytest.raises(ConfigError, match="line 2: this is not UTF-8"):
        load_suite(tmp_path / "latin.yaml")
