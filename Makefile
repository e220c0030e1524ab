# Every target first installs what it needs, once, into the active virtual environment or .venv.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

DEMO_COMMAND ?= minerva demo
LEARN_COMMAND ?= python -m pytest -m learning --timeout 0 -o faulthandler_timeout=0 -o session_timeout= --capture no
# Additional arguments for pytest, for example: make test ARGS="-k retrace"
ARGS ?=
# Two processes for each core (tests/conftest.py); the tests of a file stay together, for they share fixtures. In
# order: xdist would begin with the files of many tests, and end with a single one that takes long.
# make test PARALLEL= runs a single process, as --pdb needs.
# No process is replaced: the new one would begin with the test at which the other one died.
PARALLEL ?= --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

VENV := $(or $(VIRTUAL_ENV),.venv)
INSTALLED := $(VENV)/.minerva-acme
# Modules are compiled once, and not again by each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(or $(VIRTUAL_ENV),$(CURDIR)/.venv)/bin:$(PATH)

# Install again if another clone was installed into this environment last.
ifneq ($(shell cat "$(INSTALLED)" 2>/dev/null),$(CURDIR))
.PHONY: $(INSTALLED)
endif

.PHONY: help
help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: $(INSTALLED)  ## Train MPO on a dm_control task and show what it learned (a few minutes)
	$(DEMO_COMMAND)

# What measures and strains the library from outside: its own tests, and short runs. ARGS may name them.
TOOLS := tests/benchmarks tests/endurance tests/fuzz tests/learning tests/mutants
# What looks at the files of the tree, and what is built of them: `make check` runs it.
STRUCTURE := $(addprefix tests/test_,imports.py layering.py packaging.py private_names.py public_names.py) \
	tests/agents/test_named_once.py
PYTEST := python -m pytest -m "not learning and not ray and not compile" -o faulthandler_timeout=600

.PHONY: test
test: $(INSTALLED)  ## Run the tests on all cores, except the long trainings, those with Ray and most that compile
	$(PYTEST) $(PARALLEL) --durations 10 $(if $(findstring tests/,$(ARGS)),,$(addprefix --ignore=,$(TOOLS) $(STRUCTURE))) $(ARGS)

.PHONY: test-tools
test-tools: $(INSTALLED)  ## Try benchmarks, fuzzers, storms, mutants and the scripts behind the results for a moment (a minute)
	$(PYTEST) $(PARALLEL) $(TOOLS) $(ARGS)

.PHONY: test-ray
test-ray: $(INSTALLED)  ## Run the tests that start and kill processes by Ray (minutes; they need an idle machine)
	python -m pytest -m ray $(ARGS)

.PHONY: test-compile
test-compile: $(INSTALLED)  ## Compile the losses of all agents by torch's inductor and train with them (minutes; a C++ compiler)
	python -m pytest -m compile $(ARGS)

.PHONY: test-gpu
test-gpu: $(INSTALLED)  ## Run what is tested on a GPU (a minute; torch for CUDA)
	MINERVA_TEST_GPU=1 XLA_PYTHON_CLIENT_PREALLOCATE=false python -m pytest -m gpu $(PARALLEL) $(ARGS)

.PHONY: test-pythons
test-pythons:  ## Run the tests in a new environment of each other Python that is here, 3.12 and 3.13 (5 GB, minutes)
	python3 -m tests.other_pythons $(PYTHONS) -- $(PARALLEL) $(ARGS)

.PHONY: test-myosuite
test-myosuite:  ## Install MyoSuite in an environment of its own and train there for a moment (4 GB, minutes)
	python3 -m venv --clear build/myosuite
	build/myosuite/bin/python -m pip install --quiet -c constraints.txt -e ".[plot,video]" pytest pytest-timeout
	build/myosuite/bin/python -m $(shell grep '^pip install .*myosuite' docs/how-to/muscles.md)
	build/myosuite/bin/python -m pytest tests/environments/test_myosuite.py $(ARGS)

.PHONY: check
check: style types structure  ## Check style, types, layers, packaging and public names

.PHONY: style
style: $(INSTALLED)
	python -m ruff check .
	python -m ruff format --check .

# mypy cannot follow the editable install, so it gets a folder with the layout of the wheel.
.PHONY: types
types: $(INSTALLED)
	rm -rf build/typed
	mkdir -p build/typed/minerva_acme
	cd build/typed/minerva_acme && ln -s ../../../minerva_acme/* ../../../adders ../../../agents .
	cd build/typed && python -m mypy --config-file ../../setup.cfg --cache-dir ../../.mypy_cache minerva_acme ../../examples

.PHONY: structure
structure: $(INSTALLED)
	python -m pip check
	python -m pytest $(STRUCTURE)

.PHONY: wheel
wheel: $(INSTALLED)  ## Build both archives in dist/, install the wheel in a new environment and train there
	rm -rf dist
	python -c "from setuptools import build_meta; build_meta.build_sdist('dist')"
	python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist dist/*.tar.gz
	python -m pytest tests/test_packaging.py -k "wheel or sources" $(ARGS)

.PHONY: learn
learn: $(INSTALLED)  ## Run the long trainings behind the README's results (hours)
	$(LEARN_COMMAND)

.PHONY: compare-plain
compare-plain: $(INSTALLED)  ## Train MPO and a plain loop with equal settings, five seeds each (hours; ARGS="--seeds 0")
	python -m tests.learning.against_plain $(ARGS)

.PHONY: compare-sb3
compare-sb3: $(INSTALLED) build/rivals/sb3/.installed build/rivals/sbx/.installed  ## Train our agents, Stable-Baselines3's and SBX's with equal settings (hours)
	python -m tests.learning.against_stable_baselines3 $(ARGS)

build/rivals/%/.installed: tests/learning/rivals/%.txt
	python -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	touch $@

.PHONY: bench
bench: $(INSTALLED)  ## Run the benchmarks (ARGS="mpo_learner --threads 2" selects)
	python -m tests.benchmarks --output runs/bench.json $(ARGS)

.PHONY: bench-check
bench-check: $(INSTALLED)  ## Run the benchmarks; fail if a ratio is well below the recorded one
	python -m tests.benchmarks --check $(ARGS)

.PHONY: fuzz
fuzz: $(INSTALLED)  ## Try random damage, thousands of cases (minutes; ARGS="batches --count 100" selects)
	python -m tests.fuzz $(ARGS)

.PHONY: soak
soak: $(INSTALLED)  ## Train for 30 minutes with each store; what the process holds must not grow (ARGS="--minutes 6")
	python -m tests.endurance soak $(ARGS)

.PHONY: storm
storm: $(INSTALLED)  ## Kill and stop trainings again and again; each must come out right (ARGS="mpo/reverb --kills 5": kills alone)
	python -m tests.endurance storm $(ARGS)
	$(if $(ARGS),,python -m tests.endurance stops)

.PHONY: stops
stops: $(INSTALLED)  ## Stop trainings by signals while they take long; nothing may be lost (ARGS="mpo/memory --signals 3")
	python -m tests.endurance stops $(ARGS)

.PHONY: storm-ray
storm-ray: $(INSTALLED)  ## Kill processes of a distributed run at random, 20 in a row (ARGS="--kills 5 --seed 1")
	python -m tests.endurance.storm_ray $(ARGS)

.PHONY: mutants
mutants: $(INSTALLED)  ## Check that tests catch deliberate mistakes, a sample in an hour (ARGS="retrace": all of these)
	python -m tests.mutants --jobs 2 --output runs/mutants.txt $(ARGS)

.PHONY: docs
docs: $(INSTALLED)  ## Build the documentation and the API reference in build/docs
	NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict

.PHONY: clean
clean:  ## Remove everything the targets made, including .venv; keeps runs/
	rm -rf .venv build dist minerva_acme.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): setup.cfg pyproject.toml constraints.txt minerva_acme/_version.py | $(VENV)/bin/python
	@python -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || { \
	    echo "$(VENV) holds $$(python --version), but Python 3.11 or newer is needed:"; \
	    echo "deactivate it, and make creates .venv with the one it finds."; exit 1; }
	@python -c 'import sys; sys.exit(sys.version_info[:2] > (3, 11))' || \
	    echo "$$(python --version): Reverb has no wheels for it, so replay will be kept in memory."
	@python -c 'import sys; sys.exit(sys.version_info[:2] > (3, 12))' || \
	    echo "$$(python --version): dm_control has none either, so its environments will be missing."
	@echo "Installing minerva-acme and what it needs into $(VENV) (the first time: a few minutes, about 3 GB;"
	@echo "of these 1.4 GB are TensorFlow, which Reverb needs. PyTorch for CUDA takes 4 GB more: docs/installing.md)"
	@python -m pip install --disable-pip-version-check -c constraints.txt -e ".[dev]" \
	    | awk '/^Collecting/ {print "  " $$2; fflush()} /^Installing collected/ {print "  unpacking ..."; fflush()} \
	        /^The conflict is/,0'
	@printf '%s' "$(CURDIR)" > "$@"

.venv/bin/python:
	@for python in python3.11 python3.12 python3.13; do \
	    $$python -c '' 2>/dev/null || continue; \
	    echo "Creating .venv with $$($$python --version)"; \
	    $$python -m venv .venv || { rm -rf .venv; exit 1; }; \
	    exit 0; \
	done; \
	echo "No Python from 3.11 to 3.13 was found: install it (Debian and Ubuntu: python3.11 and python3.11-venv;"; \
	echo "anywhere: uv python install 3.11), or activate a virtual environment that has it."; exit 1
