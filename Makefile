# Two commands matter to a new user: `make demo` and `make test`. Both need only Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*.h)

.PHONY: demo test lint types contracts pages check site bench nightly scoreboard faults clean

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

site: $(VENV)/.dev
	$(BIN)/mkdocs build --strict --site-dir site

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

scoreboard: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scoreboard

# Ten minutes for each compiled loop (needs clang) and ten minutes of CPU time for each reader. See fuzz/README.md.
MINUTES ?= 10
nightly: $(VENV)/.dev
	fuzz/build_native.sh
	mkdir -p build/fuzz/corpus/decode build/fuzz/corpus/replay
	build/fuzz/decode -dict=fuzz/native/trace.dict -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ \
		-max_total_time=$$((60 * $(MINUTES))) build/fuzz/corpus/decode fuzz/corpus/decode
	build/fuzz/replay -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ \
		-max_total_time=$$((60 * $(MINUTES))) build/fuzz/corpus/replay
	$(BIN)/python -m fuzz --minutes $(MINUTES)

# On a machine with GPUs: measure and capture the fault suite anew. See benchmarks/faults/README.md.
faults:
	bash benchmarks/faults/run_all.sh build/faults --stages measure:0,torch,measure:1,measure:2 --label torch
	bash benchmarks/faults/run_all.sh build/faults --stages nsys --label nsys
	$(PYTHON) -m benchmarks.faults.adopt build/faults/faults.*.tar

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
