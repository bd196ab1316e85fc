#!/usr/bin/env bash
# The gate: format, lint, types, import contracts, tests. One command, the same everywhere; install.sh calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
engines=${1:-false}

step() { printf '\n==> %s\n' "$*"; }
step "ruff format --check"
ruff format --check .
step "ruff check"
ruff check .
step "mypy --strict"
mypy
step "lint-imports"
lint-imports | sed -n '/^Analyzed/,$p'
step "shell scripts parse"
bash -n install.sh tests/gate.sh .ci/run

step "pytest: unit, property and process tests, on two workers"
python -m pytest -q -n 2 --dist loadgroup -m "not e2e and not engines and not live"
step "pytest: whole fleets, two files at a time"
python -m pytest -q -n 2 --dist loadfile -m "e2e and not engines and not live"
if [ "$engines" = true ]; then
    step "pytest: real engines"
    python -m pytest -q -n 0 -m "engines and not live"
else
    printf '\nleft out: the real vLLM-on-CPU tests (marked engines); run ./install.sh test --engines\n'
fi
