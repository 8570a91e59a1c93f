"""The plan of an upgrade to another version of Kubernetes: which steps each node still needs, and in which order. Pure.

First what no training notices, on all hosts side by side: repositories and images. Then one node after the other, the
control planes first, in kubeadm's own order: kubeadm, its `upgrade`, drain, kubelet, uncordon. What is left of an
upgrade that was cut off is read from packages, the journal and the nodes; so the same plan goes on with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from longboat.clusters.observe.facts import HostFacts
from longboat.clusters.plan import packages, runtime
from longboat.clusters.plan.kubeadm import API, TIMEOUTS, ignored
from longboat.clusters.plan.network import NodeView
from longboat.clusters.plan.steps import ClusterPlan, HostPlan, Step
from longboat.clusters.spec import ClusterSpec, HostSpec
from longboat.core.errors import Refused
from longboat.core.jobs import Value

ANNOTATION = "longboat.dev/upgrading"
"""On a node that an upgrade has cordoned, with its version: a node that its owner cordoned stays so afterwards."""

# Each of a control plane's pods starts anew, with an image that may have to be unpacked first.
_TIMEOUTS = {**TIMEOUTS, "upgradeManifests": "10m0s"}
_CONFIGURATION = "/run/longboat-upgrade.yaml"

# Only what we installed is replaced: packages that were there before could not be brought back by `down`.
_APT_UPGRADE = (
    packages.APT_START
    + r"""
options="$options --allow-change-held-packages"
simulate() { apt-get install -s $options $NAMES; }
planned=$(simulate 2>/dev/null) || { apt-get -q update; planned=$(simulate) || exit 1; }
ours=$(cat "$LB"/undo/[0-9]*-packages/packages 2>/dev/null || true)
for name in $(printf '%s\n' "$planned" | sed -n 's/^Inst \([^ ]*\) \[.*/\1/p'); do
    printf '%s\n' "$ours" | grep -qxF "$name" ||
        fail "error: $name was here before the cluster was made: upgrade it yourself, then the same command again"
done
fresh=$(printf '%s\n' "$planned" | sed -n 's/^Inst \([^ ]*\) (.*/\1/p')
for seen in "$LB"/undo/[0-9]*-packages; do
    [ -d "$seen" ] && [ -n "$fresh" ] || continue
    printf '%s\n' $fresh >> "$seen/packages"
    sync "$seen/packages" 2>/dev/null || sync
done
apt-get install $options $NAMES
"""
    + packages.APT_END
)
_DNF_UPGRADE = (
    r"""
wanted=""
for name in $NAMES; do
    plain=${name%%=*}; version=${name#*=}
    wanted="$wanted $plain-${version%-\*}"
    grep -qxF "$plain" "$LB"/undo/[0-9]*-packages/packages 2>/dev/null ||
        fail "error: $plain was here before the cluster was made: upgrade it yourself, then the same command again"
done
"""
    + packages.DNF_UPGRADE
)


class UpgradePlan(Value, frozen=True):
    before: str
    """The oldest version that a node has."""
    version: str
    prepare: ClusterPlan = ClusterPlan()
    """All hosts side by side; nothing that a training notices."""
    nodes: tuple[HostPlan, ...] = ()
    """One after the other, in this order."""

    @property
    def is_empty(self) -> bool:
        return not self.nodes

    @property
    def drained(self) -> tuple[str, ...]:
        return tuple(step.host for node in self.nodes for step in node.steps if step.kind == "drain")


def plan_upgrade(
    spec: ClusterSpec,
    facts: Mapping[str, HostFacts],
    nodes: Sequence[NodeView],
    keys: Mapping[str, bytes],
    references: Sequence[str] = (),
) -> UpgradePlan:
    """Plan the upgrade of all member hosts; `keys` and `references` as for `up`. Raises Refused for a version that
    cannot be reached.
    """
    if spec.source.kind != "packages":
        raise Refused(
            f"{spec.name}: programs come from {spec.source.location}, and upgrades are made with packages",
            hint="longboat cluster down, then up with the new version",
        )
    members = [host for host in _in_order(spec) if host.name in facts and is_member(facts[host.name])]
    if not members:
        raise Refused(f"{spec.name}: none of its hosts is part of a cluster yet", hint="longboat cluster up makes it")
    check_path(spec, [facts[host.name] for host in members])
    by_name = {node.name: node for node in nodes}
    plans = [_node_plan(spec, host, facts[host.name], by_name.get(host.name)) for host in members]
    prepare = [_prepare(spec, host, facts[host.name], keys, references) for host in members]
    return UpgradePlan(
        before=min((installed(facts[host.name]) for host in members), key=_numbers),
        version=spec.versions.kubernetes,
        prepare=ClusterPlan(hosts=tuple(plan for plan in prepare if plan.steps)),
        nodes=tuple(plan for plan in plans if plan.steps),
    )


def is_member(facts: HostFacts) -> bool:
    return "kubernetes" in dict(facts.done)


def installed(facts: HostFacts) -> str:
    """The kubelet's version on a host: 1.35.8."""
    return re.split(r"[-~+]", facts.package("kubelet") or facts.program("kubelet"))[0]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def check_path(spec: ClusterSpec, members: Sequence[HostFacts]) -> None:
    """Refuse downgrades and upgrades over more than one minor version."""
    wanted = spec.versions.kubernetes
    for host in members:
        has = installed(host)
        if _numbers(has) > _numbers(wanted):
            raise Refused(
                f"{host.name} has Kubernetes {has}: there is no way down to {wanted}",
                hint=f"longboat cluster upgrade --to {has}",
            )
        if len(_numbers(has)) > 1 and _numbers(wanted)[1] - _numbers(has)[1] > 1:
            raise Refused(
                f"{host.name} has Kubernetes {has}: {wanted} is more than one minor version away",
                hint=f"longboat cluster upgrade --to 1.{_numbers(has)[1] + 1} comes first",
            )


def _in_order(spec: ClusterSpec) -> list[HostSpec]:
    return [*spec.control_planes, *(host for host in spec.hosts if host.role != "control-plane")]


def _is_old(facts: HostFacts, names: Sequence[str], version: str) -> bool:
    return any(not packages.is_version(facts.package(name), version) for name in names)


def _prepare(
    spec: ClusterSpec, host: HostSpec, facts: HostFacts, keys: Mapping[str, bytes], references: Sequence[str]
) -> HostPlan:
    """Load the new images on every host before the first control plane changes: kubeadm starts a test pod anywhere."""
    if not _is_old(facts, packages.KUBERNETES_PACKAGES, spec.versions.kubernetes):
        return HostPlan(host=host.name)
    repository = packages.repository(spec, host, facts, keys)
    if repository is not None and dict(facts.done).get("repository") == repository.key:
        repository = None
    items = (repository, runtime.images(spec, host, facts, references))
    return HostPlan(host=host.name, steps=tuple(item for item in items if isinstance(item, Step)))


def _node_plan(spec: ClusterSpec, host: HostSpec, facts: HostFacts, node: NodeView | None) -> HostPlan:
    version = spec.versions.kubernetes
    has_old_kubelet = _is_old(facts, ("kubelet", "kubectl"), version)
    steps: list[Step] = []
    if _is_old(facts, ("kubeadm",), version):
        steps.append(_install(host, facts, "kubeadm", ("kubeadm",), version))
    if steps or has_old_kubelet:
        control = kubeadm_upgrade(spec, host, facts)
        if dict(facts.done).get(control.name) != control.key:
            steps.append(control)
    if has_old_kubelet or (node is not None and node.version != f"v{version}"):
        steps.append(Step(host=host.name, name="drain", title="cordon and drain the node", script="", kind="drain"))
        containerd = runtime.containerd(spec, host, facts)
        steps += [containerd] if isinstance(containerd, Step) else []
        steps.append(kubelet_upgrade(host, facts, version))
    if (steps and steps[-1].name == "kubelet") or (node is not None and node.upgrading):
        title = f"wait until the node is ready with {version}, then uncordon it"
        steps.append(Step(host=host.name, name="ready", title=title, script="", kind="ready"))
    return HostPlan(host=host.name, steps=tuple(steps))


def _install(host: HostSpec, facts: HostFacts, name: str, wanted: Sequence[str], version: str) -> Step:
    names = " ".join(f"{package}={version}-*" for package in wanted)
    script = f"NAMES='{names}'\nHELD='{' '.join(packages.HELD)}'\n"
    script += _APT_UPGRADE if facts.package_manager == "apt" else _DNF_UPGRADE
    title = f"install {', '.join(wanted)} {version}"
    return Step(host=host.name, name=name, title=title, script=script, timeout_s=1200.0)


def kubeadm_upgrade(spec: ClusterSpec, host: HostSpec, facts: HostFacts) -> Step:
    """`kubeadm upgrade apply` on the first control plane, `upgrade node` on all others. Can be repeated."""
    version = f"v{spec.versions.kubernetes}"
    errors = list(ignored(facts))
    document = {
        "apiVersion": API,
        "kind": "UpgradeConfiguration",
        "apply": {"kubernetesVersion": version, "ignorePreflightErrors": errors},
        "node": {"ignorePreflightErrors": errors},
        "plan": {"kubernetesVersion": version, "ignorePreflightErrors": errors},
        "timeouts": _TIMEOUTS,
    }
    script = f"# {version}\ncat > {_CONFIGURATION} <<'CONFIGURATION'\n{json.dumps(document)}\nCONFIGURATION\n"
    script += f"trap 'rm -f {_CONFIGURATION}' EXIT\n"
    # A slow machine misses one of kubeadm's time limits; what was reached stays.
    script += 'again() { "$@" || { say "failed, once more"; "$@"; }; }\n'
    if host.name == spec.control_planes[0].name:
        # What stands against it is said while nothing has changed yet.
        script += f"again kubeadm upgrade plan --config {_CONFIGURATION}\n"
        script += f"again kubeadm upgrade apply --yes --config {_CONFIGURATION}\n"
        title = f"upgrade the control plane (kubeadm upgrade apply {version})"
        # Twice at worst, and kubeadm waits up to five minutes for each part of the control plane, besides its image.
        return Step(host=host.name, name="apply", title=title, script=script, timeout_s=3600.0)
    script += f"again kubeadm upgrade node --config {_CONFIGURATION}\n"
    title = "upgrade this control plane" if host.role == "control-plane" else "upgrade the kubelet's configuration"
    title += " (kubeadm upgrade node)"
    return Step(host=host.name, name="node", title=title, script=script, timeout_s=1800.0)


def kubelet_upgrade(host: HostSpec, facts: HostFacts, version: str) -> Step:
    step = _install(host, facts, "kubelet", ("kubelet", "kubectl"), version)
    script = f"{step.script}systemctl daemon-reload\nsystemctl restart kubelet\n"
    return Step(
        host=host.name, name="kubelet", title=f"{step.title}, restart the kubelet", script=script,
        timeout_s=step.timeout_s,
    )  # fmt: skip
