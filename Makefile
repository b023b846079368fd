# The two commands of the README: `make demo` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Kernels are compiled once and kept; pytest-xdist uses the cores there are.
JOBS ?= auto

.PHONY: demo test lint format clean help
help:
	@echo "make demo   train on the embedded sample and ask it questions"
	@echo "make test   lint, types and all tests"

demo: $(VENV)/.train
	$(BIN)/longtail demo --out runs/demo

test: $(VENV)/.dev lint
	$(BIN)/pytest -n $(JOBS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: longtail needs Python 3.11 or newer; say make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; exit 2; }
	@touch $@

$(VENV)/.train: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing longtail for training (once; a minute or two)"
	@$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.dev: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing longtail for development (once; a minute or two)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.train

clean:
	rm -rf $(VENV) runs build .mypy_cache .ruff_cache .pytest_cache
