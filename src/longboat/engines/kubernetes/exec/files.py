"""Commands in the environment of a run's ranks (`longboat exec`) and files in and out of it (`longboat cp`).

While a node's pod runs, everything is done in it by exec. Of a run that has ended, checkpoints and artifacts are read
from its storage through a helper pod; its working copies went with its pods.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from longboat.core.errors import EngineError, NotFound, UsageError
from longboat.core.jobs import Value
from longboat.engines.kubernetes.exec import pod_program
from longboat.engines.kubernetes.exec.launcher_calls import ask_status
from longboat.engines.kubernetes.exec.pod_exec import Remote, command_of
from longboat.engines.kubernetes.manifests.volumes import NODE, is_inside
from longboat.engines.kubernetes.observe.node_loss import is_reachable
from longboat.engines.kubernetes.observe.places import as_played
from longboat.engines.kubernetes.observe.restarts import attempts_of_pods, with_restarts
from longboat.engines.kubernetes.observe.snapshot import PodView, RunSnapshot
from longboat.engines.kubernetes.records import Record, State, expected_nodes, ranks_of
from longboat.engines.refusals import missing_path, no_rank
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import ApiError
from longboat.kubeapi.kinds import POD
from longboat.kubeapi.streams.exec import run_in_pod

if TYPE_CHECKING:
    pass

WORK = f"{NODE}/work"
MOST_TRIED = 3  # launchers that are asked who plays which node, node 0's first; each may take two seconds
NO_STORAGE = "`longboat config set kubernetes.storage.claim NAME` gives runs a storage that outlives their pods"


class PodPath(Value, frozen=True):
    """A path of the user, in the pod. `kind`: `artifacts`, `checkpoints` or `work`."""

    kind: str
    path: str


def pod_path_of(record: Record, text: str) -> PodPath:
    """A path of the user inside the working copy, the artifacts or the checkpoints. Raises UsageError."""
    head, _, rest = posixpath.normpath(text).partition("/")
    roots = {"artifacts": record.artifacts_dir, "checkpoints": record.checkpoint_dir}
    kind = head if roots.get(head) else "work"
    root, inner = (roots[head], rest) if kind != "work" else (WORK, text)
    path = posixpath.normpath(posixpath.join(root, inner))
    if posixpath.isabs(inner) or not is_inside(path, root) or any(ord(char) < 32 for char in path):
        raise UsageError(f"{text} is outside of the run", hint="give a path relative to the working copy")
    return PodPath(kind=kind, path=path)


def pod_of(snapshot: RunSnapshot, *, node: str | None, rank: int | None = None) -> PodView:
    """The running pod of a node, of a rank's node, or of the first. Raises NotFound."""
    record, state = snapshot.record, snapshot.state
    nodes = [(role.name, index) for role in record.job.roles for index in range(role.pods)]
    wanted = [
        f"{role}-{index}"
        for role, index in nodes
        if node in (None, f"{role}-{index}") and (rank is None or rank in ranks_of(record, role, index))
    ]
    if rank is not None and not 0 <= rank < record.job.ranks:
        raise no_rank(record.name, rank, record.job.ranks)
    if not wanted:
        wanted_node = f"node {node}" if node is not None else f"rank {rank}"
        names = ", ".join(f"{role}-{index}" for role, index in nodes)
        raise NotFound(f"the run has no {wanted_node} to work in", hint=f"nodes: {names}")
    running = {pod.node: pod for pod in snapshot.pods_of(state.attempt) if pod.is_running}
    reached = [running[name] for name in wanted if name in running and is_reachable(running[name], snapshot)]
    if reached:
        return reached[0]
    silent = next((running[name] for name in wanted if name in running), None)
    if silent is not None:
        hint = "`longboat status` says when it is given up"
        raise NotFound(f"{silent.node} cannot be reached: node {silent.host} is not ready", hint=hint)
    wanted_node = wanted[0] if node is not None or rank is not None else record.name
    raise NotFound(f"{wanted_node} does not run now: {record.name} is {state.phase}", hint=_why(state))


def in_its_place(client: Client, snapshot: RunSnapshot) -> RunSnapshot:
    """The run with its pods called after the nodes that they play, where spares may have taken places."""
    state, job = snapshot.state, snapshot.record.job
    if not job.spares or state.is_final:
        return snapshot
    first = expected_nodes(job)[0]
    reachable = [pod for pod in snapshot.pods_of(state.attempt) if is_reachable(pod, snapshot)]
    for pod in sorted(reachable, key=lambda pod: pod.node != first)[:MOST_TRIED]:
        answer = ask_status(client, pod.name)
        if answer is not None:
            had = attempts_of_pods(snapshot, {pod.node: answer})
            return as_played(snapshot, with_restarts(state.attempts, had), had.last)
    return snapshot


def _why(state: State) -> str:
    if state.is_final:
        return "commands and working copies need a pod that runs; `longboat logs` shows what it wrote"
    return "it has not started yet; `longboat explain` says what it waits for"


def execute(
    client: Client, snapshot: RunSnapshot, command: Sequence[str], *, node: str | None = None, rank: int | None = None
) -> int:
    """Run a command as a rank would be run, on the caller's terminal; its exit code."""
    if not command:
        raise UsageError("no command to run")
    pod = pod_of(in_its_place(client, snapshot), node=node, rank=rank)
    remote = Remote(client, snapshot.record.namespace, pod.name)
    chosen = "" if rank is None else str(rank)
    code = _relay_streams(remote, command_of("beside", NODE, chosen, *command))
    if code == 127:
        exit_code, _, _ = remote.run(command_of("which", NODE, chosen, command[0]))
        if exit_code == pod_program.MISSING:
            raise NotFound(f"{command[0]}: command not found in the environment of {pod.node}")
    return code


def _relay_streams(remote: Remote, command: Sequence[str]) -> int:
    """Run with the caller's stdin and stdout, with a TTY where these are one."""
    is_terminal = _isatty(sys.stdin) and _isatty(sys.stdout)
    stdin = sys.stdin.buffer if is_terminal or _has_input() else None
    options: dict[str, Any] = {
        "namespace": remote.namespace,
        "stdout": _binary(sys.stdout),
        "stderr": _binary(sys.stderr),
        "tty": is_terminal,
    }
    try:
        return run_in_pod(remote.client, remote.pod, command, stdin=stdin, **options)
    except ApiError as error:
        # An old API server cannot pass input on; most commands want none.
        if stdin is None or is_terminal or error.status != 403 or error.reason:
            raise
        return run_in_pod(remote.client, remote.pod, command, stdin=None, **options)


def _isatty(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _has_input() -> bool:
    """Whether somebody feeds us: a pipe or a file. A closed or empty input is none."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _binary(stream: Any) -> BinaryIO:
    stream.flush()
    buffer: BinaryIO = stream.buffer
    return buffer


def kill_pod(client: Client, snapshot: RunSnapshot, node: str, *, is_graceful: bool) -> None:
    """Delete the pod of a node: without grace, as if its machine were gone; with it, as a drain does."""
    pod = pod_of(in_its_place(client, snapshot), node=node)
    client.delete(POD, pod.name, namespace=snapshot.record.namespace, grace_s=None if is_graceful else 0, uid=pod.uid)


def copy_out(client: Client, snapshot: RunSnapshot, source: str, destination: Path, *, node: str | None = None) -> None:
    """Copy a file or folder out of a run."""
    spot = pod_path_of(snapshot.record, source)
    with reaching(client, snapshot, spot, node=node) as remote:
        try:
            remote.copy_out(spot.path, destination)
        except NotFound as error:
            raise missing_path(snapshot.record.name, source) from error


def copy_in(client: Client, snapshot: RunSnapshot, source: Path, destination: str, *, node: str | None = None) -> None:
    """Copy a file or folder into a run."""
    if not source.exists():
        raise NotFound(f"{source} does not exist")
    spot = pod_path_of(snapshot.record, destination)
    with reaching(client, snapshot, spot, node=node) as remote:
        remote.copy_in(source, spot.path)


@contextlib.contextmanager
def reaching(client: Client, snapshot: RunSnapshot, spot: PodPath, *, node: str | None) -> Iterator[Remote]:
    """A pod in which this spot can be reached: one of the run's own, else a helper pod where it lies in a storage."""
    record = snapshot.record
    try:
        pod = pod_of(in_its_place(client, snapshot), node=node)
    except NotFound:
        if node is not None and not _is_node(record, node):
            raise
        if spot.kind == "work":
            raise _without_pods(snapshot) from None
    else:
        yield Remote(client, record.namespace, pod.name)
        return
    if not is_lasting(record, spot.path):
        if not snapshot.state.is_final:
            raise NotFound(f"{record.name} has not started: it has no {spot.kind} yet") from None
        if spot.kind == "checkpoints" and record.checkpoint_store is not None:
            raise NotFound(
                f"no pod of {record.name} runs, and its checkpoints are in {record.checkpoint_store}",
                hint="copy them from there with a program of that store",
            )
        raise NotFound(f"the {spot.kind} of {record.name} went with its pods: it had no storage", hint=NO_STORAGE)
    from longboat.engines.kubernetes.exec.helper_pod import HelperPod

    with HelperPod.of_run(client, record, [spot.path]) as helper:
        yield helper


def _without_pods(snapshot: RunSnapshot) -> EngineError | NotFound:
    record, state = snapshot.record, snapshot.state
    if not state.is_final:
        return NotFound(f"{record.name} is {state.phase}: no pod of it runs", hint=_why(state))
    return NotFound(
        f"{record.name} has ended, and its working copies went with its pods",
        hint="name files to keep with `artifacts` in the job; artifacts/... and checkpoints/... can be copied",
    )


def _is_node(record: Record, node: str) -> bool:
    return any(node == f"{role.name}-{index}" for role in record.job.roles for index in range(role.pods))


def is_lasting(record: Record, path: str) -> bool:
    """Whether this path of the pods lies in something that outlives them."""
    from longboat.engines.kubernetes.exec.helper_pod import HelperMounts

    if is_inside(path, NODE):
        return False
    return any(is_inside(path, mount["mountPath"]) for mount in HelperMounts.of_run(record).mounts)
