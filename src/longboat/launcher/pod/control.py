"""Control of a launcher by a program run beside it: `--tell FOLDER stop [GRACE_S]|save|dump`, `--status FOLDER`."""

from __future__ import annotations

import os
import sys
import time

from ..node import processes
from ..node.jsonfiles import dumps, read_json, write_json
from ..node.plan import TOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

EXIT_USAGE, EXIT_NOT_FOUND, EXIT_ENGINE = 201, 202, 205
GRACE_MAX_S = 1e9  # decades; infinity is no time to wait
USAGE = "usage: launcher --tell FOLDER stop [GRACE_S] | --tell FOLDER save|dump | --status FOLDER\n"


def main(argv: list[str]) -> int:
    try:
        if argv[:1] == ["--status"] and len(argv) == 2:
            sys.stdout.write(dumps(status(argv[1])) + "\n")
            sys.stdout.flush()
            return 0
        if argv[2:] == ["dump"]:
            return _tell(argv[1], signal.SIGUSR1, None)
        if argv[2:] == ["save"]:
            return _tell(argv[1], signal.SIGUSR2, {"reason": "save"}, "ending.json")
        if argv[2:3] == ["stop"] and len(argv) <= 4:
            grace_s = float(argv[3]) if len(argv) == 4 else None
            if grace_s is None or 0 <= grace_s <= GRACE_MAX_S:
                return _tell(argv[1], signal.SIGTERM, {"reason": "stop", "grace_s": grace_s, "time": time.time()})
    except ValueError:
        pass
    except OSError as error:
        sys.stderr.write("longboat launcher: %s: %s\n" % (error.filename or "launcher", error.strerror or error))
        return EXIT_ENGINE
    sys.stderr.write(USAGE)
    return EXIT_USAGE


def _tell(folder: str, number: int, request: dict[str, Any] | None, name: str = TOLD) -> int:
    """Write the request file, then send the signal, so that the launcher finds the file."""
    try:
        launcher = read_json(os.path.join(folder, "launcher.json"))
        pid = int(launcher["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        sys.stderr.write("longboat launcher: no launcher runs in %s\n" % folder)
        return EXIT_NOT_FOUND
    if request is not None:
        write_json(os.path.join(folder, name), request)
    if launcher.get("start_ticks") != processes.start_ticks(pid) or not processes.send(pid, number):
        sys.stderr.write("longboat launcher: it has ended\n")
        return EXIT_NOT_FOUND
    return 0


def status(folder: str) -> dict[str, Any]:
    """The status of one node: heartbeat, ended ranks, newest checkpoint."""
    from .checkpoints import kept

    beat = _read(folder, "beat.json")
    plan = _read(folder, "plan.json")
    again = plan.get("again") or {}
    ranks = {rank: _rank(each) for rank, each in (beat.get("ranks") or {}).items()}
    reports = {}
    for name in sorted(os.listdir(folder)):
        if name.startswith("rank-") and name.endswith(".json"):
            report = _read(folder, name)
            reports[str(report.get("rank"))] = report
            row = ranks.setdefault(str(report.get("rank")), {})
            row.update(alive=False, exit_code=report.get("exit_code"), ended_by=report.get("ended_by"))
    return {
        "node": plan.get("node"),
        "pod": plan.get("pod"),
        "is_spare": plan.get("node") in (plan.get("spares") or []),
        "attempt": plan.get("attempt"),
        "began": again.get("began"),
        "restarts": again.get("ended") or [],
        "phase": beat.get("phase") or "starting",
        "missing": beat.get("missing") or [],
        "resumed_from": beat.get("resumed_from"),
        "memory": beat.get("memory"),
        "gpus": beat.get("gpus") or [],
        "problems": beat.get("problems") or _disk_problems(folder),
        "beat_s": max(0.0, time.time() - beat["time"]) if beat.get("time") else None,
        "ranks": ranks,
        "reports": reports,
        "checkpoint": kept(folder, plan.get("checkpoint_dir"), plan.get("checkpoint_store")),
        "outcome": _read(folder, "outcome.json") or None,
        "verdict": _read(folder, "verdict.json") or None,
    }


def _disk_problems(folder: str) -> list[str]:
    """Full disks, checked now: a full disk keeps the heartbeat file from being updated."""
    from ..vendored import load

    problem = load("bundles.disk").full_disk(folder)
    return [problem] if problem else []


def _rank(beat: dict[str, Any]) -> dict[str, Any]:
    """A rank's heartbeat with its silence in seconds, computed here since the reader's clock may differ."""
    times = [float(beat[key]) for key in ("step_time", "output_time", "started") if beat.get(key)]
    silent_s = max(0.0, time.time() - max(times)) if times and beat.get("alive") else None
    return {**beat, "silent_s": silent_s, "exit_code": None}


def _read(folder: str, name: str) -> dict[str, Any]:
    try:
        value = read_json(os.path.join(folder, name))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}
