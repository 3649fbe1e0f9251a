# Everything a developer runs. `make` alone lists the targets; each sets up what it needs.
#
# A machine needs Python 3.11 (with venv) and make. All else goes into .venv and, for the model,
# into a cache outside the checkout. pip's settings (files, PIP_INDEX_URL, PIP_CERT, ...) are used.

VENV := .venv
PY := $(VENV)/bin/python
UV_VERSION := 0.13.9
UV := $(VENV)/.uv-$(UV_VERSION)
READY := $(VENV)/.ready
EXTRAS := engine,worker,operator,dev

# The first interpreter of a version we support that can also make virtual environments.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(firstword $(foreach name,python3.11 python3 python3.12 python,\
	$(shell $(name) -c '$(USABLE)' 2>/dev/null && echo $(name))))

.DEFAULT_GOAL := help
.PHONY: help setup demo model test test-slow check lint format types layers sizes crds bench lock clean

help:  ## list the targets
	@awk -F ':.*##  *' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Output goes to standard error, so that `make -s model` prints nothing but the folder.
$(UV):
	@test -n "$(PYTHON)" || { \
		echo "error: no Python 3.11 or 3.12 with venv was found. Install it (on Debian: python3.11" \
			"and python3.11-venv), or name it: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) >&2
	@$(PY) -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) >&2
	@touch $@

$(READY): $(UV) pyproject.toml constraints.txt
	@$(PY) scripts/run_uv.py pip install --python $(PY) -e ".[$(EXTRAS)]" -c constraints.txt >&2
	@touch $@

setup: $(READY)  ## make .venv with everything in it; does nothing when it is up to date

demo: $(READY)  ## serve a small real model, stream a chat, put it to sleep, wake it
	@$(PY) scripts/demo.py "$$($(PY) scripts/make_model.py | tail -n 1)"

model: $(READY)  ## make SmolLM2-135M-Instruct in the cache; the folder is the last line
	@$(PY) scripts/make_model.py

test: $(READY)  ## the quick tests
	@$(PY) scripts/make_model.py >&2
	$(PY) -m pytest -m "not slow and not e2e"

test-slow: $(READY)  ## the tests that take minutes
	@$(PY) scripts/make_model.py >&2
	$(PY) -m pytest -m "slow and not e2e"

check: lint format types layers sizes  ## lint, format, types, import rules, size limits

lint: $(READY)
	$(PY) -m ruff check .

format: $(READY)
	$(PY) -m ruff format --check .

types: $(READY)
	$(PY) -m mypy
	$(PY) -m mypy scripts tests/support
	$(PY) -m mypy --explicit-package-bases benchmarks

layers: $(READY)
	$(VENV)/bin/lint-imports

sizes: $(READY)
	$(PY) scripts/check_sizes.py

crds: $(READY)  ## write the custom resource's definition, and the chart's copy, from the models
	@$(PY) scripts/make_crd.py

bench: $(READY)  ## measure and write the tables of benchmarks/ (BENCH_ARGS="--only phases ...")
	@$(PY) scripts/make_model.py >&2
	$(PY) -m benchmarks.run $(BENCH_ARGS)

.PHONY: bench-peers
bench-peers: $(READY)  ## set up the engines that `make bench` measures beside ours (long)
	$(PY) -m benchmarks.peers $(BENCH_ARGS)

.PHONY: cluster-up images cluster-demo cluster-down test-e2e test-e2e-slow
cluster-up:  ## a kind cluster for the demo and the end-to-end tests
	@scripts/cluster.sh up

images: cluster-up $(READY)  ## build both images, and one of the small model, and bring them to the cluster
	@scripts/cluster.sh images
	@scripts/cluster.sh model "$$($(PY) scripts/make_model.py | tail -n 1)"

cluster-demo: images  ## install the operator, serve, stream, put to sleep, wake by a request
	@scripts/cluster.sh run $(PY) scripts/cluster_demo.py $$(scripts/cluster.sh image operator) \
		$$(scripts/cluster.sh image runtime) $$(scripts/cluster.sh image model)

cluster-down:  ## remove the cluster and all that it took
	@scripts/cluster.sh down

test-e2e: MARKS := e2e and not slow
test-e2e: images  ## the tests that need a cluster
	$(run-e2e)

test-e2e-slow: MARKS := e2e and slow
test-e2e-slow: export TORPOR_E2E_HELM = $(shell scripts/cluster.sh helms)
test-e2e-slow: images  ## long campaigns on a cluster
	$(run-e2e)

define run-e2e
TORPOR_E2E_OPERATOR_IMAGE=$$(scripts/cluster.sh image operator) \
TORPOR_E2E_RUNTIME_IMAGE=$$(scripts/cluster.sh image runtime) \
TORPOR_E2E_MODEL_IMAGE=$$(scripts/cluster.sh image model) \
TORPOR_E2E_AUDIT_LOG=$${TORPOR_E2E_AUDIT_LOG:-$$(scripts/cluster.sh audit)} \
scripts/cluster.sh run $(PY) -m pytest -m "$(MARKS)" tests/e2e $(E2E_ARGS)
endef

lock: $(UV)  ## compile constraints.txt anew from pyproject.toml (LOCK_ARGS=--upgrade for newer)
	$(PY) scripts/run_uv.py pip compile --quiet --all-extras --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
		--output-file constraints.txt $(LOCK_ARGS) pyproject.toml

clean:  ## remove all that was made in the checkout; the model cache stays
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -type d -exec rm -rf {} +
