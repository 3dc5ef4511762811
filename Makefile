# `make help` lists the targets. A fresh machine needs Python 3.11 or newer, and make; each target installs the rest.

PYTHON ?= python3
VENV := .venv
IN_VENV := $(VENV)/bin/python -m
SOURCES := $(wildcard xbus spark_worker pyspark_xbus.py alembic tests examples benchmarks)

# Tests run side by side in so many processes. Everyday tests mostly wait for what they started, and need less than a core
# each. Those that only make test-slow and make test-old run start whole buses.
test: WORKERS ?= 6
test-slow test-old: WORKERS ?= 4

# Without bytecode that is kept, each process of the tests compiles 100,000 lines before it begins.
unexport PYTHONDONTWRITEBYTECODE

# CI measures the everyday suite, which then fails below the floor in pyproject.toml. ARGS choose tests, without a floor.
COVERAGE ?=
MEASURED := $(if $(COVERAGE),--cov --cov-report=)

# The demo, the benchmarks, the simulation and the torture read these from their environment.
export DB ONLY ENVELOPES ROUNDS FIGURES ITEMS MASTER CYCLES SEED FAULTS RSS FOLDER SCHEDULES SYNCHRONOUS

.DEFAULT_GOAL := help
.PHONY: trial-http trial-failover trial-standby fuzz fuzz-api fuzz-http screenshots help demo demo-spark test test-slow test-again test-spark test-old test-pythons simulate torture lint trial-readers bench bench-peers bench-report bench-spark clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## send all flights of a year through the bus and check them [DB=postgresql://...]
	$(IN_VENV) examples.demo

demo-spark: $(VENV)/.installed-spark  ## sum the same flights up by a Spark worker, check and draw them [MASTER=local[*]|spark://...]
	$(IN_VENV) examples.demo_spark

test: $(VENV)/.installed-dev node-packages axe  ## run the everyday suite [ARGS="tests/unit -k name"] [WORKERS=3] [COVERAGE=1]
	$(IN_VENV) pytest --numprocesses $(WORKERS) --dist worksteal $(or $(ARGS),-m "not slow" $(MEASURED))

test-slow: $(VENV)/.installed-dev node-packages axe  ## run what make test leaves out, or a part of it [PART=2/3] [ARGS=...]
	$(IN_VENV) pytest --numprocesses $(WORKERS) --dist worksteal -m slow $(if $(PART),--part $(PART)) $(ARGS)

test-again: $(VENV)/.installed-dev  ## run the tests again that failed in the last run, one after the other
	$(IN_VENV) pytest --numprocesses 0 --last-failed --last-failed-no-failures none $(if $(COVERAGE),$(MEASURED) --cov-append)

test-spark: $(VENV)/.installed-dev  ## run what needs Spark, on a local session and on a small cluster [PART=1/2] [ARGS=...]
	$(IN_VENV) pytest -o faulthandler_timeout=600 tests/spark -m "not bench" $(if $(PART),--part $(PART)) $(ARGS)

test-old: $(VENV)/.installed-dev  ## run programs of xbus.broker 0.2.0 in their own environments [ARGS=...]
	$(IN_VENV) pytest --numprocesses $(WORKERS) --dist worksteal -o faulthandler_timeout=600 tests/old $(ARGS)

test-pythons: $(VENV)/.installed-dev  ## run the client and the commands on the newer Pythons of this machine
	@$(IN_VENV) tests.pythons

simulate: $(VENV)/.installed-dev  ## play random schedules in virtual time [SCHEDULES=1000] [SEED=1]
	@$(IN_VENV) tests.simulation

trial-readers: $(VENV)/.installed-dev  ## kill and stop programs of a reader while ranges are split and merged [CYCLES=500] [SEED=7] [DB=sqlite|postgresql]
	@$(IN_VENV) tests.fault.reading

trial-http: $(VENV)/.installed-dev  ## kill gateways, broker and subscriber while a shop publishes by HTTP [CYCLES=200] [SEED=7] [DB=sqlite|postgresql]
	@$(IN_VENV) tests.fault.calling

trial-standby: $(VENV)/.installed-dev  ## strike the leader of two brokers in each way, and measure until the other one delivers [CYCLES=20] [SEED=7] [FOLDER=...]
	@$(IN_VENV) tests.fault.leading

trial-failover: $(VENV)/.installed-dev  ## kill, freeze and cut off the primary of PostgreSQL, as root [CYCLES=5] [SEED=7] [FAULTS=...] [SYNCHRONOUS=no] [FOLDER=...]
	@$(IN_VENV) tests.fault.failover

torture: $(VENV)/.installed-dev  ## kill, stop and cut off everything while envelopes flow [CYCLES=20] [SEED=7] [DB=sqlite|postgresql] [FAULTS=...]
	@$(IN_VENV) tests.torture

fuzz: $(VENV)/.installed-fuzz  ## throw random bytes at the decoders and the front's verbs [RUNS=100000]
	$(IN_VENV) tests.fuzz codec $(or $(RUNS),100000)
	$(IN_VENV) tests.fuzz front $(or $(RUNS),100000)

fuzz-http: $(VENV)/.installed-dev $(VENV)/schemathesis/.installed  ## ask the gateway for HTTP for everything, allowed or not [SECONDS=300]
	$(IN_VENV) tests.fuzz.gateway $(or $(SECONDS),300)

fuzz-api: $(VENV)/.installed-dev $(VENV)/schemathesis/.installed  ## ask the monitor's /api for everything, allowed or not [SECONDS=300]
	$(IN_VENV) tests.fuzz.api $(or $(SECONDS),300)

screenshots: $(VENV)/.installed-dev  ## draw the pictures of docs/monitor/ from a bus that runs; needs chromium
	$(IN_VENV) tests.screenshots

lint: $(VENV)/.installed-dev  ## run ruff, mypy and import-linter
	$(IN_VENV) ruff check $(SOURCES)
	$(IN_VENV) ruff format --check $(SOURCES)
	$(IN_VENV) mypy $(filter-out alembic,$(SOURCES))
	$(VENV)/bin/lint-imports

bench: $(VENV)/.installed-dev  ## measure the bus [ONLY=scenario] [DB=sqlite|postgresql|both] [ENVELOPES=100000] [ROUNDS=5] [FIGURES=file]
	$(IN_VENV) benchmarks

bench-peers: $(VENV)/.installed-bench  ## measure other brokers with the same work [ONLY=redis] [ENVELOPES=100000] [ROUNDS=5] [FIGURES=file]
	@$(IN_VENV) benchmarks.peers

bench-report: $(VENV)/.installed-dev  ## write docs/benchmarks.md from figures that were kept [FIGURES=docs/benchmarks/figures.jsonl]
	$(IN_VENV) benchmarks.report $(or $(FIGURES),docs/benchmarks/figures.jsonl) docs

bench-spark: $(VENV)/.installed-dev  ## measure the bus with Spark [ITEMS=5000000] [ONLY=...] [DB=...]
	$(IN_VENV) benchmarks.spark

# The examples in JavaScript are tested where Node.js and npm are. Without the packages those tests are skipped.
node-packages: examples/node/node_modules/.installed
.PHONY: node-packages

examples/node/node_modules/.installed: examples/node/package.json
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	    echo "no Node.js with npm: the examples in JavaScript are not tested"; \
	elif npm install --prefix $(<D) --no-package-lock --no-audit --no-fund --loglevel error; then touch $@; \
	else echo "npm could not install: the examples in JavaScript are not tested"; fi

# Pages of the monitor are examined by axe-core, where npm is. Without it those tests are skipped.
axe: tests/browser/node_modules/.installed
.PHONY: axe

tests/browser/node_modules/.installed: tests/browser/package.json
	@if ! command -v npm >/dev/null; then echo "no npm: pages are not examined by axe-core"; \
	elif npm install --prefix $(<D) --no-package-lock --no-audit --no-fund --loglevel error; then touch $@; \
	else echo "npm could not install: pages are not examined by axe-core"; fi

# Debian's package, unpacked and not installed: its service must not start.
promtool: $(VENV)/bin/promtool  ## fetch promtool and Prometheus, with which tests check metrics and alert rules (19 MB)
.PHONY: promtool

$(VENV)/bin/promtool: | $(VENV)/.installed
	if path=$$(command -v promtool); then ln -s "$$path" $@; else \
	    folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && chmod 755 "$$folder" && \
	    (cd "$$folder" && apt-get download --quiet prometheus) && dpkg-deb --extract "$$folder"/prometheus_*.deb "$$folder" && \
	    cp "$$folder"/usr/bin/prometheus "$$folder"/usr/bin/promtool $(@D); fi

clean:  ## remove all that the other targets made
	rm -rf $(VENV) .venv-old .venv-python .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage* build dist examples/node/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is installed is pinned with its hashes: PINNED of an extra are the packages that it needs, without our own.
PINNED = $(IN_VENV) pip install --quiet --disable-pip-version-check --require-hashes --requirement

# The extras of an installation. server is what one of broker, monitor and gateway consists of.
EXTRAS := broker http inbox monitor objects otel pandas sentry spark
COMPILE = $(VENV)/bin/uv pip compile --quiet --upgrade --universal --no-strip-extras --python-version 3.11 \
    --generate-hashes --no-annotate --custom-compile-command 'make lock'

lock: $(VENV)/bin/uv  ## pin the newest packages that pyproject.toml admits, with their hashes, in requirements/
	for extra in $(EXTRAS) dev; do $(COMPILE) --extra $$extra --output-file requirements/$$extra.txt pyproject.toml || exit 1; done
	$(COMPILE) --extra monitor --extra http --output-file requirements/server.txt pyproject.toml
	for tools in build sbom; do $(COMPILE) --output-file requirements/$$tools.txt requirements/$$tools.in || exit 1; done

$(VENV)/bin/uv: | $(VENV)/.installed
	$(IN_VENV) pip install --quiet --disable-pip-version-check uv

wheel:  ## build the wheel in dist/ by tools that are pinned with their hashes
	rm -rf build/wheel && mkdir -p dist && $(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/build.txt
	build/wheel/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

# The lists are made of installations of their own, so that they name what a machine gets.
sbom: wheel  ## list what pinned installations consist of, in dist/sbom-EXTRA.json (CycloneDX) [EXTRAS="broker spark"]
	rm -rf build/sbom && $(PYTHON) -m venv build/sbom/tools
	build/sbom/tools/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/sbom.txt
	for extra in $(EXTRAS); do $(PYTHON) -m venv build/sbom/$$extra && \
	    build/sbom/$$extra/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/$$extra.txt && \
	    build/sbom/$$extra/bin/pip install --quiet --disable-pip-version-check --no-deps --no-index --find-links dist xbusd && \
	    build/sbom/$$extra/bin/pip uninstall --quiet --yes pip setuptools && \
	    build/sbom/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	        --output-file dist/sbom-$$extra.json build/sbom/$$extra/bin/python || exit 1; done

licences: $(VENV)/.installed-dev  ## check that each package of an extra has a licence that was weighed
	@$(IN_VENV) tests.licences

# An image that changes behind its tag would change what is built. The engine looks the digests up.
images:  ## pin the newest images of deploy/ by their digests; needs docker with buildx, and the registry
	@for image in docker.io/library/python:3.13-slim docker.io/library/postgres:17; do \
	    digest=$$(docker buildx imagetools inspect "$$image" --format '{{.Manifest.Digest}}') || exit 1; \
	    sed -i "s#$$image@sha256:[0-9a-f]*#$$image@$$digest#" deploy/Dockerfile deploy/compose.yaml deploy/ha/Dockerfile || exit 1; \
	    echo "$$image@$$digest"; done
.PHONY: lock wheel sbom licences images

$(VENV)/.installed: pyproject.toml requirements/broker.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "xbus needs Python 3.11 or newer, and $(PYTHON) is not: install one and name it, as in make PYTHON=python3.12" >&2; exit 1; }
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(PINNED) requirements/broker.txt
	$(IN_VENV) pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

$(VENV)/.installed-spark: $(VENV)/.installed requirements/spark.txt
	$(PINNED) requirements/spark.txt
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(IN_VENV) pip install --quiet --disable-pip-version-check atheris
	@touch $@

$(VENV)/schemathesis/.installed: | $(VENV)/.installed
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check 'schemathesis>=4'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(IN_VENV) pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements/dev.txt
	$(PINNED) requirements/dev.txt
	@touch $@
