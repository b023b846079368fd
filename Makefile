# The commands of the README: `make demo`, `make serve` and `make test`. Each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet --constraint constraints.txt
# Kernels are compiled once and kept; pytest-xdist uses the cores there are.
JOBS ?= auto

.PHONY: demo serve test race wheel browser lint style types tests format clean help
help:
	@echo "make demo   train on the embedded sample and ask it questions"
	@echo "make serve  a page and an API for the model of make demo, at http://127.0.0.1:8000/;"
	@echo "            elsewhere: make serve OPTIONS='--port 8080'"
	@echo "make test   lint, types and all tests"
	@echo "make race   longtail and its peers on one data set, DATA=path/to/data (default: the embedded sample)"
	@echo "make wheel  build the wheel, install it without extras into an empty environment and predict there"
	@echo "make browser  install Debian's Chromium, in which the tests of the page run; without one they are skipped"

demo: $(VENV)/.train
	$(BIN)/longtail demo --out runs/demo

# OPTIONS: see longtail serve --help
serve: runs/demo/bundle $(VENV)/.serve
	@echo "opening models ..."
	$(BIN)/longtail serve runs/demo $(OPTIONS)

runs/demo/bundle:
	@echo "error: there is no model in runs/demo yet; run make demo first"; exit 2

# Types are checked beside the tests: one core is enough for them.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types tests

# Hundreds of processes read the same sources: their bytecode is kept, also where the environment says otherwise.
tests: $(VENV)/.dev
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest -n $(JOBS) --dist worksteal

# Peers live in an environment of their own. OPTIONS: see python -m benchmarks.race --help
race: $(VENV)/.train $(VENV)-peers/.done
	$(BIN)/python -m benchmarks.race $(DATA) --peer-python $(VENV)-peers/bin/python $(OPTIONS)

wheel: $(VENV)/.train
	scripts/check_wheel.sh $(BIN)/python

# Needs to be root. Tests install nothing on the system by themselves.
browser:
	apt-get update
	apt-get install --yes --no-install-recommends chromium fonts-dejavu-core

lint: style types

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
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
# --no-compile: Python compiles what it imports, a small part of what is installed; half of the time.
	@echo "installing longtail for development (once; a minute or two)"
	@$(PIP) --no-compile --editable '.[dev]'
	@touch $@ $(VENV)/.train $(VENV)/.serve

$(VENV)/.serve: $(VENV)/.python pyproject.toml constraints.txt
	@echo "installing what the server needs (once)"
	@$(PIP) --editable '.[serve]'
	@touch $@

$(VENV)-peers/.done: benchmarks/race/peers.txt
	@echo "installing the peers (once; some minutes)"
	@$(PYTHON) -m venv $(VENV)-peers
	@$(VENV)-peers/bin/pip --disable-pip-version-check install --quiet --requirement $<
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-peers runs build .mypy_cache .ruff_cache .pytest_cache
