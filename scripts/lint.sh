#!/bin/sh
# make lint: ruff, format, mypy --strict, the layers, our own rules of the tree, and the grammar of the launcher's oldest Python.
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
check format .venv/bin/ruff format --check .
check mypy .venv/bin/mypy
check layers .venv/bin/lint-imports --no-logo
check grammar .venv/bin/python scripts/grammar.py
check unused .venv/bin/vulture
check house .venv/bin/python scripts/house.py
[ -z "$failed" ]
