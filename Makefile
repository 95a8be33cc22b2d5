# Every target sets up what it needs in .venv; `make help` lists them.

PYTHON ?=
export PYTHON

# Many processes import the same modules, which are compiled once.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/bin
SCANOPT := $(VENV)/scanopt
DEMO := build/demo
PIP_INSTALL := $(VENV)/python -m pip install --quiet --disable-pip-version-check --editable
PYTEST_ARGS ?= -n 2 --dist worksteal
SHARE ?= 1/1
BENCH_ARGS ?= --benchmark-only -m "not numba_zoo"
# Where runs of benchmarks are kept, the page of them, and which are: a minute or two.
STORE ?= docs/figures/runs
HISTORY ?= docs/figures/history.md
KEPT ?= tests/benchmarks/test_start.py tests/benchmarks/test_growth.py tests/benchmarks/test_gradients.py \
	-k "test_start or (1000-nodes and (default or grad or load or save or digest or diff)) or (test_gradient and GARCH)"
TABLES ?= docs/figures/tables
# Of `make growth`.
LIMIT ?= 120
WAY ?=
# Of `make throughput`.
GRAPHS ?= 2000

.DEFAULT_GOAL := help
.PHONY: help screenshots demo samples test test-deep mutants fuzz lint docs man dist release bench bench-save bench-compare figures growth throughput firing clean FORCE

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo '  PYTHON=/path/to/python names the interpreter for a new .venv'

demo: samples ## Run the main job on the sample graphs
	@mkdir -p $(DEMO)
	$(SCANOPT) inspect sample_graphs/nested.pkl
	$(SCANOPT) check sample_graphs/unused.pkl || test $$? -eq 1 # 1: it finds something
	$(SCANOPT) optimize sample_graphs/unused.pkl --diff structural -o $(DEMO)/unused.pkl
	$(SCANOPT) verify sample_graphs/unused.pkl $(DEMO)/unused.pkl
	$(SCANOPT) diff sample_graphs/unused.pkl $(DEMO)/unused.pkl || test $$? -eq 1 # 1: they differ
	$(SCANOPT) grad sample_graphs/seed.pkl --order 2
	@echo 'next: scanopt check on graphs of your own, which `scanopt capture -- python model.py` saves'

samples: .venv/installed ## Build sample_graphs/*.pkl
	$(VENV)/python sample_graphs/build.py

test: .venv/installed-dev ## Run the tests, as before each commit
	$(VENV)/python -m pytest $(PYTEST_ARGS)

test-deep: .venv/installed-dev ## Run the tests that take long, or SHARE=1/4: the whole zoo, Numba, many examples
	HYPOTHESIS_PROFILE=deep $(VENV)/python -m pytest $(PYTEST_ARGS) --share=$(SHARE) -m "(deep or hypothesis or tiered) and not (pymc or jax or samplers or browser or cluster or numba_zoo)"

mutants: .venv/installed-dev ## Break each pass in ten ways, or MUTANTS, and report which tests notice
	$(VENV)/python tests/mutation --count $${MUTANTS:-10}

fuzz: .venv/installed-dev ## Load files made at random for ten minutes, or FUZZ_SECONDS
	FUZZ_SECONDS=$${FUZZ_SECONDS:-600} $(VENV)/python -m pytest -q tests/hostile/test_fuzzing.py

lint: .venv/installed-dev ## Check style, types and who imports whom
	$(VENV)/python -m ruff check .
	$(VENV)/python -m ruff format --check .
	$(VENV)/python -m mypy
	$(VENV)/lint-imports

docs: .venv/installed-docs ## Build the site in build/docs, and write docs/rules.md as the rules have it
	$(SCANOPT) rules --format markdown > docs/rules.md
	$(VENV)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs
	@echo 'next: open build/docs/index.html'

man: .venv/installed ## Write the man pages into build/man
	$(VENV)/python -m scanopt_cli.cli.man_pages build/man

dist: .venv/installed ## Build the wheel and the source distribution, and check what they hold
	.ci/dist

release: .venv/installed ## Cut the change log: make release VERSION=0.2.0
	$(VENV)/python .ci/release.py cut $(VERSION)

screenshots: samples .venv/installed-dev ## Take the pictures of pages for the docs, in Chromium
	@.ci/install-browser
	PYTHONPATH=tests $(VENV)/python tests/page/browser/screenshots.py

bench: .venv/installed-dev ## Run the benchmarks
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -m pytest -o addopts=--strict-markers $(BENCH_ARGS) tests/benchmarks

bench-save: .venv/installed-dev ## Keep a run of some benchmarks in STORE, and write the page of all that are kept
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -m pytest -q -o addopts=--strict-markers --benchmark-only \
		--benchmark-storage="file://$(STORE)" --benchmark-autosave --benchmark-columns=min,rounds $(KEPT)
	PYTHONPATH=tests $(VENV)/python tests/benchmarks/history.py $(STORE) $(HISTORY)

bench-compare: .venv/installed-dev ## Show the runs in STORE beside each other
	$(VENV)/pytest-benchmark --storage="file://$(STORE)" compare --group-by=fullname \
		--columns=min,median,rounds --sort=name

figures: .venv/installed-dev ## Run the benchmarks, and write the tables of the pages into TABLES
	OPENBLAS_NUM_THREADS=1 $(VENV)/python -m pytest -o addopts=--strict-markers $(BENCH_ARGS) \
		--figures $(TABLES) tests/benchmarks

growth: .venv/installed-dev ## Measure how commands grow with a graph: hours; or LIMIT=30, seconds of each run, WAY=levels
	PYTHONPATH=tests OPENBLAS_NUM_THREADS=1 $(VENV)/python tests/benchmarks/command_growth.py $(TABLES) \
		--kept build/growth.jsonl --limit $(LIMIT) --way "$(WAY)"

throughput: .venv/installed-dev ## Measure commands on many graphs: over an hour; or GRAPHS=200, WAY="2 workers"
	PYTHONPATH=tests:sample_graphs OPENBLAS_NUM_THREADS=1 $(VENV)/python tests/benchmarks/throughput.py \
		$(TABLES) --kept build/throughput.jsonl --corpus build/corpus --graphs $(GRAPHS) --way "$(WAY)"

firing: .venv/installed-dev ## Write docs/figures/what_passes_do.md: what each pass of a preset does to real graphs
	PYTHONPATH=tests:sample_graphs $(VENV)/python tests/benchmarks/firing.py > docs/figures/what_passes_do.md

clean: ## Remove everything that was built
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -f sample_graphs/*.pkl
	find scanopt_cli tests sample_graphs -name __pycache__ -prune -exec rm -rf {} +

.venv/installed: pyproject.toml
	@.ci/make-venv
	@echo 'installing scanopt into .venv'
	@$(PIP_INSTALL) .
	@touch $@

.venv/installed-dev: .venv/installed
	@echo 'installing what the tests need into .venv'
	@$(PIP_INSTALL) '.[dev]'
	@touch $@

.venv/installed-docs: .venv/installed
	@echo 'installing what the site needs into .venv'
	@$(PIP_INSTALL) '.[docs]'
	@touch $@

# A .venv that is missing, too old or moved is made anew, whatever its stamps say.
ifneq ($(shell .ci/make-venv --check && echo works),works)
.venv/installed: FORCE
endif
