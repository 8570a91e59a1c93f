"""The launcher in a pod: `launcher.pyz --pod FOLDER ROLE`. Makes everything a node needs, then runs it as any other.

`--pod FOLDER ROLE again`: the same process after a restart in place (`pod.restart.in_place`).

FOLDER is /longboat in a pod; all paths are relative to it, so that a test can have several such folders on one machine.
"""

from __future__ import annotations

import os
import sys
import time
import zlib

from .node.jsonfiles import loads, read_bytes, write_json
from .node.lifeline import SIGNALS
from .node.plan import PlanError, read_plan
from .pod import termination
from .pod.gang_file import GangError, moved, plan_of
from .pod.prepare import make_ready

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

EXIT_INTERNAL, EXIT_USAGE, EXIT_ENGINE = 200, 201, 205
INDEX = "JOB_COMPLETION_INDEX"
FOLLOWED = "LONGBOAT_FOLLOWED_STEP"  # `pod.replica.followed`, which few pods need


def main(argv: list[str]) -> int:
    started = time.time()
    if len(argv) not in (3, 4) or argv[0] != "--pod" or argv[3:] not in ([], ["again"]):
        sys.stderr.write("usage: launcher --pod FOLDER ROLE [again]\n")
        return EXIT_USAGE
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the node unblocks them once it listens
    root, role = os.path.abspath(argv[1]), argv[2]
    try:
        index = int(os.environ.pop(INDEX, "0"))
        gang = read_gang(os.path.join(root, "gang", "gang"))
        followed = os.environ.pop(FOLLOWED, None)
        pod = node = "%s-%d" % (role, index)
        if argv[3:]:
            from .pod.restart.in_place import places_in

            places = places_in(root)
            gang, node = moved(gang, places), places.get(pod, pod)
        raw = {**plan_of(gang, role, int(node.rpartition("-")[2]), root, os.environ), "pod": pod}
        if followed is not None:
            from .pod.replica.followed import with_step

            raw["resume_from"] = with_step(raw["resume_from"], followed)
        if argv[3:]:
            from .pod.restart.in_place import take_over

            raw = take_over(raw)
        return _run(gang, raw, root, started)
    except (GangError, PlanError, ValueError) as error:
        return _give_up(EXIT_INTERNAL, str(error), role, started)
    except OSError as error:
        return _give_up(EXIT_ENGINE, "%s: %s" % (error.filename or "launcher", error.strerror or error), role, started)


def read_gang(path: str) -> dict[str, Any]:
    """Read the gang file. Raises GangError, OSError."""
    try:
        gang: dict[str, Any] = loads(zlib.decompress(read_bytes(path), 31).decode("utf-8"))
        return gang
    except (zlib.error, ValueError) as error:
        raise GangError("%s: not a gang file: %s" % (path, error)) from None


def _run(gang: dict[str, Any], raw: dict[str, Any], root: str, started: float) -> int:
    from .node_launcher import NodeLauncher

    directory = raw["directory"]
    for folder in (directory, raw["workdir"], raw["scratch"], os.path.join(directory, "home")):
        os.makedirs(folder, exist_ok=True)
    raw["started"] = started
    write_json(os.path.join(directory, "plan.json"), raw)
    plan = read_plan(os.path.join(directory, "plan.json"))
    return NodeLauncher(plan, before=lambda state: make_ready(state, gang, root)).run()


def _give_up(code: int, message: str, role: str, started: float) -> int:
    """Report a failure before there is a plan: write the termination message directly."""
    sys.stderr.write("longboat launcher: %s\n" % message)
    facts = {"node": role, "attempt": 0, "exit_code": code, "cause": "lost", "message": message, "ended": time.time()}
    path = os.environ.get("LONGBOAT_TERMINATION_LOG") or "/dev/termination-log"
    termination.write(path, termination.compose({**facts, "started": started, "ended_by": None, "gang": None}))
    return code
