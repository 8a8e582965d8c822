# Every target works through .venv, so nothing needs activating. `make` alone lists the targets.

PYTHON ?= python3
# The base interpreter is looked up before .venv/bin goes to the front of PATH.
BASE_PYTHON := $(shell command -v $(PYTHON) 2>/dev/null)
BIN := .venv/bin
STAMP := .venv/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
NOTEBOOKS = $(wildcard notebooks/*.ipynb notebooks/runs/*.ipynb)
# Rules call `python -m headdiv` and papermill starts kernels: both must find this environment's Python.
export PATH := $(CURDIR)/$(BIN):$(PATH)

# What `make lock` resolves besides pyproject.toml, since one machine does not ask for all of it:
# papermill asks for aiohttp on Python 3.12 only, IPython for appnope on macOS only;
# soupsieve 3 and later refuse the Python 3.11.2 of Debian 12; from 4.25 on jsonschema compiles a grammar whenever it is
# imported, three seconds for each notebook that papermill executes.
LOCK_ALSO := aiohttp appnope 'jsonschema<4.25' 'soupsieve<3'
TORCH ?= $(shell sed -n 's/^torch==//p' requirements.lock)

.DEFAULT_GOAL := help
.PHONY: help venv demo reproduce test test-slow mutants lint format lab lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

venv: $(STAMP) ## set up .venv with the pinned packages (PYTHON=python3.12 picks an interpreter)

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(BASE_PYTHON)" || { echo "headdiv needs Python 3.11 or newer, and $(PYTHON) was not found: make venv PYTHON=python3.11" >&2; exit 1; }
	@$(BASE_PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "headdiv needs Python 3.11 or newer, and $(PYTHON) is %d.%d: make venv PYTHON=python3.11" % sys.version_info[:2])'
	$(BASE_PYTHON) -m venv .venv
	$(PIP) install --quiet "$$(grep '^setuptools==' requirements.lock)"
	$(PIP) install --quiet --no-build-isolation --use-pep517 -r requirements.lock
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	$(PIP) check
	@touch $@

demo: $(STAMP) ## train two small models side by side and draw a head of two that learnt more (about a minute)
	@$(BIN)/headdiv demo

reproduce: $(STAMP) ## train, evaluate and report all five papers, small (seven to fifteen minutes on two cores)
	$(BIN)/snakemake reproduce-all --logger rich

test: $(STAMP) ## run the tests, without the slow ones
	$(BIN)/pytest -n 2 --dist worksteal

test-slow: $(STAMP) ## run the slow tests
	$(BIN)/pytest -n 2 --dist loadfile -m slow

mutants: $(STAMP) ## put small faults into the code: a test must notice each
	$(BIN)/python tests/mutants.py

lint: $(STAMP) ## check style, formatting, imports and the workflow
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/snakefmt --check Snakefile
	$(BIN)/snakemake --lint

format: $(STAMP) ## format the code and clear the notebooks' outputs
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/snakefmt Snakefile
	$(if $(NOTEBOOKS),$(BIN)/jupyter nbconvert --clear-output --inplace $(NOTEBOOKS))

lab: $(STAMP) ## open the explorer, and all notebooks and results, in JupyterLab
	$(BIN)/jupyter lab --ServerApp.root_dir=. notebooks/explore.ipynb

lock: ## pin every dependency anew, for pip and conda (TORCH=x.y.z moves torch too)
	@$(BASE_PYTHON) -c 'import sys; sys.exit(0 if sys.version_info[:2] == (3, 11) else "make lock needs Python 3.11, the oldest that the pins must fit, and $(PYTHON) is %d.%d: make lock PYTHON=python3.11" % sys.version_info[:2])'
	set -eu; fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(BASE_PYTHON) -m venv "$$fresh/venv"; pip="$$fresh/venv/bin/python -m pip --disable-pip-version-check"; \
	$(BASE_PYTHON) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); print(*p["build-system"]["requires"], *p["project"]["dependencies"], *sum((wanted for extra, wanted in p["project"]["optional-dependencies"].items() if extra != "tensorboard"), []), sep="\n")' > "$$fresh/wanted"; \
	$$pip install --quiet torch==$(TORCH); \
	$$pip install --quiet -r "$$fresh/wanted" $(LOCK_ALSO); \
	$$pip freeze --all > "$$fresh/frozen"; \
	{ grep '^#' requirements.lock; tr 'A-Z_' 'a-z-' < "$$fresh/frozen" | LC_ALL=C sort | sed -E \
		-e '/^(pip|wheel|triton|(nvidia|cuda)-.*)==/d' \
		-e 's/\+[a-z0-9.]+$$//' \
		-e '/^(aiohappyeyeballs|aiohttp|aiosignal|frozenlist|multidict|propcache|yarl)==/s/$$/ ; python_version == "3.12"/' \
		-e '/^appnope==/s/$$/ ; platform_system == "Darwin"/' \
		-e '/^greenlet==/s/$$/ ; platform_machine != "arm64"/' \
		-e '/^overrides==/s/$$/ ; python_version < "3.12"/'; } > "$$fresh/lock"; \
	awk -F== 'FNR == NR { split($$2, version, " "); pin[$$1] = version[1]; next } \
		/^ *- [a-z0-9-]+==/ { name = $$1; sub(/^ *- /, "", name); if (name in pin) sub(/==.*/, "==" pin[name]) } \
		{ print }' "$$fresh/lock" environment.yml > "$$fresh/environment"; \
	cat "$$fresh/lock" > requirements.lock; cat "$$fresh/environment" > environment.yml

clean: ## remove what the tools and the quick profile wrote (never data/, work/ or the results of real runs)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .snakemake/log logs results/quick
	find headdiv tests notebooks -name __pycache__ -prune -exec rm -rf {} +
	find notebooks -name .ipynb_checkpoints -prune -exec rm -rf {} +
