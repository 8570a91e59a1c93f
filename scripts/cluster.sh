#!/bin/sh
# make cluster: what the testbed needs, then a cluster with a real node (root), or a control plane alone.
set -eu
cd "$(dirname "$0")/.."
sh scripts/environment.sh dev
profile=api
if [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2046  # one word per package
    sh scripts/packages.sh $(sed 's/#.*//' tests/apt-packages.txt)
    profile=pods
else
    echo "not root: a control plane without real nodes" >&2
fi
.venv/bin/python -m testbed up --profile "$profile"
echo "next: .venv/bin/python -m testbed shell    (kubectl speaks to the cluster)"
echo "      .venv/bin/python -m testbed down"
