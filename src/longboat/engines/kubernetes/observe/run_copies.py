"""Copies of the runs that have not ended, as watches tell of them: enough to see that a turn would do nothing.

Watches of several kinds tell of changes in any order, so nothing is done by a copy alone: whoever finds that there is
something to do reads the run anew. Not the watches, which are the controller's.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from longboat.core.errors import EngineError
from longboat.engines.kubernetes import names
from longboat.engines.kubernetes.observe.node_loss import doubtful_hosts
from longboat.engines.kubernetes.observe.node_notices import LeavingNodes
from longboat.engines.kubernetes.observe.observe import is_stuck, snapshot_of
from longboat.engines.kubernetes.observe.snapshot import (
    HostView,
    PodView,
    RunSnapshot,
    failed_members,
    pod_view,
    with_failed,
    workload_view,
)
from longboat.engines.kubernetes.records import is_chained
from longboat.engines.kubernetes.slim_objects import RunObject
from longboat.kubeapi.kinds import CONFIG_MAP, POD, Kind

Body = Mapping[str, Any]
Name = tuple[str, str]
"""Namespace and name of a run."""


class _RunCopy(msgspec.Struct):
    record: Body | None = None
    workloads: dict[str, Body] = {}
    pods: dict[str, PodView] = {}


class RunCopies:
    """Told by several threads. Ended runs are remembered by name alone: what is left of them may be many objects."""

    def __init__(self) -> None:
        self.leaving = LeavingNodes()
        self._copies: dict[Name, _RunCopy] = {}
        self._ended: set[Name] = set()
        self._lock = threading.Lock()

    def note(self, kind: Kind, item: Body | RunObject, *, is_gone: bool, is_final: bool = False) -> None:
        """An object as it is now, or that it is gone; `is_final`: of the record of a run that has ended.

        Of one that went unseen there is only a RunObject.
        """
        body: Body = msgspec.to_builtins(item) if isinstance(item, RunObject) else item
        meta = body["metadata"]
        labels = meta.get("labels") or {}
        run = meta["name"] if kind == CONFIG_MAP else labels.get(names.RUN, "")
        name = (str(meta.get("namespace", "")), str(run))
        with self._lock:
            if kind == CONFIG_MAP:
                self._note_record(name, body, is_gone=is_gone, is_final=is_final)
            elif run and name not in self._ended and (kind != POD or names.ROLE in labels):
                self._note_part(name, kind, body, is_gone=is_gone)

    def _note_record(self, name: Name, body: Body, *, is_gone: bool, is_final: bool) -> None:
        (self._ended.add if is_final and not is_gone else self._ended.discard)(name)
        if is_gone or is_final:
            self._copies.pop(name, None)
        else:
            self._copies.setdefault(name, _RunCopy()).record = body

    def _note_part(self, name: Name, kind: Kind, body: Body, *, is_gone: bool) -> None:
        copy = self._copies.setdefault(name, _RunCopy())
        uid = str(body["metadata"].get("uid", ""))
        if is_gone:
            copy.pods.pop(uid, None)
            copy.workloads.pop(uid, None)
        elif kind == POD:
            copy.pods[uid] = pod_view(body)
        else:
            copy.workloads[uid] = body
        if copy.record is None and not copy.pods and not copy.workloads:
            self._copies.pop(name, None)

    def on_node(self, node: str) -> list[Name]:
        """Runs with pods on this node of the cluster."""
        with self._lock:
            return [name for name, copy in self._copies.items() if any(pod.host == node for pod in copy.pods.values())]

    def snapshot(self, namespace: str, run: str, now: float) -> RunSnapshot | None:
        """The run as the watches show it; None where they do not show all that a turn would look at."""
        with self._lock:
            copy = self._copies.get((namespace, run))
            if copy is None or copy.record is None:
                return None
            record, workloads, pods = copy.record, list(copy.workloads.values()), list(copy.pods.values())
        try:
            views = [workload_view(body) for body in workloads]
            notices = self.leaving.of({pod.host for pod in pods if pod.end is None})
            hosts = {name: HostView(name=name, leaving=notice) for name, notice in notices.items()}
            seen = snapshot_of(record, workloads=views, pods=pods, hosts=hosts)
        except EngineError:
            return None
        if _needs_more(seen, now):
            return None
        if not 0 < len(seen.pods_of(seen.state.attempt)) < seen.record.job.pods:
            return seen
        return with_failed(seen, failed_members(workloads, seen.state.attempt))


def _needs_more(seen: RunSnapshot, now: float) -> bool:
    """Whether a turn would ask for more than records, Jobs and pods: nodes, events, queues, other runs."""
    record, state = seen.record, seen.state
    if record.workload == "jobset" or record.gated_by == "kueue" or is_chained(record, state):
        return True
    return bool(doubtful_hosts(state, seen.pods, now)) or any(is_stuck(pod, now) for pod in seen.pods)
