"""What a GKE cluster made outside of itself, and Google keeps when it goes: disks, snapshots and Filestore of claims,
and the forwarding rules, addresses and firewall rules of Services and Ingresses. Decides nothing.

Google labels disks and Filestore with their cluster. The load balancer of a Service is called like the firewall rule
that GKE makes for it, whose targets are the cluster's nodes: that tells whose it is when the cluster is gone. Other
regions may have clusters of the same name, and people make snapshots of their own: nothing of these is told of.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from longboat.clouds.gcp.errors import answer_error
from longboat.clouds.gcp.session import GoogleSession
from longboat.clouds.rest import Body, RestFault
from longboat.clusters.cloud.gcp.request import CLUSTER_LABEL
from longboat.core.errors import EngineError
from longboat.core.jobs import Value

SETTLE_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Between looks at what goes: Google takes seconds for a disk, minutes for a Filestore, which the next `down` sees."""
_CLUSTER, _LOCATION = "goog-k8s-cluster-name", "goog-k8s-cluster-location"
_NODE_DISK = "goog-k8s-node-pool-name"
_FILES_CLUSTER, _FILES_LOCATION = "storage_gke_io_cluster_name", "storage_gke_io_cluster_location"
"""Labels of the driver of Filestore."""
_RULE = "k8s-fw-"
_INGRESSES = "l7--"
_SNAPSHOT = re.compile(r"snapshot-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""As Kubernetes' snapshotter names those of claims; a person's backup of the same disk is called otherwise."""
_REGION = re.compile(r"/(?:zones|regions|locations)/([a-z]+-[a-z]+[0-9]+)\b")


class GoogleLeftover(Value, frozen=True):
    """Something that was made for a cluster and is still there."""

    kind: str
    name: str
    place: str = "global"
    """`zones/Z`, `regions/R` or `locations/L`."""
    is_data: bool = False
    """Users' own: made for a claim."""

    @property
    def text(self) -> str:
        return self.name if self.kind == "disk" else f"{self.kind} {self.name}"


class GoogleLeftovers:
    """Of one cluster. Raises LongboatError with Google's words."""

    def __init__(self, session: GoogleSession, project: str, region: str, cluster: str) -> None:
        self._session, self._region, self._cluster = session, region, cluster
        self._project = f"projects/{project}"

    def look(self) -> tuple[GoogleLeftover, ...]:
        disks = [(place, body) for place, body in self._scoped("disks") if self._is_labelled(body, place)]
        left = [
            GoogleLeftover("disk", body["name"], place, _NODE_DISK not in (body.get("labels") or {}))
            for place, body in disks
        ]
        paths = {f"{place}/disks/{body['name']}" for place, body in disks}
        left += [*self._snapshots(paths), *self._files(), *self._balancers()]
        return tuple(sorted(left, key=lambda each: (each.kind, each.place, each.name)))

    def settle(self, is_kept: Callable[[GoogleLeftover], bool]) -> tuple[GoogleLeftover, ...]:
        """What is there after all else has had time to go."""
        for pause_s in SETTLE_S:
            if all(is_kept(each) for each in self.look()):
                break
            time.sleep(pause_s)
        return self.look()

    def delete(self, each: GoogleLeftover) -> None:
        """Data of a claim; what is gone is no error."""
        path = f"{self._project}/{each.place}"
        with _errors(f"delete {each.kind} {each.name}", gone=True):
            if each.kind == "Filestore":
                self._session.files("DELETE", f"{path}/instances/{each.name}")
            else:
                self._session.compute("DELETE", f"{path}/{each.kind}s/{each.name}")

    def namesakes(self, *, surely: bool = False) -> list[Body]:
        """Clusters of the project that have this one's name, in other places; tags of nodes begin like their ids.

        `surely`: something is decided by it that cannot be undone.
        """
        with _errors("see clusters of the same name"):
            answer = self._session.container("GET", f"{self._project}/locations/-/clusters")
        if surely:
            _all_answered("GKE", [str(zone) for zone in answer.get("missingZones") or ()])
        same = [body for body in answer.get("clusters") or () if body.get("name") == self._cluster]
        return [body for body in same if body.get("location") != self._region]

    def _scoped(self, kind: str) -> Iterator[tuple[str, Body]]:
        """All of a project with the zone or region of each."""
        with _errors(f"see {kind}"):
            for scope, items in self._session.scopes(f"{self._project}/aggregated/{kind}"):
                yield from ((scope, body) for body in items.get(kind) or ())

    def _is_labelled(self, body: Body, place: str) -> bool:
        labels = body.get("labels") or {}
        is_of_name = self._cluster in (labels.get(_CLUSTER), labels.get(CLUSTER_LABEL))
        return is_of_name and self._is_here(labels.get(_LOCATION), place)

    def _is_here(self, label: str | None, place: str) -> bool:
        """Of a cluster of this region: by the label of its place, else by where the thing is; what is global, is."""
        region = _REGION.search(f"/{place}")
        return label == self._region if label else region is None or region[1] == self._region

    def _snapshots(self, disks: set[str]) -> Iterator[GoogleLeftover]:
        """By their label, or made by the cluster of one of its disks."""
        with _errors("see snapshots"):
            for body in self._session.items("GET", f"{self._project}/global/snapshots", "items"):
                source = str(body.get("sourceDisk") or "").partition(f"{self._project}/")[2]
                is_made = source in disks and _SNAPSHOT.fullmatch(body["name"]) is not None
                if is_made or self._is_labelled(body, source):
                    yield GoogleLeftover("snapshot", body["name"], is_data=True)

    def _files(self) -> Iterator[GoogleLeftover]:
        try:
            instances, silent = self._session.file_instances(f"{self._project}/locations/-/instances")
        except RestFault as fault:
            if {"SERVICE_DISABLED", "accessNotConfigured"} & {fault.code, *fault.reasons}:
                return  # nobody ever made one in this project
            raise answer_error(fault, "see instances of Filestore") from None
        _all_answered("Filestore", [zone for zone in silent if self._is_here(None, f"locations/{zone}")])
        for body in instances:
            labels = body.get("labels") or {}
            zone, _, name = str(body["name"]).partition("/locations/")[2].partition("/instances/")
            place = f"locations/{zone}"
            if labels.get(_FILES_CLUSTER) == self._cluster and self._is_here(labels.get(_FILES_LOCATION), place):
                yield GoogleLeftover("Filestore", name, place, is_data=True)

    def _balancers(self) -> Iterator[GoogleLeftover]:
        """Firewall rules whose targets are the cluster's nodes; what is called like them, and what has its label."""
        tags = re.compile(rf"gke-{re.escape(self._cluster)}-([0-9a-f]{{8}})-node")
        with _errors("see firewall rules"):
            tagged = [
                (str(body["name"]), mark[1])
                for body in self._session.items("GET", f"{self._project}/global/firewalls", "items")
                if str(body["name"]).startswith(_RULE)
                for mark in map(tags.fullmatch, body.get("targetTags") or ())
                if mark is not None
            ]
        others = {str(body.get("id"))[:8] for body in self.namesakes()} if tagged else set()
        rules = list(dict.fromkeys(rule for rule, mark in tagged if mark not in others))
        ends = [rule.removeprefix(_RULE) for rule in rules]
        names = {end for end in ends if not end.startswith(_INGRESSES)}
        mark = tuple("--" + end.removeprefix(_INGRESSES) for end in ends if end.startswith(_INGRESSES))
        yield from (GoogleLeftover("firewall rule", rule) for rule in rules)
        for kind, word in (("forwardingRules", "forwarding rule"), ("addresses", "address")):
            for place, body in self._scoped(kind):
                if body["name"] in names or body["name"].endswith(mark) or self._is_labelled(body, place):
                    yield GoogleLeftover(word, body["name"], place)


def _all_answered(service: str, silent: list[str]) -> None:
    """Raises EngineError where Google lists a part only: what is not listed may be there all the same."""
    if silent:
        message = f"{service} does not answer for {', '.join(silent[:5])}: what is there is not known"
        raise EngineError(message, hint="the same command again, in a while")


@contextmanager
def _errors(operation: str, *, gone: bool = False) -> Iterator[None]:
    """`gone`: what is not there is no error."""
    try:
        yield
    except RestFault as fault:
        if not (gone and fault.status == 404):
            raise answer_error(fault, operation) from None
