# Two commands for a fresh machine, which needs Python 3.11 or newer and make:
#   make demo   all flights of a year through the bus, checked       DB=postgresql://... for that database
#   make test   the whole suite                                      ARGS="tests/unit -k name" for some of it
# and one for Spark, which brings it from the package index, and Java too where the machine has none:
#   make demo-spark   the same flights summed up by a Spark worker, checked and drawn   MASTER=local[*]|spark://...
# and for those who work on it:
#   make torture   everything is killed, stopped and cut off while envelopes flow: nothing acknowledged is lost
#                  CYCLES=20 SEED=7 DB=sqlite|postgresql FAULTS=all|broker-kill,... see docs/reliability.md
#   make simulate   random schedules in virtual time   SCHEDULES=1000 SEED=1
#   make test-spark   what runs on Spark, on a local session and on a cluster of a master and two workers
#   make test-old   old programs in their own environments; needs Python 3.6 and 3.8, see docs/development.md
#   make lint   make bench [ONLY=scenario] [DB=sqlite|postgresql|both]   make clean
#   make bench-spark   as bench, with ITEMS=5000000 for the one event of the bulk transform

PYTHON ?= python3
VENV := .venv
IN_VENV := $(VENV)/bin/python -m
SOURCES := $(wildcard xbus spark_worker pyspark_xbus.py alembic tests examples benchmarks)

# Tests run side by side in so many processes; one more than two cores, because a test often waits for what it started.
WORKERS ?= 3

# The demo, the benchmarks, the simulation and the torture read these from their environment.
export DB ONLY ITEMS MASTER CYCLES SEED FAULTS RSS FOLDER SCHEDULES

.PHONY: demo demo-spark test test-spark test-old simulate torture lint bench bench-spark clean
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	$(IN_VENV) examples.demo

demo-spark: $(VENV)/.installed-spark
	$(IN_VENV) examples.demo_spark

test: $(VENV)/.installed-dev
	$(IN_VENV) pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

test-spark: $(VENV)/.installed-dev
	$(IN_VENV) pytest -o faulthandler_timeout=600 tests/spark -m "not bench" $(ARGS)

test-old: $(VENV)/.installed-dev
	$(IN_VENV) pytest --numprocesses $(WORKERS) --dist worksteal -o faulthandler_timeout=600 tests/old $(ARGS)

simulate: $(VENV)/.installed-dev
	@$(IN_VENV) tests.simulation

torture: $(VENV)/.installed-dev
	@$(IN_VENV) tests.torture

lint: $(VENV)/.installed-dev
	$(IN_VENV) ruff check $(SOURCES)
	$(IN_VENV) ruff format --check $(SOURCES)
	$(IN_VENV) mypy $(filter-out alembic,$(SOURCES))
	$(VENV)/bin/lint-imports

bench: $(VENV)/.installed-dev
	$(IN_VENV) benchmarks

bench-spark: $(VENV)/.installed-dev
	$(IN_VENV) benchmarks.spark

clean:
	rm -rf $(VENV) .venv-old .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "xbus needs Python 3.11 or newer, and $(PYTHON) is not: install one and name it, as in make PYTHON=python3.12" >&2; exit 1; }
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(IN_VENV) pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-spark: $(VENV)/.installed
	$(IN_VENV) pip install --quiet --disable-pip-version-check --editable '.[spark]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(IN_VENV) pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
