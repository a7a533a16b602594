# Two commands on a fresh machine: `make demo` and `make test`. Each does all of its set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Where the environment forbids bytecode files, each of the hundreds of commands in the tests would compile the package.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-web test test-fast test-gpu bench check lock format clean

help:  ## Show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# uv installs in seconds what takes pip minutes; installer.py hands pip's configuration to it, or calls pip without it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "python venv is missing: apt-get install -y python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python -I webgym_cli/venvs/installer.py install $(BIN)/python --quiet -e '.[dev]'
	@touch $@

setup: $(STAMP)  ## Make .venv, the role environments and the browser
	$(BIN)/webgym setup -c demo --system-packages 2>&1

# `2>&1`: without a terminal, too, plain lines in place of JSON, and all of them in one log.
demo: setup  ## Train a tiny model from nothing: demonstrations, then its own episodes
	@echo "A tiny model (random weights) on nine easy MiniWoB++ pages: small in what it learns, real in every part."
	@echo "Iteration 0 learns from the expert's demonstrations, the later ones from the model's own successes."
	$(BIN)/webgym init-model tiny runs/demo-model
	$(BIN)/webgym loop runs/demo -c demo 2>&1

demo-web: $(STAMP)  ## Roll out experts on the fixture sites, judge their episodes: the open web without a network
	$(BIN)/webgym setup --role browser --system-packages 2>&1
	$(BIN)/webgym rollout runs/demo-web -c sites 2>&1
	$(BIN)/webgym judge runs/demo-web --all -s judge.base_url=scripted 2>&1
	$(BIN)/webgym status runs/demo-web

# Real browsers and servers, killed in mid-work on shared cores: what fails is run once more, and the summary names it.
# Four processes share the tests (tests/shares.py), for two cores: much of the time two of them wait for a server.
test: setup  ## Run all tests, those of the real stack too
	$(BIN)/webgym setup --role train -s algorithm_config.deepspeed_config_filename=ds_config_h200_zero2_offload.json 2>&1
	$(BIN)/python -m tests.environments.apps.install
	$(BIN)/python -m tests.peers
	$(BIN)/python -m pytest --reruns 1 -n 4

test-fast: $(STAMP)  ## Run the tests that need neither vLLM nor LLaMA-Factory
	$(BIN)/python -m pytest -m "not stack"

# The trainer's tests need an interpreter with torch, transformers, pydantic and DeepSpeed, and nothing else: on a machine
# without a network, name it with TRAIN_PYTHON=python3. What is missing in it skips the tests that need it.
ifdef TRAIN_PYTHON
test-gpu:  ## Run the tests that need a GPU (TRAIN_PYTHON=python3: those of the trainer, by that interpreter)
	PYTHONPATH=. $(TRAIN_PYTHON) tests/trainer/runner.py tests/trainer/role_device.py
else
test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu
endif

bench: $(STAMP)  ## Run the benchmarks (QUICK=1: within minutes; PEERS=1: BrowserGym, too)
	$(BIN)/webgym setup --role browser --role train --system-packages
	$(BIN)/python -m benchmarks.rollout $(if $(QUICK),--quick) $(if $(PEERS),--peers)
	$(BIN)/python -m benchmarks.snapshots $(if $(QUICK),--observations 60)
	$(BIN)/python -m benchmarks.buffer $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.cli $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.rl $(if $(QUICK),--quick)
	$(BIN)/python -m benchmarks.gpu $(if $(QUICK),--quick)

check: $(STAMP)  ## Lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The CPU build of torch is a wheel for one Python version, so the CPU roles are locked for 3.11 alone (config/shipped.py).
# CPU_WHEELS: a folder or page with that build.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock'

lock: $(STAMP)  ## Make configs/roles/*.lock anew (CPU_WHEELS=FOLDER: PyTorch's CPU build)
	for role in serve train; do \
	  $(LOCK) --universal configs/roles/$$role-cuda.txt -o configs/roles/$$role-cuda.lock || exit 1; \
	  $(LOCK) --python-platform x86_64-manylinux_2_28 --find-links $(CPU_WHEELS) \
	    configs/roles/$$role-cpu.txt -o configs/roles/$$role-cpu.lock || exit 1; \
	done

format: $(STAMP)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the project's own environment and the demo's runs
	rm -rf $(VENV) runs/demo runs/demo-model runs/demo-web
