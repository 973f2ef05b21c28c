"""`wick new`: create a project, or a plugin package."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from wick._internal.factory_options import suggest_key
from wick.cli.plugin_template import PLUGIN_KINDS, render_plugin
from wick.cli.scaffold import render_project
from wick.cli.terminal.output import JSON, print_json
from wick.errors import ConfigError

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@click.command("new")
@click.argument("path", metavar="NAME", type=click.Path(path_type=Path))
@click.argument("rest", nargs=-1, metavar="")
@click.option("--plugin", is_flag=True, help="Create a package with models, tools, hooks, a backend and a store.")
@click.option("--only", metavar="KIND[,KIND]", default="", help=f"Kinds of a plugin: {', '.join(PLUGIN_KINDS)}.")
@JSON
def command(path: Path, rest: tuple[str, ...], plugin: bool, only: str, as_json: bool) -> None:
    """Create a folder NAME with an agent, a hook, a tool and tests.

    With --plugin, it is a package that adds models, tools, hooks, backends, stores and commands to wick, or those
    that --only names.

    A folder that is not empty is not changed.
    """
    if rest:
        plugins = f"; for a plugin, write: wick new --plugin {rest[0]}" if str(path) == "plugin" else ""
        raise ConfigError(f"one NAME is enough, and {' '.join(rest)!r} is too much{plugins}")
    kinds = [kind.strip() for kind in only.split(",")] if only else []
    if kinds and not plugin:
        raise ConfigError(f"--only selects parts of a plugin; write: wick new --plugin {path} --only {only}")
    if unknown := [kind for kind in kinds if kind not in PLUGIN_KINDS]:
        hint = suggest_key(unknown[0], PLUGIN_KINDS, "the kinds are")
        raise ConfigError(f"--only: {unknown[0]!r} is not a kind of plugin; {hint}")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} already exists and is not empty; choose another name")
    name = path.absolute().name
    if not NAME.fullmatch(name):
        raise ConfigError(f"invalid name {name!r}; use letters, digits, `-` and `_`, and start with a letter")
    module = name.replace("-", "_").lower()
    spec = find_spec(module)
    shadowed = spec is not None and spec.origin is not None  # a namespace package has no origin
    if shadowed or module in sys.stdlib_module_names or module == "tests":
        raise ConfigError(f"a Python module {module!r} already exists; choose another name")
    files = render_plugin(name, module, kinds) if plugin else render_project(name, module)
    for file, text in files.items():
        (path / file).parent.mkdir(parents=True, exist_ok=True)
        with (path / file).open("x", encoding="utf-8") as created:
            created.write(text)
    if as_json:
        return print_json({"folder": str(path), "files": [*files]})
    for file in files:
        click.echo(str(path / file))
    then = "pip install -e '.[test]'; pytest" if plugin else "pytest; wick agents check; wick chat --agent agents.yaml"
    click.echo(f"\nnext: cd {path}; {then}", err=True)
