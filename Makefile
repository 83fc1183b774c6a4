# cc-tts: each target installs what it needs, once.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CONFIG ?= configs/first_call.toml
LANGUAGE := zh
SECONDS := 60
SEED   := 0
STAMP  := $(VENV)/.installed
DEVSTAMP := $(VENV)/.installed-dev
UASTAMP := $(VENV)/.installed-pjsua2
DOCSTAMP := build/docs-tools/.installed
NEURALSTAMP := $(VENV)/.installed-neural
KOKOROSTAMP := $(VENV)/.installed-kokoro
# make voices puts voices there; a configuration of your own names its folder itself
VOICES := $(if $(and $(wildcard voices),$(filter configs/first_call.toml,$(CONFIG))),--set tts.voices_dir=voices)

HAS_TORCH = $(BIN)/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'
# where PyTorch is not installed all of it is Any: what strict mode says of Any then is not about our code
WITHOUT_TORCH := --allow-subclassing-any --allow-untyped-decorators --no-warn-return-any --no-warn-unused-ignores --no-warn-unreachable

NOT_SLOW := $(if $(COMPLETE),,-m "not slow")

# Without bytecode each of the many processes that tests start would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo voices cluster-demo run test test-quick test-asterisk test-gpu gpu-check unit check bench bench-engine fuzz neural parity clients docs pjsua2 lock clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{ name[NR] = $$1; text[NR] = $$2; if (length($$1) > width) width = length($$1) } END { for (i = 1; i <= NR; i++) printf "  make %-" width "s  %s\n", name[i], text[i] }'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cc-tts needs Python 3.11 or later; set PYTHON=/path/to/python3.12")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): requirements/default.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing the pinned dependencies into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/default.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# PyPI has wheels of pjsua2 for Python 3.11 and 3.12 on x86-64 only; elsewhere it is compiled, which takes four minutes.
$(UASTAMP): $(STAMP)
	@$(BIN)/python -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pjsua2") is None)' || PJPROJECT_WORK='$(CURDIR)/build/pjproject' $(BIN)/cc-tts pjsua2 build
	@touch $@

$(DEVSTAMP): requirements/dev.lock requirements/remote.txt $(STAMP)
	@echo "installing the pinned development tools into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock -r requirements/remote.txt
	@touch $@

$(KOKOROSTAMP): requirements/kokoro.txt $(STAMP)
	@echo "installing what Chinese voices need into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/kokoro.txt
	@touch $@

$(NEURALSTAMP): requirements/neural.txt $(DEVSTAMP)
	@echo "installing PyTorch and what else the neural engine needs into $(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/neural.txt
	@touch $@

demo: $(UASTAMP) ## a real SIP call on loopback: leaves demo.wav and demo.html, and prints a table
	$(BIN)/python -m bench.demo

voices: $(KOKOROSTAMP) ## a natural voice of a language into ./voices, where make demo and make run find it: LANGUAGE=zh; FROM=DIR without a network
	$(BIN)/cc-tts voices add '$(LANGUAGE)' --to voices $(if $(FROM),--from '$(FROM)')

cluster-demo: $(DEVSTAMP) $(UASTAMP) ## two nodes, two workers, Kamailio, 40 calls; kills one of each and prints what callers heard
	$(BIN)/python -m bench.cluster_demo

run: $(UASTAMP) ## serve until Ctrl-C, then drain: dial sip:hello@127.0.0.1:5060; CONFIG=FILE: your configuration
	$(BIN)/cc-tts serve --config '$(CONFIG)' $(VOICES)

check: $(DEVSTAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check cc_tts lab tests bench examples deploy
	$(BIN)/ruff check cc_tts lab tests bench examples deploy
	@$(HAS_TORCH) || echo "mypy: PyTorch is not installed, so code that uses it is checked without it: make neural"
	$(BIN)/mypy $(shell $(HAS_TORCH) || echo $(WITHOUT_TORCH))
	$(BIN)/lint-imports

unit: $(DEVSTAMP) $(UASTAMP) ## the quick tests only, on every core
	$(BIN)/pytest -q -n auto $(NOT_SLOW) tests/unit tests/architecture

test: $(DEVSTAMP) $(UASTAMP) ## everything but what is slow, as what waits for real timers; COMPLETE=1: that too, as CI does
	$(MAKE) --no-print-directory --jobs=2 test-asterisk test-quick
	PYTEST=$(BIN)/pytest tests/run.sh -q -n 8 --dist worksteal --ignore=tests/unit $(NOT_SLOW) --ignore-glob='*/test_asterisk*.py' --durations=25

test-quick: # at a low priority, beside the tests with Asterisk
	nice $(MAKE) --no-print-directory check
	PYTEST=$(BIN)/pytest nice tests/run.sh -q -n auto $(NOT_SLOW) tests/unit

# They mostly wait, but not beside the others: what Asterisk records is compared frame by frame. Their report is printed when they
# are over. Then one process compiles the other tests, so that not eight do it at once.
test-asterisk:
	PYTEST=$(BIN)/pytest tests/run.sh -q -n 2 --dist loadfile -o cache_dir=.pytest_cache/asterisk tests/e2e/test_asterisk*.py >$(VENV)/test-asterisk.txt 2>&1; status=$$?; nice $(BIN)/pytest -q --collect-only tests/architecture tests/integration tests/e2e >/dev/null 2>&1; cat $(VENV)/test-asterisk.txt; exit $$status

fuzz: $(DEVSTAMP) ## coverage-guided fuzzing of what reads hostile bytes, with atheris; SECONDS=N, over all targets; SEED=N: the same inputs again
	[ -e build/fuzz/atheris ] || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target build/fuzz -r requirements/fuzz.txt
	PYTHONPATH=build/fuzz $(BIN)/python -m tests.fuzz.run_fuzz --seconds $(SECONDS) --seed $(SEED)

test-gpu: $(DEVSTAMP) $(NEURALSTAMP) ## tests that need a CUDA device; skipped without one
	$(BIN)/pytest -q -m gpu tests/gpu

gpu-check: $(DEVSTAMP) $(NEURALSTAMP) ## is the neural engine right on this card, and how many streams does it carry: a table in under ten minutes; GOLDEN=DIR
	$(BIN)/python -m bench.engine.gpu_check $(if $(GOLDEN),--golden '$(GOLDEN)')

bench: $(UASTAMP) ## speed, measured on the wire; results to bench/results/
	$(BIN)/python -m bench.first_audio

bench-engine: $(NEURALSTAMP) ## the neural engine's speed and quality gates, small weights on the CPU; results to bench/results/
	$(BIN)/python -m bench.engine.ladder --name engine_ladder
	$(BIN)/python -m bench.engine.comparable --name engine_comparable
	$(BIN)/python -m bench.engine.phone --name engine_phone
	$(BIN)/python -m bench.engine.quality --name engine_quality

neural: $(NEURALSTAMP) ## install PyTorch and the other packages of the neural engine; its tests skip without them

parity: $(NEURALSTAMP) ## the networks of the neural engine against the reference's numbers; GOLDEN=DIR: at full size
	$(BIN)/python -m tests.parity $(if $(GOLDEN),'$(GOLDEN)' --size full,tests/data/golden --size tiny) --engine

docs: $(DOCSTAMP) ## the documents as a site in build/docs, with a search in English and Chinese; a dead link is an error
	NO_MKDOCS_2_WARNING=1 build/docs-tools/bin/mkdocs build
	@echo "open build/docs/index.html"

$(DOCSTAMP): requirements/docs.txt
	$(PYTHON) -m venv build/docs-tools
	build/docs-tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@

clients: $(STAMP) ## install the client packages of other systems into build/, for their tests: 807 MB, with Node.js 180 MB more; JAMBONZ=1: 80 MB more
	[ -x build/clients/bin/python ] || $(BIN)/python -m venv build/clients
	build/clients/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/clients.txt
	@command -v npm >/dev/null || echo "npm is not installed: the tests of client packages for Node.js are skipped"
	@! command -v npm >/dev/null || { mkdir -p build/clients-npm && cp requirements/npm/*.json build/clients-npm && cd build/clients-npm && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error$(if $(JAMBONZ),, --omit=dev); }

pjsua2: $(STAMP) ## build pjsua2 for 2,000 calls instead of 4, in four minutes; CC_TTS_PJSUA2=server selects it
	PJPROJECT_WORK='$(CURDIR)/build/pjproject' $(BIN)/cc-tts pjsua2 build

lock: $(DEVSTAMP) ## renew requirements/*.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	requirements/renew.sh $(BIN)/uv

clean: ## remove what the targets created
	rm -rf $(VENV) build/docs build/docs-tools build/pjproject demo.wav demo.html demo.json
