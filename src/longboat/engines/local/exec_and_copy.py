"""`exec` and `cp`: commands in the ranks' environment, files in and out of their working copies."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longboat.core.errors import NotFound, UsageError
from longboat.core.variables import is_scrubbed
from longboat.engines.local.queue.gpu_isolation import isolated
from longboat.engines.local.records import LocalRecord, LocalState
from longboat.engines.local.runfiles import RunFiles
from longboat.engines.local.supervise.processes import ProcessId, is_alive, kill_until_gone, marked
from longboat.engines.refusals import missing_path, no_rank
from longboat.engines.shared.files import copy, read_value


def execute(
    files: RunFiles,
    state: LocalState,
    command: Sequence[str],
    *,
    node: str | None,
    rank: int | None,
    environment: Mapping[str, str],
    secrets: Mapping[str, str],
) -> int:
    """Run the command as a rank would be run, on the caller's terminal."""
    plan = _plan_of(files, state, node=node, rank=rank)
    chosen = next((r for r in plan["ranks"] if rank is None or r["rank"] == rank), None)
    variables = {**secrets, **plan["env"], **(chosen["env"] if chosen is not None else {})}
    variables["LONGBOAT_CHECKPOINT_DIR"] = plan["checkpoint_dir"]
    variables["LONGBOAT_ARTIFACTS_DIR"] = plan["artifacts_dir"]
    record = files.record()
    if record.image_of(plan["role"]) is not None:
        from longboat.engines.local.containers.enter import enter

        return enter(record, plan, command, variables=variables, environment=environment)
    variables = {**{name: value for name, value in environment.items() if not is_scrubbed(name)}, **variables}
    folders = [*plan["path_prepend"], variables.get("PATH", os.defpath), *plan.get("path_append", ())]
    variables["PATH"] = os.pathsep.join(folders)
    program = shutil.which(command[0], path=variables["PATH"])
    if program is None:
        raise NotFound(f"{command[0]}: command not found in the environment of {plan['node']}")
    argv = isolated(plan.get("hidden_devices", ()), [program, *command[1:]], is_required=plan.get("must_hide", False))
    ended = subprocess.run(argv, cwd=plan["workdir"], env=variables, check=False)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode


def copy_out(
    files: RunFiles, record: LocalRecord, state: LocalState, source: str, destination: Path, *, node: str | None
) -> None:
    path = _place(files, record, state, source, node=node)
    if not path.exists():
        raise missing_path(record.name, source)
    copy(path, destination / path.name if destination.is_dir() else destination)


def copy_in(
    files: RunFiles, record: LocalRecord, state: LocalState, source: Path, destination: str, *, node: str | None
) -> None:
    if not source.exists():
        raise NotFound(f"{source} does not exist")
    target = _place(files, record, state, destination, node=node)
    copy(source, target / source.name if target.is_dir() else target)


def kill_node(files: RunFiles, record: LocalRecord, state: LocalState, node: str, *, launcher_only: bool) -> None:
    """SIGKILL to the launcher of a node, or to all processes of it."""
    plan = _plan_of(files, state, node=node, rank=None)
    launcher = read_value(files.attempt_dir(state.attempt) / str(plan["node"]) / "launcher.json", ProcessId)
    if launcher is None or not is_alive(launcher):
        raise NotFound(f"{node} of {record.name} does not run now")
    with contextlib.suppress(ProcessLookupError):
        os.kill(launcher.pid, signal.SIGKILL)
    if not launcher_only:
        kill_until_gone(lambda: marked(record.uid, node=node, attempt=state.attempt))


def _place(files: RunFiles, record: LocalRecord, state: LocalState, text: str, *, node: str | None) -> Path:
    """A path of the user inside the working copy, the artifacts or the checkpoints."""
    head, _, rest = os.path.normpath(text).partition("/")
    if head == "artifacts":
        root, inner = files.artifacts, rest
    elif head == "checkpoints":
        root, inner = Path(record.checkpoint_dir), rest
    else:
        root, inner = Path(_plan_of(files, state, node=node, rank=None)["workdir"]), text
    place = Path(os.path.normpath(root / inner))
    if os.path.isabs(inner) or not place.is_relative_to(root):
        raise UsageError(f"{text} is outside of the run", hint="give a path relative to the working copy")
    return place


def _plan_of(files: RunFiles, state: LocalState, *, node: str | None, rank: int | None) -> dict[str, Any]:
    folder = files.attempt_dir(state.attempt)
    read = [read_value(path, dict[str, Any]) for path in sorted(folder.glob("*/plan.json"))]
    plans = [plan for plan in read if plan and "node_rank" in plan]
    for plan in sorted(plans, key=lambda plan: int(plan["node_rank"])):
        if node is not None and plan["node"] != node:
            continue
        if rank is not None and all(r["rank"] != rank for r in plan["ranks"]):
            continue
        return plan
    count = sum(len(plan["ranks"]) for plan in plans)
    if rank is not None and not 0 <= rank < count and plans:
        raise no_rank(files.directory.name, rank, count)
    names = ", ".join(sorted(str(plan["node"]) for plan in plans))
    wanted = f"node {node}" if node is not None else f"rank {rank}" if rank is not None else "node"
    raise NotFound(f"the run has no {wanted} to work in", hint=f"nodes: {names}" if names else "it has not started yet")
