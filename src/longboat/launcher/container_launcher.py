"""The launcher in a container of this machine: `launcher.pyz --container PLAN.json`. Settles in, then runs the node.

Its stdin is held by the engine: the first line has the secret variables, as JSON; its end says that the engine is gone.
"""

from __future__ import annotations

import os
import sys

from . import node_launcher
from .node.environment import LIFELINE
from .node.jsonfiles import loads
from .node.lifeline import SIGNALS
from .pod.prepare import settle_in
from .ranks.state import LauncherState

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

STDIN = 0


def main(argv: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the node unblocks them once it listens
    if len(argv) != 2:
        sys.stderr.write("usage: launcher --container PLAN.json\n")
        return node_launcher.EXIT_USAGE
    variables = read_variables(STDIN)
    if variables is None:
        sys.stderr.write("longboat launcher: the engine was gone before it said anything\n")
        return node_launcher.EXIT_LOST
    os.environ.update(variables)
    os.environ[LIFELINE] = str(os.dup(STDIN))
    null = os.open(os.devnull, os.O_RDONLY)  # ranks inherit our stdin
    os.dup2(null, STDIN)
    os.close(null)
    return node_launcher.main(argv[1:], before=_settle)


def read_variables(descriptor: int) -> dict[str, str] | None:
    """Read the variables, a JSON object in the first line; None if the stream ends within it."""
    data = b""
    while not data.endswith(b"\n"):
        part = os.read(descriptor, 65536)
        if not part:
            return None
        data += part
    return {str(name): str(value) for name, value in loads(data.decode("utf-8")).items()}


def _settle(state: LauncherState) -> None:
    os.makedirs(os.path.join(state.plan.directory, "home"), exist_ok=True)
    settle_in(state)
