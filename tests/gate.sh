#!/usr/bin/env bash
# The gate: format, lint, types, import contracts, tests. One command, the same everywhere; install.sh calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
engines=${1:-false}
# A machine that others use too may be two times slower than it was yesterday. Whole fleets and real engines are begun for so many
# minutes from the first line of the set-up on, the engines for ten of them; what that leaves out is counted at the end, and begun early in other runs.
minutes=${FLEETCTL_TEST_MINUTES:-70}
engine_minutes=10
began=${FLEETCTL_TESTS_BEGAN:-$(date +%s)}

step() { printf '\n==> %s\n' "$*"; }
# Byte code that is written is read by every worker and by the thousands of interpreters that tests start. Pytest writes its
# own as it collects, which takes a core half a minute: done beside mypy, which has the other core. Where no test runs,
# none of the screens' snapshots is used, and that is no fault.
unset PYTHONDONTWRITEBYTECODE
collected=$(mktemp)
unsteady=""
left=$(mktemp)
finish() {
    if [ -s "$left" ]; then
        printf '\n%s tests were not begun, as %s minutes were over: they take turns, and FLEETCTL_TEST_MINUTES=0 begins all:\n' \
            "$(wc -l <"$left")" "$minutes"
        sed 's/::.*//' "$left" | sort | uniq -c
    fi
    rm -f "$collected" "$left"
    [ -z "$unsteady" ] || printf '\npassed only once they ran alone, and each is to be mended:\n%s' "$unsteady"
}
trap finish EXIT
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

# Whatever `limited` runs after the end (in seconds since 1970) begins no more tests; files take turns by the commit.
limited() { # END COMMAND...
    local end=$1 head
    shift
    if [ "$minutes" -eq 0 ]; then
        "$@"
        return
    fi
    head=$(git rev-parse HEAD 2>/dev/null || date +%s)
    FLEETCTL_TESTS_END=$end FLEETCTL_TESTS_TURN=$((16#${head:0:6})) FLEETCTL_TESTS_LEFT=$left "$@"
}

# Those that failed beside others, of which there may be five, have the machine to themselves once more: a fault of the
# project's fails again, and deadlines that were missed for want of a core are kept. Whatever needed it is named at the end.
suite() { # MARKERS, and the options that run them beside each other
    local cache rc=0 failed
    cache=$(mktemp -d)
    python -m pytest -q -o cache_dir="$cache" -m "$@" || rc=$?
    if [ "$rc" -eq 1 ]; then
        failed=$(python -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed")
        if [ "$(wc -l <<<"$failed")" -le 5 ]; then
            step "pytest: what failed, once more and alone"
            rc=0
            FLEETCTL_TESTS_END="" python -m pytest -v -n 0 -o cache_dir="$cache" --last-failed -m "$1" || rc=$?
            [ "$rc" -ne 0 ] || unsteady+=$failed$'\n'
        fi
    fi
    rm -rf "$cache"
    return "$rc"
}

# Most tests wait, for a process to start or a second to pass: four at a time keep two cores busy.
step "pytest: unit, property and process tests, four at a time"
suite "(waits or not e2e) and not engines and not live" -n 4 --dist loadgroup
end=$((began + 60 * minutes))
if [ "$engines" = true ]; then
    # Three of these are at work at once on the cores there are: beside others they would stand still for seconds.
    step "pytest: real engines, one test at a time"
    now=$(date +%s)
    engines_end=$((now + 60 * engine_minutes))
    limited $((engines_end < end ? engines_end : end)) suite "engines and not live" -n 0 --durations=6
else
    printf '\nleft out: the real vLLM-on-CPU tests (marked engines); run ./install.sh test --engines\n'
fi
# Fleets keep deadlines in seconds, and have computed for a tenth to a third of the time: three files share two cores.
step "pytest: whole fleets, three files at a time"
limited "$end" suite "e2e and not waits and not engines and not live" -n 3 --dist loadfile --no-loadscope-reorder --durations=12
