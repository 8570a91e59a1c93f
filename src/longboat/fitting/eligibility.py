"""Eligible nodes of a pod, whatever is on them: nodeSelector, node affinity, taints, cordons, volumes. Pure.

Nodes that do not differ in what a rule looks at are judged once (a class of nodes), and a rule that names few nodes is
judged on those only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from longboat.fitting.model.nodes import UNSCHEDULABLE, NodeShape, untolerated
from longboat.fitting.model.pods import NodeConstraints
from longboat.fitting.model.selectors import Requirement, keys_of, matches_node, value_on_node

Key = TypeVar("Key")
_FEW = 64  # sorting so few nodes by name is cheaper than walking all


def admits(placing: NodeConstraints, node: NodeShape) -> bool:
    return admits_labels(placing, node) and admits_taints(placing, node) and admits_volumes(placing, node)


def admits_labels(placing: NodeConstraints, node: NodeShape) -> bool:
    if placing.selector and not matches_node(placing.selector, node.labels, node.name):
        return False
    return placing.affinity is None or any(matches_node(term, node.labels, node.name) for term in placing.affinity)


def admits_taints(placing: NodeConstraints, node: NodeShape) -> bool:
    if node.is_unschedulable and untolerated((UNSCHEDULABLE,), placing.tolerations) is not None:
        return False
    return not node.taints or untolerated(node.taints, placing.tolerations) is None


def admits_volumes(placing: NodeConstraints, node: NodeShape) -> bool:
    return all(any(matches_node(term, node.labels, node.name) for term in terms) for _, terms in placing.volumes)


def keys_looked_at(placing: NodeConstraints) -> tuple[str, ...]:
    """The labels (and fields) of nodes that the rule depends on."""
    terms = [placing.selector, *(placing.affinity or ())]
    terms += [term for _, alternatives in placing.volumes for term in alternatives]
    return tuple(sorted(keys_of(terms)))


class Eligibility:
    """Answers for one set of nodes, remembered until the set changes."""

    def __init__(self, nodes: Mapping[str, NodeShape]) -> None:
        self._nodes = nodes
        self._classes: dict[tuple[str, ...], list[tuple[NodeShape, list[str]]]] = {}
        self._by_value: dict[str, dict[str, list[str]]] = {}
        self._found: dict[NodeConstraints, tuple[str, ...]] = {}
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def select(self, placing: NodeConstraints) -> tuple[str, ...]:
        """Names of the nodes, in the order of the set. Equal answers are one and the same object."""
        selected = self._found.get(placing)
        if selected is None:
            selected = self._select(placing)
            selected = self._found[placing] = self._shared.setdefault(selected, selected)
        return selected

    def _select(self, placing: NodeConstraints) -> tuple[str, ...]:
        few = self._few_nodes(placing)
        if few is not None:
            return tuple(name for name in few if admits(placing, self._nodes[name]))
        names: list[str] = []
        for sample, members in self._classes_by(keys_looked_at(placing)):
            if admits(placing, sample):
                names += members
        return tuple(sorted(names))

    def _few_nodes(self, placing: NodeConstraints) -> list[str] | None:
        """The nodes with a label value that the rule insists on, if these are few."""
        for key, _, values in _required_values(placing):
            names = [name for value in values for name in self._index(key).get(value, ())]
            if len(names) <= _FEW:
                return sorted(set(names))
        return None

    def _index(self, key: str) -> dict[str, list[str]]:
        index = self._by_value.get(key)
        if index is None:
            index = self._by_value[key] = {}
            for name, node in self._nodes.items():
                value = value_on_node(key, node.labels, name)
                if value is not None:
                    index.setdefault(value, []).append(name)
        return index

    def _classes_by(self, keys: tuple[str, ...]) -> list[tuple[NodeShape, list[str]]]:
        classes_of = self._classes.get(keys)
        if classes_of is None:
            classes: dict[Any, tuple[NodeShape, list[str]]] = {}
            for name, node in self._nodes.items():
                values = [value_on_node(key, node.labels, name) for key in keys]
                mark = (*values, node.taints, node.is_unschedulable)
                known = classes.get(mark)
                if known is None:
                    known = classes[mark] = (node, [])
                known[1].append(name)
            classes_of = self._classes[keys] = list(classes.values())
        return classes_of


def _required_values(placing: NodeConstraints) -> Iterable[Requirement]:
    terms = [placing.selector]
    if placing.affinity is not None and len(placing.affinity) == 1:
        terms.append(placing.affinity[0])
    return (requirement for term in terms for requirement in term if requirement[1] == "In")
