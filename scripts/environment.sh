#!/bin/sh
# sh scripts/environment.sh EXTRA: have .venv with Longboat (editable) and the extra `examples` or `dev` of pyproject.toml.
# Quick when nothing has changed: a stamp holds the folder and the pyproject.toml that .venv was made for.
set -eu
cd "$(dirname "$0")/.."
extra=$1
stamp=".venv/.longboat-$extra"
is_recent='import sys; sys.exit(sys.version_info < (3, 10))'

if { pwd; cat pyproject.toml; } | cmp -s - "$stamp" && .venv/bin/python -c "$is_recent" 2>/dev/null; then
    exit 0
fi

choose_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$name" >/dev/null 2>&1 && "$name" -c "$is_recent" 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "error: no Python >= 3.10 found; on Debian 12, Ubuntu 22.04 or newer type: sudo apt-get install -y python3 python3-venv" >&2
    return 1
}

if ! .venv/bin/python -c "$is_recent" 2>/dev/null || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(choose_python)
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        sh scripts/packages.sh "python$version-venv"
    fi
    "$python" -m venv --clear .venv
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! .venv/bin/python -m pip --disable-pip-version-check install --quiet -e ".[$extra]" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: pip could not install Longboat into .venv (is a package index reachable?)" >&2
    exit 1
fi
{ pwd; cat pyproject.toml; } >"$stamp"
