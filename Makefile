# make run    the demo: replay recorded tables on any machine
# make test   everything that a change must pass
# Both build their environment in .venv first; the second time that takes no time.

VENV    ?= .venv
SHELL   := /bin/bash
BIN     := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt
CANDIDATES := python3 python3.13 python3.12 python3.11 python
# The first interpreter that starts and is new enough; evaluated only when an environment is built.
PYTHON  ?= $(shell for p in $(CANDIDATES); do $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	>/dev/null 2>&1 && { echo $$p; break; }; done)

.DEFAULT_GOAL := help
.PHONY: help run test lint format types imports pytest clean distclean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / · /' | while IFS= read -r line; do echo "make $$line"; done

run: $(VENV)/.run-installed  ## tune unseen shapes by replay: a table on screen, a plot in outputs/
	@$(BIN)/bo-tuner demo --out outputs

test: lint types imports pytest  ## ruff, format check, mypy, import-linter, pytest
	@echo "== all checks passed"

lint: $(VENV)/.test-installed
	@echo "== ruff: lint rules"
	@$(BIN)/ruff check .
	@echo "== ruff: format"
	@$(BIN)/ruff format --check .

format: $(VENV)/.test-installed  ## mend what ruff can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(VENV)/.test-installed
	@echo "== mypy --strict (a first run reads all of torch and takes a minute or two)"
	@$(BIN)/mypy

imports: $(VENV)/.test-installed
	@echo "== import-linter: imports go downward only"
	@report=$$($(BIN)/lint-imports --no-cache) || { echo "$$report"; exit 1; }; echo "$$report" | grep -E 'KEPT|Contracts:'

pytest: $(VENV)/.test-installed
	@echo "== pytest, two processes"
	@$(BIN)/pytest -n 2 --dist worksteal

clean:  ## remove caches and results
	@echo "removing caches, build outputs and outputs/"
	@rm -rf build dist outputs multirun .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find bo_tuner experiments tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## remove the environment as well
	@echo "removing $(VENV)/"
	@rm -rf $(VENV)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "bo_tuner needs Python 3.11, 3.12 or 3.13; none of these starts here: $(CANDIDATES)." \
		"Name one with: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo "== new environment $(VENV)/ with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.pip: | $(BIN)/python
	@$(BIN)/python -m pip install -qq --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.run-installed: pyproject.toml constraints.txt | $(VENV)/.pip
	@echo "== installing bo_tuner with its experiments extra into $(VENV)/; PyTorch is large, so this takes minutes"
	@$(INSTALL) --editable '.[experiments]'
	@touch $@

$(VENV)/.test-installed: pyproject.toml constraints.txt | $(VENV)/.pip
	@echo "== installing bo_tuner with all extras and development tools into $(VENV)/; this takes minutes"
	@$(INSTALL) --editable '.[experiments,ax,notebooks]' --group dev --group test
	@touch $@ $(VENV)/.run-installed
