# `make demo` and `make test` each work as the first command of a fresh clone.
PYTHON   ?= python3
BACKENDS ?= jax torch tensorflow
WORKERS  ?= 2
EXAMPLES ?= 5000

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(BIN)/python
PIP  := $(PY) -m pip install -q --disable-pip-version-check

# One thread a worker: the workers already fill the cores. A model and its copy are the
# same program to XLA, which compiles it once if it may keep what it compiled.
TEST_ENV := env JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 \
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/xla \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
PYTEST   := $(PY) -m pytest -n $(WORKERS) --dist worksteal -q
LINT     := $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

# Shell: `step NAME COMMAND...` notes a failure and goes on; `report` sums up.
STEPS := failed=; \
	step() { name=$$1; shift; echo "==> $$name"; "$$@" || failed="$$failed $$name"; }; \
	report() { [ -z "$$failed" ] || { echo "FAILED:$$failed"; exit 1; }; echo "All passed."; }

export TF_CPP_MIN_LOG_LEVEL = 3

.DEFAULT_GOAL := help
.PHONY: help demo test lint format oldest fuzz zoo bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/demo.stamp ## clone a model and prove the copy (JAX)
	KERAS_BACKEND=jax $(PY) -m regraft demo

test: $(VENV)/test.stamp ## lint, then test on every backend, then run the doctests
	@$(STEPS); \
	step lint sh -c '$(LINT)'; \
	for b in $(BACKENDS); do \
		step $$b $(TEST_ENV) KERAS_BACKEND=$$b $(PYTEST) tests; \
	done; \
	step doctest $(TEST_ENV) KERAS_BACKEND=jax \
		$(PY) -m pytest -q --doctest-modules src/regraft; \
	report

lint: $(VENV)/test.stamp ## check style and types
	$(LINT)

format: $(VENV)/test.stamp ## fix style in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

oldest: $(VENV)/test.stamp ## test with the oldest Keras that is supported (torch)
	$(PIP) --no-deps --upgrade --target $(VENV)/oldest keras==3.13.0
	$(TEST_ENV) PYTHONPATH=$(CURDIR)/$(VENV)/oldest KERAS_BACKEND=torch $(PYTEST) tests

fuzz: $(VENV)/test.stamp ## property tests, EXAMPLES=5000 each, on every backend
	@$(STEPS); \
	for b in $(BACKENDS); do \
		step $$b $(TEST_ENV) KERAS_BACKEND=$$b REGRAFT_FUZZ_EXAMPLES=$(EXAMPLES) \
			$(PYTEST) -m hypothesis tests; \
	done; \
	report

zoo: $(VENV)/test.stamp ## the table of large published models
	KERAS_BACKEND=$${KERAS_BACKEND:-jax} $(PY) benchmarks/zoo.py

bench: $(VENV)/bench.stamp ## time clone, edits and replicate on every backend, draw the charts
	@set -e; for b in $(BACKENDS); do \
		echo "==> $$b"; KERAS_BACKEND=$$b $(PY) benchmarks/clone.py; \
		KERAS_BACKEND=$$b $(PY) benchmarks/first.py; \
		KERAS_BACKEND=$$b $(PY) benchmarks/scaling.py; \
		KERAS_BACKEND=$$b $(PY) benchmarks/graph.py; \
		KERAS_BACKEND=$$b $(PY) benchmarks/replicate.py; \
	done
	$(PY) benchmarks/plot.py

clean: ## remove the environment, caches and build outputs
	rm -rf $(VENV) build dist src/regraft/_core/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit("regraft needs Python 3.11 or newer: make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# Installing also compiles what is written in C.
INSTALLED := pyproject.toml constraints.txt hatch_build.py $(wildcard src/regraft/_core/*.[ch])

$(VENV)/demo.stamp: $(INSTALLED) | $(PY)
	$(PIP) -c constraints.txt -e '.[jax]'
	@touch $@

# torch comes first, by itself and pinned: a range would choose the largest build.
$(VENV)/test.stamp: $(INSTALLED) | $(PY)
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e '.[jax,tensorflow,test]'
	@touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp
	$(PIP) -c constraints.txt -e '.[bench]'
	@touch $@
