"""Pod affinity and anti-affinity (both ways) and topology spread: whether other pods allow a pod on a node. Pure."""

from __future__ import annotations

from typing import NamedTuple

from longboat.fitting.eligibility import admits_labels, admits_taints
from longboat.fitting.fleet import Fleet
from longboat.fitting.model.nodes import HOSTNAME
from longboat.fitting.model.pods import Pod, PodTerm, SpreadConstraint
from longboat.fitting.model.selectors import show_term
from longboat.fitting.node_state import NodeState
from longboat.fitting.topology import Counts


class _Balance(NamedTuple):
    """A spread constraint with the pods counted on the nodes that count for it."""

    spread: SpreadConstraint
    counts: Counts  # every domain that counts is in it
    is_self: bool  # the pod itself will be counted

    def allows(self, domain: str) -> bool:
        return self.skew(domain) <= self.spread.max_skew

    def skew(self, domain: str) -> int:
        least = min(self.counts.values(), default=0) if len(self.counts) >= self.spread.min_domains else 0
        return self.counts.get(domain, 0) + self.is_self - least


class AffinityView:
    """The view of one pod (or of any that has the same shape and the same labels that matter)."""

    def __init__(self, pod: Pod, fleet: Fleet) -> None:
        topology = fleet.topology
        shape = pod.shape
        self._apart = [(term, topology.domains(term.who, term.key)) for term in shape.apart]
        self._kept = topology.repelling_terms(pod)
        self._near = [(term, topology.domains(term.who, term.key)) for term in shape.near]
        self._starts = bool(self._near) and all(term.who.matches(pod, topology.namespaces) for term in shape.near)
        self._spread = [_balance(constraint, pod, fleet) for constraint in shape.spread]
        self.is_alone = not (self._apart or self._kept or self._near or self._spread)

    @property
    def is_first(self) -> bool:
        """Whether it asks to be near pods of its own kind and is the first of them: it may start anywhere."""
        return self._starts and not any(any(counts.values()) for _, counts in self._near)

    def allows(self, state: NodeState) -> bool:
        if self.is_alone:
            return True
        labels = state.shape.labels
        for term, counts in (*self._apart, *self._kept):
            domain = labels.get(term.key)
            if domain is not None and counts.get(domain, 0) > 0:
                return False
        if self._near:
            domains = [(labels.get(term.key), counts) for term, counts in self._near]
            if any(domain is None for domain, _ in domains):
                return False
            if not all(counts.get(domain or "", 0) > 0 for domain, counts in domains) and not self.is_first:
                return False
        for balance in self._spread:
            domain = labels.get(balance.spread.key)
            if domain is None or not balance.allows(domain):
                return False
        return True

    def placed(self, state: NodeState) -> None:
        """A pod of this kind was put there (the fleet counts the rest)."""
        for balance in self._spread:
            domain = state.shape.labels.get(balance.spread.key)
            if balance.is_self and domain in balance.counts:
                balance.counts[domain] += 1

    def refusals(self, state: NodeState) -> list[str]:
        """Why not, in words."""
        labels = state.shape.labels
        reasons = []
        for term, counts in self._apart:
            if counts.get(labels.get(term.key, ""), 0) > 0:
                reasons.append(f"wants no pod with {_selector_text(term)} {_same(term.key)}, and one is there")
        for term, counts in self._kept:
            if counts.get(labels.get(term.key, ""), 0) > 0:
                reasons.append(f"a pod there wants no pod with {_selector_text(term)} {_same(term.key)}")
        for term, counts in self._near:
            if term.key not in labels:
                reasons.append(f"wants to be near others by {term.key}, a label that the node does not have")
            elif not counts.get(labels[term.key], 0) > 0 and not self.is_first:
                reasons.append(f"wants a pod with {_selector_text(term)} {_same(term.key)}, and none is there")
        for balance in self._spread:
            reasons += _spread_refusal(balance, labels.get(balance.spread.key))
        return reasons


def _spread_refusal(balance: _Balance, domain: str | None) -> list[str]:
    place = _place(balance.spread.key)
    if domain is None:
        return [f"is to be spread by {balance.spread.key}, a label that the node does not have"]
    if balance.allows(domain):
        return []
    return [f"is to be spread over {place}s: {place} {domain} would be ahead by {balance.skew(domain)}"
            f", {balance.spread.max_skew} allowed"]  # fmt: skip


def _balance(spread: SpreadConstraint, pod: Pod, fleet: Fleet) -> _Balance:
    placing = pod.shape.placing
    keys = [constraint.key for constraint in pod.shape.spread]
    watch = fleet.topology.watch(spread.who, skips_terminating=True)
    counts: Counts = {}
    for state in fleet.states.values():
        node = state.shape
        if not all(key in node.labels for key in keys):
            continue
        if spread.honours_affinity and not admits_labels(placing, node):
            continue
        if spread.honours_taints and not admits_taints(placing, node):
            continue
        domain = node.labels[spread.key]
        counts[domain] = counts.get(domain, 0) + watch.nodes.get(state.name, 0)
    return _Balance(spread, counts, spread.who.matches(pod, fleet.topology.namespaces))


def _selector_text(term: PodTerm) -> str:
    return show_term(term.who.labels)


def _same(key: str) -> str:
    return "on the same node" if key == HOSTNAME else f"in the same {_place(key)}"


def _place(key: str) -> str:
    return {"hostname": "node"}.get(key.rpartition("/")[2], key.rpartition("/")[2])
