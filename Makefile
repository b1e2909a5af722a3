# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
INPUTS ?= 100000
SEED   ?= 1
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help venv demo test check format bench bench-check fuzz results other-pythons torture clean

help:
	@echo "make demo           set up, then run recipes/sp_maml.yaml"
	@echo "make test           set up, then check (lint, types) and run the tests"
	@echo "make venv           make the environment alone"
	@echo "make check          ruff and mypy"
	@echo "make bench          speed against peers and floors"
	@echo "make bench-check    whether a ratio got slower than the stored one (two minutes)"
	@echo "make results        the runs of docs/results.md (hours; goes on where it stopped), and the page"
	@echo "make torture        faults injected into runs, all of them (an hour; make test has a part)"
	@echo "make fuzz           changed files and recipes, INPUTS=100000 of them, drawn by SEED=1"
	@echo "make other-pythons  the torch-free tests and the build on 3.12 and 3.13, where present"

venv: $(VENV)/.installed

# learn2learn comes last and without its dependencies, which would drag in an old numpy.
# It needs a C compiler; without it everything but the learn2learn backend works.
# An editable install is not compiled by pip, and some machines never write bytecode by
# themselves: every command would compile the source anew.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "metaforge needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -c constraints.txt -e ".[dev,unrolled,tensorboard,mlflow,parquet,sklearn,onnx]"
	$(PIP) install --quiet --no-deps "learn2learn==0.2.0" --config-settings="--build-option=build_ext" \
	  || echo "learn2learn could not be built (a C compiler is needed): its backend will be missing"
	$(BIN)/python -m compileall -q metaforge plugins
	@touch $@

demo: venv
	$(BIN)/metaforge run recipes/sp_maml.yaml

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A file's tests stay together, for they share what they prepare.
test: check other-pythons
	$(BIN)/python -m pytest -n 2 --dist loadfile

format: venv
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv
	$(BIN)/python -m benchmarks

bench-check: venv
	$(BIN)/python -m benchmarks --check

results: venv
	$(BIN)/python -m studies

torture: venv
	METAFORGE_TORTURE=1 $(BIN)/python -m pytest tests/torture -o timeout=3600

fuzz: venv
	METAFORGE_FUZZ_INPUTS=$(INPUTS) METAFORGE_FUZZ_SEED=$(SEED) \
	  $(BIN)/python -m pytest -n 2 tests/fuzz/test_doors.py

other-pythons: venv
	sh tests/other_pythons.sh

clean:
	rm -rf $(VENV) .venv-* dist build
