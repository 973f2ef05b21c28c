"""Plugins: an installed package brings models, tools, hooks, a backend, a store and a command, each by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from wick import Agent, Scripted, ToolCall
from wick._internal.plugins import KINDS, find_plugin, find_plugins
from wick.backends.state import State
from wick.capabilities.sessions import Sessions
from wick.cli.checks.doctor import check_plugins
from wick.cli.root_command import wick as root_command
from wick.config import load
from wick.errors import ConfigError
from wick.evals.importer import open_store as open_import_store
from wick.models import resolve
from wick.models.openai import OpenAI
from wick.server.agents.workspaces import _create_from_plugin
from wick.server.service import open_store
from wick.server.settings import Settings
from wick.stores.in_memory import InMemory
from wick.stores.registry import create_store

POINTS = """
    [wick.models]
    acme = acme_of_test:AcmeModel
    openai = acme_of_test:AcmeModel
    [wick.tools]
    weigh = acme_of_test:weigh
    calculate = acme_of_test:weigh
    [wick.hooks]
    no_gold = acme_of_test:no_gold
    broken_hook = acme_of_test:missing
    exits = acme_exits_of_test:hook
    [wick.backends]
    acme = acme_of_test:AcmeBackend
    shared = acme_of_test:SharedBackend
    nothing = acme_of_test:make_nothing
    state = acme_of_test:make_nothing
    [wick.stores]
    acme = acme_of_test:AcmeStore
    odd = acme_of_test:weigh
    [wick.commands]
    weigh-gold = acme_of_test:command
    odd-command = acme_of_test:weigh
    run = acme_of_test:command
"""
CODE = """
    import click
    from wick import Block, ToolUse, guard
    from wick.backends.state import State
    from wick.stores.in_memory import InMemory

    class AcmeModel:
        def __init__(self, model, *, api_key="", shout: bool = False):
            self.name, self.shout = "acme:" + model, shout
        async def stream(self, request):
            yield

    def weigh(what: str) -> str:
        "Weigh a thing."
        return what + " weighs 1 kg"

    @guard(ToolUse, match="weigh")
    def no_gold(use: ToolUse) -> Block | None:
        return Block("gold is not weighed here") if use.args["what"] == "gold" else None

    class AcmeBackend(State):
        def __init__(self, color: str = "red", workspace: str = "") -> None:
            super().__init__({})
            self.color, self.workspace = color, workspace

    class SharedBackend(State):
        def __init__(self) -> None:
            super().__init__({})

    def make_nothing() -> str:
        return "nothing"

    class AcmeStore(InMemory):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address

    @click.command()
    def command():
        "Weigh gold."
        click.echo("1 kg of gold")
"""


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as pip would have installed it, and another one with broken metadata."""
    site = tmp_path / "site"
    install(site, "acme", POINTS)
    (site / "acme_of_test.py").write_text(dedent(CODE))
    (site / "acme_exits_of_test.py").write_text("raise SystemExit(3)")
    (site / "damaged-1.0.dist-info").mkdir()
    (site / "damaged-1.0.dist-info" / "entry_points.txt").write_text("[wick.hooks]\n= = =\nno equals sign\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "acme_of_test", raising=False)
    return site


def install(site: Path, name: str, points: str) -> None:
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(dedent(points))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "agents.yaml").write_text(text)
        return tmp_path / "agents.yaml"

    return write


def test_each_group_is_found_without_an_import() -> None:
    found = {group: [plugin.name for plugin in find_plugins(group)] for group in KINDS}
    assert found["wick.models"] == ["acme", "openai"] and "acme" in found["wick.stores"]
    assert all(found.values()) and "acme_of_test" not in sys.modules
    plugin = find_plugin("wick.hooks", "no_gold")
    assert plugin is not None and (plugin.kind, plugin.distribution) == ("hook", "acme 1.0")
    assert find_plugin("wick.hooks", "unknown") is None


def test_a_model_provider() -> None:
    assert resolve("acme:large").name == "acme:large"


def test_an_unknown_key_of_a_model_names_the_provider_and_the_closest_key() -> None:
    with pytest.raises(ConfigError, match=r"no key 'api_kee' for a model of acme; did you mean 'api_key'\?"):
        resolve({"provider": "acme", "model": "large", "api_kee": "k"})


def test_options_of_a_model_have_the_types_of_its_parameters(write: Callable[[str], Path]) -> None:
    assert resolve({"provider": "acme", "model": "large", "shout": "yes"}).shout is True  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="the model of acme: shout: input should be a valid boolean"):
        resolve({"provider": "acme", "model": "large", "shout": "maybe"})
    with pytest.raises(ConfigError, match="line 1: model: the model of acme: shout: input should be a valid boolean"):
        load(write("model: {provider: acme, model: large, shout: maybe}\n"))


async def test_names_of_wick_cannot_be_taken_over(write: Callable[[str], Path]) -> None:
    assert isinstance(resolve({"provider": "openai", "model": "m", "api_key": "k"}), OpenAI)
    config = load(write("model: demo\ntools: [calculate]\nbackend: state\n"))
    model = Scripted(ToolCall("1", "calculate", {"expr": "2+3"}), "Done.")
    result = await config.agents["default"].agent(model=model).run("Calculate.")
    assert result.messages.tool_messages()[0].text == "5"
    config.agent()
    assert any(type(part) is State for part in config.agents["default"].resources)
    assert "Weigh gold" not in CliRunner().invoke(root_command, ["run", "--help"]).output


async def test_tools_and_hooks_by_name(write: Callable[[str], Path]) -> None:
    part = load(write("model: demo\ntools: [weigh]\nhooks: [no_gold]\n")).agents["default"]
    model = Scripted(ToolCall("1", "weigh", {"what": "gold"}), ToolCall("2", "weigh", {"what": "tea"}), "Done.")
    result = await part.agent(model=model).run("Weigh.")
    assert [message.text for message in result.messages.tool_messages()] == [
        "gold is not weighed here",
        "tea weighs 1 kg",
    ]


def test_a_tool_is_imported_in_python() -> None:
    with pytest.raises(ConfigError, match="'weigh' is a name for agents.yaml; .* from acme_of_test import weigh"):
        Agent(Scripted(), tools=["weigh"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="a tool is a function, not 'wiegh'"):
        Agent(Scripted(), tools=["wiegh"])  # type: ignore[list-item]


async def test_a_hook_that_is_not_named_is_not_used(write: Callable[[str], Path]) -> None:
    part = load(write("model: demo\ntools: [weigh]\n")).agents["default"]
    model = Scripted(ToolCall("1", "weigh", {"what": "gold"}), "Done.")
    result = await part.agent(model=model).run("Weigh.")
    assert result.messages.tool_messages()[0].text == "gold weighs 1 kg"


@pytest.mark.parametrize(
    "hook, problem",
    [
        ("broken_hook", r"the hook 'broken_hook' \(acme_of_test:missing of the package acme 1.0\) cannot be loaded"),
        ("exits", r"the hook 'exits' \(acme_exits_of_test:hook of the package acme 1.0\) cannot be loaded: SystemExit"),
        ("unknown", "there is no hook 'unknown'"),
    ],
)
def test_an_agent_with_a_hook_that_cannot_be_loaded_is_refused(
    write: Callable[[str], Path], hook: str, problem: str
) -> None:
    config = load(write(f"agents:\n  one:\n    model: demo\n    hooks: [{hook}]\n  other:\n    model: demo\n"))
    with pytest.raises(ConfigError, match=problem):
        config.agent("one")
    assert isinstance(config.agent("other"), Agent)


def test_a_name_of_two_packages_is_refused(site: Path) -> None:
    install(site, "bcme", "[wick.hooks]\nno_gold = acme_of_test:no_gold\n")
    with pytest.raises(ConfigError, match="the hook 'no_gold' is in the packages acme 1.0 and bcme 1.0; uninstall one"):
        find_plugin("wick.hooks", "no_gold")


def test_the_name_of_a_hook_is_answered_with_its_import() -> None:
    with pytest.raises(ConfigError, match="in Python: from acme_of_test import no_gold"):
        Agent("demo", hooks=["no_gold"])  # type: ignore[list-item]


# -- backends and stores --------------------------------------------------------------------------------------------


def test_a_backend_by_name(write: Callable[[str], Path]) -> None:
    config = load(write("model: demo\nbackend: {type: acme, color: blue}\n"))
    config.agent()
    (backend,) = [part for part in config.agents["default"].resources if isinstance(part, State)]
    assert (backend.color, backend.workspace) == ("blue", "")  # type: ignore[attr-defined]
    other = load(write("model: demo\nbackend: acme\n"))
    other.agent()
    assert any(getattr(part, "color", "") == "red" for part in other.agents["default"].resources)


@pytest.mark.parametrize(
    "text, problem",
    [
        ("backend: {type: acme, size: 3}", "line 2: .*size"),
        ("backend: acne", "line 2: .*backend: there is no backend 'acne'; did you mean 'acme'?"),
        ("backend: nothing", "line 2: .*nothing is not a backend: it does not have all methods of a Backend"),
    ],
)
def test_a_wrong_backend_is_refused_with_its_line(write: Callable[[str], Path], text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(write(f"model: demo\n{text}\n")).agent()


def test_a_server_gives_each_user_a_workspace_of_a_backend() -> None:
    backend = _create_from_plugin("acme", {"color": "blue", "workspace": "wick-1"})
    assert backend.workspace == "wick-1"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="does not separate users; its factory needs a parameter `workspace`"):
        _create_from_plugin("shared", {"workspace": "wick-1"})


def test_a_store_by_scheme(write: Callable[[str], Path], tmp_path: Path) -> None:
    assert create_store("acme://host/db").address == "acme://host/db"  # type: ignore[attr-defined]
    assert Sessions("acme://host/db").store.address == "acme://host/db"  # type: ignore[attr-defined]
    config = load(write("model: demo\nsessions: {store: 'acme://host/db'}\n"))
    config.agent()
    assert any(isinstance(part, InMemory) for part in config.agents["default"].resources)
    settings = Settings(data=tmp_path, store="acme://host/db").check()
    assert open_store(settings).address == "acme://host/db"  # type: ignore[attr-defined]


async def test_an_import_of_cases_opens_a_store_by_scheme() -> None:
    async with open_import_store("acme:///host/db") as store:
        assert store.address == "acme:///host/db"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="there is no store for acne://; the schemes are"):
        async with open_import_store("acne:///host/db"):
            pass


@pytest.mark.parametrize("address", ["acme:/host/db", "postgresql:/host/db", "acme:"])
def test_an_address_without_two_slashes_is_refused(write: Callable[[str], Path], address: str) -> None:
    scheme = address.partition(":")[0]
    with pytest.raises(ConfigError, match=f"the address {scheme}:… of a store has no // .*; write {scheme}://…"):
        Sessions(address)
    with pytest.raises(ConfigError, match="line 2: sessions: the address .* has no //"):
        load(write(f"model: demo\nsessions: {{store: '{address}'}}\n")).agent()


def test_a_wrong_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no store for acne://; the schemes are postgres, postgresql, acme"):
        create_store("acne://host/db")
    with pytest.raises(ConfigError, match="store is `sqlite`, .* or of an installed plugin, not 'acne://…'"):
        Settings(data=tmp_path, store="acne://host/db").check()
    with pytest.raises(ConfigError, match="the store 'odd' .* is not a store: str does not have all methods"):
        create_store("odd://host/db")


# -- commands and the doctor ----------------------------------------------------------------------------------------


def test_a_command() -> None:
    assert CliRunner().invoke(root_command, ["weigh-gold"]).output == "1 kg of gold\n"
    listed = CliRunner().invoke(root_command, ["--help"]).output
    assert "Commands of installed packages" in listed and "From acme 1.0." in listed
    refused = CliRunner().invoke(root_command, ["odd-command"])
    assert refused.exit_code == 2 and "of the package acme 1.0) is not a command of click" in refused.output
    assert CliRunner().invoke(root_command, ["unknown"]).exit_code == 2


def test_the_doctor_lists_plugins() -> None:
    found = {check.name: check for check in check_plugins()}
    assert found["hook no_gold"].state == "ok" and found["hook no_gold"].says == "in acme 1.0"
    assert found["hook broken_hook"].state == "missing" and "cannot be loaded" in found["hook broken_hook"].says
    assert "is not used: wick has a model provider of this name" in found["model provider openai"].says
    assert "is not used" in found["command run"].says and "is not used" in found["backend state"].says


def test_a_package_with_broken_metadata_is_reported_once(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    (site / "damaged-1.0.dist-info" / "entry_points.txt").write_bytes(b"[wick.hooks]\n\xff = a:b\n")
    for _ in range(2):
        assert "damaged" not in {plugin.distribution for plugin in find_plugins("wick.hooks")}
    (warning,) = [text for text in caplog.messages if "damaged-1.0" in text]
    assert "its metadata cannot be read (UnicodeDecodeError" in warning and warning.endswith("; reinstall it")
