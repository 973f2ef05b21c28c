"""The programs of the skills that are shipped, to be run here."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from wick.capabilities.skills import SHIPPED

DATA = Path(__file__).parent / "skills" / "data"
PROGRAMS = {
    "code-review": "scan.py",
    "csv-analyzer": "analyze.py",
    "data-analysis": "query.py",
    "research": "check_citations.py",
    "slides": "build_deck.py",
    "summarization": "check_summary.py",
}


def load_program(skill: str) -> ModuleType:
    """The program of a skill as a module."""
    path = SHIPPED / skill / PROGRAMS[skill]
    spec = spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = module_from_spec(spec)
    sys.modules[path.stem] = module  # data classes look up their module there
    spec.loader.exec_module(module)
    return module
