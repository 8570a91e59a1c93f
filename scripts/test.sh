#!/bin/sh
# make test: what the tests need, lint, the tests; one line per phase with its time.
# Arguments go to pytest: sh scripts/test.sh tests/core -k jobs
set -u
cd "$(dirname "$0")/.."
failed=""

phase() {
    title=$1
    shift
    began=$(date +%s)
    if "$@"; then result=ok; else
        result=FAILED
        failed="$failed $title"
    fi
    echo "phase $title: $result, $(($(date +%s) - began)) s"
}
system_packages() {
    # shellcheck disable=SC2046  # one word per package
    sh scripts/packages.sh $(sed 's/#.*//' tests/apt-packages.txt) ||
        echo "going on without them: the tests that need them are skipped"
}
# Clusters, nodes and trainers side by side on few cores: a test that fails there is tried once more by itself, and is
# named either way. One that passes only alone is a fault to look into, not a reason to lose the run.
# A run that takes far too long ends with a summary, before somebody cuts it off without one.
tests() {
    [ -n "${LONGBOAT_TEST_SOAK:-}" ] || set -- --session-timeout 3300 "$@"
    .venv/bin/python -m pytest -n "${LONGBOAT_TEST_WORKERS:-3}" --dist loadgroup --durations=20 "$@"
    code=$?
    [ $code -eq 1 ] || return $code # nothing failed, or the run was broken off: then most tests were not run at all
    .venv/bin/python scripts/unstable.py few || return 1
    echo "once more, by themselves: the tests that failed"
    .venv/bin/python -m pytest --last-failed --last-failed-no-failures none -rA -p no:randomly "$@" |
        grep -E '^(PASSED|FAILED|ERROR|=+ .*(passed|failed|error))'
    .venv/bin/python scripts/unstable.py none
}

# What tests need is made before they run, so that no test waits for a build; what cannot be made is skipped there.
testbed() {
    .venv/bin/python -m testbed build || echo "going on without it: the tests that need a cluster are skipped"
}
frameworks() {
    .venv/bin/python tests/frameworks/environments.py || echo "going on without: the tests that need them are skipped"
}
stores() {
    .venv/bin/python tests/storage/realstores.py || echo "going on without: the tests that need them are skipped"
}
clouds() {
    .venv/bin/python tests/clusters/cloud/servers.py || echo "going on without: the tests that need them are skipped"
}
samplers() {
    .venv/bin/python tests/sweeps/optuna_packages.py || echo "going on without: the tests that need it are skipped"
}
browser() {
    .venv/bin/python tests/web/browser.py || echo "going on without: the tests that need it are skipped"
}

phase packages system_packages
phase environment sh scripts/environment.sh dev
if [ -z "$failed" ]; then
    phase testbed testbed
    phase frameworks frameworks
    phase stores stores
    phase clouds clouds
    phase browser browser
    phase samplers samplers
    phase lint sh scripts/lint.sh
    phase tests tests "$@"
fi
if [ -n "$failed" ]; then
    echo "make test: FAILED:$failed"
    exit 1
fi
echo "make test: ok"
