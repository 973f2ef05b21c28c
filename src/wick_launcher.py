"""The command `wick`: set editable installs aside, then run the command line.

An editable install puts the folder of a project on `sys.path` (a path line in a `.pth` file), or a finder on
`sys.meta_path`. That folder may be the workspace of an agent, which writes it. So both are removed before anything is
imported that searches there: optional modules, and plugins of pydantic. `wick._internal.import_path` puts an entry
back where a config names a module in it.

Only `os` and `sys` are imported here before that.
"""

from __future__ import annotations

import os
import sys

SITES = ("site-packages", "dist-packages")

# Projects that wick imports: one that is installed editable stays on the path. Tests compare this with pyproject.toml.
NEEDED = frozenset(
    (
        "aiohappyeyeballs aiohttp aiosignal annotated-doc annotated-types anyio attrs cffi click cryptography "
        "fastapi frozenlist genai-prices google-re2 h11 httpcore2 httptools httpx2 idna jsonschema "
        "jsonschema-specifications lxml markdown-it-py mcp mcp-types mdurl multidict nats-py nkeys opentelemetry-api "
        "opentelemetry-sdk opentelemetry-semantic-conventions orjson pillow prometheus-client "
        "prompt-toolkit propcache psycopg psycopg-binary psycopg-pool pycparser pydantic pydantic-core pygments "
        "pydantic-monty pyjwt pynacl python-multipart python-pptx pyyaml referencing rich rpds-py sse-starlette "
        "starlette tree-sitter "
        "tree-sitter-bash truststore typing-extensions typing-inspection uvicorn uvloop wcwidth websockets wick-agent "
        "xllamacpp xlsxwriter yarl"
    ).split()
)


def main() -> None:
    """Run the command `wick`."""
    found = set_aside()
    from wick._internal import import_path
    from wick.cli import main as run

    import_path.excluded.add(*found)
    run()


def set_aside() -> tuple[list[str], list[object], list[str]]:
    """Remove editable installs from the import system; return their entries, their finders, and all import lines.

    An entry that comes before an installed package on the path stays there, and so does one that was imported from.
    """
    sites = [entry for entry in sys.path if os.path.basename(entry) in SITES]
    named, imports = _read_pth_files(sites)
    library = os.path.dirname(os.__file__)
    installed = [number for number, entry in enumerate(sys.path) if entry in sites or _is_below(entry, library)]
    first = max(installed, default=-1) + 1
    used, apart = _imported_folders(), [*sites, library, sys.prefix, os.path.dirname(os.path.abspath(__file__))]
    entries = [
        entry
        for entry in sys.path[first:]
        if entry.startswith("__editable__.")
        or (entry in named and not _is_installed(entry, sites) and not _is_used(entry, used, apart))
    ]
    finders: list[object] = [finder for finder in sys.meta_path if _is_editable_finder(finder)]
    sys.path[:] = [*sys.path[:first], *(entry for entry in sys.path[first:] if entry not in entries)]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in finders]
    return entries, finders, imports


def _read_pth_files(sites: list[str]) -> tuple[set[str], list[str]]:
    """Return the folders that the `.pth` files of these folders add to the path, and the lines that they run."""
    named, needed, imports = set[str](), set[str](), list[str]()
    for site in sites:
        try:
            files = sorted(name for name in os.listdir(site) if name.endswith(".pth"))
        except OSError:
            continue
        for name in files:
            for line in _lines(os.path.join(site, name)):
                if line.startswith(("import ", "import\t")):
                    imports.append(line)
                else:
                    is_needed = project_name(name) in NEEDED
                    (needed if is_needed else named).add(os.path.abspath(os.path.join(site, line)))
    return named - needed, imports


def _lines(path: str) -> list[str]:
    try:
        with open(path, "rb") as file:
            lines = os.fsdecode(file.read()).splitlines()
    except OSError:
        return []
    return [line.rstrip() for line in lines if line.strip() and not line.startswith("#")]


def project_name(file: str) -> str:
    """Return the project of a `.pth` file or of a finder's module: `__editable__.click-8.1.pth` is click's."""
    name = file.removesuffix(".pth").removeprefix("__editable__").removeprefix("_editable_impl").strip("._")
    parts = name.replace("_", "-").lower().split("-")
    end = next((at for at, part in enumerate(parts) if part[:1].isdigit() or part == "editable"), len(parts))
    return "-".join(parts[:end])


def _is_editable_finder(finder: object) -> bool:
    module = str(getattr(finder, "__module__", ""))
    return "editable" in module and project_name(module) not in NEEDED


def _imported_folders() -> set[str]:
    """Return the folders of the modules that are loaded."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return {os.path.dirname(file) for file in files if isinstance(file, str)}


def _is_used(entry: str, used: set[str], apart: list[str]) -> bool:
    """Return True if wick is found by this entry, or a module was imported from it, but by an entry further in."""
    inner = [folder for folder in apart if folder != entry and _is_below(folder, entry)]
    return entry in apart or any(
        _is_below(folder, entry) and not any(_is_below(folder, one) for one in inner) for folder in used
    )


def _is_installed(entry: str, sites: list[str]) -> bool:
    return os.path.basename(entry) in SITES or any(_is_below(entry, site) for site in sites)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
