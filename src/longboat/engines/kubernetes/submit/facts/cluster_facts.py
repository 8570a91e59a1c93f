"""ClusterFacts: what this cluster serves, has and allows, as one value observed once per submit.

Forbidden to read means unknown (None), never an error: what is not known refuses nothing. What it means for a job is
said by `preflight`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from longboat.core.jobs import Gpus, Job, Value
from longboat.engines.kubernetes.install.controller_manifests import HOME
from longboat.engines.kubernetes.manifests.pod_template import DRA
from longboat.engines.kubernetes.records import Storage
from longboat.engines.kubernetes.slim_objects import UNFINISHED, BoundPod, SlimNode
from longboat.engines.kubernetes.submit.facts import surroundings
from longboat.engines.kubernetes.submit.facts.gpu_inventory import (
    DEFAULT_GPU,
    GpuOffer,
    offer_for,
    offers_of,
    selector_for,
)
from longboat.engines.kubernetes.submit.facts.permissions import PERMISSIONS, Permission
from longboat.engines.kubernetes.submit.facts.shared_pool import SharedPool
from longboat.engines.kubernetes.submit.facts.surroundings import (
    Autoscaler,
    ClaimView,
    Limit,
    LocalQueue,
    NodeUse,
    Quota,
    SecurityLevel,
    StorageClass,
)
from longboat.engines.kubernetes.submit.kueue_quotas import flavor_quotas
from longboat.kubeapi import kinds
from longboat.kubeapi.client import Client
from longboat.kubeapi.errors import Forbidden, answer_or_none

JOBSET_GROUP = "jobset.x-k8s.io"
KUEUE_GROUP = "kueue.x-k8s.io"
DRA_GROUP, DRA_VERSION = kinds.CLAIM_TEMPLATE.api_version.split("/")
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
THREADS = 16
"""As many requests as one look has, more or less; all looks of a process share them, so that many who submit at once do
not start as many threads each."""
OWN_STATUS = "longboat-autoscaler-status"

T = TypeVar("T")


class ClusterFacts(Value, frozen=True):
    namespace: str
    version: str = ""
    groups: dict[str, tuple[str, ...]] = {}  # served API groups with their versions, preferred first
    queues: tuple[LocalQueue, ...] | None = None
    denied: tuple[Permission, ...] = ()  # what was asked for and may not be done
    knows_rights: bool = False  # such questions were answered
    nodes: tuple[NodeUse, ...] | None = None
    sees_all_pods: bool = False  # else the nodes' use counts only pods of this namespace
    device_classes: tuple[str, ...] = ()  # read only for GPUs, where no node offers a plain resource
    quotas: tuple[Quota, ...] | None = None
    limits: tuple[Limit, ...] | None = None
    security: SecurityLevel = "privileged"  # what the namespace enforces
    has_namespace: bool | None = None
    is_terminating: bool = False  # the namespace is being deleted
    service_account: str = "default"  # of the pods
    has_service_account: bool | None = None
    pull_secrets: tuple[str, ...] | None = None  # that this account brings along, and those of the context
    lost_secrets: tuple[str, ...] = ()  # of these, those that do not exist
    storage_classes: tuple[StorageClass, ...] | None = None  # of a job's submission: only if it names a claim
    claims: dict[str, ClaimView] | None = None  # of the namespace; read only if the job or the context names one
    autoscaler: Autoscaler | None = None

    @property
    def has_jobset(self) -> bool:
        return "v1alpha2" in self.groups.get(JOBSET_GROUP, ())

    @property
    def has_kueue(self) -> bool:
        return KUEUE_GROUP in self.groups

    @property
    def can_isolate(self) -> bool:
        """Whether NetworkPolicies are served and whoever submits may create them."""
        group, plural = kinds.NETWORK_POLICY.api_version.partition("/")[0], kinds.NETWORK_POLICY.plural
        denied = {(permission.verb, permission.group, permission.resource) for permission in self.denied}
        return group in self.groups and ("create", group, plural) not in denied

    def queue(self, name: str) -> LocalQueue | None:
        return next((queue for queue in self.queues or () if queue.name == name), None)

    @property
    def offers(self) -> tuple[GpuOffer, ...]:
        """GPUs that nodes really offer."""
        return offers_of([use.node for use in self.nodes or ()])

    def gpu_resource(self, gpus: Gpus) -> str | None:
        """The resource to ask for, `dra:CLASS` where only a DeviceClass offers GPUs; None for no GPUs."""
        if not gpus.count:
            return None
        offers = self.offers
        if not offers and self.device_classes:
            return DRA + self.device_classes[0]
        offer = offer_for(gpus, offers)
        return offer.resource if offer is not None else DEFAULT_GPU

    def gpu_selector(self, gpus: Gpus) -> dict[str, tuple[str, ...]]:
        """Labels and values of which a node must carry one for the type and memory asked for. Empty: any."""
        return selector_for(gpus, self.offers)


class ContextChoices(Protocol):
    """Settings of a context that decide what is observed."""

    @property
    def storage(self) -> Storage | None: ...

    @property
    def queue(self) -> str | None: ...

    @property
    def service_account(self) -> str | None: ...

    @property
    def pull_secrets(self) -> tuple[str, ...]: ...


_POOL = SharedPool(THREADS)


def observe(
    client: Client,
    job: Job | None = None,
    settings: ContextChoices | None = None,
    threads: ThreadPoolExecutor | None = None,
) -> ClusterFacts:
    """Look at the cluster, all at once. Without a job: in general. Raises Unreachable only.

    `threads`: for somebody who looks at several clusters, of which a slow one should not take the threads of all.
    """
    if threads is not None:
        return _Look(client, threads, settings).observe(job)
    with _POOL.borrowed() as pool:
        return _Look(client, pool, settings).observe(job)


def named_claims(job: Job | None, settings: ContextChoices | None) -> tuple[str, ...]:
    """Claims that the job mounts, and the one in which the context keeps what outlives pods."""
    named = [volume.claim for volume in job.volumes if volume.claim] if job is not None else []
    if settings is not None and settings.storage is not None and settings.storage.claim:
        named.append(settings.storage.claim)
    return tuple(dict.fromkeys(named))


class _Look:
    """One look at a cluster: requests are started together and collected afterwards."""

    def __init__(self, client: Client, pool: ThreadPoolExecutor, settings: ContextChoices | None) -> None:
        self.client = client
        self.pool = pool
        self.settings = settings
        self.account = (settings.service_account if settings is not None else None) or "default"

    def observe(self, job: Job | None) -> ClusterFacts:
        start, list_ = self.start, self.client.list
        version = start(lambda: self.json("/version"))
        groups = start(self.groups)
        limited = start(self.is_limited)
        nodes = start(lambda: list_(kinds.NODE, into=SlimNode).items)
        pods = start(self.pods)
        growing = start(self.autoscaler_status)
        own = start(self.own_autoscaler)
        collect = self.rules(job)

        served = self.result(groups) or {}
        queues = start(lambda: self.queues(served)) if KUEUE_GROUP in served else None
        uses, sees_all = self.uses(nodes, pods)
        is_known, status = self.result(growing) or (False, None)
        return ClusterFacts(
            namespace=self.client.namespace,
            version=str((self.result(version) or {}).get("gitVersion") or ""),
            groups=served,
            denied=self.denied(served, self.result(limited) is not False),
            knows_rights=self.result(limited) is not None,
            nodes=uses,
            sees_all_pods=sees_all,
            device_classes=self.device_classes(served, uses) if _wants_gpus(job) else (),
            autoscaler=self.result(own) or surroundings.autoscaler_of(status, served, uses, is_known=is_known),
            queues=self.result(queues) if queues else None,
            **collect(),
        )

    def rules(self, job: Job | None) -> Callable[[], dict[str, Any]]:
        """Asks for what the namespace has and allows; the answer collects it."""
        start, list_ = self.start, self.client.list
        quotas = start(lambda: list_(kinds.QUOTA).items)
        limits = start(lambda: list_(kinds.LIMIT_RANGE).items)
        namespace = start(lambda: self.client.find(kinds.NAMESPACE, self.client.namespace) or {})
        account = start(lambda: self.client.find(kinds.SERVICE_ACCOUNT, self.account) or {})
        named = named_claims(job, self.settings)
        classes = start(lambda: list_(kinds.STORAGE_CLASS).items) if named or job is None else None
        claims = start(lambda: list_(kinds.PVC).items) if named else None

        def collect() -> dict[str, Any]:
            space = self.result(namespace)
            return {
                "quotas": _each(self.result(quotas), surroundings.quota_of),
                "limits": _flat(self.result(limits), surroundings.limits_of),
                "security": surroundings.security_of(space or {}),
                "has_namespace": None if space is None else bool(space),
                "is_terminating": ((space or {}).get("status") or {}).get("phase") == "Terminating",
                "storage_classes": _each(self.result(classes), surroundings.storage_class_of) if classes else None,
                "claims": _claims(self.result(claims)) if claims else None,
                **self.account_facts(self.result(account)),
            }

        return collect

    def account_facts(self, account: Mapping[str, Any] | None) -> dict[str, Any]:
        if account is None:
            return {"service_account": self.account}
        own = self.settings.pull_secrets if self.settings is not None else ()
        names = tuple(
            dict.fromkeys([*own, *(str(secret.get("name")) for secret in account.get("imagePullSecrets") or ())])
        )
        there = {name: self.start(partial(self.client.find, kinds.SECRET, name)) for name in names}
        return {
            "service_account": self.account,
            "has_service_account": bool(account),
            "pull_secrets": names,
            "lost_secrets": tuple(name for name, answer in there.items() if self.is_lost(answer)),
        }

    def is_lost(self, secret: Future[Any]) -> bool:
        try:
            return secret.result() is None
        except Forbidden:
            return False

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self.pool.submit(work)

    def result(self, future: Future[T]) -> T | None:
        """The answer; None where it is forbidden or not served."""
        return answer_or_none(future.result)

    def json(self, path: str, accept: str | None = None) -> dict[str, Any]:
        body = msgspec.json.decode(self.client.request("GET", path, accept=accept))
        return body if isinstance(body, dict) else {}

    def groups(self) -> dict[str, tuple[str, ...]]:
        """Served groups by one request: aggregated discovery, or the plain list of an older server."""
        discovered = self.json("/apis", f"{DISCOVERY},application/json")
        if "groups" in discovered:
            return {
                str(group["name"]): tuple(str(version["version"]) for version in group.get("versions") or ())
                for group in discovered["groups"]
            }
        return {
            str(group["metadata"]["name"]): tuple(
                str(version["version"]) for version in group.get("versions") or () if version.get("resources")
            )
            for group in discovered.get("items") or ()
        }

    def pods(self) -> tuple[bool, list[BoundPod]]:
        try:
            return True, self.client.list(kinds.POD, everywhere=True, fields=UNFINISHED, into=BoundPod).items
        except Forbidden:
            return False, self.client.list(kinds.POD, fields=UNFINISHED, into=BoundPod).items

    def uses(
        self, nodes: Future[list[SlimNode]], pods: Future[tuple[bool, list[BoundPod]]]
    ) -> tuple[tuple[NodeUse, ...] | None, bool]:
        seen = self.result(nodes)
        sees_all, bound = self.result(pods) or (False, [])
        if seen is None:
            return None, False
        return surroundings.uses_of(seen, bound), sees_all

    def queues(self, served: Mapping[str, tuple[str, ...]]) -> tuple[LocalQueue, ...]:
        """Queues of the namespace, with their quotas where ClusterQueues may be listed."""
        version = f"{KUEUE_GROUP}/{served[KUEUE_GROUP][0]}"
        local = self.client.list(kinds.LOCAL_QUEUE._replace(api_version=version)).items
        clusters = self._or_none(kinds.CLUSTER_QUEUE._replace(api_version=version)) if local else None
        cohorts = self._or_none(kinds.COHORT._replace(api_version=version)) if clusters else None
        by_name = {str(cluster["metadata"]["name"]): cluster for cluster in clusters or ()}
        local_queues = []
        for queue in map(surroundings.queue_of, local):
            mine = by_name.get(queue.cluster_queue)
            flavors = None if mine is None else flavor_quotas(mine, by_name.values(), cohorts)
            local_queues.append(msgspec.structs.replace(queue, flavors=flavors))
        return tuple(local_queues)

    def _or_none(self, kind: kinds.Kind) -> list[dict[str, Any]] | None:
        """All of a kind, or None where it may not be listed or is not served."""
        return answer_or_none(lambda: self.client.list(kind).items)

    def device_classes(
        self, served: Mapping[str, tuple[str, ...]], uses: tuple[NodeUse, ...] | None
    ) -> tuple[str, ...]:
        """Classes of GPUs, only where no node has a plain resource and claims are served as we write them."""
        if DRA_VERSION not in served.get(DRA_GROUP, ()) or uses is None or offers_of([use.node for use in uses]):
            return ()
        names = [str(item["metadata"]["name"]) for item in self._or_none(kinds.DEVICE_CLASS) or ()]
        return tuple(
            sorted((name for name in names if "gpu" in name), key=lambda name: (not name.endswith("nvidia.com"), name))
        )

    def autoscaler_status(self) -> tuple[bool, dict[str, Any] | None]:
        """(whether we may look, the cluster-autoscaler's status)."""
        try:
            return True, self.client.find(kinds.CONFIG_MAP, "cluster-autoscaler-status", namespace="kube-system")
        except Forbidden:
            return False, None

    def own_autoscaler(self) -> Autoscaler | None:
        """Longboat's own, in its usual home or in the namespace at hand."""
        for home in (HOME, self.client.namespace):
            try:
                status = self.client.find(kinds.CONFIG_MAP, OWN_STATUS, namespace=home)
            except Forbidden:
                continue
            if status is not None:
                return surroundings.own_autoscaler(status, self.client.now())
        return None

    def is_limited(self) -> bool:
        """Whether one question is not enough: who may do everything here is asked no more."""
        return not self.allowed(Permission(verb="*", group="*", resource="*", why=""))

    def allowed(self, permission: Permission) -> bool:
        attributes = {
            "namespace": self.client.namespace,
            "verb": permission.verb,
            "group": permission.group,
            "resource": permission.resource,
            "subresource": permission.subresource,
        }
        body = {
            "apiVersion": kinds.ACCESS_REVIEW.api_version,
            "kind": kinds.ACCESS_REVIEW.kind,
            "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
        }
        return bool((self.client.create(body).get("status") or {}).get("allowed"))

    def denied(self, served: Mapping[str, Any], is_asked: bool) -> tuple[Permission, ...]:
        """Every permission that an object of a run here would need and that is not given."""
        if not is_asked:
            return ()
        wanted = [permission for permission in PERMISSIONS if _is_needed(permission, served)]
        answers = list(self.pool.map(self._may, wanted))
        return tuple(permission for permission, given in zip(wanted, answers) if given is False)

    def _may(self, permission: Permission) -> bool | None:
        return answer_or_none(lambda: self.allowed(permission))


def _wants_gpus(job: Job | None) -> bool:
    return job is None or any(role.resources.gpus.count for role in job.roles)


def _is_needed(permission: Permission, served: Mapping[str, Any]) -> bool:
    if permission.need == "jobset":
        return JOBSET_GROUP in served
    return permission.need != "kueue" or KUEUE_GROUP in served


def _each(bodies: Iterable[Mapping[str, Any]] | None, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...] | None:
    return None if bodies is None else tuple(read(body) for body in bodies)


def _flat(
    bodies: Iterable[Mapping[str, Any]] | None, read: Callable[[Mapping[str, Any]], tuple[T, ...]]
) -> tuple[T, ...] | None:
    return None if bodies is None else tuple(item for body in bodies for item in read(body))


def _claims(bodies: Iterable[Mapping[str, Any]] | None) -> dict[str, ClaimView] | None:
    if bodies is None:
        return None
    claims = (surroundings.claim_of(body) for body in bodies)
    return {claim.name: claim for claim in claims}
