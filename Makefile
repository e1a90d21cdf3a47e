# Each target does its own set-up; what is there already is not done again. Needs git, make and Python 3.11 to 3.14 with venv.

PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$each >/dev/null && $$each -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP_QUIET := --disable-pip-version-check --quiet
PIP := $(BIN)/python -m pip $(PIP_QUIET)
DEMO := sample_traces/vllm-0.32-preemption
PORT ?= 3000

unexport PYTHONDONTWRITEBYTECODE  # else each of the hundreds of processes that the tests start compiles everything anew

.DEFAULT_GOAL := help
.PHONY: help demo test drills oldest check format dev lock schema images test-tools clean

help:
	@echo "make demo    analyze a recorded run and say what happened (out/demo/report.html)"
	@echo "make test    run all tests but the drills"
	@echo "make drills  the minutes-long tests: Dagster's UI, Dask, kills, the documents' commands, the tables of accuracy"
	@echo "make oldest  a part of the tests with the oldest versions of the dependencies that pyproject.toml allows"
	@echo "make check   formatting, lint, types and dead code"
	@echo "make format  let the formatter have its way"
	@echo "make dev     the Dagster UI on http://127.0.0.1:$(PORT); make dev PORT=3001 for another port"
	@echo "make lock    resolve the dependencies anew"
	@echo "make schema  write the JSON Schema of summary.json from the models"
	@echo "make images  take the README's pictures from the report of make demo"

demo: $(VENV)/.runtime
	@$(BIN)/kvpressure analyze $(DEMO) --out out/demo

test: $(VENV)/.dev test-tools
	@$(BIN)/pytest -n 4 --dist worksteal  # on two cores: some wait for a server, a browser or a process

drills: $(VENV)/.dev test-tools
	@$(BIN)/pytest -n 2 -m drill

# What runs in another environment of its own, so that no dependency is claimed in a version that nobody tried.
OLDEST := build/oldest
OLDEST_TESTS := tests/parsers tests/sql $(patsubst %,tests/pipelines/test_%.py,benchmark_report cli day_assets intake publish record)
oldest: test-tools
	@$(PYTHON) -m venv --clear $(OLDEST) && $(OLDEST)/bin/python -m pip $(PIP_QUIET) install uv
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct --editable '.[record,s3]'
	@$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python pytest pytest-xdist hypothesis jsonschema
	@$(OLDEST)/bin/pytest -n 2 $(OLDEST_TESTS)

check: $(VENV)/.dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/basedpyright
	@$(BIN)/vulture

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

dev: $(VENV)/.dev
	@mkdir -p .dagster && cp pipelines/dagster.yaml .dagster/dagster.yaml
	DAGSTER_HOME=$(CURDIR)/.dagster $(BIN)/dagster dev --host 127.0.0.1 --port $(PORT) --module-name pipelines.definitions

schema: $(VENV)/.dev
	@$(BIN)/python -m tests.summary_schema

images: $(VENV)/.dev test-tools demo
	@$(BIN)/python -m tests.docs_images

# The programs that tests drive and pip does not carry: a browser for the report, ripgrep as the floor of the speed tests,
# Prometheus (with its promtool) for what is taken from one.
test-tools:
	@missing=""; command -v chromium >/dev/null || missing="$$missing chromium"; command -v rg >/dev/null || missing="$$missing ripgrep"; \
	command -v prometheus >/dev/null || missing="$$missing prometheus"; \
	if [ -n "$$missing" ]; then \
		root=""; [ "$$(id -u)" = 0 ] || root=sudo; \
		if command -v apt-get >/dev/null && { [ -z "$$root" ] || command -v $$root >/dev/null; }; then \
			echo "installing on this system, for tests, with $${root:+$$root }apt-get (a minute or two, once):$$missing"; \
			export DEBIAN_FRONTEND=noninteractive; \
			$$root apt-get update -qq && $$root apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
		else echo "not found:$$missing; the tests that need them are skipped (Debian, as root: apt-get install$$missing)"; fi; \
	fi

# Exact versions, resolved from pyproject.toml in environments of their own; the runtime ones are among the development ones.
lock: $(addprefix build/lock/,requirements-dev.lock requirements.lock)
	@mv build/lock/*.lock . && rm -rf build/lock

build/lock/requirements-dev.lock: pyproject.toml
	@mkdir -p build/lock && $(PYTHON) -m venv build/lock/dev
	@build/lock/dev/bin/python -m pip $(PIP_QUIET) install --upgrade "pip>=25.1"
	@build/lock/dev/bin/python -m pip $(PIP_QUIET) install "hatchling>=1.27" editables --group dev .
	@build/lock/dev/bin/python -m pip freeze --exclude kvpressure > $@

build/lock/requirements.lock: build/lock/requirements-dev.lock
	@$(PYTHON) -m venv build/lock/runtime
	@build/lock/runtime/bin/python -m pip $(PIP_QUIET) install --constraint $< hatchling editables .
	@build/lock/runtime/bin/python -m pip freeze --exclude kvpressure > $@

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "no Python 3.11 to 3.14 found; install one, or say which: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install --requirement requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	@echo "installing what development needs into $(VENV) (once)"
	@$(PIP) install --requirement requirements-dev.lock
	@touch $@

clean:
	rm -rf out build .dagster .pytest_cache .ruff_cache .hypothesis
