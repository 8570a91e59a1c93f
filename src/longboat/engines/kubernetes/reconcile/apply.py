"""Carries out a Decision: create an attempt, ask the gate, delete, tell to stop. Everything here can be done twice, by
two processes at once, without harm.

Objects are created under names that follow from run and attempt (`creation`). The state is replaced only at the version
that was read: `Conflict` means that somebody else took a turn, and is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.creation import make_attempt, start_of
from longboat.engines.kubernetes.gate.resizing import told
from longboat.engines.kubernetes.manifests.objects import Owner
from longboat.engines.kubernetes.observe.snapshot import RunSnapshot
from longboat.engines.kubernetes.reconcile.actions import (
    Action,
    Admit,
    AskToSave,
    CreateAttempt,
    Decision,
    Delete,
    DeleteWorkloads,
    EndForSize,
    ForceDelete,
    Release,
    Resize,
    SendStop,
)
from longboat.engines.kubernetes.record_store import write_state
from longboat.engines.kubernetes.records import State, expected_nodes
from longboat.kubeapi.client import Client
from longboat.kubeapi.kinds import JOB, JOBSET, POD

Object = dict[str, Any]

MOST_TAILS = 16
"""Nodes whose last lines are kept in the record, those that failed first."""
TOLD_AT_ONCE = 16  # each waits for a kubelet, and a gang of hundreds is told within a few seconds
MOST_TAIL_BYTES = 256 << 10
"""Of all attempts together: a ConfigMap holds 1 MiB."""


class Applied(NamedTuple):
    """The record as a turn has left it."""

    version: str
    state: State
    is_held: bool  # the gate has answered that the run waits on; nothing but the record was changed


def apply(client: Client, snapshot: RunSnapshot, turn: Decision) -> Applied:
    """The state, the actions, the state afterwards. Raises Conflict."""
    version = snapshot.version
    state = _with_tails(client, snapshot, turn) if turn.state is not None else None
    seen = msgspec.structs.replace(snapshot, state=state or snapshot.state)
    if state is not None:
        version = write_state(client, snapshot.record.name, version, state)
    after = turn.after
    tell_all(client, seen, [action for action in turn.actions if isinstance(action, SendStop)])
    is_held = False
    for action in turn.actions:
        noted = act(client, seen, action)
        if isinstance(action, Admit) and noted is not None:
            is_held = noted.gate.let_in is None and seen.state.gate.let_in is None  # not put back, which suspends it
            is_held = is_held and noted.attempt == seen.state.attempt  # nor given another size
        after = noted or after
    if after is not None and after != seen.state:
        version = write_state(client, snapshot.record.name, version, after)
    return Applied(version, after or seen.state, is_held and len(turn.actions) == 1)


def act(client: Client, snapshot: RunSnapshot, action: Action) -> State | None:
    """One action; the state afterwards where the action itself decides it."""
    if isinstance(action, CreateAttempt):
        create_attempt(client, snapshot, action.attempt)
    elif isinstance(action, Admit):
        from longboat.engines.kubernetes.gate.serve import ask_gate

        return ask_gate(client, snapshot, client.now())
    elif isinstance(action, Resize):
        return resize(client, snapshot, action)
    elif isinstance(action, EndForSize):
        return end_for_size(client, snapshot, action)
    elif isinstance(action, AskToSave):
        return ask_to_save(client, snapshot, action)
    elif isinstance(action, Release):
        release(client, snapshot, action)
    elif isinstance(action, DeleteWorkloads):
        remove_attempt(client, snapshot, action)
    elif isinstance(action, Delete):
        client.delete(POD, action.pod, grace_s=1, uid=action.uid)
    elif isinstance(action, ForceDelete):
        client.delete(POD, action.pod, grace_s=0, uid=action.uid)
    return None


def _with_tails(client: Client, snapshot: RunSnapshot, turn: Decision) -> State | None:
    """A run without a storage keeps its last lines in its record, for the day when its pods are gone.

    Of an attempt that lost a node that day is now: its workload goes, and with it the pods that did end.
    """
    state = turn.state
    is_removed = any(isinstance(action, DeleteWorkloads) and action.is_lost for action in turn.actions)
    if state is None or snapshot.record.storage is not None or not (state.is_final or is_removed):
        return state
    from concurrent.futures import ThreadPoolExecutor

    from longboat.engines.kubernetes.logs.merge import tail_of

    pods = [pod for pod in snapshot.pods_of(snapshot.state.attempt) if pod.end is not None and pod.is_started]
    chosen = sorted(pods, key=lambda pod: (not (pod.end and pod.end.exit_code), pod.role, pod.index))[:MOST_TAILS]
    with ThreadPoolExecutor(max_workers=8, thread_name_prefix="tails") as pool:  # two rounds for MOST_TAILS
        tails = list(pool.map(lambda pod: tail_of(client, pod.name), chosen))
    by_node = {f"{pod.attempt}/{pod.node}": text for pod, text in zip(chosen, tails) if text}
    return msgspec.structs.replace(state, tails=_newest_tails({**state.tails, **by_node}))


def _newest_tails(tails: dict[str, str]) -> dict[str, str]:
    """Tails of the latest attempts, as many as fit into the record."""
    kept: dict[str, str] = {}
    size = 0
    for key in sorted(tails, key=lambda key: int(key.partition("/")[0]), reverse=True):
        size += len(tails[key].encode())
        if size > MOST_TAIL_BYTES:
            break
        kept[key] = tails[key]
    return kept


def release(client: Client, snapshot: RunSnapshot, action: Release) -> None:
    kind = JOBSET if snapshot.record.workload == "jobset" else JOB
    for workload in snapshot.workloads_of(action.attempt):
        client.patch(kind, workload.name, {"metadata": {"labels": {names.CHAINED: None}}})


def owner_of(snapshot: RunSnapshot) -> Owner:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": snapshot.record.name, "uid": snapshot.uid}


def create_attempt(client: Client, snapshot: RunSnapshot, attempt: int) -> None:
    """The objects of a later attempt; the code is what the first had. Raises CannotRetry and Foreign."""
    start = start_of(snapshot.record, snapshot.state, code=None, now=client.now())
    make_attempt(client, snapshot, attempt, start, owner_of(snapshot))


def tell_all(client: Client, snapshot: RunSnapshot, actions: Sequence[SendStop]) -> None:
    """Several at once: without node 0, each launcher of a gang is told by itself."""
    if len(actions) < 2:
        for action in actions:
            tell_stop(client, snapshot, action)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=TOLD_AT_ONCE, thread_name_prefix="tell") as pool:
        list(pool.map(lambda action: tell_stop(client, snapshot, action), actions))


def resize(client: Client, snapshot: RunSnapshot, action: Resize) -> State | None:
    """Ask for the newest checkpoint; it is noted that the gang is to end once it has one that was not there before."""
    from longboat.engines.kubernetes.exec.launcher_calls import ask_status

    answer = ask_status(client, action.pod)
    if answer is None:
        return None
    return told(snapshot.state, action.size, answer.get("checkpoint"), waits=action.waits)


def end_for_size(client: Client, snapshot: RunSnapshot, action: EndForSize) -> State | None:
    """Tell the launcher, and note when. The run is not over: no pod is deleted for one that does not answer."""
    from longboat.engines.kubernetes.exec.launcher_calls import tell

    if not tell(client, action.pod, "stop", f"{action.grace_s:g}"):
        return None
    return msgspec.structs.replace(snapshot.state, told_when=client.now())


def ask_to_save(client: Client, snapshot: RunSnapshot, action: AskToSave) -> State | None:
    """Tell the launcher, which tells the others, and note when."""
    from longboat.engines.kubernetes.exec.launcher_calls import tell

    departure = snapshot.state.departure
    if departure is None or not tell(client, action.pod, "save"):
        return None
    told_now = msgspec.structs.replace(departure, told=client.now())
    return msgspec.structs.replace(snapshot.state, departure=told_now)


def tell_stop(client: Client, snapshot: RunSnapshot, action: SendStop) -> None:
    """Through its launcher; where that cannot be reached, its pod is deleted with its grace, for node 0 all pods.

    A launcher that lost node 0 looks for it for seconds after its ranks have ended, and keeps their log only then.
    """
    from longboat.engines.kubernetes.exec.launcher_calls import tell
    from longboat.engines.kubernetes.manifests.pod_template import AFTER_GRACE_S

    if tell(client, action.pod, "stop", f"{action.grace_s:g}"):
        return
    pods = snapshot.pods_of(snapshot.state.attempt)
    first = expected_nodes(snapshot.record.job)[0]
    is_first = any(pod.name == action.pod and pod.node == first for pod in pods)
    for pod in pods:
        if pod.end is None and not pod.is_forced and (is_first or pod.name == action.pod):
            client.delete(POD, pod.name, grace_s=round(action.grace_s) + AFTER_GRACE_S, uid=pod.uid)


def remove_attempt(client: Client, snapshot: RunSnapshot, action: DeleteWorkloads) -> None:
    """Delete an attempt. Its Jobs stay until their pods are gone: a Job that is being deleted makes no new ones.

    Pods on lost nodes would keep a Job for as long as they are there, and a Job keeps them by its finalizer
    (`batch.kubernetes.io/job-tracking`). There the Job goes first, in the background: the job controller then takes
    its finalizer off pods that belong to nobody.

    A pod whose container has not started goes by force: there is nothing to end with grace, and its kubelet may sit
    for minutes in the pull of an image before it looks at the pod again.
    """
    kind = JOBSET if snapshot.record.workload == "jobset" else JOB
    propagation = "Background" if action.is_lost else "Foreground"
    for workload in snapshot.workloads_of(action.attempt):
        client.delete(kind, workload.name, propagation=propagation, uid=workload.uid)
    if action.grace_s is None:
        return
    for pod in snapshot.pods_of(action.attempt):
        if pod.end is None and not pod.is_forced:
            grace_s = max(1, round(action.grace_s)) if pod.is_started else 0
            client.delete(POD, pod.name, grace_s=grace_s, uid=pod.uid)
