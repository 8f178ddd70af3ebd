# make demo and make test are the two commands a newcomer needs; both make .venv and install what is pinned.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS ?= 2
# What make test-real runs on a real control plane.
REAL := tests/realcluster tests/conformance tests/integration tests/failures

.PHONY: demo test realcluster test-real test-images check bench contracts lock clean

demo: $(VENV)/.run-stamp
	$(BIN)/koord demo

test: $(VENV)/.dev-stamp
	REALCLUSTER=off $(BIN)/python -m pytest -n $(JOBS)

# etcd, kube-apiserver and what works on it, built from their Go modules into .realcluster/; needs Go.
realcluster: $(VENV)/.dev-stamp
	@$(BIN)/python -m tests.realcluster.build

test-real: $(VENV)/.dev-stamp realcluster
	REALCLUSTER=required CONFORMANCE=real $(BIN)/python -m pytest -n $(JOBS) $(REAL)

# Builds the images with buildah and runs them with runc as docker-compose.yaml says; needs root.
test-images: $(VENV)/.dev-stamp
	CONTAINERS=required $(BIN)/python -m pytest tests/deploy/test_containers.py

check: $(VENV)/.dev-stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.contracts --check

bench: $(VENV)/.run-stamp
	$(BIN)/koord bench --list

contracts: $(VENV)/.dev-stamp
	$(BIN)/python -m tools.contracts

$(VENV)/.run-stamp: requirements/build.txt requirements/run.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --no-build-isolation -r requirements/build.txt
	$(PIP) --require-hashes --no-build-isolation -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.dev-stamp: $(VENV)/.run-stamp requirements/dev.txt
	$(PIP) --require-hashes --no-build-isolation -r requirements/dev.txt
	touch $@

# Needs uv; only for who changes a dependency.
lock:
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements/build.in -o requirements/build.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --all-extras pyproject.toml -o requirements/run.txt
	uv pip compile -q --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements/dev.in -o requirements/dev.txt

clean:
	rm -rf $(VENV) .realcluster .mypy_cache .ruff_cache .import_linter_cache .pytest_cache
