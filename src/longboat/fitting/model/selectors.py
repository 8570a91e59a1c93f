"""Selectors of labels: of nodes (nodeSelector, node affinity, a volume's) and of pods. Pure.

A requirement is a tuple (key, operator, values); a term is a tuple of requirements that must all hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Requirement = tuple[str, str, tuple[str, ...]]
Term = tuple[Requirement, ...]
Terms = tuple[Term, ...]
"""Alternatives. None of them: nothing matches."""

NAME_FIELD = "metadata.name"
NEVER: Term = (("", "In", ()),)
"""Holds for nothing."""


def requirement_of(body: Mapping[str, Any]) -> Requirement:
    values = tuple(sorted(str(value) for value in body.get("values") or ()))
    return (str(body.get("key", "")), str(body.get("operator", "In")), values)


def term_of_pods(selector: Mapping[str, Any] | None) -> Term:
    """A labelSelector. None selects nothing, an empty one everything."""
    if selector is None:
        return NEVER
    requirements: list[Requirement] = [
        (str(key), "In", (str(value),)) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    requirements += [requirement_of(expression) for expression in selector.get("matchExpressions") or ()]
    return tuple(sorted(requirements))


def terms_of_nodes(selector: Mapping[str, Any] | None) -> Terms | None:
    """A nodeSelector with `nodeSelectorTerms`; None when there is none, so that every node will do."""
    if not selector:
        return None
    terms = []
    for term in selector.get("nodeSelectorTerms") or ():
        parts = [requirement_of(expression) for expression in term.get("matchExpressions") or ()]
        for field in term.get("matchFields") or ():
            key, operator, values = requirement_of(field)
            parts.append((f"field:{key}", operator, values))
        # Kubernetes lets an empty term match nothing.
        terms.append(tuple(sorted(parts)) if parts else NEVER)
    return tuple(terms)


def equality_term(labels: Mapping[str, Any] | None) -> Term:
    """A plain mapping, such as `nodeSelector`."""
    return tuple(sorted((str(key), "In", (str(value),)) for key, value in (labels or {}).items()))


def holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a label of this value (None: absent) meets the requirement."""
    _, operator, values = requirement
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt"):
        left, right = number_of(value), number_of(values[0] if len(values) == 1 else None)
        if left is None or right is None:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def number_of(text: str | None) -> int | None:
    """A label's value as Gt and Lt read it."""
    digits = (text or "").removeprefix("-").removeprefix("+")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None


def value_on_node(key: str, labels: Mapping[str, str], name: str) -> str | None:
    """What a requirement on nodes looks at: a label, or a field (of which there is only the name)."""
    if key.startswith("field:"):
        return name if key == f"field:{NAME_FIELD}" else None
    return labels.get(key)


def matches_labels(term: Term, labels: Mapping[str, str]) -> bool:
    return all(holds(requirement, labels.get(requirement[0])) for requirement in term)


def matches_node(term: Term, labels: Mapping[str, str], name: str) -> bool:
    return all(holds(requirement, value_on_node(requirement[0], labels, name)) for requirement in term)


def keys_of(terms: Iterable[Term]) -> set[str]:
    return {requirement[0] for term in terms for requirement in term}


def show_requirement(requirement: Requirement) -> str:
    key, operator, values = requirement
    key = key.removeprefix("field:")
    if operator == "In" and len(values) == 1:
        return f"{key}={values[0]}"
    if operator == "NotIn" and len(values) == 1:
        return f"{key}!={values[0]}"
    if operator in ("In", "NotIn"):
        return f"{key} {'in' if operator == 'In' else 'not in'} ({', '.join(values)})"
    if operator in ("Gt", "Lt"):
        return f"{key} {'>' if operator == 'Gt' else '<'} {', '.join(values)}"
    return key if operator == "Exists" else f"no {key}"


def show_term(term: Term) -> str:
    if term == NEVER:
        return "nothing at all"
    return " and ".join(show_requirement(requirement) for requirement in term) or "anything"
