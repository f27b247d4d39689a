# The project's door. `make help` says what there is.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
CLIENT := build/$(if $(ARCH),$(ARCH)/)localvolume-flexvolume
VERSION := $(shell sed -n 's/^version = "\(.*\)"$$/\1/p' pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help install demo test coverage soak versions databases check bench lock format clean guest-kernel flexvolume-client image release helm manifests docs reference site-version

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST) | expand -t 26

install: $(STAMP) ## the command, in .venv/bin/localvolume

$(STAMP): pyproject.toml lab/pyproject.toml requirements/runtime.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install --quiet --no-deps -e . -e lab
	@touch $@

$(DEV): $(STAMP) requirements/dev.txt
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

# A shell may have KUBECONFIG exported for its own work: that alone must not turn the demo to it.
demo: $(STAMP) ## the main job, live (REAL=1: real control plane; HOLD=1: keep it up; CLUSTER=1: the cluster of KUBECONFIG)
ifneq ($(CLUSTER),)
	@test -n "$$KUBECONFIG" || { echo 'CLUSTER=1 shows it in the cluster of KUBECONFIG, which is not set: KUBECONFIG=FILE make demo CLUSTER=1' >&2; exit 2; }
endif
	@$(BIN)/localvolume demo $(if $(REAL),--real) $(if $(HOLD),--hold) $(if $(CLUSTER),--kubeconfig "$$KUBECONFIG")

test: $(DEV) ## everything that must pass; ends by saying what this machine could not test
	$(BIN)/python -m tests $(PYTEST_ARGS)

coverage: $(DEV) ## the same, and which branches it met, by package
	$(BIN)/python -m tests.suite.coverage $(PYTEST_ARGS)

soak: $(DEV) ## what draws at random: kills, faults, tests in any order (MINUTES=30, SEED=...)
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

versions: $(DEV) ## what talks to a control plane, on the oldest and the newest Kubernetes (first time: 20 minutes more; RELEASE=v1.32)
	$(BIN)/python -m tests.versions $(RELEASE)

databases: $(DEV) ## PostgreSQL, Kafka and Cassandra on volumes of real nodes (first time: fetches 250 MB; needs root, Maven, mmdebstrap; ONLY=kafka)
	$(BIN)/python -m tests.databases $(ONLY)

guest-kernel: $(DEV) ## a newer kernel for tests in guests, in the cache: they take half the time (needs root, mmdebstrap)
	$(BIN)/python -m tests.kernel.fetch

flexvolume-client: $(CLIENT) ## the driver that kubelet runs, in build/localvolume-flexvolume (ARCH=arm64: for another processor, in build/arm64; needs Go)

# Linked statically and without paths or times, so that equal sources give equal files. It is
# renamed into place: an installer never sees half of it.
$(CLIENT): $(wildcard flexvolume-client/*.go) flexvolume-client/go.mod pyproject.toml
	@command -v go >/dev/null || { echo 'Go 1.24 or newer is needed to build $@: install it (https://go.dev/dl)' >&2; exit 1; }
	@mkdir -p $(@D)
	cd flexvolume-client && CGO_ENABLED=0 $(if $(ARCH),GOARCH=$(ARCH)) go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$(VERSION)" -o ../$@.new .
	@mv -f $@.new $@

helm: $(DEV) ## the pinned helm, built outside the tree; prints where it is (needs Go)
	@$(BIN)/python -m tests.chart.support_helm

manifests: $(DEV) ## render deploy/*.yaml from the chart
	$(BIN)/python -m tests.chart.support_manifests

image: $(if $(SIGN),$(DEV),$(STAMP)) $(CLIENT) ## the container image, in build/local-volume-provisioner.tar, and its bill of materials (SIGN=key.pem BUILDER=https://...: signed; needs root, buildah, mmdebstrap)
	$(BIN)/python -m image $(if $(SIGN),--sign "$(SIGN)") $(if $(BUILDER),--builder "$(BUILDER)")

release: $(DEV) ## all that is published of this version, in dist (REGISTRY=ghcr.io/somebody SOURCE=https://github.com/a/b BUILDER=https://...; needs root, Go, buildah, mmdebstrap)
	$(BIN)/python -m release --registry "$(REGISTRY)" --source "$(SOURCE)" --builder "$(BUILDER)" $(if $(ARTIFACTHUB),--artifacthub "$(ARTIFACTHUB)")

docs: $(DEV) ## the documentation site, in build/site
	$(BIN)/mkdocs build --strict --site-dir build/site

# mike starts mkdocs by its name.
site-version: $(DEV) ## the site of this version into the branch gh-pages, beside the others; pushes nothing
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m release.site $(VERSION)

reference: $(DEV) ## write docs/reference from the code
	$(BIN)/python -m docsite

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
