# Every target does its own set-up: Python 3.11+ and make are all it needs (conformance and bench also want a JDK 17+ and Maven).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
RECIPES := .venv-recipes
RUNS ?= 200
OLD_PYTHON := $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kohort needs Python 3.11 or newer: make PYTHON=python3.12 ...")'

.PHONY: demo test test-again browser recipes docs dist lint conformance moved bench hostile sim soak soak-cluster soak-spark soak-transactions soak-exactly-once clean help

help:
	@echo "make demo         watch a consumer group form, fail over and recover, then the same on Spark (FAST=1: without)"
	@echo "make test         the tests (under ten minutes on two cores)"
	@echo "make browser      the console's page in a real Chromium (apt-get install chromium)"
	@echo "make conformance  compare with a real Apache Kafka, and tests that take long (needs a JDK 17+ and Maven)"
	@echo "make sim          thousands of simulated clusters, each with its own faults"
	@echo "make soak         ten minutes of real clients and real crashes"
	@echo "make soak-cluster three brokers killed, paused and restarted every few seconds, on a directory and on S3"
	@echo "make soak-spark   two Spark applications and a consumer in one group, killed, paused, reset; every offset audited"
	@echo "make soak-transactions  read, process, write on three brokers; brokers and clients are killed, every record once"
	@echo "make soak-exactly-once  a Spark query that writes exactly once, killed at every step, on kohort and on Apache Kafka (RUNS=200)"
	@echo "make bench        side by side with Apache Kafka and Spark's own connector (needs a JDK 17+ and Maven)"
	@echo "make hostile      how long an innocent member waits while somebody attacks the broker"
	@echo "make recipes      kohort in tests of FastStream, Quix Streams, Faust, Bytewax, ... (downloads them)"
	@echo "make docs         the site, with every link checked"
	@echo "make dist         build what is published, and try it in clean environments"
	@echo "make lint         ruff, and mypy over src/"

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/kohort/records/_*.c) src/kohort/cluster/_create.c
	@$(OLD_PYTHON)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo:
	@$(OLD_PYTHON)
	@$(PYTHON) tools/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-again: $(READY)  # what failed last, on its own: tells a busy machine from a bug
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none $(TESTS)

browser: $(READY)
	@$(BIN)/python tests/console_browser.py || { echo "the tests of the page need Chromium: apt-get install chromium (Debian), or KOHORT_CHROMIUM=/path/to/chrome make browser"; exit 1; }
	$(BIN)/python -m pytest tests/console/test_browser.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

recipes: $(RECIPES)/.ready
	$(RECIPES)/bin/python -m pytest -q -c /dev/null --rootdir examples -p no:cacheprovider -W ignore examples/recipes examples/control

$(RECIPES)/.ready: pyproject.toml examples/recipes/requirements.txt
	@test -x $(RECIPES)/bin/python || $(PYTHON) -m venv $(RECIPES)
	$(RECIPES)/bin/python -m pip install --quiet --disable-pip-version-check --editable . -r examples/recipes/requirements.txt
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python tools/make_docs.py --check
	$(BIN)/python tools/make_site.py
	@echo "build/site/index.html"

$(VENV)/.docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

dist: $(VENV)/.release
	$(BIN)/python tools/dist.py

$(VENV)/.release: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@touch $@

conformance: $(READY)
	$(BIN)/python -m pytest -m conformance --timeout 1200

moved: $(READY)  # some forty minutes
	KOHORT_MOVED=all $(BIN)/python -m pytest -m conformance --timeout 1200 tests/conformance/test_moved_coordinator.py

sim: $(READY)
	$(BIN)/kohort sim --seeds 10000
	$(BIN)/kohort sim --seeds 2000 --brokers 3

soak: $(READY)
	$(BIN)/python tests/soak.py --minutes 10

soak-cluster: $(READY)
	$(BIN)/python tests/soak.py --minutes 5 --groups 8 --workers 4 --rate 50 --cluster directory
	$(BIN)/python tests/soak.py --minutes 5 --groups 8 --workers 4 --rate 50 --cluster s3

soak-spark: $(READY)
	$(BIN)/python tests/soak_spark_steady.py
	$(BIN)/python tests/soak_spark.py --minutes 6

soak-transactions: $(READY)
	$(BIN)/python tests/soak_transactions.py --minutes 5

soak-exactly-once: $(READY)
	$(BIN)/python tests/soak_exactly_once.py --runs $(RUNS)
	$(BIN)/python tests/soak_exactly_once.py --runs $(RUNS) --kafka
	$(BIN)/python tests/soak_exactly_once.py --runs $(RUNS) --group
	$(BIN)/python tests/soak_exactly_once.py --runs $(RUNS) --group --kafka

bench: $(READY)
	$(BIN)/python bench/run.py

hostile: $(READY)  # attacks for some minutes; a real Kafka beside it where there is a JDK
	$(BIN)/python bench/run.py --only hostile --seconds 10

clean:
	rm -rf $(VENV) $(RECIPES) build dist src/*.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
