# Two commands matter to a new user: `make demo` and `make test`. Both need only Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*.h)

.PHONY: demo test lint types contracts pages check bench scoreboard fuzz clean

demo: $(VENV)/.installed
	$(BIN)/timesink demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

pages: $(VENV)/.dev
	$(BIN)/python tools/write_pages.py --check

check: lint types contracts pages

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

scoreboard: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scoreboard

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
