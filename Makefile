# The project's door. `make help` says what there is.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev

.DEFAULT_GOAL := help
.PHONY: help install demo test check bench lock format clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(STAMP) ## the command, in .venv/bin/localvolume

$(STAMP): pyproject.toml requirements/runtime.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $@

$(DEV): $(STAMP) requirements/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

demo: $(STAMP) ## the main job, live (REAL=1: real control plane; HOLD=1: keep it up; KUBECONFIG=...: a cluster of yours)
	@$(BIN)/localvolume demo $(if $(REAL),--real) $(if $(HOLD),--hold) $(if $(KUBECONFIG),--kubeconfig "$(KUBECONFIG)")

test: $(DEV) ## everything that must pass; ends by saying what this machine could not test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(DEV) ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV) ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) ## the measured promises, beside what the tools we replace do
	$(BIN)/python -m benchmarks

lock: ## pin the newest allowed versions (needs uv)
	uv pip compile --quiet pyproject.toml --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements/runtime.txt
	uv pip compile --quiet pyproject.toml --upgrade --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements/dev.txt

clean: ## remove what the targets above made in the tree
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
