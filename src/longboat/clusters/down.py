"""`longboat cluster down`: drain, undo, audit on every host. Exit code 0 only when nothing of ours is left.

Workers go first, side by side; then control planes. A host that does not answer keeps its journal for the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from longboat.clusters.apply import nodes as cluster_nodes
from longboat.clusters.apply.execute import all_at_once
from longboat.clusters.apply.step_log import Listener, StepFailure, StepLog
from longboat.clusters.apply.undo import HostAudit, audit, clear_volumes, forget, undo
from longboat.clusters.hosts.connection import HostConnection
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.jobs import Value

UNDO_S = 900.0  # packages are purged and pods end with their grace


class KeptVolumes(Value, frozen=True):
    """Volumes of users that are still on a host."""

    host: str
    names: tuple[str, ...]


class DownResult(Value, frozen=True):
    failures: tuple[StepFailure, ...] = ()
    audits: tuple[HostAudit, ...] = ()
    kept: tuple[KeptVolumes, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not self.failures and not any(report.ours for report in self.audits)


class ClusterDown:
    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, HostConnection],
        facts: Mapping[str, HostFacts],
        listen: Listener,
        *,
        grace_s: float,
        leaving: Sequence[HostSpec] | None = None,
        purged: Sequence[str] = (),
    ) -> None:
        """`leaving`: only these hosts leave the cluster; None: all of it is taken down. `purged`: names of volumes
        whose folders go.
        """
        self._spec = spec
        self._hosts = hosts
        self._facts = facts
        self._log = StepLog(listen)
        self._grace_s = grace_s
        self._leaving = spec.hosts if leaving is None else leaving
        self._is_partial = leaving is not None
        self._purged = purged
        self._is_stopped = False
        self._lock = threading.Lock()
        self._audits: list[HostAudit] = []
        self._kept: list[KeptVolumes] = []

    def run(self) -> DownResult:
        try:
            self._run()
        except BaseException:
            self._is_stopped = True  # Ctrl-C: no host is begun that the user may want to keep
            raise
        return DownResult(
            failures=tuple(self._log.failures),
            audits=tuple(sorted(self._audits, key=lambda each: each.host)),
            kept=tuple(sorted(self._kept, key=lambda each: each.host)),
        )

    def _run(self) -> None:
        ours = [host for host in self._leaving if self._is_ours(host)]
        first = self._spec.control_planes[0].name
        all_at_once(self._leave, [host for host in ours if host.role != "control-plane"])
        # One after the other, the first one last: the others leave etcd through it, which needs a majority each time.
        for host in ours:
            if host.role == "control-plane" and host.name != first:
                self._leave(host)
        for host in ours:
            if host.name == first:
                self._take_back(host)

    def _is_ours(self, host: HostSpec) -> bool:
        facts = self._facts.get(host.name)
        return facts is not None and facts.journal_cluster == self._spec.name

    def _leave(self, host: HostSpec) -> None:
        """Drain, undo, delete the node, in this order: `kubeadm reset` finds its etcd member by the node. The journal
        goes last: as long as it is there, a command that was cut off is gone on with.
        """
        control = self._spec.control_planes[0]
        has_api = self._is_ours(control) and bool(self._facts[control.name].file("/etc/kubernetes/admin.conf"))
        connection = self._hosts.get(control.name)
        if has_api and connection is not None:
            drain = lambda: cluster_nodes.drain(connection, host.name, grace_s=self._grace_s)  # noqa: E731
            if not self._step(host, "drain", drain) and self._is_partial:
                return  # the cluster lives on, and so do its trainings
        if not has_api or connection is None:
            self._take_back(host)
            return
        self._take_back(host, lambda: cluster_nodes.delete_node(connection, host.name))

    def _take_back(self, host: HostSpec, delete_node: Callable[[], None] | None = None) -> None:
        connection = self._hosts[host.name]
        on_line = lambda line: self._log.tell(host.name, "undo", "line", line)  # noqa: E731
        if not self._step(host, "undo", lambda: undo(connection, on_line=on_line, timeout_s=UNDO_S)):
            return
        if self._has_volumes and not self._step(host, "volumes", lambda: self._clear_volumes(connection)):
            return
        if delete_node is not None and not self._step(host, "node", delete_node) and self._is_partial:
            return  # nobody would delete the node of a host without a journal
        self._step(host, "audit", lambda: self._audit(connection))

    @property
    def _has_volumes(self) -> bool:
        return "storage" in self._spec.addons and self._spec.storage.kind == "local-path"

    def _clear_volumes(self, connection: HostConnection) -> None:
        names = clear_volumes(connection, self._spec.storage.folder, self._purged)
        if names:
            with self._lock:
                self._kept.append(KeptVolumes(host=connection.name, names=names))

    def _audit(self, connection: HostConnection) -> None:
        report = audit(connection, self._spec.network.pods)
        with self._lock:
            self._audits.append(report)
        if not report.ours:
            forget(connection)

    def _step(self, host: HostSpec, name: str, work: Callable[[], None]) -> bool:
        return not self._is_stopped and self._log.attempt(host.name, name, work)
