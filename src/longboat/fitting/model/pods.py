"""Pods as nodes see them: what they ask for, where they may be, whom they want near. Values; made from the API's JSON.

A `PodShape` is all that decides where a pod fits, apart from who it is: pods of one shape are interchangeable. What
only ranks nodes (preferred affinity, ScheduleAnyway) is left out. The dicts may hold more or less than the API prints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import astuple

from longboat.core.jobs import Value
from longboat.fitting.model.nodes import Toleration, tolerations_of
from longboat.fitting.model.quantities import Amounts
from longboat.fitting.model.requests import Port, ports_of, requests_of
from longboat.fitting.model.selectors import (
    Term,
    Terms,
    equality_term,
    matches_labels,
    term_of_pods,
    terms_of_nodes,
)

Body = Mapping[str, Any]
Claims = Mapping[tuple[str, str], tuple[Terms, ...]]
"""(namespace, claim) -> the node selectors of its volume, all of which must hold. See `volumes`."""

RUN_LABEL = "longboat.dev/run"
LASTING_OWNERS = ("DaemonSet", "ReplicaSet", "StatefulSet", "Node")
_NO_CLAIMS: Claims = {}


class NodeConstraints(Value, frozen=True, cache_hash=True):
    """Where a pod may be, whatever else is there."""

    selector: Term = ()
    affinity: Terms | None = None
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[tuple[str, Terms], ...] = ()  # claim -> where its volume can be reached


class PodSelector(Value, frozen=True, cache_hash=True):
    """Some pods, by label and namespace."""

    labels: Term
    namespaces: tuple[str, ...] = ()
    namespace_labels: Term | None = None  # and those of namespaces with such labels

    def matches(self, pod: Pod, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        if pod.namespace not in self.namespaces:
            if self.namespace_labels is None:
                return False
            known = {"kubernetes.io/metadata.name": pod.namespace, **namespaces.get(pod.namespace, {})}
            if not matches_labels(self.namespace_labels, known):
                return False
        return matches_labels(self.labels, pod.labels)


class PodTerm(Value, frozen=True, cache_hash=True):
    """These pods, in the same domain of this node label."""

    who: PodSelector
    key: str


class SpreadConstraint(Value, frozen=True, cache_hash=True):
    """A topology spread constraint that refuses."""

    who: PodSelector
    key: str
    max_skew: int = 1
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


class PodShape(Value, frozen=True, cache_hash=True):
    requests: Amounts = ()
    ports: tuple[Port, ...] = ()
    placing: NodeConstraints = NodeConstraints()
    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()

    def asks(self, resource: str) -> int:
        # No generator: the gate asks this most of all, and it would take three times as long.
        for name, count in self.requests:
            if name == resource:
                return count
        return 0


class Pod(Value, frozen=True):
    name: str
    namespace: str = "default"
    shape: PodShape = PodShape()
    labels: dict[str, str] = {}
    node: str | None = None  # bound to it
    priority: int = 0
    owner: str = ""  # kind of the controller that made it
    run: str | None = None  # the run it belongs to
    is_finished: bool = False  # holds nothing any more
    is_terminating: bool = False
    is_gated: bool = False  # has scheduling gates: the scheduler does not look at it
    is_unschedulable: bool = False  # the scheduler looked and found no node
    is_ready: bool = False

    def __hash__(self) -> int:
        return hash((self.namespace, self.name))

    @property
    def lasts(self) -> bool:
        """Whether it is there for good: a service or a part of the node, rather than work that ends."""
        return self.owner in LASTING_OWNERS


def pod_of(body: Body, claims: Claims = _NO_CLAIMS) -> Pod:
    """From a pod as the API prints it."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels = meta.get("labels") or {}
    namespace = meta.get("namespace") or "default"
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled") or {}
    return Pod(
        name=meta.get("name", ""),
        namespace=namespace,
        shape=shape_of(body, claims),
        labels=labels,
        node=spec.get("nodeName") or None,
        priority=spec.get("priority") or 0,
        owner=next(
            (owner.get("kind", "") for owner in meta.get("ownerReferences") or () if owner.get("controller")), ""
        ),
        run=labels.get(RUN_LABEL),
        is_finished=status.get("phase") in ("Succeeded", "Failed"),
        is_terminating=bool(meta.get("deletionTimestamp")),
        is_gated=bool(spec.get("schedulingGates")),
        is_unschedulable=scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable",
        is_ready=(conditions.get("Ready") or {}).get("status") == "True",
    )


def pods_of(bodies: Iterable[Body], claims: Claims = _NO_CLAIMS) -> list[Pod]:
    """Pods that hold or request resources: finished ones are left out."""
    pods = (pod_of(body, claims) for body in bodies)
    return [pod for pod in pods if not pod.is_finished]


def shape_of(body: Body, claims: Claims = _NO_CLAIMS) -> PodShape:
    """From a pod, or from the template of a Job given a name and a namespace."""
    meta, spec = body.get("metadata") or {}, body.get("spec") or {}
    affinity = spec.get("affinity") or {}
    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    if affinity or spec.get("topologySpreadConstraints"):
        labels, namespace = meta.get("labels") or {}, meta.get("namespace") or "default"
        near = _together(_pod_terms(affinity.get("podAffinity"), labels, namespace))
        apart = _pod_terms(affinity.get("podAntiAffinity"), labels, namespace)
        spread = _spreads(spec.get("topologySpreadConstraints"), labels, namespace)
    requests = requests_of(spec, body.get("status") if spec.get("nodeName") else None)
    return _shape(requests, ports_of(spec), _placing(meta, spec, affinity, claims), near, apart, spread)


def _shape(*parts: Any) -> PodShape:
    """Equal shapes are one object, which makes comparing them cheap."""
    shape = _shapes.get(parts)
    if shape is None:
        if len(_shapes) > _MAX_KNOWN:
            _shapes.clear()
        requests, ports, placing, near, apart, spread = parts
        shape = _shapes[parts] = PodShape(
            requests=requests, ports=ports, placing=placing, near=near, apart=apart, spread=spread
        )
    return shape


_shapes: dict[Any, PodShape] = {}
_placings: dict[Any, NodeConstraints] = {}
_MAX_KNOWN = 50_000  # shapes of pods in a process that lives for months


def _placing(meta: Body, spec: Body, affinity: Body, claims: Claims) -> NodeConstraints:
    tolerations, selector = spec.get("tolerations") or (), spec.get("nodeSelector")
    volumes = _bound_volumes(meta, spec, claims) if claims else ()
    required = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = terms_of_nodes(required) if required else None
    key = (
        tuple([tuple(toleration.items()) for toleration in tolerations]),
        tuple(selector.items()) if selector else (),
        terms,
        volumes,
    )
    constraints = _placings.get(key)
    if constraints is None:
        if len(_placings) > _MAX_KNOWN:
            _placings.clear()
        # A set, sorted: how often and in which order tolerations are written makes no difference.
        distinct = sorted(set(tolerations_of(tolerations)), key=astuple)
        constraints = _placings[key] = NodeConstraints(
            selector=equality_term(selector), affinity=terms, tolerations=tuple(distinct), volumes=volumes
        )
    return constraints


def _bound_volumes(meta: Body, spec: Body, claims: Claims) -> tuple[tuple[str, Terms], ...]:
    bound = []
    namespace = meta.get("namespace") or "default"
    for volume in spec.get("volumes") or ():
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim is None and "ephemeral" in volume:
            claim = f"{meta.get('name', '')}-{volume.get('name', '')}"
        if claim is not None:
            bound += [(claim, terms) for terms in claims.get((namespace, claim), ())]
    return tuple(sorted(set(bound)))


def _pod_terms(affinity: Body | None, labels: Mapping[str, str], namespace: str) -> tuple[PodTerm, ...]:
    terms = []
    for term in (affinity or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
        selected = _with_label_keys(term_of_pods(term.get("labelSelector")), term, labels)
        namespaces = tuple(sorted(term.get("namespaces") or ()))
        by_label = term.get("namespaceSelector")
        if not namespaces and by_label is None:
            namespaces = (namespace,)
        who = PodSelector(
            labels=selected,
            namespaces=namespaces,
            namespace_labels=None if by_label is None else term_of_pods(by_label),
        )
        terms.append(PodTerm(who=who, key=str(term.get("topologyKey", ""))))
    return tuple(terms)


def _together(terms: tuple[PodTerm, ...]) -> tuple[PodTerm, ...]:
    """Kubernetes counts only pods that match all terms of a pod's affinity at once."""
    if len(terms) < 2 or any(term.who.namespace_labels != terms[0].who.namespace_labels for term in terms):
        return terms
    first = terms[0].who
    both = set(first.namespaces).intersection(*(term.who.namespaces for term in terms))
    labels = tuple(sorted({label for term in terms for label in term.who.labels}))
    who = PodSelector(labels=labels, namespaces=tuple(sorted(both)), namespace_labels=first.namespace_labels)
    return tuple(PodTerm(who=who, key=term.key) for term in terms)


def _spreads(
    constraints: Iterable[Body] | None, labels: Mapping[str, str], namespace: str
) -> tuple[SpreadConstraint, ...]:
    spread_constraints = []
    for constraint in constraints or ():
        if constraint.get("whenUnsatisfiable", "DoNotSchedule") != "DoNotSchedule":
            continue
        selected = _with_label_keys(term_of_pods(constraint.get("labelSelector")), constraint, labels)
        spread_constraints.append(
            SpreadConstraint(
                who=PodSelector(labels=selected, namespaces=(namespace,)),
                key=str(constraint.get("topologyKey", "")),
                max_skew=int(constraint.get("maxSkew") or 1),
                min_domains=int(constraint.get("minDomains") or 1),
                honours_affinity=constraint.get("nodeAffinityPolicy", "Honor") == "Honor",
                honours_taints=constraint.get("nodeTaintsPolicy", "Ignore") == "Honor",
            )
        )
    return tuple(spread_constraints)


def _with_label_keys(term: Term, body: Body, labels: Mapping[str, str]) -> Term:
    """`matchLabelKeys` and `mismatchLabelKeys` stand for requirements with the pod's own values."""
    requirements = set(term)
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        requirements |= {(key, operator, (labels[key],)) for key in body.get(name) or () if key in labels}
    return tuple(sorted(requirements))
