# make help lists what there is. Everything runs in .venv, which is made when it is missing.

PYTHON ?= python3
SECONDS ?= 60
# Tests wait more than they compute, for leases, failovers and other processes.
JOBS ?= 3
SEED ?=
STORM ?=
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test conformance check verify format golden bench chaos clean

help:  ## Say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.venv/.base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "changeover needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@echo "installing changeover into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	@touch $@

.venv/.dev: .venv/.base
	@echo "installing the development tools into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,testing]' --group dev
	@touch $@

demo: .venv/.base  ## Watch a worker be killed in mid-sentence and the session go on
	@$(BIN)/changeover demo

test: .venv/.dev  ## Run all tests; real servers are started where they are installed
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

conformance: .venv/.dev  ## Run the tests of the scripts on every server, and count them
	@$(BIN)/python -m tests.conformance

check: .venv/.dev verify  ## Format, lint, types, imports, generated files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

verify: .venv/.dev  ## Fail when a generated file is stale
	@$(BIN)/python -m tools.generate_sync --check
	@$(BIN)/python -m tools.pages --check

format: .venv/.dev  ## Format, and write the generated files anew
	@$(BIN)/python -m tools.generate_sync
	@$(BIN)/python -m tools.pages
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

golden: .venv/.dev  ## Write the golden files anew: what commands print and workers log
	@CHANGEOVER_GOLDEN=1 $(BIN)/python -m pytest -q tests/client/test_golden.py tests/worker/test_golden_log.py

bench: .venv/.dev  ## Measure speed and memory on this machine (a quarter of an hour)
	@$(BIN)/python -m benchmarks

chaos: .venv/.dev  ## Sweep, strike workers, then Redis, each for SECONDS (60), seeded by SEED, or STORM alone (aof, pause, kills ...)
	@$(BIN)/python -m tests.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(STORM:%=--storm %)

clean:  ## Remove the virtual environment, caches and the embedded server's data
	rm -rf .venv .changeover dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
