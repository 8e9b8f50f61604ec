# The same commands at home and in CI. `make help` lists them.
# Everything is installed into .venv; a torch >= 2.9 that is already there is kept.

PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: help setup demo test check bench lab-loopback lab-decode sweep sweep-quick op-db sweep-verify sweep-verify-quick sweep-verify-light clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-18s %s\n", $$1, $$2}'

setup: .venv/.setup ## install trine with torchvision into .venv

demo: setup ## compare every way to run ResNet-18 on this machine
	$(BIN)/trine compare torchvision:resnet18 --budget 4m

test: .venv/.test ## all tests but the slow ones, those with processes included
	$(BIN)/python -m pytest -m "not slow"

check: .venv/.test ## format, lint, types, import contract, limits, start-up
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/limits.py
	$(BIN)/python -m pytest -q tests/test_project.py

bench: .venv/.test ## data parallelism beside DistributedDataParallel
	$(BIN)/python -m bench.ddp

lab-loopback: .venv/.test ## bytes on the wire beside those predicted; needs root
	$(BIN)/python -m bench.lab.loopback

lab-decode: .venv/.test ## an image decoder on engines that are each too small for it; needs root
	$(BIN)/python -m bench.lab.decode

sweep: .venv/.test ## every model of bench/models.txt under every cut, held against one engine; resumes
	$(BIN)/python -m bench.zoo_sweep --table docs/sweep.md

sweep-quick: .venv/.test ## each of these models at one size, in training
	$(BIN)/python -m bench.zoo_sweep --quick

op-db: .venv/.test ## footprints on every sample of PyTorch's operator database, beside DTensor
	$(BIN)/python -m bench.op_db_sweep --table docs/op_db.md

sweep-verify: .venv/.test ## verify nine models under every kind of plan on every runtime; resumes
	$(BIN)/python -m bench.verify_sweep --table docs/verify.md

sweep-verify-quick: .venv/.test ## a quarter of it
	$(BIN)/python -m bench.verify_sweep --quick

sweep-verify-light: .venv/.test ## the quarter without the two models that need much memory
	$(BIN)/python -m bench.verify_sweep --light

clean: ## remove .venv and all caches
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "trine needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	touch $@

.venv/.setup: .venv/.python pyproject.toml constraints.txt tools/install
	tools/install vision
	touch $@

.venv/.test: .venv/.python pyproject.toml constraints.txt tools/install
	tools/install vision,timm,hf,dense,test,dev
	touch .venv/.setup $@
