#!/bin/sh
# make demo: install Longboat into .venv and train examples/digits as 2 nodes x 2 processes on this machine.
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s)
echo "Installing Longboat into .venv ..."
sh scripts/environment.sh examples
echo "Installed in $(($(date +%s) - began)) s. Now: longboat run examples/digits/job.yaml"
echo
.venv/bin/longboat run examples/digits/job.yaml
cat <<'END'

That was a training on 2 nodes x 2 processes. What to try next:

  .venv/bin/longboat status -
  .venv/bin/longboat logs - --rank 0
  .venv/bin/longboat run --nodes 2 --procs 2 -- sh -c 'echo "I am rank $RANK of $WORLD_SIZE"'
END
