"""Requirements on labels, one by one."""

from __future__ import annotations

import pytest

from longboat.fitting.model.selectors import (
    NEVER,
    holds,
    matches_node,
    show_term,
    term_of_pods,
    terms_of_nodes,
)


@pytest.mark.parametrize(
    ("operator", "values", "value", "expected"),
    [
        ("In", ("a", "b"), "a", True),
        ("In", ("a",), None, False),
        ("NotIn", ("a",), "b", True),
        ("NotIn", ("a",), "a", False),
        ("NotIn", ("a",), None, True),
        ("Exists", (), "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", (), None, True),
        ("DoesNotExist", (), "x", False),
        ("Gt", ("5",), "10", True),
        ("Gt", ("10",), "10", False),
        ("Gt", ("5",), None, False),
        ("Gt", ("5",), "many", False),
        ("Lt", ("5",), "-3", True),
        ("Lt", ("5", "6"), "3", False),
        ("Near", (), "x", False),
    ],
)
def test_operators(operator: str, values: tuple[str, ...], value: str | None, expected: bool) -> None:
    assert holds(("key", operator, values), value) is expected


def test_terms_are_alternatives_and_empty_ones_match_nothing() -> None:
    assert terms_of_nodes(None) is None
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    found = terms_of_nodes({"nodeSelectorTerms": [{}, fields]})
    assert found is not None and found[0] == NEVER
    assert not matches_node(found[0], {}, "n1")
    assert matches_node(found[1], {}, "n1") and not matches_node(found[1], {}, "n2")


def test_words() -> None:
    selector = {
        "matchLabels": {"app": "x"},
        "matchExpressions": [
            {"key": "rev", "operator": "NotIn", "values": ["1", "2"]},
            {"key": "gpu", "operator": "Exists"},
            {"key": "spot", "operator": "DoesNotExist"},
            {"key": "n", "operator": "Gt", "values": ["3"]},
        ],
    }
    assert show_term(term_of_pods(selector)) == "app=x and gpu and n > 3 and rev not in (1, 2) and no spot"
    assert show_term(()) == "anything" and show_term(NEVER) == "nothing at all"
