"""The language and the shape of the source stay within limits (scripts/language_figures.py)."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = {
    "top-level modules": 26,
    "files in the largest folder": 32,
    "one-word function names, %": 50,
    "bare participles, %": 1.5,
    "private functions used once, %": 15,
    "public class names in several modules": 10,
    "docstrings beginning with What, Who, Whether, How, %": 4,
    "'what' per 1,000 words": 5,
    "who, somebody, nobody, everybody per 1,000 words": 1,
}


@pytest.fixture(scope="module")
def language() -> ModuleType:
    spec = spec_from_file_location("script_language_figures", ROOT / "scripts" / "language_figures.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def find_excesses(figures: dict[str, float]) -> dict[str, float]:
    return {name: figures[name] for name, limit in LIMITS.items() if figures[name] > limit}


def test_the_source_is_within_the_limits(language: ModuleType) -> None:
    assert find_excesses(language.measure(ROOT / "src" / "wick")) == {}, "run python scripts/language_figures.py"


PRIVATE_LANGUAGE = '''
def told(x):
    """What somebody said."""
    return _once(x)

def _once(x):
    """Who asks for what is told."""
    return x
'''


def test_private_language_is_detected(language: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "keeping.py").write_text(PRIVATE_LANGUAGE)
    excesses = find_excesses(language.measure(tmp_path))
    assert len(excesses) == 6 and excesses["bare participles, %"] == 50
