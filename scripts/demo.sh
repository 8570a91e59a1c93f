#!/bin/sh
# make demo: install Longboat into .venv and train examples/digits as 2 nodes x 2 processes on this machine.
set -eu
cd "$(dirname "$0")/.."
began=$(date +%s)
echo "Installing Longboat into .venv ..."
sh scripts/environment.sh examples
echo "Installed in $(($(date +%s) - began)) s. Now: longboat run examples/digits/job.yaml"
echo
# As after `. .venv/bin/activate`: ranks find the Python that the user's PATH has first.
PATH="$PWD/.venv/bin:$PATH"
export PATH
longboat run examples/digits/job.yaml
cat <<'END'

That was a training on 2 nodes x 2 processes. What to try next:

  . .venv/bin/activate
  longboat status -
  longboat logs - --rank 0
  longboat run --nodes 2 --procs 2 -- sh -c 'echo "I am rank $RANK of $WORLD_SIZE"'
END
