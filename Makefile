# Every target works in a fresh clone: the environment and Java are seen to first.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
DOCS_STAMP := $(VENV)/.installed-docs
JOBS ?= 2

.DEFAULT_GOAL := help
.PHONY: help env java broker prometheus chromium page page-test test check format unit coverage soak demo demo-cluster bench docs clean

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
QUICK := tests/test_architecture.py tests/test_prose.py tests/test_deadlines.py tests/unit tests/protocol tests/simulation tests/contract
# What covers the pure folders; the seed makes properties draw the same examples each time.
COVERING := tests/protocol tests/unit/autoscale tests/unit/migration tests/unit/model --hypothesis-seed=0

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

env: $(STAMP) ## Make the virtual environment .venv (PYTHON=... chooses the interpreter)

$(STAMP): pyproject.toml scripts/ensure-env
	@scripts/ensure-node
	@scripts/ensure-env $(VENV)
	@touch $@ $(DEMO_STAMP)

# The demo needs no tools: the package, its pictures and its page, in the same environment.
$(DEMO_STAMP): pyproject.toml scripts/ensure-env
	@scripts/ensure-node
	@scripts/ensure-env $(VENV) plot,ui
	@touch $@

page: ## Build the page from ui/ (needs Node, installed on Debian and Ubuntu as root)
	@scripts/ensure-node
	@python3 scripts/build-page

page-test: page ## Types and tests of the page's code
	@scripts/check-page

java: $(STAMP) ## Check Java 17+; install it on Debian and Ubuntu (as root)
	@scripts/ensure-java $(BIN)/python

broker: ## Install Mosquitto on Debian and Ubuntu (as root), for tests of MQTT
	@scripts/ensure-broker

prometheus: ## Install Prometheus on Debian and Ubuntu (as root), for tests of metrics
	@scripts/ensure-prometheus

chromium: ## Install Chromium on Debian (as root), for tests of the page
	@scripts/ensure-chromium

test: check page-test coverage java broker prometheus chromium ## Everything: checks and all tests except soak (JOBS=2 at a time)
	$(PYTEST) --durations=30

check: $(STAMP) ## Lint, format, types, import layers, deadlines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	scripts/check-types $(BIN)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check-deadlines

format: $(STAMP) ## Fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(STAMP) ## Quick tests of the package, under a minute: no JVM, no worker processes
	$(PYTEST) $(QUICK)

coverage: $(STAMP) ## Check that tests take every branch of protocol, migration, autoscale and model
	$(PYTEST) --cov --cov-report=term $(COVERING)

soak: page java broker chromium ## Long tests: an hour or more of load, faults and rescaling (JOBS=2 at a time)
	$(PYTEST) -m soak --timeout 3600 -v --durations=30

demo: $(DEMO_STAMP) page ## See a running query rescaled live, 2 → 3 → 2 workers, with nothing lost
	@scripts/ensure-java $(BIN)/python
	$(BIN)/anabranch demo

demo-cluster: java ## See state on the hosts of a Spark cluster: rescaled, drained, one host cut off (as root)
	$(BIN)/anabranch demo-cluster

bench: java ## Compare with Spark's own operators (ARGS="--help" for choices)
	$(BIN)/anabranch bench throughput $(ARGS)

docs: $(DOCS_STAMP) ## Build the documentation as a site in build/docs, warnings as errors
	$(BIN)/sphinx-build -W --keep-going -q -b html docs build/docs
	@echo "Open build/docs/index.html"

$(DOCS_STAMP): $(STAMP)
	@scripts/ensure-env $(VENV) docs
	@touch $@

clean: ## Remove the environment and everything that was made
	rm -rf $(VENV) dist build ui/node_modules src/anabranch/http/static .mypy_cache .ruff_cache .pytest_cache .import_linter_cache \
	  .hypothesis .coverage spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
