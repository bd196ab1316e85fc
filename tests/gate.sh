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

# Most tests wait, for a process to start or a second to pass: three at a time keep two cores busy.
step "pytest: unit, property and process tests, three at a time"
python -m pytest -q -n 3 --dist loadgroup -m "not e2e and not engines and not live"
# Fleets keep deadlines in seconds: no more of them at a time than there are cores.
step "pytest: whole fleets, two files at a time"
python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "e2e and not engines and not live" --durations=12
if [ "$engines" = true ]; then
    # Three of these are at work at once on the cores there are: beside others they would stand still for seconds.
    step "pytest: real engines, one test at a time"
    python -m pytest -q -n 0 -m "engines and not live" --durations=6
else
    printf '\nleft out: the real vLLM-on-CPU tests (marked engines); run ./install.sh test --engines\n'
fi
