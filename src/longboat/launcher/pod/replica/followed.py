"""Checkpoint of a served replica whose service follows a run: another step than the one it was made with.

`launcher.pyz --checkpoints FOLDER newest|best|promoted [METRIC]` prints which complete checkpoints there are by now,
where this replica has its own from: in a folder, or in an object store with the variables of the pod. Which of them is
served is decided elsewhere, and comes back as the variable `LONGBOAT_FOLLOWED_STEP` of the next pods: a number, and no
place.
"""

from __future__ import annotations

import os
import re
import signal
import sys

from ...node.jsonfiles import dumps, read_json
from ...vendored import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping

MOST = 1000
"""Checkpoints that are told of, the newest, each with one metric: their answer stays below one MiB."""
MOST_READ = 200
"""Of those in an object store whose metrics are read: each takes a request or two, at every look."""
LONGEST_S = 60
"""Whoever asked has gone by then. Nothing else ends a program that was run beside a pod's own, and more would gather of
a store that does not answer."""
_NAME = re.compile(r"step-\d{1,18}")
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


def with_step(resume: str | None, step: str) -> str | None:
    """The same place with another step. Raises ValueError for what is no step."""
    if not _NUMBER.fullmatch(step):
        raise ValueError("the step to be served is none: %.40r" % step)
    return None if resume is None else "%s/step-%d" % (place_of(resume), int(step))


def place_of(resume: str) -> str:
    """Where all checkpoints of the run are: the folder or address above that of a step."""
    parent, _, name = resume.rstrip("/").rpartition("/")
    return parent if _NAME.fullmatch(name) else resume.rstrip("/")


def main(argv: list[str]) -> int:
    signal.alarm(LONGEST_S)
    try:
        plan = read_json(os.path.join(argv[1], "node", "plan.json"))
        place = place_of(str(plan["resume_from"]))
        environment = dict(os.environ, **(plan.get("env") or {}))
        metric = argv[3] if argv[3:] and argv[2] == "best" else None
        sys.stdout.write(dumps(look(place, environment, metric)))
        sys.stdout.flush()
        return 0
    except Exception as error:  # whoever asked shows it
        sys.stderr.write("%s\n" % (getattr(error, "message", None) or "%s: %s" % (type(error).__name__, error)))
        return 1


def look(place: str, environment: Mapping[str, str], metric: str | None) -> dict[str, Any]:
    """Complete checkpoints with this metric, where they have it, and the steps of those that were promoted."""
    from pathlib import Path

    if "://" in place:
        mirror = load("storage.checkpoint_mirror").Mirror(place, environment)
        candidates, promoted = mirror.candidates(most_read=0 if metric is None else MOST_READ)
    else:
        candidates, promoted = load("storage.checkpoints").candidates(Path(place))
    newest = sorted(candidates, key=lambda each: each.step)[-MOST:]
    listed = [[each.step, _chosen(each.metrics, metric)] for each in newest]
    return {"checkpoints": listed, "promoted": sorted(promoted)[-MOST:]}


def _chosen(metrics: Mapping[str, float], metric: str | None) -> dict[str, float]:
    """The one that is asked for. A loss that is no number any more is none that could be the best."""
    value = metrics.get(metric or "")
    return {} if metric is None or value is None or value - value != 0 else {metric: value}
