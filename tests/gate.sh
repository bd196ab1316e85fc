#!/usr/bin/env bash
# The gate: format, lint, types, import contracts, tests. One command, the same everywhere; install.sh calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
engines=${1:-false}

step() { printf '\n==> %s\n' "$*"; }
# Byte code that is written is read by every worker and by the thousands of interpreters that tests start. Pytest writes its
# own as it collects, which takes a core half a minute: done beside mypy, which has the other core. Where no test runs,
# none of the screens' snapshots is used, and that is no fault.
unset PYTHONDONTWRITEBYTECODE
collected=$(mktemp)
trap 'rm -f "$collected"' EXIT
{ python -m compileall -q -j 0 ctl providers tests && python -m pytest -qq --collect-only --snapshot-warn-unused; } >"$collected" 2>&1 &
collecting=$!

step "ruff format --check"
ruff format --check .
step "ruff check"
ruff check .
step "mypy --strict"
mypy
step "lint-imports"
lint-imports | sed -n '/^Analyzed/,$p'
step "every test is collected"
wait "$collecting" || { cat "$collected"; exit 1; }
step "shell scripts parse"
bash -n install.sh tests/gate.sh .ci/run

# Most tests wait, for a process to start or a second to pass: four at a time keep two cores busy.
step "pytest: unit, property and process tests, four at a time"
python -m pytest -q -n 4 --dist loadgroup -m "(waits or not e2e) and not engines and not live"
# Fleets keep deadlines in seconds, and have computed for a tenth to a third of the time: three files share two cores.
step "pytest: whole fleets, three files at a time"
python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m "e2e and not waits and not engines and not live" --durations=12
if [ "$engines" = true ]; then
    # Three of these are at work at once on the cores there are: beside others they would stand still for seconds.
    step "pytest: real engines, one test at a time"
    python -m pytest -q -n 0 -m "engines and not live" --durations=6
else
    printf '\nleft out: the real vLLM-on-CPU tests (marked engines); run ./install.sh test --engines\n'
fi
