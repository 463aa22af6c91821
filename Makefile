# `make run` and `make test` install what they need into .venv the first time and work offline after.

PYTHON ?= python3
VENV := .venv
OTHER := .venv-other
PEERS := .venv-peers
BIN := $(VENV)/bin
NODE_TESTS := tests/interop/node

# An environment made with another Python than the one that is asked for is made anew.
ifneq ($(origin PYTHON),file)
ASKED := $(shell $(PYTHON) -V 2>/dev/null)
ifneq ($(ASKED),)
ifneq ($(ASKED),$(shell $(BIN)/python -V 2>/dev/null))
$(shell rm -rf $(VENV))
endif
endif
endif

# What is compiled once is not compiled again by each of the processes of the tests, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE
export NODE_COMPILE_CACHE := $(CURDIR)/.cache/node

# Tests wait more than they compute: more of them at once than there are processors.
TESTS_AT_ONCE ?= 6

# How long `make fuzz` looks at each of its targets.
SECONDS_EACH ?= 120

# What needs Node or another SDK's packages is tried with one Python only.
WITH_PEERS := tests/interop tests/auth/client/test_browser.py tests/types/test_oracle.py \
	tests/net/http_client/test_http2_node.py tests/transports/http_client/test_official_servers.py

.PHONY: run test test-docs test-other check unit unit-without-peers conformance conformance-gateway fuzz chaos chaos-gateway scene kill-isolated kill-tasks flip-receipts bench sync clean help conformance-store wires-store

help:
	@echo "make run    serve the demo server"
	@echo "make test   lint, type-check and run the tests"
	@echo "make test-docs    run everything the documentation shows"
	@echo "make test-other   run the tests that need no peers with another Python, if there is one"
	@echo "make conformance  run the official conformance suite, server and client"
	@echo "make conformance-store  run the suite against three servers that share a store (STORE=valkey)"
	@echo "make wires-store  run the tests of HTTP with three processes that share a store"
	@echo "make conformance-gateway   run the suite through a bridge, both eras on both sides; 6 minutes"
	@echo "make fuzz   look for input that breaks a parser (TARGETS=…, SECONDS_EACH=120)"
	@echo "make chaos  kill parts of a server on all wires under load, for two minutes"
	@echo "make chaos-gateway   kill, freeze, cut and flood the upstreams of a gateway under load, and kill it; 2 minutes"
	@echo "make scene  kill workers of two machines that share a store, for five minutes (STORE=valkey)"
	@echo "make flip-receipts  flip 1,000 bits in the receipts of 100,000 calls, and find each; some minutes"
	@echo "make kill-tasks   run 1,000 tasks while their workers are killed, for a minute"
	@echo "make docs   build the documentation as a site"
	@echo "make kill-isolated   kill 10,000 processes of isolated tools, and look at what is left"
	@echo "make bench  measure, side by side with the other SDKs"
	@echo "make sync   write the synchronous faces of the client and the host anew"
	@echo "make clean  remove everything that was installed or built"

run: $(VENV)/.run
	@$(BIN)/python examples/weather_server.py --http

test: $(VENV)/.docs $(NODE_TESTS)/node_modules/.done .bench/fastmcp/.ready
	@$(MAKE) --no-print-directory -j3 --output-sync=target check unit conformance

# In an environment of its own.
test-other: $(VENV)/bin/python
	@other="$$($(BIN)/python tools/other_python.py)"; \
	if [ -z "$$other" ]; then echo "test-other: no Python beside `$(BIN)/python -V` was found"; exit 0; fi; \
	echo "test-other: with `$$other -V`"; \
	$(MAKE) --no-print-directory VENV=$(OTHER) PYTHON="$$other" unit-without-peers

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_requirements.py

# Thousands of tests use real processes and sockets, many at once: a test that fails beside others is run once more
# by itself, and named. One that fails twice fails the run.
define RUN_TESTS
$(BIN)/python -m pytest -n $(TESTS_AT_ONCE) --dist worksteal $(1) || { \
	echo "The tests named above failed beside others. They are run again, one at a time; each that passes now is to be made robust."; \
	$(BIN)/python -m pytest -v --last-failed --last-failed-no-failures none --maxfail 1 $(1); }
endef

unit: $(VENV)/.compiled $(PEERS)/.done
	$(call RUN_TESTS,--ignore=tests/docs)

# Everything the documentation shows: its programs, its commands, the site and a plain install.
test-docs: $(VENV)/.docs $(VENV)/.compiled
	$(call RUN_TESTS,tests/docs)

unit-without-peers: $(VENV)/.compiled
	$(call RUN_TESTS,$(addprefix --ignore=,$(WITH_PEERS) tests/docs))

# Two machines, a store, a balancer without stickiness, and a worker killed every second.
scene: $(VENV)/.test $(NODE_TESTS)/node_modules/.done
	$(BIN)/python -m tests.deployment.scene --seconds $(or $(SECONDS),300) --kind $(or $(STORE),redis) --strangers --namespaces

chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos.rampage $(or $(SECONDS),120)

# The upstreams of a gateway killed, frozen, cut and flooding, then the gateway itself.
chaos-gateway: $(VENV)/.test
	$(BIN)/python -m tests.gateway.rampage

# A client that hears nothing for five seconds, because the machine is busy with the tests, does what the suite forbids.
define ONCE_MORE
$(1) || { echo "It is run once more, since tests ran beside it."; $(1); }
endef

conformance: $(VENV)/.test $(NODE_TESTS)/node_modules/.done
	$(call ONCE_MORE,$(BIN)/python tools/conformance.py)
	$(call ONCE_MORE,$(BIN)/python tools/conformance.py --through 2026-07-28 --run 2025-11-25)

conformance-store: $(VENV)/.test $(NODE_TESTS)/node_modules/.done
	$(BIN)/python tools/conformance.py --store $(or $(STORE),redis)

# The servers of these tests are processes, forked from the test: so it runs alone, and not beside others.
wires-store: $(VENV)/.test
	MCPEARL_TESTS_FORK=1 $(BIN)/python -m pytest -p no:xdist tests/transports/test_suite.py tests/transports/http_server

conformance-gateway: $(VENV)/.test $(NODE_TESTS)/node_modules/.done
	$(BIN)/python tools/conformance.py --through all --wire http --wire stdio

fuzz: $(VENV)/.fuzz
	@$(BIN)/python -m tests.fuzz --seconds $(SECONDS_EACH) $(TARGETS)

flip-receipts: $(VENV)/.test
	$(BIN)/python -m tests.receipts.flips --calls 100000 --flips 1000

kill-isolated: $(VENV)/.test
	$(BIN)/python -m tests.server.isolation.killing --kills 10000

kill-tasks: $(VENV)/.test
	$(BIN)/python -m tests.server.tasks.killing --tasks 1000 --seconds 60

sync: $(VENV)/.test
	$(BIN)/python tools/make_sync.py

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "the documentation is at docs/_build/html/index.html"

bench: $(VENV)/.bench $(NODE_TESTS)/node_modules/.done
	$(BIN)/python -m bench

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "missing: Python 3.11 or later (set PYTHON=/path/to/python)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "missing: Python 3.11 or later; $(PYTHON) is `$(PYTHON) -V` (set PYTHON=/path/to/python)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "missing: the venv module of $(PYTHON) (on Debian: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
PINNED = $(INSTALL) --require-hashes -r
FAILED = { echo "missing: packages could not be installed; is a package registry reachable?"; exit 1; }

$(VENV)/.run: requirements/run.txt pyproject.toml | $(VENV)/bin/python
	$(PINNED) requirements/run.txt || $(FAILED)
	$(INSTALL) --no-build-isolation --no-deps -e . || $(FAILED)
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.run
	$(PINNED) requirements/test.txt || $(FAILED)
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.test
	$(PINNED) requirements/docs.txt || $(FAILED)
	@touch $@

# The tests, compiled once: of six processes that begin together, each would compile all of them.
$(VENV)/.compiled: $(VENV)/.docs
	@$(BIN)/python -m pytest --collect-only -q $(addprefix --ignore=,$(WITH_PEERS)) > $(VENV)/collected.txt || true
	@touch $@

$(VENV)/.fuzz: requirements/fuzz.txt $(VENV)/.test
	$(PINNED) requirements/fuzz.txt || $(FAILED)
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.test
	$(PINNED) requirements/bench.txt || $(FAILED)
	@touch $@

# Agent libraries need other versions of the SDKs than the tests do. All are named: none is looked for.
$(PEERS)/.done: requirements/peers.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile -r requirements/peers.txt || $(FAILED)
	@touch $@

# Node 24 comes with the test requirements; npm is run by it.
$(NODE_TESTS)/node_modules/.done: $(NODE_TESTS)/package.json $(NODE_TESTS)/package-lock.json $(VENV)/.test
	cd $(NODE_TESTS) && PATH="$(CURDIR)/$(BIN):$$PATH" npm ci --no-audit --no-fund --loglevel=error || $(FAILED)
	@touch $@

# FastMCP, for tests and for the benchmark, apart from the rest because it pins other versions.
.bench/fastmcp/.ready: requirements/bench-fastmcp.txt $(VENV)/.test
	$(BIN)/python -m bench.environments fastmcp || $(FAILED)
	@touch $@

clean:
	rm -rf $(VENV) $(OTHER) $(PEERS) .bench .cache .fuzz $(NODE_TESTS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis
