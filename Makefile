# Plain venv and pip underneath; works with the make 3.81 of macOS.
#
#   make demo    run a small fleet with a real model on this machine
#   make test    every test, with real engines and a real model
#   make test T=tests/core/test_planner.py      a part: any words that pytest takes
#   make check   the inner loop: format, lint, types, imports, spelling, fast tests, schemas
#   make soak    every test again and again, in new orders and with new examples, until Ctrl-C;
#                each round plants faults, too, and lists those that no test noticed

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

# The first Python of this machine that starts and is new enough (a name on PATH may be a stub).
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$python -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)

.PHONY: help demo test soak preflight check lint format schemas pictures bench clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.demo
	@$(BIN)/reconcile demo

# What a person types after a target becomes a variable of what runs: T, SEED, WORKERS, FAULTS.
test: preflight $(VENV)/.dev
	@$(BIN)/python -m tests.suite

soak: preflight $(VENV)/.dev
	@$(BIN)/python -m tests.suite.soak

# The tests need more of the machine than the demo: say so before anything is installed.
preflight: $(VENV)/.created
	@$(BIN)/python -m tests.suite.preflight

check: lint
	@$(BIN)/python -m tests.suite --fast

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --platform linux
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin
	$(BIN)/mypy --package tests --package bench
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/shellcheck --external-sources .ci/run tests/ci/*.sh
	$(BIN)/zizmor --offline --quiet .github action.yml
	$(BIN)/reconcile schema --chart deploy/chart --page docs/fields.md --check

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

pictures: $(VENV)/.dev
	@$(BIN)/python -m tests.pictures

schemas: $(VENV)/.dev
	$(BIN)/reconcile schema --chart deploy/chart --page docs/fields.md

bench: $(VENV)/.dev
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# A stamp is touched after its step succeeded, so a second `make` installs nothing, and a changed
# pyproject.toml installs what changed.
$(VENV)/.created:
	@test -n '$(PYTHON)' || { \
	  echo 'make: Python 3.11 or newer is needed, and none is on PATH.'; \
	  echo '      Debian, Ubuntu: apt install python3 python3-venv    macOS: brew install python'; \
	  echo '      or name one: make PYTHON=/path/to/python3.13'; exit 1; } >&2
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1); Python 3.11 or newer is needed." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make virtual environments." >&2; \
	  echo '      Debian, Ubuntu: apt install python3-venv' >&2; exit 1; }
	@echo "==> $(VENV): $$($(PYTHON) --version)"
	@test ! -e $(VENV) || { \
	  echo 'make: $(VENV) is there and was not made here (or not to the end).' >&2; \
	  echo '      Remove it, or use another: make VENV=.venv-fleet' >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.demo: $(VENV)/.created pyproject.toml
	@echo '==> installing fleet-reconciler with the embedded engine (once; about 90 MB)'
	@$(PIP) install --editable '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml
	@echo '==> installing fleet-reconciler with everything that its tests need (once)'
	@$(PIP) install --editable '.[dev]'
	@touch $(VENV)/.demo $@
