# `make explain` and `make test` do everything on a fresh machine; `make check` is what CI runs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Errors only: a newcomer needs no warnings of the build backend on an editable installation.
PIP := $(BIN)/python -m pip -qq

# Without a GPU a CPU build of torch is enough, and spares gigabytes of CUDA packages. Where pip's
# index has no CPU build, uv knows where PyTorch keeps them.
HAS_GPU := $(shell (nvidia-smi -L || rocminfo) >/dev/null 2>&1 && echo yes)
ifeq ($(HAS_GPU),yes)
INSTALL_TORCH = $(PIP) install 'torch>=2.11,<2.16'
else
INSTALL_TORCH = $(PIP) install 'torch==2.13.0+cpu' triton==3.7.1 2>/dev/null || \
	{ $(PIP) install uv && $(BIN)/uv pip install --quiet \
	--python $(BIN)/python --torch-backend cpu torch==2.13.0 triton==3.7.1; }
endif

# The page of `explore` is tested in Chromium, and by axe-core. Where neither can be installed, as
# without root or npm, those tests are skipped and say so.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable
CHROMIUM = $(firstword $(foreach name,$(BROWSERS),$(shell command -v $(name))))
SUDO = $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)

# Tests start hundreds of Pythons, each of which would compile the package anew without bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help explain test test-fast lint check evaluate docs bench browser environment clean

help:
	@echo "make explain   install, then explain the fused softmax kernel at 781 columns"
	@echo "make test      install, then run all tests, as many at a time as there are cores"
	@echo "make test-fast the tests that compile, start and kill nothing: under a minute"
	@echo "make lint      ruff and mypy"
	@echo "make evaluate  predicted times against the recorded ones, within limits"
	@echo "make check     lint, test and evaluate: what CI runs"
	@echo "make docs      the Python API as pages in build/docs"
	@echo "make browser   install Chromium and axe-core, with which the page of explore is tested"
	@echo "make bench     how fast the tool starts, explains and calculates"

explain: $(VENV)/.installed
	$(BIN)/occupancy-lab explain --cols 781

# Tests that use a GPU come alone and after the others: what they time must not share it.
test: $(VENV)/.installed-tests
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not gpu"
ifeq ($(HAS_GPU),yes)
	$(BIN)/python -m pytest -m gpu
endif

test-fast: $(VENV)/.installed-tests
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not gpu and not slow"

lint: $(VENV)/.installed-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A little above what the model reaches on what was recorded, so that a change for the worse is seen.
# The first choices on the H100 lose more than those on the H200.
EVALUATE = $(BIN)/occupancy-lab evaluate --use tuning --use "held out" --use fresh --top 0 \
	--max-median 0.035
evaluate: $(VENV)/.installed
	$(EVALUATE) --gpu h200 --max-p90 0.113 --max-mean-loss 0.013 --max-worst-loss 0.066 --min-rank 0.9
	$(EVALUATE) --gpu h100 --max-p90 0.105 --max-mean-loss 0.02 --max-worst-loss 0.17 --min-rank 0.85

check: lint test evaluate

# pdoc documents what is imported, and the package imports a public name when it is first used.
docs: $(VENV)/.installed-docs
	$(BIN)/python -W error::UserWarning -c 'from occupancy_lab import *; import pdoc; \
	pdoc.render.configure(docformat="google"); \
	pdoc.pdoc("occupancy_lab", output_directory=pdoc.Path("build/docs"))'

browser:
ifeq ($(CHROMIUM),)
	@{ $(SUDO) apt-get update && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends chromium; } >/dev/null 2>&1 || \
	echo "Chromium cannot be installed here: the tests that need it are skipped"
endif
	@npm ci --silent --no-audit --no-fund --prefix tests/exploring 2>/dev/null || \
	echo "axe-core cannot be installed here: the test that needs it is skipped"

bench: $(VENV)/.installed
	$(BIN)/python tests/benchmark.py
	$(BIN)/python tests/benchmark_tuned.py

environment: $(VENV)/.installed

$(BIN)/python:
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'

$(VENV)/.torch: | $(BIN)/python
	@echo "Installing torch and Triton, which takes a few minutes"
	@$(INSTALL_TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	@echo "Installing occupancy-lab"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-tests: $(VENV)/.installed
	@echo "Installing what the tests need"
	@$(PIP) install --group lint --group test
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(PIP) install --group docs
	@touch $@

clean:
	rm -rf $(VENV) build dist
