# gsparc: every job in one place. `make help` lists them.
# On a fresh machine `make demo` or `make test` alone does all the set-up.

PYTHON ?= python3
TORCH := torch==2.13.0
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

# Files that start with "_" are helpers; *_cuda.py need a GPU and are run by hand.
BENCHES := $(sort $(filter-out benchmarks/_%.py %_cuda.py,$(wildcard benchmarks/*.py)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint format docs bench tables results-page web clean

help:
	@echo "make demo    fit on the embedded graph, write gsparc-demo/report.html"
	@echo "make test    all tests and the examples in docstrings"
	@echo "make lint    ruff check, ruff format --check, pyright"
	@echo "make format  let ruff rewrite what it can"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make bench   run the CPU benchmarks one after another:"
	@for script in $(BENCHES); do echo "                 python $$script"; done
	@echo "make tables  fill the tables of README.md and docs/ from benchmarks/results"
	@echo "make results-page  make docs/_static/results.html from results/*.json"
	@echo "make web     build the explorer from web/ into src/gsparc/server/static (needs npm; users do not)"
	@echo "make setup   only make $(VENV) and install into it"
	@echo "make clean   remove caches and built pages (not $(VENV))"

# Set-up in three stamps: the environment, torch (slow and pinned, first so that nothing else picks a build of
# it), then the pinned list and the package itself, again whenever one of those two files changes.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "gsparc needs Python 3.11 or later, but '$(PYTHON)' is missing or older:" >&2; \
	  $(PYTHON) --version >&2 || true; \
	  echo "Install one and name it: make PYTHON=python3.12 demo" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.$(TORCH): $(VENV)/.created
	$(PIP) install "$(TORCH)"
	@touch $@

$(VENV)/.installed: $(VENV)/.$(TORCH) requirements.lock pyproject.toml
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps -e .
	@touch $@

setup: $(VENV)/.installed

demo: setup
	$(VENV)/bin/gsparc demo -o gsparc-demo

test: setup
	OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --doctest-modules src/gsparc tests

lint: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: setup
	OMP_NUM_THREADS=2 $(VENV)/bin/sphinx-build -W --keep-going -b html docs docs/_build/html

bench: setup
	@set -e; for script in $(BENCHES); do echo "== $$script"; $(PY) $$script; done

tables: setup
	$(PY) scripts/readme_tables.py

results-page: setup
	OMP_NUM_THREADS=1 $(PY) scripts/results_page.py

web:
	cd web && npm ci && npm run build

clean:
	rm -rf build dist docs/_build docs/auto_examples docs/api/generated .pytest_cache .ruff_cache
