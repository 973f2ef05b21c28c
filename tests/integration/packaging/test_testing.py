"""The pytest plugin: unused replies fail their test, and cassettes are recorded and played; shown by a real pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def outcomes(folder: Path, source: str, *options: str) -> tuple[dict[str, str], str]:
    """Return the outcome of each test of a file, and the output."""
    (folder / "test_it.py").write_text(source)
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "300",
    }
    plugins = ["-p", "wick.testing.plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    asked = ["-rA", "-q", "-o", "asyncio_mode=auto", *plugins, *options]
    command = [sys.executable, "-m", "pytest", *asked, "test_it.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    rows = (line.split(" ")[:2] for line in done.stdout.splitlines() if re.match(r"[A-Z]+ test_it.py::", line))
    return {name.partition("::")[2]: word for word, name in rows}, done.stdout


def test_unused_replies_fail_their_test(tmp_path: Path) -> None:
    became, printed = outcomes(
        tmp_path,
        """
import pytest
from wick import Agent, Scripted

@pytest.fixture
def model():
    return Scripted("from a fixture")

async def test_used():
    assert (await Agent(Scripted("one")).run("go")).text == "one"

async def test_unused():
    await Agent(Scripted("one", "two")).run("go")

async def test_spare():
    await Agent(Scripted("one", "two", spare=True)).run("go")

def test_sync_unused():
    Scripted("one")

def test_sync_used():
    Agent(Scripted("one")).run_sync("go")

def test_fixture_unused(model):
    pass

def test_fixture_used(model):
    assert Agent(model).run_sync("go").text == "from a fixture"

def test_none():
    Scripted()

def test_failed():
    Scripted("one")
    assert 1 == 2
""",
    )
    assert became == {
        "test_used": "PASSED",
        "test_unused": "FAILED",
        "test_spare": "PASSED",
        "test_sync_unused": "FAILED",
        "test_sync_used": "PASSED",
        "test_fixture_unused": "FAILED",
        "test_fixture_used": "PASSED",
        "test_none": "PASSED",
        "test_failed": "FAILED",
    }
    assert "1 of the 2 scripted replies were not used: ['two']" in printed
    assert "assert 1 == 2" in printed  # a failed test reports its failure, and not unused replies


def test_a_scripted_model_in_a_cassette_may_stay_unused(tmp_path: Path) -> None:
    source = """
from wick import Agent, Scripted

def test_it(cassette):
    assert Agent(cassette(Scripted("one", name="acme:one"))).run_sync("go").text == "one"
"""
    for options in (["--wick-record"], [], ["--wick-record"]):
        became, printed = outcomes(tmp_path, source, *options)
        assert became == {"test_it": "PASSED"}, printed


RECORDED = """
import pytest
from wick import Agent, tool

@tool
def look(path: str) -> str:
    \"\"\"Look at a folder.\"\"\"
    return "empty"

@pytest.mark.parametrize("word", ["one", "two/three"])
def test_demo(cassette, tmp_path, word):
    result = Agent(cassette("demo"), tools=[look], system=f"Work in {tmp_path}.").run_sync(f"Say {word}.")
    assert result.outcome == "completed"

class TestGroup:
    async def test_two_models(self, cassette):
        for name in ("first", "second"):
            assert (await Agent(cassette("demo", name=name)).run("Hello.")).text

def test_several(cassette):
    agent = Agent(cassette("demo"))
    for question in ("a", "b"):
        agent.run_sync(question)

def test_same_file_twice(cassette):
    cassette("demo", name="x")
    with pytest.raises(pytest.UsageError, match="give each cassette a name"):
        cassette("demo", name="x")
"""
FILES = [
    "test_it-TestGroup-test_two_models-first.yaml",
    "test_it-TestGroup-test_two_models-second.yaml",
    "test_it-test_demo-one.yaml",
    "test_it-test_demo-two-three.yaml",
    "test_it-test_same_file_twice-x.yaml",
    "test_it-test_several.yaml",
]


def test_cassettes_are_recorded_and_played(tmp_path: Path) -> None:
    became, printed = outcomes(tmp_path, RECORDED)
    assert {*became.values()} == {"FAILED"} and not (tmp_path / "cassettes").exists()
    assert "record it with: pytest --wick-record 'test_it.py::TestGroup::test_two_models'" in printed

    became, printed = outcomes(tmp_path, RECORDED, "--wick-record")
    assert {*became.values()} == {"PASSED"}, printed
    assert sorted(path.name for path in (tmp_path / "cassettes").iterdir()) == FILES
    assert "Work in {tmp_path}." in (tmp_path / "cassettes" / FILES[2]).read_text()

    # Another run has another temporary folder. One request changes, and one is not sent.
    changed = RECORDED.replace("Hello.", "Hello!").replace('("a", "b")', '("a",)')
    became, printed = outcomes(tmp_path, changed)
    assert [test for test, word in became.items() if word == "PASSED"] == [
        "test_demo[one]",
        "test_demo[two/three]",
        "test_same_file_twice",
    ]
    assert "-- user: Hello." in printed and "+- user: Hello!" in printed
    assert "1 of the 2 replies in" in printed
    assert "FAILED test_it.py::TestGroup::test_two_models - Failed: request 1 has no recorded reply in" in printed
    assert "FAILED test_it.py::test_several - Failed: 1 of the 2 replies in" in printed
    assert "During handling of the above exception" not in printed
    assert "Traceback" not in printed and "loop.py" not in printed and "def test_" not in printed

    assert {*outcomes(tmp_path, changed, "--wick-record")[0].values()} == {"PASSED"}
    text = (tmp_path / "cassettes" / FILES[5]).read_text()
    assert "user: a" in text and "user: b" not in text


HANDLES_ERRORS = """
from wick import Agent

def ask(model):
    try:
        return Agent(model).run_sync("Hello.").text
    except Exception:
        return ""

def test_text(cassette):
    assert ask(cassette("demo")) == "never"
"""


def test_a_failed_assertion_names_the_missing_reply(tmp_path: Path) -> None:
    assert outcomes(tmp_path, HANDLES_ERRORS, "--wick-record")[0] == {
        "test_text": "FAILED"
    }  # an assertion, not a cassette
    became, printed = outcomes(tmp_path, HANDLES_ERRORS.replace("Hello.", "Good morning."))
    assert became == {"test_text": "FAILED"}
    assert "assert '' == 'never'" in printed and "+- user: Good morning." in printed


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"wick": "wick.testing.plugin"}


def test_outside_of_pytest_replies_are_not_checked() -> None:
    code = """
import sys, wick
from wick.models import scripted
wick.Scripted("one")
print(scripted.watched, "wick.testing" in sys.modules, "pytest" in sys.modules)
from wick.testing import Cassette
print("pytest" in sys.modules, "yaml" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout == "None False False\nFalse False\n"


def test_failed_assertions_of_cases_show_the_compared_values(tmp_path: Path) -> None:
    """pytest rewrites the assertions of every module with cases."""
    modules = sorted(path.stem for path in (ROOT / "src/wick/testing").glob("*_cases.py"))
    source = f"""
import pytest
from importlib import import_module

@pytest.mark.parametrize("name", {modules})
def test_rewritten(name):
    assert "@pytest_ar" in vars(import_module(f"wick.testing.{{name}}"))
"""
    became, printed = outcomes(tmp_path, source)
    assert became == {f"test_rewritten[{name}]": "PASSED" for name in modules}, printed


FAILING = """
import os
from pathlib import Path

import pytest
import pytest
from wick import Agent, FunctionModel, Scripted
from wick.errors import ConfigError, ModelError

def reply(request):
    kind = os.environ.get("FAILS")
    if kind == "model":
        raise ModelError("the key is wrong", status=401)
    if kind == "config":
        raise ConfigError("set ACME_API_KEY")
    return "Hello."

def test_text(cassette):
    assert Agent(cassette(FunctionModel(reply))).run_sync("Hi.").text == "Hello."

def test_expected(cassette):
    model = FunctionModel(lambda request: (_ for _ in ()).throw(ModelError("overloaded", status=529)))
    with pytest.raises(ModelError, match="overloaded"):
        Agent(cassette(model)).run_sync("Hi.")
"""


def test_a_failed_recording_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cassettes" / "test_it-test_text.yaml"
    for kind, problem in (("model", "ModelError: the key is wrong"), ("config", "ConfigError: set ACME_API_KEY")):
        monkeypatch.setenv("FAILS", kind)
        became, printed = outcomes(tmp_path, FAILING, "--wick-record")
        assert became == {"test_text": "FAILED", "test_expected": "PASSED"}
        assert problem in printed and f"the model failed while {path} was recorded" in printed
        assert "Traceback" not in printed and "src/wick" not in printed  # one sentence
        assert not path.exists()
    monkeypatch.delenv("FAILS")
    assert outcomes(tmp_path, FAILING, "--wick-record")[0] == {"test_text": "PASSED", "test_expected": "PASSED"}
    assert outcomes(tmp_path, FAILING)[0] == {"test_text": "PASSED", "test_expected": "PASSED"}  # an error is a reply


OUTCOMES = """
import pytest
from wick import Agent, FunctionModel
from wick.errors import ModelError

def overloaded(request):
    raise ModelError("overloaded", status=529)

@pytest.mark.parametrize("outcome", [pytest.fail, pytest.skip, pytest.xfail], ids=["fail", "skip", "xfail"])
def test_text(cassette, outcome):
    try:
        Agent(cassette(FunctionModel(overloaded))).run_sync("Hi.")
    except ModelError:
        outcome("later")
"""


def test_an_outcome_of_pytest_stores_no_failure(tmp_path: Path) -> None:
    became, printed = outcomes(tmp_path, OUTCOMES, "--wick-record")
    assert became["test_text[fail]"] == "FAILED" and became["test_text[xfail]"] == "XFAIL"
    assert printed.count("later") > 1 and "ModelError: overloaded" in printed  # the note at the failure
    assert not [*(tmp_path / "cassettes").glob("*.yaml")]


def test_a_model_that_cannot_be_created_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    source = "from wick import Agent\ndef test_it(cassette):\n    Agent(cassette('openai:gpt-5')).run_sync('Hi.')\n"
    became, printed = outcomes(tmp_path, source, "--wick-record")
    assert became == {"test_it": "FAILED"} and "OpenAI needs a key: set OPENAI_API_KEY" in printed
    assert "when it works, record with: pytest --wick-record" in printed and "src/wick" not in printed
    assert not (tmp_path / "cassettes").exists()


def test_a_recorded_error_names_its_file_and_the_command(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "test_it-test_text.yaml"
    assert outcomes(tmp_path, FAILING, "--wick-record")[0]["test_text"] == "PASSED"
    text = path.read_text()
    at = text.index("  - text:")
    path.write_text(text[:at] + "  - error: ModelError\n    message: the key is wrong\n    status: 401\n")
    became, printed = outcomes(tmp_path, FAILING)
    assert became["test_text"] == "FAILED" and "Traceback" not in printed
    assert f"ModelError: the key is wrong\nthis error is reply 1 of {path}, as the model failed" in printed
    assert "record again with: pytest --wick-record-all 'test_it.py::test_text'" in printed
    assert outcomes(tmp_path, FAILING, "--wick-record-all")[0]["test_text"] == "PASSED"


DESCRIBED = '''
from typing import Annotated
from pydantic import Field
from wick import Agent, FunctionModel, tool

@tool
def lookup(order: Annotated[int, Field(description="NUMBER", ge=LEAST)]) -> str:
    """DESCRIPTION"""
    return "sent"

def test_tool(cassette):
    Agent(cassette(FunctionModel(lambda request: "Hello.")), tools=[lookup]).run_sync("Hi.")
'''


def test_a_changed_tool_is_shown(tmp_path: Path) -> None:
    def fill_in(description: str, number: str, least: int) -> str:
        text = DESCRIBED.replace("DESCRIPTION", description).replace("NUMBER", number)
        return text.replace("LEAST", str(least))

    assert outcomes(tmp_path, fill_in("Look up.", "The order.", 1), "--wick-record")[0] == {"test_tool": "PASSED"}
    for source, change in (
        (fill_in("Find it.", "The order.", 1), r"-\s+\(order: integer\) \w{8} Look up.\n\+\s+.* \w{8} Find it."),
        (fill_in("Look up.", "Its number.", 1), r"-\s+- order: The order\.[^+]*\+[^+]*\+\s+- order: Its number\."),
        (fill_in("Look up.", "The order.", 2), r'-\s+- order: .* {"minimum": 1}[^+]*\+[^+]*\+\s+- .* {"minimum": 2}'),
    ):
        printed = outcomes(tmp_path, source)[1]
        lines = "\n".join(line for line in printed.splitlines() if "order:" in line)
        assert re.search(change, lines), printed
