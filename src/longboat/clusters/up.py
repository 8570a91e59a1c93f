"""`longboat cluster up`: observe, plan, apply, until every host is a ready node. Not the file, not showing.

Two passes, each observe -> plan -> apply: hosts become members; then, when nodes have their ranges of pod addresses,
the network, labels and taints. A pass with nothing to do changes nothing: `up` is repeated after any interruption.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from longboat.clusters.admin_kubeconfig import admin_kubeconfig_of
from longboat.clusters.apply import nodes as cluster_nodes
from longboat.clusters.apply.answers import answered
from longboat.clusters.apply.etcd_members import remove_member
from longboat.clusters.apply.execute import Execution
from longboat.clusters.apply.step_log import Listener, StepEvent, StepFailure
from longboat.clusters.hosts.connection import Content, FilePart, HostConnection, check
from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.offline.addon_files import archive_references
from longboat.clusters.offline.manifest import FLANNELD, IMAGES
from longboat.clusters.offline.software_bundle import SoftwareBundle, check_digest, digest_of
from longboat.clusters.plan import gpu, kubeadm, node_settings, packages
from longboat.clusters.plan.host_plan import plan_hosts, plan_network
from longboat.clusters.plan.network import KUBECTL, NodeView
from longboat.clusters.plan.steps import ClusterPlan, Step
from longboat.clusters.small_files import load_file
from longboat.clusters.spec import ClusterSpec
from longboat.core.errors import EngineError, NotFound
from longboat.core.jobs import Value

RANGES_S = 120.0  # a node has its range seconds after it joined; a busy control plane takes longer
READY_S = 300.0  # the first pods of a network pull their images


class UpResult(Value, frozen=True):
    """What `up` leads to. Without failures every host is a ready node."""

    failures: tuple[StepFailure, ...] = ()
    changes: int = 0
    nodes: tuple[NodeView, ...] = ()
    kubeconfig: str = ""
    """The administrator's, as the control plane has it: a secret."""


class ClusterUp:
    """One `up`: the hosts it talks to, what was seen of them, and who listens."""

    def __init__(
        self,
        spec: ClusterSpec,
        hosts: Mapping[str, HostConnection],
        facts: Mapping[str, HostFacts],
        listen: Listener,
        bundle: SoftwareBundle | None = None,
        programs: Mapping[str, FilePart] | None = None,
    ) -> None:
        """`programs`: flanneld by architecture, where it comes from no bundle."""
        self._spec = spec
        self._hosts = hosts
        self._facts = facts
        self._listen = listen
        self._bundle = bundle
        self._programs = programs or {}
        self._tokens = cluster_nodes.JoinTokens(self._control, self._certificates)

    def plan(self) -> ClusterPlan:
        references = self._bundle.manifest.images if self._bundle else archive_references(self._spec)
        return plan_hosts(self._spec, self._facts, load_keys(self._spec, list(self._facts.values())), references)

    def run(self, plan: ClusterPlan) -> UpResult:
        """Carry out the plan of the hosts, then what depends on nodes that have joined."""
        first = self._execute(plan)
        failed = {failure.host for failure in first.failures}
        if self._control.name in failed:
            return first
        joined = [host.name for host in self._spec.hosts if host.name in self._facts and host.name not in failed]
        try:
            return self._connect(first, joined)
        except EngineError as error:
            if not first.failures:
                raise
            # Hosts that failed before may well be the reason: they are told too.
            last = StepFailure(host=self._control.name, step="network", message=error.message)
            return UpResult(failures=(*first.failures, last), changes=first.changes)

    def _connect(self, first: UpResult, joined: Sequence[str]) -> UpResult:
        """The second pass: network, labels and taints of those who have joined."""
        self._register(joined)
        nodes = cluster_nodes.wait_for_ranges(self._control, joined, RANGES_S)
        second = self._execute(plan_network(self._spec, self._facts, nodes, self._manifest()))
        failed = {failure.host for failure in second.failures}
        changes = first.changes + second.changes + self._settle(nodes)
        ready = cluster_nodes.wait_until_ready(self._control, [name for name in joined if name not in failed], READY_S)
        return UpResult(
            failures=first.failures + second.failures,
            changes=changes,
            nodes=tuple(ready),
            kubeconfig=admin_kubeconfig_of(self._control),
        )

    def _register(self, joined: Sequence[str]) -> None:
        """A `down` that was cut off may have deleted the node of a host that is still a member: kubelets register when
        they start.
        """
        try:
            known = {node.name for node in cluster_nodes.read_nodes(self._control)}
        except EngineError:
            return  # waited for below
        for name in joined:
            if name not in known:
                self._hosts[name].run("systemctl restart kubelet", timeout_s=60)

    @property
    def _control(self) -> HostConnection:
        return self._hosts[self._spec.control_planes[0].name]

    def _execute(self, plan: ClusterPlan) -> UpResult:
        try:
            failures = Execution(self._hosts, self._stdin, self._listen).run(plan)
        finally:
            self._tokens.delete()
        return UpResult(failures=tuple(failures), changes=len(plan.steps))

    def _settle(self, nodes: Sequence[NodeView]) -> int:
        calls = node_settings.commands(gpu.labelled(self._spec, self._facts), nodes)
        for call in calls:
            check(self._control, f"{KUBECTL} {shlex.join(call)}")
            self._listen(StepEvent(host=call[2], step=call[0], state="done", text=shlex.join(call[3:])))
        return len(calls)

    def _stdin(self, step: Step) -> Content:
        if step.kind == "images":
            return (self._bundle.part(IMAGES),) if self._bundle else image_archive(self._spec)
        if step.kind == "packages":
            assert self._bundle is not None  # such steps are planned for a bundle only
            return self._bundle.packages_stream()
        if step.kind == "program":
            architecture = self._facts[step.host].architecture
            part = self._bundle.part(FLANNELD) if self._bundle else self._programs[architecture]
            return (f"{digest_of(part)}\n".encode(), part)
        if step.kind in ("script", "restart"):
            return b""
        if step.kind == "manifest":
            return self._manifest()
        host = next(host for host in self._spec.hosts if host.name == step.host)
        facts = self._facts[host.name]
        if step.kind == "init":
            own = f"{secrets.token_hex(3)}.{secrets.token_hex(8)}"
            return kubeadm.as_text(kubeadm.init_documents(self._spec, host, facts, own))
        if host.role == "control-plane" and not kubeadm.has_begun(facts):
            self._make_room(host.name)
        ticket = self._tokens.ticket(is_control_plane=host.role == "control-plane")
        return kubeadm.as_text(kubeadm.join_documents(self._spec, host, facts, ticket))

    def _make_room(self, name: str) -> None:
        """etcd still has the member of a control plane that was lost and is made anew under its name, and kubeadm waits
        for it in vain. One that is alive elsewhere is left alone: kubeadm refuses a second.
        """
        nodes = answered(lambda: cluster_nodes.read_nodes(self._control))
        if not any(node.name == name and node.is_ready for node in nodes):
            remove_member(self._control, name)

    def _certificates(self, key: str) -> bytes:
        host = self._spec.control_planes[0]
        return kubeadm.as_text(kubeadm.certificate_documents(self._spec, host, self._facts[host.name], key))

    def _manifest(self) -> bytes:
        return load_file(self._spec.network.manifest) if self._spec.network.manifest else b""


def image_archive(spec: ClusterSpec) -> Path:
    location, checksum = spec.source.image_archive
    path = Path(location).expanduser()
    if not path.is_file():
        raise NotFound(
            f"{path}: no such file", hint="source.images: an archive of images, as `ctr images export` makes it"
        )
    check_digest(path, checksum, "source.images")
    return path


def load_keys(spec: ClusterSpec, facts: Sequence[HostFacts]) -> dict[str, bytes]:
    """The keys that sign the repositories hosts would use."""
    if spec.source.kind != "packages":
        return {}
    wanted = {repository.key for host in facts for repository in packages.repositories(spec, host)}
    specs = {host.name: host for host in spec.hosts}
    for host in (host for host in facts if host.name in specs):
        wanted |= {repository.key for repository in gpu.repositories(spec, specs[host.name], host)}
    return {name: load_file(name) for name in sorted(wanted)}
