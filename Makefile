# `make run` and `make test` install what they need into .venv the first time and work offline after.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NODE_TESTS := tests/interop/node

.PHONY: run test check unit conformance bench clean help

help:
	@echo "make run    serve the demo server"
	@echo "make test   lint, type-check and run all tests"
	@echo "make conformance  run the official conformance suite, server and client"
	@echo "make bench  measure, side by side with the other SDKs"
	@echo "make clean  remove everything that was installed or built"

run: $(VENV)/.run
	@$(BIN)/python examples/weather_server.py --http

test: $(VENV)/.test $(NODE_TESTS)/node_modules/.done check unit conformance

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_layers.py

unit: $(VENV)/.test
	$(BIN)/pytest -n 2 --dist worksteal

conformance: $(VENV)/.test $(NODE_TESTS)/node_modules/.done
	$(BIN)/python tools/conformance.py

bench: $(VENV)/.bench
	$(BIN)/python -m bench

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "missing: Python 3.11 or later (set PYTHON=/path/to/python)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or later; $(PYTHON) is `$(PYTHON) -V` (set PYTHON=/path/to/python)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "missing: the venv module of $(PYTHON) (on Debian: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
FAILED = { echo "missing: packages could not be installed; is a package registry reachable?"; exit 1; }

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	$(INSTALL) -r requirements/run.txt || $(FAILED)
	$(INSTALL) --no-build-isolation --no-deps -e . || $(FAILED)
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.run
	$(INSTALL) -r requirements/test.txt || $(FAILED)
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.test
	$(INSTALL) -r requirements/bench.txt || $(FAILED)
	@touch $@

# Node 24 comes with the test requirements; npm is run by it.
$(NODE_TESTS)/node_modules/.done: $(NODE_TESTS)/package.json $(NODE_TESTS)/package-lock.json $(VENV)/.test
	cd $(NODE_TESTS) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --no-audit --no-fund --loglevel=error || $(FAILED)
	@touch $@

clean:
	rm -rf $(VENV) .bench $(NODE_TESTS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
