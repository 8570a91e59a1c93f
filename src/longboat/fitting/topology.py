"""Topology domains: how many of which pods are in which domain of a node label. Pure.

Counted only for those whom somebody asks about, and kept up to date from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from longboat.fitting.model.pods import Pod, PodSelector, PodTerm
from longboat.fitting.model.selectors import Term
from longboat.fitting.node_state import NodeState

Pair = tuple[str, str]
Counts = dict[str, int]


def pair_of(term: Term) -> Pair | None:
    """A label that every selected pod has; selectors are found again by it."""
    return next(((key, values[0]) for key, operator, values in term if operator == "In" and len(values) == 1), None)


class DomainCounts:
    """How many of some pods are where."""

    def __init__(self, who: PodSelector, *, skips_terminating: bool) -> None:
        self.who = who
        self.skips_terminating = skips_terminating
        self.nodes: Counts = {}
        self.domains: dict[str, Counts] = {}

    def count(self, state: NodeState, change: int) -> None:
        self.nodes[state.name] = self.nodes.get(state.name, 0) + change
        for key, domains in self.domains.items():
            domain = state.shape.labels.get(key)
            if domain is not None:
                domains[domain] = domains.get(domain, 0) + change


class Topology:
    def __init__(self, states: Mapping[str, NodeState], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self._states = states
        self.namespaces = namespaces
        self._watches: dict[tuple[PodSelector, bool], DomainCounts] = {}
        self._watches_by: dict[Pair | None, list[DomainCounts]] = {}
        self._owned: dict[PodTerm, Counts] = {}
        self._owned_by: dict[Pair | None, dict[PodTerm, None]] = {}
        self._pods_by: dict[Pair, dict[tuple[str, str], tuple[Pod, NodeState]]] | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether no pod here keeps others away."""
        return not self._owned

    def count(self, pod: Pod, state: NodeState, change: int) -> None:
        """A pod came to (1) or left (-1) a node."""
        for term in pod.shape.apart:
            domain = state.shape.labels.get(term.key)
            if domain is not None:
                held = self._owned.get(term)
                if held is None:
                    held = self._owned[term] = {}
                    self._owned_by.setdefault(pair_of(term.who.labels), {})[term] = None
                held[domain] = held.get(domain, 0) + change
        if self._watches:
            for watch in self._watching(pod):
                watch.count(state, change)
        if self._pods_by is not None:
            for pair in pod.labels.items():
                if change > 0:
                    self._pods_by.setdefault(pair, {})[(pod.namespace, pod.name)] = (pod, state)
                else:
                    self._pods_by[pair].pop((pod.namespace, pod.name), None)

    def _watching(self, pod: Pod) -> Iterator[DomainCounts]:
        for pair in (*pod.labels.items(), None):
            for watch in self._watches_by.get(pair, ()):
                if self._counts(watch, pod):
                    yield watch

    def _counts(self, watch: DomainCounts, pod: Pod) -> bool:
        if watch.skips_terminating and pod.is_terminating:
            return False
        return watch.who.matches(pod, self.namespaces)

    def watch(self, who: PodSelector, *, skips_terminating: bool = False) -> DomainCounts:
        counts = self._watches.get((who, skips_terminating))
        if counts is None:
            counts = DomainCounts(who, skips_terminating=skips_terminating)
            pair = pair_of(who.labels)
            for pod, state in self._pods_with(pair):
                if self._counts(counts, pod):
                    counts.count(state, 1)
            self._watches[(who, skips_terminating)] = counts
            self._watches_by.setdefault(pair, []).append(counts)
        return counts

    def domains(self, who: PodSelector, key: str) -> Counts:
        """Pods per domain; kept up to date."""
        watch = self.watch(who)
        counts = watch.domains.get(key)
        if counts is None:
            counts = watch.domains[key] = {}
            for name, count in watch.nodes.items():
                domain = self._states[name].shape.labels.get(key)
                if domain is not None and count:
                    counts[domain] = counts.get(domain, 0) + count
        return counts

    def _pods_with(self, pair: Pair | None) -> Iterable[tuple[Pod, NodeState]]:
        if pair is None:
            return [(pod, state) for state in self._states.values() for pod in state.pods.values()]
        if self._pods_by is None:
            self._pods_by = {}
            for state in self._states.values():
                for pod in state.pods.values():
                    for label in pod.labels.items():
                        self._pods_by.setdefault(label, {})[(pod.namespace, pod.name)] = (pod, state)
        return self._pods_by.get(pair, {}).values()

    def repelling_terms(self, pod: Pod) -> list[tuple[PodTerm, Counts]]:
        """Terms of pods that are here and keep this one away, with the domains they hold."""
        if not self._owned:
            return []
        terms = [term for pair in (*pod.labels.items(), None) for term in self._owned_by.get(pair, ())]
        return [(term, self._owned[term]) for term in terms if term.who.matches(pod, self.namespaces)]

    def labels_looked_at(self, pod: Pod) -> frozenset[str]:
        """Labels of pods that decide about this pod: two pods that differ in others only are alike."""
        whos = [term.who for term in (*pod.shape.near, *pod.shape.apart, *self._owned)]
        whos += [spread.who for spread in pod.shape.spread]
        return frozenset(label[0] for who in whos for label in who.labels)

    def copy(self, states: Mapping[str, NodeState]) -> Topology:
        """For a copy of the fleet. Watches start anew there."""
        topology = Topology(states, self.namespaces)
        topology._owned = {term: dict(held) for term, held in self._owned.items()}
        topology._owned_by = {pair: dict(terms) for pair, terms in self._owned_by.items()}
        return topology
