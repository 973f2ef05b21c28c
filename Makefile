.DEFAULT_GOAL := help
.PHONY: help test test-integration test-full soak lint lint_and_compile compile_tests lint_python lint_ui_types lint_ui_style fmt bench bench-peers bench-ui dojo comparison docs docs-serve serve ui ui-dev ui_if_node modules_if_node known_group dist clean

unexport PYTHONDONTWRITEBYTECODE  # what is compiled is kept: the tests start hundreds of programs

python := .venv/bin/python
# Stamps of the environment: it has what serving needs; it also has what wick is built and tested with.
served := .venv/.serve
ready := .venv/.ready
# The same for the web interface: what it is built with; also what it is checked and tested with.
bundler := ui/node_modules/.build
modules := ui/node_modules/.ready
page := src/wick/server/ui/index.html
page_sources := $(shell find ui/src ui/public -type f ! -name '*.test.*') ui/index.html ui/vite.config.ts ui/tsconfig.json
cores := $(shell getconf _NPROCESSORS_ONLN)
groups := sandbox containers postgres models server browser packaging cluster faults
integration := $(if $(GROUP),$(patsubst tests/integration/faults,tests/faults,$(GROUP:%=tests/integration/%)),tests/integration tests/faults)
in_process := --numprocesses $(cores) --dist worksteal
# More workers than cores, because integration tests wait for processes; one file stays with one worker.
across_processes := --numprocesses $(shell echo $$(($(cores) < 4 ? $(cores) + 3 : 7))) --dist loadfile --no-loadscope-reorder

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(ready) ## run the unit tests: a few minutes on two cores
	$(python) -m pytest -q $(in_process) tests/unit

test-integration: known_group $(ready) modules_if_node ui_if_node ## run the integration tests, or GROUP=sandbox, containers, postgres, server …
	$(python) -m pytest -q --durations 25 --durations-min 8 $(across_processes) $(integration)

known_group:
	@$(if $(filter-out $(groups),$(GROUP)),echo "there is no group $(GROUP); the groups are $(groups)" >&2; exit 2)

test-full: $(ready) modules_if_node ui_if_node ## run all tests with many more generated examples (slow)
	WICK_FULL=1 $(python) -m pytest -q $(across_processes)

soak: $(ready) ## soak the server for an hour, or for MINUTES, while something breaks every other second
	$(python) tests/faults/soak.py --minutes $(or $(MINUTES),60) --keep

lints := lint_python lint_ui_types lint_ui_style
lint: ## check style, types and layers
	@$(MAKE) --no-print-directory --jobs $(cores) $(lints)

# What CI runs first. Compiling the tests once takes half a minute; else each of five test processes does it.
lint_and_compile:
	@$(MAKE) --no-print-directory --jobs $(cores) $(lints) compile_tests

compile_tests: $(ready)
	@$(python) -m pytest -qq --collect-only tests > .venv/collected || { cat .venv/collected; exit 1; }

lint_python: $(ready)
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy src $(wildcard tests/typing)
	.venv/bin/lint-imports --no-logo

lint_ui_types: modules_if_node
	@if scripts/find-node; then cd ui && npx --no-install tsc --noEmit; fi

lint_ui_style: modules_if_node
	@if scripts/find-node; then cd ui && npx --no-install eslint . && npx --no-install prettier --check --log-level warn .; fi

fmt: $(ready) ## format the code and fix what can be fixed
	$(python) -m ruff check --fix
	$(python) -m ruff format
	@if scripts/find-node; then make --no-print-directory $(modules) && cd ui && npx --no-install prettier --write --log-level warn .; fi

bench: $(ready) ## measure the loop, the model clients, the backends, hook programs, the stores, evals and the server
	$(python) bench/loop.py
	$(python) bench/models.py
	$(python) bench/backends.py
	$(python) bench/executables.py
	$(python) bench/threads.py
	$(python) bench/snapshots.py
	$(python) bench/many_threads.py
	$(python) bench/evals.py
	$(python) bench/code.py
	$(python) bench/server.py
	$(python) bench/run_cost.py

bench-peers: $(ready) ## measure the same work with wick and with other frameworks, each in an environment of its own
	$(python) bench/peers.py
	$(python) bench/peer_servers.py

dojo: $(ready) ## measure prompt injections: AgentDojo with a scripted model that obeys each of them
	$(python) bench/dojo.py

comparison: $(ready) ## see what leaks in wick and in other frameworks, and put it into docs/comparison.md
	$(python) tests/comparison/record.py
	$(python) scripts/comparison.py

bench-ui: $(ready) ui ## measure the web interface: what it loads, and how it scrolls
	$(python) bench/ui.py

docs: $(ready) ## build the documentation into site/, strictly
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build

docs-serve: $(ready) ## show the documentation while you write it
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs serve

ui: ## build the web interface, where something has changed
	@scripts/find-node
	@$(MAKE) --no-print-directory $(page)

ui-dev: ## the web interface on :3000, anew with each change, before a server on :8000
	@scripts/find-node
	@$(MAKE) --no-print-directory $(modules)
	cd ui && npx --no-install vite

# Without Node.js, or without a registry, everything else works: the server has a small page of its own.
ui_if_node:
	@{ scripts/find-node && $(MAKE) --silent --no-print-directory $(page); } || echo "the web interface was not built; the server shows its small page"

modules_if_node:
	@if scripts/find-node 2>/dev/null; then $(MAKE) --silent --no-print-directory $(modules) || true; fi

serve: $(served) ui_if_node ## start the server; ARGS="--port 9000 agents.yaml" is passed on
	@$(python) -m wick.cli serve $(ARGS)

dist: $(ready) ui ## build the sdist and the wheel into dist/, with the web interface
	$(python) -m build --no-isolation

clean: ## remove the virtual environment and everything generated
	rm -rf .venv build dist site ui/node_modules src/wick/server/ui .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# One environment, brought up to date when pyproject.toml changes. After `make test`, `make serve` installs nothing; after
# `make serve`, `make test` adds what is missing.
$(served): pyproject.toml
	@scripts/get-packages server
	@touch $@

$(ready): pyproject.toml
	@scripts/get-packages dev
	@touch $(served) $@

# not `npm ci`: a registry may lack parts for other systems
npm_install := npm install --no-save --no-audit --no-fund --no-update-notifier --loglevel=error

$(bundler): ui/package.json ui/package-lock.json
	@echo "installing the packages of the web interface into ui/node_modules: 320 packages, 330 MB"
	@cd ui && $(npm_install) --omit=dev
	@touch $@

$(modules): ui/package.json ui/package-lock.json
	@echo "installing the packages and the tools of the web interface into ui/node_modules: 550 packages, 480 MB"
	@cd ui && $(npm_install)
	@touch $(bundler) $@

$(page): ui/package.json ui/package-lock.json $(page_sources) | $(bundler)
	@echo "building the web interface"
	@cd ui && node_modules/.bin/vite build --logLevel warn
	@touch $@
