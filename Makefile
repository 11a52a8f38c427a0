# `make explain` and `make test` do everything on a fresh machine; `make check` is what CI runs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Without a GPU a CPU build of torch is enough, and spares gigabytes of CUDA packages. Where pip's
# index has no CPU build, uv knows where PyTorch keeps them.
HAS_GPU := $(shell (nvidia-smi -L || rocminfo) >/dev/null 2>&1 && echo yes)
ifeq ($(HAS_GPU),yes)
INSTALL_TORCH = $(BIN)/python -m pip install --quiet 'torch>=2.11,<2.16'
else
INSTALL_TORCH = $(BIN)/python -m pip install --quiet 'torch==2.13.0+cpu' triton==3.7.1 || \
	{ $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet \
	--python $(BIN)/python --torch-backend cpu torch==2.13.0 triton==3.7.1; }
endif

.PHONY: help explain test lint check evaluate bench environment clean

help:
	@echo "make explain   install, then explain the fused softmax kernel at 781 columns"
	@echo "make test      install, then run all tests"
	@echo "make lint      ruff and mypy"
	@echo "make evaluate  predicted times against the recorded ones, within limits"
	@echo "make check     lint, test and evaluate: what CI runs"
	@echo "make bench     how fast the tool starts, explains and calculates"

explain: $(VENV)/.installed
	$(BIN)/occupancy-lab explain --cols 781

test: $(VENV)/.installed-tests
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A little above what the model reaches on what was recorded, so that a change for the worse is seen.
evaluate: $(VENV)/.installed
	$(BIN)/occupancy-lab evaluate --use tuning --use "held out" --top 0 \
	--max-median 0.05 --max-p90 0.145 --max-mean-loss 0.02 --max-worst-loss 0.20 --min-rank 0.90

check: lint test evaluate

bench: $(VENV)/.installed
	$(BIN)/python tests/benchmark.py

environment: $(VENV)/.installed

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.torch: | $(BIN)/python
	$(INSTALL_TORCH)
	@touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-tests: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group lint --group test
	@touch $@

clean:
	rm -rf $(VENV)
