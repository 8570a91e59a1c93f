#!/bin/sh
# make lint: ruff, mypy --strict, the layers, and the grammar of the oldest Python that the launcher has to run on.
set -u
cd "$(dirname "$0")/.."
sh scripts/environment.sh dev || exit 1

failed=""
check() {
    title=$1
    shift
    if output=$("$@" 2>&1); then
        echo "lint $title: ok"
    else
        printf '%s\n' "$output"
        echo "lint $title: FAILED"
        failed="$failed $title"
    fi
}
check ruff .venv/bin/ruff check --output-format concise .
check mypy .venv/bin/mypy
check layers .venv/bin/lint-imports --no-logo
check grammar .venv/bin/python scripts/grammar.py
[ -z "$failed" ]
