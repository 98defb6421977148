# make demo    the whole portal with a small company in it     make demo ARGS="--port 9000 --data DIR"
# make up      the portal alone, empty                         make up ARGS="--port 9000"
# make test    the tests                                       make test ARGS="tests/setup -n0 -k port"
# make lint    style                                           make bench ONLY=booking JSON=booking.json
PYTHON ?= python3
VENV := .venv/bin
# compiled files are what makes a second start quick
unexport PYTHONDONTWRITEBYTECODE
.PHONY: setup demo up test lint format bench lock

setup:
	@$(PYTHON) deploy/setup.py

demo: setup
	@exec $(VENV)/berth demo $(ARGS)

up: setup
	@exec $(VENV)/berth up $(ARGS)

test: setup
	@$(VENV)/python -m pytest $(ARGS)

lint: setup
	@$(VENV)/ruff check .
	@$(VENV)/ruff format --check .

format: setup
	@$(VENV)/ruff check --fix .
	@$(VENV)/ruff format .

bench: setup
	@$(VENV)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON)) $(ARGS)

# The only target that needs uv, in an environment of its own: resolve requirements/*.in anew.
UV_COMPILE = .venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
lock:
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --require-hashes -r requirements/lock.txt
	@for one in runtime dev lock; do $(UV_COMPILE) $(LOCK) requirements/$$one.in -o requirements/$$one.txt || exit 1; done
	@rm -rf .venv-lock
