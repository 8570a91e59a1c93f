"""Check before deletion: whether a node may still go, asked of the API itself and not of a copy. Reads only.

What was decided on a copy of the cluster may be old by now. Any doubt means that the machine stays for this loop.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from longboat.autoscaler.model.machines import Machine, machines_of
from longboat.autoscaler.model.snapshot import CORDONED, AutoscalerSettings, Pool
from longboat.autoscaler.observe.do_not_disrupt import daemon_of, keep_of_pod
from longboat.autoscaler.observe.from_objects import Body, snapshot_of
from longboat.autoscaler.observe.gang_marks import mark_of
from longboat.autoscaler.observe.instances import NodeInstances
from longboat.autoscaler.providers.provider import ProviderAnswer
from longboat.core.times import parse_time
from longboat.kubeapi.client import Client, Object
from longboat.kubeapi.kinds import POD, PVC

SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""The scheduler writes it on a claim whose volume is made where the pod will run, long before it binds the pod."""
CHOSEN_S = 900.0
"""So long after its cordon a claim may keep a node. No scheduler chooses a cordoned node, and a volume that is slower
will not be made; the annotation itself can be written by everybody who may have a claim."""


class _Claim(msgspec.Struct):
    class Meta(msgspec.Struct):
        name: str = ""
        namespace: str = ""
        annotations: dict[str, str] = {}

    class Status(msgspec.Struct):
        phase: str = ""

    metadata: Meta = msgspec.field(default_factory=Meta)
    status: Status = msgspec.field(default_factory=Status)


def pods_on(client: Client, node: str) -> list[Object]:
    """Pods that are there and belong to somebody: not finished, no DaemonSet's, no part of the node."""
    pods = client.list(POD, everywhere=True, fields=f"spec.nodeName={node}").items
    return [pod for pod in pods if daemon_of(pod["metadata"]) is None and not is_finished(pod)]


def is_finished(pod: Body) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Body) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def name_of(pod: Body) -> str:
    return f"{pod['metadata'].get('namespace') or 'default'}/{pod['metadata']['name']}"


def kept(pod: Body, now: float) -> str:
    """Why this pod must not be moved now."""
    disrupt = keep_of_pod(pod, in_gang=mark_of(pod["metadata"], pod.get("spec") or {}) is not None)
    return disrupt.reason if disrupt.until is None or disrupt.until > now else ""


def is_as_before(body: Object, other: Object) -> bool:
    """Whether nothing has changed but what a kubelet reports again and again."""
    parts = ("uid", "labels", "annotations", "deletionTimestamp")
    same = all(body["metadata"].get(part) == other["metadata"].get(part) for part in parts)
    return same and body.get("spec") == other.get("spec") and _conditions(body) == _conditions(other)


def _conditions(body: Object) -> list[tuple[str, str]]:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return [(condition.get("type", ""), condition.get("status", "")) for condition in conditions]


class Recheck:
    def __init__(
        self,
        client: Client,
        pools: tuple[Pool, ...],
        settings: AutoscalerSettings,
        seen: ProviderAnswer,
        settle_s: float,
    ) -> None:
        self._client, self._pools, self._settings = client, pools, settings
        self._instances, self._settle_s = NodeInstances(seen), settle_s

    def why_stay(self, body: Object) -> str:
        """Empty: it may go."""
        now = self._client.now()
        machine = self._machine(body, now)
        if machine.cordon == "person":
            return "somebody else has cordoned it"
        if machine.condition != "failed":
            if machine.cordon != "ours":
                return "our cordon was lifted"
            since = parse_time((body["metadata"].get("annotations") or {}).get(CORDONED))
            if since is not None and now - since < self._settle_s:
                return "cordoned a moment ago: a pod may still be on its way there"
            is_old = since is not None and now - since > CHOSEN_S
            if not is_old and body["metadata"]["name"] in self._chosen:
                return f"a pod is on its way there: claim {self._chosen[body['metadata']['name']]} waits for its volume"
        return self.why_occupied(body) or self._unknown(body)

    def why_occupied(self, body: Object) -> str:
        """Pods that are there at this moment and must not be lost; empty: none. Looked at again before the deletion."""
        now = self._client.now()
        there = self._pods(body)
        if self._machine(body, now).condition == "failed":
            return next((text for pod in there if (text := self._stays_on_failed(pod, now))), "")
        return f"pod {name_of(there[0])} is there" if there else ""

    def _machine(self, body: Object, now: float) -> Machine:
        (machine,) = machines_of(snapshot_of({"Node": [body]}, self._pools), self._settings, now)
        return machine

    @cached_property
    def _chosen(self) -> dict[str, str]:
        """Nodes that the scheduler has chosen for pods whose volumes are still being made: node -> claim.

        Making a volume may take minutes; only then is the pod bound, whatever happened to the node meanwhile.
        """
        chosen = {}
        for claim in self._client.list(PVC, everywhere=True, into=_Claim).items:
            node = claim.metadata.annotations.get(SELECTED_NODE)
            if node and claim.status.phase != "Bound":
                chosen[node] = f"{claim.metadata.namespace}/{claim.metadata.name}"
        return chosen

    def why_not_finish(self, body: Object) -> str:
        """A pod that tolerates every taint may have come since; while the machine is there, it is not lost."""
        there = self._pods(body) if self._known(body) is not None else ()
        return next((f"pod {name_of(pod)} is there" for pod in there if not is_leaving(pod)), "")

    def _pods(self, body: Object) -> list[Object]:
        return pods_on(self._client, body["metadata"]["name"])

    def _stays_on_failed(self, pod: Object, now: float) -> str:
        if is_leaving(pod):
            return ""
        reason = kept(pod, now)
        return f"pod {name_of(pod)} is bound to it: {reason}" if reason else ""

    def _unknown(self, body: Object) -> str:
        """A node that works, of a machine that the provider does not have, has got its label by mistake."""
        conditions = (body.get("status") or {}).get("conditions") or ()
        works = any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)
        if works and self._known(body) is None:
            return "its provider has no such machine, and yet it works: is its pool label right?"
        return ""

    def machine_of(self, body: Object) -> str:
        """The provider's id of the node's machine."""
        name = str(body["metadata"]["name"])
        return self._known(body) or str((body.get("spec") or {}).get("providerID") or name)

    def _known(self, body: Object) -> str | None:
        machine = self._instances.of(body)
        return machine.id if machine is not None else None
