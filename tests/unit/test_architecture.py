"""The architecture of wick: layers, effects of `import wick`, and banned words."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import wick

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Imports run downward only. Names that share a line do not know each other.
# `wick` itself, which only re-exports public names, is above them all, and the launcher of the command above it.
LAYERS: list[tuple[str, ...]] = [
    ("__main__",),  # starts the launcher
    ("cli",),
    ("server", "client"),
    ("api",),
    ("evals",),
    ("config",),
    ("replay", "testing"),
    ("agent",),
    ("capabilities",),
    ("hook_programs",),
    ("capability",),
    ("loop",),
    ("onion", "run_events"),
    ("run_log",),
    ("resume",),
    ("hooks", "approvals"),
    ("hook_checks",),
    ("operations",),
    ("run_state",),
    ("why", "results"),
    ("decisions", "events"),
    ("models", "backends", "stores", "permissions", "prices"),
    ("wickd",),
    ("protocols",),
    ("threads",),
    ("tools",),
    ("messages",),
    ("_internal", "workspace", "program", "skills"),  # `skills` has programs that run elsewhere
    ("constants",),
    ("errors",),
]
DEPTH = {"wick_launcher": -2, "wick": -1} | {name: depth for depth, names in enumerate(LAYERS) for name in names}

# The heart uses protocols of models and reply assembly, never a particular model.
KNOWS_MODELS = {"wick", "agent", "config", "evals", "testing", "models", "cli"}

# Modules of the heart that import types from above them, in place of `Any`. `wick.testing` imports its cases late.
FOR_TYPES = {
    "wick._internal.run_context",
    "wick.decisions",
    "wick.hooks",
    "wick.operations",
    "wick.results",
    "wick.run_state",
    "wick.testing",
}

# Packages that import a name when it is first used, and for types at the top.
LAZY_PACKAGES = {"wick.backends", "wick.capabilities", "wick.models", "wick.stores"}

# Modules with methods that answer a mistake, and that type checkers must not see: they report it themselves.
HIDDEN_METHODS = {
    *("wick", "wick.agent", "wick.decisions", "wick.events", "wick.hooks", "wick.messages", "wick.operations"),
    *("wick.protocols", "wick.results", "wick.capabilities.sessions", "wick.capabilities._child_agents.definitions"),
    *LAZY_PACKAGES,
}

# Modules that write the state of an operation; see `wick.why.DispatchState`.
DISPATCHER = {
    *("wick.approvals", "wick.loop", "wick.onion", "wick.operations", "wick.results"),
    *("wick.run_events", "wick.run_log"),
}

# Packages whose modules are independent of each other.
INDEPENDENT = {"capabilities"}

# Imports allowed inside a function: lazy core packages, and extras.
LAZY = {
    "wick_launcher": {"wick"},  # all of it, once sys.path is correct
    "wick.agent": {"wick"},  # plugins, which only a mistake needs
    "wick.cli": {"wick"},  # the commands, which need the extra
    "wick.cli.checks.doctor": {"psycopg", "wick"},  # optional packages are probed by import
    "wick.cli.completion": {"wick"},  # only completion
    "wick.cli.commands.mcp": {"wick"},  # needs the extra `mcp`
    "wick.cli.terminal.output": {"rich"},
    "wick.cli.commands.eval": {"rich"},  # for a progress bar at a terminal
    "wick.cli.host.open": {"wick"},  # agents of this process, or a server's
    "wick.cli.commands.run": {"wick"},  # asks at a terminal
    "wick.cli.commands.skills": {"wick"},
    "wick.cli.commands.serve": {"wick"},  # the server, which needs another
    "wick.server.server": {"uvloop"},
    "wick.stores.s3": {"aiohttp", "yarl"},
    "wick.server.agents.builder": {"aiohttp"},  # before a run needs it: to load it takes a while
    "wick.server.agents.workspaces": {"wick"},  # containers, where there are any
    "wick.server.routes.slides": {"wick"},  # creates them
    "wick.server.service": {"wick"},  # stored in Postgres
    "wick.server.live.selection": {"wick"},  # the live plane of the settings
    "wick.server.auth.tokens": {"wick"},  # other authenticators, if configured
    "wick.capabilities.code_mode.interpreter": {"pydantic_monty"},
    "wick.capabilities.mcp.transports": {"anyio", "httpx2", "mcp", "mcp_types"},
    "wick.models": {"wick"},  # a model's client, when its name is resolved
    "wick.models.registry": {"wick"},
    "wick.models._http": {"email", "wick"},  # for a date, where a server names one; aiohttp, when a request is sent
    "wick.models._network": {"urllib"},  # probes proxies
    "wick.models.local": {"wick", "xllamacpp"},
    "wick.models.access_tokens": {"jwt"},  # needs the extra `vertex`
    "wick.prices": {"genai_prices"},
    "wick.capabilities.sessions": {"wick"},  # the store of a folder
    "wick.capabilities.tracing": {"opentelemetry"},
    "wick.capabilities.tracing.metrics": {"opentelemetry"},
    "wick._internal.safe_yaml": {"yaml"},
    "wick.stores.registry": {"wick"},  # a store, when its address is opened
    "wick.skills.slides.build_deck": {"pptx"},
    "wick._internal.http_requests": {"aiohttp"},
    "wick._internal.json_schema": {"jsonschema", "referencing"},
    "wick.workspace.grep": {"re2"},
    "wick.permissions.shell_grammar": {"tree_sitter", "tree_sitter_bash"},
}

CORE = {"pydantic", "aiohttp", "orjson", "pyyaml", "opentelemetry-api"}
LIGHT = {"wick", "pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}


@dataclass(frozen=True)
class Import:
    """The target of one import statement, and its module."""

    module: str  # its module
    target: str
    line: int
    hidden: bool  # inside a function

    @property
    def place(self) -> str:
        return f"{self.module}, line {self.line}"


# -- reading the source ---------------------------------------------------------------------------------------------


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of wick by its dotted name."""
    return {_dotted(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def nodes(kind: type[ast.AST]) -> list[tuple[str, Any]]:
    """Return the nodes of a kind in all modules, each with the name of its module."""
    return [(name, node) for name, node in _walked() if isinstance(node, kind)]


@cache
def _walked() -> list[tuple[str, ast.AST]]:
    kinds = (ast.alias, ast.Attribute, ast.If)  # those that tests below look at
    return [(name, node) for name, tree in modules().items() for node in ast.walk(tree) if isinstance(node, kinds)]


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def unit(module: str) -> str:
    """Return the unit of a module in the layers: `wick.models.scripted` is part of `models`."""
    package, _, rest = module.partition(".")
    return rest.split(".")[0] or package


def depth(module: str) -> int:
    return DEPTH.get(unit(module), len(LAYERS))


@cache
def imports() -> list[Import]:
    return [found for name, tree in modules().items() for found in _imports(name, tree, hidden=False)]


def _imports(module: str, node: ast.AST, hidden: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if is_for_types(child) or not isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            continue  # no expression has an import
        for target in _targets(child):
            yield Import(module, target, child.lineno, hidden)  # type: ignore[union-attr]
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _imports(module, child, hidden or inside)


def is_for_types(node: ast.AST) -> bool:
    """Return True for the block of imports that only a type checker reads."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def type_blocks(name: str) -> list[ast.If]:
    """Return the blocks of a module that only a type checker reads."""
    return [node for node in modules()[name].body if isinstance(node, ast.If) and is_for_types(node)]


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0 and node.module, "imports are written in full, from wick down"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        return [name if name in modules() else node.module for name in inner]
    return []


@cache
def own_imports() -> list[Import]:
    return [found for found in imports() if found.target.split(".")[0] == "wick"]


# -- layers ---------------------------------------------------------------------------------------------------------


def test_every_module_has_a_layer() -> None:
    lost = sorted({unit(name) for name in modules()} - DEPTH.keys())
    assert not lost, f"{', '.join(lost)} stands in no layer: give it a place in LAYERS and in pyproject.toml"


def test_imports_run_downward() -> None:
    wrong = [
        f"{found.place}, imports {found.target}, which does not stand below it"
        for found in own_imports()
        if unit(found.module) != unit(found.target) and depth(found.module) >= depth(found.target)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_heart_does_not_know_the_models() -> None:
    wrong = [
        f"{found.place}, imports {found.target}; it may know only protocols.Model and what is independent of providers"
        for found in own_imports()
        if unit(found.target) == "models" and unit(found.module) not in KNOWS_MODELS
        if found.target not in ("wick.models.reply", "wick.models.message_dicts")  # independent of the provider
    ]
    assert not wrong, "\n".join(wrong)


def test_capabilities_do_not_know_each_other() -> None:
    """Modules that they share begin with an underscore; `_defaults` gathers some of them."""
    wrong = [
        f"{found.place}, imports its sibling {found.target}; modules that both need begin with an underscore"
        for found in own_imports()
        if unit(found.module) == unit(found.target) and unit(found.target) in INDEPENDENT
        if found.module.count(".") > 1 and sibling(found.module) != "_defaults"  # the package itself gathers them
        if sibling(found.module) != sibling(found.target) and not sibling(found.target).startswith("_")
    ]
    assert not wrong, "\n".join(wrong)


def sibling(module: str) -> str:
    """Return the name of a module, or of its package, within its top-level package."""
    return [*module.split("."), "", ""][2]


def test_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in own_imports():
        graph[found.module].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these modules import each other: {' → '.join(error.args[1])}")


def test_type_checking_imports_are_listed() -> None:
    escapes = [
        f"{name}, line {node.lineno}"
        for name, node in [*nodes(ast.alias), *nodes(ast.Attribute)]
        if name not in FOR_TYPES | HIDDEN_METHODS
        if (node.name if isinstance(node, ast.alias) else node.attr) == "TYPE_CHECKING"
    ]
    assert not escapes, f"TYPE_CHECKING hides a cycle; move what both need further down: {escapes}"
    unused = FOR_TYPES - {name for name, tree in modules().items() if any(map(is_for_types, tree.body))}
    assert not unused, f"these modules import nothing for types; remove them from FOR_TYPES: {sorted(unused)}"


def test_lazy_packages_import_only_their_own_modules_for_types() -> None:
    for name in HIDDEN_METHODS - FOR_TYPES:
        found = [target for node in type_blocks(name) for child in node.body for target in _targets(child)]
        assert bool(found) == (name in LAZY_PACKAGES)
        assert all(target.startswith(f"{name}.") for target in found), found


@pytest.mark.parametrize("name", sorted(LAZY_PACKAGES))
def test_lazy_packages_have_every_name_they_list(name: str) -> None:
    package = importlib.import_module(name)
    typed = {
        alias.name
        for node in type_blocks(name)
        for child in node.body
        if isinstance(child, ast.ImportFrom)
        for alias in child.names
    }
    assert typed <= {*package.__all__} <= {*dir(package)}
    assert all(getattr(package, item).__name__ == item for item in package.__all__)
    assert typed == {*package._MODULES}


def test_type_checking_blocks_only_import() -> None:
    blocks = [(name, node) for name, node in nodes(ast.If) if is_for_types(node)]
    wrong = [
        f"{name}, line {line.lineno}"
        for name, node in blocks
        for line in [*node.body, *node.orelse]
        if not isinstance(line, ast.ImportFrom) or not str(line.module).startswith("wick")
    ]
    assert blocks and not wrong, f"a TYPE_CHECKING block imports names of wick, and nothing else: {wrong}"


def test_only_the_dispatcher_uses_the_state_of_an_operation() -> None:
    """Hooks and capabilities use `op.why`, `op.notes` and the properties of an operation."""
    operations = ("op", "run", "step", "call", "use", "sealed", "view")
    wrong = [
        f"{name}, line {node.lineno}"
        for name, node in nodes(ast.Attribute)
        if name not in DISPATCHER
        if isinstance(node.value, ast.Attribute) and node.value.attr == "state"
        if isinstance(node.value.value, ast.Name) and node.value.value.id in operations and node.attr != "grants"
    ]
    assert not wrong, f"the state of an operation is the dispatcher's; give the operation a property: {wrong}"


def test_imports_inside_functions_are_listed() -> None:
    wrong = [
        f"{found.place}, imports {found.target} inside a function; move it to the top, or list it in LAZY"
        for found in imports()
        if found.hidden and found.target.split(".")[0] not in LAZY.get(found.module, set())
    ]
    assert not wrong, "\n".join(wrong)


def test_import_linter_has_the_same_layers() -> None:
    contract = PYPROJECT["tool"]["importlinter"]["contracts"][0]
    assert [tuple(re.findall(r"\w+", line)) for line in contract["layers"]] == LAYERS


# -- a light import -------------------------------------------------------------------------------------------------

# Runs in another Python and prints modules and effects of `import wick`. Pydantic is warmed up first, as its
# plugins and its own environment switches are not wick's. An effect is wick's if a frame of wick is nearest
# on the way up from it: not if that way leads through the import system or the body of another package's module.
PROBE = """
import json, os, sys
sys.path.insert(0, SOURCE)
start = set(sys.modules)
import pydantic
class Warm(pydantic.BaseModel): x: int
pydantic.TypeAdapter(Warm)

def is_wicks(frame):
    while frame:
        name = frame.f_globals.get("__name__") or ""
        if name == "wick" or name.startswith("wick."):
            return True
        if name.startswith(("_frozen_importlib", "importlib._bootstrap")) or frame.f_code.co_name == "<module>":
            return False
        frame = frame.f_back
    return False

touched = []
def note(what):
    if is_wicks(sys._getframe(2)):
        touched.append(what)

watched = ("open", "os.", "socket.", "subprocess.", "shutil.", "tempfile.", "glob.", "pathlib.", "urllib.", "sqlite3.")
sys.addaudithook(lambda event, args: event.startswith(watched) and note(f"{event} {args[:1]}"))

class Environ(type(os.environ)):
    def __getitem__(self, key):
        if not key.startswith("PYDANTIC_"):
            note(f"environment {key}")
        return super().__getitem__(key)
    def __iter__(self):
        note("environment")
        return super().__iter__()
os.environ.__class__ = Environ

BODY
print(json.dumps({"modules": sorted(set(sys.modules) - start), "touched": touched}))
"""


def probe(body: str) -> dict[str, list[str]]:
    code = PROBE.replace("SOURCE", repr(str(SOURCE))).replace("BODY", body)
    done = subprocess.run([sys.executable, "-I", "-B", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, list[str]] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def light() -> dict[str, list[str]]:
    return probe("import wick")


def test_import_loads_only_pydantic_and_the_standard_library(light: dict[str, list[str]]) -> None:
    assert "wick" in light["modules"]
    packages = {name.split(".")[0] for name in light["modules"] if not name.startswith("_sysconfigdata")}
    heavy = sorted(packages - set(sys.stdlib_module_names) - LIGHT)
    assert not heavy, f"import wick also loads {', '.join(heavy)}; import it when it is first used"


def test_import_touches_no_file_environment_or_network(light: dict[str, list[str]]) -> None:
    assert light["touched"] == []


def test_the_probe_detects_module_access() -> None:
    deeds = """
code = "import os, socket; os.getenv('A'); 'B' in os.environ; dict(os.environ); open(os.devnull); socket.socket()"
exec(compile(code, "wick/deeds.py", "exec"), {"__name__": "wick.deeds"})
"""
    seen = {deed.split(" (")[0] for deed in probe(deeds)["touched"]}
    assert {"environment A", "environment B", "environment", "open", "socket.__new__"} <= seen


# -- user experience ------------------------------------------------------------------------------------------------


def test_the_core_has_exactly_five_dependencies() -> None:
    names = {re.split(r"[^\w-]", line, maxsplit=1)[0] for line in PYPROJECT["project"]["dependencies"]}
    assert names == CORE


def test_the_package_is_typed() -> None:
    assert (SOURCE / "wick" / "py.typed").exists()


def test_the_public_names_are_few_and_sorted_out() -> None:
    assert 20 <= len(wick.__all__) <= 40
    assert len(set(wick.__all__)) == len(wick.__all__)


@pytest.mark.parametrize("name", sorted(wick.__all__))
def test_a_public_name_is_documented(name: str) -> None:
    thing = getattr(wick, name)
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    assert text, f"wick.{name} has no docstring: say in a sentence what it is for"
    assert not text.startswith(f"{name}("), f"wick.{name} has only the docstring its data class was given"


# -- words ----------------------------------------------------------------------------------------------------------

# Written in pieces, so that this file does not find itself.
FORBIDDEN = re.compile(
    "|".join(
        [
            "/wor" + "k/",  # a path of a developer's machine
            r"\bse" + r"eds?\b",  # wick speaks for itself
            "py" + r"pi\.org|python" + r"hosted\.org|npm" + r"js\.org",  # names of package registries
        ]
    ),
    re.IGNORECASE,
)
# Names of other libraries that would be found: `random.` and hypothesis have such a function.
ALLOWED = re.compile(r"random\.se" + r"ed\(|hypothesis\.se" + r"ed\(")


def tracked() -> list[Path]:
    """The files of the repository: those git knows, and new ones it does not ignore."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone, so nothing is tracked")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_has_a_forbidden_word() -> None:
    found = []
    for path in tracked():
        if path.suffix == ".png":  # its bytes are no words
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if FORBIDDEN.search(ALLOWED.sub("", line)):
                found.append(f"{path.relative_to(ROOT)}, line {number}: {line.strip()}")
    assert not found, "\n".join(found)
