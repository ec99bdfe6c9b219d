# Two commands matter to a new user: `make demo` and `make test`. Both need only Python 3.11+ and a C++ compiler.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard native/*.cpp native/*.h)

.PHONY: demo test test-all sweep floors lint types contracts mutants pages ratchet check docs site bench fuzz nightly scoreboard faults dist reproducible sbom audit lowest smoke clean

demo: $(VENV)/.installed
	$(BIN)/timesink demo

# Bytecode is kept even where the environment says otherwise: tests start hundreds of interpreters.
test test-all lowest smoke: export PYTHONDONTWRITEBYTECODE :=
# One worker more than there are cores: tests wait for browsers and programs.
WORKERS  := $(shell $(PYTHON) -c 'import os; print(min(16, 1 + (os.cpu_count() or 1)))')
PARALLEL := -n $(WORKERS) --dist worksteal

test: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" --hypothesis-profile=quick $(ARGS)

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# Every capture of the fault suite: one screen, true sentences, one price per change, the same steps without marks. CI reads
# each tenth of them.
SWEEP := tests/measures/timeline/test_autograd.py tests/measures/steps/test_stripped_marks.py tests/gate/test_gate.py tests/gate/test_damage.py \
	tests/benchmarks/test_shown_work.py tests/benchmarks/test_serving.py tests/mcp/test_edit_loop.py
sweep: $(VENV)/.dev
	TIMESINK_SWEEP=all $(BIN)/python -m pytest $(PARALLEL) -m slow $(SWEEP)

floors: $(VENV)/.dev
	$(BIN)/python -m benchmarks.faults.score --floors

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

contracts: $(VENV)/.dev
	$(BIN)/lint-imports

# Whether tests notice a changed sign, comparison or constant: some of each day's in CI, every one in `make nightly`.
mutants: $(VENV)/.dev
	$(BIN)/python tools/mutate.py --sample 15

# Whether every page can be made, each command on it runs, and each link leads somewhere.
pages: ratchet
	$(BIN)/python tools/write_pages.py --check

# What may only fall: figures that stand in code instead of among the assumptions, private imports, and the like.
ratchet: $(VENV)/.dev
	$(BIN)/python tools/ratchet.py --check

# All pages as Markdown in build/docs: those of docs/, and those made from the code.
docs: $(VENV)/.dev
	$(BIN)/python tools/write_pages.py

check: lint types contracts pages

site: docs
	$(BIN)/mkdocs build --strict --site-dir site

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.speed_table

scoreboard: $(VENV)/.dev
	$(BIN)/python -m benchmarks.scoreboard

# Five minutes in all, as in CI: the compiled loops under sanitizers on the kept corpus and a little beyond (needs clang), then every
# reader, record, command and law in turn, another seed each day.
FUZZ_MINUTES ?= 5
fuzz: $(VENV)/.dev
	fuzz/build_native.sh
	mkdir -p build/fuzz/corpus/decode
	build/fuzz/decode -dict=fuzz/native/trace.dict -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ \
		-max_total_time=$$((6 * $(FUZZ_MINUTES))) build/fuzz/corpus/decode fuzz/corpus/decode fuzz/corpus/found
	build/fuzz/replay -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ -max_total_time=$$((6 * $(FUZZ_MINUTES)))
	build/fuzz/sqlite -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ -max_len=65536 \
		-max_total_time=$$((6 * $(FUZZ_MINUTES))) tests/data/nsys
	$(BIN)/python -m fuzz --in-all $(FUZZ_MINUTES) --jobs $$(nproc) --seed $$(date +%-j)

# Ten minutes for each compiled loop (needs clang) and ten minutes of CPU time for each reader. See fuzz/README.md.
MINUTES ?= 10
nightly: $(VENV)/.dev
	fuzz/build_native.sh
	mkdir -p build/fuzz/corpus/decode build/fuzz/corpus/replay
	build/fuzz/decode -dict=fuzz/native/trace.dict -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ \
		-max_total_time=$$((60 * $(MINUTES))) build/fuzz/corpus/decode fuzz/corpus/decode
	build/fuzz/replay -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ \
		-max_total_time=$$((60 * $(MINUTES))) build/fuzz/corpus/replay
	mkdir -p build/fuzz/corpus/sqlite
	build/fuzz/sqlite -timeout=20 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/ -max_len=65536 \
		-max_total_time=$$((60 * $(MINUTES))) build/fuzz/corpus/sqlite tests/data/nsys
	$(BIN)/python -m fuzz --minutes $(MINUTES) --jobs $$(nproc)
	TIMESINK_KILLS=300 TIMESINK_KILLS_SEED=$$(date +%-j) $(BIN)/python -m pytest -s tests/resilience/test_fault_matrix.py -k writer
	$(BIN)/python tools/mutate.py

# What is published: the source archive and this Python's wheel. The same commit gives the same bytes.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 315532800)
dist: $(VENV)/.supply
	rm -rf dist && $(BIN)/python -m build --outdir dist .
	$(BIN)/python tools/check_wheel.py dist

# What the wheel brings along (CycloneDX), and which of it has a known hole; pip-audit asks PyPI.
sbom: dist
	$(BIN)/python tools/write_sbom.py dist

# Two builds of one commit are the same bytes.
reproducible: dist
	mkdir -p build && (cd dist && sha256sum *.whl *.tar.gz) > build/first.sums
	$(MAKE) dist
	cd dist && sha256sum -c ../build/first.sums

audit: $(VENV)/.supply
	$(BIN)/pip-audit --skip-editable

# The oldest and the newest dependencies that pyproject.toml promises to work with, in an environment each.
# Without the extras of trainers and their logs, which bring PyTorch along.
EXTRAS := $(addprefix --extra ,arrow query perfetto mcp remote dask)
RESOLUTION_lowest := lowest-direct
RESOLUTION_newest := highest
build/lowest/.made build/newest/.made: build/%/.made: $(VENV)/.supply pyproject.toml $(NATIVE)
	rm -rf build/$* && $(PYTHON) -m venv --without-pip build/$*
	$(BIN)/uv pip compile -q pyproject.toml $(EXTRAS) --resolution $(RESOLUTION_$*) -o build/$*/requirements.txt
	$(BIN)/uv pip install -q --python build/$*/bin/python -r build/$*/requirements.txt -e . \
		pytest pytest-xdist hypothesis jsonschema lxml
	touch $@

# Every command once: with nothing, with --help, with a good and with a bad request.
smoke: build/lowest/.made build/newest/.made
	build/newest/bin/python -m pytest $(PARALLEL) tests/end_to_end/test_smoke.py
	build/lowest/bin/python -m pytest $(PARALLEL) tests/end_to_end/test_smoke.py

lowest: build/lowest/.made
	build/lowest/bin/python -m pytest $(PARALLEL) $(LOWEST)
LOWEST ?= tests/model tests/knowledge tests/readers tests/measures tests/rules tests/diagnosis tests/whatif tests/render tests/export

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
	$(BIN)/python -m pip install --quiet --no-compile --group dev
	touch $@

$(VENV)/.supply: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile --group supply
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
