# Everything runs from a fresh clone with Rust, a C compiler and Python 3. `make help` lists the
# targets.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
CARGO  ?= cargo
TEC    ?= target/release/tec
# Tests do not use the user's cache of automatic schedules.
export TEC_NO_CACHE := 1

.DEFAULT_GOAL := build
.PHONY: help build run test test-rust lint test-python test-oracle oracle golden bless fuzz \
        damage bench bench-launch size dump test-cross test-slurm test-exhaustive gpu-check \
        gpu-check-bundle

help:                ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 24

build:               ## the release build: target/release/tec
	$(CARGO) build --release

run: build $(VENV)/ready  ## compile samples/matmul.te, call it from Python, check and time it
	$(TEC) build samples/matmul.te --schedule fast -o target/matmul.so
	$(PY) samples/matmul.py target/matmul.so

test: test-rust test-python test-oracle  ## format, clippy and every test, those in Python included

test-rust:           ## format, clippy and the tests in Rust; ptxas is of the environment
	@$(MAKE) --no-print-directory -j2 lint $(VENV)/ready
	$(CARGO) test --workspace

lint:                ## format and clippy
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test-python: $(VENV)/engines  ## the tests in Python, with the debug build
	$(CARGO) build
	TEC=target/debug/tec $(PY) -m pytest -q -n auto tests/python

test-oracle: $(VENV)/ready  ## the NumPy oracle: its own tests, then a few hundred programs
	$(CARGO) build
	TEC=target/debug/tec $(PY) -m pytest -q tests/oracle
	TEC=target/debug/tec $(PY) -m tests.oracle 400 0 --no-auto

oracle: build $(VENV)/ready  ## N random programs from SEED on, checked by the NumPy oracle
	TEC=$(TEC) $(PY) -m tests.oracle $(N) $(SEED)

golden:              ## golden tests whose path contains T: make golden T=lower/conv
	TEC_GOLDEN='$(T)' $(CARGO) test --test golden

bless:               ## rewrites the expectations of the golden tests whose path contains T
	@test -n '$(T)' || { echo 'say which: make bless T=lower/conv'; exit 2; }
	TEC_BLESS=1 TEC_GOLDEN='$(T)' $(CARGO) test --test golden

N    ?= 10000
SEED ?= 0
fuzz:                ## N random programs, and N with schedules, from SEED on
	TEC_FUZZ_N=$(N) TEC_FUZZ_SEED=$(SEED) $(CARGO) test --release --test fuzz -- --nocapture

damage:              ## N damaged inputs of each kind: sources, modules, records, .npy, PTX, frames
	TEC_FUZZ_N=$(N) TEC_FUZZ_SEED=$(SEED) $(CARGO) test --release --test fuzz damaged -- --nocapture

bench: build $(VENV)/ready  ## time to compile, size of a module, cost of a checked call
	$(PY) tests/python/bench.py $(TEC)

bench-launch: build  ## what a parallel loop costs beside its iterations
	@$(TEC) build samples/vector_add.te -o target/launch.tar
	@tar xf target/launch.tar -C target tec_runtime.o
	@$(CC) -O2 -D_GNU_SOURCE tests/c/launch_cost.c target/tec_runtime.o \
	    -o target/launch_cost
	target/launch_cost 1 2 4

gpu-check: build     ## GPU samples against PyTorch: right, and how fast; skipped without a GPU
	$(PYTHON) tools/gpu_check.py --tec $(TEC) --out target/gpu-check.json

gpu-check-bundle: build  ## the same as an archive, for a machine with a GPU and without Rust
	$(PYTHON) tools/gpu_check.py --tec $(TEC) --bundle target/gpu-check.tar.gz

size:                ## lines of each source file; fails where a file is over the cap of 800
	@find src -name '*.rs' | xargs wc -l | sort -n
	@find src -name '*.rs' | xargs wc -l | \
	    awk '$$2 != "total" && $$1 > 800 { print $$2 " is over 800"; bad = 1 } END { exit bad }'

P ?= all
dump:                ## the loop IR of F after pass P: make dump F=samples/conv.te P=simplify
	@test -n '$(F)' || { echo 'say which: make dump F=samples/conv.te P=simplify'; exit 2; }
	$(CARGO) run -q -- lower $(F) --dump $(P)

test-cross:          ## every bit as on other architectures, under qemu; says what is skipped
	$(CARGO) build
	$(PYTHON) tests/cross/run.py target/debug/tec

test-slurm:          ## --runner and --on with a real Slurm on this machine (slurm-wlm, root)
	$(CARGO) build
	tests/slurm/run.sh target/debug/tec

FUNCTIONS := rsqrt exp exp2 expm1 log log2 tanh sigmoid erf sin cos tan atan
STRIDE    ?= 1
test-exhaustive:     ## every float32 through function F: make test-exhaustive F=exp (all without F)
	@for f in $(or $(F),$(FUNCTIONS)); do \
	    TEC_EXHAUSTIVE=$$f TEC_STRIDE=$(STRIDE) $(CARGO) test --release --test suite \
	        math::exhaustive -- --nocapture || exit 1; \
	done

# The packages of requirements.txt. Debian ships Python without `ensurepip`; there the environment
# is made by `virtualenv` if it is installed.
$(VENV)/ready: requirements.txt
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || \
	{ rm -rf $(VENV); $(PYTHON) -m virtualenv -q $(VENV) 2>/dev/null; } || { \
	    rm -rf $(VENV); \
	    echo 'Python cannot make a virtual environment: install the package python3-venv'; \
	    echo '(Debian: apt install python3-venv),'; \
	    echo 'or give another Python: make PYTHON=python3.11 run'; exit 1; }
	$(PY) -m pip install -q --disable-pip-version-check -r requirements.txt
	@touch $@

# Dask and Ray are larger than all other packages together: only their tests wait for them.
$(VENV)/engines: tests/python/requirements-engines.txt $(VENV)/ready
	$(PY) -m pip install -q --disable-pip-version-check -r $<
	@touch $@
